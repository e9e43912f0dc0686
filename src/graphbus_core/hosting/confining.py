"""`--confined`: the process of a graph, bound to the powers that its project declares, before the first agent is imported.

The walls hold for everything in the process, GraphBus included; it can write its own state folder, and nothing else.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import NamedTuple, NoReturn

from graphbus_core import isolation
from graphbus_core.confinement import hook, walls
from graphbus_core.errors import Place, PowerError, RunError, raise_all
from graphbus_core.model.config import ResolvedRun
from graphbus_core.model.powers import Power, Powers
from graphbus_core.node import GraphBusNode
from graphbus_core.settings import CONFIG_VARIABLE

_HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def confine_process(config: ResolvedRun, root: str) -> tuple[str, ...]:
    """Bind this process for good, and give the lines that tell a person.

    Raises:
        RunError: GBE652 when nothing can be enforced here, GBE653 for each declared place to write that is not there.
    """
    powers = config.powers
    places = _Places(os.path.realpath(root), os.path.realpath(config.state_dir))
    raise_all(places.make(powers))
    writable = tuple(dict.fromkeys([places.state, *(os.path.realpath(places.of(path)) for path in powers.write)]))
    bounds = walls.Bounds(
        readable=tuple(dict.fromkeys(map(os.path.realpath, places.readable(config)))),
        writable=writable,
        may_write=bool(powers.write),
        may_connect=powers.network is not False,
        may_start=powers.processes,
    )
    readable = tuple(os.path.realpath(path) for path in walls.list_readable(bounds))
    refusals = _Refusals(powers, places, readable)
    sys.dont_write_bytecode = True
    missing = walls.apply_bounds(bounds)
    if missing.is_all:
        raise RunError("GBE652", gaps="; ".join(missing.gaps))
    hook.hide_variables(powers.environment, refusals.refuse_variable)
    hook.PowerHook(
        readable=readable,
        writable=(*writable, "/dev/null"),
        hosts=None if powers.network is False else powers.network,
        may_start=powers.processes,
        refuse=refusals.refuse,
    ).install()
    isolation.explain_exception = refusals.explain
    return tuple(_lines(powers, places, missing))


class _Places(NamedTuple):
    """Where the project is, and what GraphBus itself writes; without links."""

    root: str
    state: str

    def of(self, path: str) -> str:
        return os.path.join(self.root, path)

    def shown(self, path: str) -> str:
        """A path as a person would declare it."""
        is_ours = path.startswith(f"{self.root}/")
        return os.path.relpath(path, self.root) if is_ours else path

    def make(self, powers: Powers) -> Iterator[RunError]:
        """Make the folders that are to be written; a rule of the kernel is about something that is there."""
        for path in (f"{self.state}/", *powers.write):
            place = self.of(path)
            reason = "there is no such file or folder"
            if path.endswith("/"):
                try:
                    os.makedirs(place, exist_ok=True)
                except OSError as error:
                    reason = (error.strerror or str(error)).lower()
            if not os.path.exists(place) and place != f"{self.state}/":  # without state, agents keep none
                yield RunError("GBE653", path=path, reason=reason)

    def readable(self, config: ResolvedRun) -> Iterator[str]:
        yield from (self.root, config.artifacts_dir, _HERE)
        yield from filter(None, [os.environ.get(CONFIG_VARIABLE)])
        yield from (self.of(path) for path in config.powers.read)
        for entry in (*sys.path, *site.getsitepackages()):
            if entry and not self.root.startswith(os.path.join(os.path.realpath(entry), "")):
                yield entry


class _Refusals(NamedTuple):
    """Puts into words what was refused, and to whom."""

    powers: Powers
    places: _Places
    readable: tuple[str, ...]

    def refuse(self, deed: hook.RefusedAction) -> NoReturn:
        raise self._error(deed, *self._actor())

    def refuse_variable(self, name: str) -> None:
        """Libraries ask for many variables, and go on without; an agent that asks is to hear why it is not there."""
        who, place = self._actor(is_direct=True)
        if place:
            raise self._error(hook.RefusedAction("environment", f"read the variable {name}", name), who, place)

    def explain(self, error: Exception) -> Exception:
        """A refusal by the kernel, or on a thread that no agent is on (name look-ups of asyncio), with who and where."""
        if not isinstance(error, PermissionError) or (isinstance(error, PowerError) and error.where):
            return error
        who, place = self._named(list(walk_tb(error.__traceback__))[::-1])
        if isinstance(error, PowerError):
            return PowerError(error.code, where=place, **{**error.data, "who": who})
        if error.filename is None:
            what = f"do this ({(error.strerror or str(error)).lower()})"
            return PowerError("GBE654", where=place, who=who, what=what, declared=_declared(self.powers, self.places))
        path = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(error.filename)))
        declared = (self.places.state, *(os.path.realpath(self.places.of(each)) for each in self.powers.write))
        if hook.is_within(path, declared):
            return error  # the rights of the file, and not ours
        power: Power = "write" if hook.is_within(path, self.readable) else "read"
        return self._error(hook.RefusedAction(power, f"{power} {self.places.shown(path)}", path), who, place)

    def _error(self, deed: hook.RefusedAction, who: str, place: Place | None) -> PowerError:
        declared = getattr(self.powers, deed.power)
        example = self._example(deed)
        if deed.power != "processes":
            said = ", ".join(f'"{each}"' for each in (*(declared or ()), example))
            example = f"[{said}]"
        return PowerError("GBE651", where=place, who=who, what=deed.what, example=f"{deed.power} = {example}")

    def _example(self, deed: hook.RefusedAction) -> str:
        if deed.power not in ("write", "read"):
            return deed.target
        path = self.places.shown(deed.target)
        folder = os.path.dirname(path)
        is_new = deed.power == "write" and not os.path.exists(deed.target)
        return f"{folder}/" if is_new and folder not in ("", "/") else path

    def _actor(self, *, is_direct: bool = False) -> tuple[str, Place | None]:
        """Which agent and handler is at work on this thread, and on which line.

        Args:
            is_direct: Only code of the project that called the interpreter itself counts, and not through a library.
        """
        frames = list(walk_stack(sys._getframe(2)))
        if is_direct:
            first = next((at for at, (each, _) in enumerate(frames) if not _is_of_mapping(each)), 0)
            if not self._is_ours(frames[first][0]):
                return "", None
        return self._named(frames)

    def _named(self, frames: list[tuple[FrameType, int]]) -> tuple[str, Place | None]:
        ours = [(each, line) for each, line in frames if self._is_ours(each)]
        if not ours:
            return "The code of the graph", None
        innermost, line = ours[0]
        place = Place(self.places.shown(os.path.realpath(innermost.f_code.co_filename)), line)
        for each, _ in ours:
            agent = each.f_locals.get("self")
            if isinstance(agent, GraphBusNode):
                return f"{type(agent).__name__}.{each.f_code.co_name}", place
        name = innermost.f_code.co_qualname
        return (place.path if name == "<module>" else name), place

    def _is_ours(self, frame: FrameType) -> bool:
        path = os.path.realpath(frame.f_code.co_filename)
        return path.startswith(f"{self.places.root}/") and "/site-packages/" not in path and not path.startswith(_HERE)


def _is_of_mapping(frame: FrameType) -> bool:
    """Code of the environment itself: `os.environ.get` is written in Python, three functions deep."""
    path = frame.f_code.co_filename
    return "_collections_abc" in path or path in (os.__file__, hook.__file__) or path.startswith("<frozen")


def _lines(powers: Powers, places: _Places, missing: walls.EnforcementGaps) -> Iterator[str]:
    yield f"Confined: {_declared(powers, places)}."
    gaps = list(missing.gaps)
    if powers.network and "*" not in powers.network:
        gaps.append("which hosts native code reaches (Python code is held to them)")
    if gaps:
        yield f"Not enforced here: {'; '.join(gaps)}."


def _declared(powers: Powers, places: _Places) -> str:
    hosts = powers.network or ()
    network = "any network" if "*" in hosts else f"network to {', '.join(hosts)}" if hosts else "no network"
    variables = f"the variables {', '.join(powers.environment)}" if powers.environment else "no variables"
    reads = f"; reads {', '.join(powers.read)} beside the project" if powers.read else ""
    writes = ", ".join([f"{places.shown(places.state)}", *powers.write])
    return (
        f"{network}, {'any program' if powers.processes else 'no programs'}, {variables}{reads}; writes {writes} only"
    )
