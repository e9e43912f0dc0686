"""What has changed between two states of a graph, in which direction, and whom it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.contracts.changes import ContractChange, schema_differences, type_differences
from graphbus_core.contracts.compare import compare_surfaces
from graphbus_core.contracts.surface import Surface
from graphbus_core.model.config import Settings
from graphbus_core.schema.compatibility import Side
from graphbus_core.schema.types import FLOAT, INT, STR, UNKNOWN, Field, Schema, Type, union
from tests.checking import Files, read

EXTERNAL = Settings(external_topics=("/Out/**", "/Fixed/A", "/Fixed/B"))


def changes(tmp_path: Path, old: Files, new: Files) -> tuple[ContractChange, ...]:
    projects = [read(tmp_path / name, files, EXTERNAL) for name, files in (("old", old), ("new", new))]
    before, after = (Surface(project.definitions, project.graph.topics) for project in projects)
    return compare_surfaces(before, after)


def told(change: ContractChange) -> str:
    """`breaking type-changed Stock.take: input sku [outside] Shop:12!`"""
    ends = [f"{broken.agent}{'' if broken.is_certain else '?'}" for broken in change.breaks]
    where = (["outside"] if change.breaks_outside else []) + ends
    doubt = "" if change.is_certain else " (doubt)"
    return f"{change.effect} {change.kind} {change.title}{doubt}" + (f" [{' '.join(where)}]" if where else "")


def method(inputs: str, outputs: str = "{}", parameters: str = "**given") -> str:
    return f"""
class Stock(GraphBusNode):
    @schema_method({inputs}, {outputs})
    def take(self, {parameters}): ...
"""


INPUTS = [
    ('{"sku": str}', '{"sku": str, "note": NotRequired[str]}', "compatible field-added input note"),
    ('{"n": int}', '{"n": NotRequired[int]}', "compatible field-optional input n"),
    ('{"n": NotRequired[int]}', '{"n": int}', "breaking field-required input n [outside]"),
    ('{"sku": str}', '{"sku": str, "qty": int}', "breaking field-added input qty [outside]"),
    ('{"sku": str, "qty": int}', '{"sku": str}', "breaking field-removed input qty [outside]"),
    ('{"qty": int}', '{"qty": float}', "compatible type-changed input qty"),
    ('{"qty": float}', '{"qty": int}', "breaking type-changed input qty [outside]"),
    ('{"qty": int}', '{"qty": int | None}', "compatible type-changed input qty"),
    ('{"size": Literal["s"]}', '{"size": Literal["s", "l"]}', "compatible type-changed input size"),
    ('{"size": str}', '{"size": Literal["s"]}', "breaking type-changed input size [outside]"),
    (
        '{"items": [{"sku": str, "qty": int | None}]}',
        '{"items": [{"sku": str, "qty": int}]}',
        "breaking type-changed input items[].qty [outside]",
    ),
    (
        '{"items": [{"sku": str, "qty": int}]}',
        '{"items": [{"sku": str}]}',
        "compatible field-removed input items[].qty",
    ),
    ('{"by": dict[str, float]}', '{"by": dict[str, int]}', "breaking type-changed input by.* [outside]"),
    ('{"sku": Money}', '{"sku": str}', "compatible type-changed input sku (doubt)"),
    ('{"sku": str}', '{"sku": Money}', "compatible type-changed input sku (doubt)"),
    ('{"sku": object}', '{"sku": str}', "breaking type-changed input sku [outside]"),
    ('{"a": {"x": int}}', '{"a": {"x": int}}', ""),
]
OUTPUTS = [
    ('{"n": int}', '{"n": int, "m": str}', "compatible field-added output m"),
    ('{"n": int, "m": str}', '{"n": int}', "breaking field-removed output m [outside]"),
    ('{"n": float}', '{"n": int}', "compatible type-changed output n"),
    ('{"n": int}', '{"n": int | None}', "breaking type-changed output n [outside]"),
    ('{"n": int}', "make()", "breaking schema-unknown output [outside]"),
    ("make()", '{"n": int}', "compatible schema-known output (doubt)"),
]


@pytest.mark.parametrize(("before", "after", "expected"), INPUTS)
def test_arguments_may_be_taken_in_more_ways_and_never_in_fewer(
    before: str, after: str, expected: str, tmp_path: Path
) -> None:
    head = "from typing import Literal, NotRequired\nfrom elsewhere import Money\n"
    found = changes(tmp_path, head + method(before), head + method(after))
    assert [told(each).replace("Stock.take: ", "") for each in found] == ([expected] if expected else [])


@pytest.mark.parametrize(("before", "after", "expected"), OUTPUTS)
def test_results_may_promise_more_and_never_less(before: str, after: str, expected: str, tmp_path: Path) -> None:
    found = changes(tmp_path, method("{}", before), method("{}", after))
    assert [told(each).replace("Stock.take: ", "") for each in found] == [expected]


TYPED = """
from typing import NotRequired, TypedDict
class Order(TypedDict):
    sku: str
    qty: {}
