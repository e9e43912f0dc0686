"""How a process ends, what a terminal gets to see, and which variables of the environment are read."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphbus_core import build_graph, errors
from graphbus_core.cli import main
from tests.commands import PAGE, REPORTING, ROOT
from tests.patience import PATIENCE_S
from tests.project_files import write_project

# --- exit status ----------------------------------------------------------------------------

FAILING = [
    (2, ["check", "nowhere"]),
    (2, ["nothing"]),
    (2, []),
    (3, ["check", "agents"]),
    (3, ["build", "broken"]),
    (4, ["undo"]),
    (5, ["report"]),
    (6, ["inspect", "nowhere"]),
    (7, ["run", "--call", "Orders.nothing", "{}"]),
    (8, ["ci", "github"]),
]


def run(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphbus_core", *words],
        cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("status", "line"), FAILING, ids=str)
def test_a_command_ends_with_the_status_of_its_family(
    status: int, line: list[str], shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(shop, {"broken/a.py": "def (:\n", ".github/workflows/graphbus.yml": "mine: 1\n"})
    monkeypatch.chdir(shop)
    assert main(line) == status
    assert "Traceback" not in capsys.readouterr().err


def test_the_page_and_the_help_have_the_status_of_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys)
    rows = dict(re.findall(r"^\| (\d+) \|.*\| (GBE\dxx)? ?\|$", PAGE, re.MULTILINE))
    families = [kind for kind in errors.GraphBusError.__subclasses__() if kind is not errors.SeveralErrors]
    for number, family in enumerate(families, 1):
        assert rows[str(family.exit_status)] == f"GBE{number}xx"
        assert re.search(rf" {family.exit_status}  +\S", shown)
    assert {"0", "1", "130", "141", "143"} <= {*rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words", "status"),
    [
        (signal.SIGTERM, ["run", "--call", "Orders.wait", "{}"], 143),
        (signal.SIGINT, ["run", "--call", "Orders.wait", "{}"], 130),
        (signal.SIGINT, ["dev", "agents"], 0),
    ],
)
def test_a_signal_ends_a_command_with_its_number(
    number: signal.Signals, words: list[str], status: int, tmp_path: Path
) -> None:
    waiting = """
        import time

        from graphbus_core import GraphBusNode, schema_method


        class Orders(GraphBusNode):
            @schema_method(input_schema={}, output_schema={})
            def wait(self) -> dict[str, object]:
                print("at work", flush=True)
                time.sleep(30)
                return {}
        """
    settings = "[tool.graphbus.runtime]\ngrace_s = 0.1\n"
    root = write_project(tmp_path, {"agents/a.py": waiting, "pyproject.toml": settings})
    build_graph(root / "agents")
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbus_core", *words],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout
    awaited = "at work" if "--call" in words else "Ready"
    while awaited not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status


@pytest.mark.parametrize(
    "moment", ["click.py", "sitecustomize.py"], ids=["while it is imported", "while it closes down"]
)
def test_ctrl_c_before_and_after_a_command_leaves_no_traceback(moment: str, tmp_path: Path) -> None:
    press = "os.kill(os.getpid(), signal.SIGINT)"
    code = f"{press}\n" if moment == "click.py" else f"atexit.register(lambda: {press})\n"
    (tmp_path / moment).write_text(f"import atexit, os, signal\n{code}", encoding="utf-8")
    done = run("--help", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == (130 if moment == "click.py" else -signal.SIGINT)  # a shell says 130 to both
    assert done.stderr == ""


def help_of(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--help"]) == 0
    return capsys.readouterr().out


# --- colour ---------------------------------------------------------------------------------

COLOURED = [
    ["--help"],
    ["check", "nowhere"],
    *(line for line in REPORTING if "replay" not in line),
    ["-C", "demo", "negotiate", "agents", "--review"],
    ["run", "-i"],
]
DRIVER = """
from graphbus_core.cli import main
for line in {lines!r}:
    print(f"@@@@ {{line}}", flush=True)
    main(line)
