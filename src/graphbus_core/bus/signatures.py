"""Wraps a handler as a function of one event, as its signature says. The table of signatures is in `model.agent`.

This happens once for each handler, when it is subscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.model.agent import Annotation, HandlerParameter, HandlerShape, ParameterKind, decide_handler_shape
from graphbus_core.model.messages import Event
from graphbus_core.schema.live import Unresolved, annotation_of, type_of
from graphbus_core.schema.objects import Make, UnfitError, Unmakeable, is_typed_class, maker_of, needs_making
from graphbus_core.schema.types import UNKNOWN, Type
from graphbus_core.schema.validation import ValueProblem, misfit_error
from graphbus_core.schema.values import clip_text

_POSITIONAL_REST, _KEYWORD_REST, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
_MAPPINGS = frozenset({"Mapping", "MutableMapping", "dict", "Dict"})

Handler = Callable[..., object]


class BoundHandler(msgspec.Struct, frozen=True):
    """A handler as a function of one event.

    Attributes:
        call: The function; its result is that of the handler.
        shape: The row of the table that the signature fits.
        answers: False for a handler with `-> None`, which answers no request.
    """

    call: Callable[[Event], object]
    shape: HandlerShape
    is_async: bool
    answers: bool = True


class _Argument(msgspec.Struct, frozen=True):
    name: str
    kind: ParameterKind
    annotation: object
    has_default: bool


def bind_handler(handler: Handler, *, shape: HandlerShape | None = None) -> BoundHandler:
    """Wrap a handler so that it takes one event; one that takes the event itself is not wrapped at all.

    Args:
        handler: A function, method or other callable. One without a Python signature, e.g. `list.append`, takes the event.
        shape: `topic_payload` for `handle_event(topic, payload)`, which only its name tells apart. Else the shape that the
            compiler found; it is used if an annotation cannot be resolved at run time.

    Raises:
        RunError: GBE611 for a signature that fits no row of the table.
    """
    function = _function_of(handler)
    if function is None:
        if not callable(handler):
            raise _bad_signature(handler, "it cannot be called")
        return BoundHandler(handler, "event", is_async=False)
    code = function.__code__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise _bad_signature(handler, "it is a generator, whose body does not run when it is called; remove `yield`")
    is_async = bool(code.co_flags & _COROUTINE)
    parameters = _parameters(handler, function)
    if shape == "topic_payload":
        return BoundHandler(_call_with_topic(handler, parameters), "topic_payload", is_async, _returns_value(function))
    if shape is None or not any(isinstance(each.annotation, Unresolved) for each in parameters):
        given = [HandlerParameter(each.name, each.kind, _classify(each.annotation)) for each in parameters]
        shape = decide_handler_shape(given, _payload_types(handler))
    if shape == "invalid":
        names = ", ".join(each.name for each in parameters)
        raise _bad_signature(handler, f"its parameters ({names}) fit no row of the table")
    return BoundHandler(_ADAPTERS[shape](handler, parameters), shape, is_async, _returns_value(function))


def handler_name(handler: Handler) -> str:
    """Return the qualified name of a handler, or that of its class, for messages."""
    named = handler.func if isinstance(handler, partial) else handler
    name: str = getattr(named, "__qualname__", "") or type(named).__qualname__
    return name


def handler_place(handler: Handler) -> Place | None:
    """Return where a handler is defined; None if it is not written in Python."""
    function = _function_of(handler)
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno) if function else None


def _function_of(handler: Handler) -> Any:
    """Return the Python function whose signature counts, looking through wrappers, methods, partials and `__call__`."""
    if isinstance(handler, partial):
        return _function_of(handler.func)
    function: Any = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function if hasattr(function, "__code__") else None


def _returns_value(function: Any) -> bool:
    annotations = getattr(function, "__annotations__", {})
    return "return" not in annotations or annotations["return"] not in (None, "None", type(None))


def _parameters(handler: Handler, function: Any) -> list[_Argument]:
    """Return the parameters that an event has to fill, read from the code object: `inspect` is slow to import."""
    if isinstance(handler, partial):  # arguments that the partial binds are not taken from the event
        left = _parameters(handler.func, function)[len(handler.args) :]
        return [each for each in left if each.name not in handler.keywords]
    code = function.__code__
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    first_default = positional - len(function.__defaults__ or ())
    skipped = 1 if hasattr(handler, "__self__") or not hasattr(handler, "__code__") else 0
    found = [
        _Argument(
            names[index],
            "positional_only" if index < code.co_posonlyargcount else "positional",
            annotation_of(function, names[index]),
            index >= first_default,
        )
        for index in range(skipped, positional)
    ]
    for name in names[positional : positional + keywords]:
        has_default = name in (function.__kwdefaults__ or {})
        found.append(_Argument(name, "keyword_only", annotation_of(function, name), has_default))
    rest = positional + keywords
    if code.co_flags & _POSITIONAL_REST:
        found.append(_Argument(f"*{names[rest]}", "var_positional", None, has_default=True))
        rest += 1
    if code.co_flags & _KEYWORD_REST:
        found.append(_Argument(f"**{names[rest]}", "var_keyword", None, has_default=True))
    return found


def _payload_types(handler: Handler) -> list[Type]:
    """Return the payload types of the topics in `@subscribe`; UNKNOWN for a topic that is a plain string."""
    heard = getattr(handler, "__graphbus_subscriptions__", ())
    return [UNKNOWN if each.payload is None else type_of(each.payload) for each in heard]


def _classify(annotation: object) -> Annotation:
    """Return which kind of parameter an annotation means: the event, a mapping, a typed class ..."""
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


Adapter = Callable[[Handler, list[_Argument]], Callable[[Event], object]]
"""Turns a handler with one of the shapes into a function of one event; there is one `_call_with_...` for each shape."""


def _call_with_nothing(handler: Handler, _parameters: list[_Argument]) -> Callable[[Event], object]:
    return lambda _event: handler()


def _call_with_event(handler: Handler, _parameters: list[_Argument]) -> Callable[[Event], object]:
    return handler


def _call_with_payload(handler: Handler, _parameters: list[_Argument]) -> Callable[[Event], object]:
    return lambda event: handler(event.payload)


def _call_with_typed(handler: Handler, parameters: list[_Argument]) -> Callable[[Event], object]:
    annotation = parameters[0].annotation
    if isinstance(annotation, Unresolved):
        raise _bad_signature(
            handler, f"{annotation} is not defined at run time; import it outside of `if TYPE_CHECKING:`"
        )
    convert = _converter(handler, annotation)
    return lambda event: handler(convert(event))


def _call_with_both(handler: Handler, parameters: list[_Argument]) -> Callable[[Event], object]:
    if _classify(parameters[1].annotation) == "typed":
        convert = _converter(handler, parameters[1].annotation)
        return lambda event: handler(event, convert(event))
    return lambda event: handler(event, event.payload)


def _call_with_fields(handler: Handler, parameters: list[_Argument]) -> Callable[[Event], object]:
    named = [each for each in parameters if each.kind != "var_keyword"]
    takes_rest = len(named) < len(parameters)
    needed = [each.name for each in named if not each.has_default]
    makers = {each.name: _maker(handler, each.annotation) for each in named if needs_making(each.annotation)}

    def call(event: Event) -> object:
        payload = {} if event.payload is None else event.payload
        if not isinstance(payload, dict):
            field = named[0].name if named else ""
            raise RunError("GBE617", handler=handler_name(handler), field=field, topic=event.topic)
        for name in needed:
            if name not in payload:
                raise RunError("GBE617", handler=handler_name(handler), field=name, topic=event.topic)
        fields = payload if takes_rest else {each.name: payload[each.name] for each in named if each.name in payload}
        return handler(**(_convert_fields(handler, event, fields, makers) if makers else fields))

    return call


def _convert_fields(handler: Handler, event: Event, fields: dict[str, Any], makers: dict[str, Make]) -> dict[str, Any]:
    """Return the fields with JSON values converted to the typed classes of the parameters; one error names all misfits."""
    made, problems = dict(fields), list[ValueProblem]()
    for name, make in makers.items():
        if name in fields:
            try:
                made[name] = make(fields[name])
            except UnfitError as unfit:
                problems += [each.below(name) for each in unfit.problems]
    if problems:
        raise misfit_error("GBE650", tuple(problems), handler=handler_name(handler), topic=event.topic)
    return made


def _call_with_topic(handler: Handler, parameters: list[_Argument]) -> Callable[[Event], object]:
    if len(parameters) != 2 or any(each.kind not in ("positional", "positional_only") for each in parameters):
        raise _bad_signature(handler, "handle_event must take (topic, payload)")
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
    """Return a function that converts a payload to the class; a misfit raises GBE650 with field, expected and actual type."""
    make = _maker(handler, kind)

    def convert(event: Event) -> Any:
        try:
            return make(event.payload)
        except UnfitError as unfit:
            raise misfit_error(
                "GBE650", unfit.problems, handler=handler_name(handler), topic=event.topic
            ) from unfit.__cause__

    return convert


def _maker(handler: Handler, kind: Any) -> Make:
    try:
        return maker_of(kind)
    except Unmakeable as reason:
        raise _bad_signature(handler, f"no payload can be converted to {clip_text(str(reason))}") from reason


def _bad_signature(handler: Handler, reason: str) -> RunError:
    return RunError("GBE611", where=handler_place(handler), handler=handler_name(handler), reason=reason)
