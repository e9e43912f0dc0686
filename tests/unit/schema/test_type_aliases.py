"""What a `type` statement names, which only Python 3.12 and newer have, is checked as what it stands for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.bus.signatures import bind_handler
from graphbus_core.errors import RunError
from graphbus_core.hosting.members import methods_of, topics_of
from graphbus_core.schema.live import type_of
from graphbus_core.schema.objects import UnfitError, maker_of, makers_for, needs_making
from graphbus_core.schema.types import Type
from tests.reading import HEAD, read_agent

IS_312 = sys.version_info >= (3, 12)

CLASSES = """
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from nowhere_at_all import Nowhere

class Order(TypedDict):
    sku: str

@dataclass
class Item:
    sku: str
    parts: "Items"

class Page[T](TypedDict):
    items: list[T]
    of: "Orders"

class Plain[T: (int, str)](TypedDict):
    it: T

type Placed = Order
type Again = Placed
type Orders = list[Placed]
type Maybe = Placed | None
type Items = list[Item]
type Many[T] = list[T]
type Named[K, V] = dict[V, K]
type Any_of[*Ts] = tuple[*Ts]
type Text = "Order"
type Json = dict[str, Json] | list[Json] | str
type Tree = Item | list[Tree]
type Round = Around
type Around = Round
type Turn = "Turn"
type Broken = Nowhere
type Happening = Event
type Fields = {"sku": str}
"""
AGENT = """
class A(GraphBusNode):
    @schema_method(input_schema=Placed, output_schema=Fields)
    def place(self, sku): return {"sku": sku}

    @schema_method(input_schema={"order": Placed, "many": Orders}, output_schema={"text": Maybe})
    def several(self, order, many): return {"text": None}

    @publishes("/Shop/Placed", Again)
    def say(self): ...

    @subscribe("/Shop/Heard")
    def hear(self, it: Happening): ...

    @subscribe("/Shop/Placed")
    def take(self, it: Again): ...

    @subscribe("/Shop/Given")
    def given[T: (int, str)](self, text: T): ...
"""
SOURCE = HEAD + CLASSES + AGENT


@pytest.fixture
def live() -> Any:
    """The module above; a test that asks for it has nothing to do on a Python that cannot read it."""
    module = ModuleType("live_aliases")
    module.__file__ = __file__
    sys.modules[module.__name__] = module
    if IS_312:
        exec(compile(SOURCE, "live_aliases.py", "exec", dont_inherit=True), vars(module))
    else:
        with pytest.raises(SyntaxError):
            compile(SOURCE, "live_aliases.py", "exec", dont_inherit=True)
    yield module if IS_312 else None
    del sys.modules[module.__name__]


def told(kind: Type) -> str:
    inner = ", ".join([*map(told, kind.args), *(f"{field.name}: {told(field.type)}" for field in kind.fields)])
    return f"{kind.kind} {kind.name}".strip() + (f"({inner})" if inner else "")


ORDER = "record Order(sku: str)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Placed", ORDER),
        ("Again", ORDER),
        ("list[Placed]", f"list({ORDER})"),
        ("Orders", f"list({ORDER})"),
        ("Maybe", f"union({ORDER}, null)"),
        ("Page[int]", f"record Page(items: list(int), of: list({ORDER}))"),
        ("Many[int]", "list(int)"),
        ("Many[Placed]", f"list({ORDER})"),
        ("Many[Many[int]]", "list(list(int))"),
        ("Many", "list(unknown)"),
        ("Named[int, str]", "dict(str, int)"),
        ("Any_of[int, str]", "unknown"),
        ("Round", "unknown"),
        ("Turn", "unknown"),
        ("Broken", "unknown"),
        ("Fields", "record(sku: str)"),
    ],
)
def test_an_alias_has_the_type_that_it_stands_for(live: Any, text: str, expected: str) -> None:
    if live is not None:
        assert told(type_of(eval(text, vars(live)))) == expected


def test_an_alias_that_holds_itself_is_unfolded_some_levels_deep(live: Any) -> None:
    if live is not None:
        assert told(type_of(live.Json)).startswith("union(dict(str, union(dict(str, union(")


@pytest.mark.parametrize(
    ("text", "value", "problems"),
    [
        ("Items", [{"sku": "a", "parts": []}], []),
        ("Items", [{"sku": 1, "parts": []}], ["[0].sku"]),
        ("Many[Item]", [{"sku": "a", "parts": [{}]}], ["[0].parts[0].sku", "[0].parts[0].parts"]),
        ("Again", {"sku": 1}, ["sku"]),
    ],
)
def test_objects_are_made_as_of_what_it_stands_for(live: Any, text: str, value: Any, problems: list[str]) -> None:
    if live is None:
        return
    kind = eval(text, vars(live))
    assert needs_making(kind)
    if problems:
        with pytest.raises(UnfitError) as caught:
            maker_of(kind)(value)
        assert [problem.path for problem in caught.value.problems] == problems
    else:
        assert maker_of(kind)(value) == [live.Item("a", [])]


HANDLERS = """
def placed(it: Again): return it
def quoted(it: "Again"): return it
def text(it: Text): return it
def event(it: Happening): return it
def fields(items: Items, sku: str): return items
def generic[T](items: Many[Item], sku: T): return items
def quoted_generic[T](sku: "T"): return sku
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["live", "text"])
@pytest.mark.parametrize(
    ("name", "shape", "payloads"),
    [
        ("placed", "typed", ({"sku": "a"}, {"sku": 1})),
        ("quoted", "typed", ({"sku": "a"}, {})),
        ("text", "typed", ({"sku": "a"}, {})),
        ("event", "event", ({"sku": "a"}, None)),
        ("fields", "fields", ({"items": [{"sku": "a", "parts": []}], "sku": "a"}, {"items": [{"sku": 1}], "sku": "a"})),
        ("generic", "fields", ({"items": [], "sku": "a"}, {"items": [{"sku": 1}], "sku": "a"})),
        ("quoted_generic", "fields", ({"sku": "a"}, {})),
    ],
)
def test_a_handler_takes_what_the_alias_stands_for(
    live: Any, future: str, name: str, shape: str, payloads: tuple[Any, Any]
) -> None:
    if live is None:
        return
    payload, refused = payloads
    names = dict(vars(live))
    exec(compile(future + HANDLERS, "handlers.py", "exec", dont_inherit=True), names)
    assert bind_handler(names[name]).shape == shape
    bus = MessageBus(on_error="raise")
    bus.subscribe("/Shop/Placed", names[name])
    bus.publish("/Shop/Placed", payload)
    if refused is not None:
        with pytest.raises(RunError) as caught:
            bus.publish("/Shop/Placed", refused)
        assert caught.value.code in ("GBE650", "GBE617")
    bus.close()


