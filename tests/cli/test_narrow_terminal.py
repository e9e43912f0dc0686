"""Output on a terminal of 80 columns: no line is wider, no word is cut, and nothing is said twice."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.commands import ALL, IDS, REPORTING

NARROW = 80
READING = [
    ["check", "agents"],
    ["check", "agents", "--strict"],
    ["contract", "agents"],
    ["contract", "--unknown"],
    ["inspect"],
    ["inspect", "--agent", "Orders"],
    ["validate"],
    ["powers"],
    ["doctor"],
    ["dlq", "ls"],
    ["state", "ls"],
    ["trace"],
    ["profile"],
    ["docker", "run", "--dry-run"],
    ["diff", ".graphbus"],
    ["report", "S404"],
    ["inspect", "nowhere"],
    ["check", "nowhere"],
    ["run", "--cal"],
    ["-C", "demo", "check", "agents"],
    ["-C", "demo", "contract", "agents"],
    ["-C", "demo", "inspect"],
    ["-C", "demo", "negotiate", "agents", "--plan"],
    ["-C", "demo", "inspect-negotiation"],
    ["-C", "demo", "inspect-negotiation", "--sessions"],
    ["-C", "demo", "inspect-negotiation", "--transcript"],
    ["-C", "demo", "inspect-negotiation", "P001"],
    ["-C", "demo", "why", "agents/notification.py"],
    ["-C", "demo", "why", "agents/notification.py:22"],
    ["-C", "demo", "undo", "--dry-run"],
]
"""Commands that change nothing, so that they say the same on every terminal."""

Show = Callable[..., str]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Run a command on a terminal of this width; give what it shows there, both streams."""

    def run(*words: str, columns: int = NARROW) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        main([*words])
        streams = capsys.readouterr()
        return streams.out + streams.err

    return run


def too_wide(shown: str) -> list[str]:
    """Lines that the terminal would cut. One word alone may be wider; a diff and what an agent logs stay as they are."""
    lines = [line for line in shown.splitlines() if len(line) > NARROW and " " in line.strip()]
    return [line for line in lines if not re.match(r"[-+] {4}|\[ERROR\]|  File ", line) and '"""' not in line]


def words_of(shown: str) -> set[str]:
    """Words without the marks below code, code that is shown in part, and what is measured."""
    return {word for word in shown.split() if not re.search(r"\d|…|\^|--|^[\W_]+$", word)}


def said_twice(shown: str) -> list[str]:
    """Sentences that one output has twice; votes and commits of different proposals may be the same."""
    lines = [line for line in shown.splitlines() if len(line.split()) > 3 and line[:1] not in " [+-@0123456789│├└"]
    return [line for line in set(lines) if lines.count(line) > 1]


@pytest.mark.parametrize("names", [names for names, _ in ALL], ids=IDS)
def test_a_help_breaks_no_word(names: tuple[str, ...], show: Show) -> None:
    shown = show(*names, "--help")
    assert [line for line in shown.splitlines() if len(line) > NARROW or re.search(r"\w-$", line)] == []


@pytest.mark.slow
def test_no_output_of_a_command_is_wider_or_cuts_a_word_or_says_something_twice(
    with_demo: Path, monkeypatch: pytest.MonkeyPatch, show: Show
) -> None:
    monkeypatch.chdir(with_demo)
    for line in [line for line in REPORTING if "--diff" not in line and "export" not in line]:
        assert (line, too_wide(show(*line))) == (line, [])
    for line in READING:
        shown, wide = show(*line), show(*line, columns=1000)
        assert (line, too_wide(shown), said_twice(wide)) == (line, [], [])
        assert (line, words_of(shown) - words_of(wide)) == (line, set())


@pytest.mark.parametrize("template", ["shop", "hello", "news", "blank"])
def test_the_next_steps_of_a_new_project_can_be_copied_from_a_narrow_terminal(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show: Show
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = show("init", "mine", "--template", template)
    assert too_wide(shown) == []
    steps = re.sub(r" \\\n +", " ", shown.partition("Next:")[2])
    wide = show("init", "other", "--template", template, columns=1000).partition("Next:")[2]
    assert commands_of(steps) == [command.replace("other", "mine") for command in commands_of(wide)]


def commands_of(steps: str) -> list[str]:
    lines = [line.partition("  #")[0].strip() for line in steps.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_a_command_that_is_too_long_continues_on_the_next_line(
    with_demo: Path, monkeypatch: pytest.MonkeyPatch, show: Show
) -> None:
    monkeypatch.chdir(with_demo)
    shown = show("docker", "run", "--dry-run")
    assert all(line.endswith(" \\") for line in shown.splitlines()[:-1])
    assert shown.replace(" \\\n  ", " ").split() == show("docker", "run", "--dry-run", columns=1000).split()
