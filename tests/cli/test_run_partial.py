"""`graphbus run --partial`: agents that cannot start are left out, named and answered for; without it nothing starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project

GOOD = """
    from graphbus_core import GraphBusNode, depends_on, schema_method, subscribe

    @depends_on("Bad")
    class Good(GraphBusNode):
        @subscribe("/Number/Said")
        def on_said(self, n):
            self.log(f"heard {n}")

        @schema_method(input_schema={}, output_schema={"ok": bool})
        def look(self):
            return {"ok": True}

        @schema_method(input_schema={})
        def ask(self):
            self.call("Bad", "look")
    """
BAD = """
    from graphbus_core import GraphBusNode, schema_method, subscribe
    {top}

    class Bad(GraphBusNode):
        {body}

        @subscribe("/Number/Said")
        def on_said(self, n):
            self.log("too late")

        @schema_method(input_schema={{}})
        def look(self):
            pass
    """
WAYS = {
    "a module that does not import": ("raise RuntimeError('no licence')", "", "GBE601", "agents/bad.py:2"),
    "a constructor that raises": ("", "def __init__(self): raise OSError('no disk')", "GBE603", "agents/bad.py:5"),
    "an on_start that raises": ("", "def on_start(self): raise OSError('no disk')", "GBE605", "agents/bad.py:5"),
    "a class that is gone": ("", "", "GBE602", "agents/bad.py"),
}


@pytest.fixture
def graph(project: Project, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    top, body, code, _ = WAYS[request.param]
    bad = BAD.format(top=top, body=body or "x = 1")
    root: Path = project(
        {"pyproject.toml": "[tool.graphbus]\n", "agents/__init__.py": "", "agents/good.py": GOOD, "agents/bad.py": bad}
    )
    build_graph(root / "agents")
    if code == "GBE602":
        (root / "agents/bad.py").write_text("x = 1\n")
    monkeypatch.chdir(root)
    return request.param


@pytest.mark.parametrize("graph", WAYS, indirect=True)
def test_the_others_run_and_the_one_is_named_with_its_line(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, code, place = WAYS[graph]
    status = main(
        ["run", "--partial", "--allow-drift", "--publish", "/Number/Said", '{"n": 1}', "--call", "Good.look", "{}"]
    )
    written = capsys.readouterr()
    assert status == 0, written.err
    assert '{"ok":true}' in written.out
    assert "[Good] heard 1" in written.err
    assert "too late" not in written.err
    assert "[RUNTIME] Left out Bad: " in written.err
    assert place in written.err
    assert code in written.err


@pytest.mark.parametrize("graph", ["an on_start that raises"], indirect=True)
@pytest.mark.parametrize("call", ["Bad.look", "Good.ask"])
def test_a_call_to_it_says_why_it_is_not_there(graph: str, call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--partial", "--allow-drift", "--call", call, "{}"]) == 7
    error = capsys.readouterr().err
    assert "GBE680" in error
    assert "Bad was left out when the graph started: " in error


@pytest.mark.parametrize("graph", WAYS, indirect=True)
def test_without_the_option_nothing_starts(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--allow-drift", "--call", "Good.look", "{}"]) == 7
    written = capsys.readouterr()
    assert "Ready" not in written.out
    assert WAYS[graph][2] in written.err
