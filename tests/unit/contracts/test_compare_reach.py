"""Patterns, computed topics and requests: whom an event reaches decides what a change breaks, not how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.contracts.compare import compare
from graphbus_core.contracts.differences import type_differences
from graphbus_core.contracts.surface import Surface
from graphbus_core.model.config import Settings
from graphbus_core.schema.compatibility import Side
from graphbus_core.schema.types import FLOAT, INT, STR, UNKNOWN, Type, union
from tests.checking import read

SAY = """
class A(GraphBusNode):
    def go(self):
        self.publish({}, {{"n": 1}})
"""
HEAR = """
class Ear(GraphBusNode):
    @subscribe("{}")
    def on_it(self, n: int): ...
"""
COMPUTED = SAY.format("self.topic").replace("A(", "Any(")
ASK = """
class Asker(GraphBusNode):
    def go(self):
        return self.request("/T/Q", {"n": 1})
"""
NOTHING = "class Ear(GraphBusNode): ..."
READ = """
class Reader(GraphBusNode):
    @subscribe("/T/A")
    def on_it(self, event):
        return event["n"]
"""

REACH = {
    "the last topic that a pattern matches is gone": (
        SAY.format('"/T/A"') + HEAR.format("/T/*"),
        SAY.format('"/X/A"') + HEAR.format("/T/*"),
        ["breaking topic-removed /T/A [Ear]", "compatible topic-added /X/A"],
    ),
    "another topic that the pattern matches": (
        SAY.format('"/T/A"') + HEAR.format("/T/*"),
        SAY.format('"/T/B"') + HEAR.format("/T/*"),
        ["settled topic-removed /T/A", "compatible topic-added /T/B"],
    ),
    "the pattern hears the outside as well": (
        SAY.format('"/Out/Sub/A"') + HEAR.format("/Out/**"),
        HEAR.format("/Out/**") + "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/Sub/A [outside]"],
    ),
    "a handler may hear it from the outside all the same": (
        SAY.format('"/Out/A"') + HEAR.format("/Out/A"),
        HEAR.format("/Out/A") + "class A(GraphBusNode): ...",
        ["breaking topic-removed /Out/A [outside Ear?]"],
    ),
    "the topic is computed now": (
        SAY.format('"/T/A"') + HEAR.format("/T/A"),
        SAY.format('f"/T/{self.kind}"') + HEAR.format("/T/A"),
        ["compatible topic-removed /T/A (doubt)"],
    ),
    "the computed topic cannot be this one": (
        SAY.format('"/T/A"') + HEAR.format("/T/A"),
        SAY.format('f"/X/{self.kind}"') + HEAR.format("/T/A"),
        ["breaking topic-removed /T/A [Ear]"],
    ),
    "somebody else computed a topic all along": (
        SAY.format('"/T/A"') + HEAR.format("/T/A") + COMPUTED,
        "class A(GraphBusNode): ..." + HEAR.format("/T/A") + COMPUTED,
        ["breaking topic-removed /T/A [Ear?]"],
    ),
    "a pattern takes the place of an external topic": (
        HEAR.format("/Out/T"),
        HEAR.format("/Out/*"),
        ["compatible handler-added /Out/*: Ear.on_it"],
    ),
    "a pattern takes the place of a topic, and needs more": (
        SAY.format('"/T/A"') + HEAR.format("/T/A"),
        SAY.format('"/T/A"') + HEAR.format("/T/*").replace("n: int", "n: int, m: int"),
        ["breaking field-added /T/A: Ear.on_it m [A]", "compatible handler-added /T/*: Ear.on_it"],
    ),
    "a pattern is narrowed to the only topic": (
        SAY.format('"/T/A"') + HEAR.format("/T/*"),
        SAY.format('"/T/A"') + HEAR.format("/T/A"),
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
        ASK + HEAR.format("/T/*"),
        ASK + NOTHING,
        ["breaking handler-removed /T/*: Ear.on_it [Asker]"],
    ),
    "two would answer now": (
        ASK + HEAR.format("/T/Q"),
        ASK + HEAR.format("/T/Q") + HEAR.format("/T/*").replace("Ear", "Eye"),
        ["breaking handler-added /T/*: Eye.on_it [Asker]", "compatible agent-added Eye"],
    ),
    "another agent answers instead": (
        ASK + HEAR.format("/T/Q"),
        ASK + NOTHING + HEAR.format("/T/Q").replace("Ear", "Eye"),
        [
            "compatible agent-added Eye",
            "compatible handler-added /T/Q: Eye.on_it",
            "compatible handler-removed /T/Q: Ear.on_it",
        ],
    ),
    "a payload that was never declared cannot be read any more": (
        SAY.format('"/T/A"') + READ,
        SAY.format('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        ["compatible schema-unknown /T/A: payload (doubt)"],
    ),
    "a payload is not declared any more": (
        '@publishes("/T/A", {"n": int})' + SAY.format('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        SAY.format('"/T/A"').replace('{"n": 1}', "self.made()") + READ,
        ["breaking schema-unknown /T/A: payload [Reader?]"],
    ),
}


def surface(folder: Path, files: str) -> Surface:
    project = read(folder, files, Settings(external_topics=("/Out/**", "/Fixed/A", "/Fixed/B")))
    return Surface(project.definitions, project.graph.topics)


@pytest.mark.parametrize(("old", "new", "expected"), REACH.values(), ids=[*REACH])
def test_who_is_reached_decides_what_breaks(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    found = compare(surface(tmp_path / "old", old), surface(tmp_path / "new", new))
    told = []
    for change in found:
        ends = ["outside"] * change.breaks_outside
        ends += [f"{broken.agent}{'' if broken.is_certain else '?'}" for broken in change.breaks]
        doubt = "" if change.is_certain else " (doubt)"
        told.append(f"{change.effect} {change.kind} {change.title}{doubt}" + (f" [{' '.join(ends)}]" if ends else ""))
    assert sorted(told) == sorted(expected)


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


@pytest.mark.parametrize(("side", "is_new"), [("input", False), ("output", True)])
def test_an_example_says_whether_it_is_refused_now_or_comes_now(side: Side, *, is_new: bool) -> None:
    one, other = (FLOAT, INT) if side == "input" else (INT, FLOAT)
    (found,) = type_differences(one, other, side, "x")
    assert (found.example, found.is_new_value) == ((0.5,), is_new)
