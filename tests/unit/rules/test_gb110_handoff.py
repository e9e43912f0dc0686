"""GB110: what one agent gives does not fit what another takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import Files, apply_fix, assert_marked, fixed, only_finding, read, text_of

STOCK = """
class Stock(GraphBusNode):
    def change(self, sku: str, count: int):
        self.publish("/Stock/Changed", {"sku": sku, "count": count})
"""

EVENTS_WRONG = {
    "a parameter that nobody sends": STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, skuu, count): ...  #! GB110
""",
    "a parameter of another type": STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, sku: str, count: str): ...  #! GB110
""",
    "a typed payload with a field that nobody sends": """
from dataclasses import dataclass
@dataclass
class Changed:
    sku: str
    in_stock: int
"""
    + STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")  #! GB110
    def on_change(self, change: Changed): ...
""",
}

EVENTS_RIGHT = {
    "a pydantic alias": """
from pydantic import BaseModel, Field
class Changed(BaseModel):
    stock_code: str = Field(alias="sku")
"""
    + STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, change: Changed): ...
""",
    "a msgspec name": """
import msgspec
class Changed(msgspec.Struct):
    stock_code: str = msgspec.field(name="sku")
"""
    + STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, change: Changed): ...
""",
    "a typed payload with an optional field": """
from typing import NotRequired, TypedDict
class Changed(TypedDict):
    sku: str
    note: NotRequired[str]
"""
    + STOCK
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, change: Changed):
        return change["sku"]
""",
    "a class of another package": STOCK
    + """
from models import Changed
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, change: Changed): ...
""",
}

ORDERS = """
@depends_on("Stock")
class Orders(GraphBusNode):
    def go(self, sku: str, count: int):
        return self.call({call})
class Stock(GraphBusNode):
    @schema_method({"sku": str, "qty": int}, {"ok": bool})
    def reserve(self, sku: str, qty: int) -> dict:
        return {"ok": True}
    def helper(self): ...
"""


def calling(text: str, *, mark: str = "") -> str:
    return ORDERS.replace("{call})", text + ")" + (f"  #! {mark}" if mark else ""))


CALLS_WRONG = {
    "another name": calling('"Stock", "reserve", sku=sku, quantity=count', mark="GB110"),
    "a missing argument": calling('"Stock", "reserve", sku=sku', mark="GB110"),
    "an argument too many": calling('"Stock", "reserve", sku=sku, qty=count, note="x"', mark="GB110"),
    "another type": calling('"Stock", "reserve", sku=sku, qty="3"', mark="GB110"),
    "no such method": calling('"Stock", "reserv", sku=sku, qty=count', mark="GB110"),
    "a method without schema": calling('"Stock", "helper"', mark="GB110"),
}

CALLS_RIGHT = {
    "what is declared": calling('"Stock", "reserve", sku=sku, qty=count'),
    "by way of **": calling('"Stock", "reserve", **self.arguments()'),
    "a computed method": calling('"Stock", self.method(), skuu=1'),
    "unknown values": calling('"Stock", "reserve", sku=self.sku(), qty=self.qty()'),
}

HELLO = """
class Hello(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"message": str})
    def generate_message(self) -> dict:
        return {"message": "Hello"}
"""
PRINTER = """
@depends_on("Hello")
class Printer(GraphBusNode):
    @schema_method(input_schema={"msg": str}, output_schema={"printed": bool})
    def print_message(self, msg: str) -> dict:{mark}
        print(msg)
        return {"printed": True}
"""
SEED = HELLO + PRINTER.replace("{mark}", "  #! GB110")
QUIET = PRINTER.replace("{mark}", "")

HANDED_ON_WRONG = {
    "the consumer depends on the producer": SEED,
    "a short form among more fields": HELLO.replace('"message": str', '"user_message": str, "at": float')
    + QUIET.replace('"msg": str}', '"user_msg": str, "at": float}').replace(
        "msg: str) -> dict:", "user_msg: str, at: float) -> dict:  #! GB110"
    ),
    "the producer depends on the consumer": ('@depends_on("Printer")' + HELLO).replace(
        ")\nclass Hello", ")\nclass Hello"
    )
    + PRINTER.replace("{mark}", "  #! GB110").replace('@depends_on("Hello")', ""),
}

HANDED_ON_RIGHT = {
    "the same names": HELLO + QUIET.replace("msg", "message"),
    "no dependency between them": HELLO + QUIET.replace('@depends_on("Hello")', ""),
    "names that are not near": HELLO + QUIET.replace("msg", "text"),
    "other types": HELLO + QUIET.replace("msg: str", "msg: int").replace('"msg": str', '"msg": int'),
    "more fields": HELLO.replace('"message": str', '"message": str, "at": float') + QUIET,
    "a call shows where the input comes from": HELLO
    + QUIET
    + """
