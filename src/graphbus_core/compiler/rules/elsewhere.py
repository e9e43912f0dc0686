"""Places outside of the agents' own publications where a topic may be sent: `main.py`, a function that takes the node."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.rules.evidence import Evidence, trees_with

_LISTENING = frozenset({"subscribe", "unsubscribe"})


def is_sent_elsewhere(topic: str, evidence: Evidence) -> bool:
    """Tell whether some file of the build passes the topic to a call other than one that subscribes, or may do so.

    Only asked when no publication is known, so that reading a file once more costs nothing in a project without findings.
    """
    return any(
        tree is None or any(topic in _texts(call) for call in _calls(tree)) for tree in trees_with([topic], evidence)
    )


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) not in _LISTENING:
            yield node


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _texts(call: ast.Call) -> set[object]:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return {value.value for value in values if isinstance(value, ast.Constant)}
