"""`LLMClient`: the only interface between GraphBus and a model. It takes a prompt, and returns a text and its cost.

This module uses no library of a provider. A client may be called from several threads at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.errors import ModelError
from graphbus_core.model.spending import Price, Usage

StopReason = Literal["end", "length", "refusal"]
Progress = Callable[[int], object]
"""Called with the number of characters of the answer received so far."""
_BYTES_PER_TOKEN = 4


class FollowUp(NamedTuple):
    """A message after the task: an answer of the model, or the reply of GraphBus to it."""

    role: Literal["assistant", "user"]
    text: str


class ModelPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request. Its parts have an order in which providers can cache them: those that change least come first.

    Attributes:
        shared: The system prompt: rules, answer format, contracts of all agents. It is equal for all agents, roles and rounds of
            a session, so it has no agent name, no id and no time.
        own: The source of one agent and its neighbours' contracts. It is equal for all tasks of the agent while those are.
        task: The question.
        turns: Further messages, after a malformed answer was sent back.
        schema: The JSON schema that the server shall force on the answer; None: the answer is text.
    """

    shared: str
    own: str = ""
    task: str = ""
    turns: tuple[FollowUp, ...] = ()
    schema: dict[str, Any] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, in the order in which they are sent."""
        return (self.shared, self.own, self.task, *(turn.text for turn in self.turns))


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a model.

    Attributes:
        model: `"provider:name"` of the model that answered.
        usage: Its tokens.
        cost_usd: Its cost in dollars; None if the price is not known.
        stop: Why it ended: at its `end`, cut off at the `length` limit, or the model refused.
        is_cached: It is from the cache of GraphBus or from a record, so it cost nothing now.
    """

    text: str
    model: str
    usage: Usage = Usage()
    cost_usd: float | None = None
    stop: StopReason = "end"
    is_cached: bool = False


class WorstCase(NamedTuple):
    """The most that a question to an agent can need: requests, including those after malformed answers, and all their tokens."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class LLMClient(ABC):
    """Answers prompts with one model. To write another client, derive from it, set both attributes and define `complete`.

    Attributes:
        model: `"provider:name"`.
        price: The highest price of a call; None if it is not known. A local model and a program cost nothing: `Price(0, 0)`.
    """

    model: str
    price: Price | None

    @property
    def takes_schema(self) -> bool:
        """True if a prompt may have a schema. It turns False for good when the server refuses one."""
        return False

    @abstractmethod
    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer to a prompt.

        Args:
            prompt: The request.
            max_output_tokens: The largest number of tokens of the answer.
            progress: Called with the number of characters received so far, if the client can tell.

        Raises:
            ModelError: There is no answer. Its flags `is_transient`, `is_final` and `may_be_billed` describe the failure.
        """

    def reject(self, prompt: ModelPrompt, max_output_tokens: int) -> None:  # noqa: B027 - most clients keep no answers
        """Forget the answer to a request, because it could not be used: the same request is asked anew the next time."""

    def generate(self, prompt: str, *, max_output_tokens: int = 8192) -> str:
        """Send a single prompt, and return the text of the answer. Source: seed 002, 4.2.

        Raises:
            ModelError: As `complete`.
        """
        return self.complete(ModelPrompt(shared="", task=prompt), max_output_tokens).text

    def close(self) -> None:  # noqa: B027 - most clients hold nothing
        """Release connections. The client must not be called afterwards."""


class ClientWrapper(LLMClient):
    """Base of a client that wraps another one. It has the model and price of the inner client, and closes it."""

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner
        self.model, self.price = inner.model, inner.price

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    @property
    def takes_schema(self) -> bool:
        """True if the inner client takes a schema."""
        return self._inner.takes_schema

    def close(self) -> None:
        """Close the inner client."""
        self._inner.close()


class RecordedClient(LLMClient):
    """A model of which only name and price are known, for a replay or a plan. It cannot answer."""

    def __init__(self, model: str, price: Price | None = None) -> None:
        self.model = model
        self.price = price

    @property
    def takes_schema(self) -> bool:
        """True: the recorded answers show whether the model was given one."""
        return True

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Raise an error, because there is no model that could answer.

        Raises:
            ModelError: GBE459 for a prompt with a schema, so that the answer to the same question as text is looked up; else
                GBE471.
        """
        if prompt.schema is not None:
            raise ModelError("GBE459", provider="the record", model=self.model, reason="there is no such answer")
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
        self,
        speak: Callable[[ModelPrompt], str | Completion],
        model: str = "scripted:test",
        price: Price | None = None,
        *,
        takes_schema: bool = False,
    ) -> None:
        self._speak = speak
        self._takes_schema = takes_schema
        self.model = model
        self.price = price or Price(0.0, 0.0)

    @property
    def takes_schema(self) -> bool:
        """What was given."""
        return self._takes_schema

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the scripted answer; for a plain text, the tokens are estimated by length."""
        answer = self._speak(prompt)
        if isinstance(answer, Completion):
            return answer
        if progress:
            progress(len(answer))
        usage = Usage(input_tokens=estimate_tokens(*prompt.texts), output_tokens=estimate_tokens(answer))
        return Completion(
            text=answer, model=self.model, usage=usage, cost_usd=self.price.of(usage) if self.price else None
        )


def estimate_tokens(*texts: str) -> int:
    """Return the estimated number of tokens of texts, at four bytes a token."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // _BYTES_PER_TOKEN)