@depends_on("Printer")
class Other(GraphBusNode):
    def go(self):
        self.call("Printer", "print_message", msg="x")
""",
    "an unknown type": HELLO.replace("str", "Any") + QUIET,
    "one and many": HELLO + QUIET.replace("msg", "messages"),
    "order and order_id": HELLO.replace("message", "order_id") + QUIET.replace("msg", "order"),
}

WRONG = {**EVENTS_WRONG, **CALLS_WRONG, **HANDED_ON_WRONG}
RIGHT = {**EVENTS_RIGHT, **CALLS_RIGHT, **HANDED_ON_RIGHT}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_its_taker_is_found(tmp_path: Path, text: Files) -> None:
    assert_marked(tmp_path, text, "GB110")


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_fits_or_may_fit_its_taker_is_left_alone(tmp_path: Path, text: Files) -> None:
    assert_marked(tmp_path, text, "GB110")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EVENTS_WRONG["a parameter that nobody sends"],
         "Listener.on_change needs 'skuu', which no publisher of '/Stock/Changed' sends"),
        (EVENTS_WRONG["a parameter of another type"],
         "Listener.on_change takes 'count' of '/Stock/Changed' from Stock, but str is wanted, int is given"),
        (CALLS_WRONG["another name"], "Orders gives Stock.reserve 'quantity' instead of 'qty'"),
        (CALLS_WRONG["a missing argument"], "Orders gives Stock.reserve no 'qty'"),
        (CALLS_WRONG["an argument too many"], "Orders gives Stock.reserve 'note', which it does not take"),
        (CALLS_WRONG["another type"], "Orders gives Stock.reserve an unfit 'qty': int is wanted, str is given"),
        (CALLS_WRONG["no such method"], "Orders calls Stock.reserv, but Stock has no method 'reserv'"),
        (CALLS_WRONG["a method without schema"], "Orders calls Stock.helper, but Stock.helper has no @schema_method"),
        (SEED, "Printer.print_message takes 'msg' where Hello.generate_message gives 'message'"),
    ],
    ids=str,
)  # fmt: skip
def test_both_ends_are_named(tmp_path: Path, text: str, message: str) -> None:
    finding = only_finding(read(tmp_path, text), "GB110")
    assert finding.message == message
    assert [each.agent for each in finding.related] != []


def test_the_consumers_parameter_is_renamed_with_its_field_and_its_uses(tmp_path: Path) -> None:
    before = read(tmp_path, SEED)
    after = fixed(before, "GB110")
    assert text_of(after) == text_of(before).replace('"msg": str', '"message": str').replace("msg: str", "message: str").replace(
        "print(msg)", "print(message)"
    )  # fmt: skip
    fix = rules.fix_for(only_finding(before, "GB110"), before)
    assert (fix.is_safe, fix.affects) == (False, ("Hello",))


DECORATED = '@schema_method(input_schema={"msg": str}, output_schema={"printed": bool})'
CONSUMERS = {
    "the schema stands elsewhere": ('@schema_method(INPUT, {"printed": bool})', False),
    "another decorator is above": (f"@noted\n    {DECORATED}", True),
    "a called decorator is above": (f'@noted("x")\n    {DECORATED}', True),
    "the schema is the first argument": ('@schema_method({"msg": str}, {"printed": bool})', True),
    "the schema comes last": ('@schema_method(output_schema={"printed": bool}, input_schema={"msg": str})', True),
}


@pytest.mark.parametrize(("decorated", "is_fixable"), CONSUMERS.values(), ids=CONSUMERS)
def test_a_consumer_is_renamed_where_its_schema_is_written(tmp_path: Path, decorated: str, is_fixable: bool) -> None:
    assert DECORATED in SEED
    before = read(tmp_path, 'INPUT = {"msg": str}\n' + SEED.replace(DECORATED, decorated))
    assert only_finding(before, "GB110").is_fixable == is_fixable
    if is_fixable:
        assert '"message": str' in text_of(fixed(before, "GB110")).partition("class Printer")[2]


@pytest.mark.parametrize("call", ["another name", "no such method"])
def test_a_call_is_written_as_it_is_declared(tmp_path: Path, call: str) -> None:
    before = read(tmp_path, CALLS_WRONG[call])
    expected = text_of(before).replace("quantity=count", "qty=count").replace('"reserv"', '"reserve"')
    assert text_of(fixed(before, "GB110")) == expected


OTHER_CALLER = """
@depends_on("Stock")
class Other(GraphBusNode):
    def go(self):
        return self.call("Stock", "reserve", sku="a", {argument}=1)
