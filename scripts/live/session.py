"""One negotiation over a fresh shop, typed into a terminal, and everything that it leaves behind."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from graphbus_core.errors import NegotiationError
from graphbus_core.negotiation.transcript import SessionRecord, TranscriptEvent, load_session, load_transcript
from scripts.live.recorder import Exchange, Recorder

GRAPHBUS = (sys.executable, "-m", "graphbus_core")
FOREIGN_KEY = "sk-canary-of-another-provider-4f1c9a7be02d"
OWN_KEY = "sk-canary-of-this-provider-b83d5e6610aa"
"""Keys that must not be found: the first nowhere, the second nowhere but in the header that a key belongs in."""
_OWN_VARIABLE = "LIVE_API_KEY"
_GRACE_S = 60
_REPLAY_S = 300
_ROWS, _COLUMNS = 40, 140
_NOT_COMPARED = {".graphbus", "__pycache__", ".pytest_cache"}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Wishes(NamedTuple):
    """How the session is run.

    Attributes:
        rounds: The largest number of rounds.
        max_output_tokens: The longest answer.
        limit_s: The seconds that the session may take, with a minute of grace for the last test run.
        voters: The model of evaluators and arbiters, such as `rules`; empty: the one that proposes.
        settings: Further lines for `[tool.graphbus.llm]`.
    """

    rounds: int = 1
    max_output_tokens: int = 250
    limit_s: int = 600
    voters: str = ""
    settings: tuple[str, ...] = ()


class Command(NamedTuple):
    """A command that has ended: its exit status, None if it was killed because it did not end, its output and seconds."""

    status: int | None
    output: str
    seconds: float


class LiveSession(NamedTuple):
    """What a session leaves behind.

    Attributes:
        build: `graphbus build --enable-agents`.
        replay: `graphbus replay --verify`.
        before: Path -> content of every file of the shop before the session, and `after` it.
        kept: Path -> content of every other file that was written, those of `.graphbus` among them.
        record: The outcome; None if there is none.
        events: The transcript.
        exchanges: The requests and answers, as the recorder saw them.
    """

    build: Command
    replay: Command
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    kept: Mapping[str, bytes]
    record: SessionRecord | None
    events: tuple[TranscriptEvent, ...]
    exchanges: tuple[Exchange, ...]


def run_session(folder: Path, recorder: Recorder, model: str, wishes: Wishes) -> LiveSession:
    """Make a shop in a folder, negotiate over it with a model, replay the session, and return all about it.

    Args:
        folder: An empty folder, which holds the shop and the home of its user.
        recorder: Stands before the server of the model.
        model: Its name there.
        wishes: How the session is run.

    Raises:
        subprocess.CalledProcessError: The shop cannot be made.
    """
    home, shop = folder / "home", folder / "shop"
    home.mkdir()
    environ = _make_environment(home)
    subprocess.run([*GRAPHBUS, "init", str(shop)], cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    with (shop / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(_format_settings(recorder.url, model, wishes))
    before = _read_tree(shop)
    build = [*GRAPHBUS, "build", "agents/", "--enable-agents", "--rounds", str(wishes.rounds)]
    build += ["--voters", wishes.voters] if wishes.voters else []
    built = run_in_terminal(build, shop, environ, wishes.limit_s + _GRACE_S)
    replayed = run_in_terminal([*GRAPHBUS, "replay", "--verify"], shop, environ, _REPLAY_S)
    record, events = _load_records(shop / ".graphbus")
    after = _read_tree(shop)
    kept = {f"{place}/{name}": data for place in (home, shop / ".graphbus") for name, data in _read_all(place).items()}
    return LiveSession(built, replayed, before, after, kept, record, events, recorder.exchanges)


def _make_environment(home: Path) -> dict[str, str]:
    """Return the variables of the user at the terminal: nothing of this machine but the paths, and keys to be looked for."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
    keys = {"ANTHROPIC_API_KEY": FOREIGN_KEY, "OPENAI_API_KEY": FOREIGN_KEY, _OWN_VARIABLE: OWN_KEY}
    return {**kept, **keys, "HOME": str(home), "TERM": "xterm-256color"}


def _format_settings(url: str, model: str, wishes: Wishes) -> str:
    """Return the tables that make the model negotiate, one request at a time.

    The time of a session is limited once for the analyses and once for the rounds, so each gets half of it.
    """
    lines = [
        "",
        "[tool.graphbus.llm]",
        'model = "live"',
        f"timeout_s = {wishes.limit_s}",
        "concurrency = 1",
        f"max_output_tokens = {wishes.max_output_tokens}",
        *wishes.settings,
        "",
        "[tool.graphbus.llm.providers.live]",
        f'base_url = "{url}"',
        f'key_env = "{_OWN_VARIABLE}"',
        f'default_model = "{model}"',
        "",
        "[tool.graphbus.budget]",
        f"max_seconds = {wishes.limit_s / 2:g}",
    ]
    return "\n".join(lines) + "\n"


def run_in_terminal(command: Sequence[str], cwd: Path, environ: Mapping[str, str], limit_s: float) -> Command:
    """Run a command at a terminal of its own; kill it, with all that it has started, when its time is over.

    What it prints is passed on if this program stands at a terminal itself.
    """
    terminal, slave = pty.openpty()
    termios.tcsetwinsize(slave, (_ROWS, _COLUMNS))
    started, output = time.monotonic(), bytearray()
    process = subprocess.Popen(
        command, cwd=cwd, env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    is_late = is_over = False
    while not (is_late or is_over):
        piece = _read_piece(terminal)
        output += piece
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), piece)
        is_over = not piece and process.poll() is not None
        is_late = time.monotonic() - started > limit_s
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    os.close(terminal)
    text = _ESCAPES.sub("", output.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    return Command(None if is_late and not is_over else process.returncode, text, time.monotonic() - started)


def _read_piece(terminal: int) -> bytes:
    """Return what a terminal shows next; empty if that is nothing for a moment, or nothing more."""
    if select.select([terminal], [], [], 0.2)[0]:
        with suppress(OSError):  # nobody holds the other end
            return os.read(terminal, 65_536)
        time.sleep(0.2)
    return b""


def _load_records(artifacts: Path) -> tuple[SessionRecord | None, tuple[TranscriptEvent, ...]]:
    """Return record and transcript of the session; None and nothing if it has left none."""
    try:
        record = load_session(artifacts)
        return record, load_transcript(artifacts, record.session)
    except NegotiationError:
        return None, ()


def _read_tree(shop: Path) -> dict[str, bytes]:
    """Return path -> content of every file of the project, without what its tools write."""
    return {name: data for name, data in _read_all(shop).items() if _NOT_COMPARED.isdisjoint(Path(name).parts)}


def _read_all(folder: Path) -> dict[str, bytes]:
    """Return path -> content of every file below a folder; of a link, where it leads."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {
        path.relative_to(folder).as_posix(): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for path in paths
    }
