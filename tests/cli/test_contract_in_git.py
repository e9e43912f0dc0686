"""`graphbus contract` in repositories as they are: shallow, without a common past, below a folder, with odd names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from graphbus_core.cli import main

AGENT = """
from graphbus_core import GraphBusNode, schema_method

class Stock(GraphBusNode):
    @schema_method({"sku": str}, {"left": int})
    def take(self, sku: str) -> dict[str, int]:
        return {"left": 3}
"""
WIDER = AGENT.replace('"left": int', '"left": int, "sku": str').replace('"left": 3', '"left": 3, "sku": sku')


def git(*arguments: str) -> str:
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *person, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project below the top of a repository, on main; the working directory is the project."""
    project = tmp_path / "repo" / "service"
    (project / "agents").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "service"\nversion = "1.0.0"\n', encoding="utf-8")
    monkeypatch.chdir(project)
    git("init", "-q", "-b", "main", "..")
    git("add", "-A")
    git("commit", "-qm", "No agents yet", "--allow-empty")
    (project / "agents" / "stock.py").write_text(AGENT, encoding="utf-8")
    git("add", "-A")
    git("commit", "-qm", "Agents")
    return project


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[str]]:
    """What it calls the old state, and the kinds of changes."""
    main(["contract", "diff", *arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    return found["old"], [each["kind"] for each in found["changes"]]


def test_a_project_below_the_top_is_compared_with_itself(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(capsys, "main")[1] == []
    (repository / "agents" / "stock.py").write_text(WIDER, encoding="utf-8")
    assert compared(capsys, "main")[1] == ["field-added"]
    assert compared(capsys, "main~1")[1] == ["agent-added"]


def test_what_looks_like_an_option_or_names_no_commit_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("rev:-x", "rev:--help", "main^{tree}", "HEAD:service", "HEAD@{99}", "nowhere"):
        assert main(["contract", "diff", name]) == 2
        assert "GBE171" in capsys.readouterr().err
    assert main(["contract", "agents", "--against", "nowhere"]) == 2
    shown = capsys.readouterr().err
    assert "'nowhere' is neither" in shown
    assert "origin/" not in shown


def test_without_a_common_past_the_tip_is_compared_and_that_is_said(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git("switch", "-q", "--orphan", "lone")
    git("checkout", "-q", "main", "--", ".")
    git("commit", "-qm", "Alone")
    assert main(["contract", "agents", "--against", "main"]) == 0
    assert "main, which has no commit in common with HEAD (" in capsys.readouterr().out


def test_a_shallow_clone_has_the_revisions_that_it_has(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git("clone", "-q", "--depth", "1", (tmp_path / "repo").as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow" / "service")
    assert compared(capsys, "main")[1] == []
    assert main(["contract", "diff", "HEAD~1"]) == 2
    assert "this clone is shallow and lacks commits, which `git fetch --unshallow` gets" in capsys.readouterr().err


# --- both ways ----------------------------------------------------------------------------------------

TILL = """
from graphbus_core import GraphBusNode, subscribe

class Till(GraphBusNode):
    @subscribe("/Sale/Made")
    def on_sale(self, sku: str) -> None:
        self.publish("/Sold", {"sku": sku})
"""
BOOKS = """
from graphbus_core import GraphBusNode, subscribe

class Books(GraphBusNode):
    @subscribe("/Sold")
    def on_sold(self, sku: str) -> None:
        print(sku)
"""
NEEDS_MORE = BOOKS.replace("sku: str", "sku: str, price: int")


@pytest.fixture
def shop(repository: Path) -> Path:
    for name, text in (("till", TILL), ("books", BOOKS)):
        (repository / "agents" / f"{name}.py").write_text(text, encoding="utf-8")
    git("add", "-A")
    git("commit", "-qm", "A shop")
    return repository


def both_ways(capsys: pytest.CaptureFixture[str], *words: str, status: int) -> str:
    assert main(["contract", "diff", *words, "--both-ways"]) == status
    output = capsys.readouterr()
    return output.out + output.err


def test_a_merge_commit_is_compared_like_any_other(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git("switch", "-qc", "more")
    (shop / "agents" / "books.py").write_text(NEEDS_MORE, encoding="utf-8")
    git("commit", "-qam", "More")
    git("switch", "-q", "main")
    git("commit", "-q", "--allow-empty", "-m", "Meanwhile")
    git("merge", "-q", "--no-ff", "-m", "Merge", "more")
    for old in ("HEAD^1", "HEAD~2"):
        assert "needs 'price', which the old Till does not send" in both_ways(capsys, old, "HEAD", status=3)
    said = both_ways(capsys, "HEAD^2", "HEAD", status=0)
    assert "? 2 edges: 1 broken in both builds, 1 fit both ways." in said


def test_an_agent_in_another_module_is_the_same_agent(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "accounts").mkdir()
    git("mv", "agents/books.py", "accounts/ledger.py")
    said = both_ways(capsys, "main", status=0)
    assert "fit both ways" in said
    assert "✗" not in said


@pytest.mark.parametrize("is_old", [True, False])
def test_a_file_that_does_not_parse_on_one_side_is_no_yes(
    shop: Path, capsys: pytest.CaptureFixture[str], *, is_old: bool
) -> None:
    (shop / "agents" / "books.py").write_text("class (:\n", encoding="utf-8")
    if is_old:
        git("commit", "-qam", "Torn")
        (shop / "agents" / "books.py").write_text(BOOKS, encoding="utf-8")
    said = both_ways(capsys, "main", status=8 if is_old else 3)
    assert "agents/books.py:1" in said
    assert "✓" not in said


def test_agents_in_a_submodule_are_not_taken_for_new_or_gone(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "mail.py").write_text(BOOKS.replace("Books", "Mail"), encoding="utf-8")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=parts, check=True)
    git("-C", str(parts), "add", "-A")
    git("-C", str(parts), "commit", "-qm", "Mail")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(parts), "parts")
    git("commit", "-qm", "With a submodule")
    said = both_ways(capsys, "main", status=8)
    assert "parts is a submodule, so its agents are not known. [GBE745]" in said
    assert "✓" not in said
    assert "Not compared: 1 place of the old build, because it is a submodule" in both_ways(
        capsys, "main", "HEAD", status=0
    )


def test_two_states_without_agents_are_no_yes(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = both_ways(capsys, "main~1", "main~1", status=8)
    assert "[GBE746]" in said
    assert "✓" not in said


def test_what_is_no_revision_is_no_yes(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "[GBE171]" in both_ways(capsys, "nowhere", status=2)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "till.py").write_text(TILL, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "plain")
    assert "there is no git repository with a working tree here" in both_ways(capsys, "main", status=2)
