"""`graphbus state`: list, export, import or reset what agents store in `self.state`.

The commands work while a graph runs: each reads a consistent snapshot, and makes all of its changes or none. Changes are shown,
confirmed and backed up first.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import click
import msgspec

from graphbus_core import settings, store, strict_json
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.errors import ArtifactError, Place, RunError, UsageError, did_you_mean
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.hosting.state import (
    FILE,
    StateChange,
    States,
    StateSnapshot,
    StoredValue,
    Texts,
    check_key,
    encode_value,
    plan_changes,
)
from graphbus_core.model.artifacts import GraphArtifact
from graphbus_core.model.config import RuntimeConfig, RuntimeSettings
from graphbus_core.schema.values import clip_text
from graphbus_core.store.folders import Folder
from graphbus_core.store.writing import refuse_special

ARTIFACTS = ".graphbus"
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
OF_ARTIFACTS = click.option(
    "--artifacts", default=ARTIFACTS, metavar="DIR", help="The artifact folder of the graph (.graphbus)."
)
YES = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
_MAX_CELL_LENGTH = 60
_MAX_LINES = 20


class _File(Protocol):
    def close(self) -> None: ...


F = TypeVar("F", bound=_File)
Command = TypeVar("Command", bound=Callable[..., Any])


def runtime_settings(artifacts: str) -> RuntimeSettings:
    """Return the settings that the graph would run with."""
    return settings.resolve_run(RuntimeConfig(artifacts=artifacts)).settings


def kept_file_path(artifacts: str, name: str) -> Path:
    """Return the path of a file in the `state_dir` of the graph."""
    return Path(settings.resolve_run(RuntimeConfig(artifacts=artifacts)).state_dir) / name


@contextmanager
def open_kept_file(artifacts: str, name: str, open_file: Callable[[str], F]) -> Iterator[F | None]:
    """Open a file in the `state_dir` of the graph for a `with` block; None if it does not exist.

    `open_file` gets the path, and the file is closed at the end of the block.

    Raises:
        ArtifactError: GBE501, neither the file nor the artifact folder exists.
    """
    path = kept_file_path(artifacts, name)
    if path.exists():
        with closing(open_file(str(path))) as file:
            yield file
    elif Path(artifacts).is_dir():
        yield None
    else:
        raise ArtifactError("GBE501", where=Place(artifacts), missing="")


def confirm_or_refuse(question: str, no_terminal: UsageError) -> None:
    """Ask for confirmation at the terminal.

    Raises:
        UsageError: `no_terminal`, because stdin is not a terminal.
        Abort: The answer was no.
    """
    if not sys.stdin.isatty():
        raise no_terminal
    click.confirm(question, abort=True, err=True)


def as_cell(text: str) -> str:
    """Return untrusted text as a table cell: on one line, shortened."""
    return console.sanitize_line(text if len(text) <= _MAX_CELL_LENGTH else f"{text[: _MAX_CELL_LENGTH - 1]}…")


def format_age(timestamp: float) -> str:
    """Return how long ago a time was, in the largest unit with a value of at least 1: `3 h`."""
    seconds = max(0, int(time.time() - timestamp))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


_AGENT = click.argument("agent", default="", metavar="[AGENT]")
_KEY = click.argument("key", default=None, required=False)


def _add_change_options(command: Command) -> Command:
    """Add the options of a command that changes states."""
    dry = click.option("--dry-run", "is_dry", is_flag=True, help="Show what would change; change nothing.")
    for option in (AS_JSON, OF_ARTIFACTS, YES, dry):
        command = option(command)
    return command


@click.group("state", short_help="List, export, import or reset what agents store.")
def state() -> None:
    """List, export, import or reset what agents store.

    `self.state` of each agent is stored in the `state_dir` of the project. All of these commands work while the graph runs:
    each reads a consistent snapshot, and changes all or nothing. A running agent sees a change at once.

    \b
    Examples:
      graphbus state ls
      graphbus state show Carrier parcels
      graphbus state export --output state.json
    """


@state.command("ls", short_help="List agents, or the keys of one.")
@_AGENT
@OF_ARTIFACTS
@AS_JSON
def ls(*, agent: str, artifacts: str, as_json: bool) -> None:
    """List the agents that have state, or the keys of AGENT with the beginning of their values.

    Exit status: 0 done, also when there are none; 2 AGENT is unknown; 7 the states cannot be read.

    \b
    Examples:
      graphbus state ls
      graphbus state ls Carrier --json
    """
    found = _read_states(agent, artifacts)
    if agent:
        keys = found.agents[agent]
        facts = [{"key": key, "version": kept.version, "size_bytes": len(kept.text)} for key, kept in keys.items()]
        rows = [
            (as_cell(key), str(kept.version), _format_size(len(kept.text)), _value_cell(kept.text))
            for key, kept in keys.items()
        ]
        _print_list(
            {"agent": agent, "keys": facts}, "KEY VERSION SIZE VALUE", rows, f"{agent} stores nothing.", as_json
        )
        return
    facts = [
        {"agent": name, "keys": len(keys), "size_bytes": _total_size(keys), "version": _latest_version(keys)}
        for name, keys in found.agents.items()
    ]
    rows = [
        (as_cell(name), str(len(keys)), _format_size(_total_size(keys)), str(_latest_version(keys)))
        for name, keys in found.agents.items()
    ]
    nothing = "No agent stores anything here."
    _print_list({"agents": facts, "version": found.version}, "AGENT KEYS SIZE VERSION", rows, nothing, as_json)


def _print_list(document: object, headers: str, rows: Sequence[tuple[str, ...]], nothing: str, as_json: bool) -> None:
    """Print the document as JSON, or a table with the headers (separated by spaces), or the text for an empty list."""
    if as_json:
        console.emit_json(document)
    elif rows:
        console.print_table(headers.split(), rows, right=("KEYS", "SIZE", "VERSION"))
    else:
        console.print_note(nothing)


@state.command("show", short_help="Show the values of an agent.")
@click.argument("agent")
@_KEY
@OF_ARTIFACTS
@AS_JSON
def show(*, agent: str, key: str | None, artifacts: str, as_json: bool) -> None:
    """Show as JSON what AGENT stores under KEY, or everything that it stores.

    Exit status: 0 done; 2 there is no such agent or key; 7 the states cannot be read.

    \b
    Examples:
      graphbus state show Carrier
      graphbus state show Carrier parcels --json
    """
    keys = _read_states(agent, artifacts, key).agents[agent]
    entries = {name: {"value": kept.value, "version": kept.version} for name, kept in keys.items()}
    if as_json:
        console.emit_json({"agent": agent, **({"keys": entries} if key is None else {"key": key, **entries[key]})})
        return
    value = {name: kept.value for name, kept in keys.items()} if key is None else keys[key].value
    console.print_line(console.Verbatim(sanitize(dumps(value, indent=2, ensure_ascii=False))))


@state.command("export", short_help="Write states to a file.")
@_AGENT
@click.option("--output", "-o", default="-", metavar="FILE", help="The file to write; `-` is stdout (-).")
@click.option("--force", "is_forced", is_flag=True, help="Overwrite a file that exists.")
@OF_ARTIFACTS
@AS_JSON
def export(*, agent: str, output: str, is_forced: bool, artifacts: str, as_json: bool) -> None:
    """Write the states of all agents, or of AGENT, as one JSON document of values and versions: a consistent snapshot.

    `graphbus state import` reads it. Only its owner can read the file.

    Exit status: 0 done; 2 the file exists, or AGENT is unknown; 7 the states cannot be read, or FILE cannot be written.

    \b
    Examples:
      graphbus state export --output state.json
      graphbus state export Carrier | jq '.agents.Carrier'
    """
    if output != "-" and Path(output).exists() and not is_forced:
        raise UsageError("GBE179", where=Place(output))
    found = _read_states(agent, artifacts)
    data = render_export(found)
    if output == "-":
        console.print_line(data.decode(), end="")
        return
    _write_private(Path(output), data)
    agents, keys = len(found.agents), sum(map(len, found.agents.values()))
    document = {"output": output, "agents": agents, "keys": keys, "version": found.version}
    line = f"Exported {pluralize(keys, 'key')} of {pluralize(agents, 'agent')} to {sanitize(output)}."
    console.print_result(document, [line], as_json=as_json)


@state.command("import", short_help="Read states from a file.")
@click.argument("file")
@click.option("--merge", "is_merge", is_flag=True, help="Keep the keys that FILE does not name.")
@_add_change_options
def import_(*, file: str, is_merge: bool, **options: Any) -> None:
    """Replace states by those in FILE, which `graphbus state export` wrote; `-` is stdin.

    Each agent in FILE gets exactly the keys that FILE has for it; with --merge it keeps its other keys. Agents that are not
    in FILE stay as they are. The command shows what changes and asks first, and saves the old states to a file beside
    them. Each change gives a key a new version, so that a running transaction notices it.

    Exit status: 0 done; 2 no terminal to ask on; 7 FILE is not valid, or the states cannot be written; 130 the answer was no.

    \b
    Examples:
      graphbus state import state.json
      graphbus state import state.json --merge --dry-run
    """
    found = parse_export(_read_input(file), "stdin" if file == "-" else file)
    new_states = {agent: {key: kept.text for key, kept in keys.items()} for agent, keys in found.agents.items()}
    _confirm_and_change("import", new_states, is_merge=is_merge, after_version=found.version, **options)


@state.command("reset", short_help="Remove states.")
@_AGENT
@_KEY
@click.option("--all", "is_all", is_flag=True, help="Reset the states of all agents.")
@_add_change_options
def reset(*, agent: str, key: str | None, is_all: bool, artifacts: str, **options: bool) -> None:
    """Remove KEY from the state of AGENT, or all of its keys, or with --all those of all agents.

    The command shows what is removed and asks first, and saves the old states to a file beside them.

    Exit status: 0 done; 2 there is no such agent or key, or no terminal to ask on; 7 the states cannot be written; 130 the
    answer was no.

    \b
    Examples:
      graphbus state reset Carrier parcels
      graphbus state reset --all --yes
    """
    if is_all and agent:
        raise UsageError("GBE132", option="--all", other="AGENT", reason="--all resets every agent")
    if not is_all and not agent:
        raise UsageError("GBE178")
    found = _read_states(agent, artifacts, key)
    new_states: dict[str, Texts] | None = None  # None: all agents that have a state by then
    if not is_all:
        new_states = {name: {} if key is None else {key: None} for name in found.agents}
    _confirm_and_change("reset", new_states, is_merge=key is not None, artifacts=artifacts, **options)


# --- what the commands share ----------------------------------------------------------------


def _read_states(agent: str, artifacts: str, key: str | None = None) -> StateSnapshot:
    """Return the states of all agents, or of one; a known agent without state has no keys.

    Raises:
        UsageError: GBE175, the agent is unknown; GBE176, it has no such key.
    """
    with open_kept_file(artifacts, FILE, States) as states:
        found = StateSnapshot(0, {}) if states is None else states.snapshot()
    if not agent:
        return found
    if agent not in found.agents:
        known = sorted({*found.agents, *_list_agents_of_graph(artifacts)})
        if agent not in known:
            raise UsageError("GBE175", agent=clip_text(agent), suggestion=did_you_mean(agent, known))
    keys = found.agents.get(agent, {})
    if key is not None and key not in keys:
        raise UsageError("GBE176", agent=agent, key=clip_text(key), suggestion=did_you_mean(key, sorted(keys)))
    return StateSnapshot(found.version, {agent: keys})


def _list_agents_of_graph(artifacts: str) -> tuple[str, ...]:
    """Return the names of the agents in the artifacts; empty if the artifacts cannot be read."""
    try:
        return store.load_artifact(Path(artifacts), GraphArtifact).nodes
    except ArtifactError:  # states can be listed without artifacts
        return ()


def _read_input(file: str) -> bytes:
    """Read a file, or stdin for `-`; raise GBE697 if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise RunError("GBE697", where=Place(file), reason=reason_of(error), advice=advise_on(error, file)) from None


