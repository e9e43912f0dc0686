"""Reads settings and combines them with a request to the configuration of Build Mode or Runtime Mode.

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
"""The environment variable that names a file with further settings; `graphbus --config` sets it."""


def find_root(paths: Iterable[Path]) -> Path:
    """Return the project root of these paths.

    It is the nearest folder upwards with a pyproject.toml; without one the working directory if the paths are below it; otherwise
    the folder that contains them.
    """
    from pathlib import Path

    resolved = [path.resolve() for path in paths]
    return Path(_root_of(os.path.commonpath(resolved) if resolved else os.getcwd()))


def _root_of(nearest: str) -> str:
    """Return the project root of one path, as text: without `pathlib` a graph starts a sixth faster."""
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
    """A file with settings: its text, the table of GraphBus in it, and the keys that lead to that table."""

    path: str
    text: str
    table: object
    names: tuple[str, ...]


def load(root: Path | str) -> Settings:
    """Read the settings: defaults, `[tool.graphbus]` of the project, then the file that GRAPHBUS_CONFIG names.

    A later key replaces an earlier one; tables are merged key by key, lists are replaced.

    Raises:
        UsageError: GBE102 for unknown keys, GBE103 for wrong values, GBE104 for a file that is not TOML, GBE161 if the file that
            GRAPHBUS_CONFIG names cannot be read.
        SeveralErrors: There is more than one of them.
    """
    project = os.path.join(root, PROJECT_FILE)
    return _read_all([project] if os.path.isfile(project) else [])


def _read_all(paths: Iterable[str]) -> Settings:
    """Return the settings of these project files, with those of GRAPHBUS_CONFIG on top."""
    place = os.environ.get(CONFIG_VARIABLE)
    sources = [*map(_project_source, paths), *([_place_source(place)] if place else [])]
    settings = Settings()
    errors: list[GraphBusError] = []
    for source in sources:
        if source.table == {}:
            continue
        from graphbus_core.tables import TableReader  # imported late: a graph without settings starts faster

        reader = TableReader(source.path, source.text)
        settings = reader.read(Settings, source.table, source.names, settings)
        errors += reader.errors
    raise_all(errors)
    return settings


def place_of(root: str, *names: str) -> Place:
    """Return the file and the line that decide a setting, where a user would change it."""
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
    """Read the file that GRAPHBUS_CONFIG names: a pyproject.toml, or the same tables without the prefix `tool.graphbus`."""
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
    """Return `[project]` of pyproject.toml; empty if there is none.

    Raises:
        UsageError: GBE104.
    """
    path = os.path.join(root, PROJECT_FILE)
    table = _read_toml(path)[1].get("project") if os.path.isfile(path) else None
    return table if isinstance(table, dict) else {}


def project_info(root: Path | str) -> ProjectInfo:
    """Return title, version and description from `[project]` of pyproject.toml, with defaults for missing keys.

    Raises:
        UsageError: GBE104.
    """
    said = project_table(root)
    known = {"title": said.get("name"), "version": said.get("version"), "description": said.get("description")}
    return ProjectInfo(**{key: text for key, text in known.items() if isinstance(text, str) and text})


def resolve_build(request: BuildConfig) -> ResolvedBuild:
    """Return the configuration of Build Mode for a request; without a path it builds the working directory.

    Raises:
        UsageError: GBE101 for a path and GBE105 for a package that does not exist, GBE106 for a file that is not
            Python, GBE190 for a folder with artifacts, GBE146 for a value of another type, and the errors of `load`.
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
    """Return the settings with those of the request, which take precedence."""
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
    """Return the path of a package or module, without importing anything."""
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
    """Return the configuration of Runtime Mode for a request.

    Raises:
        UsageError: GBE146 for a value of another type, and the errors of `load`.
    """
    if any(type(getattr(request, name)) is not type(value) for name, value in _RUN_DEFAULTS):
        from graphbus_core.tables import convert_config  # imported late: a usual start is faster without it

        request = convert_config(request)
    above, name = os.path.split(os.path.abspath(request.artifacts))
    folder = os.path.join(
        os.path.realpath(above), name
    )  # an artifact folder that is a link belongs to the project that contains the link
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
    """Return the folder a graph writes to; links are resolved only outside the project."""
    place = os.path.normpath(os.path.join(root, named))
    return place if place.startswith(f"{root}{os.sep}") else os.path.realpath(place)


def _load_for_run(root: str) -> Settings:
    """Return the settings; TOML is parsed only if it mentions GraphBus, because parsing takes a third of the start-up time."""
    path = os.path.join(root, PROJECT_FILE)
    try:
        with open(path, "rb") as file:
            is_for_us = b"graphbus" in file.read()
    except OSError:
        is_for_us = os.path.exists(path)
    return _read_all([path] if is_for_us else [])
