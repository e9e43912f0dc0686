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

from graphbus_core import __version__, cli, errors
from graphbus_core.cli import COMMANDS, Entry, main
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
        monkeypatch.setitem(COMMANDS, "probe", Entry(f"{__name__}:probe", "A command of a test.", "Run"))
        monkeypatch.setattr(sys.modules[__name__], "probe", probe, raising=False)

    return add


def fail_with(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def test_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown
        assert entry.summary in shown


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


def test_the_version_is_the_one_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphbus {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert f"graphbus {name}" in shown.partition("Example")[2]


def test_without_a_command_the_help_goes_to_stderr_and_the_status_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Usage: graphbus" in streams.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["biuld"], "There is no command 'biuld'. Did you mean 'build'?"),
        (["xyzzy"], "There is no command 'xyzzy'."),
        (["--versoin"], "There is no option --versoin. Did you mean '--version'?"),
        (["init", "--temlate", "shop"], "graphbus init has no option --temlate. Did you mean '--template'?"),
        (["init"], "Missing argument 'FOLDER'."),
        (["init", "a", "b"], "Got unexpected extra argument (b)."),
        (["-C", "nowhere", "init", "a"], "Invalid value for '-C': Directory 'nowhere' does not exist."),
    ],
)
def test_wrong_usage_is_refused_in_one_form_with_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.splitlines()[0] == f"error: {sentence} [GBE110]"
    assert "--help` shows what it takes" in streams.err.splitlines()[1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UsageError("GBE101", path="agents"), 2),
        (errors.BuildError("GBE205", where=errors.Place("agents/a.py", 3)), 3),
    ],
)
def test_a_refusal_shows_place_sentence_code_and_hint_and_gives_the_status_of_its_family(
    error: errors.GraphBusError, status: int, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(fail_with(error))
    assert main(["probe"]) == status
    streams = capsys.readouterr()
    place = f"{error.where}: " if error.where else ""
    assert streams.err == f"{place}error: {error.sentence} [{error.code}]\n  hint: {error.hint}\n"
    assert streams.out == ""


def test_several_refusals_are_all_shown_and_the_first_gives_the_status(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    found = [errors.BuildError("GBE205", where=errors.Place("a.py", 1)), errors.UsageError("GBE101", path="b")]
    command(fail_with(errors.SeveralErrors(found)))
    assert main(["probe"]) == 3
    shown = capsys.readouterr().err
    assert shown.index("[GBE205]") < shown.index("[GBE101]")


def test_with_json_a_refusal_is_the_one_document_on_stdout(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(
        fail_with(errors.BuildError("GBE205", where=errors.Place("a.py", 1))),
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


@pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (3, 3), ("text", 0)])
def test_a_command_gives_its_exit_status(result: object, status: int, command: Callable[..., None]) -> None:
    command(lambda: result)
    assert main(["probe"]) == status


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
    ("--help >&-", "stdout is closed"),
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
    assert talk[0] == f"error: The output cannot be written: {reason}. [GBE119]"
    assert talk[1].startswith("  hint: ")


@pytest.mark.slow
def test_nothing_is_done_when_stdout_is_closed_from_the_start(folder: Path) -> None:
    assert in_shell("graphbus build agents >&-", folder)[0] == 2
    assert not (folder / ".graphbus").exists()


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
