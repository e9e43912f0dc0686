"""Wraps a handler as a function of one event: its signature says which arguments the handler gets from the event.

`model.agent` has the table of signatures. A handler is wrapped once, when it is subscribed.
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

# flags of a code object, as `inspect` names them: CO_VARARGS and so on
_POSITIONAL_REST, _KEYWORD_REST, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
_MAPPINGS = frozenset({"Mapping", "MutableMapping", "dict", "Dict"})

_SIGNATURE = "__graphbus_signature__"

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


class _Parameter(msgspec.Struct, frozen=True):
    """A parameter of a handler; the name of `*args` and `**fields` includes the stars."""

    name: str
    kind: ParameterKind
    annotation: object
    has_default: bool


def bind_handler(handler: Handler, *, shape: HandlerShape | None = None) -> BoundHandler:
    """Wrap a handler so that it takes one event; one that takes the event itself is not wrapped at all.

    Args:
        handler: A function, method or other callable. One without a Python signature, e.g. `list.append`, takes the event.
        shape: `topic_payload` for a handler that is named `handle_event` and takes (topic, payload): its signature alone does
            not show that. Else the shape that the compiler found, or None; it is used if an annotation cannot be resolved.

    Raises:
        RunError: GBE611 for an object that cannot be called, a generator, or a signature that fits no row of the table.
    """
    function = _find_function(handler)
    if function is None:
        if not callable(handler):
            raise _signature_error(handler, "it cannot be called", "Pass a function or a method.")
        return BoundHandler(handler, "event", is_async=False)
    code = function.__code__
    if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
        raise _signature_error(
            handler, "it is a generator, whose body does not run when it is called", "Remove `yield`."
        )
    is_async = bool(code.co_flags & _COROUTINE)
    parameters, shape = _read_signature(handler, function, shape)
    if shape == "topic_payload":
        return BoundHandler(
            _make_call_with_topic(handler, parameters), "topic_payload", is_async, _returns_value(function)
        )
    if shape == "invalid":
        names = ", ".join(each.name for each in parameters)
        raise _signature_error(handler, f"its parameters ({names}) cannot be filled from an event", _SIGNATURES)
    return BoundHandler(_ADAPTERS[shape](handler, parameters), shape, is_async, _returns_value(function))


def _read_signature(
    handler: Handler, function: Any, shape: HandlerShape | None
) -> tuple[list[_Parameter], HandlerShape]:
    """Return the parameters of a handler, and the shape that they have or else `shape`; see `bind_handler`."""
    memory, found = _memory_of(handler), shape
    if shape in memory:
        return memory[shape]  # type: ignore[no-any-return]  # what was put there below
    parameters = _list_parameters(handler, function)
    is_resolved = not any(isinstance(each.annotation, Unresolved) for each in parameters)
    if found is None or (found != "topic_payload" and is_resolved):
        classified = [
            HandlerParameter(each.name, each.kind, _classify_annotation(each.annotation)) for each in parameters
        ]
        found = decide_handler_shape(classified, _payload_types(handler))
    read = parameters, found
    if is_resolved:  # else it may be later
        memory[shape] = read
    return read


def _memory_of(handler: Handler) -> dict[Any, Any]:
    """Return what the function of a method keeps of its signature: a simulation binds it for every process that it starts."""
    method = getattr(handler, "__func__", None)
    found: dict[Any, Any] = vars(method).setdefault(_SIGNATURE, {}) if hasattr(method, "__code__") else {}
    return found


def handler_name(handler: Handler) -> str:
    """Return the qualified name of a handler, or that of its class if it has none, for messages."""
    named = handler.func if isinstance(handler, partial) else handler
    name: str = getattr(named, "__qualname__", "") or type(named).__qualname__
    return name


def handler_place(handler: Handler) -> Place | None:
    """Return the file and line where a handler is defined; None if it is not written in Python."""
    function = _find_function(handler)
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno) if function else None


def _find_function(handler: Handler) -> Any:
    """Return the Python function behind a method, partial, decorator or callable object; None if it is not written in Python."""
    if isinstance(handler, partial):
        return _find_function(handler.func)
    function: Any = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler).__call__, "__func__", type(handler).__call__)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function if hasattr(function, "__code__") else None


def _returns_value(function: Any) -> bool:
    """False for a function that is annotated with `-> None`."""
    annotations = getattr(function, "__annotations__", {})
    return "return" not in annotations or annotations["return"] not in (None, "None", type(None))


def _list_parameters(handler: Handler, function: Any) -> list[_Parameter]:
    """Return the parameters to fill from an event, without `self`; from the code object, because `inspect` is slow to import."""
    if isinstance(handler, partial):  # the arguments that it binds are not taken from the event
        unbound = _list_parameters(handler.func, function)[len(handler.args) :]
        return [each for each in unbound if each.name not in handler.keywords]
    code = function.__code__
    names = code.co_varnames
    positional, keywords = code.co_argcount, code.co_kwonlyargcount
    first_default = positional - len(function.__defaults__ or ())
    skipped = 1 if hasattr(handler, "__self__") or not hasattr(handler, "__code__") else 0  # `self` of a method
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


def _payload_types(handler: Handler) -> list[Type]:
    """Return for each `@subscribe` of the handler the payload type of its topic; UNKNOWN for a topic that is a plain string."""
    declared = getattr(handler, "__graphbus_subscriptions__", ())
    return [UNKNOWN if each.payload is None else type_of(each.payload) for each in declared]


def _classify_annotation(annotation: object) -> Annotation:
    """Return the kind of parameter that an annotation declares: the event, a mapping, a typed class, none or other."""
    if isinstance(annotation, Unresolved):  # only text: judged by the name in it
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
"""Turns a handler of one shape into a function of one event; there is one `_make_call_with_...` for each shape."""


def _make_call_with_nothing(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function of an event that calls the handler without arguments."""
    return lambda _event: handler()