"""
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(lines: list[list[str]], folder: Path, **environment: str) -> dict[str, bytes]:
    """What a terminal gets to see of each command; a question is answered with the end of input."""
    mine, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "TERM"}}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(lines=lines)],
        cwd=folder, env={"TERM": "xterm-256color", **kept, **environment},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, end = b"", time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if select.select([mine], [], [], 0.2)[0]:
            try:
                heard = os.read(mine, 65536)
            except OSError:
                break
            shown += heard
        elif process.poll() is None:
            os.write(mine, b"\x04")
        else:
            break
    assert process.poll() is not None or time.monotonic() < end, f"it does not end:\n{shown.decode(errors='replace')}"
    process.kill()
    process.wait()
    os.close(mine)
    parts = shown.split(b"@@@@ ")[1:]
    return {part.splitlines()[0].decode(): part for part in parts}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_without_colour_no_terminal_gets_an_escape_sequence(with_demo: Path) -> None:
    seen = at_terminal(COLOURED, with_demo, NO_COLOR="1")
    assert [*seen] == [str(line) for line in COLOURED]
    for line, shown in seen.items():
        assert b"This is a bug in GraphBus" not in shown, shown.decode()
        assert _SEQUENCE.findall(shown) == [], line


@pytest.mark.slow
def test_a_terminal_gets_colour_and_a_pipe_only_when_it_is_asked_for(shop: Path) -> None:
    lines = [["check", "agents"], ["inspect"], ["nothing"]]
    assert all(_SEQUENCE.search(shown) for shown in at_terminal(lines, shop).values())
    assert b"\x1b" not in b"".join(in_pipe(lines, shop, TERM="xterm-256color"))
    assert all(b"\x1b[" in shown for shown in in_pipe(lines, shop, FORCE_COLOR="1"))
    assert b"\x1b" not in b"".join(in_pipe(lines, shop, FORCE_COLOR="1", NO_COLOR="x"))


def in_pipe(lines: list[list[str]], folder: Path, **environment: str) -> list[bytes]:
    """What a pipe gets of each command."""
    command = [sys.executable, "-c", DRIVER.format(lines=lines)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    _, *parts = done.stdout.split(b"@@@@ ")
    assert len(parts) == len(lines)
    return parts


# --- environment ----------------------------------------------------------------------------

SOURCES = ROOT / "src" / "graphbus_core"
NOT_OF_PEOPLE = {"GRAPHBUS_PROGRAM", "GRAPHBUS_VERDICT", "PYTEST_PLUGINS"}
"""Between a process and its child in the jail."""


_READ = re.compile(
    r"""environ(?:\.get\(|\.pop\(|\[)\s*"([A-Z_]+)"|"([A-Z_]+)" (?:not )?in (?:os\.)?environ|getenv\("([A-Z_]+)"""
)
_NAMED = re.compile(r"""^_?[A-Z_]*VARIABLE = "([A-Z_]+)"|^_?[A-Z_]+ = "(_?GRAPHBUS_[A-Z_]+)\"""", re.MULTILINE)


def variables_of(source: str) -> set[str]:
    """The names of the variables that a module reads, as far as they stand in it."""
    return {name for pattern in (_READ, _NAMED) for found in pattern.findall(source) for name in found if name}


def test_every_variable_that_is_read_is_in_the_list() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    read = {name for text in texts if "environ" in text or "getenv" in text for name in variables_of(text)}
    table = PAGE.partition("## Environment variables")[2]
    listed = {*re.findall(r"`([A-Z_]+)`", table.partition("\n\nCode")[0])}
    assert {"GRAPHBUS_CONFIG", "NO_COLOR", "_GRAPHBUS_COMPLETE"} <= read
    assert read - listed - NOT_OF_PEOPLE == set()
    not_by_name = {"GRAPHBUS_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "COLUMNS", "HOME"}
    assert listed - read == not_by_name
