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

    It is the nearest folder with a pyproject.toml that contains all of them. If there is none, it is the working directory if
    that contains them, else the folder that directly contains their longest common path.
    """
    from pathlib import Path

    resolved = [path.resolve() for path in paths]
    return Path(_find_root_of(os.path.commonpath(resolved) if resolved else os.getcwd()))


def _find_root_of(nearest: str) -> str:
    """Return the project root of one path, as `find_root` does, but as text: without `pathlib` a graph starts a sixth faster."""
    folder = nearest if os.path.isdir(nearest) else os.path.dirname(nearest)
    for ancestor in _list_ancestors(folder):
        if os.path.isfile(os.path.join(ancestor, PROJECT_FILE)):
            return ancestor
    here = os.path.realpath(os.getcwd())
    return here if here in _list_ancestors(folder) else os.path.dirname(nearest)


def _list_ancestors(folder: str) -> list[str]:
    """Return the folder and all folders above it, the nearest first."""
    found = [folder]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found


class _SettingsFile(msgspec.Struct, frozen=True):
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
    return _merge_settings([project] if os.path.isfile(project) else [])


def _merge_settings(paths: Iterable[str]) -> Settings:
    """Return the settings of these project files; those in the file that GRAPHBUS_CONFIG names override them.

    Raises:
        UsageError, SeveralErrors: As `load`.
    """
    named_file = os.environ.get(CONFIG_VARIABLE)
    sources = [*map(_read_project_file, paths), *([_read_named_file(named_file)] if named_file else [])]
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
    """Return the file and the line of a setting in effect; the project file without a line if no file sets it.

    Args:
        root: The project.
        names: The keys that lead to the setting below `[tool.graphbus]`, e.g. `"powers", "write"`.
    """
    named_file = os.environ.get(CONFIG_VARIABLE)
    project = os.path.join(root, PROJECT_FILE)
    sources = [
        *([_read_named_file(named_file)] if named_file else []),
        *([_read_project_file(project)] if os.path.isfile(project) else []),
    ]
    for source in sources:
        value = source.table
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            from graphbus_core.tables import TableReader

            return TableReader(source.path, source.text).place((*source.names, *names[:-1]), names[-1])
    return Place(PROJECT_FILE)


def _read_project_file(path: str) -> _SettingsFile:
    """Read the table `[tool.graphbus]` of a pyproject.toml."""
    text, document = _read_toml(path)
    tool = document.get("tool", {})
    return _SettingsFile(path, text, tool.get("graphbus", {}) if isinstance(tool, dict) else {}, ("tool", "graphbus"))


def _read_named_file(path: str) -> _SettingsFile:
    """Read the file that GRAPHBUS_CONFIG names: a pyproject.toml, or the same tables without the prefix `tool.graphbus`.

    Raises:
        UsageError: GBE161 if it cannot be read, GBE104 if it is not TOML.
    """
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        advice = "Correct the path, which was set with `--config` or in the variable GRAPHBUS_CONFIG."
        reason = (error.strerror or str(error)).lower()
        raise UsageError("GBE161", path=path, reason=reason, advice=advice) from None
    text, document = _read_toml(path)
    tool = document.get("tool")
    if os.path.basename(path) == PROJECT_FILE or (isinstance(tool, dict) and "graphbus" in tool):
        return _read_project_file(path)
    return _SettingsFile(path, text, document, ())


def _read_toml(path: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file and its document; raise GBE161 if it cannot be read, GBE104 if it is not TOML."""
    import tomllib

    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        from graphbus_core.errors.system import advise_on, reason_of

        raise UsageError("GBE161", path=path, reason=reason_of(error), advice=advise_on(error, path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason, _, place = str(error).rstrip(".").partition(" (at line ")
        line, _, column = place.rstrip(")").partition(", column ")
        where = Place(path, int(line or 0), int(column or 0))
        raise UsageError("GBE104", where=where, reason=f"{reason[:1].lower()}{reason[1:]}") from None


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
    table = project_table(root)
    info = {"title": table.get("name"), "version": table.get("version"), "description": table.get("description")}
    return ProjectInfo(**{key: text for key, text in info.items() if isinstance(text, str) and text})


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
    settings = _apply_request(request.settings if request.settings is not None else load(root), request)
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


def _apply_request(settings: Settings, request: BuildConfig) -> Settings:
    """Return the settings with the values of the request, which take precedence; raise GBE145 for an invalid `max_usd`."""
    whole = {"llm": request.llm_config, "safety": request.safety_config, "refactoring_goals": request.refactoring_goals}
    settings = change(settings, **{name: value for name, value in whole.items() if value is not None})
    if request.rounds is not None:
        settings = change(settings, safety=change(settings.safety, max_negotiation_rounds=request.rounds))
    if request.unsafe_verify:
        settings = change(settings, gate=change(settings.gate, allow_unverified=True))
    if request.model:
        settings = change(
            settings, llm=change(settings.llm, model=request.model, proposer="", evaluator="", arbiter="")
        )
    if request.voters:
        settings = change(settings, llm=change(settings.llm, evaluator=request.voters, arbiter=request.voters))
    if not request.use_cache:
        settings = change(settings, llm=change(settings.llm, use_cache=False))
    if request.max_usd is not None:
        if not (math.isfinite(request.max_usd) and request.max_usd >= 0):
            raise UsageError("GBE145", got=f"{request.max_usd:g}")
        settings = change(settings, budget=change(settings.budget, max_usd=request.max_usd))
    return change(settings, intent=request.intent) if request.intent else settings


def _find_package(name: str) -> Path:
    """Return the path of a package or module, found without importing anything; raise GBE105 if there is none."""
    from pathlib import Path

    relative = Path(*name.split("."))
    for folder in _import_folders():
        if (folder / relative).is_dir():
            return folder / relative
        if (folder / relative).with_suffix(".py").is_file():
            return (folder / relative).with_suffix(".py")
    raise UsageError("GBE105", name=name)


def _import_folders() -> Iterator[Path]:
    """Yield the folders in which a package is looked for: the working directory, its `src`, then `sys.path`."""
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
    # The last part of the path is kept: an artifact folder that is a link belongs to the project that contains the link.
    folder = os.path.join(os.path.realpath(above), name)
    root = _find_root_of(os.path.dirname(folder))
    found = _load_for_run(root)
    settings = found.runtime
    if request.validation is not None:
        settings = change(settings, validation=request.validation)
    if request.ledger is not None:
        settings = change(settings, ledger=request.ledger)
    return ResolvedRun(
        artifacts_dir=folder,
        entrypoint=request.entrypoint,
        allow_drift=request.allow_drift,
        is_serving=request.is_serving,
        instruments=request.instruments,
        is_partial=request.is_partial,
        only=request.only,
        partition=request.partition,
        is_confined=request.is_confined,
        powers=found.powers,
        state_dir=_resolve_state_dir(root, settings.state_dir),
        external_topics=found.external_topics,
        settings=settings,
    )


def _resolve_state_dir(root: str, state_dir: str) -> str:
    """Return the absolute path of the state folder; symbolic links in it are resolved only if it lies outside of the project."""
    path = os.path.normpath(os.path.join(root, state_dir))
    return path if path.startswith(f"{root}{os.sep}") else os.path.realpath(path)


def _load_for_run(root: str) -> Settings:
    """Return the settings of a project, as `load` does.

    pyproject.toml is parsed only if it mentions GraphBus, because parsing takes a third of the start-up time.
    """
    path = os.path.join(root, PROJECT_FILE)
    try:
        with open(path, "rb") as file:
            must_parse = b"graphbus" in file.read()
    except OSError:  # if the file exists, `_merge_settings` raises the error that fits
        must_parse = os.path.exists(path)
    return _merge_settings([path] if must_parse else [])
