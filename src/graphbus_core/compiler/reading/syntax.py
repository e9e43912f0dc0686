"""Python text as a syntax tree, from any thread: one at a time, and without the warnings of the compiler.

Python 3.11 counts the depth of all trees under construction together, so that two threads that parse at once can end in a
SystemError (cpython issue 106905); and what `warnings` leaves out is a setting of the whole process.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

if sys.version_info >= (3, 12):
    from ast import TypeAlias
else:

    class TypeAlias(ast.stmt):
        """`type Orders = list[Order]`, which is a syntax error for Python 3.11: no tree of it has one."""

        name: ast.Name
        type_params: list[ast.AST]
        value: ast.expr


_one_at_a_time = RLock()
_NEWER = (
    (12, re.compile(r"^\s*type\s+\w+\s*[\[=]"), "`type` statements"),
    (12, re.compile(r"^\s*(?:class|(?:async\s+)?def)\s+\w+\s*\["), "type parameters"),
    (12, re.compile(r"f-string:"), "its own quotes and backslashes inside the braces of an f-string"),
    (13, re.compile(r"^\s*(?:class|type|(?:async\s+)?def)\s+\w+\s*\[[^]]*="), "defaults of type parameters"),
)
"""What a line or a message looks like when this Python is too old for it: the minor version that can read it, and its name."""
_HALF_PAIR = re.compile(rb"\\(?:u|U0000)[dD][89a-fA-F]")
T = TypeVar("T", bound=ast.AST)


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


def reason_of(error: SyntaxError | ValueError, minor: int = sys.version_info.minor) -> str:
    """Say what is wrong, and when it is right for a newer Python 3 than this one, for which."""
    message, line = getattr(error, "msg", str(error)), getattr(error, "text", None) or ""
    newer = [
        f"{message}; {what} need Python 3.{since}, and this is 3.{minor}"
        for since, pattern, what in _NEWER
        if since > minor and (pattern.search(line) or pattern.match(message))
    ]
    return newer[-1] if newer else message


def parse_expression(text: str) -> ast.expr:
    """Give the tree of an expression; raises what `ast.parse` raises."""
    with alone():
        tree = ast.parse(text, mode="eval")
    return with_whole_characters(tree).body if may_have_half_characters(text.encode()) else tree.body


def type_parameters(node: ast.AST) -> frozenset[str]:
    """Name what `class Box[T]`, `def take[T]` and `type Many[T]` bind for themselves; Python 3.11 knows none."""
    given = getattr(node, "type_params", None)
    return frozenset(parameter.name for parameter in given) if given else frozenset()


def may_have_half_characters(data: bytes) -> bool:
    """True for source text with an escape for half a surrogate pair, which is no character in UTF-8."""
    return _HALF_PAIR.search(data) is not None


def with_whole_characters(tree: T) -> T:
    """The same tree; what is read out of its texts can be written down: half a surrogate pair becomes U+FFFD."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tree
