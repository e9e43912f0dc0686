"""Schemas, annotations and returned values as the compiler reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.model.agent import MethodSpec
from tests.reading import HEAD, read_agent, read_files

PRELUDE = """
import collections.abc, dataclasses, enum, typing
import typing as t
from dataclasses import dataclass, field
from enum import Enum
from typing import *
import msgspec, pydantic
from somewhere import Foreign

class Item(TypedDict):
    sku: str
    qty: NotRequired[int]

class Partial(TypedDict, total=False):
    sku: Required[str]
    note: str

class More(Item):
    price: float

@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)
    kind: ClassVar[str] = "p"

@dataclasses.dataclass(frozen=True)
class Deep(Point):
    z: "Point"

class Packed(msgspec.Struct):
    a: int
    b: str | None = None

class Model(pydantic.BaseModel):
    a: int = pydantic.Field(...)
    b: str = pydantic.Field(default="")

class Renamed(msgspec.Struct, rename="camel"):
    a_b: int

class Tree(TypedDict):
    children: list["Tree"]

class Color(Enum):
    RED = "red"

class Plain: pass
class OfForeign(Foreign): x: int
UserId = NewType("UserId", str)
Alias = dict[str, int]
COMMON = {"status": str}
LOOP = {**LOOP}
Made = make()
Shown = [1]
def helper(): pass
@final
class Sealed(TypedDict):
    x: int
    def method(self): pass
