"""Costs of models: prices, the tokens of one call, and the sum over a session."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

_LEAST_USD, _CENTS_FROM_USD = 0.0001, 0.1


class Price(NamedTuple):
    """Dollars for a million tokens, at the highest rate that may apply (writing to the provider's cache included)."""

    input_usd: float
    output_usd: float

    def of(self, usage: Usage) -> float:
        """Return the price of a call in dollars."""
        return (usage.input_tokens * self.input_usd + usage.output_tokens * self.output_usd) / 1e6


def format_usd(usd: float | None) -> str:
    """Return an amount as text: `$0`, `$0.0042`, `$0.31`, `$1,234.50`; `< $0.0001` for a smaller amount, `unknown` for None."""
    if usd is None:
        return "unknown"
    if not usd:
        return "$0"
    if abs(usd) < _LEAST_USD:
        return f"< ${_LEAST_USD:.4f}"
    return f"${usd:,.2f}" if usd >= _CENTS_FROM_USD else f"${usd:.4f}"


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one call, as the provider counts them.

    Attributes:
        input_tokens: All input, cached or not.
        cache_read_tokens: Those of the input that were read from the provider's cache.
        cache_write_tokens: Those of the input that were written to the provider's cache.
        output_tokens: The answer, reasoning included.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Spend(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cost of a session or a part of it.

    Attributes:
        calls: Questions to agents that were answered, by rules or by a model.
        requests: Answered requests to models; a malformed answer that is sent back makes another one.
        cached: Those of the requests that were answered from the cache of GraphBus or a record.
        usage: The tokens of the requests that were not cached.
        cost_usd: Dollars, without requests whose price is not known.
        unpriced: Requests whose price is not known.
        unusable: Answers of models that could not be used.
    """

    calls: int = 0
    requests: int = 0
    cached: int = 0
    usage: Usage = Usage()
    cost_usd: float = 0.0
    unpriced: int = 0
    unusable: int = 0