def _confirm_and_change(
    command: str,
    new_states: Mapping[str, Texts] | None,
    *,
    is_merge: bool,
    artifacts: str,
    is_sure: bool,
    is_dry: bool,
    as_json: bool,
    after_version: int = 0,
) -> None:
    """Show the changes, ask for confirmation, write a backup and make the changes.

    A running graph may change states meanwhile, so the changes are computed again when they are made.

    Args:
        command: The name of the command, for the error.
        new_states: Agent -> key -> new JSON text, None to remove the key; None instead of the mapping removes everything.
        is_merge: Keep the keys that are not named.
        is_sure: Do not ask.
        is_dry: Only show the changes.
        after_version: New versions are higher than this one.

    Raises:
        UsageError: GBE177, there is no terminal to ask on.
        ArtifactError: GBE501, the artifact folder does not exist.
        RunError: GBE699, the backup cannot be written; GBE643-645. Then nothing is changed.
    """
    if not Path(artifacts).is_dir():
        raise ArtifactError("GBE501", where=Place(artifacts), missing="")
    path = kept_file_path(artifacts, FILE)
    changes, backups = _plan_current_changes(path, new_states, is_merge=is_merge), list[Path]()
    if not as_json:
        console.print_lines(_change_lines(changes))
    if changes and not is_dry:
        if not is_sure:
            confirm_or_refuse("Make these changes?", UsageError("GBE177", command=command))

        def save_backup(before: StateSnapshot) -> None:
            backups.append(_write_backup(path.parent, before))

        with closing(States(str(path))) as states:
            changes = states.change(new_states, save_backup, is_merge=is_merge, after_version=after_version)
    if as_json:
        facts = [{"agent": each.agent, "key": each.key, "change": _describe_kind(each)[2]} for each in changes]
        backup = str(backups[0]) if backups else None
        console.emit_json({"changes": facts, "backup": backup, "is_dry": is_dry})
        return
    if not changes:
        console.print_line("Nothing to change.")
    elif is_dry:
        console.print_note(f"{pluralize(len(changes), 'key')} would change; nothing was written.")
    else:
        console.print_line(f"Changed {pluralize(len(changes), 'key')}.")
        there = [] if artifacts == ARTIFACTS else ["--artifacts", artifacts]
        undo = shlex.join(["graphbus", "state", "import", os.path.relpath(backups[0]), *there])
        console.print_note(f"To undo this: {sanitize(undo)}")


