"""From a request and the settings of project and place to the configuration that a mode works with.

command line  >  the file that GRAPHBUS_CONFIG names  >  [tool.graphbus] of pyproject.toml  >  defaults
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace as change

from graphbus_core.errors import GraphBusError, Place, UsageError, raise_all
from graphbus_core.model.artifacts import ProjectInfo
from graphbus_core.model.config import BuildConfig, ResolvedBuild, ResolvedRun, RuntimeConfig, Settings

if TYPE_CHECKING:
    from pathlib import Path

PROJECT_FILE = "pyproject.toml"
CONFIG_VARIABLE = "GRAPHBUS_CONFIG"
"""The variable that names a file with settings of the place where a command runs; `graphbus --config` sets it."""


def find_root(paths: Iterable[Path]) -> Path:
    """Give the project root of these paths.

    It is the nearest folder upwards with a pyproject.toml; without one the working directory if the paths are below it; else
    the folder that holds them.
    """
    from pathlib import Path

    resolved = [path.resolve() for path in paths]
    return Path(_root_of(os.path.commonpath(resolved) if resolved else os.getcwd()))


def _root_of(nearest: str) -> str:
    """The same for one path. Text will do: a graph is ready a sixth earlier when nothing at its start needs `pathlib`."""
    folder = nearest if os.path.isdir(nearest) else os.path.dirname(nearest)
    for ancestor in _with_ancestors(folder):
        if os.path.isfile(os.path.join(ancestor, PROJECT_FILE)):
            return ancestor
    here = os.path.realpath(os.getcwd())
    return here if here in _with_ancestors(folder) else os.path.dirname(nearest)


def _with_ancestors(folder: str) -> list[str]:
    found = [folder]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found


class _Source(msgspec.Struct, frozen=True):
    """A file with settings: its text, our table in it, and the names that lead to that table."""

    path: str
    text: str
    table: object
    names: tuple[str, ...]


def load(root: Path | str) -> Settings:
    """Read `[tool.graphbus]` of the project, then what the place says on top of it; without both, the defaults.

    A key of the place takes that of the project away; a table is joined key by key, a list is not.

    Raises:
        UsageError: GBE102 for unknown keys, GBE103 for wrong values, GBE104 for a file that is not TOML, GBE161 for a file of the
            place that cannot be read.
        SeveralErrors: All of them, when there is more than one.
    """
    project = os.path.join(root, PROJECT_FILE)
    return _read_all([project] if os.path.isfile(project) else [])


def _read_all(paths: Iterable[str]) -> Settings:
    """The settings of these projects, with those of the place on top."""
    place = os.environ.get(CONFIG_VARIABLE)
    sources = [*map(_project_source, paths), *([_place_source(place)] if place else [])]
    settings = Settings()
    errors: list[GraphBusError] = []
    for source in sources:
        if source.table == {}:
            continue
        from graphbus_core.tables import TableReader  # a graph without settings is ready sooner

        reader = TableReader(source.path, source.text)
        settings = reader.read(Settings, source.table, source.names, settings)
        errors += reader.errors
    raise_all(errors)
    return settings


def place_of(root: str, *names: str) -> Place:
    """The file and the line that decide a setting: that is where somebody would change it."""
    at_place = os.environ.get(CONFIG_VARIABLE)
    project = os.path.join(root, PROJECT_FILE)
    sources = [
        *([_place_source(at_place)] if at_place else []),
        *([_project_source(project)] if os.path.isfile(project) else []),
    ]
    for source in sources:
        said = source.table
        for name in names:
            said = said.get(name) if isinstance(said, dict) else None
        if said is not None:
            from graphbus_core.tables import TableReader

            return TableReader(source.path, source.text).place((*source.names, *names[:-1]), names[-1])
    return Place(PROJECT_FILE)


def _project_source(path: str) -> _Source:
    text, document = _read_toml(path)
    tool = document.get("tool", {})
    return _Source(path, text, tool.get("graphbus", {}) if isinstance(tool, dict) else {}, ("tool", "graphbus"))


def _place_source(path: str) -> _Source:
    """Either a project file, or the same tables without their prefix."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UsageError("GBE161", path=path, reason=(error.strerror or str(error)).lower()) from None
    text, document = _read_toml(path)
    tool = document.get("tool")
    if os.path.basename(path) == PROJECT_FILE or (isinstance(tool, dict) and "graphbus" in tool):
        return _project_source(path)
    return _Source(path, text, document, ())


def _read_toml(path: str) -> tuple[str, dict[str, Any]]:
    import tomllib

    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        reason = str(error).rstrip(".")
        raise UsageError("GBE104", where=Place(path), path=os.path.basename(path), reason=reason) from None


def project_table(root: Path | str) -> dict[str, object]:
    """Give `[project]` of pyproject.toml as it is written; empty where there is none.

    Raises:
        UsageError: GBE104.
    """
    path = os.path.join(root, PROJECT_FILE)
    table = _read_toml(path)[1].get("project") if os.path.isfile(path) else None
    return table if isinstance(table, dict) else {}


def project_info(root: Path | str) -> ProjectInfo:
    """What `[project]` of pyproject.toml says of the project; what it leaves open has its default.

    Raises:
        UsageError: GBE104.
    """
    said = project_table(root)
    known = {"title": said.get("name"), "version": said.get("version"), "description": said.get("description")}
    return ProjectInfo(**{key: text for key, text in known.items() if isinstance(text, str) and text})


