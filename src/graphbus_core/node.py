"""GraphBusNode, the base class of every agent. At run time an agent is a plain object that receives and publishes events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar, cast, overload

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.log import INFO, Log
from graphbus_core.model.state import AgentState
from graphbus_core.model.topics import Publishable, Requestable, Topic
from graphbus_core.schema.json import Json
from graphbus_core.schema.live import unwrap_function
from graphbus_core.schema.values import format_value

_Agent = TypeVar("_Agent")
_Given = ParamSpec("_Given")


class Connection(Protocol):
    """The part of a running graph that a node uses; `LiveGraph` implements it."""

    def publish(self, topic: Any, payload: Json = None, *, src: str = "") -> object:
        """Send an event."""

    def request(self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any:
        """Send an event to the one handler that answers it, and return the answer."""

    def call_from(self, caller: str, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method of another agent on behalf of `caller`."""

    def state_of(self, agent: str) -> AgentState:
        """Return the state of an agent."""


class _StateOfNode:
    """Descriptor for `self.state`: gets the state from the graph at each use; an agent may define its own attribute instead."""

    @overload
    def __get__(self, node: None, kind: type[GraphBusNode]) -> _StateOfNode: ...

    @overload
    def __get__(self, node: GraphBusNode, kind: type[GraphBusNode]) -> AgentState: ...

    def __get__(self, node: GraphBusNode | None, kind: type[GraphBusNode]) -> _StateOfNode | AgentState:
        if node is None:
            return self
        return node._connected("keep a state").state_of(kind.__name__)


class GraphBusNode:
    """Base class of agents. A graph creates each agent without arguments; set resources up in `on_start`.

    Attributes:
        SYSTEM_PROMPT: The agent's role and strategy in negotiations; not used at run time.
        IS_ARBITER: True for an agent that decides when the others disagree.
        SUBSCRIBE: Topics and patterns whose events go to `handle_event(topic, payload)`, in addition to `@subscribe`.
        state: A mapping that outlives an event and, with a state file, a run: `self.state["count"] = 1`. Values are JSON, and
            reading returns a copy. Available from `on_start` to `on_stop`; see `model.state.AgentState`.
    """

    SYSTEM_PROMPT: ClassVar[str] = ""
    IS_ARBITER: ClassVar[bool] = False
    SUBSCRIBE: ClassVar[Sequence[str | Topic[Any]]] = ()
    state = _StateOfNode()

    _connection: Connection | None = None

    @overload
    def publish(self, topic: Publishable[_Given], /, *payload: _Given.args, **named: _Given.kwargs) -> None: ...

    @overload
    def publish(self, topic: str, payload: Json = None) -> None: ...

    def publish(self, topic: Any, payload: Json = None) -> None:  # type: ignore[misc]  # as the first overload is called
        """Publish an event. From inside a handler, delivery begins after that handler has returned.

        Args:
            topic: A topic without wildcards: its name, or a `Topic`, whose payload type checkers verify.
            payload: A JSON-shaped value. It is copied, so the caller may change its own object afterwards.

        Raises:
            RunError: GBE610-614 for an invalid topic or payload, GBE616 for a node that runs in no graph.
        """
        self._connected("publish").publish(topic, payload, src=type(self).__name__)

    @overload
    def request(self, topic: Requestable[_Given], /, *payload: _Given.args, **named: _Given.kwargs) -> Any: ...

    @overload
    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0) -> Any: ...

    def request(self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0) -> Any:  # type: ignore[misc]  # as above
        """Publish an event that exactly one handler answers, and return the answer.

        In an `async def` method, await it: `await self.request(...)`. An exception of the handler is raised here.

        Args:
            topic: A topic without wildcards. Exactly one handler that returns a value must subscribe to it by its name. Handlers
                of patterns get the event too, but do not answer.
            payload: A JSON-shaped value.
            timeout_s: Seconds to wait; None waits without a limit. A `def` handler that has begun always runs to its end.

        Returns:
            What the handler returned.

        Raises:
            RunError: GBE610-614 for an invalid topic or payload, GBE616 for a node that runs in no graph, GBE631 when no handler
                answers, GBE632 when several would, GBE628 in a plain `def` of an agent that has `async def` methods.
            RequestTimeoutError: GBE635 when no answer arrives in time.
            DeadlockError: GBE633 when the answering agent waits for this one.
        """
        return self._connected("request").request(topic, payload, timeout_s, src=type(self).__name__)

    def call(self, agent: str, method: str, /, **arguments: Any) -> Any:
        """Call a `@schema_method` of an agent that this one declares with `@depends_on`, and return its result.

        In an `async def` method, await it: `await self.call(...)`.

        Args:
            agent: The class name of the other agent.
            method: The name of its method.
            arguments: The arguments of the method, by name.

        Raises:
            RunError: GBE620-624 for an unknown agent, method or argument, a wrong result, or a missing `@depends_on`.
                GBE628 in a plain `def` of an agent that has `async def` methods.
        """
        return self._connected("call").call_from(type(self).__name__, agent, method, arguments)

    def agent(self, kind: type[_Agent], /) -> _Agent:
        """Return a proxy for an agent that this one depends on; its `@schema_method`s are called over the bus.

        `self.agent(Pricing).quote(sku="mug")` does the same as `self.call("Pricing", "quote", sku="mug")`, and type checkers
        verify the arguments and the result. In an `async def` method, await the call.

        Args:
            kind: The class of the other agent.

        Raises:
            RunError: GBE665 when `kind` is not a class, GBE621 for an attribute without `@schema_method`, and what `call` raises.
        """
        if not isinstance(kind, type):
            raise RunError("GBE665", got=format_value(kind))
        return cast("_Agent", _AgentProxy(self, kind))

    def log(self, message: object, *arguments: object, level: int = INFO) -> None:
        """Log a `%`-style message to the logger of this agent, `graphbus.agent.<class name>`.

        Args:
            message: The format string.
            arguments: The values for its placeholders.
            level: A level of `logging`; INFO by default.
        """
        Log(f"graphbus.agent.{type(self).__name__}").log(level, message, *arguments, stacklevel=2)

    def on_start(self) -> Awaitable[None] | None:
        """Run once, after all agents are connected and before the first event. May be an `async def`."""

    def on_stop(self) -> Awaitable[None] | None:
        """Run once, when no event waits any more; agents stop in the reverse order of their start. May be an `async def`.

        Events that it publishes are delivered before the next agent stops. For agents that have stopped they are dead letters.
        """

    def _connected(self, what: str) -> Connection:
        """Return the connection to the graph; raise GBE616 for a node that runs in no graph.

        Args:
            what: The end of the message of GBE616, such as "publish".
        """
        if self._connection is None:
            raise RunError("GBE616", name=type(self).__name__, what=what)
        return self._connection


