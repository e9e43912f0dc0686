"""The options of `graphbus gate`, for the modules that carry it out."""

from __future__ import annotations

from typing import NamedTuple

HOOKED_TOOLS = ("claude-code", "codex", "cursor")
"""The coding agents whose hooks `--hook` answers."""


class GateOptions(NamedTuple):
    """The options of the command line, by their names."""

    path: str = ""
    new: str = ""
    patch: str = ""
    against: str = ""
    staged: bool = False
    allow: tuple[str, ...] = ()
    base_tests: bool = False
    unsafe_verify: bool = False
    hook: str = ""
