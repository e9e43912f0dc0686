"""`graphbus state`: what agents keep from one run to the next, to look at, to export, to import and to empty.

It may be used while a graph runs: each command sees one moment, and changes all or nothing. A change is shown, confirmed, kept
in a backup that takes it back, and made.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from json import dumps, loads
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import click

from graphbus_core import settings, store
from graphbus_core.cli import console
from graphbus_core.cli.console import Role, counted, paint, plain
from graphbus_core.errors import ArtifactError, Place, RunError, UsageError, did_you_mean
from graphbus_core.hosting.state import FILE
from graphbus_core.hosting.state_file import (
    Change,
    Kept,
    Plan,
    Snapshot,
    StateFile,
    parse,
    plan_import,
    plan_reset,
    render,
)
from graphbus_core.model.artifacts import GraphArtifact
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.schema.values import clipped
from graphbus_core.store.writing import refuse_special

ARTIFACTS = ".graphbus"
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
OF_ARTIFACTS = click.option(
    "--artifacts", default=ARTIFACTS, metavar="DIR", help="The artifact folder of the graph (.graphbus)."
)
YES = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
LONGEST_CELL = 60


class _File(Protocol):
    def close(self) -> None:
        """Close the file."""


F = TypeVar("F", bound=_File)


def resolved(artifacts: str) -> ResolvedRun:
    """How the graph would run."""
    return settings.resolve_run(RuntimeConfig(artifacts=artifacts))


def path_of(artifacts: str, name: str) -> Path:
    """Where the graph keeps a file."""
    return Path(resolved(artifacts).state_dir) / name


@contextmanager
def opened(artifacts: str, name: str, open_file: Callable[[str], F]) -> Iterator[F | None]:
    """Open a file of the graph; None when there is none, and none is made.

    Raises:
        ArtifactError: GBE501 there is no such folder either.
    """
    path = path_of(artifacts, name)
    if path.exists():
        with closing(open_file(str(path))) as file:
            yield file
    elif Path(artifacts).is_dir():
        yield None
    else:
        raise ArtifactError("GBE501", where=Place(artifacts))


def ask(question: str, nobody: UsageError) -> None:
    """Ask for a confirmation.

    Args:
        question: What is asked.
        nobody: Raised without a terminal.

    Raises:
        Abort: The answer was no.
    """
    if not sys.stdin.isatty():
        raise nobody
    click.confirm(question, abort=True, err=True)


Function = TypeVar("Function", bound=Callable[..., Any])

_AGENT = click.argument("agent", default="", metavar="[AGENT]")


def _changing(command: Function) -> Function:
    """Add the options of a command that changes states, by the names of the fields of `Wish`."""
    for option in (
        AS_JSON,
        OF_ARTIFACTS,
        YES,
        click.option("--no-backup", is_flag=True, help="Keep nothing of what was there before."),
        click.option("--dry-run", "is_dry", is_flag=True, help="Show what would change; change nothing."),
    ):
        command = option(command)
    return command


@click.group("state", short_help="Look at states, export, import and empty them.")
def state() -> None:
    """Look at what agents keep, export it, import it or empty it.

    `self.state` of each agent is in the `state_dir` of the project. All of these commands may be used while the graph runs: they
    see one moment, and what they change is changed whole or not at all. A running agent sees it at once.

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
    """List the agents that keep something, or the keys of AGENT with the begin of their values.

    Exit status: 0 done, also when there are none; 2 nobody knows AGENT; 7 the file with them cannot be read.

    \b
    Examples:
      graphbus state ls
      graphbus state ls Carrier --json
    """
    found = _look(agent, artifacts)
    if agent:
        _list_keys(agent, found.agents[agent], as_json=as_json)
        return
    known = _agents_of_graph(artifacts)
    lost = [name for name in found.agents if known is not None and name not in known]
    if as_json:
        agents = [{**_facts(name, keys), "is_in_graph": known and name in known} for name, keys in found.agents.items()]
        console.emit_json({"agents": agents, "version": found.version})
        return
    if found.agents:
        rows = [agent_row(name, keys) for name, keys in found.agents.items()]
        console.table(("AGENT", "KEYS", "SIZE", "VERSION"), rows, right=("KEYS", "SIZE", "VERSION"))
    else:
        console.say("No agent keeps anything here.")
    if lost:
        console.say(f"No agent of the graph is called {listed(lost)}.")


def _list_keys(agent: str, keys: dict[str, Kept], *, as_json: bool) -> None:
    if as_json:
        facts = [{"key": key, "version": kept.version, "size_bytes": len(kept.text)} for key, kept in keys.items()]
        console.emit_json({"agent": agent, "keys": facts})
    elif keys:
        rows = [key_row(key, kept) for key, kept in keys.items()]
        console.table(("KEY", "VERSION", "SIZE", "VALUE"), rows, right=("VERSION", "SIZE"))
    else:
        console.say(f"{agent} keeps nothing.")


