"""One model of one provider, asked through the provider's own asynchronous library.

thread of the caller                     thread of the client: one event loop, one HTTP client
complete(prompt)  --- coroutine --->     sdk.Calls: messages -> stream -> text, usage
                  <-- Completion ---
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from graphbus_core.isolation import attempt

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future
from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, Progress, Prompt
from graphbus_core.llm.providers import Provider, dropped, explain, without
from graphbus_core.llm.sdk import Asked, Calls, Said, cost_of, told_by
from graphbus_core.model.spending import Price, Usage

# --- an event loop in a thread of its own ------------------------------------------------------


_PATIENCE_S = 2.0
"""How long the last tasks of a loop may make no progress before it is closed all the same."""


class _Resident(Protocol):
    """An object that is used on the loop and closed with it."""

    async def close(self) -> None:
        """Give back what it holds."""


Inhabitant = TypeVar("Inhabitant", bound=_Resident)
R = TypeVar("R")


class LoopThread(Generic[Inhabitant]):
    """Makes something in a thread of its own and runs coroutines on it there.

    Args:
        name: Of the thread.
        move_in: Called in the thread; what it raises, each `run` raises.
    """

    def __init__(self, name: str, move_in: Callable[[], Inhabitant]) -> None:
        self._move_in = move_in
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inhabitant: Inhabitant | None = None
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Inhabitant], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine to its end and give its result; Ctrl-C while it waits drops it.

        Raises:
            CancelledError: The thread was stopped before or meanwhile, that of `concurrent.futures`.
        """
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure
        future = self._submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _submit(self, work: Callable[[Inhabitant], Coroutine[Any, Any, R]]) -> Future[R]:
        import asyncio
        from concurrent.futures import CancelledError

        with self._lock:  # after `stop` it would never run
            if self._is_stopped or self._inhabitant is None or self._loop is None:
                raise CancelledError
            return asyncio.run_coroutine_threadsafe(work(self._inhabitant), self._loop)

    def stop(self) -> None:
        """Drop what is under way, close the inhabitant, end the thread; who has not moved in yet is not waited for."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
            if is_first and self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            has_moved_in = self._loop is not None or self._failure is not None
        self._is_ready.set()
        if has_moved_in:
            self._thread.join()

    def _live(self) -> None:
        import asyncio

        inhabitant, failure = attempt(self._move_in)
        with self._lock:
            self._inhabitant, self._failure = inhabitant, failure
            if inhabitant is not None:
                self._loop = asyncio.new_event_loop()
            is_stopped = self._is_stopped
        self._is_ready.set()
        if inhabitant is None or self._loop is None:
            return
        try:
            if not is_stopped:
                self._loop.run_forever()
            self._loop.run_until_complete(_wind_up(inhabitant))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(_settle())
        finally:
            self._loop.close()


async def _wind_up(inhabitant: _Resident) -> None:
    import asyncio

    under_way = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    await inhabitant.close()


async def _settle() -> None:
    """Wait for tasks that were created meanwhile: the loop closes abandoned generators with tasks."""
    import asyncio

    await asyncio.sleep(0)
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=_PATIENCE_S)
        if not any(task.done() for task in left):
            return
        await asyncio.sleep(0)


# --- one model of one provider -----------------------------------------------------------------


class RemoteClient:
    """Asks one model of one provider through the provider's own library. May be called from several threads."""

    def __init__(
        self, provider: Provider, model: str, key: str, timeout_s: float, *, price: Price | None, has_known_price: bool
    ) -> None:
        self.model = f"{provider.name}:{model}"
        self.price = price
        self._asked = Asked(provider, model, key, timeout_s)
        self._has_known_price = has_known_price
        self._lock = threading.Lock()
        self._thread: LoopThread[Calls] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"RemoteClient({self.model!r})"

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask once.

        Raises:
            ModelError: GBE441 to GBE451.
        """
        said, failure = attempt(
            lambda: self._running().run(lambda calls: calls.ask(prompt, max_output_tokens, progress))
        )
        if said is None:  # raised here and not where it was caught, so that nothing of the failure hangs on to ours
            raise self._explained(failure or RuntimeError("no answer"))
        return self._completion(said)

    def close(self) -> None:
        """Close connections and end the thread."""
        with self._lock:
            thread, self._thread, self._is_closed = self._thread, None, True
        if thread is not None:
            thread.stop()

    def _running(self) -> LoopThread[Calls]:
        with self._lock:
            if self._is_closed:
                raise dropped(self._asked.provider)
            if self._thread is None:
                self._thread = LoopThread(f"model-{self._asked.provider.name}", lambda: Calls(self._asked))
            return self._thread

    def _explained(self, failure: Exception) -> Exception:
        from concurrent.futures import CancelledError

        if isinstance(failure, ModelError):
            return failure
        if isinstance(failure, ImportError):
            package = failure.name or "a library"
            return ModelError("GBE441", is_final=True, provider=self._asked.provider.name, package=package)
        if isinstance(failure, CancelledError):
            return dropped(self._asked.provider)
        return explain(
            told_by(failure), self._asked.provider, self._asked.model, self._asked.timeout_s, self._asked.key
        )

    def _completion(self, said: Said) -> Completion:
        cost = self._cost(said.usage)
        text = without(said.text, self._asked.key)
        return Completion(text=text, model=self.model, usage=said.usage, cost_usd=cost, stop=said.stop)

    def _cost(self, usage: Usage) -> float | None:
        known = cost_of(self._asked.provider.prices, self._asked.model, usage) if self._has_known_price else None
        if known is not None or self.price is None:
            return known
        return (usage.input_tokens * self.price.input_usd + usage.output_tokens * self.price.output_usd) / 1e6
