"""What has changed between two states of a graph, in which direction, and whom it lets down."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.contracts.changes import Change
from graphbus_core.contracts.compare import compare
from graphbus_core.contracts.surface import Surface
from graphbus_core.model.config import Settings
from tests.checking import Files, read

EXTERNAL = Settings(external_topics=("/Out/*",))


def surface(folder: Path, files: Files) -> Surface:
    project = read(folder, files, EXTERNAL)
    return Surface(project.definitions, project.graph.topics)


def changes(tmp_path: Path, old: Files, new: Files) -> tuple[Change, ...]:
    return compare(surface(tmp_path / "old", old), surface(tmp_path / "new", new))


def told(change: Change) -> str:
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


INPUTS = {
    "a field that may be left out is new": (
        '{"sku": str}',
        '{"sku": str, "note": NotRequired[str]}',
        "compatible field-added Stock.take: input note",
    ),
    "a field may be left out now": (
        '{"n": int}',
        '{"n": NotRequired[int]}',
        "compatible field-optional Stock.take: input n",
    ),
    "a field may no longer be left out": (
        '{"n": NotRequired[int]}',
        '{"n": int}',
        "breaking field-required Stock.take: input n [outside]",
    ),
    "a field has to be given now": (
        '{"sku": str}',
        '{"sku": str, "qty": int}',
        "breaking field-added Stock.take: input qty [outside]",
    ),
    "a field is gone": (
        '{"sku": str, "qty": int}',
        '{"sku": str}',
        "breaking field-removed Stock.take: input qty [outside]",
    ),
    "a field has another name": (
        '{"sku": str}',
        '{"code": str}',
        "breaking field-renamed Stock.take: input sku [outside]",
    ),
    "it takes more": ('{"qty": int}', '{"qty": float}', "compatible type-changed Stock.take: input qty"),
    "it takes less": ('{"qty": float}', '{"qty": int}', "breaking type-changed Stock.take: input qty [outside]"),
    "it takes None as well": ('{"qty": int}', '{"qty": int | None}', "compatible type-changed Stock.take: input qty"),
    "one word more": (
        '{"size": Literal["s"]}',
        '{"size": Literal["s", "l"]}',
        "compatible type-changed Stock.take: input size",
    ),
    "words for a text": (
        '{"size": str}',
        '{"size": Literal["s"]}',
        "breaking type-changed Stock.take: input size [outside]",
    ),
    "deep inside, less": (
        '{"items": [{"sku": str, "qty": int | None}]}',
        '{"items": [{"sku": str, "qty": int}]}',
        "breaking type-changed Stock.take: input items[].qty [outside]",
    ),
    "deep inside, a field is not looked at": (
        '{"items": [{"sku": str, "qty": int}]}',
        '{"items": [{"sku": str}]}',
        "compatible field-removed Stock.take: input items[].qty",
    ),
    "in the values of a mapping": (
        '{"by": dict[str, float]}',
        '{"by": dict[str, int]}',
        "breaking type-changed Stock.take: input by.* [outside]",
    ),
    "it was not known": ('{"sku": Money}', '{"sku": str}', "compatible type-changed Stock.take: input sku (doubt)"),
    "it is not known any more": (
        '{"sku": str}',
        '{"sku": Money}',
        "compatible type-changed Stock.take: input sku (doubt)",
    ),
    "anything was taken": ('{"sku": object}', '{"sku": str}', "breaking type-changed Stock.take: input sku [outside]"),
    "another class of the same fields": ('{"a": {"x": int}}', '{"a": {"x": int}}', ""),
}


@pytest.mark.parametrize(("before", "after", "expected"), INPUTS.values(), ids=[*INPUTS])
def test_arguments_may_be_taken_in_more_ways_and_never_in_fewer(
    before: str, after: str, expected: str, tmp_path: Path
) -> None:
    head = "from typing import Literal, NotRequired\nfrom elsewhere import Money\n"
    found = [told(each) for each in changes(tmp_path, head + method(before), head + method(after))]
    assert found == ([expected] if expected else [])


OUTPUTS = {
    "a field is new": ('{"n": int}', '{"n": int, "m": str}', "compatible field-added Stock.take: output m"),
    "a field is gone": ('{"n": int, "m": str}', '{"n": int}', "breaking field-removed Stock.take: output m [outside]"),
    "it gives less": ('{"n": float}', '{"n": int}', "compatible type-changed Stock.take: output n"),
    "it gives more": ('{"n": int}', '{"n": int | None}', "breaking type-changed Stock.take: output n [outside]"),
    "what was promised is gone": ('{"n": int}', "make()", "breaking schema-unknown Stock.take: output [outside]"),
    "a promise is new": ("make()", '{"n": int}', "compatible schema-known Stock.take: output (doubt)"),
}


@pytest.mark.parametrize(("before", "after", "expected"), OUTPUTS.values(), ids=[*OUTPUTS])
def test_results_may_promise_more_and_never_less(before: str, after: str, expected: str, tmp_path: Path) -> None:
    found = changes(tmp_path, method("{}", before), method("{}", after))
    assert [told(each) for each in found] == [expected]


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


def test_a_payload_with_other_values_may_break_a_handler_that_did_not_change(tmp_path: Path) -> None:
    found = changes(tmp_path, shop("int") + MAIL, shop("int | str") + MAIL)
    assert [told(each) for each in found] == ["breaking type-changed /Order/Sold: payload qty [Mail?]"]
    assert found[0].example == ("text",)


def test_a_change_that_every_end_has_made_with_it_breaks_nobody(tmp_path: Path) -> None:
    new = shop("int").replace("qty", "count") + MAIL.replace("qty", "count")
    found = changes(tmp_path, shop("int") + MAIL, new)
    assert [(told(each), each.is_breaking) for each in found if each.part == "payload"] == [
        ("settled field-renamed /Order/Sold: payload qty", True)
    ]
    assert not any(each.effect == "breaking" for each in found)


def test_the_same_change_of_an_external_topic_breaks_those_outside(tmp_path: Path) -> None:
    old = shop("int", "/Out/Sold") + MAIL.replace("/Order", "/Out")
    found = changes(tmp_path, old, old.replace("qty", "count"))
    assert "breaking field-renamed /Out/Sold: payload qty [outside]" in [told(each) for each in found]


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
        "breaking field-renamed Stock.take: output left [outside Shop?]",
    ),
    "the method is gone": (
        method('{"sku": str}') + CALLER.format("sku=sku"),
        method('{"sku": str}').replace("take", "fetch") + CALLER.format("sku=sku"),
        "breaking method-removed Stock.take [outside Shop]",
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), CALLS.values(), ids=[*CALLS])
def test_calls_that_a_change_lets_down_are_named(old: str, new: str, expected: str, tmp_path: Path) -> None:
    found = [told(each) for each in changes(tmp_path, old, new)]
    assert expected in found


AGENTS = {
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
        ["breaking agent-renamed Stock [outside]"],
    ),
    "an agent has another name, and everybody knows": (
        MAIL,
        MAIL.replace("Mail", "Post"),
        ["settled agent-renamed Mail"],
    ),
    "a dependency is new": (
        method("{}") + "class Shop(GraphBusNode): ...",
        method("{}") + '@depends_on("Stock")\nclass Shop(GraphBusNode): ...',
        ["compatible dependency-added Shop"],
    ),
    "a dependency is gone, a call is not": (
        method("{}") + CALLER.format(""),
        method("{}") + CALLER.format("").replace('@depends_on("Stock")\n', ""),
        ["breaking dependency-removed Shop [Shop]"],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), AGENTS.values(), ids=[*AGENTS])
def test_agents_come_and_go(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert [told(each) for each in changes(tmp_path, old, new)] == expected


SAY = """
class {}(GraphBusNode):
    def go(self):
        self.publish("{}", {{"n": 1}})
