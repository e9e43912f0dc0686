"""Requirements with hashes: ours, as the lock of GraphBus has them, and the project's, which are read only to be checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from graphbus_core.errors import DeployError, Place

_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(==|@|;|\\|$|[<>!~=])")
_HASH = re.compile(r"--hash[= ]sha(?:256|384|512):[0-9a-f]{64,128}\b")
_OTHERS = ("-r", "-c", "-e", "--requirement", "--constraint", "--editable")
_HARMLESS = frozenset(
    {
        *("-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links", "--trusted-host"),
        *("--require-hashes", "--prefer-binary", "--pre", "--only-binary :all:"),
    }
)
"""Options that say where to look, or make it stricter; pip takes shortened ones as well, so only these are let through."""
_OURS = frozenset({"graphbus", "graphbus-core", "graphbus-runtime"})


class Requirement(NamedTuple):
    """One entry of a file: the name of the distribution as indexes compare it, and its text, hashes included."""

    name: str
    text: str


def read_hashed(text: str, path: str) -> tuple[Requirement, ...]:
    """Read a file of requirements, every one of which must have its hashes.

    Raises:
        DeployError: GBE711 for anything else, with the line.
    """
    found = []
    for number, line in _logical(text.removeprefix("\ufeff")):
        name = None if line.startswith("-") else _NAME.match(line)
        reason = _fault_of_option(line) if line.startswith("-") else _fault(line, name)
        if reason:
            raise DeployError("GBE711", where=Place(path, number), path=path, reason=reason)
        if name:
            found.append(Requirement(normal(name[1]), line))
    return tuple(found)


def _fault_of_option(line: str) -> str:
    """Why a line with an option is refused; empty when it may stay."""
    option, _, value = line.replace("=", " ", 1).partition(" ")
    if line.startswith(_OTHERS):
        return "it leads to another file or folder; write one file that holds all"
    if option in _HARMLESS or f"{option} {value.strip()}" in _HARMLESS:
        return ""
    return f"{option} could let in what is no wheel, or what has no hash; leave it out"


def _fault(line: str, name: re.Match[str] | None) -> str:
    """Why a line with a package is refused; empty when it may stay."""
    if name is None:
        return "it does not begin with the name of a package"
    if not _HASH.search(line):
        return f"{name[1]} has no `--hash=sha256:`"
    if normal(name[1]) in _OURS:
        return f"the runtime of GraphBus comes from its own wheel; leave {name[1]} out"
    if name[2] == "@" and not re.split(r"[?#\s]", line[name.end() :].strip())[0].endswith(".whl"):
        return f"{name[1]} comes from an address that is no wheel, and to install it would run code of others"
    return ""


def join(pins: Iterable[str], wheel: str, sha256: str, theirs: tuple[Requirement, ...], folder: str) -> str:
    """Give our file: the wheel of the runtime and what it needs, each package once.

    What the project's file pins is left to that: pip sees whether it meets what the runtime asks for.

    Args:
        pins: Parts of our lock; what an earlier one holds is not taken from a later one.
        wheel: The name of the wheel, in the folder.
    """
    taken = {each.name for each in theirs}
    lines = [f"./{folder}/{wheel} --hash=sha256:{sha256}"]
    for part in pins:
        fresh = [each for each in read_hashed(part, "requirements.txt") if each.name not in taken]
        taken |= {each.name for each in fresh}
        lines += [each.text for each in fresh]
    head = "# Written by `graphbus docker build`: the runtime, and what it needs. From the lock of GraphBus.\n"
    return head + "".join(re.sub(r"\s+--hash", " \\\n    --hash", line) + "\n" for line in lines)


def normal(name: str) -> str:
    """Give the name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Each entry with the number of its first line; what a backslash continues is one line, comments are none."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate(text.splitlines(), 1):
        first = first if parts else number
        body = re.sub(r"(^|\s)#.*", "", line).strip()
        parts.append(body.removesuffix("\\").strip())
        if body.endswith("\\"):
            continue
        joined, parts = " ".join(filter(None, parts)), []
        if joined:
            yield first, joined
    if any(parts):
        yield first, " ".join(filter(None, parts))
