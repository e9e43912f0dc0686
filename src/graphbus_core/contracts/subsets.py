"""Whether one end of an edge may refuse what the other sends: the relation of `schema.compatibility`, asked for a proof."""

from __future__ import annotations

from typing import NamedTuple

from graphbus_core.schema.compatibility import fit_of
from graphbus_core.schema.types import Type


class Refusal(NamedTuple):
    """Why a value may be refused; not certain when that rests on a type that nobody knows."""

    reason: str
    is_certain: bool = True


def refusal(takes: Type, sent: Type) -> Refusal | None:
    """Give a reason why `takes` refuses some value of `sent`, a certain one if there is any; None when it refuses none."""
    fit = fit_of(takes, sent)
    return None if fit.verdict == "fits" else Refusal(fit.reason, is_certain=not fit.lacks_type)
