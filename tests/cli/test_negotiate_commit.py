"""`graphbus negotiate --commit` from end to end, with rule agents and a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.unit.editing.git_project import git, make_repository

FILES = {
    ".gitignore": ".graphbus/\n__pycache__/\n",
    "pyproject.toml": '[tool.graphbus]\n[tool.graphbus.llm]\nmodel = "rules"\n[tool.graphbus.gate]\nisolation = "process"\n',
    "agents/__init__.py": "",
    "agents/stock.py": """
        from graphbus_core import GraphBusNode

        class Stock(GraphBusNode):
            def count(self) -> None:
                self.publish("/Stock/Counted", {"sku": "mug", "left": 3})
        """,
    "agents/report.py": """
        from graphbus_core import GraphBusNode, depends_on, subscribe

        @depends_on("Stock")
        class Report(GraphBusNode):
            @subscribe("/Stock/Counted")
            def on_counted(self, event):
                self.log(event["skuu"])
        """,
}
COMMAND = ("negotiate", "agents", "--commit", "--unsafe-verify")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    root = make_repository(tmp_path / "shop", FILES)
    monkeypatch.chdir(root)
    return root


@pytest.mark.slow
def test_what_was_agreed_is_written_committed_and_explained(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-2:] == [
        "  Who agreed to what: graphbus inspect-negotiation; as a page: graphbus report",
        "  Take it back: graphbus undo",
    ]
    commit = git(shop, "rev-parse", "HEAD").strip()
    assert f"✓ Committed: {commit[:10]} Read 'sku' instead of 'skuu'" in said
    assert git(shop, "log", "-1", "--format=%s").startswith("fix(Report): read 'sku' instead of 'skuu'")
    assert git(shop, "status", "--porcelain") == ""
    trailers = git(shop, "log", "-1", "--format=%(trailers:only)")
    assert "GraphBus-Consensus: unanimous (Stock)" in trailers
    assert "GraphBus-Model: rules" in trailers
    line = (shop / "agents/report.py").read_text().splitlines().index('        self.log(event["sku"])') + 1
    assert main(["why", f"agents/report.py:{line}"]) == 0
    assert commit in capsys.readouterr().out
    git(shop, "revert", "--no-edit", commit)
    assert 'event["skuu"]' in (shop / "agents/report.py").read_text()


def test_without_a_name_no_agent_is_asked(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(shop, "config", "--unset", "user.email")
    assert main(COMMAND) == 5
    captured = capsys.readouterr()
    assert "[GBE433]" in captured.err
    assert "[AGENT]" not in captured.out
    assert not (shop / ".graphbus/sessions/S001").exists()


def test_a_dry_run_makes_no_commit(shop: Path) -> None:
    git(shop, "config", "--unset", "user.email")
    assert main((*COMMAND, "--dry-run")) == 0
    assert git(shop, "log", "--format=%s").splitlines() == ["begin"]
