"""From a request and `[tool.graphbus]` of pyproject.toml to the configuration that a mode works with."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from graphbus_core.errors import GraphBusError, Place, UsageError, did_you_mean, raise_all
from graphbus_core.model.config import BuildConfig, BuildRequest, RuntimeConfig, RuntimeRequest, Settings

if TYPE_CHECKING:
    from pathlib import Path

PROJECT_FILE = "pyproject.toml"

Table = TypeVar("Table", bound=msgspec.Struct)


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


def load(root: Path | str) -> Settings:
    """Read `[tool.graphbus]` of the project; without it, the defaults.

    Raises:
        UsageError: GBE102 for unknown keys, GBE103 for wrong values, GBE104 for a file that is not TOML.
        SeveralErrors: All of them, when there is more than one.
    """
    path = os.path.join(root, PROJECT_FILE)
    if not os.path.isfile(path):
        return Settings()
    text, document = _read_toml(path)
    tool = document.get("tool", {})
    table = tool.get("graphbus", {}) if isinstance(tool, dict) else {}
    if table == {}:
        return Settings()
    reader = _TableReader(path, text)
    settings = reader.read(Settings, table, ("tool", "graphbus"))
    raise_all(reader.errors)
    return settings


def _read_toml(path: str) -> tuple[str, dict[str, Any]]:
    import tomllib

    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError("GBE104", where=Place(path), path=PROJECT_FILE, reason=str(error).rstrip(".")) from None


class _TableReader:
    """Fills a settings class from a table of a document and collects everything that is wrong with it."""

    def __init__(self, path: str, text: str) -> None:
        self.errors: list[GraphBusError] = []
        self._path = path
        self._paths = list(_spelled_paths(text))

    def read(self, kind: type[Table], table: object, names: tuple[str, ...]) -> Table:
        required = {field.name: "" for field in msgspec.structs.fields(kind) if field.required}
        if not isinstance(table, dict):
            self._refuse(names[:-1], names[-1], "a table", table)
            return kind(**required)
        hints = get_type_hints(kind)
        good: dict[str, Any] = {}
        for key, value in table.items():
            inner = _table_of(hints.get(key))
            if key not in hints:
                self._unknown(names, key, hints)
            elif inner is hints[key]:
                good[key] = self.read(inner, value, (*names, key))
            elif inner:
                good[key] = self._read_named(inner, value, (*names, key))
            else:
                good |= self._value(names, key, value, hints[key])
        for key in required:
            if key not in table:
                self._miss(names, key)
        return kind(**{**required, **good})

    def _read_named(self, kind: type[Table], tables: object, names: tuple[str, ...]) -> dict[str, Table]:
        """Tables whose names are the user's."""
        if not isinstance(tables, dict):
            self._refuse(names[:-1], names[-1], "a table of tables", tables)
            return {}
        return {name: self.read(kind, table, (*names, name)) for name, table in tables.items()}

    def _value(self, names: tuple[str, ...], key: str, value: object, hint: Any) -> dict[str, Any]:
        try:
            converted = msgspec.convert(value, hint)
        except msgspec.ValidationError:
            self._refuse(names, key, _expected(hint), value)
            return {}
        if isinstance(converted, int | float) and converted < 0:
            self._refuse(names, key, f"{_expected(hint)} of at least 0", value)
            return {}
        if isinstance(converted, float) and not math.isfinite(converted):
            self._refuse(names, key, "a number with an end", value)
            return {}
        is_allowed, expected = _RULES.get((names[-1], key), (_is_anything, ""))
        if not is_allowed(converted):
            self._refuse(names, key, expected, value)
            return {}
        return {key: converted}

    def _unknown(self, names: tuple[str, ...], key: str, known: Iterable[str]) -> None:
        error = UsageError(
            "GBE102",
            where=self._place(names, key),
            key=key,
            table=f"[{'.'.join(names)}]",
            suggestion=did_you_mean(key, known),
            known=", ".join(sorted(known)),
        )
        self.errors.append(error)

    def _refuse(self, names: tuple[str, ...], key: str, expected: str, value: object) -> None:
        table = f"[{'.'.join(names)}]"
        where = self._place(names, key)
        self.errors.append(UsageError("GBE103", where=where, key=key, table=table, expected=expected, got=repr(value)))

    def _miss(self, names: tuple[str, ...], key: str) -> None:
        table = f"[{'.'.join(names)}]"
        self.errors.append(UsageError("GBE144", where=self._place(names[:-1], names[-1]), key=key, table=table))

    def _place(self, names: tuple[str, ...], key: str) -> Place:
        """The line that sets the key, or the table around it: a table may be spelled in many ways."""
        wanted = [*names, key]
        best, line = 1, 0
        for number, path in self._paths:
            depth = next((n for n, (a, b) in enumerate(zip(path, wanted, strict=False)) if a != b), len(wanted))
            if best < min(depth, len(path)):
                best, line = min(depth, len(path)), number
        return Place(self._path, line)


