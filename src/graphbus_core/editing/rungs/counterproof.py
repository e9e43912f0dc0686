"""Tests that expect something else, to find out whether a run of tests says what happened.

A test and the code that it tests share a process, in which code that is made for it can report what it likes. So before changes
are written, the tests run twice more, each time with what a random half of them expect turned into its opposite: those must fail,
the others must pass. Code that turns red tests green does not know which of them ought to be red now; to find out, it would have
to know the tests, and could as well give what they expect.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.rungs.vetted import Files

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Half(NamedTuple):
    """Test files of which some tests expect the opposite.

    Attributes:
        files: Path -> text.
        turned: Their names, without parameters.
        kept: The names of the tests that could have been turned and were not.
    """

    files: Mapping[str, bytes]
    turned: frozenset[str]
    kept: frozenset[str]

    def liars(self, passed: Collection[str], outcomes: Mapping[str, str]) -> set[str]:
        """Give the tests that passed and do not follow what they expect now: turned ones that pass, kept ones that do not."""
        found = set()
        for name in passed:
            plain = plain_name(name)
            is_green = outcomes.get(name) == "passed"
            if (plain in self.turned and is_green) or (plain in self.kept and not is_green):
                found.add(name)
        return found


def halves(passed: Iterable[str], files: Files, chance: random.Random) -> tuple[Half, ...]:
    """Give two halves: each test that can be turned is turned in one of them; none where there is no such test."""
    found = {
        path: _turnable(files.text(path) or b"", path) for path in sorted({name.partition("::")[0] for name in passed})
    }
    names = sorted(name for turnable in found.values() for name in turnable)
    first = frozenset(name for name in names if chance.random() < 0.5)
    if not names:
        return ()
    return tuple(
        Half(
            {path: _turned(files.text(path) or b"", found[path], chosen, chance) for path in found if found[path]},
            chosen,
            frozenset(names) - chosen,
        )
        for chosen in (first, frozenset(names) - first)
    )


def plain_name(name: str) -> str:
    """Give the name of a test without its parameters."""
    return name.partition("[")[0]


def _turnable(text: bytes, path: str) -> dict[str, list[ast.Assert]]:
    """Give the tests of a file with what they assert in any case: not in a branch, a loop or a block, nor behind a return."""
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, list[ast.Assert]] = {}
    for name, function in _functions(tree.body, path):
        asserts = [step for step in function.body if isinstance(step, ast.Assert)]
        ends = any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in ast.walk(function))
        if name in found or ends or not asserts:
            found[name] = []  # of two tests of one name only the last is there
        else:
            found[name] = asserts
    return {name: asserts for name, asserts in found.items() if asserts}


def _functions(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{above}::{node.name}")
        elif isinstance(node, _Function) and node.name.startswith("test"):
            yield f"{above}::{node.name}", node


def _turned(
    text: bytes, found: Mapping[str, list[ast.Assert]], chosen: Collection[str], chance: random.Random
) -> bytes:
    """Give a text in which one assertion of each chosen test is its opposite."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits = []
    for name in found:
        if name in chosen:
            node = chance.choice(found[name]).test
            constant = _expected(node)
            place = constant or node
            first = starts[place.lineno - 1] + place.col_offset
            last = starts[(place.end_lineno or place.lineno) - 1] + (place.end_col_offset or 0)
            edits.append((first, last, _other(constant, chance) if constant else b"not (" + text[first:last] + b")"))
    for first, last, fresh in sorted(edits, reverse=True):
        text = text[:first] + fresh + text[last:]
    return text


def _expected(node: ast.expr) -> ast.Constant | None:
    """Give the number or the text that something must be equal to, if that is what is asserted."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        value = node.comparators[0]
        if (
            isinstance(value, ast.Constant)
            and type(value.value) in (int, float, str)
            and value.lineno == value.end_lineno
        ):
            return value
    return None


def _other(constant: ast.Constant, chance: random.Random) -> bytes:
    value = constant.value
    if isinstance(value, str):
        return repr(f"{value}{chance.choice('abcdefgh')}").encode()
    assert isinstance(value, int | float)  # noqa: S101 - by _expected
    return f"({value!r} + {chance.randint(1, 9)})".encode()