"""
HEAR = """
class Ear(GraphBusNode):
    @subscribe("{}")
    def on_it(self, n: int): ...
"""

TOPICS = {
    "nobody publishes it any more": (
        SAY.format("A", "/T") + HEAR.format("/T"),
        "class A(GraphBusNode): ...\n" + HEAR.format("/T"),
        ["breaking topic-removed /T [Ear]"],
    ),
    "nobody has heard it": (SAY.format("A", "/T"), "class A(GraphBusNode): ...", ["settled topic-removed /T"]),
    "it was for others": (
        SAY.format("A", "/Out/T"),
        "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/T [outside]"],
    ),
    "somebody else still does": (
        SAY.format("A", "/T") + SAY.format("B", "/T"),
        "class A(GraphBusNode): ...\n" + SAY.format("B", "/T"),
        ["compatible publisher-removed /T: A"],
    ),
    "a topic is new": ("class A(GraphBusNode): ...", SAY.format("A", "/T"), ["compatible topic-added /T"]),
    "what others publish is no longer handled": (
        HEAR.format("/Out/T"),
        "class Ear(GraphBusNode): ...",
        ["breaking handler-removed /Out/T: Ear.on_it [outside]"],
    ),
    "what the graph publishes is no longer handled": (
        SAY.format("A", "/T") + HEAR.format("/T"),
        SAY.format("A", "/T") + "class Ear(GraphBusNode): ...",
        ["compatible handler-removed /T: Ear.on_it"],
    ),
    "a handler needs what nobody sends": (
        SAY.format("A", "/T") + HEAR.format("/T"),
        SAY.format("A", "/T") + HEAR.format("/T").replace("n: int", "n: int, m: int"),
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
}


@pytest.mark.parametrize(("old", "new", "expected"), TOPICS.values(), ids=[*TOPICS])
def test_topics_come_and_go(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert [told(each) for each in changes(tmp_path, old, new)] == expected


ASK = """
class A(GraphBusNode):
    def go(self):
        return self.request("/Q", {"n": 1})
class Ear(GraphBusNode):
    @subscribe("/Q")
    def on_it(self, n: int) -> int:
        return n
"""


def test_the_answer_to_a_request_is_given(tmp_path: Path) -> None:
    found = changes(tmp_path, ASK, ASK.replace("-> int", "-> str"))
    assert [told(each) for each in found] == ["breaking type-changed /Q: Ear.on_it answer [A?]"]


def test_a_request_that_nobody_answers_any_more_is_broken(tmp_path: Path) -> None:
    found = changes(tmp_path, ASK, ASK.partition("class Ear")[0] + "class Ear(GraphBusNode): ...")
    assert [told(each) for each in found] == ["breaking handler-removed /Q: Ear.on_it [A]"]


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    everything = shop("int") + MAIL + ASK + HEAR.format("/Out/T").replace("Ear", "Eye")
    assert changes(tmp_path, everything, everything) == ()


def test_a_change_of_bodies_and_comments_is_none_of_contracts(tmp_path: Path) -> None:
    assert changes(tmp_path, ASK, ASK.replace("return n", "# twice\n        return n + n")) == ()