def _spelled_paths(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line and the dotted path of each table header and each key at the start of a line."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = re.sub(r"[\s\"']", "", line.partition("#")[0])
        if stripped.startswith("["):
            table = stripped.strip("[]").split(".")
            yield number, table
        elif "=" in stripped:
            yield number, [*table, *stripped.partition("=")[0].split(".")]


def _table_of(hint: Any) -> type[msgspec.Struct] | None:
    """The class of a table, also of one of many whose names the user chooses; None for a value."""
    if get_origin(hint) is dict:
        hint = get_args(hint)[1]
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def _expected(hint: Any) -> str:
    plain = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    if hint in plain:
        return plain[hint]
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " or ".join(f'"{choice}"' for choice in choices)
    if get_origin(hint) is dict:
        return f"a table of {_several(choices[1])}"
    return f"a list of {_several(choices[0])}"


def _several(hint: Any) -> str:
    return "texts" if hint is str else f"lists of {_several(get_args(hint)[0])}"


def _is_below(path: str) -> bool:
    parts = path.split("/")
    return bool(path) and not os.path.isabs(path) and ".." not in parts and "\0" not in path and path.strip("./") != ""


def _is_anything(_value: Any) -> bool:
    return True


def _is_positive(value: Any) -> bool:
    return bool(value > 0)


def _are_origins(values: Any) -> bool:
    """As browsers send them: in small letters, without a path."""
    return all(re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/*?#@A-Z]+", value) for value in values)


def _are_host_names(values: Any) -> bool:
    return all(re.fullmatch(r"[A-Za-z0-9._-]+", value) for value in values)


_RULES: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    ("graphbus", "artifacts"): (_is_below, "a folder below the project"),
    ("serve", "port"): (lambda port: port < 65_536, "a whole number up to 65535"),
    ("serve", "max_connections"): (_is_positive, "a whole number of at least 1"),
    ("serve", "concurrency"): (_is_positive, "a whole number of at least 1"),
    ("serve", "header_timeout_s"): (_is_positive, "a number above 0"),
    ("serve", "body_timeout_s"): (_is_positive, "a number above 0"),
    ("serve", "call_timeout_s"): (_is_positive, "a number above 0"),
    ("serve", "allowed_origins"): (_are_origins, 'a list of origins like "https://shop.example.org:8443"'),
    ("serve", "allowed_hosts"): (_are_host_names, 'a list of names like "shop.example.org", without a port'),
}
"""What a value must be beside its type: (table, key) -> test, and what is expected."""


def resolve_build(request: BuildRequest) -> BuildConfig:
    """Find the project and its settings for what a person asks of Build Mode; without a path, the working directory.

    Raises:
        UsageError: GBE101 for a path and GBE105 for a package that does not exist, and what `load` raises.
    """
    from pathlib import Path

    paths = [Path(path) for path in request.paths]
    raise_all(UsageError("GBE101", path=str(path)) for path in paths if not path.exists())
    if request.root_package:
        paths.append(_find_package(request.root_package))
    paths = paths or [Path()]
    root = find_root(paths)
    settings = request.settings if request.settings is not None else load(root)
    return BuildConfig(
        root=str(root),
        paths=tuple(dict.fromkeys(str(path.resolve()) for path in paths)),
        settings=_override(settings, request),
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


def _override(settings: Settings, request: BuildRequest) -> Settings:
    """The command line comes before pyproject.toml."""
    change = msgspec.structs.replace
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


def resolve_run(request: RuntimeRequest) -> RuntimeConfig:
    """Find the artifacts and the settings for what a person asks of Runtime Mode.

    Raises:
        UsageError: What `load` raises.
    """
    folder = os.path.realpath(request.artifacts)
    root = _root_of(os.path.dirname(folder))
    found = _load_for_run(root)
    settings = found.runtime
    if request.validation is not None:
        settings = msgspec.structs.replace(settings, validation=request.validation)
    return RuntimeConfig(
        artifacts_dir=folder,
        entrypoint=request.entrypoint,
        allow_drift=request.allow_drift,
        is_serving=request.is_serving,
        instruments=request.instruments,
        is_partial=request.is_partial,
        state_dir=os.path.join(root, settings.state_dir),
        external_topics=found.external_topics,
        settings=settings,
    )


def _load_for_run(root: str) -> Settings:
    """The settings; TOML is read only if it speaks of us: that would take a third of the time in which a graph is ready."""
    path = os.path.join(root, PROJECT_FILE)
    try:
        with open(path, "rb") as file:
            is_for_us = b"graphbus" in file.read()
    except OSError:
        is_for_us = os.path.exists(path)
    return load(root) if is_for_us else Settings()
