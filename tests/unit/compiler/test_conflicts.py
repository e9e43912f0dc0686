"""Schema conflicts: what one agent gives against what another one takes, each by its role."""

from __future__ import annotations

from pathlib import Path

from graphbus_core.compiler.rules import check
from graphbus_core.compiler.rules.edges import check_reads
from graphbus_core.compiler.stages import detect_conflicts
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


def test_a_rule_is_asked_once_and_finds_the_same_for_conflicts_and_for_everything(tmp_path: Path) -> None:
    text = HEAD + 'class Reader(GraphBusNode):\n    @subscribe("/T")\n    def on_t(self, event): return event["skuu"]\n'
    text += 'class Sender(GraphBusNode):\n    def say(self): self.publish("/T", {"sku": ""})\n'
    project = read_files(tmp_path, {"a.py": text})
    first = project.wiring.findings_of(check_reads)
    conflicts = [item.finding for item in detect_conflicts(project) if item.code == "GB003"]
    assert first
    assert project.wiring.findings_of(check_reads) is first
    assert check(project, wiring=project.wiring) == check(project)
    assert [finding.message for finding in conflicts] == [finding.message for finding in first]
