"""GB003 and GB004: keys that nobody sends, and publishers that send different things."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.model.config import Settings
from tests.checking import assert_marked, fixed, only_finding, read, text_of

PUBLISHER = """
class Stock(GraphBusNode):
    def change(self, sku, count):
        self.publish("/Stock/Changed", {"sku": sku, "in_stock": count})
"""
LISTENER = """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, event):
"""

UNSENT = {
    "a slip": PUBLISHER
    + LISTENER
    + """
        return event["skuu"]  #! GB003
""",
    "said once for several reads": PUBLISHER
    + LISTENER
    + """
        first = event["skuu"]  #! GB003
        return first + event["skuu"]
""",
    "none of two publishers sends it": PUBLISHER
    + """
class Other(GraphBusNode):
    def change(self):
        self.publish("/Stock/Changed", dict(sku="a", in_stock=1))
"""
    + LISTENER
    + """
        return event["count"]  #! GB003
""",
    "a pattern, and no topic that matches sends it": PUBLISHER
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/*")
    def on_change(self, event):
        return event["count"]  #! GB003
""",
}

SENT = {
    "try copes with the absence": PUBLISHER
    + LISTENER
    + """
        try:
            return event["note"]
        except KeyError:
            return None
""",
    "one of two publishers sends it": PUBLISHER
    + """
class Other(GraphBusNode):
    def change(self, payload):
        self.publish("/Stock/Changed", payload)
"""
    + LISTENER
    + """
        return event["note"]
""",
    "the payload is changed before it is sent": """
class Stock(GraphBusNode):
    def change(self, sku):
        payload = {"sku": sku}
        self.decorate(payload)
        self.publish("/Stock/Changed", payload)

    def decorate(self, payload):
        payload["note"] = "x"
"""
    + LISTENER
    + """
        return event["note"]
""",
}


@pytest.mark.parametrize("text", [*UNSENT.values(), *SENT.values()], ids=[*UNSENT, *SENT])
def test_a_key_that_nobody_sends_is_found_and_no_other(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB003")


def test_topics_that_are_fed_from_outside_may_bring_any_key(tmp_path: Path) -> None:
    text = UNSENT["a slip"].replace("#! GB003", "")
    assert_marked(tmp_path, text, "GB003", settings=Settings(external_topics=("/Stock/**",)))


def test_the_publishers_and_what_they_send_are_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, UNSENT["a slip"]), "GB003")
    assert finding.message == "Listener.on_change reads 'skuu', which no publisher of '/Stock/Changed' sends"
    assert finding.hint == "Did you mean 'sku'?"
    assert [each.message for each in finding.related] == ["Stock sends {sku: ?, in_stock: ?}"]


def test_every_read_of_the_key_gets_the_name_that_is_sent(tmp_path: Path) -> None:
    before = read(tmp_path, UNSENT["said once for several reads"])
    assert text_of(fixed(before, "GB003")) == text_of(before).replace('"skuu"', '"sku"')


@pytest.mark.parametrize("key", ["x", "skus_in_stock", "stock"])
def test_a_key_is_not_renamed_on_a_guess(tmp_path: Path, key: str) -> None:
    project = read(tmp_path, UNSENT["a slip"].replace("skuu", key))
    assert rules.fix_for(only_finding(project, "GB003"), project) is None


TWO = """
class One(GraphBusNode):
    def go(self, sku: str, count: int):
        self.publish("/Stock/Changed", {one})

class Two(GraphBusNode):
    def go(self, sku: str, count: int):
        self.publish("/Stock/Changed", {two}){mark}

class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    {listener}
"""


def two(one: str, other: str, listener: str = "def on_change(self, event): ...", *, mark: str = "") -> str:
    text = TWO.replace("{one}", one).replace("{two}", other).replace("{listener}", listener)
    return text.replace("{mark}", f"  #! {mark}" if mark else "")


READS_COUNT = """def on_change(self, event):
        return event["count"]"""
READS_COUNT_SOMETIMES = """def on_change(self, event):
        if event["sku"] == "a":
            return event["count"]"""
READS_COUNT_LATE = """def on_change(self, event):
        if event["sku"] == "a":
            return None
        return event["count"]"""

