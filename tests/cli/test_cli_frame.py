"""`graphbus` as a whole: its table of commands, its refusals, its streams and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from graphbus_core import cli, errors
from graphbus_core.cli import COMMANDS, CommandEntry, main
from tests.patience import PATIENCE_S

HEAVY = ("msgspec", "rich", "networkx", "asyncio", "graphbus_core.model", "graphbus_core.compiler", "graphbus_core.bus")


def graphbus(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphbus_core", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a command of the test's own into the table."""

    def add(function: Callable[..., object], *parameters: click.Parameter) -> None:
        probe = click.Command("probe", callback=function, params=list(parameters))
        monkeypatch.setitem(COMMANDS, "probe", CommandEntry(f"{__name__}:probe", "A command of a test.", "Run"))
        monkeypatch.setattr(sys.modules[__name__], "probe", probe, raising=False)

    return add


def fail_with(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_command_and_nothing_heavy(option: str) -> None:
    script = (
        "import sys; from graphbus_core.cli import COMMANDS, main; main([sys.argv[1]]);"
        "print(*sys.modules, *(entry.target for entry in COMMANDS.values()), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, option], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    loaded = {line for line in done.stderr.split() if ":" not in line}
    commands = {line.partition(":")[0] for line in done.stderr.split() if ":" in line}
    assert "graphbus_core.cli.console" in loaded
    assert not loaded & {*HEAVY, *commands}


def test_without_a_command_the_help_goes_to_stderr_and_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Usage: graphbus" in streams.err


def test_a_refusal_shows_place_sentence_code_and_hint_and_gives_the_status_of_its_family(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = (
        errors.BuildError("GBE205", where=errors.Place("agents/a.py", 3), problem="forms a loop"),
        errors.UsageError("GBE101", path="b"),
    )
    command(fail_with(errors.SeveralErrors([first, other])))
    assert main(["probe"]) == 3
    streams = capsys.readouterr()
    assert streams.err == (
        f"agents/a.py:3: error: {first.sentence} [GBE205]\n  hint: {first.hint}\n"
        f"error: {other.sentence} [GBE101]\n  hint: {other.hint}\n"
    )
    assert streams.out == ""


def test_with_json_a_refusal_is_the_one_document_on_stdout(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(
        fail_with(errors.BuildError("GBE205", where=errors.Place("a.py", 1), problem="forms a loop")),
        click.Option(["--json"], is_flag=True, expose_value=False),
    )
    assert main(["probe", "--json"]) == 3
    streams = capsys.readouterr()
    (refusal,) = json.loads(streams.out)["errors"]
    assert (refusal["code"], refusal["where"]["line"]) == ("GBE205", 1)
    assert "[GBE205]" in streams.err


def test_a_refusal_after_the_document_adds_no_second_one(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def function() -> None:
        cli.console.emit_json({"done": 1})
        raise errors.UsageError("GBE101", path="agents")

    command(function, click.Option(["--json"], is_flag=True, expose_value=False))
    assert main(["probe", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"done": 1}


def test_a_bug_of_ours_shows_its_traceback_and_asks_for_a_report(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(fail_with(ZeroDivisionError("oops")))
    assert main(["probe"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in shown
    assert "Please report it" in shown


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_ends_with_130_and_without_traceback(
    error: BaseException, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(fail_with(error))
    assert main(["probe"]) == 130
    assert capsys.readouterr().err == "\nInterrupted.\n"


def test_c_works_in_another_folder_and_comes_back(command: Callable[..., None], tmp_path: Path) -> None:
    seen = []
    command(lambda: seen.append(Path.cwd()))
    here = Path.cwd()
    assert main(["-C", str(tmp_path), "probe"]) == 0
    assert seen == [tmp_path.resolve()]
    assert Path.cwd() == here


@pytest.mark.slow
def test_a_closed_pipe_ends_with_141_and_in_silence() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbus_core", "--help"], stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert process.communicate(timeout=PATIENCE_S) == (None, b"")
    assert process.returncode == 141


AGENT = """
from graphbus_core import GraphBusNode


class Hello(GraphBusNode):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "hello.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


def in_shell(line: str, folder: Path) -> tuple[int, list[str]]:
    """Run a line of shell in a folder; `graphbus` is this one."""
    script = f"graphbus() {{ '{sys.executable}' -m graphbus_core \"$@\"; }}; {line}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode, done.stderr.splitlines()


UNWRITABLE = [
    ("--help >&-", "it is closed"),
    ("check agents --json >/dev/full", "no space left on device"),
    ("build agents --enable-agents >/dev/full", "no space left on device"),
    ("check --help >/dev/full", "no space left on device"),
    ("--version >/dev/full", "no space left on device"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "reason"), UNWRITABLE)
def test_an_output_that_cannot_be_written_is_one_refusal(line: str, reason: str, folder: Path) -> None:
    status, talk = in_shell(f"graphbus {line}", folder)
    assert (status, len(talk)) == (2, 2), talk
    assert talk[0] == f"error: GraphBus could not write to stdout: {reason}. [GBE119]"
    assert talk[1].startswith("  hint: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status"), [("check agents >/dev/null 2>&-", 0), ("check nowhere >/dev/null 2>/dev/full", 2)]
)
def test_talk_that_nobody_can_hear_changes_nothing(line: str, status: int, folder: Path) -> None:
    assert in_shell(f"graphbus {line}", folder) == (status, [])


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "tick"), [("utf-8", "✓"), ("latin-1", "\\u2713")])
def test_a_character_that_the_stream_cannot_hold_is_escaped(encoding: str, tick: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = graphbus("init", "my-shop", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tick} Made my-shop")
