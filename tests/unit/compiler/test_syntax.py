"""Trees can be built in several threads at once."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from graphbus_core.compiler.reading import syntax

TEXT = Path(contextlib.__file__).read_text(encoding="utf-8")
PACKAGE = Path(syntax.__file__).parents[2]


class Ring:
    """Garbage whose end runs Python code, so that another thread may go on in the middle of a parse."""

    def __init__(self) -> None:
        self.myself = self

    def __del__(self) -> None:
        sum(range(200))


@pytest.fixture
def restless() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


@pytest.mark.slow
@pytest.mark.usefixtures("restless")
def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        for _ in range(80):
            Ring()
            try:
                syntax.parse(TEXT)
            except SystemError as error:
                failed.append(error)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_warnings_of_the_compiler_are_not_for_those_who_read() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert isinstance(syntax.parse('"\\d"').body[0], ast.Expr)
        assert isinstance(syntax.parse_expression("1 + 1"), ast.BinOp)
    assert seen == []


def test_an_older_python_may_be_asked_for() -> None:
    assert syntax.parse("match x:\n    case 1: pass\n", minor=10)
    with pytest.raises(SyntaxError):
        syntax.parse("match x:\n    case 1: pass\n", minor=9)


def test_nobody_else_builds_trees_in_build_mode() -> None:
    allowed = {PACKAGE / path for path in ("compiler/reading/syntax.py", "schema/live.py")}
    places = {path for path in PACKAGE.rglob("*.py") if "ast.parse(" in path.read_text(encoding="utf-8")}
    assert {path for path in places - allowed if "sandbox_programs" not in path.parts} == set()


def test_a_walk_meets_what_the_walk_of_the_standard_library_meets() -> None:
    """In sources of the standard library, which use every kind of node."""
    plain = (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    leaves = (ast.Name, ast.Constant, ast.Pass)
    for path in sorted(Path(ast.__file__).parent.glob("*.py"))[:8]:
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            wanted = [child for child in ast.iter_child_nodes(node) if not isinstance(child, plain)]
            assert sorted(map(id, syntax.children_of(node))) == sorted(map(id, wanted)), ast.dump(node)
        below = {id(node) for node in ast.walk(tree) if not isinstance(node, (*plain, *leaves))}
        assert {id(node) for node in syntax.nodes_below(tree)} == below
