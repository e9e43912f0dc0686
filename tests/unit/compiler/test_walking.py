"""Walking syntax trees by a table of fields: nothing is passed over that a plain walk would meet."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from graphbus_core.compiler.reading.syntax import FIELDS, children_of, nodes_below

LEAVES = (ast.Name, ast.Constant, ast.Pass)
SOURCES = sorted(Path(__file__).parent.glob("*.py"))
EVERY_KIND = """
async def one(a, *b, c=1, **d) -> int:
    async with a as b, c: pass
    async for x in y: await z
    else: raise A from b
    global g
    try: assert a, b
    except* E as e: del a
    finally: pass
    match a:
        case {"x": [1, *rest], **more} if b: pass
        case K(1, k=2) | _ as all: yield a
    while a: x: int = 1
    return f"{a!r:>{b}}", {**a, "k": v}, [*a], a[1:2], (n := 1), lambda p: -p if p else not p, a < b <= c
class B(A, metaclass=M): x += 1
x = [i for i in a if i], {i for i in a}, {k: v for k, v in a}, (i async for i in a), a and b or c
from a import b
import c as d
"""


def _met(nodes: list[ast.AST]) -> Counter[int]:
    return Counter(map(id, nodes))


def test_walking_by_the_table_meets_what_a_plain_walk_meets() -> None:
    contexts = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    for tree in map(ast.parse, (EVERY_KIND, *(path.read_text() for path in SOURCES))):
        plain = [node for node in ast.walk(tree) if not isinstance(node, LEAVES + contexts)]
        found = [node for node in nodes_below(tree) if not isinstance(node, contexts)]
        assert _met(found) == _met(plain)
        assert all(children_of(node) == list(ast.iter_child_nodes(node)) for node in plain)


def test_the_table_names_fields_that_a_kind_of_node_has() -> None:
    for kind, (singles, lists) in FIELDS.items():
        assert {*singles.split(), *lists.split()} <= set(getattr(kind, "_fields", ()))
