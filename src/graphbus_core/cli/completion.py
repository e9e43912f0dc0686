"""`graphbus completion`: click's completion, and the words of a project that click does not know.

What the help calls a value (`TOPIC`, `[SESSION]`) decides where its words come from. Words of the project are read from its
artifacts, so that nothing of the project is run; what cannot be read gives no words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

from graphbus_core.cli import COMMANDS, COMPLETION_VARIABLE, graphbus
from graphbus_core.isolation import attempt

SHELLS = ("bash", "zsh", "fish")

_SAFE = re.compile(r"[\w./:@+%,-]+")
"""What every shell takes as one word and as nothing else: artifacts may come from anybody."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_MOST = 100


@click.command("completion", short_help="Print the script that completes words in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print a script for SHELL: bash, zsh or fish. Nothing is installed or changed; load it where the shell begins.

    It completes commands, options, their values and files, and words of the project: agents, methods, topics,
    sessions, dead letters. They are read from the artifacts of the last build; your code is not run.

    \b
    bash, in ~/.bashrc:
      eval "$(graphbus completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(graphbus completion zsh)"
    fish, once:
      graphbus completion fish > ~/.config/fish/completions/graphbus.fish

    Exit status: 0 done; 2 another shell.

    \b
    Examples:
      graphbus completion bash
      graphbus completion zsh > ~/.zfunc/_graphbus
    """
    from graphbus_core.cli import console

    script = get_completion_class(shell)
    if script is not None:
        console.out(script(graphbus, {}, "graphbus", COMPLETION_VARIABLE).source(), end="")


def answer(instruction: str) -> int:
    """Write the words that fit for the script of a shell, e.g. `zsh_complete`; any failure means that none does."""
    lines, _ = attempt(lambda: list(_lines(instruction.partition("_")[0])))
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines or ()).encode("utf-8", "replace"))
    return 0


def _lines(shell: str) -> Iterable[str]:
    asking = get_completion_class(shell)
    if asking is None:
        return ()
    asked = asking(graphbus, {}, "graphbus", COMPLETION_VARIABLE)
    here = os.getcwd()
    try:
        words, incomplete = asked.get_completion_args()
        found = complete([word for word in words if word != "="], incomplete)  # bash takes `--option=value` apart
        if incomplete.startswith("--"):  # zsh and fish do not, and replace all of it
            for word in found:
                word.value = incomplete[: incomplete.find("=") + 1] + word.value
        return [asked.format_completion(word) for word in found]
    finally:
        os.chdir(here)


def complete(words: list[str], incomplete: str) -> list[CompletionItem[str]]:
    """Give the words that may stand after these; the working directory is then the one that `-C` names."""
    for option, folder in pairwise(words):
        if option == "-C":
            os.chdir(folder)
    for name in words:
        if name in COMMANDS:
            _teach(graphbus.get_command(click.Context(graphbus), name), words)
            break
    asked = get_completion_class("bash")(graphbus, {}, "graphbus", COMPLETION_VARIABLE)
    return asked.get_completions(words, incomplete)


def _teach(command: click.Command | None, words: list[str]) -> None:
    """Let a command and those below it complete what only a project knows."""
    for below in getattr(command, "commands", {}).values():
        _teach(below, words)
    for parameter in command.params if command else ():
        if names_of(parameter):
            parameter.type = _Words(parameter, words)


class _Words(click.ParamType[Any]):
    """The type of a parameter, completed with the words for the names that the help gives it."""

    def __init__(self, parameter: click.Parameter, words: list[str]) -> None:
        self.name = parameter.type.name
        self.convert = parameter.type.convert  # type: ignore[method-assign]
        self._names = names_of(parameter)
        self._given = words

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        found: list[CompletionItem[str]] = []
        for name in self._names:
            asked = _Asked(incomplete, ctx.params, self._given)
            words, _ = attempt(partial(_listed, name, asked))
            found += words or ()
        return [word for word in found if word.type != "plain" or _fits(word.value, incomplete)]


def _listed(name: str, asked: _Asked) -> list[CompletionItem[str]]:
    return list(SOURCES[name](asked))


def _fits(word: str, incomplete: str) -> bool:
    return word.startswith(incomplete) and _SAFE.fullmatch(word) is not None


def names_of(parameter: click.Parameter) -> list[str]:
    """Give what the help calls a value, if its words are known: `[ID]... [ARTIFACTS]` is an ID or ARTIFACTS."""
    shown = parameter.metavar or (parameter.name or "").upper()
    if isinstance(parameter.type, click.Path | click.Choice):
        return []
    names = [shown] if parameter.nargs > 1 else re.findall(r"[A-Z][A-Z_.:]*", re.sub(r"[][]|\.\.\.", "", shown))
    return [name for name in names if name in SOURCES]


class _Asked(NamedTuple):
    """The value as far as it is typed; before it the parameters of the command by name, and all words."""

    typed: str
    given: Mapping[str, Any]
    words: list[str]

    def values(self, name: str) -> list[str]:
        value = self.given.get(name) or ()
        return [value] if isinstance(value, str) else list(value)


def _word(text: str, meaning: str = "") -> CompletionItem[str]:
    return CompletionItem(text, help=_CONTROL.sub(" ", meaning.strip().partition("\n")[0]))


def _files(asked: _Asked) -> Iterable[CompletionItem[str]]:
    return [CompletionItem(asked.typed, type="file")]


def _folders(asked: _Asked) -> Iterable[CompletionItem[str]]:
    return [CompletionItem(asked.typed, type="dir")]


# --- of the project -------------------------------------------------------------------------


def _artifacts(asked: _Asked) -> str:
    """The artifact folder that is meant: the one that was typed, else that of the project."""
    from graphbus_core import settings

    for word in reversed(asked.words):
        if os.path.isfile(os.path.join(word, "agents.json")):
            return word
    root = settings.find_root([Path()])
    return os.path.join(root, settings.load(root).artifacts)


def _read(asked: _Asked, name: str) -> Any:
    import json

    return json.loads(Path(_artifacts(asked), name).read_bytes())


def _state(asked: _Asked, file: str) -> Path:
    from graphbus_core import settings
    from graphbus_core.model.config import RuntimeConfig

    path = Path(settings.resolve_run(RuntimeConfig(artifacts=_artifacts(asked))).state_dir, file)
    return path.resolve(strict=True)


def _agents(asked: _Asked) -> Iterable[CompletionItem[str]]:
    return [_word(agent["name"], agent.get("doc", "")) for agent in _read(asked, "agents.json")["agents"]]


def _methods(asked: _Asked) -> Iterable[CompletionItem[str]]:
    for agent in _read(asked, "agents.json")["agents"]:
        for method in agent.get("methods", ()):
            if method.get("has_schema"):
                yield _word(f"{agent['name']}.{method['name']}", method.get("doc", ""))


def _stops(asked: _Asked) -> Iterable[CompletionItem[str]]:
    """Methods that can be called, and handlers."""
    yield from _methods(asked)
    for agent in _read(asked, "agents.json")["agents"]:
        for subscription in agent.get("subscriptions", ()):
            yield _word(f"{agent['name']}.{subscription['method']}", f"gets {subscription['topic']}")


def _topics(asked: _Asked) -> Iterable[CompletionItem[str]]:
    for topic in _read(asked, "topics.json")["topics"]:
        heard = ", ".join(topic.get("subscribers", ()))
        yield _word(topic["name"], f"heard by {heard}" if heard else "")


def _sessions(asked: _Asked) -> Iterable[CompletionItem[str]]:
    records = Path(_artifacts(asked), "sessions").glob("*/record.json")
    return [_word(name) for name in sorted((path.parent.name for path in records), reverse=True)]


def _proposals(asked: _Asked) -> Iterable[CompletionItem[str]]:
    sessions = asked.values("session") or [word.value for word in _sessions(asked)]
    for record in _read(asked, os.path.join("sessions", sessions[0], "record.json"))["negotiations"]["records"]:
        proposal = record["proposal"]
        yield _word(proposal["proposal_id"], proposal.get("title") or proposal["intent"])


def _letters(asked: _Asked) -> Iterable[CompletionItem[str]]:
    from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile

    with closing(DeadLetterFile(str(_state(asked, FILE)), timeout_s=0.2)) as file:
        for letter in file.letters(limit=_MOST, is_short=True):
            yield _word(str(letter.id), f"{letter.letter.event.topic} > {letter.letter.subscription}")


def _events(asked: _Asked) -> Iterable[CompletionItem[str]]:
    from graphbus_core.hosting.instruments.trace import FILE, SHORT, read, roots

    yield _word("last", "the last event from outside")
    found, _ = attempt(lambda: roots(read(_state(asked, FILE).parent), _MOST))
    yield from [_word(root.event_id[:SHORT], root.topic) for root in found or ()]


def _keys(asked: _Asked) -> Iterable[CompletionItem[str]]:
    """The keys in the state of the agent that was named."""
    from graphbus_core.hosting.state import FILE
    from graphbus_core.hosting.state_file import StateFile

    agent = asked.values("agent")[0]
    with closing(StateFile(str(_state(asked, FILE)))) as file:
        yield from map(_word, file.snapshot([agent]).agents.get(agent, ()))


# --- of GraphBus, and of the tools beside it ------------------------------------------------


def _rules(asked: _Asked) -> Iterable[CompletionItem[str]]:
    """One of several with commas between them."""
    from graphbus_core.compiler.rules import REGISTER

    before = asked.typed[: asked.typed.rfind(",") + 1]
    return [_word(before + rule.code, rule.summary) for rule in REGISTER.values()]


def _models(_asked: _Asked) -> Iterable[CompletionItem[str]]:
    from graphbus_core import settings
    from graphbus_core.llm.providers import providers_of

    yield _word("rules", "no model is asked")
    for provider in providers_of(settings.load(settings.find_root([Path()])).llm).values():
        yield _word(f"{provider.name}:{provider.default_model}", provider.key_env and f"needs {provider.key_env}")


def _revisions(_asked: _Asked) -> Iterable[CompletionItem[str]]:
    command = "git for-each-ref --format=%(refname:short) refs/heads refs/tags refs/remotes"
    return map(_word, [*_output_of(command), "HEAD"])


def _versions(asked: _Asked) -> Iterable[CompletionItem[str]]:
    """What is compared: artifact folders, or revisions."""
    return [*_folders(asked), *_revisions(asked)]


def _contexts(_asked: _Asked) -> Iterable[CompletionItem[str]]:
    return map(_word, _output_of("kubectl config get-contexts --output=name"))


def _output_of(command: str) -> list[str]:
    """The lines that a program writes within a second, if it succeeds."""
    found, _ = attempt(
        lambda: subprocess.run(
            command.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1, check=True
        )
    )
    return found.stdout.splitlines() if found else []


SOURCES: Mapping[str, Callable[[_Asked], Iterable[CompletionItem[str]]]] = {
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
