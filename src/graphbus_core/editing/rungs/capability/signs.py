"""What is written down of a file: signs of what is not known to be harmless, and references to what the project defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Literal, NamedTuple

from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import NameScope
from graphbus_core.editing.rungs.capability.sources import AnalyzedFile

Use = Literal["value", "call", "base", "type"]
"""What is made of an expression: it is passed on, called, asked for an attribute, or stands where a type is expected."""

GLOBAL = "another value from inside a function for "
UNKNOWN_ATTRIBUTE = "of something unknown"
_MANNERS = frozenset(
    {"r", "rb", "rt", "utf-8", "utf8", "utf-8-sig", "ascii", "latin-1", "strict", "replace", "ignore", ".tmp"}
)
"""Texts that say how a file is read, or that it is a passing one, and not which one."""


class Sign(NamedTuple):
    """One use of something that is not known to be harmless.

    Attributes:
        way: How it is used, with the names of local data left out. The same sign in another way is another one.
        is_counted: Twice is more than once; else what was used before may be used again.
        runs_at_import: It stands outside of functions.
        texts: The constants of the use.
    """

    code: str
    what: str
    line: int
    way: str = ""
    is_counted: bool = True
    runs_at_import: bool = False
    texts: frozenset[str] = frozenset()


class Reference(NamedTuple):
    """One use of something that the project defines.

    Attributes:
        home: Its file; None when only the name of an attribute is known.
        node: The function or class; None: the module itself, as it is imported.
        name: How the code calls it.
    """

    home: AnalyzedFile | None
    node: ast.AST | None
    name: str
    line: int
    way: str
    texts: frozenset[str]
    runs_at_import: bool


class ExpressionUse(NamedTuple):
    """An expression, where it stands, and what is made of it.

    Attributes:
        call: The call that it is the function of.
    """

    node: ast.expr
    scope: NameScope
    use: Use = "value"
    call: ast.Call | None = None


class Notes:
    """The signs and references of a file, in the order in which they are found."""

    def __init__(self, file: AnalyzedFile) -> None:
        self.file = file
        self.signs: list[Sign] = []
        self.references: list[Reference] = []

    def sign(
        self,
        code: str,
        what: str,
        node: ast.AST,
        scope: NameScope,
        *,
        way: ast.AST | None = None,
        is_counted: bool = True,
    ) -> None:
        """Write a sign down."""
        text = self._way(way, scope) if way is not None else ""
        texts = self._texts(way, scope) if way is not None else frozenset[str]()
        line = getattr(node, "lineno", 0)
        self.signs.append(Sign(code, what, line, text, is_counted, scope.function is None, texts))

    def refer(self, home: AnalyzedFile | None, node: ast.AST | None, name: str, way: ast.AST, scope: NameScope) -> None:
        """Write a reference down; `way` is the use, or the import."""
        text = "import" if isinstance(way, (ast.Import, ast.ImportFrom)) else self._way(way, scope)
        line = getattr(way, "lineno", 0)
        texts = self._texts(way, scope)
        found = Reference(home, node, name, line, text, texts, scope.function is None)
        self.references.append(found)

    def _texts(self, way: ast.AST, scope: NameScope) -> frozenset[str]:
        """Give every constant of which a use is made, also by way of names."""
        return frozenset(_texts_of(self.file.sources(way, scope, set())))

    def _way(self, node: ast.AST, scope: NameScope) -> str:
        """Show how something is used; names of data are left out, so that they may be renamed."""
        return ast.unparse(_Anonymous(self.file, scope).visit(deepcopy(node)))


class _Anonymous(ast.NodeTransformer):
    """Leaves out the names of data, and what is computed of nothing but data."""

    def __init__(self, file: AnalyzedFile, scope: NameScope) -> None:
        self._file = file
        self._scope = scope

    def visit_Name(self, node: ast.Name) -> ast.AST:
        values = self._file.values_of_name(node.id, self._scope)
        if any(value.kind == "outside" for value in values):
            return node
        bound = self._scope.find(node.id) or ()
        is_changed = len(bound) > 1 and any(isinstance(one.source, ast.arg) for one in bound)
        return ast.Name("_changed", ast.Load()) if is_changed else _blank()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        inner: ast.expr = self.visit(node.value)
        is_plain = node.attr not in table.ACTING and node.attr not in table.FRAMES
        return _blank() if _is_blank(inner) and is_plain else ast.Attribute(inner, node.attr, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        found = ast.Call(self.visit(node.func), [self.visit(argument) for argument in node.args], keywords)
        return _blank() if not keywords and all(map(_is_blank, (found.func, *found.args))) else found

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        inner: ast.expr = self.visit(node.value)
        return inner if _is_blank(inner) else ast.Subscript(inner, self.visit(node.slice), ast.Load())


def _blank() -> ast.Name:
    return ast.Name("_", ast.Load())


def _is_blank(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "_"


def _texts_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Give the constants of a use as text; how a file is opened and read says nothing about which one it is."""
    for step in nodes:
        if (
            isinstance(step, ast.Constant)
            and not isinstance(step.value, (bool, type(None)))
            and step.value not in _MANNERS
        ):
            yield step.value if isinstance(step.value, str) else repr(step.value)