@state.command("show", short_help="Show the values of an agent.")
@click.argument("agent")
@click.argument("key", default=None, required=False)
@OF_ARTIFACTS
@AS_JSON
def show(*, agent: str, key: str | None, artifacts: str, as_json: bool) -> None:
    """Show what AGENT keeps under KEY, or everything that it keeps, as JSON.

    Exit status: 0 done; 2 there is no such agent or key; 7 the file with them cannot be read.

    \b
    Examples:
      graphbus state show Carrier
      graphbus state show Carrier parcels --json
    """
    keys = _look(agent, artifacts).agents[agent]
    if key is None:
        if as_json:
            console.emit_json({"agent": agent, "keys": {name: _entry(kept) for name, kept in keys.items()}})
        else:
            console.out(at_length(_joined(keys)))
        return
    _check_key(agent, key, keys)
    if as_json:
        console.emit_json({"agent": agent, "key": key, **_entry(keys[key])})
    else:
        console.out(at_length(keys[key].text))


@state.command("export", short_help="Write states to a file.")
@_AGENT
@click.option("--output", "-o", default="-", metavar="FILE", help="Where to; `-`, the default: stdout.")
@click.option("--force", "is_forced", is_flag=True, help="Write over a file that is there.")
@OF_ARTIFACTS
@AS_JSON
def export(*, agent: str, output: str, is_forced: bool, artifacts: str, as_json: bool) -> None:
    """Write the states of all agents, or of AGENT, as one JSON document: values and versions, all of one moment.

    `graphbus state import` reads it. The file is readable by its owner only.

    Exit status: 0 done; 2 there is a file already, or nobody knows AGENT; 7 the states cannot be read, or FILE not be written.

    \b
    Examples:
      graphbus state export --output state.json
      graphbus state export Carrier | jq '.agents.Carrier'
    """
    if output != "-" and Path(output).exists() and not is_forced:
        raise UsageError("GBE179", where=Place(output))
    found = _look(agent, artifacts)
    data = render(found)
    if output == "-":
        console.out(data.decode(), end="")
        return
    write_private(Path(output), data)
    keys = sum(map(len, found.agents.values()))
    if as_json:
        console.emit_json({"output": output, "agents": len(found.agents), "keys": keys, "version": found.version})
    else:
        told = f"{counted(keys, 'key')} of {counted(len(found.agents), 'agent')}"
        console.out(f"Exported {told} to {console.plain(output)}.")


@state.command("import", short_help="Take states from a file.")
@click.argument("file")
@click.option("--merge", "is_merge", is_flag=True, help="Keep the keys that FILE does not name.")
@click.option("--force", "is_forced", is_flag=True, help="Also for agents that the graph does not have.")
@_changing
def import_(*, file: str, is_merge: bool, is_forced: bool, artifacts: str, **wished: bool) -> None:
    """Take the states in FILE, which `graphbus state export` has written; `-` is stdin.

    Each agent in FILE gets exactly the keys that FILE has for it; other agents keep theirs. With --merge keys that FILE does not
    name stay, too. FILE is read whole before anything is changed. It shows what changes, and asks first. What was there before is
    kept in a file beside the states. Each change gives a key a new version, so that an agent that is at work notices it.

    Exit status: 0 done; 2 nobody to ask; 6 there are no artifacts; 7 FILE was refused, or the states cannot be written;
    130 somebody said no.

    \b
    Examples:
      graphbus state import state.json
      graphbus state import state.json --merge --dry-run
    """
    wanted = parse(_read(file), "stdin" if file == "-" else file)
    if not is_forced:
        _check_agents(wanted.agents, artifacts)
    wish = Wish("import", **wished)
    plan = plan_import(wanted.agents, is_merge=is_merge)
    path = path_of(artifacts, FILE)
    made = make(path, wanted.agents, plan, wish, after_version=wanted.version)
    _tell(made, wish, artifacts)


@state.command("reset", short_help="Empty states.")
@_AGENT
@click.argument("key", default=None, required=False)
@click.option("--all", "is_all", is_flag=True, help="Of all agents.")
@_changing
def reset(*, agent: str, key: str | None, is_all: bool, artifacts: str, **wished: bool) -> None:
    """Remove KEY from the state of AGENT, or all of its keys, or with --all those of all agents.

    It shows what goes, and asks first. What was removed is kept in a file beside the states.

    Exit status: 0 done; 2 there is no such agent or key, or nobody to ask; 7 the states cannot be written; 130 somebody said no.

    \b
    Examples:
      graphbus state reset Carrier parcels
      graphbus state reset --all --yes
    """
    if is_all and agent:
        raise UsageError("GBE132", option="--all", other="AGENT", reason="all are all")
    if not is_all and not agent:
        raise UsageError("GBE178")
    found = _look(agent, artifacts)
    if key is not None:
        _check_key(agent, key, found.agents[agent])
    wish, path = Wish("reset", **wished), path_of(artifacts, FILE)
    made = make(path, [agent] if agent else None, plan_reset(key), wish)
    _tell(made, wish, artifacts)


