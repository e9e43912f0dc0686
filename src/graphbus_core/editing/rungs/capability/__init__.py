"""Rung G3: what code can do beyond computing, as an allow list of effects.

What is not known to be harmless is refused where it is new. A change may use what the table calls harmless, what the project
defines without power, what the file did before in the same way, and what a person has declared in `[tool.graphbus.powers]`.

    scopes.py        which statement a name comes from
    sources.py       what a name or expression may stand for, through the files of the project
    uses.py          a file read from top to bottom, each expression with the use that is made of it
    judge.py         names and attributes held against the table       calls.py   calls that their arguments decide
    signs.py         what is written down: signs, and references to what the project defines
    powers.py        what is behind a reference in the end
    declarations.py  bases, roles, prompts, secrets
    text.py          what is in the characters
    harmless.py, acting.py   what is harmless, and what acts: data
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from graphbus_core.editing.rungs.capability.declarations import GUARDED, declared, of_guarded
from graphbus_core.editing.rungs.capability.signs import GLOBAL, Reference, Sign
from graphbus_core.editing.rungs.capability.sources import SourceFile, SourceFiles, TooMuchToJudge
from graphbus_core.editing.rungs.capability.text import signs_of_text
from graphbus_core.editing.rungs.capability.uses import POWERS, Power, ProjectPowers
from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.editing.text.source_text import Definition, SourceText, definitions
from graphbus_core.model.powers import Powers

_HOST = re.compile(r"'[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#]|'$)")
_VARIABLE = re.compile(r"[\[(]'(\w+)'")
_WAYS_OUT: dict[str, str] = {
    "G3.network": 'network = ["the host"]',
    "G3.url": 'network = ["the host"]',
    "G3.files": 'write = ["the folder"]',
    "G3.read": 'read = ["the folder"]',
    "G3.process": "processes = true",
    "G3.environment": 'environment = ["THE_NAME"]',
}
_DOES: dict[str, str] = {
    "G3.exec": "runs code from text or data",
    "G3.reflection": "reaches attributes by internal or computed names",
    "G3.process": "controls processes or the interpreter",
    "G3.network": "uses the network",
    "G3.native": "calls native code",
    "G3.files": "writes files",
    "G3.read": "reads files",
    "G3.environment": "reads the environment",
    "G3.patch": "replaces what belongs to others",
    "G3.node": "reaches behind the public interface of a node",
    "G3.unknown": "uses something that is not known to be harmless",
}


class Side(NamedTuple):
    """One side of a change: the text of a file, and the project around it."""

    text: bytes
    project: ProjectPowers


def check_growth(
    path: str,
    before: Side,
    after: Side,
    powers: Powers,
    passes_over: Callable[[Sign], bool] = lambda _: False,
    *,
    has_moved: bool = False,
) -> Problem | None:
    """Give the first sign, by line, that the new text has and the old one has not, or less often.

    Args:
        path: The file.
        before: Its old text and project.
        after: Its new ones.
        powers: What a person has declared that agents may do.
        passes_over: Tells which signs do not count in this file.
        has_moved: Prompts and arbiters are the same in all files of the change together, so that none counts here.
    """
    try:
        old, new = _Text(path, before), _Text(path, after)
        known, fresh = _counted(old.signs(old), old), _counted(new.signs(old), old)
    except RecursionError:
        return Problem("G2.size", "The code is nested too deeply to be judged.", path)
    except TooMuchToJudge:
        return Problem("G2.size", "What the names of this code stand for takes too long to be judged.", path)
    grown = [
        sign
        for key, found in fresh.items()
        for sign in found[len(known.get(key, [])) :]
        if (sign.is_counted or key not in known) and not passes_over(sign) and not permits(powers, sign)
    ]
    lost = [
        sign for key, found in known.items() if key[0] in GUARDED.values() for sign in found[len(fresh.get(key, [])) :]
    ]
    if has_moved:
        grown, lost = [sign for sign in grown if sign.code not in GUARDED.values()], []
    first = min(grown, key=lambda sign: (sign.line, sign.code), default=None)
    if first:
        return Problem(first.code, f"New here: {first.what}. {way_out(first.code)}", path, first.line)
    return Problem(lost[0].code, f"No longer here: {lost[0].what}.", path) if lost else None


def permits(powers: Powers, sign: Sign) -> bool:
    """Tell whether a person has declared the power that a sign stands for; a confined run holds it to its limits."""
    if sign.code == "G3.url":
        host = _HOST.search(sign.what)
        return host is not None and _is_one_of(host[1].lower(), powers.network or ())
    if sign.code == "G3.environment":
        name = _VARIABLE.search(sign.way)
        return name is not None and _is_one_of(name[1], powers.environment)
    declared_for = {
        "G3.network": bool(powers.network),
        "G3.files": bool(powers.write),
        "G3.read": bool(powers.read),
        "G3.process": powers.processes,
    }
    return declared_for.get(sign.code, False)


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    """Compare a name with declared ones, which may begin or end with `*`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def way_out(code: str) -> str:
    """Say how a person allows what a rung has refused."""
    if code in _WAYS_OUT:
        return f"If agents shall do that, declare it: {_WAYS_OUT[code]} in [tool.graphbus.powers]."
    return "No setting allows it; a person may make this change."


