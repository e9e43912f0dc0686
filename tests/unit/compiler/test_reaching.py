"""Which assignments of a local name reach its use, and which keys a dict was given on the way."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from graphbus_core.compiler.reading.reaching import reaching_values

REACHING = {
    "one after the other": ("p = 1; p = 2; use(p)", "2"),
    "the use between": ("p = 1; use(p); p = 2", "1"),
    "a branch": ("p = 1\nif x: p = 2\nuse(p)", "1 2"),
    "both branches": ("if x: p = 1\nelse: p = 2\nuse(p)", "1 2"),
    "an else that leaves": ("p = 0\nif x: p = 1\nelse: return\nuse(p)", "1"),
    "within the branch": ("p = 1\nif x:\n    p = 2\n    use(p)", "2"),
    "the other branch": ("if x: p = 1\nelse:\n    p = 2\n    use(p)", "2"),
    "a condition before, and one before the use": ("p = 1\nif x: p = 2\nif x: use(p)", "None"),
    "a condition that leaves": ("p = 1\nif x: p = 2\nif y: return\nuse(p)", "None"),
    "a loop": ("p = 1\nfor y in x: p = 2\nuse(p)", "1 2"),
    "the next round of a loop": ("p = 1\nwhile x:\n    use(p)\n    p = 2", "None"),
    "a break": ("p = 1\nfor y in x:\n    p = 2\n    break\nuse(p)", "1 2"),
    "a continue": ("p = 1\nwhile x:\n    if y:\n        p = 2\n        continue\nuse(p)", "1 2"),
    "a try": ("p = 1\ntry: p = 2\nexcept E: pass\nuse(p)", "1 2"),
    "a handler": ("p = 1\ntry:\n    p = 2\n    p = 3\nexcept E: use(p)", "None"),
    "a finally": ("p = 1\ntry: p = 2\nfinally: p = 3\nuse(p)", "3"),
    "a with": ("p = 1\nwith x: p = 2\nuse(p)", "2"),
    "a match": ("p = 1\nmatch x:\n    case 1: p = 2\n    case 2: p = 3\nuse(p)", "1 2 3"),
    "an annotation": ("p: int = 1\np = 2\nuse(p)", "2"),
    "a tuple": ("p = 1\np, q = x\nuse(p)", "None"),
    "a loop's own name": ("p = 1\nfor p in x: pass\nuse(p)", "None"),
    "nothing yet": ("use(p); p = 1", "None"),
    "a key": ("p = {}; p['a'] = 1; use(p)", "{} with 1"),
    "a key behind the use": ("p = {}; use(p); p['a'] = 1", "{} with 0"),
    "a key in a branch": ("p = {}\nif x: p['a'] = 1\nuse(p)", "{} with 0"),
    "a key in both branches": ("p = {}\nif x: p.update(a=1)\nelse: p['a'] = 1\nuse(p)", "{} with 0"),
    "a key before another dict": ("p = {}\np['a'] = 1\np = {'b': 1}\nuse(p)", "{'b': 1} with 0"),
    "an update": ("p = {}; p.update(a=1); p['b'] = 2; use(p)", "{} with 2"),
}


@pytest.mark.parametrize(("body", "expected"), REACHING.values(), ids=REACHING)
def test_the_assignments_that_reach_a_use_are_found(body: str, expected: str) -> None:
    tree = ast.parse(dedent(body))
    use = next(node.args[0] for node in ast.walk(tree) if getattr(getattr(node, "func", None), "id", "") == "use")
    bound = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    found = reaching_values(use, tree.body, sum(node.id == "p" for node in bound))
    shown = [ast.unparse(each.value) for each in found or ()]
    counts = f" with {len(found[0].additions)}" if found and "with" in expected else ""
    assert (" ".join(shown) or "None") + counts == expected
