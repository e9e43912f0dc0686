"""A wrong word gets the right one: commands, options, choices, and names of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.cli import main

# --- wrong words ----------------------------------------------------------------------------

MISSPELT = [
    ("xyzzy", "There is no command 'xyzzy'.", "graphbus"),
    ("init a b", "Got unexpected extra argument (b).", "graphbus init"),
    ("-C nowhere init a", "Invalid value for '-C': Directory 'nowhere' does not exist.", "graphbus"),
    ("biuld", "There is no command 'biuld'. Did you mean 'build'?", "graphbus"),
    ("dlq shw", "graphbus dlq has no command 'shw'. Did you mean 'show'?", "graphbus dlq"),
    ("--vresion", "There is no option --vresion. Did you mean '--version'?", "graphbus"),
    ("check --fromat", "graphbus check has no option --fromat. Did you mean '--format'?", "graphbus check"),
    (
        "check --format jsno",
        "Invalid value for '--format': 'jsno' is not one of 'text', 'json', 'sarif', 'github'. Did you mean 'json'?",
        "graphbus check",
    ),
    (
        "check --version",
        "graphbus check has no option --version: it is an option of graphbus itself: write it before the command.",
        "graphbus check",
    ),
    ("init", "Missing argument 'FOLDER'.", "graphbus init"),
    ("k8s generate", "Missing option '--namespace' / '-n'.", "graphbus k8s generate"),
    ("completion", "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish.", "graphbus completion"),
    ("check --select", "Option '--select' requires an argument.", "graphbus check"),
    ("dlq ls --limit", "Option '--limit' requires an argument.", "graphbus dlq ls"),
    ("run --port abc", "Invalid value for '--port': 'abc' is not a valid integer range.", "graphbus run"),
]


@pytest.mark.parametrize(("line", "sentence", "command"), MISSPELT, ids=[line for line, *_ in MISSPELT])
def test_a_wrong_word_gets_the_right_one(
    line: str, sentence: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    told = capsys.readouterr().err.splitlines()
    purpose = "see its options" if command in ("graphbus", "graphbus dlq") else "see its arguments and options"
    if "no command" in sentence:
        purpose = "list the commands"
    assert told == [f"error: {sentence} [GBE110]", f"  hint: Run `{command} --help` to {purpose}."]


def test_a_name_of_the_project_gets_the_right_one(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    for line, right in (
        (["run", "--call", "Order.place", "{}"], "Orders"),
        (["run", "--call", "Orders.palce", "{}"], "place"),
        (["inspect", "--agent", "Order"], "Orders"),
        (["check", "--select", "GB0001"], "GB001"),
    ):
        assert main(line) != 0
        assert f"Did you mean {right!r}?" in capsys.readouterr().err, line


@pytest.mark.parametrize("command", ["dev", "build", "check", "negotiate"])
def test_a_file_that_is_no_python_is_refused_at_once(
    shop: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    (shop / "README.md").write_text("# Shop\n")
    assert main([command, "README.md"]) == 2
    assert "README.md is not a Python file. [GBE106]" in capsys.readouterr().err
