"""`--confined`: limits the process of a graph to the powers that its project declares, before the first agent is imported.

Theory of operation. `confine_process` applies the limits of the kernel (`confinement.walls`), removes environment variables and
installs an audit hook (`confinement.hook`), in this order and for good. They hold for the whole process: GraphBus itself may
write to its state folder only. The rest of the module explains refusals: it searches the stack, or the traceback of an error of
the kernel, for the innermost line of the project, and names the agent, the missing power and how to declare it.
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
    """Limit this process to the declared powers, for good, and return lines for the terminal that describe the limits.

    Args:
        config: The powers, and the folders that GraphBus itself uses.
        root: The project.

    Raises:
        RunError: GBE652 when this system can enforce nothing, GBE653 for each declared place to write that does not exist.
    """
    powers = config.powers
    places = _Places(os.path.realpath(root), os.path.realpath(config.state_dir))
    raise_all(places.make(powers))
    writable = tuple(dict.fromkeys([places.state, *(os.path.realpath(places.absolute(path)) for path in powers.write)]))
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
    """The real paths of the project and of the state folder, which GraphBus itself writes."""

    root: str
    state: str

    def absolute(self, path: str) -> str:
        """Return the absolute form of a declared path, which may be relative to the project."""
        return os.path.join(self.root, path)

    def declarable(self, path: str) -> str:
        """Return a path as the settings would declare it: relative to the project if it lies in it."""
        is_ours = path.startswith(f"{self.root}/")
        return os.path.relpath(path, self.root) if is_ours else path

    def make(self, powers: Powers) -> Iterator[RunError]:
        """Create the writable folders, because a Landlock rule needs an existing path; yield GBE653 for each missing path."""
        for path in (f"{self.state}/", *powers.write):
            place = self.absolute(path)
            reason = "no such file or folder"
            if path.endswith("/"):
                try:
                    os.makedirs(place, exist_ok=True)
                except OSError as error:
                    reason = (error.strerror or str(error)).lower()
            if (
                not os.path.exists(place) and place != f"{self.state}/"
            ):  # a missing state folder is allowed: agents then have no state
                yield RunError("GBE653", path=path, reason=reason)

    def readable(self, config: ResolvedRun) -> Iterator[str]:
        """Yield the paths to read: the project, its artifacts, GraphBus, the settings, declared paths and the import path."""
        yield from (self.root, config.artifacts_dir, _HERE)
        yield from filter(None, [os.environ.get(CONFIG_VARIABLE)])
        yield from (self.absolute(path) for path in config.powers.read)
        for entry in (*sys.path, *site.getsitepackages()):
            # A folder above the project would let all its neighbours be read.
            if entry and not self.root.startswith(os.path.join(os.path.realpath(entry), "")):
                yield entry


class _Refusals(NamedTuple):
    """Makes the errors for refused actions: who did what on which line, and which power to declare."""

    powers: Powers
    places: _Places
    readable: tuple[str, ...]

    def refuse(self, deed: hook.RefusedAction) -> NoReturn:
        """Raise PowerError GBE651 for an action that the audit hook found on this thread."""
        raise self._error(deed, *self._actor())

    def refuse_variable(self, name: str) -> None:
        """Raise GBE651 if code of the project reads a removed variable; libraries read many and work without them."""
        who, place = self._actor(is_direct=True)
        if place:
            raise self._error(hook.RefusedAction("environment", f"read the variable {name}", name), who, place)

    def explain(self, error: Exception) -> Exception:
        """Turn a PermissionError of the kernel, or a refusal on a thread without an agent, into one with agent and line.

        Name look-ups of asyncio run on such threads. Other exceptions are returned unchanged.
        """
        if not isinstance(error, PermissionError) or (isinstance(error, PowerError) and error.where):
            return error
        who, place = self._describe_frames(list(walk_tb(error.__traceback__))[::-1])
        if isinstance(error, PowerError):
            return PowerError(error.code, where=place, **{**error.data, "who": who})
        if error.filename is None:
            what = f"do this ({(error.strerror or str(error)).lower()})"
            return PowerError("GBE654", where=place, who=who, what=what, declared=_declared(self.powers, self.places))
        path = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(error.filename)))
        declared = (self.places.state, *(os.path.realpath(self.places.absolute(each)) for each in self.powers.write))
        if hook.is_within(path, declared):
            return error  # the file's own permissions refused it
        power: Power = "write" if hook.is_within(path, self.readable) else "read"
        return self._error(hook.RefusedAction(power, f"{power} {self.places.declarable(path)}", path), who, place)

    def _error(self, deed: hook.RefusedAction, who: str, place: Place | None) -> PowerError:
        """Make the error GBE651 with an example of the setting that would allow the action."""
        declared = getattr(self.powers, deed.power)
        example = self._example(deed)
        if deed.power != "processes":
            said = ", ".join(f'"{each}"' for each in (*(declared or ()), example))
            example = f"[{said}]"
        return PowerError("GBE651", where=place, who=who, what=deed.what, example=f"{deed.power} = {example}")

    def _example(self, deed: hook.RefusedAction) -> str:
        """Return the entry to declare; for a new file its folder, because only existing paths can be allowed."""
        if deed.power not in ("write", "read"):
            return deed.target
        path = self.places.declarable(deed.target)
        folder = os.path.dirname(path)
        is_new = deed.power == "write" and not os.path.exists(deed.target)
        return f"{folder}/" if is_new and folder not in ("", "/") else path

    def _actor(self, *, is_direct: bool = False) -> tuple[str, Place | None]:
        """Return the agent and method that run on this thread, and the line; "" and None when no project code does.

        Args:
            is_direct: Only consider project code that made the call itself, not through a library.
        """
        frames = list(walk_stack(sys._getframe(2)))
        if is_direct:
            first = next((at for at, (each, _) in enumerate(frames) if not _is_environ_code(each)), 0)
            if not self._is_ours(frames[first][0]):
                return "", None
        return self._describe_frames(frames)

    def _describe_frames(self, frames: list[tuple[FrameType, int]]) -> tuple[str, Place | None]:
        """Name the innermost project code in frames that begin with the innermost: `Agent.method` or function, and line."""
        ours = [(each, line) for each, line in frames if self._is_ours(each)]
        if not ours:
            return "The code of the graph", None
        innermost, line = ours[0]
        place = Place(self.places.declarable(os.path.realpath(innermost.f_code.co_filename)), line)
        for each, _ in ours:
            agent = each.f_locals.get("self")
            if isinstance(agent, GraphBusNode):
                return f"{type(agent).__name__}.{each.f_code.co_name}", place
        name = innermost.f_code.co_qualname
        return (place.path if name == "<module>" else name), place

    def _is_ours(self, frame: FrameType) -> bool:
        path = os.path.realpath(frame.f_code.co_filename)
        return path.startswith(f"{self.places.root}/") and "/site-packages/" not in path and not path.startswith(_HERE)


def _is_environ_code(frame: FrameType) -> bool:
    """True for the implementation of `os.environ`: `os.environ.get` is three Python functions deep."""
    path = frame.f_code.co_filename
    return "_collections_abc" in path or path in (os.__file__, hook.__file__) or path.startswith("<frozen")


def _lines(powers: Powers, places: _Places, missing: walls.EnforcementGaps) -> Iterator[str]:
    """Yield the lines for the terminal: the limits, and what could not be enforced."""
    yield f"Confined: {_declared(powers, places)}."
    gaps = list(missing.gaps)
    if powers.network and "*" not in powers.network:
        gaps.append("which hosts native code reaches (Python code is held to them)")
    if gaps:
        yield f"Not enforced here: {'; '.join(gaps)}."


def _declared(powers: Powers, places: _Places) -> str:
    """Return the declared powers as one phrase."""
    hosts = powers.network or ()
    network = "any network" if "*" in hosts else f"network to {', '.join(hosts)}" if hosts else "no network"
    variables = f"the variables {', '.join(powers.environment)}" if powers.environment else "no variables"
    reads = f"; reads {', '.join(powers.read)} beside the project" if powers.read else ""
    writes = ", ".join([f"{places.declarable(places.state)}", *powers.write])
    return (
        f"{network}, {'any program' if powers.processes else 'no programs'}, {variables}{reads}; writes {writes} only"
    )
