"""A wrong word gets the right one: commands, options, choices, and names of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.commands import FILES
from tests.project_files import write_project


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small project that is built, with one below it for agents to negotiate in."""
    root = write_project(tmp_path / "shop", FILES)
    build_graph(root / "agents")
    return root


# --- wrong words ----------------------------------------------------------------------------

MISSPELT = [
    ("biuld", "There is no command 'biuld'. Did you mean 'build'?", "graphbus"),
    ("dlq shw", "graphbus dlq has no command 'shw'. Did you mean 'show'?", "graphbus dlq"),
    ("k8s genrate", "graphbus k8s has no command 'genrate'. Did you mean 'generate'?", "graphbus k8s"),
    ("contract dif", "There is no folder and no command 'dif'. Did you mean 'diff'?", "graphbus contract"),
    ("help chekc", "There is no command 'chekc'. Did you mean 'check'?", "graphbus"),
    ("--vresion", "There is no option --vresion. Did you mean '--version'?", "graphbus"),
    ("check --fromat", "graphbus check has no option --fromat. Did you mean '--format'?", "graphbus check"),
    ("dlq ls --tpoic x", "graphbus dlq ls has no option --tpoic. Did you mean '--topic'?", "graphbus dlq ls"),
    (
        "check --format jsno",
        "Invalid value for '--format': 'jsno' is not one of 'text', 'json', 'sarif', 'github'. Did you mean 'json'?",
        "graphbus check",
    ),
    (
        "check --version",
        "graphbus check has no option --version: it is an option of graphbus itself and stands before the command.",
        "graphbus check",
    ),
    (
        "--json check",
        "There is no option --json: it is an option of graphbus check and stands after the command.",
        "graphbus",
    ),
    (
        "dlq --json ls",
        "graphbus dlq has no option --json: it is an option of graphbus dlq ls and stands after the command.",
        "graphbus dlq",
    ),
    ("inspect --agent", "Option '--agent' requires an argument.", "graphbus inspect"),
    ("init", "An argument is missing: FOLDER.", "graphbus init"),
    ("why", "An argument is missing: FILE[:LINE].", "graphbus why"),
    ("k8s generate", "--namespace or -n is missing.", "graphbus k8s generate"),
    ("completion", "An argument is missing: bash, zsh or fish.", "graphbus completion"),
    (
        "contract export",
        "--format is missing: jsonschema, openapi or asyncapi.",
        "graphbus contract export",
    ),
    ("run --port abc", "--port must be a whole number, not 'abc'.", "graphbus run"),
    ("dlq show abc", "ID must be a whole number, not 'abc'.", "graphbus dlq show"),
    ("build --max-usd x", "--max-usd must be a number, not 'x'.", "graphbus build"),
]


@pytest.mark.parametrize(("line", "sentence", "command"), MISSPELT, ids=[line for line, *_ in MISSPELT])
def test_a_wrong_word_gets_the_right_one(
    line: str, sentence: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == [f"error: {sentence} [GBE110]", f"  hint: `{command} --help` shows what it takes."]


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
    assert "README.md is no Python file. [GBE106]" in capsys.readouterr().err
