"""Runs the terminal sessions that the documentation shows, and writes what really came out.

    python scripts/transcript.py README.md docs/tutorial.md            # run and rewrite
    python scripts/transcript.py --check README.md                     # run and compare, for CI

README.md is typed into a shell of a fresh clone, without hidden steps: see scripts/terminal.py. All blocks of another document
run in order, in one empty folder. A line `...` stands for any number of lines that were left out:

    ```console                      each line `$ command` is run, and its output follows it
    <!-- file: agents/a.py -->      the code block that follows is written to this file
    <!-- exit status 3 -->          the last command of the block that follows ends like this; without it, with 0
    <!-- run: graphbus init . -->   this command is run before the block that follows, unseen; $EXAMPLES is our examples/
    <!-- not run -->                the block that follows is left alone
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
README = EXAMPLES.parent / "README.md"
TIMEOUT_S = 600
WIDTH = "100"
BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]* -->\n)*)^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
NOTE = re.compile(r"^<!-- (.*?) -->$", re.MULTILINE)
VARYING = (
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:µs|ms|s|seconds?)\b"), "# s"),
    (re.compile(r"\b\d\d:\d\d:\d\d\.\d{3}\b"), "#:#"),
    (re.compile(r"\b[0-9a-f]{8}(?:[0-9a-f]{24})?\b"), "#id"),
    (re.compile(r"\([0-9a-f]{7}\)"), "(#commit)"),
    (re.compile(r"\b\d+\.\d%"), "#%"),
    (re.compile(r" {2,}"), "  "),  # what is right-aligned
)


class SessionError(Exception):
    """A command of a document did not end as the document says."""


class Command(NamedTuple):
    """One `$ command` and the output that the document shows for it."""

    text: str
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the terminal sessions of the documentation.")
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 if anything differs")
    arguments = parser.parse_args()
    return max([refresh(document, is_check=arguments.check) for document in arguments.documents])


def refresh(document: Path, *, is_check: bool) -> int:
    """Run the document and rewrite it, or say how it differs; gives 1 for a difference in a check or a failure."""
    old = document.read_text(encoding="utf-8")
    try:
        new = retyped(old) if document.resolve() == README else rerun(old)
    except SessionError as error:
        print(f"{document}: {error}", file=sys.stderr)
        return 1
    if not is_check:
        document.write_text(new, encoding="utf-8")
    elif new != old:
        print(*difflib.unified_diff(old.splitlines(), new.splitlines(), str(document), "as run", lineterm=""), sep="\n")
        return 1
    return 0


def retyped(text: str) -> str:
    """Give README.md with the output of its commands as it is now."""
    sys.path.insert(0, str(README.parent))
    from scripts.terminal import retype  # noqa: PLC0415 - it imports this module

    return retype(text)


def rerun(text: str) -> str:
    """Give the text with the output of every command as it is now; where only what varies differs, as it was.

    Raises:
        SessionError: A command ended otherwise than the document says.
    """
    with tempfile.TemporaryDirectory(prefix="graphbus-docs-") as folder:
        home = Path(folder).resolve() / "home"
        home.mkdir()
        return BLOCK.sub(Session(home).run_block, text)


class Session:
    """A terminal: it has a working folder, and knows the way home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._cwd = home

    def run_block(self, block: re.Match[str]) -> str:
        """Do what a block of the document says and give it with what came out."""
        notes = NOTE.findall(block["notes"])
        for note in notes:
            kind, _, rest = note.partition(": ")
            if kind == "file":
                self._write(rest, block["body"])
            elif kind == "run":
                self._run(Command(rest, ""), 0)
        if block["language"] != "console" or "not run" in notes:
            return block[0]
        status = next((int(note.split()[-1]) for note in notes if note.startswith("exit status ")), 0)
        return f"{block['notes']}```console\n{self._run_all(list(commands(block['body'])), status)}```"

    def _write(self, path: str, text: str) -> None:
        target = self._cwd / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def _run_all(self, shown: list[Command], last_status: int) -> str:
        statuses = [0] * (len(shown) - 1) + [last_status]
        return "".join(
            f"$ {command.text}\n{self._run(command, status)}" for command, status in zip(shown, statuses, strict=True)
        )

    def _run(self, command: Command, expected: int) -> str:
        words = shlex.split(command.text)
        if words[0] == "cd":
            self._cwd = (self._cwd / words[1]).resolve()
            return ""
        finished = subprocess.run(
            ["bash", "-c", command.text],
            cwd=self._cwd,
            env=environment(self._home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=False,
        )
        output = tidy(finished.stdout, self._home)
        if finished.returncode != expected:
            raise SessionError(f"`{command.text}` ended with {finished.returncode}, not {expected}:\n{output}")
        return command.output if shows(command.output, output) else output


def commands(body: str) -> Iterator[Command]:
    """Give the commands of a console block; a line that ends in a backslash goes on in the next."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        text, _, output = re.sub(r"\\\n", "\\\\\0", part).partition("\n")
        yield Command(text.replace("\0", "\n"), output.replace("\0", "\n"))


def environment(home: Path) -> dict[str, str]:
    """Give the surroundings of a terminal of fixed width without colours, with the commands of this environment."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "COVERAGE_PROCESS_START") if name in os.environ}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    fixed = {"HOME": str(home), "COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONUTF8": "1", "EXAMPLES": str(EXAMPLES)}
    return kept | fixed | {"PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def tidy(output: str, home: Path) -> str:
    """Make output independent of the machine: the session's folder is home, lines have no trailing blanks."""
    lines = output.replace(str(home), "~").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def shows(shown: str, output: str) -> bool:
    """True when the document shows this output, but for what is never the same and for lines that it leaves out."""
    lines = [re.escape(line) for line in without_what_varies(shown).splitlines(keepends=True)]
    pattern = "".join(r"(?:.*\n)*?" if line == re.escape("...\n") else line for line in lines)
    return re.fullmatch(pattern, without_what_varies(output)) is not None


def without_what_varies(text: str) -> str:
    """Durations, times of day, ids and shares are as they come."""
    for pattern, sign in VARYING:
        text = pattern.sub(sign, text)
    return text


if __name__ == "__main__":
    sys.exit(main())
