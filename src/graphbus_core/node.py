"""GraphBusNode: the class that every agent is made from. At run time it is a plain object that hears and says events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, overload

from graphbus_core.errors import RunError
from graphbus_core.log import INFO, Log
from graphbus_core.model.state import State
from graphbus_core.schema.json import Json


class Connection(Protocol):
    """What ties a node to the graph that it runs in."""

    def publish(self, topic: str, payload: Json = None, *, src: str = "") -> object:
        """Send an event."""

    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0, *, src: str = "") -> Any:
        """Send an event to the one who answers it, and give the answer."""

    def call_from(self, caller: str, agent: str, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method of another agent on behalf of `caller`."""

    def state_of(self, agent: str) -> State:
        """Give what an agent keeps."""


class _StateOfNode:
    """`self.state`, looked up when it is used. An agent that sets an attribute of this name has that instead."""

    @overload
    def __get__(self, node: None, kind: type[GraphBusNode]) -> _StateOfNode: ...

    @overload
    def __get__(self, node: GraphBusNode, kind: type[GraphBusNode]) -> State: ...

    def __get__(self, node: GraphBusNode | None, kind: type[GraphBusNode]) -> _StateOfNode | State:
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
            are JSON; what is read is a copy. For use from `on_start` to `on_stop`; see `model.state.State`.
    """

    SYSTEM_PROMPT: ClassVar[str] = ""
    IS_ARBITER: ClassVar[bool] = False
    SUBSCRIBE: ClassVar[Sequence[str]] = ()
    state = _StateOfNode()

    _connection: Connection | None = None

    def publish(self, topic: str, payload: Json = None) -> None:
        """Send an event. Inside a handler it is delivered after the handler has returned.

        Args:
            topic: The topic, without wildcards.
            payload: A JSON-shaped value; inside a handler it is copied, so that it may be changed afterwards.

        Raises:
            RunError: GBE610-614 for a topic or payload that is refused, GBE616 for a node that is in no graph.
        """
        self._connected("publish").publish(topic, payload, src=type(self).__name__)

    def request(self, topic: str, payload: Json = None, timeout_s: float | None = 30.0) -> Any:
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

    def log(self, message: object, *arguments: object, level: int = INFO) -> None:
        """Write a line to the log of this agent, `graphbus.agent.<name>`."""
        Log(f"graphbus.agent.{type(self).__name__}").log(level, message, *arguments, stacklevel=2)

    def on_start(self) -> None:
        """Called once, when all agents are connected and before the first event."""

    def on_stop(self) -> None:
        """Called once, when no event waits any more, in the reverse order of the starts.

        What it publishes is delivered when all agents have stopped, also to those that have.
        """

    def _connected(self, what: str) -> Connection:
        if self._connection is None:
            raise RunError("GBE616", name=type(self).__name__, what=what)
        return self._connection
