"""Stand-ins for agents: nodes that follow a script of a test, checked against the contracts of the real class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import wraps
from types import MethodType
from typing import Any, ClassVar, NamedTuple, TypeGuard

from graphbus_core.bus.signatures import bind_handler
from graphbus_core.decorators import DeclaredSchema, DeclaredSubscription
from graphbus_core.errors import RunError, UsageError, did_you_mean
from graphbus_core.hosting import members
from graphbus_core.hosting.contracts import TopicContracts
from graphbus_core.hosting.members import handlers_of
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, DeliveryPolicy
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import Topic, matches, name_of
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.json import Json
from graphbus_core.schema.validation import describe_problems, problems_of

Script = object
"""A list of steps, one for each event or call; or one step that is taken every time. See `scripted`."""


class Say(NamedTuple):
    """A step of a script that publishes an event; written `say(topic, payload)`."""

    topic: str | Topic[Any]
    payload: Json = None


say = Say


class ScriptedNode(GraphBusNode):
    """A stand-in for an agent; made by `scripted`.

    Attributes:
        stands_for: The real class; None if only its name is known.
        scripts: Topic or pattern, or name of a method -> its script.
        heard: The events that it has received, in order.
        called: (method, arguments) of each call, in order.
    """

    stands_for: ClassVar[type[GraphBusNode] | None] = None
    scripts: ClassVar[Mapping[str, Script]] = {}

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.called: list[tuple[str, dict[str, Any]]] = []
        self._steps = {name: list(script) for name, script in self.scripts.items() if isinstance(script, list)}

    def assert_done(self) -> None:
        """Assert that every step of every script was taken.

        Raises:
            AssertionError: Some steps were not taken; the message lists them.
        """
        __tracebackhide__ = True
        left = [f"  {what}: {step!r}" for what, steps in self._steps.items() for step in steps]
        if left:
            raise AssertionError("\n".join([f"{type(self).__name__} did not come to these steps:", *left]))

    def play_event(self, method: str, event: Event) -> Json:
        """Record an event, check that the real handler could be called with it, take the next step, and return the answer."""
        self.heard.append(event)
        if self.stands_for is not None:
            _check_event_fits(self, self.stands_for, method, event)
        what = next(each for each in self.scripts if matches(each, event.topic))
        return self._take_step(what, lambda step: step(event))

    def play_call(self, method: str, arguments: dict[str, Any]) -> Any:
        """Record a call, take the next step of the script for the method, and return the answer."""
        self.called.append((method, arguments))
        return self._take_step(method, lambda step: step(**arguments))

    def _take_step(self, what: str, compute: Callable[[Callable[..., object]], object]) -> Any:
        """Take the next step of a script: publish and raise what it says, and return its answer, None if it has none.

        `what` is the topic or method with the script; `compute` calls a function in the script with the event or the arguments.

        Raises:
            UsageError: GBE166, no step is left.
        """
        script = self.scripts[what]
        if isinstance(script, list):
            steps = self._steps[what]
            if not steps:
                times = f"{len(script)} time{'s' * (len(script) != 1)}"
                raise UsageError("GBE166", name=type(self).__name__, what=what, times=times)
            script = steps.pop(0)
        answer: Any = None
        for part in _list_parts(script):
            if isinstance(part, Say):
                self.publish(part.topic, part.payload)
            elif _is_exception(part):
                raise part
            else:
                answer = compute(part) if callable(part) else deepcopy(part)
        return answer


def scripted(
    who: str | type[GraphBusNode],
    *,
    on: Mapping[Any, Script] | None = None,
    methods: Mapping[str, Script] | None = None,
) -> ScriptedNode:
    """Return an agent that stands in for another one: it follows scripts, and records the events and calls that it receives.

    A script is a list with a step for each event or call, or a single step for all of them. A step is an answer, an exception to
    raise, `say(topic, payload)` to publish, a function of the event or of the arguments that returns the answer, or a tuple of
    several of these.

    Args:
        who: The class to stand in for, or just a name. With a class, scripts must keep to its contracts, and events and arguments
            must fit its handlers and schemas.
        on: Topic, or its name -> script.
        methods: Name of a `@schema_method` -> script.

    Returns:
        An object to pass to `run_graph` or `connect`.

    Raises:
        UsageError: GBE167, an answer or payload does not fit the contract; GBE168, the class has no such handler or method.
    """
    topics, methods = {name_of(topic): script for topic, script in (on or {}).items()}, dict(methods or {})
    real = who if isinstance(who, type) else None
    name = real.__name__ if real else str(who)
    members_of_class: dict[str, Any] = {
        "stands_for": real,
        "scripts": {**topics, **methods},
        "__doc__": f"Stands in for {name}.",
    }
    for method, declarations in _subscriptions_by_method(name, real, topics).items():
        members_of_class[method] = _make_handler(method, declarations)
    for method, script in methods.items():
        contract = _read_checked_contract(real, method, script) if real else DeclaredSchema(None, None)
        members_of_class[method] = _make_method(method, contract)
    if real is not None:
        _check_publications(name, real, (*topics.values(), *methods.values()))
        members_of_class["__graphbus_publishes__"] = tuple(members.declared_topics_of(real))
    node: ScriptedNode = type(name, (ScriptedNode,), members_of_class)()
    return node


# --- what the real class allows ---


def _subscriptions_by_method(
    name: str, real: type[GraphBusNode] | None, topics: Iterable[str]
) -> dict[str, list[DeclaredSubscription]]:
    """Return name of a handler -> its subscriptions, with the names and retries of the real class, if there is one.

    Timeouts and concurrency are left out, since its handlers are plain functions. Raises GBE168 if the class has no handler.
    """
    found: dict[str, list[DeclaredSubscription]] = {}
    real_handlers = list(handlers_of(real)) if real is not None else []
    for topic in topics:
        fitting = [(method, policy) for each, method, policy in real_handlers if matches(each, topic)]
        if real is not None and not fitting:
            hint = did_you_mean(topic, [each for each, _, _ in real_handlers])
            raise UsageError("GBE168", name=name, what=f"has no handler for {topic}", suggestion=hint)
        method, real_policy = fitting[0] if fitting else (_name_handler(topic), ONCE)
        policy = DeliveryPolicy(
            retries=real_policy.retries, backoff_s=real_policy.backoff_s, retry_on=real_policy.retry_on
        )
        found.setdefault(method, []).append(DeclaredSubscription(topic, policy))
    return found


def _read_checked_contract(real: type[GraphBusNode], method: str, script: Script) -> DeclaredSchema:
    """Return the contract of a method of the real class.

    The result of a function in the script is not known yet; it is checked when the method is called.

    Raises:
        UsageError: GBE167, an answer in the script does not fit; GBE168, the class has no such method with `@schema_method`.
    """
    specs = {spec.name: spec for spec in members.methods_of(real)}
    if method not in specs:
        what = f"has no method {method} with @schema_method"
        raise UsageError("GBE168", name=real.__name__, what=what, suggestion=did_you_mean(method, specs))
    promised = specs[method].output_schema
    for step in _list_steps(script):
        answers = [part for part in _list_parts(step) if not isinstance(part, Say)]
        answer = answers[-1] if answers else None
        is_undecided = any(callable(each) or _is_exception(each) for each in answers)
        if is_undecided or promised is None or (answer is None and not promised.fields):
            continue
        if problems := problems_of(promised, answer):
            reason = describe_problems(problems)
            raise UsageError("GBE167", name=real.__name__, what=f"the result of {method}", reason=reason)
    contract: DeclaredSchema = getattr(real, method).__graphbus_schema__
    return contract


def _check_publications(name: str, real: type[GraphBusNode], scripts: Iterable[Script]) -> None:
    """Raise UsageError (GBE167) if a payload of `say` in the scripts does not fit the schema that the real class declares."""
    topics = TopicContracts(members.topics_of(real), None, "strict")
    for published in (part for script in scripts for step in _list_steps(script) for part in _list_parts(step)):
        check = topics.admit(name_of(published.topic)) if isinstance(published, Say) else None
        if not isinstance(published, Say) or check is None:
            continue
        try:
            check(published.payload)
        except RunError as refused:
            reason = refused.data.get("reason", refused.sentence)
            raise UsageError("GBE167", name=name, what=f"the topic {published.topic}", reason=reason) from None


def _check_event_fits(node: GraphBusNode, real: type[GraphBusNode], method: str, event: Event) -> None:
    """Raise what a run would raise if the real handler cannot be called with the event. The real handler itself does not run."""
    function = getattr(real, method)

    @wraps(function)
    def have_same_signature(_self: object, *_arguments: object, **_fields: object) -> None:
        """Do nothing; `wraps` gives it the signature of the real handler, which `bind_handler` reads."""

    shape: HandlerShape | None = (
        "topic_payload" if method == "handle_event" and event.topic in map(name_of, real.SUBSCRIBE) else None
    )
    bind_handler(MethodType(have_same_signature, node), shape=shape).call(event)


# --- the members of the class ---


def _make_handler(method: str, declarations: list[DeclaredSubscription]) -> Callable[..., Json]:
    """Return a handler that takes steps of the scripts for the topics of its subscriptions."""

    def on_event(self: ScriptedNode, event: Event) -> Json:
        """Take the next step of the script."""
        return self.play_event(method, event)

    on_event.__graphbus_subscriptions__ = tuple(declarations)  # type: ignore[attr-defined]
    return on_event


def _make_method(method: str, contract: DeclaredSchema) -> Callable[..., Any]:
    """Return a method with this contract that takes steps of its script."""

    def play(self: ScriptedNode, **arguments: Any) -> Any:
        """Take the next step of the script."""
        return self.play_call(method, arguments)

    play.__graphbus_schema__ = contract  # type: ignore[attr-defined]
    return play


def _list_steps(script: Script) -> list[object]:
    """Return the steps of a script. A script that is not a list is its only step."""
    return script if isinstance(script, list) else [script]


def _list_parts(step: object) -> tuple[object, ...]:
    """Return the parts of a step. A step that is not a tuple is its only part."""
    return step if isinstance(step, tuple) and not isinstance(step, Say) else (step,)


def _is_exception(part: object) -> TypeGuard[BaseException | type[BaseException]]:
    """Return whether a part of a step is an exception or the class of one."""
    return isinstance(part, BaseException) or (isinstance(part, type) and issubclass(part, BaseException))


def _name_handler(topic: str) -> str:
    """Return a name for the handler of a topic: `on_order_created` for `/Order/Created`."""
    return "on" + topic.replace("**", "any").replace("*", "any").replace("/", "_").replace("-", "_").lower()
