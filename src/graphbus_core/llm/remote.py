"""One model of one provider.

thread of the caller                     thread of the client: one event loop, one HTTP client
complete(prompt)  --- coroutine --->     sdk.Calls: messages -> stream -> text, usage
                  <-- Completion ---
"""

from __future__ import annotations

import threading

from graphbus_core.errors import ModelError
from graphbus_core.isolation import attempt
from graphbus_core.llm.client import Completion, Price, Progress, Prompt
from graphbus_core.llm.failures import dropped, explain, without
from graphbus_core.llm.loop import LoopThread
from graphbus_core.llm.providers import Provider
from graphbus_core.llm.sdk import Asked, Calls, Said, cost_of, told_by
from graphbus_core.model.spending import Usage


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