def _plan_current_changes(path: Path, new_states: Mapping[str, Texts] | None, *, is_merge: bool) -> list[StateChange]:
    """Return how the new states would change the stored ones; nothing is written.

    The arguments are those of `_confirm_and_change`; `path` is the file with the states, which need not exist.
    """
    if not path.exists():
        return plan_changes(StateSnapshot(0, {}), new_states or {}, is_merge=is_merge)
    with closing(States(str(path))) as states:
        found = states.snapshot(new_states)
    return plan_changes(
        found, {agent: {} for agent in found.agents} if new_states is None else new_states, is_merge=is_merge
    )


def _write_backup(folder: Path, before: StateSnapshot) -> Path:
    """Write the states to a new file in the folder, as an export, and return its path."""
    path, number = folder / f"state-backup-{before.version}.json", 2
    while path.exists():
        path, number = folder / f"state-backup-{before.version}-{number}.json", number + 1
    _write_private(path, render_export(before))
    return path


def _write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable only by its owner; a link is followed.

    Raises:
        RunError: GBE699, it cannot be written.
    """
    file = Path(os.path.realpath(path))
    beside = f".{file.name}.{os.getpid()}.tmp"
    try:
        refuse_special(file)
        with Folder.at(file.parent) as folder:
            folder.create(beside, data, 0o600)
            folder.replace(beside, file.name)
    except OSError as error:
        advice = advise_on(error, path)
        raise RunError("GBE699", where=Place(str(path)), reason=reason_of(error), advice=advice) from None


# --- an export ------------------------------------------------------------------------------

_MAX_DEPTH = strict_json.MAX_DEPTH + 4
"""A value may have the full depth, and the document adds four levels around it."""

_Version = Annotated[
    int, msgspec.Meta(ge=0, le=(1 << 62) - 1)
]  # half of the largest integer of SQLite, so that later versions fit


class _ExportedValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value in an export."""

    value: Any
    version: _Version


