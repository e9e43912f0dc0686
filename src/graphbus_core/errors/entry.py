"""One entry of the register of errors."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """What the register knows of one code: its sentence and its hint, both templates over the data of the failure."""

    sentence: str
    hint: str
