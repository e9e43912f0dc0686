"""LiveGraph: agents that are connected to a bus, started, called and stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import Any, ParamSpec, overload

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import GraphBusError, Place, RunError, did_you_mean, raise_all
from graphbus_core.hosting.contracts import Call, CheckedMethod, compile_call
from graphbus_core.hosting.imports import Factory, NodeModules, describe_exception, make_node
from graphbus_core.hosting.state import FILE as STATE_FILE
from graphbus_core.hosting.state import States
from graphbus_core.isolation import attempt
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.config import ResolvedRun
from graphbus_core.model.deliveries import DeadLetter, DeliveryPolicy
from graphbus_core.model.state import AgentState
from graphbus_core.model.topics import Publishable, Requestable, name_of
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.json import Json
from graphbus_core.store import BuildArtifacts

_Given = ParamSpec("_Given")


class Member(msgspec.Struct, frozen=True):
    """An agent of a graph before it lives.

    Attributes:
        node: The class, or an object of it that is taken as it is.
        handlers: (topic, method, policy) in the order in which they are served.
        methods: What can be called.
        dependencies: The agents that it may call.
        is_async: It has an `async def` method, and so everything of it runs on the event loop.
        place: Its class statement.
        shapes: Method -> what it takes as a handler, as the compiler has found.
    """

    name: str
    node: type[GraphBusNode] | GraphBusNode
    handlers: tuple[tuple[str, str, DeliveryPolicy], ...]
    methods: Mapping[str, CheckedMethod]
    dependencies: frozenset[str]
    is_async: bool = False
    place: Place | None = None
    shapes: Mapping[str, HandlerShape] = MappingProxyType({})

    def shape_of(self, topic: str, method: str) -> HandlerShape | None:
        """Give what a method takes as the handler of a topic, if that does not follow from its signature."""
        is_plain = method == "handle_event" and topic in map(name_of, self.node.SUBSCRIBE)
        return "topic_payload" if is_plain else self.shapes.get(method)


class GraphOrigin(msgspec.Struct, frozen=True):
    """What a graph was made from."""

    artifacts: BuildArtifacts
    modules: NodeModules
    config: ResolvedRun


class LiveGraph:
    """A running graph. Use it in a `with` statement, or call `stop` when you are done.

    Attributes:
        bus: The message bus that connects the agents.
        nodes: The agents by name, in the order of activation.
        grace_s: Seconds that stopping may take for what is under way, shared by everything that waits.
        place_of: Where the user's code has raised an exception; None where that is not known.
        factory: What makes its agents of their classes; None: they are made without arguments.
        origin: What it was made from; None for one that was connected without a build.
        is_partial: An agent that cannot start is left out, instead of the graph.
        left_out: Such agents, and why they cannot.
        confinement: What its process is bound to, in lines for a person; empty: nothing.
    """

    def __init__(
        self, bus: MessageBus, members: Iterable[Member], *, grace_s: float = 10.0, state_path: str = ""
    ) -> None:
        self.bus = bus
        self.nodes: dict[str, GraphBusNode] = {}
        self._members = {member.name: member for member in members}
        self.grace_s = grace_s
        self.place_of: Callable[[BaseException | None], Place | None] = lambda _error: None
        self.factory: Factory | None = None
        self.origin: GraphOrigin | None = None
        self.is_partial = False
        self.left_out: dict[str, GraphBusError] = {}
        self.confinement: tuple[str, ...] = ()
        self._calls: dict[str, dict[str, Call]] = {}
        self._states = States(state_path)
        self._at_end: list[Callable[[], None]] = [self._states.close]
        self._started: set[str] = set()
        self._replaying = Lock()
        self._is_stopped = False
        self._grace_ends: float | None = None

    def __enter__(self) -> LiveGraph:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.stop()

    # --- use ---

    @overload
    def publish(
        self, topic: Publishable[_Given], /, *payload: _Given.args, **named: _Given.kwargs
    ) -> Receipt | None: ...

    @overload
    def publish(self, topic: str, payload: Json = None, *, src: str = "") -> Receipt | None: ...

    def publish(self, topic: Any, payload: Json = None, *, src: str = "") -> Receipt | None:  # type: ignore[misc]  # as in GraphBusNode
        """Send an event; from outside of the graph it returns when everything that came of it is delivered.

        Returns:
            In a graph that is served, from outside: at once, the receipt. Else None.

        Raises:
            RunError: GBE610-615 and GBE619 for a topic or payload that is refused.
            BackpressureError: GBE636 too many events wait.
        """
        return self.bus.publish(topic, payload, src=src)

    @overload
    def request(self, topic: Requestable[_Given], /, *payload: _Given.args, **named: _Given.kwargs) -> Any: ...

    @overload
    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any: ...

    def request(  # type: ignore[misc]  # as in GraphBusNode
        self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = ""
    ) -> Any:
        """Send an event to the one handler that hears it, and give what that returns; see `MessageBus.request`."""
        return self.bus.request(topic, payload, timeout_s, src=src)

    def call(self, agent: str, method: str, /, **arguments: Any) -> Any:
        """Call a `@schema_method` and give its result; what it publishes is delivered before this returns.

        Raises:
            RunError: GBE620 unknown agent, GBE621 unknown method, GBE622 arguments that do not fit, GBE623 a result that does
                not fit.
        """
        try:
            call = self._calls[agent][method]
        except KeyError:
            call = None
        return (call or self._compile_call(agent, method))(
            arguments
        )  # outside: it is not raised because of the KeyError

    def call_from(self, caller: str, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call on behalf of an agent, which must have declared that it depends on the other.

        Raises:
            RunError: GBE624 for an agent that it does not depend on, and what `call` raises.
        """
        known = self._members[caller].dependencies
        if agent in self._members and agent not in known:
            raise RunError("GBE624", where=self._members[caller].place, agent=caller, other=agent)
        return self.call(agent, method, **arguments)

    def _compile_call(self, agent: str, method: str) -> Call:
        self._refuse_left_out(agent)
        methods = self._methods_of(agent)
        found = methods.get(method)
        if found is None:
            known, near = ", ".join(sorted(methods)) or "none", did_you_mean(method, methods)
            raise RunError("GBE621", agent=agent, method=method, suggestion=near, known=known)
        bound = getattr(self.nodes[agent], method)
        call = compile_call(self.bus, agent, found, bound, is_async=self._members[agent].is_async)
        self._calls.setdefault(agent, {})[method] = call
        return call

    def _methods_of(self, agent: str) -> Mapping[str, CheckedMethod]:
        if agent not in self._members:
            known, near = ", ".join(sorted(self._members)), did_you_mean(agent, self._members)
            raise RunError("GBE620", agent=agent, suggestion=near, known=known)
        return self._members[agent].methods

    def node(self, name: str) -> GraphBusNode:
        """Give the object of an agent.

        Raises:
            RunError: GBE620 for an unknown agent, GBE680 for one that was left out.
        """
        self._refuse_left_out(name)
        self._methods_of(name)
        return self.nodes[name]

    def state_of(self, agent: str) -> AgentState:
        """Give what an agent keeps: `self.state` of its object."""
        return self._states.of(agent)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until all is quiet, further attempts of failed deliveries included; False when that takes longer.

        Args:
            timeout_s: How long; None: as long as it takes.

        Raises:
            RunError: GBE648 inside of a handler.
        """
        return self.bus.settle(timeout_s)

    def replay_dead_letters(self, letters: Iterable[DeadLetter] | None = None) -> tuple[DeadLetter, ...]:
        """Deliver dead letters once more, with the same ids, each to the subscription that failed; waits for all attempts.

        A letter leaves the ring, and the disk if letters are kept there, when its event was handled. What has died again is a
        letter in its place. Several threads replay one after the other.

        Args:
            letters: Those of `bus.dead_letters()` by default.

        Returns:
            What has died again.

        Raises:
            RunError: GBE648 inside of a handler, GBE649 for a letter whose handler is gone; then nothing is delivered. GBE615
                when the graph stops; what was not handled until then stays where it is.
        """
        from graphbus_core.hosting.dead_letters import replay_all

        self.bus.refuse_in_handler()
        with self._replaying:
            return replay_all(self, letters)

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until a receipt is done; False when the graph has stopped first.

        Args:
            is_rest_enough: Come back as well when nothing is left to do but further attempts.
        """
        return self.bus.wait_for(receipt, is_rest_enough=is_rest_enough)

    # --- life ---

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Make all agents, connect them and call their `on_start`; all of them live afterwards, or none.

        Args:
            then: Called when all are started, before anything that they have published is delivered.

        Raises:
            RunError: GBE603, GBE656 or GBE657 an agent that cannot be made, GBE605 an `on_start` that fails, GBE611 an impossible
                handler.
            SeveralErrors: More than one of the first or last kind.
        """
        problems: list[GraphBusError] = []
        is_started = False

        def start_all() -> None:
            problems.extend(self._start_nodes())
            if not problems:
                then()

        try:
            self._make_nodes(problems)
            if not problems:
                self.bus.run(start_all)
            is_started = not problems
        finally:
            if not is_started:
                self.stop()
        raise_all(problems)

    def stop(self) -> None:
        """Refuse new events, deliver what waits within the grace, call `on_stop` in reverse order. Repeated calls do nothing.

        Raises:
            RunError: GBE626 when an `on_stop` failed, GBE608 when it could not be called; the others were still called.
            SeveralErrors: More than one.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        problems: list[GraphBusError] = []
        try:
            self.bus.close(
                self.begin_grace(), ends=[(name, self._end_of(name, problems)) for name in reversed(self.nodes)]
            )
        finally:
            for clean_up in reversed(self._at_end):
                clean_up()
        raise_all(problems)

    def begin_grace(self) -> float:
        """Give the seconds of the grace that are left. The first call begins it; there is one grace for the whole shutdown.

        A signal, the servers and the bus wait one after the other, and must not take a grace each.
        """
        if self._grace_ends is None:
            self._grace_ends = monotonic() + self.grace_s
        return max(0.0, self._grace_ends - monotonic())

    @property
    def is_stopped(self) -> bool:
        """The graph has stopped, or is about to."""
        return self._is_stopped

    def at_end(self, clean_up: Callable[[], None]) -> None:
        """Have a function called when the graph has stopped."""
        self._at_end.append(clean_up)

    def _make_nodes(self, problems: list[GraphBusError]) -> None:
        for member in self._members.values():
            made = member.node
            node, error = attempt(lambda made=made: make_node(made, self.factory) if isinstance(made, type) else made)  # type: ignore[misc]
            if node is None:
                wrong: list[GraphBusError] = [self._refuse_made(member, error)]
            else:
                node._connection = self
                self.nodes[member.name] = node
                wrong = self._subscribe(member, node)
            problems += self._leave_out(member.name, wrong)

    def _subscribe(self, member: Member, node: GraphBusNode) -> list[GraphBusError]:
        problems: list[GraphBusError] = []
        if member.is_async:
            self.bus.use_lane(member.name)
        for topic, method, policy in member.handlers:
            handler = getattr(node, method)
            name = f"{member.name}.{method}"
            shape = member.shape_of(topic, method)
            try:
                self.bus.subscribe(topic, handler, name=name, owner=member.name, shape=shape, policy=policy)
            except RunError as error:
                problems.append(error)
        return problems

    def _start_nodes(self) -> list[GraphBusError]:
        for name in list(self.nodes):
            _, error = attempt(lambda name=name: self.bus.run(self.nodes[name].on_start, owner=name))  # type: ignore[misc]
            if error is None:
                self._started.add(name)
            wrong: list[GraphBusError] = [] if error is None else [self._refuse("GBE605", self._members[name], error)]
            if self._leave_out(name, wrong):
                return wrong
        return []

    def _leave_out(self, name: str, problems: list[GraphBusError]) -> list[GraphBusError]:
        """Go on without an agent that has problems, if the graph may; else give them back."""
        if not self.is_partial or not problems:
            return problems
        self.left_out[name] = problems[0]
        self.nodes.pop(name, None)
        for subscription in self.bus.subscriptions:
            if subscription.name.startswith(f"{name}."):
                self.bus.unsubscribe(subscription)
        return []

    def _refuse_left_out(self, agent: str) -> None:
        why = self.left_out.get(agent)
        if why is not None and why.code == "GBE696":
            raise RunError("GBE696", agent=agent, asked=why.data["asked"])
        if why is not None:
            raise RunError("GBE680", where=why.where, agent=agent, reason=why.sentence.rstrip("."))

    def _end_of(self, name: str, problems: list[GraphBusError]) -> Callable[[], None]:
        def end() -> None:
            if name not in self._started:
                return
            self._started.remove(name)
            _, error = attempt(lambda: self.bus.run(self.nodes[name].on_stop, owner=name))
            if error is not None:
                is_kept_out = isinstance(error, RunError) and error.code == "GBE618"  # an agent is never entered twice
                code = "GBE608" if is_kept_out else "GBE626"
                problems.append(self._refuse(code, self._members[name], error))

        return end

    def _refuse_made(self, member: Member, error: Exception | None) -> RunError:
        if not isinstance(error, RunError) or error.code not in ("GBE656", "GBE657"):
            return self._refuse("GBE603", member, error)
        error.where = self.place_of(error.__cause__) or member.place
        return error

    def _refuse(self, code: str, member: Member, error: Exception | None) -> RunError:
        where = self.place_of(error) or member.place
        refusal = RunError(code, where=where, name=member.name, reason=describe_exception(error))
        refusal.__cause__ = error
        return refusal


