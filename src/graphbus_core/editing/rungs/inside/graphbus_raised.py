"""Tells of an exception: its class, its text, and the places of the project that it came through."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

_LONGEST, _MOST_STEPS = 2000, 40


def teller() -> Callable[[BaseException], list[object]]:
    """Give the function that tells of an exception, with paths relative to the folder that is current now."""
    home = os.path.join(os.getcwd(), "")

    def tell(error: BaseException) -> list[object]:
        steps = [(path.removeprefix(home), line) for path, line in _steps(error) if path.startswith(home)]
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - its text is code of the project, too
            text = ""
        return [type(error).__name__, text[:_LONGEST], steps[-_MOST_STEPS:]]

    return tell


def _steps(error: BaseException) -> Iterator[tuple[str, int]]:
    step = error.__traceback__
    while step:
        yield os.path.abspath(step.tb_frame.f_code.co_filename), step.tb_lineno
        step = step.tb_next
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and isinstance(error.lineno, int):
        yield os.path.abspath(error.filename), error.lineno