BOTH = '{"sku": sku, "count": count}'
DISAGREE = {
    "types": two(BOTH, '{"sku": sku, "count": str(count)}', mark="GB004"),
    "names": two(BOTH, '{"sku": sku, "cuont": count}', mark="GB004"),
    "free text is no label": two('{"text": "hello", "value": 1}', '{"text": "bye", "value": "x"}', mark="GB004"),
    "a sentence is no label": two('{"why": "it rains", "value": 1}', '{"why": "it snows", "value": ""}', mark="GB004"),
    "a key that is needed": two(BOTH, '{"sku": sku}', READS_COUNT, mark="GB004"),
    "a key that a parameter needs": two(BOTH, '{"sku": sku}', "def on_change(self, sku, count): ...", mark="GB004"),
    "against the declaration": """
@publishes("/Stock/Changed", {"sku": str, "count": int})
class One(GraphBusNode):
    def go(self, sku):
        self.publish("/Stock/Changed", {"sku": sku})  #! GB004
        self.publish("/Stock/Changed", {"sku": sku, "count": "3"})  #! GB004
        self.publish("/Stock/Changed", {"sku": sku, "coumt": 3})  #! GB004
""",
}

AGREE = {
    "the same": two('{"sku": sku, "count": count}', '{"sku": sku, "count": 3}', READS_COUNT),
    "int and float": two('{"sku": sku, "count": count}', '{"sku": sku, "count": 1.5}'),
    "what is unknown": two('{"sku": sku, "count": count}', '{"sku": sku, "count": self.count()}'),
    "a further key": two('{"sku": sku, "count": count}', '{"sku": sku, "count": count, "note": "x"}'),
    "a key that nobody needs": two('{"sku": sku, "count": count}', '{"sku": sku}'),
    "other keys that nobody needs": two('{"sku": sku, "price": 1}', '{"sku": sku, "note": "x"}'),
    "a key that is needed sometimes": two('{"sku": sku, "count": count}', '{"sku": sku}', READS_COUNT_SOMETIMES),
    "a key that is needed after an exit": two('{"sku": sku, "count": count}', '{"sku": sku}', READS_COUNT_LATE),
    "a key that has a default": two(
        '{"sku": sku, "count": count}', '{"sku": sku}', "def on_change(self, sku, count=0): ..."
    ),
    "payloads with a label": two('{"kind": "a", "value": 1}', '{"kind": "b", "value": "x"}'),
    "payloads with a truth value": two('{"ok": True, "value": 1}', '{"ok": False, "error": "x"}', READS_COUNT_LATE),
    "an open payload": two('{"sku": sku, "count": count}', '{"sku": sku, **self.more()}', READS_COUNT),
    "names that mean different things": two('{"min_price": 1}', '{"max_price": 2}'),
    "a declaration that is kept": """
@publishes("/Stock/Changed", {"sku": str, "count": float})
class One(GraphBusNode):
    def go(self, sku):
        self.publish("/Stock/Changed", {"sku": sku, "count": 3})
        self.publish("/Stock/Changed", {"sku": sku, "count": self.count(), "more": 1})
""",
}


@pytest.mark.parametrize("text", [*DISAGREE.values(), *AGREE.values()], ids=[*DISAGREE, *AGREE])
def test_publishers_that_let_somebody_down_are_found_and_no_others(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB004")


CERTAIN = {
    "a branch on it": ("if event['count']: pass", True),
    "a loop over it": ("for each in event['count']: pass", True),
    "a match of it": ("match event['count']:\n            case _: pass", True),
    "with": ("with self.lock(event['count']): pass", True),
    "the first thing": ("self.log(event['count'])\n        if event['sku']: return", True),
    "a constant key": ("key = 'count'; return event[key]", False),
    "either": ("return event['sku'] or event['count']", False),
    "later": ("return lambda: event['count']", False),
    "in a comprehension": ("return [event['count'] for each in []]", False),
    "with a default": ("return event.get('count')", False),
}


@pytest.mark.parametrize(("body", "is_needed"), CERTAIN.values(), ids=CERTAIN)
def test_a_key_counts_as_needed_only_where_nothing_can_pass_it_by(tmp_path: Path, body: str, is_needed: bool) -> None:
    listener = f"def on_change(self, event):\n        {body}"
    text = two(BOTH, '{"sku": sku}', listener, mark="GB004" if is_needed else "")
    assert_marked(tmp_path, text, "GB004")


NOT_FIXED = {
    "the payload is used for something else": """
class One(GraphBusNode):
    def go(self):
        payload = {"sku": "a", "cuont": 1}
        self.publish("/Stock/Changed", payload)
        return payload
""",
    "another topic of the same handler has the key": """
class One(GraphBusNode):
    def go(self):
        self.publish("/Stock/Changed", {"sku": "a", "cuont": 1})
        self.publish("/Stock/Moved", {"sku": "a", "cuont": 1})
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed", "/Stock/Moved")
    def on_change(self, event):
        print(event["cuont"])
""",
    "the key is written in two parts": """
class One(GraphBusNode):
    def go(self):
        self.publish("/Stock/Changed", {"sku": "a", "cu" "ont": 1})
""",
}


@pytest.mark.parametrize("text", NOT_FIXED.values(), ids=NOT_FIXED)
def test_a_key_that_is_sent_is_not_renamed_on_a_guess(tmp_path: Path, text: str) -> None:
    declared = '@publishes("/Stock/Changed", {"sku": str, "count": int})\nclass Two(GraphBusNode): ...\n'
    assert not only_finding(read(tmp_path, declared + text), "GB004").is_fixable


MADE = {
    "by dict": 'self.publish("/Stock/Changed", dict(sku="a", cuont=1))',
    "by a local name": 'payload = {"sku": "a", "cuont": 1}; self.publish("/Stock/Changed", payload)',
}


@pytest.mark.parametrize("body", MADE.values(), ids=MADE)
def test_a_key_is_renamed_where_the_payload_is_made(tmp_path: Path, body: str) -> None:
    declared = '@publishes("/Stock/Changed", {"sku": str, "count": int})\nclass Two(GraphBusNode): ...\n'
    before = read(tmp_path, f"{declared}class One(GraphBusNode):\n    def go(self):\n        {body}\n")
    assert text_of(fixed(before, "GB004")) == text_of(before).replace("cuont", "count")


def test_the_odd_name_becomes_that_of_the_others(tmp_path: Path) -> None:
    before = read(tmp_path, DISAGREE["names"])
    finding = only_finding(before, "GB004")
    assert finding.message == "Two sends 'cuont' to '/Stock/Changed', but One sends 'count'"
    assert text_of(fixed(before, "GB004")) == text_of(before).replace('"cuont"', '"count"')
    assert rules.fix_for(finding, before).affects == ("Listener", "One")


def test_the_name_that_a_handler_needs_wins(tmp_path: Path) -> None:
    text = two('{"sku": sku, "cuont": count}', '{"sku": sku, "count": count}', READS_COUNT)
    before = read(tmp_path, text)
    finding = only_finding(before, "GB004")
    assert (finding.agent, finding.data) == ("One", {"old": "cuont", "new": "count"})
    assert text_of(fixed(before, "GB004")) == text_of(before).replace('"cuont"', '"count"')


def test_the_name_of_the_declaration_wins(tmp_path: Path) -> None:
    text = """
@publishes("/Stock/Changed", {"sku": str, "count": int})
class One(GraphBusNode):
    def go(self, sku):
        self.publish("/Stock/Changed", {"sku": sku, "coumt": 3})
"""
    before = read(tmp_path, text)
    assert text_of(fixed(before, "GB004")) == text_of(before).replace('"coumt"', '"count"')


RECORDS = """
@dataclass
class Guest:
    table: int


class Line(TypedDict):
    dish: str


class Bill(TypedDict):
    guest: Guest
    lines: list[Line]


class Till(GraphBusNode):
    def close(self, bill: Bill) -> None:
        self.publish("/Bill", bill)


class Waiter(GraphBusNode):
    @subscribe("/Bill")
    def on_bill(self, bill: Bill) -> None:
        return {read}
"""


@pytest.mark.parametrize(
    ("read_there", "hint", "after"),
    [
        ('bill["guest"].tabel', "Did you mean 'table'?", 'bill["guest"].table'),
        (
            '[line["dihs"] for line in bill["lines"]]',
            "Did you mean 'dish'?",
            '[line["dish"] for line in bill["lines"]]',
        ),
        ("bill.lines", 'Write `["lines"]`.', 'bill["lines"]'),
        ('bill["guest"]["table"]', "Write `.table`.", 'bill["guest"].table'),
    ],
)
def test_a_part_of_a_record_gets_its_name_and_its_kind_of_access(
    tmp_path: Path, read_there: str, hint: str, after: str
) -> None:
    head = "from dataclasses import dataclass\nfrom typing import TypedDict\n"
    text = head + RECORDS.replace("{read}", read_there)
    project = read(tmp_path, text)
    assert only_finding(project, "GB003").hint == hint
    assert f"return {after}\n" in text_of(fixed(project, "GB003"))
