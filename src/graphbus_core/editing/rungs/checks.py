"""Rung G7: further commands of the configuration, with and without the change. They must find nothing new.

What a command finds are the lines that it prints. They are compared without their numbers, so that a finding that has only moved
is an old one, and as often as they occur.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.rungs.ground import Ground, NotRun, State, Verdict, not_copied
from graphbus_core.editing.rungs.trial_tree import NotCopied

_NUMBER = re.compile(r"(?<!\w)\d+(?!\w)")
_NO_FINDING = re.compile(
    r"\s*\d*\s*[|^]|\s*$|Found \d+ |\[\*\] \d+ fixable|All checks passed|Success: |\d+ (errors?|warnings?|files?)\b"
)
_PLAIN = {"RUFF_OUTPUT_FORMAT": "concise", "NO_COLOR": "1", "TERM": "dumb"}
_MISSING = (126, 127)


class Found(NamedTuple):
    """What a command found in a state: its lines without numbers, how they read, and its exit status."""

    lines: Counter[str]
    shown: dict[str, str]
    returncode: int
    timed_out: bool
    used_s: float


class CheckTrials:
    """The further commands of one session; a state that was checked is not checked again."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._found: dict[tuple[str, ...], Found] = {}

    def check(self, base: State, head: State) -> Verdict:
        """Run each command on both states; the first that finds something new refuses."""
        commands = [command for command in self._ground.config.settings.gate.checks if command]
        if not commands:
            return NotRun("There are no further checks in the configuration.")
        try:
            for command in commands:
                verdict = self._check(command, base, head)
                if verdict:
                    return verdict
        except NotCopied as reason:
            return self._ground.unverified("G7.unverified", not_copied(reason))
        return None

    def _check(self, command: tuple[str, ...], base: State, head: State) -> Verdict:
        name = " ".join(command)
        before = self._find(command, base)
        obstacle = _obstacle(before)
        if obstacle:
            return self._ground.unverified("G7.unverified", f"{name} {obstacle}, without the change, too.")
        after = self._find(command, head, before.used_s)
        if _obstacle(after):
            return Problem("G7.checks", f"{name} {_obstacle(after)} with the change.")
        fresh = [after.shown[line] for line in after.lines - before.lines]
        if after.returncode and (fresh or not before.returncode):
            spots = self._ground.files(head).spots_in("\n".join(fresh))
            more = f", also at {', '.join(map(str, spots[1:6]))}" if spots[1:] else ""
            said = f"{name} finds something new{more}." if fresh else f"{name} fails."
            return Problem("G7.checks", said, *(spots[0] if spots else ("", 0)), "\n".join(fresh))
        return None

    def _find(self, command: tuple[str, ...], state: State, before_s: float = 0.0) -> Found:
        key = (state.digest, *command)
        if key not in self._found:
            with self._ground.copy(state) as folder:
                done = self._ground.run(command, folder, _PLAIN, before_s)
                text = self._ground.plain(f"{done.stdout}\n{done.stderr}", folder)
            lines = [line for line in text.splitlines() if not _NO_FINDING.match(line)]
            shown = {_normal(line): line.strip() for line in lines}
            counted = Counter(_normal(line) for line in lines)
            self._found[key] = Found(counted, shown, done.returncode, done.timed_out, done.used_s)
        return self._found[key]


def _normal(line: str) -> str:
    """A line without the numbers that tell where something is."""
    return _NUMBER.sub("0", line).strip()


def _obstacle(found: Found) -> str:
    if found.timed_out:
        return "takes longer than timeout_s"
    return "is not installed where changed code runs" if found.returncode in _MISSING else ""