class _Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document of an export: `agents` maps agent -> key -> value."""

    format: Literal["graphbus-state"]
    format_version: Literal[1]
    version: _Version
    agents: dict[str, dict[str, _ExportedValue]]


def render_export(snapshot: StateSnapshot) -> bytes:
    """Return states as one JSON document in ASCII, because a value may hold half of a surrogate pair."""
    agents = {
        agent: {key: {"value": kept.value, "version": kept.version} for key, kept in keys.items()}
        for agent, keys in snapshot.agents.items()
    }
    head = {"format": "graphbus-state", "format_version": 1, "version": snapshot.version}
    return f"{dumps({**head, 'agents': agents}, indent=2)}\n".encode()


def parse_export(data: bytes, path: str) -> StateSnapshot:
    """Parse an export that `render_export` wrote, and check it. `path` names the file in errors.

    Raises:
        RunError: GBE697, it is not an export; GBE641 or GBE642, a value that no state can have.
    """
    try:
        document = msgspec.convert(strict_json.loads(data, any_text=True, max_depth=_MAX_DEPTH), _Export)
    except ValueError as error:  # ValidationError of msgspec is a ValueError
        advice = "Use a file that `graphbus state export` wrote."
        raise RunError("GBE697", where=Place(path), reason=str(error), advice=advice) from None
    agents = {agent: _parse_keys(agent, entries) for agent, entries in sorted(document.agents.items())}
    return StateSnapshot(document.version, agents)


def _parse_keys(agent: str, entries: dict[str, _ExportedValue]) -> dict[str, StoredValue]:
    """Return the values of an agent by key; a name, key or value that no state can have raises a RunError."""
    check_key(agent, agent)
    return {
        key: StoredValue(encode_value(agent, key, entry.value), entry.version) for key, entry in sorted(entries.items())
    }


# --- text -----------------------------------------------------------------------------------


def _total_size(keys: Mapping[str, StoredValue]) -> int:
    """Return the size of all values in bytes; their JSON is ASCII."""
    return sum(len(kept.text) for kept in keys.values())


def _latest_version(keys: Mapping[str, StoredValue]) -> int:
    """Return the highest version of the values; 0 if there are none."""
    return max((kept.version for kept in keys.values()), default=0)


def _format_size(number: int) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def _value_cell(text: str) -> str:
    """Return the beginning of a stored JSON text as a table cell, with its characters unescaped."""
    return as_cell(dumps(StoredValue(text, 0).value, ensure_ascii=False))


def _describe_kind(change: StateChange) -> tuple[str, console.Role, str]:
    """Return the sign, the colour and the name of a change."""
    if change.before is None:
        return "+", "good", "set"
    return ("-", "gone", "removed") if change.after is None else ("~", "warn", "changed")


def _change_lines(changes: Collection[StateChange]) -> Iterator[str]:
    """Yield `+ agent key  value` for each new value, `~` for a changed and `-` for a removed one; at most 20 lines."""
    for change in list(changes)[:_MAX_LINES]:
        sign, role, _ = _describe_kind(change)
        value = "" if change.after is None else f"  {_value_cell(change.after)}"
        yield f"{style(f'{sign} {as_cell(change.agent)} {as_cell(change.key)}', role)}{value}"
    if len(changes) > _MAX_LINES:
        yield style(f"and {len(changes) - _MAX_LINES} more", "dim")
