"""`graphbus completion`: click's completion, and the words of a project that click does not know.

What the help calls a value (`TOPIC`, `[SESSION]`) decides where its words come from. Words of the project are read from its
artifacts, so that nothing of the project is run; what cannot be read gives no words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    lines, _ = attempt(lambda: _lines(instruction.partition("_")[0]))
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines or ()).encode("utf-8", "replace"))
    return 0


def _lines(shell: str) -> list[str]:
    asking = get_completion_class(shell)
    if asking is None:
        return []
    asked = asking(graphbus, {}, "graphbus", COMPLETION_VARIABLE)
    words, incomplete = asked.get_completion_args()
    found = complete([word for word in words if word != "="], incomplete)  # bash takes `--option=value` apart
    if incomplete.startswith("--"):  # zsh and fish do not, and replace all of it
        for word in found:
            word.value = incomplete[: incomplete.find("=") + 1] + word.value
    return [asked.format_completion(word) for word in found]


def complete(words: list[str], incomplete: str) -> list[CompletionItem[str]]:
    """Give the words that may stand after these; the working directory is then the one that `-C` names."""
    for option, folder in pairwise(words):
        if option == "-C":
            os.chdir(folder)
    name = next((word for word in words if word in COMMANDS), "")
    _teach(graphbus.get_command(click.Context(graphbus), name), words)
    asked = get_completion_class("bash")(graphbus, {}, "graphbus", COMPLETION_VARIABLE)
    return asked.get_completions(words, incomplete)


def _teach(command: click.Command | None, words: list[str]) -> None:
    """Let a command and those below it complete what only a project knows."""
    for below in getattr(command, "commands", {}).values():
        _teach(below, words)
    for parameter in command.params if command else ():
        if names := names_of(parameter):
            parameter.shell_complete = partial(_fitting, names, words)  # type: ignore[method-assign]


def _fitting(names: list[str], given: list[str], ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    asked = Asked(incomplete, ctx.params, given)
    found: list[CompletionItem[str]] = []
    for name in names:
        if name in FILES:
            found.append(CompletionItem(incomplete, type=FILES[name]))
        words, _ = attempt(partial(_listed, name, asked))
        fitting = (word for word in words or () if word[0].startswith(incomplete) and _SAFE.fullmatch(word[0]))
        found += [
            CompletionItem(word, help=_CONTROL.sub(" ", help.strip().partition("\n")[0])) for word, help in fitting
        ]
    return found


def _listed(name: str, asked: Asked) -> list[tuple[str, str]]:
    return list(SOURCES[name](asked)) if name in SOURCES else []


def names_of(parameter: click.Parameter) -> list[str]:
    """Give what the help calls a value, if its words are known: `[ID]... [ARTIFACTS]` is an ID or ARTIFACTS."""
    shown = parameter.metavar or (parameter.name or "").upper()
    if isinstance(parameter.type, click.Path | click.Choice):
        return []
    names = [shown] if parameter.nargs > 1 else re.findall(r"[A-Z][A-Z_.:]*", re.sub(r"[][]|\.\.\.", "", shown))
    return [name for name in names if name in SOURCES or name in FILES]


# --- where words come from ------------------------------------------------------------------


Words = Iterable[tuple[str, str]]
"""Words and what they mean."""


class Asked(NamedTuple):
    """The value as far as it is typed; before it the parameters of the command by name, and all words."""

    typed: str
    given: Mapping[str, Any]
    words: list[str]

    @property
    def artifacts(self) -> str:
        """The artifact folder that is meant: the one that was typed, else that of the project."""
        from graphbus_core import settings

        for word in reversed(self.words):
            if os.path.isfile(os.path.join(word, "agents.json")):
                return word
        root = settings.find_root([Path()])
        return os.path.join(root, settings.load(root).artifacts)

    def read(self, *name: str) -> Any:
        """Read an artifact."""
        import json

        return json.loads(Path(self.artifacts, *name).read_bytes())

    def state(self, file: str) -> Path:
        """Where what a graph keeps is; it must be there."""
        from graphbus_core import settings
        from graphbus_core.model.config import RuntimeConfig

        return Path(settings.resolve_run(RuntimeConfig(artifacts=self.artifacts)).state_dir, file).resolve(strict=True)


def _agents(asked: Asked) -> Words:
    return ((agent["name"], agent.get("doc", "")) for agent in asked.read("agents.json")["agents"])


def _methods(asked: Asked) -> Words:
    for agent in asked.read("agents.json")["agents"]:
        for method in agent.get("methods", ()):
            if method.get("has_schema"):
                yield f"{agent['name']}.{method['name']}", method.get("doc", "")


def _stops(asked: Asked) -> Words:
    """Methods that can be called, and handlers."""
    yield from _methods(asked)
    for agent in asked.read("agents.json")["agents"]:
        for subscription in agent.get("subscriptions", ()):
            yield f"{agent['name']}.{subscription['method']}", f"gets {subscription['topic']}"


def _topics(asked: Asked) -> Words:
    for topic in asked.read("topics.json")["topics"]:
        heard = ", ".join(topic.get("subscribers", ()))
        yield topic["name"], f"heard by {heard}" if heard else ""


def _sessions(asked: Asked) -> Words:
    records = Path(asked.artifacts, "sessions").glob("*/record.json")
    return ((name, "") for name in sorted((path.parent.name for path in records), reverse=True))


def _proposals(asked: Asked) -> Words:
    session = asked.given.get("session") or next(iter(_sessions(asked)))[0]
    for record in asked.read("sessions", session, "record.json")["negotiations"]["records"]:
        proposal = record["proposal"]
        yield proposal["proposal_id"], proposal.get("title") or proposal["intent"]


def _letters(asked: Asked) -> Words:
    from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile

    with closing(DeadLetterFile(str(asked.state(FILE)), timeout_s=0.2)) as file:
        for letter in file.letters(limit=_MOST):
            yield str(letter.id), f"{letter.letter.event.topic} > {letter.letter.subscription}"


def _events(asked: Asked) -> Words:
    from graphbus_core.hosting.instruments.trace import FILE, SHORT, read, roots

    yield "last", "the last event from outside"
    found, _ = attempt(lambda: roots(read(asked.state(FILE).parent), _MOST))
    yield from ((root.event_id[:SHORT], root.topic) for root in found or ())


def _keys(asked: Asked) -> Words:
    """The keys in the state of the agent that was named."""
    from graphbus_core.hosting.state import FILE, States

    given = asked.given["agent"]
    agent = given if isinstance(given, str) else given[0]
    with closing(States(str(asked.state(FILE)))) as states:
        yield from ((key, "") for key in states.keys(agent))


def _rules(asked: Asked) -> Words:
    """One of several with commas between them."""
    from graphbus_core.compiler.rules import REGISTER

    before = asked.typed[: asked.typed.rfind(",") + 1]
    return ((before + rule.code, rule.summary) for rule in REGISTER.values())


def _models(_asked: Asked) -> Words:
    from graphbus_core import settings
    from graphbus_core.llm.providers import providers_of

    yield "rules", "no model is asked"
    for provider in providers_of(settings.load(settings.find_root([Path()])).llm).values():
        yield f"{provider.name}:{provider.default_model}", provider.key_env and f"needs {provider.key_env}"


def _revisions(_asked: Asked) -> Words:
    yield from _output_of("git for-each-ref --format=%(refname:short) refs/heads refs/tags refs/remotes")
    yield "HEAD", ""


def _output_of(command: str) -> Iterator[tuple[str, str]]:
    """The lines that a program writes within a second, if it succeeds."""
    found, _ = attempt(
        lambda: subprocess.run(
            command.split(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1, check=True
        )
    )
    return ((line, "") for line in (found.stdout.splitlines() if found else ()))


SOURCES: Mapping[str, Callable[[Asked], Words]] = {
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
    "OLD": _revisions,
    "NEW": _revisions,
    "CONTEXT": lambda _: _output_of("kubectl config get-contexts --output=name"),
}
"""What the help calls a value -> the words for it."""

FILES: Mapping[str, str] = {
    **dict.fromkeys(("PATH", "FILE", "FILE:LINE", "DIFF"), "file"),
    **dict.fromkeys(("DIR", "ARTIFACTS", "OLD", "NEW"), "dir"),
}
"""What the help calls a value -> what the shell itself completes it with."""
