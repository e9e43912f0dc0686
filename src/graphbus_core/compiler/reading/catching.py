"""Whether the error of a missing key is caught where it is raised: by `except`, `except*` or `contextlib.suppress`."""

from __future__ import annotations

import ast
import builtins
import sys

from graphbus_core.compiler.reading.constants import home_of, is_rebound
from graphbus_core.compiler.reading.modules import DefinedName, External, NameScope, resolve
from graphbus_core.compiler.reading.views import FunctionView

_MOST_NAMES = 10
"""The number of names that are followed to an exception: `MISSING = (ValueError, KeyError)`."""


def may_be_caught(node: ast.expr, view: FunctionView) -> bool:
    """False if a KeyError raised by this expression certainly leaves the function; its callers may still catch it."""
    return any(_may_catch(each, view) for each in view.body.caught_at(node))


def _may_catch(exception: ast.expr | None, view: FunctionView) -> bool:
    """False if `except` with this expression certainly lets a KeyError pass; None stands for a bare `except`."""
    if exception is None:
        return True
    if isinstance(exception, ast.Name) and exception.id in view.body.bound:
        values = view.body.values_of(exception)
        return not values or any(_may_be_key_error(each.value, view.scope) for each in values)
    hidden = frozenset({*view.body.bound, *view.parameters})
    return _may_be_key_error(exception, view.scope._replace(hidden=view.scope.hidden | hidden))


def _may_be_key_error(exception: ast.expr, scope: NameScope, steps: int = 0) -> bool:
    """False for exceptions that are certainly neither KeyError nor a base of it.

    A class statement makes no base of KeyError, whatever its own bases are: `class NotFound(KeyError)` does not catch a KeyError.
    """
    if isinstance(exception, ast.Tuple):
        return any(_may_be_key_error(each, scope, steps) for each in exception.elts)
    found = resolve(exception, scope) if steps < _MOST_NAMES else None
    if isinstance(found, External):
        home, _, name = found.dotted.rpartition(".")
        kind = getattr(builtins, name, None) if home == "builtins" else None
        if isinstance(kind, type):
            return issubclass(KeyError, kind)
        return home.partition(".")[0] not in sys.stdlib_module_names
    if not isinstance(found, DefinedName) or is_rebound(found):
        return True
    is_expression = isinstance(found.node, ast.expr)
    return is_expression and _may_be_key_error(found.node, home_of(found, scope), steps + 1)  # type: ignore[arg-type]