class _Text:
    """One text of a file, and what it uses."""

    def __init__(self, path: str, side: Side) -> None:
        self.source = SourceText(side.text, path)
        self.project = side.project
        file = side.project.files.file(path, tree=self.source.tree)
        if file is None:
            raise RuntimeError(path)
        self.file: SourceFile = file
        self.notes = self.project.notes(file)
        self.names = {id(symbol.node): symbol.name for symbol in definitions(file.tree)}
        self.defined = frozenset(self.names.values())

    def signs(self, old: _Text) -> Iterator[Sign]:
        """Give every sign of this text; `old` is the text before the change."""
        for sign in self.notes.signs:
            name = sign.what.removeprefix(GLOBAL)
            if name == sign.what or name in old.file.scopes.module.bindings:
                yield sign
        yield from self._of_references(old)
        yield from declared(self.file, old.defined)
        yield from (Sign(*found) for found in signs_of_text(self.source.text, self.file.nodes))

    def _of_references(self, old: _Text) -> Iterator[Sign]:
        free: set[int] = set()
        for reference in sorted(self.notes.references, key=lambda one: one.line):
            powers = self.project.powers_of(reference)
            if not powers:
                continue
            is_own = reference.home is self.file and reference.texts <= old.texts
            if reference.home is self.file and reference.node is not None:
                name = self.names.get(id(reference.node), "")
                if name not in old.sharp:
                    # A new function holds what the old text did; its own signs count, and so does every call but the first.
                    is_first = id(reference.node) not in free and reference.texts <= old.texts
                    free.add(id(reference.node))
                    if is_first or name in old.defined:
                        continue
            for power in powers.values():  # each by itself: one that is declared does not allow another
                sign = _sign_of(reference, power)
                yield sign._replace(way="") if is_own else sign

    @cached_property
    def sharp(self) -> frozenset[str]:
        """The functions and classes of this text that have a power, by their qualified names."""
        found = set()
        for symbol in definitions(self.file.tree):
            reference = Reference(self.file, symbol.node, symbol.name, 0, "", frozenset(), runs_at_import=False)
            if self.project.powers_of(reference):
                found.add(symbol.name)
        return frozenset(found)

    @cached_property
    def read(self) -> frozenset[str]:
        """Every constant text with which this text reads files."""
        return frozenset(text for sign in self.notes.signs if sign.code == "G3.read" for text in sign.texts)

    @cached_property
    def texts(self) -> frozenset[str]:
        """Every constant text of the file."""
        return frozenset(
            node.value if isinstance(node.value, str) else repr(node.value)
            for node in self.file.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        )


def _sign_of(reference: Reference, power: Power) -> Sign:
    code = power.sign.code
    what = f"the use of {reference.name}, which {_DOES.get(code, 'acts')} ({power.path})"
    return Sign(code, what, reference.line, reference.way, True, reference.runs_at_import, reference.texts)


def _counted(found: Iterable[Sign], old: _Text) -> dict[tuple[str, str, str], list[Sign]]:
    """Sort signs by what counts as the same. One way to read a file is as good as another, as long as it names no other file."""
    counted: dict[tuple[str, str, str], list[Sign]] = {}
    for sign in sorted(found, key=lambda sign: sign.line):
        is_any_reading = sign.code == "G3.read" and sign.way and sign.texts <= old.read
        way = sign.way if sign.texts <= old.texts else f"{sign.way} of {sorted(sign.texts - old.texts)}"
        key = (sign.code, "reading", "") if is_any_reading else (sign.code, sign.what, way)
        counted.setdefault(key, []).append(sign)
    return counted


def guarded(texts: Iterable[bytes]) -> Counter[tuple[str, str, str]]:
    """Count what binds prompts and roles in some files: the class around it, its code, and what it says."""
    found: Counter[tuple[str, str, str]] = Counter()
    for text in texts:
        source = SourceText(text)
        names = {id(symbol.node): symbol.name for symbol in definitions(source.tree)}
        owners = {id(source.tree): ""}
        for node in ast.walk(source.tree):  # what is around a node comes before it
            owner = names.get(id(node), owners[id(node)]) if isinstance(node, Definition) else owners[id(node)]
            owners.update((id(inner), owner) for inner in ast.iter_child_nodes(node))
            found.update((owners[id(node)], code, what) for code, what in of_guarded(node))
    return found


__all__ = ["POWERS", "ProjectPowers", "Side", "Sign", "SourceFiles", "check_growth", "guarded", "permits", "way_out"]
