"""`graphbus report`: where the page goes, what it never writes over, and what is said when there is nothing to tell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.negotiation.transcript import save_session, sessions_dir
from tests.fakes.told_sessions import eventful_record, eventful_transcript


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a project with one session."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    save_session(tmp_path / ".graphbus", eventful_record(), eventful_transcript())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], code: str, *arguments: str) -> str:
    assert main(["report", *arguments]) in (2, 5)
    err = capsys.readouterr().err
    assert f"[{code}]" in err
    return err


def test_the_page_bears_the_name_of_its_session(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "graphbus-report-S007.html" in streams.err
    assert "3 of 9 proposals accepted" in (here / "graphbus-report-S007.html").read_text(encoding="ascii")


def test_a_dash_is_stdout_with_the_same_bytes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "S007", "-o", "page.html"]) == 0
    assert main(["report", "S007", "-o", "-"]) == 0
    assert capsys.readouterr().out == (here / "page.html").read_text(encoding="ascii")


def test_the_same_facts_are_given_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["report", "--json", "-o", "facts.json"]) == 0
    document = json.loads((here / "facts.json").read_text(encoding="ascii"))
    assert not list(here.glob(".facts*"))
    assert document["outcome"]["commits"] == ["C001", "C002", "C003"]
    assert document["cost"]["spent"]["usage"]["cache_write_tokens"] == 9100
    assert [len(each["climbs"]) for each in document["proposals"]][:2] == [2, 1]
    assert document["rounds"][1]["notes"][0]["agent"] == "Prices"


def test_another_file_is_written_over_by_force_only(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "page.html").write_text("<title>mine</title>")
    assert "page.html: error: This file already exists and is not a GraphBus report." in refused(
        capsys, "GBE147", "-o", "page.html"
    )
    assert (here / "page.html").read_text() == "<title>mine</title>"
    for force in (["--force"], []):
        assert main(["report", "-o", "page.html", *force]) == 0
    assert (here / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("target", ["missing/page.html", "."])
def test_a_place_that_takes_no_file_is_refused(here: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.iterdir())
    refused(capsys, "GBE149", "-o", target)
    assert sorted(here.iterdir()) == before


def test_a_pipe_is_neither_read_nor_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "pipe")
    assert "not a regular file" in refused(capsys, "GBE149", "-o", "pipe")
    assert (here / "pipe").is_fifo()


def test_a_session_that_is_not_there_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'S007'?" in refused(capsys, "GBE404", "S008")


def test_a_transcript_that_cannot_be_read_is_refused_and_one_that_is_gone_is_not(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript = sessions_dir(here / ".graphbus") / "S007" / "transcript.jsonl"
    transcript.write_text('{"topic": "/Negotiation/Round", "payload": {"round": "first"}}\n')
    refused(capsys, "GBE405")
    transcript.write_text("no json\n")
    refused(capsys, "GBE405")
    transcript.unlink()
    assert main(["report"]) == 0


def test_without_artifacts_the_edges_come_from_the_sources(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agents = here / "agents"
    agents.mkdir()
    (agents / "shop.py").write_text(
        "from graphbus_core import GraphBusNode, depends_on\n"
        "class Stock(GraphBusNode):\n    pass\n"
        "@depends_on('Stock')\nclass Orders(GraphBusNode):\n    pass\n"
    )
    assert main(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["edges"] == [
        {"source": "Stock", "target": "Orders", "kind": "depends_on"}
    ]
    assert not (here / ".graphbus" / "cache").exists()