@publishes({!r}, Order)
class Shop(GraphBusNode):
    def sell(self, order: Order):
        self.publish({!r}, order)
"""
MAIL = """
class Mail(GraphBusNode):
    @subscribe("/Order/Sold")
    def on_sold(self, event):
        self.log(event["qty"])
"""


def shop(kind: str, topic: str = "/Order/Sold") -> str:
    return TYPED.format(kind, topic, topic)


def test_a_payload_that_may_lack_what_a_handler_needs_may_break_that_handler(tmp_path: Path) -> None:
    found = changes(tmp_path, shop("int") + MAIL, shop("NotRequired[int]") + MAIL)
    assert [told(each) for each in found] == ["breaking field-optional /Order/Sold: payload qty [Mail?]"]
    assert found[0].breaks[0].span.line == 14


def test_a_change_that_every_end_has_made_with_it_breaks_nobody(tmp_path: Path) -> None:
    new = shop("int").replace("qty", "count") + MAIL.replace("qty", "count")
    found = changes(tmp_path, shop("int") + MAIL, new)
    assert [(told(each), each.is_breaking) for each in found if each.part == "payload"] == [
        ("settled field-removed /Order/Sold: payload qty", True),
        ("compatible field-added /Order/Sold: payload count", False),
    ]
    assert not any(each.effect == "breaking" for each in found)


def test_the_same_change_of_an_external_topic_breaks_those_outside(tmp_path: Path) -> None:
    old = shop("int", "/Out/Sold") + MAIL.replace("/Order", "/Out")
    found = changes(tmp_path, old, old.replace("qty", "count"))
    assert "breaking field-removed /Out/Sold: payload qty [outside]" in [told(each) for each in found]


CALLER = """
@depends_on("Stock")
class Shop(GraphBusNode):
    def sell(self, sku: str):
        return self.call("Stock", "take", {})
"""

CALLS = {
    "a call that gives what is no longer taken": (
        method('{"sku": str, "qty": int}') + CALLER.format("sku=sku, qty=1"),
        method('{"sku": str}') + CALLER.format("sku=sku, qty=1"),
        "breaking field-removed Stock.take: input qty [outside Shop]",
    ),
    "a call that lacks what has to be given": (
        method('{"sku": str}') + CALLER.format("sku=sku"),
        method('{"sku": str, "qty": int}') + CALLER.format("sku=sku"),
        "breaking field-added Stock.take: input qty [outside Shop]",
    ),
    "a call that was changed with it": (
        method('{"sku": str}') + CALLER.format("sku=sku"),
        method('{"sku": str, "qty": int}') + CALLER.format("sku=sku, qty=1"),
        "breaking field-added Stock.take: input qty [outside]",
    ),
    "a call that may give it": (
        method('{"sku": str}') + CALLER.format("**given()"),
        method('{"sku": str, "qty": int}') + CALLER.format("**given()"),
        "breaking field-added Stock.take: input qty [outside Shop?]",
    ),
    "a value that does not fit": (
        method('{"sku": str}') + CALLER.format('sku="a"'),
        method('{"sku": int}') + CALLER.format('sku="a"'),
        "breaking type-changed Stock.take: input sku [outside Shop]",
    ),
    "a result that is read by code which did not change": (
        method("{}", '{"left": int}') + CALLER.format(""),
        method("{}", '{"rest": int}') + CALLER.format(""),
        "breaking field-removed Stock.take: output left [outside Shop?]",
    ),
    "the method is gone": (
        method('{"sku": str}') + CALLER.format("sku=sku"),
        method('{"sku": str}').replace("take", "fetch") + CALLER.format("sku=sku"),
        "breaking method-removed Stock.take [outside Shop]",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), CALLS.values(), ids=[*CALLS])
def test_calls_that_a_change_lets_down_are_named(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert expected in [told(each) for each in changes(tmp_path, old, new)]


def say(topic: str, name: str = "A") -> str:
    return f"""
