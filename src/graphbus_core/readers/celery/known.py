"""What the names of Celery mean: its decorators, classes, functions and the methods of an application."""

from __future__ import annotations

import ast
import re

from graphbus_core.readers.celery.values import App, Bound, Decorator, External, Registry, Values

_DECORATORS = re.compile(
    r"celery\.(app\.)?shared_task|celery\.(decorators\.|task\.|task\.base\.)?(periodic_)?task|celery\.task\.task"
)
APP_CLASS = re.compile(r"celery\.(app\.(base\.)?)?Celery|.*celery.*\.\w*Celery\w*|.*\.\w*Celery(App)?", re.IGNORECASE)
TASK_CLASS = re.compile(r"(.*\.)?celery\.(.*\.)?(Periodic)?Task")
CURRENT_APP = re.compile(r"celery\.(_state\.|app\.)?(get_)?current_app|celery\.app\.app_or_default")
SIGNATURES = re.compile(r"celery\.(canvas\.|task\.)?(signature|subtask|Signature|maybe_signature)")
CANVAS = re.compile(r"celery\.(canvas\.|task\.sets\.)?_?(chain|group|chord)")
NAMED_CELERY = re.compile(r"(?i)\w*celery\w*")
OUTSIDE = ("celery", "functools")
"""Packages that are never those of the project: a file may be called `celery.py`."""
_APP_METHODS = frozenset(
    {"send_task", "signature", "subtask", "register_task", "add_periodic_task", "_get_current_object"}
)
SIGNED = frozenset({"s", "si", "signature", "subtask", "subtask_from_request"})
"""The methods of a task that make a signature."""


def outside(name: str) -> Values:
    """Return what a name from elsewhere is: an application, a decorator, or nothing but its name."""
    if CURRENT_APP.fullmatch(name):
        return (App(),) if name.endswith("current_app") and "get_" not in name else (External(name),)
    parts = name.rpartition(".")
    if _DECORATORS.fullmatch(name) or (parts[2] == "task" and NAMED_CELERY.search(parts[0])):
        return (Decorator(),)
    return (External(name),)


def member_of_app(app: App, name: str) -> Values:
    """Return what an attribute of an application is."""
    if name == "task":
        return (Decorator(),)
    if name == "tasks":
        return (Registry(),)
    if name == "Task":
        return (External("celery.Task"),)
    return (Bound(app, name),) if name in _APP_METHODS else ()


def last_name(node: ast.expr) -> str:
    """Return the last name of `a.b.c` or `a.b.c(...)`; empty for other expressions."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
