"""Python text as a syntax tree, from any thread: one at a time, and without the warnings of the compiler.

Python 3.11 counts the depth of all trees under construction together, so that two threads that parse at once can end in a
SystemError (cpython issue 106905); and what `warnings` leaves out is a setting of the whole process.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_one_at_a_time = RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Keep other threads from parsing, and the compiler from warning, in a `with` block."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(text: str | bytes, path: str = "<unknown>", minor: int | None = None) -> ast.Module:
    """Give the tree of a module; raises what `ast.parse` raises.

    Args:
        minor: The oldest Python 3 that must understand it; None: this one.
    """
    version = None if minor is None else (3, minor)
    with alone():
        return ast.parse(text, path, feature_version=version)


def parse_expression(text: str) -> ast.expr:
    """Give the tree of an expression; raises what `ast.parse` raises."""
    with alone():
        return ast.parse(text, mode="eval").body
