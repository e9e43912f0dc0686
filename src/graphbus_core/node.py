"""GraphBusNode: the class that every agent is made from. At run time it is a plain object that hears and says events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
    """What ties a node to the graph that it runs in."""

    def publish(self, topic: Any, payload: Json = None, *, src: str = "") -> object:
        """Send an event."""

    def request(self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any:
        """Send an event to the one who answers it, and give the answer."""

    def call_from(self, caller: str, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method of another agent on behalf of `caller`."""

    def state_of(self, agent: str) -> AgentState:
        """Give what an agent keeps."""


class _StateOfNode:
    """`self.state`, looked up when it is used. An agent that sets an attribute of this name has that instead."""

    @overload
    def __get__(self, node: None, kind: type[GraphBusNode]) -> _StateOfNode: ...

    @overload
    def __get__(self, node: GraphBusNode, kind: type[GraphBusNode]) -> AgentState: ...

    def __get__(self, node: GraphBusNode | None, kind: type[GraphBusNode]) -> _StateOfNode | AgentState:
        if node is None:
            return self
        return node._connected("keep a state").state_of(kind.__name__)


class GraphBusNode:
    """An agent. It is made without arguments; what it needs to start it sets up in `on_start`.

    Attributes:
        SYSTEM_PROMPT: The agent's role and strategy in negotiations; not used at run time.
        IS_ARBITER: True for the agent that decides when the others disagree.
        SUBSCRIBE: Topics and patterns whose events go to `handle_event(topic, payload)`, besides `@subscribe`.
        state: What the agent keeps from one event to the next, and from one run to the next: `self.state["count"] = 1`. Values
            are JSON; what is read is a copy. For use from `on_start` to `on_stop`; see `model.state.AgentState`.
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
        """Send an event. Inside a handler it is delivered after the handler has returned.

        Args:
            topic: The topic, without wildcards: a `Topic`, of which type checkers know the payload, or its name.
            payload: A JSON-shaped value; inside a handler it is copied, so that it may be changed afterwards.

        Raises:
            RunError: GBE610-614 for a topic or payload that is refused, GBE616 for a node that is in no graph.
        """
        self._connected("publish").publish(topic, payload, src=type(self).__name__)

    @overload
    def request(self, topic: Requestable[_Given], /, *payload: _Given.args, **named: _Given.kwargs) -> Any: ...

    @overload
    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0) -> Any: ...

    def request(self, topic: Any, payload: Json = None, timeout_s: float | None = 30.0) -> Any:  # type: ignore[misc]  # as above
        """Send an event to the one handler that hears it, and give what that returns.

        In an `async def` method: `await self.request(...)`. An exception of the handler is raised here.

        Args:
            topic: A topic to which exactly one handler subscribes.
            payload: A JSON-shaped value.
            timeout_s: How long to wait; None: for ever. A plain handler that has begun is waited for in any case.

        Raises:
            RunError: GBE610-614 for a topic or payload that is refused, GBE616 for a node that is in no graph, GBE631 when nobody
                answers, GBE632 when several would, GBE628 in a plain `def` of an agent that has `async def` methods.
            RequestTimeoutError: GBE635 no answer in time.
            DeadlockError: GBE633 when who would answer waits for this agent.
        """
        return self._connected("request").request(topic, payload, timeout_s, src=type(self).__name__)

    def call(self, agent: str, method: str, /, **arguments: Any) -> Any:
        """Call a `@schema_method` of an agent that this one depends on, and give its result.

        In an `async def` method: `await self.call(...)`.

        Raises:
            RunError: GBE620-624 for an unknown agent, method or argument, a wrong result, or a missing `@depends_on`.
                GBE628 in a plain `def` of an agent that has `async def` methods.
        """
        return self._connected("call").call_from(type(self).__name__, agent, method, arguments)

    def agent(self, kind: type[_Agent], /) -> _Agent:
        """Give what stands for an agent that this one depends on: its `@schema_method`s, called over the bus.

        `self.agent(Pricing).quote(sku="mug")` does what `self.call("Pricing", "quote", sku="mug")` does, and type checkers
        know the arguments and the result. In an `async def` method it is awaited likewise.

        Args:
            kind: The class of the agent.

        Raises:
            RunError: GBE665 for what is no class, GBE621 for anything of it but a `@schema_method`; and what `call` raises.
        """
        if not isinstance(kind, type):
            raise RunError("GBE665", got=format_value(kind))
        return cast("_Agent", _Remote(self, kind))

    def log(self, message: object, *arguments: object, level: int = INFO) -> None:
        """Write a line to the log of this agent, `graphbus.agent.<name>`."""
        Log(f"graphbus.agent.{type(self).__name__}").log(level, message, *arguments, stacklevel=2)

    def on_start(self) -> Awaitable[None] | None:
        """Called once, when all agents are connected and before the first event. It may be an `async def`."""

    def on_stop(self) -> Awaitable[None] | None:
        """Called once, when no event waits any more, in the reverse order of the starts. It may be an `async def`.

        What it publishes is delivered when all agents have stopped, also to those that have.
        """

    def _connected(self, what: str) -> Connection:
        if self._connection is None:
            raise RunError("GBE616", name=type(self).__name__, what=what)
        return self._connection


class _Remote:
    """The methods of another agent, each called over the bus."""

    __slots__ = ("_caller", "_kind")

    def __init__(self, caller: GraphBusNode, kind: type) -> None:
        self._caller, self._kind = caller, kind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        agent = self._kind.__name__
        function = getattr(self._kind, name, None)
        if not hasattr(function, "__graphbus_schema__"):
            methods = [each for each in dir(self._kind) if hasattr(getattr(self._kind, each), "__graphbus_schema__")]
            known, near = ", ".join(methods) or "none", did_you_mean(name, methods)
            raise RunError("GBE621", agent=agent, method=name, suggestion=near, known=known)

        def call(*given: Any, **named: Any) -> Any:
            arguments = _by_name(agent, function, given, named) if given else named
            return self._caller.call(agent, name, **arguments)

        return call


def _by_name(agent: str, function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """All arguments by the names of their parameters: what goes over the bus has names."""
    code = unwrap_function(function).__code__
    names = code.co_varnames[1 : code.co_argcount]
    twice = [each for each in names[: len(given)] if each in named]
    if twice or len(given) > len(names):
        reason = f"{twice[0]} is given twice" if twice else f"it takes {len(names)} by position, not {len(given)}"
        raise RunError("GBE622", agent=agent, method=function.__name__, reason=reason)
    return {**dict(zip(names, given, strict=False)), **named}
