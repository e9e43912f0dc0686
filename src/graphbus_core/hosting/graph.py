"""LiveGraph: a running graph of agents on a bus, with its start, calls, state and shutdown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import Any, ParamSpec, Protocol, overload

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
from graphbus_core.model.deliveries import DeadLetter, DeliveryPolicy, Metric
from graphbus_core.model.state import AgentState
from graphbus_core.model.topics import Publishable, Requestable, name_of
from graphbus_core.node import GraphBusNode, advise_on_calls
from graphbus_core.schema.json import Json
from graphbus_core.store import BuildArtifacts

_Given = ParamSpec("_Given")


class Member(msgspec.Struct, frozen=True):
    """The description of an agent, from which a graph creates and connects it.

    Attributes:
        name: The name of its class.
        node: The class, or an object that was created before.
        handlers: (topic, method, policy) in the order in which they are called.
        methods: Name -> checks of the methods that can be called.
        dependencies: The names of the agents that it may call.
        is_async: It has an `async def` method, so all of it runs on the event loop.
        place: The line of its class statement, if known.
        shapes: Method -> which parameters it takes as a handler, as the compiler has found out.
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
        """Return which parameters a method takes as the handler of a topic; None if its signature must be inspected."""
        is_from_subscribe = method == "handle_event" and topic in map(name_of, self.node.SUBSCRIBE)
        return "topic_payload" if is_from_subscribe else self.shapes.get(method)


class GraphOrigin(msgspec.Struct, frozen=True):
    """The build, the imported modules and the configuration that a graph was created from."""

    artifacts: BuildArtifacts
    modules: NodeModules
    config: ResolvedRun


