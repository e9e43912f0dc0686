"""`graphbus state`: what agents keep from one run to the next, to look at, to export, to import and to empty.

It may be used while a graph runs: each command sees one moment, and changes all or nothing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from graphbus_core.cli import console
from graphbus_core.cli.running import state_change, state_text
from graphbus_core.cli.running.state_change import Made, Wish
from graphbus_core.cli.running.state_text import count
from graphbus_core.errors import ArtifactError, Place, RunError, UsageError, did_you_mean
from graphbus_core.hosting.state import FILE
from graphbus_core.hosting.state_file import (
    Change,
    Kept,
    Snapshot,
    StateFile,
    parse,
    plan_import,
    plan_reset,
    render,
)
from graphbus_core.schema.values import clipped

_ARTIFACTS = ".graphbus"
_AGENT = click.argument("agent", default="", metavar="[AGENT]")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
_OF_ARTIFACTS = click.option(
    "--artifacts", default=_ARTIFACTS, metavar="DIR", help="The artifact folder of the graph (.graphbus)."
)
_YES = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
_DRY_RUN = click.option("--dry-run", "is_dry", is_flag=True, help="Show what would change; change nothing.")
_NO_BACKUP = click.option("--no-backup", is_flag=True, help="Keep nothing of what was there before.")


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
@_OF_ARTIFACTS
@_AS_JSON
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
        rows = [state_text.agent_row(name, keys) for name, keys in found.agents.items()]
        console.table(("AGENT", "KEYS", "SIZE", "VERSION"), rows, right=("KEYS", "SIZE", "VERSION"))
    else:
        console.say("No agent keeps anything here.")
    if lost:
        console.say(f"No agent of the graph is called {state_text.listed(lost)}.")


def _list_keys(agent: str, keys: dict[str, Kept], *, as_json: bool) -> None:
    if as_json:
        facts = [{"key": key, "version": kept.version, "size_bytes": len(kept.text)} for key, kept in keys.items()]
        console.emit_json({"agent": agent, "keys": facts})
    elif keys:
        rows = [state_text.key_row(key, kept) for key, kept in keys.items()]
        console.table(("KEY", "VERSION", "SIZE", "VALUE"), rows, right=("VERSION", "SIZE"))
    else:
        console.say(f"{agent} keeps nothing.")


@state.command("show", short_help="Show the values of an agent.")
@click.argument("agent")
@click.argument("key", default=None, required=False)
@_OF_ARTIFACTS
@_AS_JSON
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
            console.out(state_text.at_length(_joined(keys)))
        return
    _check_key(agent, key, keys)
    if as_json:
        console.emit_json({"agent": agent, "key": key, **_entry(keys[key])})
    else:
        console.out(state_text.at_length(keys[key].text))


@state.command("export", short_help="Write states to a file.")
@_AGENT
@click.option("--output", "-o", default="-", metavar="FILE", help="Where to; `-`, the default: stdout.")
@click.option("--force", "is_forced", is_flag=True, help="Write over a file that is there.")
@_OF_ARTIFACTS
@_AS_JSON
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
    state_change.write_private(Path(output), data)
    keys = sum(map(len, found.agents.values()))
    if as_json:
        console.emit_json({"output": output, "agents": len(found.agents), "keys": keys, "version": found.version})
    else:
        told = f"{count(keys, 'key')} of {count(len(found.agents), 'agent')}"
        console.out(f"Exported {told} to {console.plain(output)}.")


@state.command("import", short_help="Take states from a file.")
@click.argument("file")
@click.option("--merge", "is_merge", is_flag=True, help="Keep the keys that FILE does not name.")
@click.option("--force", "is_forced", is_flag=True, help="Also for agents that the graph does not have.")
@_DRY_RUN
@_NO_BACKUP
@_YES
@_OF_ARTIFACTS
@_AS_JSON
def import_(
    *,
    file: str,
    is_merge: bool,
    is_forced: bool,
    is_dry: bool,
    no_backup: bool,
    is_sure: bool,
    artifacts: str,
    as_json: bool,
) -> None:
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
    wish = Wish("import", is_sure=is_sure, is_dry=is_dry, has_backup=not no_backup, as_json=as_json)
    plan = plan_import(wanted.agents, is_merge=is_merge)
    made = state_change.make(_path(artifacts), wanted.agents, plan, wish, after_version=wanted.version)
    _tell(made, wish, artifacts)


@state.command("reset", short_help="Empty states.")
@_AGENT
@click.argument("key", default=None, required=False)
@click.option("--all", "is_all", is_flag=True, help="Of all agents.")
@_DRY_RUN
@_NO_BACKUP
@_YES
@_OF_ARTIFACTS
@_AS_JSON
def reset(
    *,
    agent: str,
    key: str | None,
    is_all: bool,
    is_dry: bool,
    no_backup: bool,
    is_sure: bool,
    artifacts: str,
    as_json: bool,
) -> None:
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
    wish = Wish("reset", is_sure=is_sure, is_dry=is_dry, has_backup=not no_backup, as_json=as_json)

    def removed(before: Snapshot) -> Snapshot:
        agents = {
            name: {each: kept for each, kept in keys.items() if key is None or each == key}
            for name, keys in before.agents.items()
        }
        return before._replace(agents=agents)

    made = state_change.make(_path(artifacts), [agent] if agent else None, plan_reset(key), wish, kept=removed)
    _tell(made, wish, artifacts)


# --- what the commands share ----------------------------------------------------------------


def _path(artifacts: str) -> Path:
    from graphbus_core import settings
    from graphbus_core.model.config import RuntimeRequest

    return Path(settings.resolve_run(RuntimeRequest(artifacts=artifacts)).state_dir) / FILE


@contextmanager
def _open(artifacts: str) -> Iterator[StateFile | None]:
    """Open the file of the project; None when there is none, and none is made.

    Raises:
        ArtifactError: GBE501 there is no such folder either.
    """
    path = _path(artifacts)
    if not path.exists():
        if not Path(artifacts).is_dir():
            raise ArtifactError("GBE501", where=Place(artifacts))
        yield None
        return
    with closing(StateFile(str(path))) as file:
        yield file


def _look(agent: str, artifacts: str) -> Snapshot:
    """The states of all agents, or of one.

    Raises:
        UsageError: GBE175 nobody knows that one.
    """
    with _open(artifacts) as file:
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
    from graphbus_core import store
    from graphbus_core.model.artifacts import GraphArtifact

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
        console.say(f"{count(len(made.changes), 'key')} would change; nothing was written.")
    else:
        console.out(f"Changed {count(len(made.changes), 'key')}.")
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
    if artifacts != _ARTIFACTS:
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
    return {"agent": agent, "keys": len(keys), "size_bytes": state_text.size_of(keys), "version": version}


def _entry(kept: Kept) -> dict[str, Any]:
    return {"value": kept.value, "version": kept.version}


def _joined(keys: dict[str, Kept]) -> str:
    from json import dumps

    return dumps({key: kept.value for key, kept in keys.items()})