"""


def _input(tmp_path: Path, schema: str) -> str:
    agent = read_agent(
        tmp_path,
        f"{PRELUDE}\nclass A(GraphBusNode):\n    @schema_method(input_schema={schema})\n    def f(self): return {{}}\n",
    )
    spec = agent.method("f")
    assert spec is not None
    assert spec.has_schema
    return str(spec.input_schema)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("str", "str"),
        ("'string'", "str"),
        ("'list[int]'", "list[int]"),
        ("list", "list"),
        ("list[str]", "list[str]"),
        ("t.List[int]", "list[int]"),
        ("[str]", "list[str]"),
        ("dict[str, int]", "dict[str, int]"),
        ("typing.Dict[str, Any]", "dict[str, Any]"),
        ("collections.abc.Mapping[str, int]", "dict[str, int]"),
        ("tuple[int, str]", "tuple[int, str]"),
        ("tuple[int, ...]", "tuple[int, ...]"),
        ("tuple[()]", "tuple"),
        ("set[int]", "set[int]"),
        ("Optional[str]", "str | None"),
        ("Union[int, str, None]", "int | str | None"),
        ("int | str | int", "int | str"),
        ("Literal['a', 1, None]", "Literal['a', 1, None]"),
        ("Annotated[int, 'positive']", "int"),
        ("UserId", "str"),
        ("Alias", "dict[str, int]"),
        ("Any", "Any"),
        ("object", "Any"),
        ("{'a': int, 'b': {'c': str}}", "{a: int, b: {c: str}}"),
        ("Foreign", "Foreign"),
        ("list[Foreign]", "list[Foreign]"),
        ("int | Foreign", "int | Foreign"),
        ("compute()", "compute()"),
        ("'not a type!'", "not a type!"),
        ("Color", "Literal['red']"),
        ("list[Color | None]", "list[Literal['red'] | None]"),
        ("Plain[int]", "Plain[int]"),
        ("type[int]", "type[int]"),
        ("Literal[compute()]", "Literal[compute()]"),
        ("Literal[-1]", "Literal[-1]"),
        ("dict[str]", "dict"),
        ("[int, str]", "list"),
        ("{**COMMON}", "{status: str}"),
        ("{**unknown}", "dict"),
        ("[" * 14 + "int" + "]" * 14, "[" * 0 + "list[" * 12 + "[[int]]" + "]" * 12),
    ],
)
def test_the_type_of_a_field(tmp_path: Path, written: str, read: str) -> None:
    assert _input(tmp_path, f"{{'x': {written}}}") == f"{{x: {read}}}"


@pytest.mark.parametrize("written", ["Foreign", "Plain", "OfForeign", "Renamed", "compute()", "int | Foreign"])
def test_what_cannot_be_known_is_unknown(tmp_path: Path, written: str) -> None:
    agent = read_agent(
        tmp_path,
        f"{PRELUDE}\nclass A(GraphBusNode):\n    @schema_method({{'x': {written}}})\n    def f(self, x): return {{}}\n",
    )
    schema = agent.methods[0].input_schema
    assert schema is not None
    assert schema.fields[0].type.kind == "unknown"


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ("Item", "{sku: str, qty?: int}"),
        ("Partial", "{sku: str, note?: str}"),
        ("More", "{sku: str, qty?: int, price: float}"),
        ("Point", "{x: int, y?: int, tags?: list[str]}"),
        ("Deep", "{x: int, y?: int, tags?: list[str], z: Point}"),
        ("Packed", "{a: int, b?: str | None}"),
        ("Model", "{a: int, b?: str}"),
        ("Tree", "{children: list[Tree]}"),
        ("COMMON", "{status: str}"),
        ("{**COMMON, 'n': int}", "{status: str, n: int}"),
        ("{**unknown(), 'n': int}", "{n: int, ...}"),
        ("{'n': NotRequired[int]}", "{n?: int}"),
        ("{KEY: int}", "{...}"),
        ("{1: int}", "None"),
        ("Renamed", "None"),
        ("OfForeign", "None"),
        ("make()", "None"),
        ("LOOP", "{...}"),
        ("Sealed", "{x: int}"),
        ("{'n': 'NotRequired[int]'}", "{n?: int}"),
        ("{'n': 'not a type!'}", "{n: not a type!}"),
    ],
)
def test_a_schema_may_be_a_display_a_name_or_a_typed_class(tmp_path: Path, schema: str, read: str) -> None:
    assert _input(tmp_path, schema) == read


def test_types_and_constants_are_read_from_other_files(tmp_path: Path) -> None:
    project = read_files(
        tmp_path,
        {
            "shop/types.py": "from typing import TypedDict\nclass Item(TypedDict):\n    sku: str\n"
            "KEY = 'item'\nSHAPE = {KEY: Item}\n",
            "shop/agents/a.py": HEAD
            + "from shop import types\nfrom shop.types import KEY, SHAPE\nclass A(GraphBusNode):\n"
            + "    @schema_method(SHAPE, {KEY: types.Item})\n    def f(self, item): return {}\n",
        },
    )
    spec = project.definitions[0].methods[0]
    assert (str(spec.input_schema), str(spec.output_schema)) == ("{item: Item}", "{item: Item}")
    assert spec.input_schema is not None
    assert [item.name for item in spec.input_schema.fields[0].type.fields] == ["sku"]


def test_parameters_with_kinds_defaults_and_annotations(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        from __future__ import annotations
        class A(GraphBusNode):
            def f(self, a, /, b: int, c: "str" = "", *rest: int, d, e: list[int] = (), **more): pass
            @staticmethod
            def s(a): pass
            @classmethod
            def c(cls, a): pass
        """,
    )
    shown = {
        spec.name: [(p.name, p.kind, str(p.type), p.has_default, p.is_annotated) for p in spec.parameters]
        for spec in agent.methods
    }
    assert shown == {
        "f": [
            ("a", "positional_only", "?", False, False),
            ("b", "positional", "int", False, True),
            ("c", "positional", "str", True, True),
            ("rest", "var_positional", "int", False, True),
            ("d", "keyword_only", "?", False, False),
            ("e", "keyword_only", "list[int]", True, True),
            ("more", "var_keyword", "?", False, False),
        ],
        "s": [("a", "positional", "?", False, False)],
        "c": [("a", "positional", "?", False, False)],
    }
    assert {spec.name: spec.is_static for spec in agent.methods} == {"f": False, "s": True, "c": False}


def test_the_order_processor_of_the_first_seed(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        '''
        class OrderProcessor(GraphBusNode):
            SYSTEM_PROMPT = """
            I process e-commerce orders. I validate inputs, check inventory,
            and emit order events. During build cycles, I negotiate with other
            agents to ensure our shared schemas are consistent and well-typed.
            """

            @schema_method(
                input_schema={"order_id": str, "items": list},
                output_schema={"status": str, "total": float, "event_id": str}
            )
            def process_order(self, order_id: str, items: list) -> dict:
                total = sum(item["price"] * item["qty"] for item in items)
                return {
                    "status": "confirmed",
                    "total": total,
                    "event_id": f"ord_{order_id}"
                }

            @subscribe("/Inventory/Updated")
            def on_inventory_update(self, event):
                self.log(f"Inventory changed: {event.payload}")
        ''',
        "OrderProcessor",
    )
    process, update = agent.methods
    assert str(process.input_schema) == "{order_id: str, items: list}"
    assert str(process.output_schema) == "{status: str, total: float, event_id: str}"
    assert str(process.returned[0].shape) == "{status: str, total: int | float, event_id: str}"
    assert len(process.returned) == 1
    assert (process.returns.kind, update.has_schema) == ("dict", False)
    assert agent.system_prompt.splitlines()[1] == "and emit order events. During build cycles, I negotiate with other"
    assert [(item.topic, item.shape, item.reads, item.reads_all_known) for item in agent.subscriptions] == [
        ("/Inventory/Updated", "event", (), False)
    ]


