"""Requests and calls between agents of different processes: JSON questions that an engine carries, and their answers.

Nothing of it is durable. What the answering handler publishes and stores is kept at once, not with the asking handler's outcome.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from graphbus_core.bus.dead_letters import error_line
from graphbus_core.errors import RequestTimeoutError, RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.isolation import attempt
from graphbus_core.ledger.seam import AgentMissing, EngineGone, Question, Questions, Subscription
from graphbus_core.schema.json import freeze

DEFAULT_TIMEOUT_S = 30.0
"""How long a call waits for its answer."""


class Asking:
    """Asks agents of other processes, and answers what they ask those of this one.

    Args:
        graph: The graph of this process.
        engine: What carries the questions.
        loop: The event loop of the engine, on a thread of its own.
        elsewhere: The subscriptions of agents of other processes.
        missing_s: How long a question waits for a process that runs its agent.
    """

    def __init__(
        self,
        graph: LiveGraph,
        engine: Questions,
        loop: asyncio.AbstractEventLoop,
        elsewhere: Sequence[Subscription],
        missing_s: float,
    ) -> None:
        self._graph, self._engine, self._loop, self._missing_s = graph, engine, loop, missing_s
        self._elsewhere = {each.topic: each.agent for each in elsewhere}
        self._answering: set[asyncio.Task[None]] = set()

    def responder_to(self, topic: str) -> str:
        """Return the agent of another process that subscribes to exactly this topic; empty if one of this process does."""
        agent = self._elsewhere.get(topic, "")
        return "" if any(each.topic == topic for each in self._graph.bus.subscriptions) else agent

    def ask(self, agent: str, question: dict[str, Any], what: str, timeout_s: float | None) -> Any:
        """Put a question to another process, and return its answer; on an event loop, an awaitable of it.

        Args:
            agent: The agent that is asked.
            question: `topic`, `payload` and `src` of a request, or `method` and `arguments` of a call.
            what: The topic or method, for messages.
            timeout_s: How long to wait; None: `DEFAULT_TIMEOUT_S`.

        Raises:
            RequestTimeoutError: GBE635, there is no answer in time. GBE609, no process runs the agent.
            RunError: GBE669, the handler or method failed. GBE612, the question is not JSON.
        """
        text = json.dumps(freeze(question))
        limit_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        asked = self._ask(agent, text, what, limit_s)
        waiting = asyncio.run_coroutine_threadsafe(asked, self._loop)
        return waiting.result() if asyncio._get_running_loop() is None else asyncio.wrap_future(waiting)

    async def _ask(self, agent: str, text: str, what: str, timeout_s: float) -> Any:
        began_at = monotonic()
        try:
            answer = json.loads(await self._engine.ask(agent, text, timeout_s, self._missing_s))
        except AgentMissing:
            raise RequestTimeoutError(
                "GBE609", agent=agent, what=what, waited_s=round(monotonic() - began_at, 1)
            ) from None
        except TimeoutError:
            raise RequestTimeoutError("GBE635", responder=agent, topic=what, timeout_s=timeout_s) from None
        if "error" in answer:
            raise RunError("GBE669", what=what, reason=answer["error"])
        return answer["value"]

    async def answer_all(self) -> None:
        """Take the questions that wait for agents of this process, and answer each on a thread of its own."""
        for question in await self._engine.take_questions(sorted(self._graph.nodes)):
            task = asyncio.create_task(self._answer(question))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def finish(self, grace_s: float) -> None:
        """Take no more questions, and wait up to `grace_s` until those that were taken are answered."""
        with suppress(EngineGone):
            await self._engine.leave_questions()
            await self.answer_all()
        if self._answering:
            await asyncio.wait(self._answering, timeout=grace_s)

    async def _answer(self, question: Question) -> None:
        value, error = await asyncio.to_thread(lambda: attempt(lambda: self._work_out(question)))
        text, refused = attempt(lambda: json.dumps({"value": freeze(value)}))
        if error is not None or text is None:
            text = json.dumps({"error": error_line(error or refused or ValueError("no answer")).rstrip(".")})
        await self._engine.answer(question, text)

    def _work_out(self, question: Question) -> Any:
        """Make the request or call of a question on this graph, and return the result."""
        asked = json.loads(question.text)
        if "topic" in asked:
            return self._graph.bus.request(asked["topic"], asked["payload"], src=asked["src"])
        return _result_of(self._graph.call_with_json(question.agent, asked["method"], asked["arguments"]))


def _result_of(value: Any) -> Any:
    """Return the result of a call; one of an async method is awaited."""
    if isinstance(value, Coroutine):
        return asyncio.run(value)
    return value
