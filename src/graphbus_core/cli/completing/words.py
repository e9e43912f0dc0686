"""The words that fit where a value is typed. What the help calls a value (`TOPIC`, `[SESSION]`) decides where they come from.

Words of the project are read from its artifacts and from nothing that would have to be run; what cannot be read gives none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import click

from graphbus_core.isolation import attempt

Kind = Literal["plain", "file", "dir"]

_SAFE = re.compile(r"[\w./:@+%,-]+")
"""What every shell takes as one word and as nothing else: artifacts may come from anybody."""
_LETTERS = 100


class Word(NamedTuple):
    """A word to offer; of the kinds `file` and `dir`: the shell offers the names that it finds."""

    text: str
    help: str = ""
    kind: Kind = "plain"


class Asked(NamedTuple):
    """What is asked for.

    Attributes:
        typed: The value as far as it is typed.
        given: The values that were typed before, by the name of their parameter.
    """

    typed: str
    given: Mapping[str, Sequence[str]]


Source = Callable[[Asked], Iterable[Word]]

FILES = (Word("", kind="file"),)
FOLDERS = (Word("", kind="dir"),)


def words_for(parameter: click.Parameter, index: int, asked: Asked) -> list[Word]:
    """Give the words for one value of an option or argument."""
    kind = parameter.type
    if isinstance(kind, click.Path):
        return list(FILES if kind.file_okay else FOLDERS)
    if isinstance(kind, click.Choice):
        return [Word(str(choice)) for choice in kind.choices if str(choice).startswith(asked.typed)]
    found, error = attempt(lambda: list(_named(parameter, index, asked)))
    return [] if error else found or []


def _named(parameter: click.Parameter, index: int, asked: Asked) -> Iterable[Word]:
    for name in names_of(parameter, index):
        for word in SOURCES.get(name, _none)(asked):
            if word.kind != "plain" or (word.text.startswith(asked.typed) and _SAFE.fullmatch(word.text)):
                yield word


def names_of(parameter: click.Parameter, index: int) -> list[str]:
    """Give what the help calls this value: `[ID]... [ARTIFACTS]` is an ID or ARTIFACTS, `TOPIC JSON` a TOPIC, JSON to come."""
    is_argument = isinstance(parameter, click.Argument)
    shown = parameter.metavar or ((parameter.name or "").upper() if is_argument else "TEXT")
    if parameter.nargs > 1:
        return [shown] if index == 0 else shown.split()[index : index + 1]
    return re.findall(r"[A-Z][A-Z_.:]*", re.sub(r"[][]|\.\.\.", "", shown))


def _none(_asked: Asked) -> Iterable[Word]:
    return ()


def _files(_asked: Asked) -> Iterable[Word]:
    return FILES


def _folders(_asked: Asked) -> Iterable[Word]:
    return FOLDERS


# --- of the project -------------------------------------------------------------------------


def _artifacts(asked: Asked) -> str:
    """The artifact folder that is meant: the one that was typed, else that of the project."""
    for name in ("artifacts", "words"):
        for given in reversed(asked.given.get(name, ())):
            if os.path.isdir(given):
                return given
    from pathlib import Path

    from graphbus_core import settings

    root = settings.find_root([Path()])
    return os.path.join(root, settings.load(root).artifacts)


def _read(asked: Asked, name: str) -> Any:
    import json

    with open(os.path.join(_artifacts(asked), name), "rb") as file:
        return json.load(file)


def _agents(asked: Asked) -> Iterable[Word]:
    for agent in _read(asked, "agents.json")["agents"]:
        yield Word(agent["name"], _first_line(agent.get("doc", "")))


def _methods(asked: Asked) -> Iterable[Word]:
    """What `--call` takes: methods with a schema. A breakpoint may stand before a handler of events as well."""
    for agent in _read(asked, "agents.json")["agents"]:
        for method in agent.get("methods", ()):
            if method.get("has_schema"):
                yield Word(f"{agent['name']}.{method['name']}", _first_line(method.get("doc", "")))


def _stops(asked: Asked) -> Iterable[Word]:
    yield from _methods(asked)
    for agent in _read(asked, "agents.json")["agents"]:
        for subscription in agent.get("subscriptions", ()):
            yield Word(f"{agent['name']}.{subscription['method']}", f"gets {subscription['topic']}")


def _topics(asked: Asked) -> Iterable[Word]:
    for topic in _read(asked, "topics.json")["topics"]:
        heard = ", ".join(topic.get("subscribers", ()))
        yield Word(topic["name"], f"heard by {heard}" if heard else "")


def _sessions(asked: Asked) -> Iterable[Word]:
    folder = os.path.join(_artifacts(asked), "sessions")
    for name in sorted(os.listdir(folder), reverse=True):
        if os.path.isfile(os.path.join(folder, name, "record.json")):
            yield Word(name)


def _proposals(asked: Asked) -> Iterable[Word]:
    sessions = asked.given.get("session") or [word.text for word in _sessions(asked)]
    for record in _read(asked, os.path.join("sessions", sessions[0], "record.json"))["negotiations"]["records"]:
        proposal = record["proposal"]
        yield Word(proposal["proposal_id"], _first_line(proposal.get("title") or proposal["intent"]))


def _letters(asked: Asked) -> Iterable[Word]:
    from contextlib import closing

    from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile

    path = os.path.join(_state(asked), FILE)
    if os.path.isfile(path):
        with closing(DeadLetterFile(path, timeout_s=0.2)) as file:
            for letter in file.letters(limit=_LETTERS, is_short=True):
                yield Word(str(letter.id), f"{letter.letter.event.topic} > {letter.letter.subscription}")


def _events(asked: Asked) -> Iterable[Word]:
    from pathlib import Path

    from graphbus_core.hosting.instruments.trace_file import FILE, TraceReader

    yield Word("last", "the last event from outside")
    path = Path(_state(asked)) / FILE
    if path.is_file():
        with TraceReader(path) as reader:
            for root in reader.roots(_LETTERS):
                yield Word(root.event_id[:8], root.topic)


def _keys(asked: Asked) -> Iterable[Word]:
    """What the agent that was named keeps."""
    from contextlib import closing

    from graphbus_core.hosting.state import FILE
    from graphbus_core.hosting.state_file import StateFile

    path = os.path.join(_state(asked), FILE)
    if os.path.isfile(path):
        agent = asked.given["agent"][0]
        with closing(StateFile(path)) as file:
            yield from map(Word, file.snapshot([agent]).agents.get(agent, ()))


def _state(asked: Asked) -> str:
    from graphbus_core import settings
    from graphbus_core.model.config import RuntimeRequest

    return settings.resolve_run(RuntimeRequest(artifacts=_artifacts(asked))).state_dir


# --- of GraphBus, and of the tools beside it ------------------------------------------------


def _rules(asked: Asked) -> Iterable[Word]:
    """One of several with commas between them."""
    from graphbus_core.compiler.rules import REGISTER

    before = asked.typed[: asked.typed.rfind(",") + 1]
    for rule in REGISTER.values():
        yield Word(before + rule.code, rule.summary)


def _models(_asked: Asked) -> Iterable[Word]:
    from pathlib import Path

    from graphbus_core import settings
    from graphbus_core.llm.providers import providers_of

    yield Word("rules", "no model is asked")
    for provider in providers_of(settings.load(settings.find_root([Path()])).llm).values():
        yield Word(f"{provider.name}:{provider.default_model}", provider.key_env and f"needs {provider.key_env}")


def _revisions(asked: Asked) -> Iterable[Word]:
    yield from _told(["git", "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes"])
    yield Word("HEAD")


def _versions(asked: Asked) -> Iterable[Word]:
    """What is compared: artifact folders, or revisions."""
    yield from FOLDERS
    yield from _revisions(asked)


def _contexts(asked: Asked) -> Iterable[Word]:
    yield from _told(["kubectl", "config", "get-contexts", "--output=name"])


def _told(command: Sequence[str]) -> Iterable[Word]:
    """The lines that another program gives at once; a program that takes long gives none."""
    import subprocess

    found, _ = attempt(
        lambda: subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1, check=True)
    )
    return [Word(line) for line in (found.stdout.splitlines() if found else ())]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


SOURCES: Mapping[str, Source] = {
    "AGENT": _agents,
    "AGENT.METHOD": _stops,
    "AGENT.METHOD JSON": _methods,
    "TOPIC JSON": _topics,
    "TOPIC": _topics,
    "SESSION": _sessions,
    "PROPOSAL": _proposals,
    "ID": _letters,
    "EVENT_ID": _events,
    "KEY": _keys,
    "CODES": _rules,
    "MODEL": _models,
    "REV": _revisions,
    "OLD": _versions,
    "NEW": _versions,
    "CONTEXT": _contexts,
    "PATH": _files,
    "FILE": _files,
    "FILE:LINE": _files,
    "DIFF": _files,
    "DIR": _folders,
    "ARTIFACTS": _folders,
}
"""What the help calls a value -> the words for it."""

FREE = frozenset(
    {
        "AMOUNT",
        "ARGUMENTS",
        "CIDR",
        "COMMAND",
        "CRON",
        "GLOB",
        "HOST",
        "HOST:PORT",
        "IMAGE",
        "JSON",
        "MODULE:FUNCTION",
        "N",
        "NAME",
    }
    | {"NAMESPACE", "NAMESPACE:PORT", "MODULE", "NAME:TAG", "SIZE", "TEXT", "TIME", "USD", "VERSION"}
)
"""Values that only a person can know."""