def resolve_build(request: BuildConfig) -> ResolvedBuild:
    """Find the project and its settings for what a person asks of Build Mode; without a path, the working directory.

    Raises:
        UsageError: GBE101 for a path and GBE105 for a package that does not exist, GBE106 for a file that is no Python, GBE190
            for a folder with artifacts, GBE146 for a value of another type, and what `load` raises.
    """
    from pathlib import Path

    from graphbus_core.tables import convert_config

    request = convert_config(request)
    paths = [Path(path) for path in request.paths]
    raise_all(UsageError("GBE101", path=str(path)) for path in paths if not path.exists())
    raise_all(UsageError("GBE106", path=str(path)) for path in paths if path.suffix != ".py" and not path.is_dir())
    built = [path for path in paths if all((path / name).is_file() for name in ("graph.json", "agents.json"))]
    raise_all(UsageError("GBE190", path=str(path)) for path in built)
    if request.root_package:
        paths.append(_find_package(request.root_package))
    paths = paths or [Path()]
    root = find_root(paths)
    settings = _override(request.settings if request.settings is not None else load(root), request)
    return ResolvedBuild(
        root=str(root),
        paths=tuple(dict.fromkeys(str(path.resolve()) for path in paths)),
        settings=settings,
        enable_agents=request.enable_agents,
        dry_run=request.dry_run,
        force=request.force,
        emit_artifacts=request.emit_artifacts,
        session=request.session,
        is_frozen=request.is_frozen,
        is_reviewed=request.is_reviewed,
        is_resumed=request.is_resumed,
        makes_commits=request.makes_commits,
    )


def _override(settings: Settings, request: BuildConfig) -> Settings:
    """The command line comes before pyproject.toml."""
    given = {"llm": request.llm_config, "safety": request.safety_config, "refactoring_goals": request.refactoring_goals}
    settings = change(settings, **{name: value for name, value in given.items() if value is not None})
    if request.rounds is not None:
        settings = change(settings, safety=change(settings.safety, max_negotiation_rounds=request.rounds))
    if request.unsafe_verify:
        settings = change(settings, gate=change(settings.gate, allow_unverified=True))
    if request.model:
        settings = change(
            settings, llm=change(settings.llm, model=request.model, proposer="", evaluator="", arbiter="")
        )
    if not request.use_cache:
        settings = change(settings, llm=change(settings.llm, use_cache=False))
    if request.max_usd is not None:
        if not (math.isfinite(request.max_usd) and request.max_usd >= 0):
            raise UsageError("GBE145", got=f"{request.max_usd:g}")
        settings = change(settings, budget=change(settings.budget, max_usd=request.max_usd))
    return change(settings, intent=request.intent) if request.intent else settings


def _find_package(name: str) -> Path:
    """Where a package or module lies, without importing anything."""
    from pathlib import Path

    relative = Path(*name.split("."))
    for folder in _import_folders():
        if (folder / relative).is_dir():
            return folder / relative
        if (folder / relative).with_suffix(".py").is_file():
            return (folder / relative).with_suffix(".py")
    raise UsageError("GBE105", name=name)


def _import_folders() -> Iterator[Path]:
    from pathlib import Path

    here = Path.cwd()
    yield here
    yield here / "src"
    yield from (Path(entry) for entry in sys.path if entry)


_RUN_DEFAULTS = tuple((name, getattr(RuntimeConfig(), name)) for name in RuntimeConfig.__struct_fields__)


def resolve_run(request: RuntimeConfig) -> ResolvedRun:
    """Find the artifacts and the settings for what a person asks of Runtime Mode.

    Raises:
        UsageError: GBE146 for a value of another type, and what `load` raises.
    """
    if any(type(getattr(request, name)) is not type(value) for name, value in _RUN_DEFAULTS):
        from graphbus_core.tables import convert_config  # a graph that is started as usual is ready sooner

        request = convert_config(request)
    above, name = os.path.split(os.path.abspath(request.artifacts))
    folder = os.path.join(
        os.path.realpath(above), name
    )  # one that is a link belongs to the project in which the link stands
    root = _root_of(os.path.dirname(folder))
    found = _load_for_run(root)
    settings = found.runtime
    if request.validation is not None:
        settings = change(settings, validation=request.validation)
    return ResolvedRun(
        artifacts_dir=folder,
        entrypoint=request.entrypoint,
        allow_drift=request.allow_drift,
        is_serving=request.is_serving,
        instruments=request.instruments,
        is_partial=request.is_partial,
        only=request.only,
        is_confined=request.is_confined,
        powers=found.powers,
        state_dir=_state_dir(root, settings.state_dir),
        external_topics=found.external_topics,
        settings=settings,
    )


def _state_dir(root: str, named: str) -> str:
    """Where a graph writes: links on the way are the machine's outside of the project, and nobody's to follow in it."""
    place = os.path.normpath(os.path.join(root, named))
    return place if place.startswith(f"{root}{os.sep}") else os.path.realpath(place)


def _load_for_run(root: str) -> Settings:
    """The settings; TOML is read only if it speaks of us: that would take a third of the time in which a graph is ready."""
    path = os.path.join(root, PROJECT_FILE)
    try:
        with open(path, "rb") as file:
            is_for_us = b"graphbus" in file.read()
    except OSError:
        is_for_us = os.path.exists(path)
    return _read_all([path] if is_for_us else [])