class _AgentProxy:
    """Proxy for another agent: an attribute is a function that calls the method of this name over the bus."""

    __slots__ = ("_caller", "_kind")

    def __init__(self, caller: GraphBusNode, kind: type) -> None:
        self._caller, self._kind = caller, kind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function that calls this method over the bus; GBE621 if it is not a `@schema_method`."""
        agent = self._kind.__name__
        function = getattr(self._kind, name, None)
        if not hasattr(function, "__graphbus_schema__"):
            methods = [each for each in dir(self._kind) if hasattr(getattr(self._kind, each), "__graphbus_schema__")]
            near, advice = did_you_mean(name, methods), advise_on_calls(methods)
            raise RunError("GBE621", agent=agent, method=name, suggestion=near, advice=advice)

        def call(*positional: Any, **named: Any) -> Any:
            arguments = _name_arguments(agent, function, positional, named) if positional else named
            return self._caller.call(agent, name, **arguments)

        return call


def advise_on_calls(methods: Iterable[str]) -> str:
    """Return the hint for a call of a method that an agent does not offer; `methods` are those that it offers."""
    known = ", ".join(sorted(methods))
    return f"Call one of its @schema_method methods: {known}." if known else "Decorate the method with @schema_method."


def _name_arguments(agent: str, function: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call of `function` by parameter name: calls over the bus have no positional arguments.

    Raises:
        RunError: GBE622 for an argument that is passed twice, or too many.
    """
    code = unwrap_function(function).__code__
    names = code.co_varnames[1 : code.co_argcount]
    twice = [each for each in names[: len(positional)] if each in named]
    if twice or len(positional) > len(names):
        too_many = f"it takes {len(names)} positional arguments, not {len(positional)}"
        reason = f"{twice[0]} is passed twice" if twice else too_many
        raise RunError("GBE622", agent=agent, method=function.__name__, reason=reason)
    return {**dict(zip(names, positional, strict=False)), **named}
