"""`graphbus run --trace --profile`, `graphbus trace` and `graphbus profile`: what is written, shown and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

FILES = {
    "pyproject.toml": '[tool.graphbus.runtime]\nstate_dir = "kept"\n',
    "agents/__init__.py": "",
    "agents/relay.py": """
        from graphbus_core import GraphBusNode, subscribe

        class Relay(GraphBusNode):
            @subscribe("/Word/Said")
            def on_said(self, word):
                self.publish("/Word/Heard", {"word": word})

            @subscribe("/Word/Heard", retries=1, backoff=0.01)
            def on_heard(self, word):
                if word == "bad":
                    raise ValueError("not that one")
        """,
}
SAY = ["--publish", "/Word/Said", '{"word": "good"}']


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path, FILES)
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    return root


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == status
    written = capsys.readouterr()
    return written.out if status == 0 else written.err


def test_the_tree_is_found_by_id_by_its_beginning_and_as_the_last(
    relay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "run", "--trace", *SAY)
    (root,) = json.loads(answer(capsys, "trace", "--json"))["roots"]
    assert (root["topic"], root["events"], root["deliveries"]) == ("/Word/Said", 2, 2)
    trees = {answer(capsys, "trace", word) for word in (root["event_id"], root["event_id"][:9].upper(), "last")}
    assert len(trees) == 1
    assert "Relay.on_heard" in trees.pop()
    document = json.loads(answer(capsys, "trace", "last", "--json"))
    child = document["deliveries"][1]
    assert child["causation_id"] == document["correlation_id"] == root["event_id"]
    assert "<- this one" in answer(capsys, "trace", child["event_id"])
    assert root["event_id"][:8] in answer(capsys, "trace")


def test_a_further_attempt_and_a_failure_are_marked(relay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "run", "--trace", "--trace-payloads", "--publish", "/Word/Said", '{"word": "bad"}', status=7)
    tree = answer(capsys, "trace", "last")
    assert tree.count("ValueError: not that one") == 2
    assert "attempt 2" in tree
    assert "2 failed" in tree
    assert '{"word":"bad"}' in tree


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace"], "GBE684"),
        (["trace", "last"], "GBE684"),
        (["profile"], "GBE687"),
        (["profile", "--json"], "GBE687"),
    ],
)
def test_what_nobody_has_written_cannot_be_shown(
    relay: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in answer(capsys, *arguments, status=7)


def test_an_id_that_is_not_there_or_stands_for_several_is_refused(
    relay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "run", "--trace", *SAY * 20)
    roots = json.loads(answer(capsys, "trace", "--json", "--limit", "0"))["roots"]
    assert len(roots) == 20
    assert "GBE685" in answer(capsys, "trace", "xyz", status=7)
    shared = next(digit for digit in "0123456789abcdef" if sum(each["event_id"][0] == digit for each in roots) > 1)
    assert "GBE686" in answer(capsys, "trace", shared, status=7)


def test_a_profile_is_shown_at_the_end_and_again(relay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--profile", *SAY * 3])
    assert "Relay.on_said" in capsys.readouterr().err
    document = json.loads(answer(capsys, "profile", "--json", "--sort", "name"))
    assert [(row["name"], row["count"]) for row in document["handlers"]] == [
        ("Relay.on_heard", 3),
        ("Relay.on_said", 3),
    ]
    short = answer(capsys, "profile", "--top", "1", "--sort", "count")
    assert "Relay.on_heard" in short
    assert "1 more handler" in short


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 µs"),
        (1.234e-6, "1.23 µs"),
        (12.34e-6, "12.3 µs"),
        (0.0001234, "123 µs"),
        (0.9996, "1.00 s"),
        (12.3, "12.3 s"),
        (123.4, "123 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    from graphbus_core.cli.running.trace_text import format_duration

    assert format_duration(seconds) == text