"""


def test_the_callee_is_renamed_when_several_agents_agree_on_another_name(tmp_path: Path) -> None:
    before = read(tmp_path, CALLS_WRONG["another name"] + OTHER_CALLER.replace("{argument}", "quantity"))
    findings = rules.check(before, select=["GB110"])
    assert [each.agent for each in findings] == ["Orders", "Other"]
    fixes = [rules.fix_for(finding, before) for finding in findings]
    expected = text_of(before).replace('"qty": int', '"quantity": int').replace("qty: int", "quantity: int")
    assert {text_of(apply_fix(before, fix)) for fix in fixes} == {expected}


def test_a_handler_is_not_renamed_to_what_means_the_whole_payload(tmp_path: Path) -> None:
    text = """
class Stock(GraphBusNode):
    def change(self):
        self.publish("/Stock/Changed", {"data": 1})
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, datas): ...
"""
    assert not only_finding(read(tmp_path, text), "GB110").is_fixable


@pytest.mark.parametrize(
    ("given", "taken"),
    [("message", "massage"), ("name", "nane"), ("orderId", "order_id"), ("description", "desc"), ("user", "username")],
)
def test_a_dependency_and_names_that_are_alike_are_a_note_and_nothing_is_renamed(
    tmp_path: Path, given: str, taken: str
) -> None:
    text = HELLO.replace("message", given) + QUIET.replace("msg", taken)
    finding = only_finding(read(tmp_path, text), "GB110")
    assert (finding.severity, finding.is_fixable) == ("info", False)
    assert finding.hint == f"If the one feeds the other, give both the same name, {given!r}."


@pytest.mark.parametrize("short", ["msg", "msgs"])
def test_a_short_form_along_a_dependency_is_evidence(tmp_path: Path, short: str) -> None:
    text = HELLO.replace("message", "messages" if short == "msgs" else "message") + QUIET.replace("msg", short)
    finding = only_finding(read(tmp_path, text), "GB110")
    assert (finding.severity, finding.is_fixable) == ("warning", True)


UNSEEN_CALLERS = {
    "a call with **": ('"Stock", "reserve", **self.arguments()', ""),
    "a computed method": ('"Stock", self.method(), qty=1', ""),
    "a computed agent": ('self.agent(), "reserve", qty=1', ""),
    "another file": ('"Stock", "helper"', 'graph.call("Stock", "reserve", sku="a", qty=1)\n'),
    "a dict in another file": ('"Stock", "helper"', 'graph.call("Stock", "reserve", **given)\n'),
}


@pytest.mark.parametrize(("target", "main"), UNSEEN_CALLERS.values(), ids=UNSEEN_CALLERS)
def test_the_callee_is_not_renamed_while_others_may_pass_the_declared_name(
    tmp_path: Path, target: str, main: str
) -> None:
    other = f"""
@depends_on("Stock")
class Third(GraphBusNode):
    def go(self):
        return self.call({target})
"""
    text = CALLS_WRONG["another name"] + OTHER_CALLER.replace("{argument}", "quantity") + other
    findings = rules.check(read(tmp_path, {"agents.py": text, "main.py": main}), select=["GB110"])
    assert [each.is_fixable for each in findings if "'quantity' instead of" in each.message] == [False, False]


TAKEN_FROM_A_TOPIC = {
    "fields of what has none": ("list[str]", "name: str, more: str", "'name' is taken for a field of the payload; "
                                "take one parameter 'payload' to get all of it."),
    "a field that is not there": ("Sold", "names: list[str]", "The Topic has sku, qty."),
    "another class": ("list[str]", "payload: Sold", "Annotate the parameter with list[str], or correct the Topic."),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "parameter", "hint"), TAKEN_FROM_A_TOPIC.values(), ids=TAKEN_FROM_A_TOPIC)
def test_a_handler_that_does_not_take_what_its_topic_holds_is_told_how(
    tmp_path: Path, kind: str, parameter: str, hint: str
) -> None:
    text = f"""
from typing import TypedDict
from graphbus_core import Topic
class Sold(TypedDict):
    sku: str
    qty: int
SOLD = Topic("/Sold", {kind})
class Listener(GraphBusNode):
    @subscribe(SOLD)
    def on_sold(self, {parameter}): ...
"""
    found = rules.check(read(tmp_path, text), select=["GB110"])
    assert hint in [each.hint for each in found]


def test_a_handler_may_take_a_whole_list_under_any_name(tmp_path: Path) -> None:
    text = """
from graphbus_core import Topic
SOLD = Topic("/Sold", list[str])
class Shop(GraphBusNode):
    def sell(self):
        self.publish(SOLD, ["mug"])
class Listener(GraphBusNode):
    @subscribe(SOLD)
    def on_sold(self, names: {kind}): ...
"""
    assert rules.check(read(tmp_path, text.replace("{kind}", "list[str]")), select=["GB110"]) == ()
    found = rules.check(read(tmp_path, text.replace("{kind}", "int")), select=["GB110"])
    assert any("takes what the Topic" in each.message for each in found)
