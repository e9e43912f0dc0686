"""What code says while it is tried reaches the person, and neither a model nor anything that is kept: codes and places do."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest

from graphbus_core.editing import gate as gates
from graphbus_core.editing.rungs.trial_environment import (
    ProjectFiles,
    RungVerdict,
    TreeState,
    error_name,
    shorten_output,
)
from graphbus_core.model.config import GateConfig
from tests.unit.editing.shop_project import ORDERS, Shop

pytestmark = pytest.mark.slow

CANARY = "CANARY_4711"
PATH = "agents/orders.py"
READ = "SECRET = open('config/prod.yaml').read().strip()"
NEW_TESTS = """
import pytest
from agents import orders

@pytest.mark.parametrize("word", orders.words())
def test_word(word):
    orders.use(word)

def test_total():
    assert orders.Orders.__doc__ == "Takes orders."
"""
BASE = f"""
{ORDERS}

def words():
    import pathlib
    {READ}
    pathlib.Path(f"tests/test_{{SECRET}}.py").write_text("def test_it(): pass")
    return [SECRET, "plain"]

def use(word):
    pass
"""
CHECK = (sys.executable, "-c", "import agents.orders; agents.orders.words()")

G5 = {
    "the text of an error": "raise ValueError(SECRET)",
    "the name of an error": "raise type(SECRET, (Exception,), {})('x')",
    "an error without a text": "class Odd(Exception):\n    def __str__(self): raise TypeError(SECRET)\nraise Odd",
    "the file of a frame": "exec(compile('raise ValueError(1)', SECRET, 'exec'))",
    "a path that leads to a file": "exec(compile('raise ValueError(1)', f'agents/../{SECRET}/../agents/orders.py', 'exec'))",
    "an end with words": "import os, sys; sys.stderr.write(SECRET); sys.stderr.flush(); os._exit(3)",
    "the name of an agent": "globals()[SECRET] = type(SECRET, (GraphBusNode,), {'__module__': __name__})",
    "the place of an agent": "globals()['Orders'].__name__ = SECRET",
}
G6 = {
    "the text of an error in a test": "def use(word): raise ValueError(SECRET)",
    "the name of an error in a test": "def use(word): raise type(SECRET, (Exception,), {})",
    "the parameter of a test that is gone": "def words(): return ['other']",
    "an error while collecting": "def words(): raise ValueError(SECRET)",
    "the end of the process": "import os\ndef use(word): os.write(2, SECRET.encode()); os._exit(1)",
    "the documentation": "Orders.__doc__ = SECRET",
}
G7 = {
    "a line of a check": "def words(): print(SECRET); raise SystemExit(1)",
    "the place of a finding": "def words(): print(f'{SECRET}.py:1: {SECRET}'); raise SystemExit(1)",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    more = {PATH: BASE, "config/prod.yaml": CANARY, "tests/test_new.py": NEW_TESTS}
    return Shop(tmp_path_factory.mktemp("shop"), more=more, gate=GateConfig(checks=(CHECK,)))


def leaks(verdict: RungVerdict) -> str:
    """What everybody learns of a verdict, and what the person does."""
    assert verdict is not None
    assert verdict.output, verdict
    return msgspec.json.encode(gates._make_rung_result("G", verdict)).decode()


def head(shop: Shop, code: str, **found: str) -> TreeState:
    text = (shop.root / PATH).read_text()
    for old, new in found.items():
        text = text.replace(old, new)
    return TreeState(f"{hash((code, *found.items()))}", {PATH: f"{text}\n{READ}\n{dedent(code)}\n".encode()})


START = TreeState("start", {})


@pytest.mark.parametrize("name", G5)
def test_an_import_says_nothing(shop: Shop, name: str) -> None:
    state = head(shop, G5[name])

    verdict = shop.gate.trials.check_import(START, state, shop.project.with_files(state.files))

    assert CANARY not in leaks(verdict)


@pytest.mark.parametrize("name", G6)
def test_a_test_says_nothing(shop: Shop, name: str) -> None:
    verdict = shop.gate.trials.check_tests(START, head(shop, G6[name]), shop.project)

    said = leaks(verdict)
    assert CANARY not in said, verdict
    assert '"code":"G6.' in said


@pytest.mark.parametrize("name", G7)
def test_a_check_says_nothing(shop: Shop, name: str) -> None:
    assert CANARY not in leaks(shop.gate.trials.check_commands(START, head(shop, G7[name])))


def test_a_call_says_nothing(shop: Shop) -> None:
    ways = (
        "[].none(SECRET)",
        "(SECRET)()",
        "getattr(self, SECRET)",
        "{SECRET: SECRET}",
        "{'status': SECRET, 'total': SECRET}",
    )
    for way in ways:
        state = head(shop, "", **{'{"status": "confirmed", "total": total}': way})
        after = shop.project.with_files(state.files)
        verdict = shop.gate.trials.check_calls(START, state, shop.project, after)
        assert CANARY not in leaks(verdict), way


@pytest.mark.parametrize(
    "text",
    [
        f"{READ}\ndef test_it():\n    from agents.orders import use\n    assert use(1) is None, SECRET",
        f"{READ}\ndef test_it():\n    from agents.orders import use\n    if use(1): raise type(SECRET, (Exception,), {{}})",
    ],
)
def test_an_objection_says_nothing(shop: Shop, text: str) -> None:
    state = head(shop, "def use(word): return 1")

    objection = shop.gate.trials.objections.try_out(START, state, shop.project, text)

    assert CANARY not in str(objection)


def test_a_place_is_one_that_the_project_has(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def test_a():\n    pass\n")
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    files = ProjectFiles(tmp_path, {"new.py": b"x\n", "gone.py": None})

    assert files.known_line("a.py", 2) == ("a.py", 2)
    assert files.known_line("a.py", 2000) == ("a.py", 0)
    for path in ("/a.py", "../a.py", "./a.py", "x/../a.py", "link.py", "gone.py", "none.py", "", ".", "a.py\0"):
        assert files.known_line(path, 1) == ("", 0), path
    assert files.last_known_line([("a.py", 1), ("new.py", 1), ("/etc/passwd", 1)]) == ("new.py", 1)
    assert files.test_name("a.py::test_a[b::c]") == "a.py::test_a"
    assert files.test_name("a.py::test_b") == "a.py"
    assert files.test_name("none.py::test_b") == "a test"
    assert [str(spot) for spot in files.known_lines_in("a.py:1:2: x\n  ./a.py:2: y\nb.py:1: z")] == ["a.py:1", "a.py:2"]


def test_an_exception_has_the_name_that_python_gives_it() -> None:
    names = ("ValueError", "print", "Canary", "__name__", "")

    assert [error_name(name) for name in names] == ["ValueError", *["an error"] * 4]


def test_what_the_person_hears_is_short() -> None:
    assert shorten_output(" a\n b ") == "a\n b"
    assert len(shorten_output("x\n" * 100_000 + "y" * 100_000)) < 3000
