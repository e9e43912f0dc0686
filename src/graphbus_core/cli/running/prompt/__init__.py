"""`graphbus run -i`: lines from a person, or from a pipe, until the input ends.

terminal:  completion, history, Ctrl-C cancels the line or what it does, Ctrl-D leaves; the exit status is 0
pipe:      line after line; empty ones and those that begin with # are passed over; a refused one makes the exit status 7
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from graphbus_core.cli import console
from graphbus_core.cli.running.prompt.commands import BY_NAME, find
from graphbus_core.cli.running.prompt.session import Session
from graphbus_core.cli.running.terminal import Terminal, interruptible
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.store.beneath import Folder, read_plain

HISTORY = "prompt_history"

_KEPT_LINES = 1000
_PROMPT = "graphbus> "


class Prompt:
    """Reads lines and does what they say.

    Args:
        folder: The `state_dir`; what was typed is kept there.

    Attributes:
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    def __init__(self, session: Session, terminal: Terminal, folder: Path) -> None:
        self.total = 0
        self.refused = 0
        self._session = session
        self._terminal = terminal
        self._history = folder / HISTORY
        self._words: list[str] = []
        self._known_lines = 0
        self._is_kept = True

    def run(self) -> None:
        """Read until the input ends or somebody says `quit`."""
        with interruptible():
            if self._session.is_typed:
                self._talk()
            else:
                self._work_off()

    def _talk(self) -> None:
        console.out("Type `help` for the commands, TAB to complete; Ctrl-D leaves.")
        self._terminal.complete = self.complete
        self._read_history()
        try:
            for line in self._typed_lines():
                try:
                    self.do(line)
                except KeyboardInterrupt:
                    if self._is_over:
                        return
                    self._say_interrupted()
                except EOFError:
                    return
        finally:
            self._write_history()
            self._terminal.complete = None

    def _typed_lines(self) -> Iterator[str]:
        while True:
            try:
                yield self._terminal.read_line(_PROMPT)
            except KeyboardInterrupt:
                console.out()
                if self._is_over:
                    return
            except EOFError:
                console.out()
                return

    def _work_off(self) -> None:
        for line in sys.stdin:
            try:
                self.do(line)
            except EOFError:
                return

    @property
    def _is_over(self) -> bool:
        """A handler on the thread that delivers has ended the process, and that thread has woken this one."""
        return self._session.graph.bus.interruption is not None

    def do(self, line: str) -> None:
        """Do what one line says; a refusal of it is shown.

        Raises:
            EOFError: It says `quit`.
        """
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return
        self.total += 1
        try:
            find(name).work(self._session, rest.strip())
        except GraphBusError as error:
            self.refused += 1
            for each in error.errors if isinstance(error, SeveralErrors) else (error,):
                console.error(each)
        finally:
            console.flush()

    def complete(self, text: str, number: int) -> str | None:
        """Give the n-th word that may stand for this one; readline asks until there is none."""
        readline = self._terminal.readline
        if number == 0 and readline is not None:
            self._words = self.candidates(readline.get_line_buffer()[: readline.get_endidx()], text)
        return self._words[number] if number < len(self._words) else None

    def candidates(self, line: str, text: str) -> list[str]:
        """Give all words that may stand in the place of `text`, with which the line ends."""
        words = line.split()
        if len(words) < 2 and not line.endswith(" "):
            found = list(BY_NAME)
        else:
            command = BY_NAME.get(words[0])
            found = list(command.candidates(self._session, line, text)) if command else []
        return sorted({word if word[-1] in "=:}" else f"{word} " for word in found if word.startswith(text)})

    def _say_interrupted(self) -> None:
        waiting = self._session.graph.bus.statistics().queued
        more = f" What still waits ({waiting}) is delivered with the next event." if waiting else ""
        console.say(f"\nInterrupted.{more}")

    def _read_history(self) -> None:
        readline = self._terminal.readline
        if readline is None:
            return
        readline.clear_history()
        try:
            lines = self._kept_lines()
        except OSError as error:
            self._is_kept = False
            told = f"What was typed before cannot be read: {error.strerror}. What is typed now is not kept."
            console.say(console.paint(told, "dim"))
            return
        for line in lines:
            readline.add_history(line)
        self._known_lines = readline.get_current_history_length()

    def _kept_lines(self) -> list[str]:
        try:
            return read_plain(self._history).decode("utf-8", "replace").splitlines()[-_KEPT_LINES:]
        except FileNotFoundError:
            return []

    def _write_history(self) -> None:
        """Add what was typed to what is there, for another prompt may have ended meanwhile.

        Only the owner may read it: payloads are typed here.
        """
        readline = self._terminal.readline
        if readline is None or not self._is_kept:
            return
        count = readline.get_current_history_length()
        typed = [readline.get_history_item(number + 1) for number in range(self._known_lines, count)]
        try:
            lines = [*self._kept_lines(), *(line for line in typed if line and "\n" not in line)]
            text = "".join(f"{line}\n" for line in lines[-_KEPT_LINES:])
            with Folder.at(self._history.parent, make=True) as folder:
                folder.write(f".{HISTORY}", text.encode(), 0o600)
                folder.replace(f".{HISTORY}", HISTORY)
        except OSError as error:
            console.say(console.paint(f"What was typed cannot be kept: {error.strerror}.", "dim"))