# --- what the commands share ----------------------------------------------------------------


def _look(agent: str, artifacts: str) -> Snapshot:
    """The states of all agents, or of one.

    Raises:
        UsageError: GBE175 nobody knows that one.
    """
    with opened(artifacts, FILE, StateFile) as file:
        if file is None:
            found, names = Snapshot(0, {agent: {}} if agent else {}), []
        else:
            found, names = file.snapshot([agent] if agent else None), file.names() if agent else []
    if agent and agent not in names:
        known = {*names, *(_agents_of_graph(artifacts) or ())}
        if agent not in known:
            raise UsageError("GBE175", agent=clipped(agent), suggestion=did_you_mean(agent, sorted(known)))
    return found


def _agents_of_graph(artifacts: str) -> tuple[str, ...] | None:
    """The agents of the graph; None where the artifacts cannot tell."""
    try:
        return _read_agents(artifacts)
    except ArtifactError:
        return None


def _read_agents(artifacts: str) -> tuple[str, ...]:
    return store.load_artifact(Path(artifacts), GraphArtifact).nodes


def _check_agents(names: Collection[str], artifacts: str) -> None:
    """Refuse agents that the graph does not have; their states would lie there unused, e.g. those of another project.

    Raises:
        RunError: GBE698.
        ArtifactError: The artifacts cannot tell.
    """
    known = _read_agents(artifacts)
    unknown = [clipped(name) for name in names if name not in known]
    if unknown:
        raise RunError("GBE698", where=Place(artifacts), names=" or ".join(unknown))


def _check_key(agent: str, key: str, keys: Collection[str]) -> None:
    if key not in keys:
        suggestion = did_you_mean(key, sorted(keys))
        raise UsageError("GBE176", agent=agent, key=clipped(key), suggestion=suggestion)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError("GBE697", where=Place(file), reason=reason) from None


def _tell(made: Made, wish: Wish, artifacts: str) -> None:
    """Say what was changed, and how to take it back."""
    if wish.as_json:
        backup = None if made.backup is None else str(made.backup)
        console.emit_json(
            {"changes": [_change(each) for each in made.changes], "backup": backup, "is_dry": wish.is_dry}
        )
        return
    if not made.changes:
        console.out("Nothing to change.")
    elif wish.is_dry:
        console.say(f"{counted(len(made.changes), 'key')} would change; nothing was written.")
    else:
        console.out(f"Changed {counted(len(made.changes), 'key')}.")
    if made.backup is not None:
        console.say(f"To take that back: {console.plain(shlex.join(_undo(made, made.backup, wish, artifacts)))}")


def _undo(made: Made, backup: Path, wish: Wish, artifacts: str) -> Iterator[str]:
    """The command that brings back what was there before."""
    yield from ("graphbus", "state", "import", _from_here(backup))
    if wish.command == "reset":  # the backup has what was removed and nothing else
        yield "--merge"
    known = _agents_of_graph(artifacts) or ()
    if any(change.agent not in known for change in made.changes):
        yield "--force"
    if artifacts != ARTIFACTS:
        yield from ("--artifacts", artifacts)


