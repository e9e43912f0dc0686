"""The garbage collector calls code of others, which lets other threads in: here it does so wherever a test wants."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MOMENTS = range(40)
"""Enough of them to meet every object that a short piece of code makes."""


@contextmanager
def at_collection(moment: int, change: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    """Collect at every second thing that is made.

    At one of the collections, the `moment // 2`-th, do one thing; at each later one, another.
    With an odd moment they come one thing earlier.
    """
    before = gc.get_threshold()
    count = 0

    def on_collection(phase: str, _info: dict[str, int]) -> None:
        nonlocal count
        if phase == "start":
            if count == moment // 2:
                change()
            elif count > moment // 2:
                undo()
            count += 1

    gc.freeze()  # what is there already costs no time
    gc.callbacks.append(on_collection)
    gc.set_threshold(1)
    one_more = [[]] if moment % 2 else None  # the collections come one thing earlier
    try:
        yield
    finally:
        gc.set_threshold(*before)
        del one_more
        gc.callbacks.remove(on_collection)
        gc.unfreeze()