class GraphLedger(Protocol):
    """What a graph needs of the ledger that keeps its events; `graphbus_core.ledger.attached` implements it."""

    def begin(self) -> None:
        """Begin to handle events; all agents have started."""

    @property
    def is_reachable(self) -> bool:
        """False while the engine cannot be reached."""

    def metrics(self) -> Sequence[Metric]:
        """Return what waits in the ledger, and what the worker has counted."""

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is left to do for the agents of this process; False if that is not so after `timeout_s`."""

    def responder_to(self, topic: str) -> str:
        """Return the agent of another process that answers requests on a topic; empty if this process may answer them."""

    def ask(self, agent: str, question: dict[str, Any], what: str, timeout_s: float | None) -> Any:
        """Put a request or call to an agent of another process, and return the answer; on an event loop, an awaitable of it."""

    def drain(self, grace_s: float) -> None:
        """Take no further events, and wait up to `grace_s` for the handlers that run."""

    def close(self) -> None:
        """Disconnect."""


class LiveGraph:
    """A running graph. Use it in a `with` statement, or call `stop` when you are done.

    Args:
        members: The agents to create and connect, in the order of activation.
        state_path: The file of the agents' states; empty: the states live in memory until the graph stops.
        states: The states themselves, in place of those of a file.

    Attributes:
        bus: The message bus that connects the agents.
        nodes: Name -> agent, in the order of activation.
        grace_s: How many seconds a shutdown waits in all for work that is under way.
        place_of: Returns the line of the project that raised an exception; None when it is not known.
        factory: Creates the agents from their classes; None: classes are called without arguments.
        origin: The build that it was created from; None for a graph made by `connect`.
        is_partial: An agent that cannot start is left out, and the graph starts without it.
        left_out: Name -> error of the agents that were left out.
        confinement: Lines for the terminal about the limits of this process; empty: none.
        ledger: The ledger that keeps the events; None: they live in memory.
    """

    def __init__(
        self,
        bus: MessageBus,
        members: Iterable[Member],
        *,
        grace_s: float = 10.0,
        state_path: str = "",
        states: States | None = None,
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
        self.ledger: GraphLedger | None = None
        self._calls: dict[str, dict[str, Call]] = {}
        self._states = States(state_path) if states is None else states
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
        """Publish an event, and wait until it and all events that follow from it are delivered.

        A served graph delivers on a thread of its own: there this returns at once.

        Args:
            topic: A topic without wildcards: its name, or a `Topic`.
            payload: A JSON-shaped value; it is copied.
            src: The name to record as the sender of the event.

        Returns:
            The receipt of the event in a served graph, when called from outside of its handlers; else None.

        Raises:
            RunError: GBE610-615 and GBE619 for a topic or payload that is refused.
            BackpressureError: GBE636 when too many events wait.
        """
        return self.bus.publish(topic, payload, src=src)

    @overload
    def request(self, topic: Requestable[_Given], /, *payload: _Given.args, **named: _Given.kwargs) -> Any: ...

    @overload
    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any: ...

    def request(  # type: ignore[misc]  # as in GraphBusNode
        self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = ""
    ) -> Any:
        """Publish an event that exactly one handler answers, and return the answer; see `GraphBusNode.request`.

        Raises:
            RunError: GBE610-614 for an invalid topic or payload, GBE631 when no handler answers, GBE632 when several could.
            RequestTimeoutError: GBE635 when no answer arrives within `timeout_s`.
        """
        if self.ledger is not None and (agent := self.ledger.responder_to(name_of(topic))):
            question = {"topic": name_of(topic), "payload": payload, "src": src}
            return self.ledger.ask(agent, question, name_of(topic), timeout_s)
        return self.bus.request(topic, payload, timeout_s, src=src)

    def call(self, agent: str, method: str, /, **arguments: Any) -> Any:
        """Call a `@schema_method` and return its result; events that it publishes are delivered before this returns.

        Args:
            agent: The class name of the agent.
            method: The name of its method.
            arguments: The arguments, by name.

        Raises:
            RunError: GBE620 for an unknown agent, GBE621 for an unknown method, GBE622 for arguments and GBE623 for a result that
                do not fit their schemas.
        """
        try:
            call = self._calls[agent][method]
        except KeyError:
            call = None
        # Outside of the `except`, so that errors of the call do not show the KeyError as their context.
        return (call or self._compile_call(agent, method))(arguments)

    def call_with_json(self, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method with arguments from JSON, such as base64 text for bytes; raises what `call` raises."""
        checked = self._members[agent].methods.get(method) if agent in self._members else None
        return self.call(agent, method, **(checked.from_json(arguments) if checked else arguments))

    def call_from(self, caller: str, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method on behalf of the agent `caller`; `GraphBusNode.call` uses this.

        Raises:
            RunError: GBE624 when `caller` does not depend on the other agent, and what `call` raises.
        """
        dependencies = self._members[caller].dependencies
        if agent in self._members and agent not in dependencies:
            raise RunError("GBE624", where=self._members[caller].place, agent=caller, other=agent)
        return self.call(agent, method, **arguments)

    def _compile_call(self, agent: str, method: str) -> Call:
        """Make and remember the function for calls of a method; raise GBE620, GBE621, GBE680 or GBE696 if it cannot be called."""
        ledger, left_out = self.ledger, self.left_out.get(agent)
        if ledger is not None and left_out is not None and left_out.code == "GBE696":
            what = f"{agent}.{method}"
            return lambda arguments: ledger.ask(agent, {"method": method, "arguments": arguments}, what, None)
        self._refuse_left_out(agent)
        methods = self._methods_of(agent)
        checked_method = methods.get(method)
        if checked_method is None:
            near, advice = did_you_mean(method, methods), advise_on_calls(methods)
            raise RunError("GBE621", agent=agent, method=method, suggestion=near, advice=advice)
        bound = getattr(self.nodes[agent], method)
        call = compile_call(self.bus, agent, checked_method, bound, is_async=self._members[agent].is_async)
        self._calls.setdefault(agent, {})[method] = call
        return call

    def _methods_of(self, agent: str) -> Mapping[str, CheckedMethod]:
        """Return name -> checks of the methods of an agent that can be called; raise GBE620 for an unknown agent."""
        if agent not in self._members:
            known, near = ", ".join(sorted(self._members)), did_you_mean(agent, self._members)
            raise RunError("GBE620", agent=agent, suggestion=near, known=known)
        return self._members[agent].methods

    def node(self, name: str) -> GraphBusNode:
        """Return the object of an agent, for instance to look at its attributes in a test.

        Raises:
            RunError: GBE620 for an unknown agent, GBE680 for one that was left out.
        """
        self._refuse_left_out(name)
        self._methods_of(name)
        return self.nodes[name]

    def state_of(self, agent: str) -> AgentState:
        """Return the state of an agent, as `self.state` does inside of it."""
        return self._states.of(agent)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until no event waits or is being handled, and no retry is planned.

        Args:
            timeout_s: How many seconds to wait at most; None: no limit.

        Returns:
            False when that is not so after `timeout_s`.

        Raises:
            RunError: GBE648 inside of a handler.
        """
        if self.ledger is not None:
            self.bus.hosting.refuse_in_handler()
            return self.ledger.settle(timeout_s)
        return self.bus.settle(timeout_s)

    def ledger_metrics(self) -> Sequence[Metric]:
        """Return the metrics of the ledger; none without one."""
        return () if self.ledger is None else self.ledger.metrics()

    def replay_dead_letters(self, letters: Iterable[DeadLetter] | None = None) -> tuple[DeadLetter, ...]:
        """Deliver the events of dead letters again, with the same ids, and wait until all their attempts have ended.

        Each event goes to the subscription that failed. A letter whose event is handled now is removed from the bus and from the
        file of dead letters; an event that fails again leaves a new letter instead. Concurrent calls run one after the other.

        Args:
            letters: The letters to replay; None: all of `bus.dead_letters()`.

        Returns:
            The new dead letters of the events that failed again.

        Raises:
            RunError: GBE648 inside of a handler, GBE649 when the handler of a letter is gone; then nothing is delivered. GBE615
                when the graph stops; letters that were not handled until then are unchanged.
        """
        from graphbus_core.hosting.dead_letters import replay_all

        self.bus.hosting.refuse_in_handler()
        with self._replaying:
            return replay_all(self, letters)

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until the event of a receipt is done; False when the graph stops first.

        Args:
            receipt: What `publish` has returned.
            is_rest_enough: Return False when nothing but retries is left to do.
        """
        return self.bus.wait_for(receipt, is_rest_enough=is_rest_enough)

    # --- life ---

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Create all agents, connect them and call their `on_start`. After an error the graph is stopped.

        If `is_partial` is set, an agent with an error is left out instead.

        Args:
            then: Called when all have started, before any event that they have published is delivered.

        Raises:
            RunError: GBE603, GBE656 or GBE657 for an agent that cannot be created, GBE605 for a failing `on_start`, GBE611 for a
                handler with an impossible signature.
            SeveralErrors: For more than one error other than GBE605.
        """
        problems: list[GraphBusError] = []
        is_started = False

        def start_all() -> None:
            problems.extend(self._start_nodes())
            if not problems:
                then()

        try:
            self.make_nodes()
            self.bus.run(start_all)
            is_started = not problems
        finally:
            if not is_started:
                self.stop()
        raise_all(problems)

    def stop(self) -> None:
        """Refuse new events, deliver those that wait, and call `on_stop` in reverse order. A second call does nothing.

        Raises:
            RunError: GBE626 when an `on_stop` failed, GBE608 when it could not be called; the other agents are stopped anyway.
            SeveralErrors: For more than one error.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        problems: list[GraphBusError] = []
        try:
            if self.ledger is not None:
                self.ledger.drain(self.begin_grace())
            self.bus.close(
                self.begin_grace(), ends=[(name, self._make_stopper(name, problems)) for name in reversed(self.nodes)]
            )
        finally:
            for clean_up in reversed(self._at_end):
                clean_up()
        raise_all(problems)

    def begin_grace(self) -> float:
        """Return how many seconds of the grace are left; the first call starts it.

        The signal handler, the servers and the bus wait one after the other and share one grace.
        """
        if self._grace_ends is None:
            self._grace_ends = monotonic() + self.grace_s
        return max(0.0, self._grace_ends - monotonic())

    @property
    def is_stopped(self) -> bool:
        """True once `stop` was called."""
        return self._is_stopped

    def at_end(self, clean_up: Callable[[], None]) -> None:
        """Register a function to call after the graph has stopped; the last one registered is called first."""
        self._at_end.append(clean_up)

    def make_nodes(self) -> None:
        """Create and subscribe all agents, without starting them; `start` does both.

        Raises:
            RunError: GBE603, GBE611, GBE656, GBE657; see `start`.
            SeveralErrors: For more than one of them.
        """
        problems: list[GraphBusError] = []
        for member in self._members.values():
            kind = member.node
            node, error = attempt(lambda kind=kind: make_node(kind, self.factory) if isinstance(kind, type) else kind)  # type: ignore[misc]
            if node is None:
                own_problems: list[GraphBusError] = [self._make_creation_error(member, error)]
            else:
                node._connection = self
                self.nodes[member.name] = node
                own_problems = self._subscribe_handlers(member, node)
            problems += self._leave_out(member.name, own_problems)
        raise_all(problems)

    def _subscribe_handlers(self, member: Member, node: GraphBusNode) -> list[GraphBusError]:
        """Subscribe the handlers of an agent, and return the errors of those that the bus refuses."""
        problems: list[GraphBusError] = []
        if member.is_async:
            self.bus.hosting.use_lane(member.name)
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
        """Call `on_start` of all agents up to the first error that stops the graph; return a list of at most that error."""
        for name in list(self.nodes):
            _, error = attempt(lambda name=name: self.bus.run(self.nodes[name].on_start, owner=name))  # type: ignore[misc]
            own_problems: list[GraphBusError] = []
            if error is None:
                self._started.add(name)
            else:
                own_problems.append(self._make_error("GBE605", self._members[name], error))
            if self._leave_out(name, own_problems):
                return own_problems
        return []

    def _leave_out(self, name: str, problems: list[GraphBusError]) -> list[GraphBusError]:
        """If the graph `is_partial`, remove an agent that has problems from it.

        Returns:
            The problems that stop the graph: all if it is not partial, else none.
        """
        if not self.is_partial or not problems:
            return problems
        self.left_out[name] = problems[0]
        self.nodes.pop(name, None)
        for subscription in self.bus.subscriptions:
            if subscription.name.startswith(f"{name}."):
                self.bus.unsubscribe(subscription)
        return []

    def _refuse_left_out(self, agent: str) -> None:
        """Raise GBE696 for an agent that `--only` excludes, GBE680 for one that could not start; do nothing for any other."""
        error = self.left_out.get(agent)
        if error is not None and error.code == "GBE696":
            raise RunError("GBE696", agent=agent, asked=error.data["asked"])
        if error is not None:
            raise RunError("GBE680", where=error.where, agent=agent, reason=error.sentence.rstrip("."))

    def _make_stopper(self, name: str, problems: list[GraphBusError]) -> Callable[[], None]:
        """Return a function that calls `on_stop` of an agent, if that was started, and adds an error of it to `problems`."""

        def end() -> None:
            if name not in self._started:
                return
            self._started.remove(name)
            _, error = attempt(lambda: self.bus.run(self.nodes[name].on_stop, owner=name))
            if error is not None:
                # GBE618: a handler of the agent still runs, and no agent runs two functions at once.
                is_busy = isinstance(error, RunError) and error.code == "GBE618"
                code = "GBE608" if is_busy else "GBE626"
                problems.append(self._make_error(code, self._members[name], error))

        return end

    def _make_creation_error(self, member: Member, error: Exception | None) -> RunError:
        """Return the error for an agent that could not be created: GBE656 or GBE657 of the factory, or else GBE603."""
        if not isinstance(error, RunError) or error.code not in ("GBE656", "GBE657"):
            return self._make_error("GBE603", member, error)
        error.where = self.place_of(error.__cause__) or member.place
        return error

    def _make_error(self, code: str, member: Member, error: Exception | None) -> RunError:
        """Make an error about an agent, at the line of the project that raised `error`, or else at the agent's class."""
        where = self.place_of(error) or member.place
        agent_error = RunError(code, where=where, name=member.name, reason=describe_exception(error))
        agent_error.__cause__ = error
        return agent_error


_SQLITE_HEADER = b"SQLite format 3\0"


def state_path(config: ResolvedRun) -> str:
    """Return the path of the state file; empty for a graph without a state folder."""
    return f"{config.state_dir}/{STATE_FILE}" if config.state_dir else ""


def check_files(graph: LiveGraph, config: ResolvedRun) -> None:
    """Check the files of a graph before it starts, and connect the keeper of dead letters to its bus, as the settings say.

    SQLite is slow to import, so only the first bytes of the state file are read. If these are not those of an SQLite file, the
    file is opened, which raises the error that fits.

    Raises:
        RunError: GBE643 for a file that is damaged or belongs to another program or a newer GraphBus, GBE645 for one that cannot
            be opened or created.
    """
    path = state_path(config)
    if os.path.exists(path) and attempt(lambda: _read_first_bytes(path))[0] not in (b"", _SQLITE_HEADER):
        states = States(path)
        states.open()
        states.close()
    if config.settings.keep_dead_letters == "auto":
        _keep_once_state_exists(graph, config)
    elif config.settings.keep_dead_letters:
        _keep_dead_letters(graph, config, is_opened=True)


def _keep_dead_letters(graph: LiveGraph, config: ResolvedRun, *, is_opened: bool = False) -> None:
    """Connect a keeper of dead letters to the bus; with `is_opened`, open its file now instead of with the first letter."""
    from graphbus_core.hosting.dead_letters import FILE, DeadLetterKeeper

    keeper = DeadLetterKeeper(f"{config.state_dir}/{FILE}")
    if is_opened:
        keeper.open()
    graph.bus.hosting.letters.keeper = keeper
    graph.at_end(keeper.close)


def _keep_once_state_exists(graph: LiveGraph, config: ResolvedRun) -> None:
    """Save the dead letters that come once a state file exists, so that graphs without state never import SQLite."""
    path, lock, letters = state_path(config), Lock(), graph.bus.hosting.letters

    def keep(letter: DeadLetter) -> None:
        # The first letter after the state file was created replaces this function by a real keeper.
        with lock:
            if letters.keeper is keep and os.path.exists(path):
                _keep_dead_letters(graph, config)
        if letters.keeper is not keep and letters.keeper is not None:
            letters.keeper(letter)

    letters.keeper = keep


def _read_first_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(len(_SQLITE_HEADER))