def _from_here(path: Path) -> str:
    """Relative where it is below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _change(change: Change) -> dict[str, str]:
    kind = "set" if change.before is None else "removed" if change.after is None else "changed"
    return {"agent": change.agent, "key": change.key, "change": kind}


def _facts(agent: str, keys: dict[str, Kept]) -> dict[str, Any]:
    version = max((kept.version for kept in keys.values()), default=0)
    return {"agent": agent, "keys": len(keys), "size_bytes": size_of(keys), "version": version}


def _entry(kept: Kept) -> dict[str, Any]:
    return {"value": kept.value, "version": kept.version}


def _joined(keys: dict[str, Kept]) -> str:
    from json import dumps

    return dumps({key: kept.value for key, kept in keys.items()})


# --- changes ----------------------------------------------------------------------------------------


_MOST_LINES = 20


class Wish(NamedTuple):
    """How a change is made.

    Attributes:
        command: `import` or `reset`; the other names are those of the options.
        is_sure: Nobody is asked.
        is_dry: Nothing is changed.
        no_backup: What is there before is not kept in a file.
        as_json: Nothing is shown meanwhile.
    """

    command: str
    is_sure: bool
    is_dry: bool
    no_backup: bool
    as_json: bool


class Made(NamedTuple):
    """What was changed, and the file with what was there before, if there is one."""

    changes: Sequence[Change]
    backup: Path | None = None


def make(path: Path, agents: Collection[str] | None, plan: Plan, wish: Wish, *, after_version: int = 0) -> Made:
    """Show what a plan changes, ask, and do it; the plan is made again from what the file has then.

    Args:
        path: The file of states.
        agents: Those that the plan looks at; None: all.
        plan: What changes.
        wish: How.
        after_version: As `StateFile.change` takes it.

    Raises:
        UsageError: GBE177 there is no terminal to ask on.
        RunError: GBE699 the backup cannot be written; GBE643-645. Nothing is changed then.
    """
    expected = preview(path, agents, plan)
    if not wish.as_json:
        for line in changes_as_lines(expected):
            console.out(line)
    if not expected or wish.is_dry:
        return Made(expected)
    if not wish.is_sure:
        ask("Go on?", UsageError("GBE177", command=wish.command))
    backups: list[Path] = []

    def keep(before: Snapshot) -> None:
        if not wish.no_backup:
            backups.append(_backup(path.parent, before, plan, wish))
            on_failure.callback(_remove, backups[-1])

    with ExitStack() as on_failure, closing(StateFile(str(path))) as file:
        changes = file.change(agents, plan, keep, after_version=after_version)
        on_failure.pop_all()
    return Made(changes, next(iter(backups), None))


def preview(path: Path, agents: Collection[str] | None, plan: Plan) -> Sequence[Change]:
    """What a plan would change now; no file is made."""
    if not path.exists():
        return plan(Snapshot(0, {}))
    with closing(StateFile(str(path))) as file:
        return plan(file.snapshot(agents))


def _backup(folder: Path, before: Snapshot, plan: Plan, wish: Wish) -> Path:
    """Write what is there before a change beside the states: of a reset what it removes, so that what comes later stays."""
    if wish.command == "reset":
        gone = {(change.agent, change.key) for change in plan(before)}
        agents = {
            agent: {key: kept for key, kept in keys.items() if (agent, key) in gone}
            for agent, keys in before.agents.items()
        }
        before = before._replace(agents=agents)
    path, number = folder / f"state-backup-{before.version}.json", 2
    while path.exists():
        path, number = folder / f"state-backup-{before.version}-{number}.json", number + 1
    write_private(path, render(before))
    return path


def _remove(backup: Path) -> None:
    with suppress(OSError):
        backup.unlink()


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read, whole or not at all; where a link is, the file behind it.

    Raises:
        RunError: GBE699.
    """
    file = Path(os.path.realpath(path))
    beside = file.parent / f".{file.name}.{os.getpid()}.tmp"
    try:
        refuse_special(file)
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        reason = (error.strerror or str(error)).lower()
        raise RunError("GBE699", where=Place(str(path)), reason=reason) from None


# --- text -----------------------------------------------------------------------------------


def size_of(keys: Mapping[str, Kept]) -> int:
    """Bytes of all values together; their JSON is ASCII."""
    return sum(len(kept.text) for kept in keys.values())


def agent_row(agent: str, keys: Mapping[str, Kept]) -> tuple[str, ...]:
    """Agent, keys, size, version of the last change."""
    last = max((kept.version for kept in keys.values()), default=0)
    return _on_one_line(agent), str(len(keys)), size(size_of(keys)), str(last)


def key_row(key: str, kept: Kept) -> tuple[str, ...]:
    """Key, version, size, the begin of the value."""
    return _on_one_line(key), str(kept.version), size(len(kept.text)), shortly(kept.text)


def size(number: int) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def shortly(text: str) -> str:
    """A value on one line, cut off where it is long."""
    legible = dumps(loads(text), ensure_ascii=False) if len(text) <= 10 * LONGEST_CELL else text
    return _on_one_line(legible)


def at_length(text: str) -> str:
    """A value with all its lines."""
    return plain(dumps(loads(text), indent=2, ensure_ascii=False))


def changes_as_lines(changes: Sequence[Change]) -> Iterator[str]:
    """`+ agent key  value`, `~` and `-`; of many the first."""
    for change in changes[:_MOST_LINES]:
        role, sign = _sign_of(change)
        shown = "" if change.after is None else f"  {shortly(change.after)}"
        yield f"{paint(f'{sign} {_on_one_line(change.agent)} {_on_one_line(change.key)}', role)}{shown}"
    if len(changes) > _MOST_LINES:
        yield paint(f"and {len(changes) - _MOST_LINES} more", "dim")


def _sign_of(change: Change) -> tuple[Role, str]:
    if change.before is None:
        return "good", "+"
    return ("gone", "-") if change.after is None else ("warn", "~")


def listed(names: Collection[str]) -> str:
    """Names in one line."""
    return ", ".join(map(_on_one_line, names))


def _on_one_line(text: str) -> str:
    cut = text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
    return plain(cut).replace("\n", " ")
