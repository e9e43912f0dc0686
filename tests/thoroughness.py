"""How much the tests try: a quick selection that every run takes, or everything, with `pytest --thorough`.

Both selections are the same in every run. `tests/conftest.py` sets `is_thorough` before it loads any test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Sample = TypeVar("Sample")
is_thorough = False


def some(samples: Sequence[Sample], every: int) -> list[Sample]:
    """Give each `every`th sample; all of them in a thorough run."""
    return list(samples if is_thorough else samples[::every])


def examples(count: int) -> settings:
    """Let hypothesis try this many examples, ten times as many in a thorough run."""
    return settings(max_examples=count * 10 if is_thorough else count)
