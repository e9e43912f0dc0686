"""What every command has in common: its help, its examples, and one document with `--json`."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from graphbus_core.cli import COMMANDS, graphbus, main
from tests.commands import ALL, IDS, LEAF_IDS, LEAVES, PAGE, REPORTING

# --- help -----------------------------------------------------------------------------------


def help_of(*names: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*names, "--help"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return streams.out


@pytest.mark.parametrize(("names", "command"), ALL, ids=IDS)
def test_every_help_fits_a_terminal_and_explains_every_option(
    names: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = help_of(*names, capsys=capsys)
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert "Examples:" in shown
    assert "\x1b" not in shown
    assert "\b" not in shown
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []
    named = (click.Choice, click.Path)
    valued = [each for each in command.params if isinstance(each, click.Option) and not (each.is_flag or each.count)]
    assert [each.name for each in valued if not each.metavar and not isinstance(each.type, named)] == []
    assert main([*names, "-h"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["help", *names]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(("names", "command"), LEAVES, ids=LEAF_IDS)
def test_every_command_says_with_which_status_it_ends(names: tuple[str, ...], command: click.Command) -> None:
    assert "Exit status: " in (command.help or ""), names


def examples_of(command: click.Command) -> list[str]:
    lines = (command.help or "").partition("Examples:")[2].strip().splitlines()
    return [line.strip() for line in lines if line.strip()]


EXAMPLES = [(names, line) for names, command in ALL for line in examples_of(command)]


@pytest.mark.parametrize(("names", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_every_example_is_understood_by_the_real_parser(
    names: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, _parameter, _context: value)
    monkeypatch.setattr(os, "chdir", lambda _folder: None)
    words = shlex.split(re.sub(r"^([A-Z_]+=\S+ )*(.*\| )?(?=graphbus)|( [|>&;].*)$", "", line))
    assert words[0] == "graphbus"
    with graphbus.make_context("graphbus", words[1:]) as context:
        assert tuple(reach(context))[: len(names)] == names


def reach(context: click.Context) -> Iterator[str]:
    """The names of the commands that the words reach; nothing is run."""
    group = context.command
    rest = [*context._protected_args, *context.args]
    if isinstance(group, click.Group) and rest:
        name, command, rest = group.resolve_command(context, rest)
        assert name
        assert command
        yield name
        with command.make_context(name, rest, parent=context) as below:
            yield from reach(below)


def test_the_pages_of_the_help_are_found_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys=capsys)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown
        assert entry.summary in shown


# --- one document ---------------------------------------------------------------------------

WITHOUT_JSON = {
    # `dev` writes a document on each line, because it has no end
    "cluster up": "it shows the output of its processes",
    "completion": "it prints a script",
    "docker run": "stdout belongs to the container",
    "k8s deploy": "stdout belongs to kubectl",
    "mcp": "stdout belongs to the protocol",
    "relay": "stdout belongs to the protocol",
    "view": "it shows a page, whose API is JSON",
}
WORDS = {
    "folder": "new", "name": "Thing", "number": "1", "place": "agents/nowhere.py", "agent": "Nobody", "key": "none",
    "old": "nowhere", "new": "nowhere", "environment": "nowhere", "forge": "github", "shell": "bash", "file": "nowhere.json",
}  # fmt: skip


def with_arguments(names: tuple[str, ...], command: click.Command) -> list[str]:
    """The shortest line that is complete."""
    required = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    options = [each for each in command.params if isinstance(each, click.Option) and each.required]
    words = [
        str(each.type.choices[0]) if isinstance(each.type, click.Choice) else WORDS[each.name or ""]
        for each in required
    ]
    given = [part for each in options for part in (each.opts[-1], str(getattr(each.type, "choices", ["x"])[0]))]
    return [*names, *words, *given]


def documents_of(line: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, object]:
    """The status and the one document of a command."""
    status = main(line)
    streams = capsys.readouterr()
    assert "This is a bug in GraphBus" not in streams.err, streams.err
    assert "\x1b" not in streams.out + streams.err
    return status, json.loads(streams.out)


def test_the_commands_without_a_document_are_few_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = {" ".join(names) for names, command in LEAVES if not any("--json" in each.opts for each in command.params)}
    assert found == {*WITHOUT_JSON}
    for name in found:
        assert f"`graphbus {name}`" in PAGE, WITHOUT_JSON[name]


@pytest.mark.parametrize(
    ("names", "command"), [each for each in LEAVES if " ".join(each[0]) not in {*WITHOUT_JSON, "dev"}], ids=str
)
def test_where_there_is_nothing_a_command_writes_one_document_too(
    names: tuple[str, ...],
    command: click.Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        status, document = documents_of([*with_arguments(names, command), "--json"], capsys)
    assert isinstance(document, dict | list)
    if status not in {0, 3}:
        assert isinstance(document, dict)
        assert document.get("errors") or document.get("problems"), document


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_a_command_reports_is_one_document(
    with_demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(with_demo)
    for line in REPORTING:
        status, document = documents_of([*line, "--json"], capsys)
        assert document is not None, line
        assert status in {0, 3, 5, 7}, (line, document)
