"""How many tokens a call has used: what the server has counted, and an estimate of what it leaves out."""

from __future__ import annotations

from typing import NamedTuple

from graphbus_core.llm.client import Prompt
from graphbus_core.model.spending import Usage

BYTES_PER_TOKEN = 4
MOST_TOKENS = 10**12
"""More than any call can have; a larger count is no number to reckon with."""


class Told(NamedTuple):
    """What a server says it has counted; input holds what was read from its cache or written to it."""

    given: int
    read: int
    written: int
    output: int


def usage_of(told: Told, prompt: Prompt, answer: str) -> Usage:
    """Give the usage of a call. Where nothing was counted it is estimated by length: nothing that is used is free of tokens."""
    given = _possible(told.given) or estimated(
        prompt.shared, prompt.own, prompt.task, *(one.text for one in prompt.turns)
    )
    read = min(_possible(told.read), given)
    return Usage(
        input_tokens=given,
        cache_read_tokens=read,
        cache_write_tokens=min(_possible(told.written), given - read),
        output_tokens=_possible(told.output) or estimated(answer),
    )


def estimated(*texts: str) -> int:
    """Give about how many tokens texts have."""
    return -(-sum(len(text.encode(errors="replace")) for text in texts) // BYTES_PER_TOKEN)


def _possible(count: int) -> int:
    return max(0, min(count, MOST_TOKENS))
