"""Handlers that no event can be given to, and topics that are none: a build refuses what a run would refuse."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from tests.reading import HEAD, read_files


def _read(root: Path, text: str) -> Project:
    return read_files(root, {"a.py": HEAD + dedent(text)})


def _errors(project: Project) -> list[str]:
    return [f"{error.code} {error.where}" for error in project.errors]


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ("@subscribe('/T')\n    def on(self, *args): pass", ["GBE214 a.py:3:16"]),
        ("@subscribe('/T')\n    def on(self, event, *more): pass", ["GBE214 a.py:3:16"]),
        ("@subscribe('/T')\n    def on(self, sku, /): pass", ["GBE214 a.py:3:16"]),
        ("@subscribe('/T')\n    @subscribe('/U')\n    def on(self, *args): pass", ["GBE214 a.py:3:16"]),
        ("SUBSCRIBE = ['/T', '/U']\n    def handle_event(self, event): pass", ["GBE214 a.py:3:18"]),
        ("SUBSCRIBE = ['T']\n    def handle_event(self, topic, payload): pass", ["GBE215 a.py:3:18"]),
        ("@subscribe('no topic')\n    def on(self, event): pass", ["GBE215 a.py:3:16"]),
        ("@subscribe('/T/')\n    def on(self, event): pass", ["GBE215 a.py:3:16"]),
        ("@subscribe('/**/T')\n    def on(self, event): pass", ["GBE215 a.py:3:16"]),
        ("@subscribe('T')\n    def on(self, *args): pass", ["GBE214 a.py:3:16", "GBE215 a.py:3:16"]),
        ("def go(self): self.publish('T', {})", ["GBE216 a.py:3:32"]),
        ("def go(self): self.publish('/T/*', {})", ["GBE216 a.py:3:32"]),
        ("@publishes('/T/**')\n    def go(self): pass", ["GBE216 a.py:3:16"]),
        ("TOPIC = 'T'\n    def go(self): self.publish(self.TOPIC, {})", ["GBE216 a.py:4:32"]),
        ("@subscribe('/T')\n    def on(self, event): pass", []),
        ("@subscribe('/*/T/**')\n    def on(self, sku, **rest): pass", []),
        ("def go(self, topic): self.publish(topic, {})", []),
        ("def go(self, status): self.publish(f'/T/{status}', {})", []),
        ("@subscribe(TOPIC)\n    def on(self, event): pass", []),
    ],
)
def test_what_a_run_would_refuse_is_an_error_of_the_build(tmp_path: Path, body: str, errors: list[str]) -> None:
    assert _errors(_read(tmp_path, f"class A(GraphBusNode):\n    {body}\n")) == errors


def test_what_subclasses_inherit_is_said_once(tmp_path: Path) -> None:
    text = """
    class BaseAgent(GraphBusNode):
        @subscribe("T")
        def on(self, *args): self.publish("U", {})
    class A(BaseAgent): pass
    class B(BaseAgent): pass
    """
    project = _read(tmp_path, text)
    assert _errors(project) == ["GBE214 a.py:4:16", "GBE215 a.py:4:16", "GBE216 a.py:5:39"]
    assert "A.on" in str(project.errors[0])


def test_a_check_says_each_thing_once(tmp_path: Path) -> None:
    text = """
    class A(GraphBusNode):
        @subscribe("T")
        def on(self, event): pass
        @subscribe("/T")
        def all(self, *args): self.publish("U", {})
        def go(self): self.publish("/T", {})
    """
    project = _read(tmp_path, text)
    errors = [(error.code, error.where.line) for error in project.errors if error.where]
    uncovered = [(code, line) for code, line in errors if code not in rules.COVERED_ERRORS]
    found = [(finding.code, finding.span.line) for finding in rules.check(project)]
    assert uncovered == [("GBE216", 7)]
    assert found == [("GB001", 4), ("GB310", 6)]