# --- returned -----------------------------------------------------------------------------


def _method(tmp_path: Path, body: str, head: str = "", further: str = "") -> MethodSpec:
    head = head or f"{'async ' * ('await' in body)}def f(self, x, n: int, s: str):"
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"from contextlib import contextmanager\nclass A(GraphBusNode):\n    {head}\n{lines}\n{further}\n"
    spec = read_agent(tmp_path, text).method("f")
    assert spec is not None
    return spec


def _returned(tmp_path: Path, body: str) -> list[str]:
    spec = _method(tmp_path, body, further="    def fails(self): raise ValueError\n    def works(self): pass")
    return [str(item.shape) if item.shape is not None else str(item.type) for item in spec.returned]


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        ("return {'a': 1, 'b': s}", ["{a: int, b: str}"]),
        ("return {}", ["{}"]),
        ("return dict(a=1, b='')", ["{a: int, b: str}"]),
        ("return {'a': 1, **x}", ["{a: ?, ...}"]),
        ("return {**x, 'a': 1}", ["{a: int, ...}"]),
        ("return {x: 1, 'a': 2}", ["{a: int, ...}"]),
        ("return {n for n in x}", ["set"]),
        ("return {1, 2}", ["set[int]"]),
        ("return (1, 2)", ["tuple[int, int]"]),
        ("return [y for y in x]", ["list"]),
        ("return {y: 1 for y in x}", ["dict"]),
        ("return [*x]", ["list"]),
        ("return [dict(a=1)]", ["list[{a: int}]"]),
        ("return [dict(a=1, **x)]", ["list[dict]"]),
        ("return round()", ["?"]),
        ("return round(n)", ["int"]),
        ("return dict(x, n)", ["dict"]),
        ("return dict({'a': 1}, b=n)", ["{a: int, b: int}"]),
        ("return dict(**x, a=1)", ["{a: int, ...}"]),
        ("return dict(**{'a': 1}, b=n)", ["{a: int, b: int}"]),
        ("return -n", ["int"]),
        ("return -x", ["?"]),
        ("return n ** 2", ["?"]),
        ("return self.size", ["?"]),
        ("r = {'a': 1}\nif 'a' in r: r.get('a')\nr['b']\nreturn r", ["{a: int}"]),
        ("r = {'a': 1}\nq = {'b': 2}\nq['c'] = 1\nreturn r", ["{a: int}"]),
        ("x: int\nreturn x", ["int"]),
        ("self.n: int\nreturn 1", ["int"]),
        ("global G\nG = {'a': 1}\nreturn G", ["?"]),
        ("return {1: 1}", ["dict"]),
        ("r = {'a': 1}\nreturn r", ["{a: int}"]),
        ("r = {'a': 1}\nr['b'] = 2\nreturn r", ["{a: int, b: ?}"]),
        ("r = {'a': 1}\nr['a'] = x\nreturn r", ["{a: ?}"]),
        ("r = {'a': 1}\nr.update(x)\nreturn r", ["{a: ?, ...}"]),
        ("r = {'a': 1}\nself.fill(r)\nreturn r", ["dict"]),
        ("r = {'a': 1}\nr[x] = 1\nreturn r", ["dict"]),
        ("r = {'a': 1}\ndel r['a']\nreturn r", ["dict"]),
        ("r = {'a': 1}\nr = x\nreturn r", ["?"]),
        ("r = {'a': 1}\nfor r in x: pass\nreturn r", ["?"]),
        ("r = {'a': 1}\nself.log(r)\nprint(len(r), r['a'])\nreturn r", ["{a: int}"]),
        ("r = {'a': [1]}\nr['a'].append(x)\nreturn r", ["{a: list}"]),
        ("r = {'a': 1} if x else {'b': 2}\nreturn r", ["{a: int}", "{b: int}"]),
        ("r: dict = {'a': 1}\nreturn r", ["{a: int}"]),
        ("q = {'a': 1}\nr = q\nreturn r", ["dict"]),
        ("return {'a': 1} if x else None", ["{a: int}", "None"]),
        ("return", ["None"]),
        ("pass", ["None"]),
        ("return None", ["None"]),
        ("return [1, 2]", ["list[int]"]),
        ("return [1, 'a']", ["list"]),
        ("return x", ["?"]),
        ("return s", ["str"]),
        ("s = x\nreturn s", ["?"]),
        ("return self.other()", ["?"]),
        ("return n + 1", ["int"]),
        ("return n / 2", ["float"]),
        ("return n + x", ["?"]),
        ("return f'{x}'", ["str"]),
        ("return s % x", ["str"]),
        ("return len(x)", ["int"]),
        ("len = x\nreturn len(x)", ["?"]),
        ("return round(x)", ["?"]),
        ("return round(1.5, 1)", ["float"]),
        ("return not x", ["bool"]),
        ("return x == 1", ["?"]),
        ("return n > 1", ["bool"]),
        ("return 'a' in x", ["bool"]),
        ("return x or {}", ["?"]),
        ("return 1 if x else ''", ["int", "str"]),
        ("return (y := 1)", ["int"]),
        ("return {'a': {'b': n}}", ["{a: {b: int}}"]),
        ("return [{'a': n}]", ["list[{a: int}]"]),
        ("def inner(): return {'a': 1}\nreturn inner()", ["{a: int}"]),
        ("if x: return {'a': 1}\nreturn {'b': 2}", ["{a: int}", "{b: int}"]),
        ("if x: return {'a': 1}", ["{a: int}", "None"]),
        ("if x: return {'a': 1}\nelse: raise ValueError", ["{a: int}"]),
        ("if x: return 1\nelif n: return 2", ["int", "int", "None"]),
        ("raise NotImplementedError", []),
        ("while True:\n    if x: return 1", ["int"]),
        ("while x:\n    return 1", ["int", "None"]),
        ("for y in x: return 1", ["int", "None"]),
        ("for y in x: pass\nelse: return 1", ["int"]),
        ("try: return 1\nexcept ValueError: pass", ["int", "None"]),
        ("try: return 1\nexcept ValueError: raise", ["int"]),
        ("try: pass\nfinally: return 1", ["int"]),
        ("try: pass\nexcept ValueError: return 2\nelse: return 1", ["int", "int"]),
        ("with x: return 1", ["int"]),
        ("match x:\n    case 1: return 1\n    case _: return 2", ["int", "int"]),
        ("match x:\n    case 1: return 1\n    case 2: return 2", ["int", "int", "?"]),
        ("match x:\n    case 1: return 1\n    case 2: pass", ["int", "None"]),
        ("self.fails()", []),
        ("self.works()", ["None"]),
        ("assert False", []),
        ("import sys\nsys.exit(1)", []),
        ("yield 1", ["?"]),
        ("...", ["?"]),
        ("'Only a docstring.'", ["?"]),
        ("1", ["None"]),
        ("with x: pass", ["None"]),
        ("if True: return 1", ["int"]),
        ("while x:\n    return 1\n    break\nelse:\n    return 1", ["int", "int"]),
        ("while True:\n    if x:\n        return 1\n        break", ["int"]),
        ("while 1:\n    pass", []),
        ("await self.fails()", []),
        ("x()()", ["None"]),
        ("while True:\n    def inner():\n        while x: break\n    class C: pass", []),
        ("for y in x:\n    if y: continue\n    return 1\nraise KeyError", ["int"]),
    ],
)
def test_every_way_in_which_a_body_ends(tmp_path: Path, body: str, returned: list[str]) -> None:
    assert _returned(tmp_path, body) == returned


@pytest.mark.parametrize("decorator", ["@contextmanager", "@unknown", "@unknown(1)", "@some.wrapper"])
def test_a_decorator_that_may_change_the_result_makes_it_unknown(tmp_path: Path, decorator: str) -> None:
    spec = _method(tmp_path, "return {'a': 1}", f"{decorator}\n    def f(self):")
    assert [item.type.kind for item in spec.returned] == ["unknown"]
