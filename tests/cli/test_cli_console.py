"""What the console writes, where, and in which colours."""

from __future__ import annotations

import io
import json
import sys

import pytest

from graphbus_core.cli import console
from graphbus_core.model.agent import TopicDefinition
from graphbus_core.schema.types import STR, Field, Schema


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_goes_to_terminals_unless_the_environment_says_otherwise(
    environment: dict[str, str], is_terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert console.is_coloured(Terminal() if is_terminal else io.StringIO()) is expected


def test_results_go_to_stdout_and_talk_to_stderr_without_colours_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_line(console.style("result", "good"))
    console.print_note(console.style("talk", "warn"))
    assert capsys.readouterr() == ("result\n", "talk\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode → ✓", "plain text, ünïcode → ✓"),
        ("two\n\tlines", "two\n\tlines"),
        ("\x1b[2Jgone", "␛[2Jgone"),
        ("bell\x07 return\r", "bell␇ return␍"),
        ("\x7f\x9b31m", "<U+007F><U+009B>31m"),
        ("access\u202egnp.exe", "access<U+202E>gnp.exe"),
    ],
)
def test_text_from_elsewhere_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert console.sanitize(text) == shown


def test_json_takes_the_structs_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    console.prepare_streams()
    assert not console.has_emitted_json()
    console.emit_json({"topics": (TopicDefinition(name="/A/B", schema=Schema((Field("ü", STR),))),)})
    assert console.has_emitted_json()
    shown = capsys.readouterr().out
    assert "ü" in shown
    assert json.loads(shown)["topics"][0]["schema"]["fields"] == [{"name": "ü", "type": {"kind": "str"}}]


def test_a_table_aligns_its_columns_and_never_wraps_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    console.print_table(["Agent", "Topics"], [[console.style("Shop", "name"), "3"], [long, "12"]], right=["Topics"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["Agent", "Topics"], ["Shop", "3"], [long, "12"]]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("columns", "shown"), [(40, "name  count  mean  max"), (18, "name  count  max"), (13, "name  count"), (5, "name")]
)
def test_a_table_leaves_out_what_it_can_do_without_on_a_narrow_terminal(
    columns: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    headers = ("name", "count", "mean", "max")
    console.print_table(headers, [("Till", "1", "2", "3")], right=headers[1:], optional=("mean", "max", "count"))
    assert terminal.getvalue().splitlines()[0] == shown


def test_a_status_takes_the_last_line_of_a_terminal_and_gives_way_to_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    console.prepare_streams()
    console.show_status("verifying a proposal with a long name")
    console.show_status("voting\x1b · 12,345 tokens")
    console.show_status("voting\x1b · 12,345 tokens")
    console.print_note("done")
    console.show_status("")
    erased = "\r\x1b[2K"
    monkeypatch.setenv("NO_COLOR", "1")
    console.show_status("asked")
    assert terminal.getvalue().endswith("asked"), "a status is no colour"
    console.show_status("")
    assert terminal.getvalue().endswith(f"asked\r{' ' * 19}\r"), "nor is an escape sequence needed to remove it"
    terminal.truncate(terminal.tell() - len(f"asked\r{' ' * 19}\r"))
    terminal.isatty = lambda: False
    console.show_status("not in a pipe")
    assert terminal.getvalue() == f"\x1b[2mverifying a propos…\x1b[0m{erased}\x1b[2mvoting␛\x1b[0m{erased}done\n"


@pytest.mark.parametrize("is_dumb", [False, True], ids=["a pipe", "a dumb terminal"])
def test_where_there_is_no_status_line_a_status_is_a_line_now_and_then(
    is_dumb: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, now_s = Terminal() if is_dumb else io.StringIO(), [100.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(console.time, "monotonic", lambda: now_s[0])
    console.prepare_streams()
    shown: list[float] = []
    for second in range(200):
        if second == 150:
            console.print_note("text")
        now_s[0], before = 100.0 + second, len(stream.getvalue())
        console.show_status(f"waiting {second} s")
        shown += [second] if len(stream.getvalue()) > before else []
    assert shown == [15, 45, 105, 164, 194]
    assert stream.getvalue().startswith("waiting 15 s\nwaiting 45 s\n")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (4e6, "1,111 h 6 min")],
)
def test_a_duration_is_told_in_whole_seconds(seconds: float, shown: str) -> None:
    assert console.format_duration(seconds) == shown