@pytest.mark.parametrize("name", ["Broken", "Round", "Turn"])
def test_an_alias_of_what_is_not_there_is_said(live: Any, name: str) -> None:
    if live is None:
        return
    names = dict(vars(live))
    exec(compile(f"def handler(it: {name}): ...", "handlers.py", "exec", dont_inherit=True), names)
    assert makers_for(names["handler"]).unmade == {"it": f"{name} is not defined at run time"}
    with pytest.raises(RunError, match=f"{name} is not defined at run time"):
        bind_handler(names["handler"], shape="typed")


def test_an_alias_within_something_else_is_said_when_it_is_not_there(live: Any) -> None:
    if live is not None:
        names = dict(vars(live))
        exec("def handler(it: dict[str, Broken]): ...", names)
        assert list(makers_for(names["handler"]).unmade) == ["it"]
        assert "name 'Nowhere' is not defined" in makers_for(names["handler"]).unmade["it"]


def test_contracts_are_the_same_to_the_compiler_and_to_live_classes(live: Any, tmp_path: Path) -> None:
    if live is None:
        return
    agent = read_agent(tmp_path, CLASSES + AGENT)
    read = {method.name: method for method in agent.methods if method.has_schema}
    declared = {method.name: method for method in methods_of(live.A)}
    assert read.keys() == declared.keys() == {"place", "several"}
    for name, method in read.items():
        assert method.input_schema is not None
        assert (method.input_schema, method.output_schema) == (
            declared[name].input_schema,
            declared[name].output_schema,
        )
    assert {each.topic: each.payload for each in agent.publications} == topics_of(live.A)


def test_handlers_are_the_same_to_the_compiler_and_to_the_bus(live: Any, tmp_path: Path) -> None:
    if live is None:
        return
    shapes = {each.method: each.shape for each in read_agent(tmp_path, CLASSES + AGENT).subscriptions}
    assert shapes == {name: bind_handler(getattr(live.A(), name)).shape for name in ("hear", "take", "given")}
    assert shapes == {"hear": "event", "take": "typed", "given": "fields"}
