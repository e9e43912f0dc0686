"""Signs (uses of things that are not known to be harmless) and references (uses of code of the project), as recorded by G3."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Literal, NamedTuple

from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import NameScope
from graphbus_core.editing.rungs.capability.sources import AnalyzedFile

Use = Literal["value", "call", "base", "type"]
"""How an expression is used: as a value that is passed on, called, as the base of an attribute, or as a type."""

GLOBAL = "another value from inside a function for "
UNKNOWN_ATTRIBUTE = "of something unknown"
_MANNERS = frozenset(
    {"r", "rb", "rt", "utf-8", "utf8", "utf-8-sig", "ascii", "latin-1", "strict", "replace", "ignore", ".tmp"}
)
"""Constants that say how a file is read, not which one; they do not make a use different."""


class Sign(NamedTuple):
    """One use of something that is not known to be harmless.

    Attributes:
        what: What is used, for the message.
        way: The source of the use with the names of local data blanked out. The same thing used in another way is a new sign.
        is_counted: A further use counts as new. Else one use allows any number.
        runs_at_import: It stands outside of functions.
        texts: The constants in the use.
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
        home: The file that defines it; None if only the name of an attribute is known.
        node: The function or class; None for the module itself, which is imported.
        name: The name that the using code has for it.
        way: As for `Sign`; so are `texts` and `runs_at_import`.
    """

    home: AnalyzedFile | None
    node: ast.AST | None
    name: str
    line: int
    way: str
    texts: frozenset[str]
    runs_at_import: bool


class ExpressionUse(NamedTuple):
    """An expression with its scope and its use.

    Attributes:
        call: The call whose function the expression is, if any.
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
        """Record a sign; `way` is the expression that shows the use, if that matters."""
        text = self._way(way, scope) if way is not None else ""
        texts = self._texts(way, scope) if way is not None else frozenset[str]()
        line = getattr(node, "lineno", 0)
        self.signs.append(Sign(code, what, line, text, is_counted, scope.function is None, texts))

    def refer(self, home: AnalyzedFile | None, node: ast.AST | None, name: str, way: ast.AST, scope: NameScope) -> None:
        """Record a reference; `way` is the expression of the use, or the import statement."""
        text = "import" if isinstance(way, (ast.Import, ast.ImportFrom)) else self._way(way, scope)
        line = getattr(way, "lineno", 0)
        texts = self._texts(way, scope)
        found = Reference(home, node, name, line, text, texts, scope.function is None)
        self.references.append(found)

    def _texts(self, way: ast.AST, scope: NameScope) -> frozenset[str]:
        """Return every constant in a use, also those behind its names."""
        return frozenset(_texts_of(self.file.sources(way, scope, set())))

    def _way(self, node: ast.AST, scope: NameScope) -> str:
        """Return the source of a use with the names of data blanked out, so that renaming them makes no difference."""
        return ast.unparse(_Anonymous(self.file, scope).visit(deepcopy(node)))


class _Anonymous(ast.NodeTransformer):
    """Replaces names of data, and expressions that are computed from data alone, by `_`."""

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
    """Yield the constants among nodes as text, except those that only say how a file is opened."""
    for step in nodes:
        if (
            isinstance(step, ast.Constant)
            and not isinstance(step.value, (bool, type(None)))
            and step.value not in _MANNERS
        ):
            yield step.value if isinstance(step.value, str) else repr(step.value)
