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
"""How an expression is used: as a value that is stored or passed, called, as `a` in `a.b` (base), or as a type."""

GLOBAL = "a `global` statement for "
"""The beginning of a sign's `what`."""
UNKNOWN_ATTRIBUTE = "of something unknown"
"""The end of a sign's `what`: the type of the object is not known."""
_OPEN_OPTIONS = frozenset(
    {"r", "rb", "rt", "utf-8", "utf8", "utf-8-sig", "ascii", "latin-1", "strict", "replace", "ignore", ".tmp"}
)
"""Constants that say how a file is opened, not which one; uses that differ only in these count as the same."""


class Sign(NamedTuple):
    """One use of something that is not known to be harmless.

    Attributes:
        what: What is used, for the message.
        way: The source of the use with names of the project replaced by `_`. The same thing used in another way is a new sign.
        is_counted: A further use counts as new. Otherwise one use allows any number.
        runs_at_import: The use is outside of functions.
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
        node: The function or class; None for the module itself, if it is imported.
        name: The name that the using code has for it.
        way: As in `Sign`, like `texts` and `runs_at_import`.
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
        """Record a sign at the line of `node`, with the fields that `Sign` describes.

        `way` is the expression of the use, if it distinguishes this sign from others of the same thing.
        """
        text = self._normalize_source(way, scope) if way is not None else ""
        texts = self._find_constants(way, scope) if way is not None else frozenset[str]()
        line = getattr(node, "lineno", 0)
        self.signs.append(Sign(code, what, line, text, is_counted, scope.function is None, texts))

    def refer(self, home: AnalyzedFile | None, node: ast.AST | None, name: str, way: ast.AST, scope: NameScope) -> None:
        """Record a reference, as `Reference` describes it; `way` is the expression of the use, or the import statement."""
        text = "import" if isinstance(way, (ast.Import, ast.ImportFrom)) else self._normalize_source(way, scope)
        line = getattr(way, "lineno", 0)
        texts = self._find_constants(way, scope)
        found = Reference(home, node, name, line, text, texts, scope.function is None)
        self.references.append(found)

    def _find_constants(self, way: ast.AST, scope: NameScope) -> frozenset[str]:
        """Return every constant in a use, and in the expressions to which its names are bound."""
        return frozenset(_filter_constants(self.file.sources(way, scope, set())))

    def _normalize_source(self, node: ast.AST, scope: NameScope) -> str:
        """Return the source of a use with names of the project replaced by `_`, so that renaming them makes no difference."""
        return ast.unparse(_NameRemover(self.file, scope).visit(deepcopy(node)))


class _NameRemover(ast.NodeTransformer):
    """Replaces names in the source of a use, so that renaming what the project defines does not make it another use.

    A name from outside of the project stays. A parameter that is bound again becomes `_changed`; any other name becomes `_`, and
    so does an expression that is computed from such names alone.
    """

    def __init__(self, file: AnalyzedFile, scope: NameScope) -> None:
        self._file = file
        self._scope = scope

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the name itself, `_changed` or `_`, as the class describes."""
        values = self._file.values_of_name(node.id, self._scope)
        if any(value.kind == "outside" for value in values):
            return node
        bound = self._scope.find(node.id) or ()
        # A parameter that is bound again may no longer hold the argument, so its use must differ from one that does.
        is_changed = len(bound) > 1 and any(isinstance(one.source, ast.arg) for one in bound)
        return ast.Name("_changed", ast.Load()) if is_changed else _placeholder()

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Return `_` for an attribute of `_`, unless its name gives access to power or to frames; else the attribute."""
        inner: ast.expr = self.visit(node.value)
        is_plain = node.attr not in table.ACTING and node.attr not in table.FRAMES
        return _placeholder() if _is_placeholder(inner) and is_plain else ast.Attribute(inner, node.attr, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return `_` for a call of `_` that only passes `_`; else the call."""
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        found = ast.Call(self.visit(node.func), [self.visit(argument) for argument in node.args], keywords)
        return _placeholder() if not keywords and all(map(_is_placeholder, (found.func, *found.args))) else found

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return `_` for an item of `_`, whatever its key; else the item."""
        inner: ast.expr = self.visit(node.value)
        return inner if _is_placeholder(inner) else ast.Subscript(inner, self.visit(node.slice), ast.Load())


def _placeholder() -> ast.Name:
    """Return a new node for the name `_`."""
    return ast.Name("_", ast.Load())


def _is_placeholder(node: ast.AST) -> bool:
    """True for the name `_`."""
    return isinstance(node, ast.Name) and node.id == "_"


def _filter_constants(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the constants among nodes as text, without True, False, None and those in `_OPEN_OPTIONS`."""
    for step in nodes:
        if (
            isinstance(step, ast.Constant)
            and not isinstance(step.value, (bool, type(None)))
            and step.value not in _OPEN_OPTIONS
        ):
            yield step.value if isinstance(step.value, str) else repr(step.value)