class {name}(GraphBusNode):
    def go(self):
        self.publish({topic}, {{"n": 1}})
"""


HEAR = """
class Ear(GraphBusNode):
    @subscribe("{}")
    def on_it(self, n: int): ...
"""
COMPUTED = say("self.topic", "Any")
NOTHING = "class Ear(GraphBusNode): ..."
READ = """
class Reader(GraphBusNode):
    @subscribe("/T/A")
    def on_it(self, event):
        return event["n"]
"""
ASKER = """
class Asker(GraphBusNode):
    def go(self):
        return self.request("/T/Q", {"n": 1})
"""
ASK = """
class A(GraphBusNode):
    def go(self):
        return self.request("/Q", {"n": 1})
class Ear(GraphBusNode):
    @subscribe("/Q")
    def on_it(self, n: int) -> int:
        return n
"""

GRAPHS = {
    "an agent is gone": (
        method("{}") + CALLER.format(""),
        CALLER.format(""),
        ["breaking agent-removed Stock [outside Shop Shop]"],
    ),
    "an agent is new": (
        "class A(GraphBusNode): ...",
        "class A(GraphBusNode): ...\n" + method("{}"),
        ["compatible agent-added Stock"],
    ),
    "an agent has another name": (
        method('{"sku": str}'),
        method('{"sku": str}').replace("Stock", "Store"),
        ["breaking agent-removed Stock [outside]", "compatible agent-added Store"],
    ),
    "a dependency is gone, a call is not": (
        method("{}") + CALLER.format(""),
        method("{}") + CALLER.format("").replace('@depends_on("Stock")\n', ""),
        ["breaking dependency-removed Shop [Shop]"],
    ),
    "nobody publishes it any more": (
        say('"/T"') + HEAR.format("/T"),
        "class A(GraphBusNode): ...\n" + HEAR.format("/T"),
        ["breaking topic-removed /T [Ear]"],
    ),
    "nobody has heard it": (say('"/T"'), "class A(GraphBusNode): ...", ["settled topic-removed /T"]),
    "it was for others": (
        say('"/Out/T"'),
        "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/T [outside]"],
    ),
    "a topic is new": ("class A(GraphBusNode): ...", say('"/T"'), ["compatible topic-added /T"]),
    "what others publish is no longer handled": (
        HEAR.format("/Out/T"),
        "class Ear(GraphBusNode): ...",
        ["breaking handler-removed /Out/T: Ear.on_it [outside]"],
    ),
    "what the graph publishes is no longer handled": (
        say('"/T"') + HEAR.format("/T"),
        say('"/T"') + "class Ear(GraphBusNode): ...",
        ["compatible handler-removed /T: Ear.on_it"],
    ),
    "a handler needs what nobody sends": (
        say('"/T"') + HEAR.format("/T"),
        say('"/T"') + HEAR.format("/T").replace("n: int", "n: int, m: int"),
        ["breaking field-added /T: Ear.on_it m [A]"],
    ),
    "another handler needs more from outside": (
        HEAR.format("/Out/T"),
        HEAR.format("/Out/T") + HEAR.format("/Out/T").replace("Ear", "Eye").replace("n: int", "n: int, m: int"),
        [
            "breaking field-added /Out/T: Eye.on_it m [outside]",
            "compatible handler-added /Out/T: Eye.on_it",
            "compatible agent-added Eye",
        ],
    ),
    "the last topic that a pattern matches is gone": (
        say('"/T/A"') + HEAR.format("/T/*"),
        say('"/X/A"') + HEAR.format("/T/*"),
        ["breaking topic-removed /T/A [Ear]", "compatible topic-added /X/A"],
    ),
    "another topic that the pattern matches": (
        say('"/T/A"') + HEAR.format("/T/*"),
        say('"/T/B"') + HEAR.format("/T/*"),
        ["settled topic-removed /T/A", "compatible topic-added /T/B"],
    ),
    "the pattern hears the outside as well": (
        say('"/Out/Sub/A"') + HEAR.format("/Out/**"),
        HEAR.format("/Out/**") + "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/Sub/A [outside]"],
    ),
    "a handler may hear it from the outside all the same": (
        say('"/Out/A"') + HEAR.format("/Out/A"),
        HEAR.format("/Out/A") + "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/A [outside Ear?]"],
    ),
    "the topic is computed now": (
        say('"/T/A"') + HEAR.format("/T/A"),
        say('f"/T/{self.kind}"') + HEAR.format("/T/A"),
        ["compatible topic-removed /T/A (doubt)"],
    ),
    "the computed topic cannot be this one": (
        say('"/T/A"') + HEAR.format("/T/A"),
        say('f"/X/{self.kind}"') + HEAR.format("/T/A"),
        ["breaking topic-removed /T/A [Ear]"],
    ),
    "somebody else computed a topic all along": (
        say('"/T/A"') + HEAR.format("/T/A") + COMPUTED,
        "class A(GraphBusNode): ..." + HEAR.format("/T/A") + COMPUTED,
        ["breaking topic-removed /T/A [Ear?]"],
    ),
    "a pattern takes the place of an external topic": (
        HEAR.format("/Out/T"),
        HEAR.format("/Out/*"),
        ["compatible handler-added /Out/*: Ear.on_it"],
    ),
    "a pattern takes the place of a topic, and needs more": (
        say('"/T/A"') + HEAR.format("/T/A"),
        say('"/T/A"') + HEAR.format("/T/*").replace("n: int", "n: int, m: int"),
        ["breaking field-added /T/A: Ear.on_it m [A]", "compatible handler-added /T/*: Ear.on_it"],
    ),
    "a pattern is narrowed to the only topic": (
        say('"/T/A"') + HEAR.format("/T/*"),
        say('"/T/A"') + HEAR.format("/T/A"),
        ["compatible handler-removed /T/*: Ear.on_it"],
    ),
    "a pattern was what heard an external topic": (
        HEAR.format("/Fixed/*"),
        NOTHING,
        ["breaking handler-removed /Fixed/*: Ear.on_it [outside]"],
    ),
    "a pattern is narrowed, and an external topic is not heard any more": (
        HEAR.format("/Fixed/*"),
        HEAR.format("/Fixed/A"),
        ["breaking handler-removed /Fixed/*: Ear.on_it [outside]"],
    ),
    "a pattern was what answered": (
        ASKER + HEAR.format("/T/*"),
        ASKER + NOTHING,
        ["breaking handler-removed /T/*: Ear.on_it [Asker]"],
    ),
    "two would answer now": (
        ASKER + HEAR.format("/T/Q"),
        ASKER + HEAR.format("/T/Q") + HEAR.format("/T/*").replace("Ear", "Eye"),
        ["breaking handler-added /T/*: Eye.on_it [Asker]", "compatible agent-added Eye"],
    ),
    "another agent answers instead": (
        ASKER + HEAR.format("/T/Q"),
        ASKER + NOTHING + HEAR.format("/T/Q").replace("Ear", "Eye"),
        [
            "compatible handler-removed /T/Q: Ear.on_it",
            "compatible handler-added /T/Q: Eye.on_it",
            "compatible agent-added Eye",
        ],
    ),
    "a payload that was never declared cannot be read any more": (
        say('"/T/A"') + READ,
        say('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        ["compatible schema-unknown /T/A: payload (doubt)"],
    ),
    "a payload is not declared any more": (
        '@publishes("/T/A", {"n": int})' + say('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        say('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        ["breaking schema-unknown /T/A: payload [Reader?]"],
    ),
    "the answer to a request is given": (
        ASK,
        ASK.replace("-> int", "-> str"),
        ["breaking type-changed /Q: Ear.on_it answer [A?]"],
    ),
    "a request that nobody answers any more is broken": (
        ASK,
        ASK.partition("class Ear")[0] + "class Ear(GraphBusNode): ...",
        ["breaking handler-removed /Q: Ear.on_it [A]"],
    ),
    "a change of bodies and comments is none of contracts": (
        ASK,
        ASK.replace("return n", "# twice\n        return n + n"),
        [],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), GRAPHS.values(), ids=[*GRAPHS])
def test_who_is_reached_decides_what_breaks(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert [told(each) for each in changes(tmp_path, old, new)] == expected


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    everything = shop("int") + MAIL + ASK + HEAR.format("/Out/T").replace("Ear", "Eye")
    assert changes(tmp_path, everything, everything) == ()


# --- one schema after the other ------------------------------------------------------------------


SAME = [
    (union(INT, STR), union(STR, INT)),
    (Type("literal", values=("a", "b")), Type("literal", values=("b", "a"))),
    (FLOAT, union(INT, FLOAT)),
]


@pytest.mark.parametrize(("before", "after"), SAME)
def test_types_with_the_same_values_are_no_change(before: Type, after: Type) -> None:
    for one, other in ((before, after), (after, before)):
        assert type_differences(one, other, "input", "x") == type_differences(one, other, "output", "x") == ()


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(("before", "after"), [(INT, UNKNOWN), (UNKNOWN, INT)])
def test_where_one_type_is_not_known_nothing_is_certain(side: Side, before: Type, after: Type) -> None:
    (found,) = type_differences(before, after, side, "x")
    assert (found.is_breaking, found.is_certain) == (False, False)
    assert "known" in found.why


A, B = Field("a", INT), Field("b", STR)
MAYBE = Field("b", STR, required=False)


def kinds(found: tuple[ContractChange, ...]) -> list[tuple[str, str, bool, bool]]:
    return [(each.kind, each.field, each.is_breaking, each.is_certain) for each in found]


CASES = {
    "arguments that were let in are refused": (
        Schema((A,), is_open=True), Schema((A,)), "input", [("fields-closed", "", True, True)]),
    "further arguments are let in": (Schema((A,)), Schema((A,), is_open=True), "input", [("fields-opened", "", False, True)]),
    "a result may hold more": (Schema((A,)), Schema((A,), is_open=True), "output", [("fields-opened", "", False, True)]),
    "a result holds no more": (Schema((A,), is_open=True), Schema((A,)), "output", [("fields-closed", "", False, True)]),
    "a field may still be there": (
        Schema((A, B), is_open=True), Schema((A,), is_open=True), "output", [("field-removed", "b", False, False)]),
    "an argument is still let in": (
        Schema((A, B), is_open=True), Schema((A,), is_open=True), "input", [("field-removed", "b", False, True)]),
    "who gave it already may have given another type": (
        Schema((A,), is_open=True), Schema((A, MAYBE), is_open=True), "input", [("field-added", "b", False, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_listed_is_taken_into_account(case: str) -> None:
    before, after, side, expected = CASES[case]
    assert (
        kinds(schema_differences(before, after, "input" if side == "input" else "output", is_closed=side == "input"))
        == expected
    )


def test_inside_of_containers_of_one_length_the_field_is_named() -> None:
    pair = type_differences(Type("tuple", (INT, STR)), Type("tuple", (INT, INT)), "input", "answer")
    assert kinds(pair) == [("type-changed", "answer[1]", True, True)]
