"""`--confined`: limits the process of a graph to the powers that its project declares, before the first agent is imported.

Theory of operation. `confine_process` applies the limits of the kernel (`confinement.walls`), removes environment variables and
installs an audit hook (`confinement.hook`), in this order. Nothing can undo that, and it holds for the whole process: GraphBus
itself may write to its state folder only. The rest of the module explains refusals. It searches for the innermost line of the
project: on the stack, or, if the kernel refused, in the traceback of the error. The message names the agent and the missing
power, and shows how to declare it.
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
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.config import ResolvedRun
from graphbus_core.model.powers import Power, Powers
from graphbus_core.node import GraphBusNode
from graphbus_core.settings import CONFIG_VARIABLE, place_of

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
    raise_all(places.create_folders(powers))
    writable = tuple(dict.fromkeys([places.state, *(os.path.realpath(places.absolute(path)) for path in powers.write)]))
    bounds = walls.Bounds(
        readable=tuple(dict.fromkeys(map(os.path.realpath, places.list_readable(config)))),
        writable=writable,
        may_write=bool(powers.write),
        may_connect=powers.network is not False,
        may_start=powers.processes,
    )
    readable = tuple(os.path.realpath(path) for path in walls.list_readable(bounds))
    refusals = _Refusals(powers, places, readable)
    sys.dont_write_bytecode = True  # the folders of the sources are not writable from here on
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
    return tuple(_describe_limits(powers, places, missing))


class _Places(NamedTuple):
    """The real paths of the project and of the state folder, which GraphBus itself writes."""

    root: str
    state: str

    def absolute(self, path: str) -> str:
        """Return the absolute form of a declared path, which may be relative to the project."""
        return os.path.join(self.root, path)

    def as_declared(self, path: str) -> str:
        """Return a path as the settings would declare it: relative to the project if it lies in the project."""
        is_in_project = path.startswith(f"{self.root}/")
        return os.path.relpath(path, self.root) if is_in_project else path

    def create_folders(self, powers: Powers) -> Iterator[RunError]:
        """Create the declared folders, because a Landlock rule needs an existing path; yield GBE653 for each missing path."""
        for path in (f"{self.state}/", *powers.write):
            place = self.absolute(path)
            reason = "no such file or folder"
            advice = "Create it first, or end the path of a folder with `/`: then it is created when the graph starts."
            if path.endswith("/"):
                try:
                    os.makedirs(place, exist_ok=True)
                except OSError as error:
                    reason, advice = reason_of(error), advise_on(error, place)
            # A missing state folder is allowed: agents then have no state.
            if not os.path.exists(place) and place != f"{self.state}/":
                where = place_of(self.root, "powers", "write")
                yield RunError("GBE653", where=where, path=path, reason=reason, advice=advice)

    def list_readable(self, config: ResolvedRun) -> Iterator[str]:
        """Yield what may be read: the project, its artifacts, GraphBus, the settings, declared paths and the import path."""
        yield from (self.root, config.artifacts_dir, _HERE)
        yield from filter(None, [os.environ.get(CONFIG_VARIABLE)])
        yield from (self.absolute(path) for path in config.powers.read)
        for entry in (*sys.path, *site.getsitepackages()):
            # A folder above the project is left out: all that lies beside the project could be read with it.
            if entry and not self.root.startswith(os.path.join(os.path.realpath(entry), "")):
                yield entry


class _Refusals(NamedTuple):
    """Makes the errors for refused actions: they name the agent, the line and the power to declare."""

    powers: Powers
    places: _Places
    readable: tuple[str, ...]  # the real paths that the process may read

    def refuse(self, action: hook.RefusedAction) -> NoReturn:
        """Raise PowerError GBE651 for an action that the audit hook has seen on this thread."""
        raise self._make_power_error(action, *self._find_actor())

    def refuse_variable(self, name: str) -> None:
        """Raise GBE651 if code of the project itself reads a removed variable.

        Code of a library gets no error: libraries read many variables, and work without them.
        """
        who, place = self._find_actor(is_direct=True)
        if place:
            raise self._make_power_error(
                hook.RefusedAction("environment", f"read the environment variable {name}", name), who, place
            )

    def explain(self, error: Exception) -> Exception:
        """Return a PowerError with agent and line for a refusal; return any other exception unchanged.

        A refusal of the kernel is a PermissionError. A refusal of the hook has no line yet if it came on a thread without an
        agent, for instance one on which asyncio looks up a host name.
        """
        if not isinstance(error, PermissionError) or (isinstance(error, PowerError) and error.where):
            return error
        who, place = self._describe_frames(list(walk_tb(error.__traceback__))[::-1])
        if isinstance(error, PowerError):  # of the hook
            return PowerError(error.code, where=place, **{**error.data, "who": who})
        if error.filename is None:  # the kernel does not tell what was refused
            what = f"an operation of {who} on this line" if place else "an operation of the graph"
            reason = (error.strerror or str(error)).lower()
            limits = _describe_powers(self.powers, self.places)
            return PowerError("GBE654", where=place, what=what, reason=reason, declared=limits)
        path = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(error.filename)))
        declared = (self.places.state, *(os.path.realpath(self.places.absolute(each)) for each in self.powers.write))
        if hook.is_within(path, declared):
            return error  # the path is allowed, so the permissions of the file itself refused it
        power: Power = "write" if hook.is_within(path, self.readable) else "read"
        action = hook.RefusedAction(power, f"{power} {self.places.as_declared(path)}", path)
        return self._make_power_error(action, who, place)

    def _make_power_error(self, action: hook.RefusedAction, who: str, place: Place | None) -> PowerError:
        """Make the error GBE651 with an example of the setting that would allow the action."""
        declared = getattr(self.powers, action.power)
        example = self._choose_entry(action)
        if action.power != "processes":  # that one is true or false; the others are lists
            entries = ", ".join(f'"{each}"' for each in (*(declared or ()), example))
            example = f"[{entries}]"
        return PowerError("GBE651", where=place, who=who, what=action.what, example=f"{action.power} = {example}")

    def _choose_entry(self, action: hook.RefusedAction) -> str:
        """Return the entry that would allow an action; for a new file its folder, because only existing paths can be declared."""
        if action.power not in ("write", "read"):
            return action.target
        path = self.places.as_declared(action.target)
        folder = os.path.dirname(path)
        is_new = action.power == "write" and not os.path.exists(action.target)
        return f"{folder}/" if is_new and folder not in ("", "/") else path

    def _find_actor(self, *, is_direct: bool = False) -> tuple[str, Place | None]:
        """Name the innermost code of the project on this thread, and return its line, as `_describe_frames` does.

        Args:
            is_direct: Return "" and None if a library, and not code of the project, has used `os.environ`.
        """
        frames = list(walk_stack(sys._getframe(2)))  # without this method and the one that calls it
        if is_direct:  # skip the frames of `os.environ` itself
            first = next((index for index, (each, _) in enumerate(frames) if not _is_environ_code(each)), 0)
            if not self._is_project_code(frames[first][0]):
                return "", None
        return self._describe_frames(frames)

    def _describe_frames(self, frames: list[tuple[FrameType, int]]) -> tuple[str, Place | None]:
        """Name the innermost code of the project in these frames, and return its line.

        Args:
            frames: (frame, line), the innermost first.

        Returns:
            `Agent.method` of the innermost agent, else the function or the path of the module; and the innermost line. Without
            code of the project, a general phrase and None.
        """
        own_frames = [(each, line) for each, line in frames if self._is_project_code(each)]
        if not own_frames:
            return "The code of the graph", None
        innermost, line = own_frames[0]
        place = Place(self.places.as_declared(os.path.realpath(innermost.f_code.co_filename)), line)
        for each, _ in own_frames:
            agent = each.f_locals.get("self")
            if isinstance(agent, GraphBusNode):
                return f"{type(agent).__name__}.{each.f_code.co_name}", place
        name = innermost.f_code.co_qualname
        return (place.path if name == "<module>" else name), place

    def _is_project_code(self, frame: FrameType) -> bool:
        """True for a file in the project that belongs neither to GraphBus nor to an installed package."""
        path = os.path.realpath(frame.f_code.co_filename)
        return path.startswith(f"{self.places.root}/") and "/site-packages/" not in path and not path.startswith(_HERE)


def _is_environ_code(frame: FrameType) -> bool:
    """True for the implementation of `os.environ`: `os.environ.get` is three Python functions deep."""
    path = frame.f_code.co_filename
    return "_collections_abc" in path or path in (os.__file__, hook.__file__) or path.startswith("<frozen")


def _describe_limits(powers: Powers, places: _Places, missing: walls.EnforcementGaps) -> Iterator[str]:
    """Yield the lines for the terminal: the limits, and what could not be enforced."""
    yield f"Confined: {_describe_powers(powers, places)}."
    gaps = list(missing.gaps)
    if powers.network and "*" not in powers.network:
        gaps.append("the declared hosts, for native code")
    if gaps:
        yield f"Not enforced here: {'; '.join(gaps)}."


def _describe_powers(powers: Powers, places: _Places) -> str:
    """Return the declared powers as one phrase, as in `no network, no programs, ...`."""
    hosts = powers.network or ()
    network = "any network" if "*" in hosts else f"network to {', '.join(hosts)}" if hosts else "no network"
    names = ", ".join(powers.environment)
    variables = f"environment variables {names}" if names else "no environment variables"
    reads = f"; reads {', '.join(powers.read)} in addition to the project" if powers.read else ""
    writes = ", ".join([f"{places.as_declared(places.state)}", *powers.write])
    return f"{network}, {'any program' if powers.processes else 'no programs'}, {variables}{reads}; writes only to {writes}"
