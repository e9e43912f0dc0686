"""Places outside of the agents' own definitions where a topic may be sent or heard: `main.py`, a function that takes the node."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.rules.evidence import Evidence, trees_with

_SUBSCRIBING = frozenset({"subscribe"})
_LISTENING = frozenset({"subscribe", "unsubscribe"})


def is_sent_elsewhere(topic: str, evidence: Evidence) -> bool:
    """Tell whether some file of the build passes the topic to a call other than one that subscribes, or may do so.

    Only asked when no publication is known, so that reading a file once more costs nothing in a project without findings.
    """
    return any(
        tree is None or any(_name(call.func) not in _LISTENING for call in _calls_with(topic, tree))
        for tree in trees_with([topic], evidence)
    )


def is_heard_elsewhere(topic: str, evidence: Evidence) -> bool:
    """Tell whether some file of the build subscribes to the topic by a call, e.g. of a bus; asked as rarely."""
    return any(
        tree is None or any(_name(call.func) in _SUBSCRIBING for call in _calls_with(topic, tree))
        for tree in trees_with([topic], evidence)
    )


def _calls_with(topic: str, tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and topic in _texts(node):
            yield node


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _texts(call: ast.Call) -> set[object]:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return {value.value for value in values if isinstance(value, ast.Constant)}