def _make_call_with_event(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return the handler, which takes the event itself."""
    return handler


def _make_call_with_payload(handler: Handler, _parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function of an event that calls the handler with the payload."""
    return lambda event: handler(event.payload)


def _make_call_with_typed(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function of an event that calls the handler with the payload, converted to the class of its parameter.

    Raise GBE611 if the class is not known at run time, or no payload can be converted to it.
    """
    annotation = parameters[0].annotation
    if isinstance(annotation, Unresolved):
        problem = f"{annotation} is not defined at run time"
        raise _signature_error(handler, problem, "Import it outside of `if TYPE_CHECKING:`.")
    convert = _make_converter(handler, parameters[0])
    return lambda event: handler(convert(event))


def _make_call_with_event_and_payload(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function of an event that calls the handler with the event and its payload, converted if the class is typed."""
    if _classify_annotation(parameters[1].annotation) == "typed":
        convert = _make_converter(handler, parameters[1])
        return lambda event: handler(event, convert(event))
    return lambda event: handler(event, event.payload)


def _make_call_with_fields(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function that calls the handler with fields of the payload by name; with `**fields`, with all fields.

    It raises GBE617 if a required field is missing, GBE650 if one does not fit the class of its parameter.
    """
    named = [each for each in parameters if each.kind != "var_keyword"]
    takes_rest = len(named) < len(parameters)
    needed = [each.name for each in named if not each.has_default]
    makers = {each.name: _find_maker(handler, each) for each in named if needs_making(each.annotation)}

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
    """Return the fields, with the values of those in `makers` converted by them; one error GBE650 names all misfits."""
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


def _make_call_with_topic(handler: Handler, parameters: list[_Parameter]) -> Callable[[Event], object]:
    """Return a function of an event that calls the handler with the topic and the payload, as `handle_event` takes them."""
    if len(parameters) != 2 or any(each.kind not in ("positional", "positional_only") for each in parameters):
        raise _signature_error(
            handler, "its parameters are not (topic, payload)", "Declare `handle_event(self, topic, payload)`."
        )
    return lambda event: handler(event.topic, event.payload)


_ADAPTERS: dict[HandlerShape, Adapter] = {
    "nothing": _make_call_with_nothing,
    "event": _make_call_with_event,
    "payload": _make_call_with_payload,
    "typed": _make_call_with_typed,
    "event_payload": _make_call_with_event_and_payload,
    "fields": _make_call_with_fields,
}


def _make_converter(handler: Handler, parameter: _Parameter) -> Callable[[Event], Any]:
    """Return a function that converts the payload of an event to the class of a parameter, or raises GBE650."""
    make = _find_maker(handler, parameter)

    def convert(event: Event) -> Any:
        try:
            return make(event.payload)
        except UnfitError as unfit:
            raise misfit_error(
                "GBE650", unfit.problems, handler=handler_name(handler), topic=event.topic
            ) from unfit.__cause__

    return convert


def _find_maker(handler: Handler, parameter: _Parameter) -> Make:
    """Return what makes a value of the class of a parameter from JSON; raise GBE611 if no JSON can be converted to it."""
    memory = _memory_of(handler)
    if (parameter.name, "maker") not in memory:
        try:
            memory[parameter.name, "maker"] = maker_of(parameter.annotation)
        except Unmakeable as reason:
            problem = f"no payload can be converted to {clip_text(str(reason))}"
            raise _signature_error(
                handler, problem, "Annotate the parameter with `dict` or, for example, a dataclass."
            ) from reason
    return memory[parameter.name, "maker"]  # type: ignore[no-any-return]  # as in `_read_signature`


_SIGNATURES = (
    "Declare no parameters, or `event`, `payload`, both, or fields of the payload by name. `*args` and positional-only "
    "parameters are not allowed."
)


def _signature_error(handler: Handler, reason: str, advice: str) -> RunError:
    """Return the error GBE611 for a handler; `advice` is its hint."""
    where = handler_place(handler)
    return RunError("GBE611", where=where, handler=handler_name(handler), reason=reason, advice=advice)