_HEAD = b"SQLite format 3\0"


def state_path(config: ResolvedRun) -> str:
    """Give the file of the states; empty for a graph that has no folder."""
    return f"{config.state_dir}/{STATE_FILE}" if config.state_dir else ""


def check_files(graph: LiveGraph, config: ResolvedRun) -> None:
    """Refuse files that cannot be used, and let a graph that is to keep its dead letters do so.

    Of the states only the first bytes are read, because SQLite takes a while to import; it is asked about those that are wrong.

    Raises:
        RunError: GBE643 damaged, of another program or of a newer GraphBus; GBE645 it cannot be opened or made.
    """
    path = state_path(config)
    if os.path.exists(path) and attempt(lambda: _head_of(path))[0] not in (b"", _HEAD):
        states = States(path)
        states.open()
        states.close()
    if config.settings.keep_dead_letters == "auto":
        _keep_beside_state(graph, config)
    elif config.settings.keep_dead_letters:
        _keep_dead_letters(graph, config, is_opened=True)


def _keep_dead_letters(graph: LiveGraph, config: ResolvedRun, *, is_opened: bool = False) -> None:
    from graphbus_core.hosting.dead_letters import FILE, DeadLetterKeeper

    keeper = DeadLetterKeeper(f"{config.state_dir}/{FILE}")
    if is_opened:
        keeper.open()
    graph.bus.keeper = keeper
    graph.at_end(keeper.close)


def _keep_beside_state(graph: LiveGraph, config: ResolvedRun) -> None:
    """Keep the dead letters that come when the file of the states is there; until then nothing for it is imported."""
    path, deciding = state_path(config), Lock()

    def keep(letter: DeadLetter) -> None:
        with deciding:
            if graph.bus.keeper is keep and os.path.exists(path):
                _keep_dead_letters(graph, config)
        if graph.bus.keeper is not keep and graph.bus.keeper is not None:
            graph.bus.keeper(letter)

    graph.bus.keeper = keep


def _head_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(len(_HEAD))
