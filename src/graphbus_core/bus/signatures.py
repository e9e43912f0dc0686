"""From a live handler to a function of one event, by the table of `model.agent`. Decided once, when it is subscribed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.model.agent import Annotation, HandlerParameter, HandlerShape, ParameterKind, decide
from graphbus_core.model.messages import Event
from graphbus_core.schema.live import Unresolved, annotation_of, type_of
from graphbus_core.schema.objects import Make, UnfitError, Unmakeable, is_typed_class, maker_of, needs_making
from graphbus_core.schema.types import UNKNOWN, Type
from graphbus_core.schema.validation import Problem, refusal
from graphbus_core.schema.values import clipped

_POSITIONAL_REST, _KEYWORD_REST, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
_MAPPINGS = frozenset({"Mapping", "MutableMapping", "dict", "Dict"})

Handler = Callable[..., object]


class BoundHandler(msgspec.Struct, frozen=True):
    """A handler that takes one event, whatever its signature says.

    Attributes:
        answers: False for one with `-> None`: it only hears.
    """

    call: Callable[[Event], object]
    shape: HandlerShape
    is_async: bool
    answers: bool = True


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    kind: ParameterKind
    annotation: object
    has_default: bool


def bind(handler: Handler, *, shape: HandlerShape | None = None) -> BoundHandler:
    """Wrap a handler so that it takes one event; one that takes the event itself is not wrapped at all.

    Args:
        handler: A function, method or other callable. What has no Python signature, e.g. `list.append`, takes the event.
        shape: `topic_payload` for a `handle_event(topic, payload)`, which nothing but its name tells; else what the compiler has
            found: it counts where an annotation cannot be resolved at run time.

    Raises:
        RunError: GBE611 for a signature that fits no row of the table.
    """
    function = _function_of(handler)
    if function is None:
        if not callable(handler):
            raise _invalid(handler, "it cannot be called")
        return BoundHandler(handler, "event", is_async=False)
    code = function.__code__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise _invalid(handler, "a generator does nothing when it is called")
    is_async = bool(code.co_flags & _COROUTINE)
    parameters = _parameters(handler, function)
    if shape == "topic_payload":
        return BoundHandler(_call_with_topic(handler, parameters), "topic_payload", is_async, _answers(function))
    if shape is None or not any(isinstance(each.annotation, Unresolved) for each in parameters):
        given = [HandlerParameter(each.name, each.kind, _classify(each.annotation)) for each in parameters]
        shape = decide(given, _promised_to(handler))
    if shape == "invalid":
        raise _invalid(handler, f"({', '.join(each.name for each in parameters)}) fits no row of the table")
    return BoundHandler(_ADAPTERS[shape](handler, parameters), shape, is_async, _answers(function))


def describe(handler: Handler) -> str:
    """Name a handler for people: its qualified name, as far as it has one."""
    named = handler.func if isinstance(handler, partial) else handler
    name: str = getattr(named, "__qualname__", "") or type(named).__qualname__
    return name


def place_of(handler: Handler) -> Place | None:
    """Where the handler is defined, if it is Python."""
    function = _function_of(handler)
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno) if function else None


def _function_of(handler: Handler) -> Any:
    """The Python function whose signature counts: below wrappers, methods, partials and instances with `__call__`."""
    if isinstance(handler, partial):
        return _function_of(handler.func)
    function: Any = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function if hasattr(function, "__code__") else None


def _answers(function: Any) -> bool:
    annotations = getattr(function, "__annotations__", {})
    return "return" not in annotations or annotations["return"] not in (None, "None", type(None))


def _parameters(handler: Handler, function: Any) -> list[_Parameter]:
    if isinstance(handler, partial):  # what is given already is not for an event to give
        left = _parameters(handler.func, function)[len(handler.args) :]
        return [each for each in left if each.name not in handler.keywords]
    code = function.__code__
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    first_default = positional - len(function.__defaults__ or ())
    skipped = 1 if hasattr(handler, "__self__") or not hasattr(handler, "__code__") else 0
    found = [
        _Parameter(
            names[index],
            "positional_only" if index < code.co_posonlyargcount else "positional",
            annotation_of(function, names[index]),
            index >= first_default,
        )
        for index in range(skipped, positional)
    ]
    for name in names[positional : positional + keywords]:
        has_default = name in (function.__kwdefaults__ or {})
        found.append(_Parameter(name, "keyword_only", annotation_of(function, name), has_default))
    rest = positional + keywords
    if code.co_flags & _POSITIONAL_REST:
        found.append(_Parameter(f"*{names[rest]}", "var_positional", None, has_default=True))
        rest += 1
    if code.co_flags & _KEYWORD_REST:
        found.append(_Parameter(f"**{names[rest]}", "var_keyword", None, has_default=True))
    return found


def _promised_to(handler: Handler) -> list[Type]:
    """What the topics of `@subscribe` say of their payloads; unknown for those that are texts."""
    heard = getattr(handler, "__graphbus_subscriptions__", ())
    return [UNKNOWN if each.payload is None else type_of(each.payload) for each in heard]


def _classify(annotation: object) -> Annotation:
    if isinstance(annotation, Unresolved):
        name = annotation.partition("[")[0].strip().rpartition(".")[2]
        return "event" if name.endswith("Event") else "mapping" if name in _MAPPINGS else "other"
    origin = getattr(annotation, "__origin__", annotation)
    if origin is None:
        return "none"
    if not isinstance(origin, type):
        return "other"
    if issubclass(origin, Event):
        return "event"
    if is_typed_class(origin):
        return "typed"
    return "mapping" if issubclass(origin, Mapping) else "other"


Adapter = Callable[[Handler, list[_Parameter]], Callable[[Event], object]]


def _call_with_nothing(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    return lambda _event: handler()


def _call_with_event(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    return handler


def _call_with_payload(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    return lambda event: handler(event.payload)


def _call_with_typed(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    annotation = parameters[0].annotation
    if isinstance(annotation, Unresolved):
        raise _invalid(handler, f"{annotation} is not defined at run time; import it outside of `if TYPE_CHECKING:`")
    convert = _converter(handler, annotation)
    return lambda event: handler(convert(event))


def _call_with_both(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    if _classify(parameters[1].annotation) == "typed":
        convert = _converter(handler, parameters[1].annotation)
        return lambda event: handler(event, convert(event))
    return lambda event: handler(event, event.payload)


def _call_with_fields(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    named = [each for each in parameters if each.kind != "var_keyword"]
    takes_rest = len(named) < len(parameters)
    needed = [each.name for each in named if not each.has_default]
    makers = {each.name: _maker(handler, each.annotation) for each in named if needs_making(each.annotation)}

    def call(event: Event) -> object:
        payload = {} if event.payload is None else event.payload
        if not isinstance(payload, dict):
            raise RunError("GBE617", handler=describe(handler), field=named[0].name if named else "", topic=event.topic)
        for name in needed:
            if name not in payload:
                raise RunError("GBE617", handler=describe(handler), field=name, topic=event.topic)
        fields = payload if takes_rest else {each.name: payload[each.name] for each in named if each.name in payload}
        return handler(**(_made(handler, event, fields, makers) if makers else fields))

    return call


def _made(handler: Handler, event: Event, fields: dict[str, Any], makers: dict[str, Make]) -> dict[str, Any]:
    """The fields with objects of typed classes in the place of what JSON has for them; all that is wrong is told at once."""
    made, problems = dict(fields), list[Problem]()
    for name, make in makers.items():
        if name in fields:
            try:
                made[name] = make(fields[name])
            except UnfitError as unfit:
                problems += [each.below(name) for each in unfit.problems]
    if problems:
        raise refusal("GBE650", tuple(problems), handler=describe(handler), topic=event.topic)
    return made


def _call_with_topic(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    if len(parameters) != 2 or any(each.kind not in ("positional", "positional_only") for each in parameters):
        raise _invalid(handler, "handle_event takes (topic, payload)")
    return lambda event: handler(event.topic, event.payload)


_ADAPTERS: dict[HandlerShape, Adapter] = {
    "nothing": _call_with_nothing,
    "event": _call_with_event,
    "payload": _call_with_payload,
    "typed": _call_with_typed,
    "event_payload": _call_with_both,
    "fields": _call_with_fields,
}


def _converter(handler: Handler, kind: Any) -> Callable[[Event], Any]:
    """How the payload becomes an object of the class; what does not fit is refused with field, expected and got."""
    make = _maker(handler, kind)

    def convert(event: Event) -> Any:
        try:
            return make(event.payload)
        except UnfitError as unfit:
            raise refusal("GBE650", unfit.problems, handler=describe(handler), topic=event.topic) from unfit.__cause__

    return convert


def _maker(handler: Handler, kind: Any) -> Make:
    try:
        return maker_of(kind)
    except Unmakeable as reason:
        raise _invalid(handler, f"no payload can become an object of {clipped(str(reason))}") from reason


def _invalid(handler: Handler, reason: str) -> RunError:
    return RunError("GBE611", where=place_of(handler), handler=describe(handler), reason=reason)
