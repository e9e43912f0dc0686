"""Enums as the words or numbers that JSON has for their members: `class Size(StrEnum): SMALL = "s"` is `Literal["s"]`.

Only what surely is the value of each member counts. A class that makes its values itself, or takes others, is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.constants import NOT_CONSTANT, evaluate
from graphbus_core.compiler.reading.modules import External, Symbol
from graphbus_core.compiler.reading.scopes import ClassSite, Scope, base_targets, family_of, resolve
from graphbus_core.schema.types import Type

_TEXTS = frozenset({"enum.StrEnum", "builtins.str"})
_NUMBERS = frozenset({"enum.IntEnum", "builtins.int"})
_ENUMS = frozenset({"enum.Enum", "enum.ReprEnum", "enum.StrEnum", "enum.IntEnum"})
_USUAL_BASES = _ENUMS | _TEXTS | _NUMBERS | {"builtins.object"}
_HARMLESS = frozenset({"enum.unique", "enum.verify"})
_OWN_WAYS = frozenset(
    {"__new__", "__init__", "__init_subclass__", "__set_name__", "_generate_next_value_", "_missing_"}
)
"""Methods by which an Enum makes other values than those that are written, or takes others."""


def read_words(site: ClassSite, scope: Scope) -> Type | None:
    """Give the values of an Enum as a literal, unknown when they are not certain; None for a class that is no Enum."""
    chain, bases = family_of(scope.library, site)
    if not bases & _ENUMS:
        return None
    values: list[object] = []
    if bases <= _USUAL_BASES and all(_is_usual(entry, scope) for entry in chain):
        inner = Scope(scope.library, site.module, (site,), in_class_body=True)
        for name, value in _members(site.node):
            values.append(_auto(name, values, bases) if _is_auto(value, inner) else evaluate(value, inner))
    kinds = _kinds(bases)
    words = tuple(value for value in values if isinstance(value, str | int) and type(value) in kinds)
    if not words or len(words) != len(values):
        return Type("unknown", name=site.node.name)
    return Type("literal", values=tuple(dict.fromkeys(words)), name=site.node.name)


def _kinds(bases: frozenset[str]) -> set[type]:
    """What the values may be for the class to keep them as they are: `class A(str, Enum): ONE = 1` makes a text of it."""
    texts, numbers = bases & _TEXTS, bases & _NUMBERS
    return {kind for kind, has_other in ((str, numbers), (int, texts)) if not has_other}


def _is_usual(site: ClassSite, scope: Scope) -> bool:
    """True for a class that holds values and methods only, none of which has a say in what its values are."""
    node, inner = site.node, scope.within(site.module)
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return (
        not node.keywords
        and all(isinstance(base, External | Symbol) for base in base_targets(scope.library, site))
        and all(_names(decorator, inner) in _HARMLESS for decorator in decorators)
        and all(_is_usual_statement(statement, inner) for statement in node.body)
    )


def _is_usual_statement(statement: ast.stmt, scope: Scope) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = {_names(each, scope) for each in statement.decorator_list}
        return statement.name not in _OWN_WAYS and "enum.member" not in decorators
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id[:1] != "_" for target in statement.targets)
    if isinstance(statement, ast.AnnAssign):
        return isinstance(statement.target, ast.Name) and statement.target.id[:1] != "_"
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _names(expression: ast.expr, scope: Scope) -> str:
    target = resolve(expression, scope)
    return target.dotted if isinstance(target, External) else ""


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def _is_auto(value: ast.expr, scope: Scope) -> bool:
    is_bare = isinstance(value, ast.Call) and not value.args and not value.keywords
    return is_bare and isinstance(value, ast.Call) and _names(value.func, scope) == "enum.auto"


def _auto(name: str, before: list[object], bases: frozenset[str]) -> object:
    """What `auto()` stands for: the name of a StrEnum's member, or the next number; after a smaller one it depends on Python."""
    if "enum.StrEnum" in bases:
        return name.lower()
    numbers = [value for value in before if type(value) is int]
    if bases & _TEXTS or len(numbers) != len(before) or numbers[-1:] != sorted(numbers)[-1:]:
        return NOT_CONSTANT
    return max(numbers) + 1 if numbers else 1
