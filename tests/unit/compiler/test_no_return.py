"""A path that ends in a call: does the method give None there, or does the call never come back?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reading import HEAD, read_files

KIT = """
from typing import NoReturn
import typing as t
def stop() -> NoReturn: ...
def halt() -> "t.Never": ...
def refuse(): raise ValueError
def note(x): print(x)
def work(x):
    if x: return 1
    raise ValueError
"""
HERE = """
import kit, lib, logging, os, sys
from kit import halt, note, refuse, stop, work
from lib import give_up, abort
logger = logging.getLogger()
"""


def _ends_with_none(root: Path, body: str, head: str = "        if x: return {'a': 1}\n") -> bool:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    rest = "    def fails(self) -> NoReturn: self.x()\n    def works(self): pass\n"
    text = f"{HEAD}{HERE}class A(GraphBusNode):\n    def f(self, x, given):\n{head}{lines}{rest}"
    agent = read_files(root, {"a.py": text, "kit.py": KIT}).agent("A")
    assert agent is not None
    spec = agent.method("f")
    assert spec is not None
    return "null" in [item.type.kind for item in spec.returned]


@pytest.mark.parametrize(
    "body",
    [
        "stop()",
        "halt()",
        "refuse()",
        "kit.stop()",
        "kit.refuse()",
        "give_up()",
        "lib.give_up()",
        "abort(404)",
        "self.fails()",
        "await give_up()",
        "given()",
        "self.unknown()",
        "sys.exit(1)",
        "os.execv('x', [])",
        "def stop_here() -> NoReturn: ...\nstop_here()",
        "def stop_here(): raise ValueError\nstop_here()",
        "from lib import later\nlater()",
        "if given: give_up()\nelse: raise ValueError",
        "try: raise ValueError\nexcept ValueError: give_up()",
        "with given: give_up()",
        "match given:\n    case _: give_up()",
    ],
)
def test_a_call_that_may_never_return_is_no_none(tmp_path: Path, body: str) -> None:
    assert not _ends_with_none(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "self.publish('/T', {})",
        "self.log('x')",
        "self.works()",
        "print(x)",
        "note(x)",
        "work(x)",
        "kit.note(x)",
        "logger.info('x')",
        "self.items.append(x)",
        "given.write(x)",
        "give_up()\nprint(x)",
        "if given: give_up()\nself.log('x')",
        "y = give_up()",
    ],
)
def test_a_call_that_returns_is_followed_by_none(tmp_path: Path, body: str) -> None:
    assert _ends_with_none(tmp_path, body)


@pytest.mark.parametrize(
    ("body", "is_none"), [("give_up()", True), ("abort()", False), ("stop()", False), ("die()", False)]
)
def test_of_a_method_that_returns_nothing_anywhere_only_what_is_known_counts(
    tmp_path: Path, body: str, is_none: bool
) -> None:
    assert _ends_with_none(tmp_path, body, head="") == is_none
