"""Types what README.md shows into a real shell, line by line, in a fresh clone, and gives the page with what came out.

`scripts/transcript.py README.md` calls this. What a shell block shows is all that is typed: there are no hidden steps. In a `sh`
block every line is typed; in a `console` block what stands behind `$ ` and behind the prompts of programs that ask for input.

Two things differ from a person's terminal. The clone finds its `.venv` ready, because filling one needs the network. And
`make test` is typed as `make --dry-run test`, which fails where there is no such target: else the test would run itself.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from scripts.transcript import BLOCK, NOTE, SessionError, shows, tidy

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600
READY = re.compile(r"\[(\d+)\]@ready@ \Z")
ASKING = ("graphbus> ", "(graphbus) ")
TYPED = re.compile(rf"^(?:\$ |{'|'.join(re.escape(prompt) for prompt in ASKING)})", re.MULTILINE)


class Line(NamedTuple):
    """What is typed, with the prompt that stands before it, and the output that the page shows for it."""

    prompt: str
    text: str
    output: str


def retype(page: str) -> str:
    """Give the page with the output of every command as it is now; where it differs only in times and ids, as it was.

    Raises:
        SessionError: A command ended otherwise than the page says.
    """
    with tempfile.TemporaryDirectory(prefix="graphbus-clone-") as folder:
        home = Path(folder).resolve()
        shell = Shell(clone(home / "graphbus"), home)
        try:
            return BLOCK.sub(shell.type_block, page)
        finally:
            shell.close()


def clone(folder: Path) -> Path:
    """Commit what git has or would take of our tree to a repository of its own, and give it the environment that runs this."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    author = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "As it is"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / ".venv").mkdir()
    for each in Path(sys.prefix).iterdir():
        if each.name != ".ready":
            (folder / ".venv" / each.name).symlink_to(each)
    (folder / ".venv" / ".ready").touch()
    return folder


class Shell:
    """A bash at a terminal of its own, which shows neither colours nor what is typed."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self._home = home
        self._master, slave = pty.openpty()
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        variables = {"PS1": r"[$?]@ready@ ", "PS2": "", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}
        variables["VIRTUAL_ENV_DISABLE_PROMPT"] = "1"
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=cwd,
            env={**kept, **variables, "HOME": str(home), "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdin=slave,
            stdout=slave,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(slave)
        self._read()

    def close(self) -> None:
        """End the shell, and with its terminal what it has left running."""
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type_block(self, block: re.Match[str]) -> str:
        """Type what the block shows; give it with what came out. Blocks of other languages are left alone."""
        notes = NOTE.findall(block["notes"])
        last = next((int(note.split()[-1]) for note in notes if note.startswith("exit status ")), 0)
        if block["language"] == "sh":
            for line in re.sub(r" +# .*$", "", block["body"], flags=re.MULTILINE).splitlines():
                self._type(line, 0)
        elif block["language"] == "console":
            shown = list(lines(block["body"]))
            expected = [0] * (len(shown) - 1) + [last]
            body = "".join(self._output(line, status) for line, status in zip(shown, expected, strict=True))
            return f"{block['notes']}```console\n{body}```"
        return block[0]

    def _output(self, line: Line, expected: int) -> str:
        output = self._type(line.text, expected)
        return f"{line.prompt}{line.text}\n{line.output if shows(line.output, output) else output}"

    def _type(self, text: str, expected: int) -> str:
        typed = "make --dry-run test" if text == "make test" else text
        os.write(self._master, f"{typed}\n".encode())
        output = self._read()
        prompt = READY.search(output)
        if prompt and int(prompt[1]) != expected:
            raise SessionError(f"`{text}` ended with {prompt[1]}, not {expected}:\n{output}")
        return tidy(output[: prompt.start()] if prompt else without_prompt(output), self._home)

    def _read(self) -> str:
        """Give what is shown up to the next prompt, of the shell or of a program."""
        seen, deadline = b"", time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                with suppress(OSError):
                    seen += os.read(self._master, 65536)
            elif READY.search(text := seen.decode(errors="replace").replace("\r\n", "\n")) or text.endswith(ASKING):
                return text
        raise SessionError(f"no prompt after {TIMEOUT_S} seconds, but:\n{seen.decode(errors='replace')}")


def without_prompt(output: str) -> str:
    """Leave out the prompt that the output ends with."""
    return output.removesuffix(next(prompt for prompt in ASKING if output.endswith(prompt)))


def lines(body: str) -> Iterator[Line]:
    """Give what a console block shows as typed, each with the output up to the next."""
    starts = [*TYPED.finditer(body)]
    ends = [*(start.start() for start in starts[1:]), len(body)]
    for start, end in zip(starts, ends, strict=True):
        text, _, output = body[start.end() : end].partition("\n")
        yield Line(start[0], text, output)
