"""Schema conflicts: what one agent gives against what another one takes, each by its role."""

from __future__ import annotations

from pathlib import Path

from graphbus_core.compiler.conflicts import detect_conflicts
from tests.reading import HEAD, read_files


def test_both_ends_of_a_broken_edge_are_named_by_their_roles(tmp_path: Path) -> None:
    project = read_files(
        tmp_path,
        {
            "a.py": HEAD
            + """
class Reader(GraphBusNode):
    @subscribe("/T")
    def on_t(self, event): return event["skuu"]
class Sender(GraphBusNode):
    def say(self): self.publish("/T", {"sku": "", "left": 1})
class Lonely(GraphBusNode):
    @subscribe("/Nobody/Says/This")
    def on_it(self, event): pass
"""
        },
    )
    found = detect_conflicts(project)
    assert [(item.code, item.producer, item.consumer) for item in found] == [
        ("GB003", "Sender", "Reader"),
        ("GB001", "", "Lonely"),
    ]
    assert all(item.issue == item.finding.message and item.suggested_fix == item.finding.hint for item in found)


def test_agents_that_fit_have_no_conflict(tmp_path: Path) -> None:
    text = HEAD + "class A(GraphBusNode):\n    def say(self): self.publish('/T', {'x': 1})\n"
    text += "class B(GraphBusNode):\n    @subscribe('/T')\n    def on_t(self, event): return event['x']\n"
    assert detect_conflicts(read_files(tmp_path, {"a.py": text})) == ()
