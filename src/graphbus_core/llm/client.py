"""`LLMClient`: the one interface between GraphBus and a model. It takes a prompt and returns text and cost.

No type of a provider's library appears here. A client may be called from several threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.errors import ModelError
from graphbus_core.model.spending import Price, Usage

StopReason = Literal["end", "length", "refusal"]
Progress = Callable[[int], object]
"""Called with the number of characters of the answer received so far."""
_BYTES_PER_TOKEN = 4


class FollowUp(NamedTuple):
    """A message after the task: the model's answer, or our reply to it."""

    role: Literal["assistant", "user"]
    text: str


class ModelPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the order in which providers cache it.

    Attributes:
        shared: Equal for all agents, roles and rounds of a session: protocol, answer formats, the map of the project. It has no
            name of the agent, no id and no time. It is sent as the system prompt, and providers cache it.
        own: Equal for all tasks of one agent while its code is unchanged: its source, its neighbours' contracts. Cached, too.
        task: The present question.
        turns: The messages that follow if a malformed answer was sent back.
    """

    shared: str
    own: str = ""
    task: str = ""
    turns: tuple[FollowUp, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, in the order in which they are sent."""
        return (self.shared, self.own, self.task, *(turn.text for turn in self.turns))


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    Attributes:
        model: `"provider:name"` of the model that answered.
        cost_usd: None if the price is not known.
        is_cached: It came from our own cache or from a record, so that nothing was spent now.
    """

    text: str
    model: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    stop: StopReason = "end"
    is_cached: bool = False


class WorstCase(NamedTuple):
    """The most that a question to an agent can need: requests, those after malformed answers included, and their tokens."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class LLMClient(ABC):
    """Answers prompts with one model. A client of your own derives from it, sets both attributes and has `complete`.

    Attributes:
        model: `"provider:name"`.
        price: What a call costs at most; None when it is not known. A local model and a program cost nothing: `Price(0, 0)`.
    """

    model: str
    price: Price | None

    @abstractmethod
    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer to a prompt.

        Raises:
            ModelError: There is none; `is_transient`, `is_final` and `may_be_billed` say of what kind the failure is.
        """

    def generate(self, prompt: str, *, max_output_tokens: int = 8192) -> str:
        """Return the text of the answer to one text. Source: seed 002, 4.2.

        Raises:
            ModelError: As `complete`.
        """
        return self.complete(ModelPrompt(shared="", task=prompt), max_output_tokens).text

    def close(self) -> None:  # noqa: B027 - most clients hold nothing
        """Give back connections; no call may follow."""


class ClientWrapper(LLMClient):
    """Base of a client that stands before another one: it has its model and price, and closing it closes the other."""

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner
        self.model, self.price = inner.model, inner.price

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    def close(self) -> None:
        """Close the client behind this one."""
        self._inner.close()


class RecordedClient(LLMClient):
    """A model of which only name and price are known, behind a record or a plan. It cannot answer."""

    def __init__(self, model: str, price: Price | None = None) -> None:
        self.model = model
        self.price = price

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Raise an error: only recorded answers exist.

        Raises:
            ModelError: GBE471, always.
        """
        raise ModelError("GBE471", is_final=True, model=self.model)


class Clients(NamedTuple):
    """The client of each role; two or all three may be the same."""

    proposer: LLMClient
    evaluator: LLMClient
    arbiter: LLMClient

    @property
    def models(self) -> dict[str, str]:
        """Role -> `"provider:name"`."""
        return {"proposer": self.proposer.model, "evaluator": self.evaluator.model, "arbiter": self.arbiter.model}


class ScriptedClient(LLMClient):
    """A client for tests: answers with the text or `Completion` that `speak` returns for the prompt."""

    def __init__(
        self, speak: Callable[[ModelPrompt], str | Completion], model: str = "scripted:test", price: Price | None = None
    ) -> None:
        self._speak = speak
        self.model = model
        self.price = price or Price(0.0, 0.0)

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the scripted answer, with tokens estimated by its length."""
        said = self._speak(prompt)
        if isinstance(said, Completion):
            return said
        if progress:
            progress(len(said))
        usage = Usage(input_tokens=estimate_tokens(*prompt.texts), output_tokens=estimate_tokens(said))
        return Completion(
            text=said, model=self.model, usage=usage, cost_usd=self.price.of(usage) if self.price else None
        )


def estimate_tokens(*texts: str) -> int:
    """Return the estimated number of tokens of texts, at four bytes a token."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // _BYTES_PER_TOKEN)
