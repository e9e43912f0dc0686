"""Checks of a running graph: payloads against the schemas of topics, arguments and results against those of methods.

The function for a call is compiled at the first call: it checks the arguments, runs the method and checks the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import cached_property
from typing import Any

from graphbus_core.bus import MessageBus
from graphbus_core.bus.routes import PayloadCheck
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.log import Log
from graphbus_core.middleware import Handling, run_with_middleware
from graphbus_core.model.agent import MethodSpec
from graphbus_core.model.config import Validation
from graphbus_core.model.topics import Topic, matches
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, Json, freeze
from graphbus_core.schema.live import schema_of
from graphbus_core.schema.objects import Make, UnfitError, differs_in_json, is_json_shaped, makers_for
from graphbus_core.schema.types import Schema, Type, as_json
from graphbus_core.schema.validation import (
    Check,
    ValueProblem,
    check_for,
    checked_call_for,
    misfit_error,
    payload_check_for,
    problems_of,
)
from graphbus_core.schema.values import clip_text
from graphbus_core.store import BuildArtifacts

_log = Log("graphbus.contracts")


class TopicContracts:
    """Which topics a graph knows, and the schemas of their payloads.

    Args:
        schemas: Topic or pattern -> schema of its payloads; None allows any payload.
        prefixes: Beginnings of topics that agents compute at run time; None allows every topic.
        validation: Whether an unknown topic or a wrong payload raises, is logged, or is not checked.
    """

    def __init__(
        self, schemas: Mapping[str, Schema | None], prefixes: Iterable[str] | None, validation: Validation
    ) -> None:
        self._schemas = dict(schemas)
        self._prefixes = None if prefixes is None else tuple(prefixes)
        self._validation = validation
        self._learned: set[str] = set()

    def learn(self, topic: Topic[Any]) -> bool:
        """Add the schema of a `Topic` object that was used, unless the topic has one; True if it was added."""
        name = topic.name
        if name in self._learned or self._schemas.get(name) is not None:
            return False
        self._learned.add(name)
        self._schemas[name] = schema_of(topic.payload)
        return True

    def admit(self, topic: str) -> PayloadCheck | None:
        """Return the function that checks and freezes payloads of a topic; None if nothing is checked.

        The bus calls this when the topic is first used.

        Raises:
            RunError: GBE619 for a topic that no agent knows, if the validation is strict; otherwise that is logged.
        """
        if self._validation == "off":  # nothing is checked
            return None
        if not self._is_known(topic):
            unknown = RunError("GBE619", topic=topic, suggestion=did_you_mean(topic, self._schemas))
            if self._validation == "strict":
                raise unknown
            _log.warning("%s", unknown.sentence)
        schema = self._schemas.get(topic)
        return (
            freeze
            if schema is None
            else self._make_check(topic, Schema(as_json(Type("record", fields=schema.fields)).fields, schema.is_open))
        )

    def _make_check(self, topic: str, schema: Schema) -> PayloadCheck:
        """Return the function that checks and freezes payloads of one topic; for a misfit, GBE614 is raised or logged.

        JSON values that fit take a fast path. Any other payload is frozen first and then checked.
        """

        def report(frozen: Json) -> None:
            _raise_or_log("GBE614", problems_of(schema, frozen), self._validation, topic=topic)

        check = check_for(schema, report)

        def freeze_and_check(payload: Json) -> Json:
            frozen = freeze(payload)
            check({} if frozen is None else frozen)  # None is a payload without fields
            return frozen

        return payload_check_for(schema, freeze_and_check, limit=MAX_PAYLOAD_BYTES)

    def _is_known(self, topic: str) -> bool:
        """True if an agent declares the topic or a pattern or prefix of it, or if every topic is allowed."""
        if self._prefixes is None or any(map(topic.startswith, self._prefixes)):
            return True
        return topic in self._schemas or any(matches(pattern, topic) for pattern in self._schemas)


def _raise_or_log(code: str, problems: tuple[ValueProblem, ...], validation: Validation, **data: str) -> None:
    """Make an error of the problems of a value, and raise it if the validation is strict, else log it.

    Nothing happens if there are no problems or the validation is `off`. `data` are the fields of the error's message.
    """
    if not problems or validation == "off":
        return
    misfit = misfit_error(code, problems, **data)
    if validation == "strict":
        raise misfit
    _log.warning("%s", misfit.sentence)


def topics_of_artifacts(artifacts: BuildArtifacts, external: Iterable[str], validation: Validation) -> TopicContracts:
    """Return the topics of a built graph: those that agents declare, the `external` ones, and prefixes of computed topics."""
    agents = artifacts.agents.agents
    schemas: dict[str, Schema | None] = {
        subscription.topic: None for agent in agents for subscription in agent.subscriptions if subscription.topic
    }
    schemas |= dict.fromkeys(external)
    schemas |= {topic.name: topic.schema for topic in artifacts.topics.topics}
    computed = [each.prefix for agent in agents for each in agent.publications if not each.topic]
    return TopicContracts(schemas, computed, validation)


class CheckedMethod:
    """The checks of one `@schema_method`, compiled at first use.

    Args:
        agent: The agent that the method belongs to.
        spec: Its contract.
        validation: Whether arguments and results that do not fit raise, are logged, or are not checked.
        function: The method of the class; its annotations name the classes that arguments are converted to. None: arguments are
            not converted.

    Attributes:
        promised_schema: The schema of results; None when they are not checked.
    """

    def __init__(self, agent: str, spec: MethodSpec, validation: Validation, function: object = None) -> None:
        self.name = spec.name
        self.promised_schema = None if validation == "off" else spec.output_schema
        self._checked_schema = None if validation == "off" else spec.input_schema
        self._agent = agent
        self._spec = spec
        self._validation = validation
        self._function = function

    @cached_property
    def plain_schema(self) -> Schema | None:
        """The schema of the arguments if they are only checked, and not converted; else None."""
        return None if self._makers else self._checked_schema

    @cached_property
    def accept(self) -> Check:
        """A function that checks the dict of arguments, converts them, and returns them; GBE622 is raised or logged."""
        check = _return_unchanged if self._checked_schema is None else self._make_argument_check(self._checked_schema)
        return (lambda arguments: self._convert_arguments(check(arguments))) if self._makers else check

    def from_json(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments that came as JSON, with bytes in place of base64 text and sets in place of lists, where that fits."""
        read = dict(arguments)
        for name in read.keys() & self._json_makers.keys():
            with suppress(UnfitError):  # the check says what does not fit
                read[name] = self._json_makers[name](read[name])
        return read

    @cached_property
    def _json_makers(self) -> Mapping[str, Make]:
        return makers_for(self._function, differs_in_json).by_name

    def _make_argument_check(self, schema: Schema) -> Check:
        """Return a function that returns the dict of arguments unchanged; for a misfit, GBE622 is raised or logged."""

        def report(arguments: dict[str, Any]) -> dict[str, Any]:
            self._raise_or_log("GBE622", problems_of(schema, arguments, is_closed=True))
            return arguments

        return check_for(schema, report, is_closed=True)

    @cached_property
    def _makers(self) -> Mapping[str, Make]:
        """Parameter -> the function that converts JSON to its annotation; a parameter that needs one but has none is logged."""
        makers = makers_for(self._function)
        schema = self._spec.input_schema
        for name, why in makers.unmade.items():
            field = None if schema is None else schema.get(name)
            if field is None or _may_be_object(field.type):
                unconverted = "%s.%s gets the argument %s unconverted: %s"
                _log.warning(unconverted, self._agent, self.name, name, clip_text(why))
        return makers.by_name

    def _convert_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with JSON replaced by objects of the annotated classes; GBE622 is raised or logged."""
        converted, problems = dict(arguments), list[ValueProblem]()
        for name, make in self._makers.items():
            argument = converted.get(name)
            is_json = is_json_shaped(argument)
            if name not in converted or not (is_json or issubclass(type(argument), dict | list)):
                continue  # it is left out, or an object already
            try:
                converted[name] = make(argument)
            except UnfitError as unfit:
                if is_json:  # otherwise it holds objects, for instance of a subclass, which the method may accept
                    problems += [each.below(name) for each in unfit.problems]
        self._raise_or_log("GBE622", tuple(problems))
        return converted

    @cached_property
    def release(self) -> Check:
        """A function that checks a result and returns it; GBE623 is raised or logged. An awaitable is checked when awaited."""
        schema = self.promised_schema
        return _return_unchanged if schema is None else check_for(schema, self._check_result_fully)

    def _check_result_fully(self, result: Any) -> Any:
        """Check a result that did not pass the fast check, and return it (or an awaitable of it); GBE623 is raised or logged."""
        promised = self.promised_schema
        if issubclass(type(result), Awaitable):  # the result of a call that an async handler makes
            return self._check_awaited_result(result)
        if promised is not None and (promised.fields or result is not None):  # None fits a schema without fields
            self._raise_or_log("GBE623", problems_of(promised, result))
        return result

    async def _check_awaited_result(self, awaited: Awaitable[Any]) -> Any:
        return self.release(await awaited)

    def _raise_or_log(self, code: str, problems: tuple[ValueProblem, ...]) -> None:
        _raise_or_log(code, problems, self._validation, agent=self._agent, method=self.name)


def _return_unchanged(value: Any) -> Any:
    return value


def _may_be_object(type_: Type) -> bool:
    """True if a value of the type, or a part of it, may be an object of a class."""
    return type_.kind in ("record", "unknown") or any(map(_may_be_object, type_.args))


Arguments = dict[str, Any]
Call = Callable[[Arguments], Any]


def compile_call(
    bus: MessageBus, agent: str, method: CheckedMethod, bound: Callable[..., Any], *, is_async: bool
) -> Call:
    """Make the function that takes a dict of arguments, calls the method on the bus and returns the checked result.

    Args:
        bus: The bus of the graph; what the method publishes is delivered before the call returns.
        agent: The agent that the method belongs to.
        method: The checks of the method.
        bound: The bound method.
        is_async: The agent has `async def` methods, so all of it runs on the event loop.
    """

    def call_plainly(arguments: Arguments) -> Any:
        return method.release(bound(**method.accept(arguments)))

    if is_async or bus.middleware:
        return lambda arguments: _call_with_checks(bus, agent, method, bound, arguments)
    schema = method.plain_schema  # None if arguments are converted, which the faster function below cannot do
    order = None if schema is None else _positional_order(bound, schema)
    if schema is None or order is None:
        return bus.hosting.caller(call_plainly, owner=agent)
    function = checked_call_for(
        schema, order, bound, method.promised_schema, otherwise=call_plainly, release=method.release
    )
    return bus.hosting.caller(function, owner=agent)


def _positional_order(bound: Callable[..., Any], schema: Schema) -> tuple[str, ...] | None:
    """Return the names of all arguments in the order of the method's parameters; None if they cannot all be passed by position.

    That needs a closed schema, no optional arguments and no keyword-only parameters. A call by position takes half the time of
    a call by name.
    """
    code = getattr(getattr(bound, "__func__", None), "__code__", None)
    if code is None or schema.is_open or not all(field.required for field in schema.fields):
        return None
    names: tuple[str, ...] = code.co_varnames[1 : len(schema.fields) + 1]
    is_plain = code.co_posonlyargcount == 0 and code.co_argcount > len(schema.fields)  # all fields, and `self`
    return names if is_plain and set(names) == schema.names else None


def _call_with_checks(
    bus: MessageBus, agent: str, method: CheckedMethod, bound: Callable[..., Any], arguments: Arguments
) -> Any:
    """Check the arguments, run the method on the bus inside of the middleware, and check the result."""
    accepted = method.accept(arguments)
    caller = copy_context() if bus.middleware else None  # the method may run on another thread

    def call() -> Any:
        if caller is None:
            return bound(**accepted)
        handling = Handling("call", agent, f"{agent}.{method.name}", arguments=accepted, caller=caller)
        return run_with_middleware(bus.middleware, handling, lambda: bound(**accepted))

    return method.release(bus.run(call, owner=agent))
