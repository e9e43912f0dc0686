"""`LLMClient`: the one seam between GraphBus and whatever answers a prompt. Text in, text out, and what it cost.

Nothing of a provider's library shows here. A client may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, Protocol

import msgspec

from graphbus_core.errors import ModelError
from graphbus_core.model.spending import Price, Usage

StopReason = Literal["end", "length", "refusal"]
Progress = Callable[[int], object]
"""Told how many characters of an answer have come so far."""


class Turn(NamedTuple):
    """What was said after the task: the model's own answer, and what we replied to it."""

    role: Literal["assistant", "user"]
    text: str


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the order in which providers cache it.

    Attributes:
        shared: Equal for all agents, roles and rounds of a session: protocol, answer formats, the map of the project. No name
            of the agent that is asked, no id, no time. Goes out as the system prompt; cached up to its end.
        own: Equal for all tasks of one agent while its code is what it is: its source, its neighbours' contracts. Cached up to
            its end.
        task: What is asked now.
        turns: What followed, when a malformed answer was sent back.
    """

    shared: str
    own: str = ""
    task: str = ""
    turns: tuple[Turn, ...] = ()


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    Attributes:
        model: `"provider:name"` of who gave it.
        cost_usd: None when the price is not known.
        is_cached: It came from our own cache or from a record: nothing was spent now.
    """

    text: str
    model: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    stop: StopReason = "end"
    is_cached: bool = False


class Bound(NamedTuple):
    """What a question to an agent can need at most: requests, repairs of malformed answers included, and their tokens."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class LLMClient(Protocol):
    """Answers prompts with one model."""

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        ...

    @property
    def price(self) -> Price | None:
        """What a call costs at most; None when it is not known. A local model and a program cost nothing: `Price(0, 0)`."""
        ...

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Give the answer to a prompt.

        Raises:
            ModelError: There is none; `is_transient`, `is_final` and `may_be_billed` say of what kind the failure is.
        """
        ...

    def close(self) -> None:
        """Give back connections; no call may follow."""
        ...


class ClientWrapper:
    """Base of a client that stands before another one: it has its model and price, and closing it closes the other."""

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    @property
    def model(self) -> str:
        """`"provider:name"`."""
        return self._inner.model

    @property
    def price(self) -> Price | None:
        """What a call costs at most; None when it is not known."""
        return self._inner.price

    def close(self) -> None:
        """Close the client behind this one."""
        self._inner.close()


class UnaskableClient:
    """A model of which only the name and the price are known; `code` is the refusal of any question to it."""

    code: ClassVar[str]

    def __init__(self, model: str, price: Price | None = None) -> None:
        self.model = model
        self.price = price

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Refuse.

        Raises:
            ModelError: `code`, always.
        """
        raise ModelError(self.code, is_final=True, model=self.model)

    def close(self) -> None:
        """There is nothing to give back."""


class Clients(NamedTuple):
    """Who answers in which role; the three may be one."""

    proposer: LLMClient
    evaluator: LLMClient
    arbiter: LLMClient

    @property
    def models(self) -> dict[str, str]:
        """Role -> `"provider:name"`."""
        return {"proposer": self.proposer.model, "evaluator": self.evaluator.model, "arbiter": self.arbiter.model}


# --- how many tokens a call has used -----------------------------------------------------------


BYTES_PER_TOKEN = 4
MOST_TOKENS = 10**12
"""More than any call can have; a larger count is no number to reckon with."""


class Counted(NamedTuple):
    """What a server has counted; input holds what was read from its cache or written to it."""

    given: int
    read: int
    written: int
    output: int


def usage_of(counted: Counted, prompt: Prompt, answer: str) -> Usage:
    """Give the usage of a call. Where nothing was counted it is estimated by length: nothing that is used is free of tokens."""
    given = _possible(counted.given) or estimated(
        prompt.shared, prompt.own, prompt.task, *(one.text for one in prompt.turns)
    )
    read = min(_possible(counted.read), given)
    return Usage(
        input_tokens=given,
        cache_read_tokens=read,
        cache_write_tokens=min(_possible(counted.written), given - read),
        output_tokens=_possible(counted.output) or estimated(answer),
    )


def estimated(*texts: str) -> int:
    """Give about how many tokens texts have."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // BYTES_PER_TOKEN)


def _possible(count: int) -> int:
    return max(0, min(count, MOST_TOKENS))


# --- a model that is a function ----------------------------------------------------------------


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
