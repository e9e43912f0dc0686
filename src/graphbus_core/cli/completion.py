"""`graphbus completion`: shell completion by click, extended by words of the project such as agents and topics.

The metavar of a parameter (`TOPIC`, `[SESSION]`) decides where its words come from. They are read from the artifacts, so that
no code of the project runs. An artifact that cannot be read gives no words.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from graphbus_core.cli import COMMANDS, COMPLETION_VARIABLE, graphbus
from graphbus_core.isolation import attempt

_SHELLS = ("bash", "zsh", "fish")

_SAFE = re.compile(r"[\w./:@+%,-]+")
"""Words that no shell splits or expands. Others are not offered, because artifacts may come from anybody."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

_Words = Iterable[tuple[str, str]]
"""Pairs of a word and its description, which may be empty."""


@click.command("completion", short_help="Print the script that completes words in your shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(*, shell: str) -> None:
    """Print a completion script for SHELL: bash, zsh or fish. Nothing is installed; load it when the shell starts.

    It completes commands, options, their values and files, and words of the project: agents, methods, topics,
    sessions. They are read from the artifacts of the last build; your code is not run.

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
        console.print_line(script(graphbus, {}, "graphbus", COMPLETION_VARIABLE).source(), end="")


def print_completions(instruction: str) -> int:
    """Print the matching words for the script of a shell, e.g. `zsh_complete`; after any failure print none."""
    lines, _ = attempt(lambda: _completion_lines(instruction.partition("_")[0]))
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines or ()).encode("utf-8", "replace"))
    return 0


def _completion_lines(shell: str) -> list[str]:
    """Return the matching words in the format of the shell; the typed words come from the environment, as click sets it."""
    shell_class = get_completion_class(shell)
    if shell_class is None:
        return []
    completer = shell_class(graphbus, {}, "graphbus", COMPLETION_VARIABLE)
    words, incomplete = completer.get_completion_args()
    found = complete_words(
        [word for word in words if word != "="], incomplete
    )  # bash splits `--option=value` into three words
    if incomplete.startswith("--"):  # zsh and fish do not split it, and replace the whole word
        for word in found:
            word.value = incomplete[: incomplete.find("=") + 1] + word.value
    return [completer.format_completion(word) for word in found]


def complete_words(words: list[str], incomplete: str) -> list[CompletionItem[str]]:
    """Return the completions after these words. Changes the working directory to the one that `-C` names."""
    for option, folder in pairwise(words):
        if option == "-C":
            os.chdir(folder)
    name = next((word for word in words if word in COMMANDS), "")
    _add_project_words(graphbus.get_command(click.Context(graphbus), name), words)
    completer = get_completion_class("bash")(
        graphbus, {}, "graphbus", COMPLETION_VARIABLE
    )  # all shells get the same words
    return completer.get_completions(words, incomplete)


def _add_project_words(command: click.Command | None, words: list[str]) -> None:
    """Add the words of the project to the completion of a command and its subcommands."""
    for below in getattr(command, "commands", {}).values():
        _add_project_words(below, words)
    for parameter in command.params if command else ():
        if names := completable_names(parameter):
            parameter.shell_complete = partial(_find_matches, names, words)  # type: ignore[method-assign]


def completable_names(parameter: click.Parameter) -> list[str]:
    """Return the metavars of a parameter that have words in `SOURCES` or `FILES`: `[SESSION] [ARTIFACTS]` gives both."""
    shown = parameter.metavar or (parameter.name or "").upper()
    if isinstance(parameter.type, click.Path | click.Choice):
        return []
    # An option with several values has one metavar for all of them: `AGENT.METHOD JSON`.
    names = [shown] if parameter.nargs > 1 else re.findall(r"[A-Z][A-Z_.:]*", re.sub(r"[][]|\.\.\.", "", shown))
    return [name for name in names if name in SOURCES or name in FILES]


def _find_matches(
    names: list[str], typed: list[str], _ctx: click.Context, incomplete: str
) -> list[CompletionItem[str]]:
    """Return the completions of a parameter with these metavars: words that start with `incomplete`, or kinds of files."""
    found = [CompletionItem(incomplete, type=FILES[name]) for name in names if name in FILES]
    words, _ = attempt(
        lambda: [word for name in names if name in SOURCES for word in SOURCES[name](_artifact_folder(typed))]
    )
    for word, meaning in words or ():
        if word.startswith(incomplete) and _SAFE.fullmatch(word):
            found.append(CompletionItem(word, help=_CONTROL.sub(" ", meaning.strip().partition("\n")[0])))
    return found


# --- where words come from ------------------------------------------------------------------


def _artifact_folder(typed: list[str]) -> Path:
    """Return the artifact folder: the one among the typed words, otherwise that of the project."""
    for word in typed:
        if os.path.isfile(os.path.join(word, "agents.json")):
            return Path(word)
    from graphbus_core import settings

    root = settings.find_root([Path()])
    return Path(root, settings.load(root).artifacts)


def _read_json(folder: Path, name: str) -> Any:
    import json

    return json.loads((folder / name).read_bytes())


def _list_agents(folder: Path) -> _Words:
    return ((agent["name"], agent.get("doc", "")) for agent in _read_json(folder, "agents.json")["agents"])


def _list_methods(folder: Path) -> _Words:
    for agent in _read_json(folder, "agents.json")["agents"]:
        for method in agent.get("methods", ()):
            if method.get("has_schema"):
                yield f"{agent['name']}.{method['name']}", method.get("doc", "")


def _list_break_places(folder: Path) -> _Words:
    """Return the places where `--break` can stop: callable methods, and handlers."""
    yield from _list_methods(folder)
    for agent in _read_json(folder, "agents.json")["agents"]:
        for subscription in agent.get("subscriptions", ()):
            yield f"{agent['name']}.{subscription['method']}", f"handles {subscription['topic']}"


def _list_topics(folder: Path) -> _Words:
    for topic in _read_json(folder, "topics.json")["topics"]:
        handlers = ", ".join(topic.get("subscribers", ()))
        yield topic["name"], f"handled by {handlers}" if handlers else ""


def _list_sessions(folder: Path) -> _Words:
    """Return the sessions, the newest first."""
    return ((path.parent.name, "") for path in sorted(folder.glob("sessions/*/record.json"), reverse=True))


SOURCES: Mapping[str, Callable[[Path], _Words]] = {
    "AGENT": _list_agents,
    "AGENT.METHOD": _list_break_places,
    "AGENT.METHOD JSON": _list_methods,
    "TOPIC JSON": _list_topics,
    "TOPIC": _list_topics,
    "SESSION": _list_sessions,
}
"""Metavar in the help -> the function that lists its words from the artifact folder."""

FILES: Mapping[str, str] = {
    **dict.fromkeys(("PATH", "FILE", "FILE:LINE", "DIFF"), "file"),
    **dict.fromkeys(("DIR", "ARTIFACTS", "OLD", "NEW"), "dir"),
}
"""Metavar in the help -> the kind of path that the shell itself completes."""
