"""A model that is a function: what it answers is decided in this process, without a network. For tests and for embedding."""

from __future__ import annotations

from collections.abc import Callable

from graphbus_core.llm.client import Completion, Price, Progress, Prompt
from graphbus_core.model.spending import Usage

_BYTES_PER_TOKEN = 4


class ScriptedClient:
    """Answers with what `speak` gives: the text, or a whole `Completion`; what it raises is raised."""

    def __init__(
        self, speak: Callable[[Prompt], str | Completion], model: str = "scripted:test", price: Price | None = None
    ) -> None:
        self._speak = speak
        self.model = model
        self.price = price or Price(0.0, 0.0)

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Give the scripted answer, with tokens counted by its length."""
        said = self._speak(prompt)
        if isinstance(said, Completion):
            return said
        if progress:
            progress(len(said))
        asked = [prompt.shared, prompt.own, prompt.task, *(turn.text for turn in prompt.turns)]
        usage = Usage(input_tokens=sum(map(_tokens, asked)), output_tokens=_tokens(said))
        cost = (usage.input_tokens * self.price.input_usd + usage.output_tokens * self.price.output_usd) / 1e6
        return Completion(text=said, model=self.model, usage=usage, cost_usd=cost)

    def close(self) -> None:
        """There is nothing to give back."""


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)
