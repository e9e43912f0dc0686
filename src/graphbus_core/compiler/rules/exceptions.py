"""GB302 and GB303: `except:` that catches too much, and exceptions that vanish."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.source import span_of
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.findings import Finding

_EVERYTHING = frozenset({"Exception", "BaseException"})


def check_exceptions(method: ast.FunctionDef | ast.AsyncFunctionDef, definition: AgentDefinition) -> Iterator[Finding]:
    """Find `except:` without a `raise`, and clauses that catch everything and do nothing."""
    for clause in _clauses(method.body):
        yield from _check_clause(clause, f"{definition.name}.{method.name}", definition)


def _clauses(body: list[ast.stmt]) -> Iterator[ast.ExceptHandler]:
    """The clauses of a body and of the blocks within it; expressions hold none, so that only statements are visited."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ExceptHandler):
            yield node
        for field in ("finalbody", "orelse", "cases", "handlers", "body"):
            block = getattr(node, field, None)
            if block.__class__ is list:
                waiting.extend(reversed(block))


def _check_clause(clause: ast.ExceptHandler, name: str, definition: AgentDefinition) -> Iterator[Finding]:
    if clause.type is None and not _raises_again(clause.body):
        yield Finding(
            code="GB302",
            severity="warning",
            agent=definition.name,
            span=_head(clause, definition.path),
            message=f"{name} has an `except:` that also catches Ctrl-C and the end of the process",
            hint="Write `except Exception:`, or name what may be raised.",
            is_fixable=True,
        )
    if _catches_everything(clause.type) and all(_does_nothing(statement) for statement in clause.body):
        yield Finding(
            code="GB303",
            severity="warning",
            agent=definition.name,
            span=_head(clause, definition.path),
            message=f"{name} catches every exception and does nothing about it",
            hint="Name the exception that may be passed over, log it with self.log, or let it rise: the bus isolates handlers.",
        )


def _head(clause: ast.ExceptHandler, path: str) -> SourceSpan:
    """The line of the clause without its body: from `except` to the end of the type, or of the word."""
    if clause.type is None:
        return SourceSpan(path, clause.lineno, clause.col_offset, clause.lineno, clause.col_offset + len("except"))
    kind = span_of(path, clause.type)
    return SourceSpan(path, clause.lineno, clause.col_offset, kind.end_line, kind.end_column)


def _raises_again(body: list[ast.stmt]) -> bool:
    """True when the clause goes on with the exception, or ends the process, whatever happens in it."""
    last = body[-1]
    return isinstance(last, ast.Raise) or (
        isinstance(last, ast.If) and bool(last.orelse) and _raises_again(last.body) and _raises_again(last.orelse)
    )


def _catches_everything(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(name, ast.Name) and name.id in _EVERYTHING for name in names)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )
