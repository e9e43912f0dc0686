"""After a change only the agents that it concerns are looked at again. In each row it concerns one that did not change."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.compiler import rules
from graphbus_core.compiler.rules.again import check_again
from tests.reading import HEAD, read_files

HEARS = (
    'class Hears(GraphBusNode):\n    @subscribe("{}")\n    def on_it(self, event):\n        self.log(event["sku"])\n'
)
SENDS = 'class Sends(GraphBusNode):\n    def send(self):\n        self.publish("/Order/Placed", {"sku": 1})\n'
SHAPED = (
    "class {0}(GraphBusNode):\n"
    "    @schema_method({{}}, {{{1}: str}})\n    def run(self) -> dict:\n        return {{{1}: ''}}\n"
)
BASE = (
    "class Base(GraphBusNode):\n    abstract = True\n\n    @schema_method({}, {'sku': int})\n    def run(self) -> dict:\n"
    "        return {}\n"
)
HEIR = "from base import Base\n\n\nclass {}(Base):\n    def other(self):\n        pass\n"

CHANGES = {
    "a key that another one reads is no longer sent": (
        {"a.py": SENDS, "b.py": HEARS.format("/Order/Placed")},
        {"a.py": SENDS.replace("sku", "number")},
    ),
    "a place moves that a finding shows": (
        {"a.py": SENDS, "b.py": HEARS.format("/Order/Plced")},
        {"a.py": f"# moved\n{SENDS}"},
    ),
    "a topic is no longer sent": (
        {"a.py": SENDS, "b.py": HEARS.format("/Order/Placed")},
        {"a.py": SENDS.replace("Placed", "Shipped")},
    ),
    "a topic is no longer sent by an object of another kind": (
        {"a.py": f"{SENDS}        self.bus.emit('/Else/Where')\n", "b.py": HEARS.format("/Else/Where")},
        {"a.py": SENDS},
    ),
    "what a call gives is no longer taken": (
        {
            "a.py": "class Takes(GraphBusNode):\n    @schema_method({'sku': int}, {})\n    def take(self, sku: int) -> dict:\n"
            "        return {}\n",
            "b.py": '@depends_on("Takes")\nclass Calls(GraphBusNode):\n    def go(self):\n'
            '        self.call("Takes", "take", sku=1)\n',
        },
        {
            "a.py": "class Takes(GraphBusNode):\n    @schema_method({'number': int}, {})\n"
            "    def take(self, number: int) -> dict:\n        return {}\n"
        },
    ),
    "most agents report errors in another way": (
        {
            f"{name}.py": SHAPED.format(name.upper(), repr(key))
            for name, key in zip("abc", ["error", "error", "err"], strict=True)
        },
        {"a.py": SHAPED.format("A", repr("err"))},
    ),
    "the first of two heirs has a method of its own": (
        {"base.py": BASE, "a.py": HEIR.format("A"), "b.py": HEIR.format("B")},
        {"a.py": HEIR.format("A") + "\n    @schema_method({}, {})\n    def run(self) -> dict:\n        return {}\n"},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_found_after_a_change_is_what_checking_everything_finds(tmp_path: Path, what: str) -> None:
    files, changed = CHANGES[what]
    before = read_files(tmp_path, {path: f"{HEAD}{text}" for path, text in files.items()})
    after = before.with_files({path: f"{HEAD}{text}".encode() for path, text in changed.items()})
    found, expected = rules.check(before), rules.check(after)
    elsewhere = [[each for each in side if each.span.path not in changed] for side in (found, expected)]
    assert elsewhere[0] != elsewhere[1]
    assert check_again(after, before, found) == expected


def test_who_has_no_edge_to_a_change_is_not_looked_at_again(tmp_path: Path) -> None:
    apart = "class Apart(GraphBusNode):\n    def go(self):\n        try:\n            go()\n"
    apart += "        except Exception:\n            pass\n"
    before = read_files(tmp_path, {"a.py": f"{HEAD}{SENDS}", "b.py": f"{HEAD}{apart}"})
    after = before.with_files({"a.py": f"{HEAD}{SENDS}        return 1\n".encode()})
    found = tuple(replace(each, hint="as it was") for each in rules.check(before))
    again = {(each.agent, each.code): each.hint == "as it was" for each in check_again(after, before, found)}
    assert again == {("Sends", "GB002"): False, ("Apart", "GB303"): True}
