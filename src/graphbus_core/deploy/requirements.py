"""Requirements with hashes: ours, as the lock of GraphBus has them, and the project's, which are read only to be checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from graphbus_core.errors import DeployError, Place

_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(==|@|;|\\|$|[<>!~=])")
_HASH = re.compile(r"--hash[= ]sha(?:256|384|512):[0-9a-f]{64,128}\b")
_ELSEWHERE = ("-r", "-c", "-e", "--requirement", "--constraint", "--editable")
_HARMLESS = re.compile(
    r"(?:-i|--index-url|--extra-index-url|--no-index|-f|--find-links|--trusted-host|--require-hashes|--prefer-binary|--pre)"
    r"(?:[ =].*)?|--only-binary[ =]:all:"
)
"""Options that say where to look, or are stricter than ours. pip also takes shortened ones, so no other is let through."""
_OURS = frozenset({"graphbus", "graphbus-core", "graphbus-runtime"})


class Requirement(NamedTuple):
    """One entry of a file: the distribution, by its normalized name, and its text, hashes included."""

    name: str
    text: str


def entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield each entry of a file with the number of its first line; a backslash continues it, comments are left out."""
    number = 1
    for entry in re.split(r"(?<!\\)\n", text + "\n"):
        line = " ".join(re.sub(r"(^|\s)#.*", "", each).rstrip("\\ \t\r") for each in entry.split("\n")).strip()
        if line:
            yield number, line
        number += entry.count("\n") + 1


def read_hashed(text: str, path: str) -> tuple[Requirement, ...]:
    """Read a file of requirements, every one of which must have its hashes.

    Raises:
        DeployError: GBE711 for anything else, with the line.
    """
    found = []
    for number, line in entries(text.removeprefix("\ufeff")):
        name = None if line.startswith("-") else _NAME.match(line)
        reason = _fault_of_option(line) if line.startswith("-") else _fault(line, name)
        if reason:
            raise DeployError("GBE711", where=Place(path, number), path=path, reason=reason)
        if name:
            found.append(Requirement(_normal(name[1]), line))
    return tuple(found)


def join(pins: Iterable[str], wheel: str, sha256: str, theirs: tuple[Requirement, ...]) -> str:
    """Return our file of requirements: the wheel of the runtime and what it needs, each package once.

    What the project's file pins is left out; pip checks whether it meets what the runtime asks for.

    Args:
        pins: Parts of our lock; what an earlier one holds is not taken from a later one.
        wheel: Path of the wheel, below the project.
    """
    taken = {each.name for each in theirs}
    lines = ["# Written by `graphbus docker build`: the runtime, and what it needs. From the lock of GraphBus."]
    lines.append(f"./{wheel} --hash=sha256:{sha256}")
    for part in pins:
        fresh = [each for each in read_hashed(part, "requirements.txt") if each.name not in taken]
        taken |= {each.name for each in fresh}
        lines += [each.text for each in fresh]
    return "".join(re.sub(r"\s+--hash", " \\\n    --hash", line) + "\n" for line in lines)


def _fault_of_option(line: str) -> str:
    """Say why an option is refused; empty if it may stay."""
    if line.startswith(_ELSEWHERE):
        return "it leads to another file or folder; write one file that holds all"
    if _HARMLESS.fullmatch(line):
        return ""
    return f"{re.split('[ =]', line)[0]} could let in what is no wheel, or what has no hash; leave it out"


def _fault(line: str, name: re.Match[str] | None) -> str:
    """Say why a package is refused; empty if it may stay."""
    if name is None:
        return "it does not begin with the name of a package"
    if not _HASH.search(line):
        return f"{name[1]} has no `--hash=sha256:`"
    if _normal(name[1]) in _OURS:
        return f"the runtime of GraphBus comes from its own wheel; leave {name[1]} out"
    if name[2] == "@" and not re.split(r"[?#\s]", line[name.end() :].strip())[0].endswith(".whl"):
        return f"{name[1]} comes from an address that is no wheel, and to install it would run code of others"
    return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
