"""The tools of `graphbus mcp`: each is a command line of GraphBus, made from arguments that were checked.

The arguments of a tool are a class, from which its JSON Schema is made. A path must lie in the project, and no argument can
become an option. Contradictions are left to the command, which refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.errors import UsageError

_MOST_WORD_BYTES = 131_071
"""The longest argument that Linux passes to a process."""


class CommandLine(NamedTuple):
    """The words of a command without `graphbus`, and what it reads on standard input."""

    words: tuple[str, ...]
    stdin: str = ""


class _Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""

    def _command_line(self, root: Path) -> CommandLine:
        """Return the command; raise UsageError (GBE169) if an argument is not allowed."""
        raise NotImplementedError


class Check(_Arguments):
    """Find mistakes in the code of the agents, and between them. `paths`: files or folders; empty: the whole project."""

    paths: tuple[str, ...] = ()

    def _command_line(self, root: Path) -> CommandLine:
        return CommandLine(("check", "--json", "--", *_inside(root, self.paths or (".",))))


class ContractDiff(_Arguments):
    """Say what has changed in what agents promise each other, and whom it breaks. `old` and `new` are git revisions or artifact
    folders; without `new` it is the working tree."""

    old: str
    new: str = ""

    def _command_line(self, root: Path) -> CommandLine:
        states = [_state(root, each) for each in (self.old, self.new) if each]
        return CommandLine(("contract", "diff", "--json", "--", *states))


class Gate(_Arguments):
    """Judge a change before it is made, as proposals of agents are judged; nothing is written. `patch` is a unified diff; or
    `file` has its whole new text in `new_text`; or neither: the change is that of the working tree since `against` (HEAD), or
    what is `staged`. `allow`: globs of further files that may change."""

    patch: str | None = None
    file: str = ""
    new_text: str | None = None
    against: str = ""
    staged: bool = False
    allow: tuple[str, ...] = ()

    def _command_line(self, root: Path) -> CommandLine:
        read = {"patch": "-" * (self.patch is not None), "new": "-" * (self.new_text is not None)}
        options = _options(**read, against=self.against, staged=self.staged)
        options += [f"--allow={glob}" for glob in self.allow]
        files = _inside(root, [self.file] if self.file else [])
        return CommandLine(("gate", "--json", *options, "--", *files), self.patch or self.new_text or "")


class Inspect(_Arguments):
    """Show the graph of the last build: agents, topics, edges. `agent`: only this one, with its whole contract."""

    agent: str = ""

    def _command_line(self, root: Path) -> CommandLine:
        return CommandLine(("inspect", "--json", *_options(agent=self.agent)))


class Why(_Arguments):
    """Show which decision of a negotiation wrote a line, who proposed it and why; without `line`, all lines of the file."""

    file: str
    line: int = 0

    def _command_line(self, root: Path) -> CommandLine:
        (file,) = _inside(root, [self.file])
        return CommandLine(("why", "--json", "--", f"{file}:{self.line}" if self.line else file))


class ShowNegotiations(_Arguments):
    """List the proposals of a negotiation with their votes; without `session` the sessions that there are. `proposal`: one in
    full."""

    session: str = ""
    proposal: str = ""

    def _command_line(self, root: Path) -> CommandLine:
        options = _options(session=self.session, sessions=not (self.session or self.proposal))
        return CommandLine(
            ("inspect-negotiation", "--json", *options, "--", *([self.proposal] if self.proposal else []))
        )


class Negotiate(_Arguments):
    """Let the agents propose changes and vote on them, and write the accepted ones to the source files. The settings of the
    project say which model is asked, and what it may cost; `model` "rules" asks none. `dry_run`: write nothing."""

    paths: tuple[str, ...] = ()
    model: Literal["", "rules"] = ""
    intent: str = ""
    rounds: int = 0
    dry_run: bool = False

    def _command_line(self, root: Path) -> CommandLine:
        options = _options(model=self.model, intent=self.intent, rounds=self.rounds, dry_run=self.dry_run)
        return CommandLine(("negotiate", "--json", *options, "--", *_inside(root, self.paths or (".",))))


class RunCall(_Arguments):
    """Start the graph of the last build, call a method of an agent and return its result. This runs the code of the project."""

    agent: str
    method: str
    arguments: dict[str, Any] = {}

    def _command_line(self, root: Path) -> CommandLine:
        target = f"{self.agent}.{self.method}"
        if not all(part.isidentifier() for part in (self.agent, self.method)):
            raise UsageError("GBE169", value=target, reason="it is no name of an agent and a method")
        return CommandLine(("run", "--json", "--call", target, json.dumps(self.arguments)))


class McpTool(NamedTuple):
    """A tool: its name, its arguments, and whether it changes files or runs code of the project."""

    name: str
    arguments: type[_Arguments]
    writes: bool = False

    @property
    def description(self) -> str:
        """What it does, for the model that chooses tools."""
        return " ".join((self.arguments.__doc__ or "").split())

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        (_, components) = msgspec.json.schema_components([self.arguments])
        found: dict[str, Any] = components[self.arguments.__name__]
        return {key: value for key, value in found.items() if key not in ("title", "description")}


TOOLS = (
    McpTool("check", Check),
    McpTool("contract_diff", ContractDiff),
    McpTool("gate", Gate),
    McpTool("inspect", Inspect),
    McpTool("why", Why),
    McpTool("negotiations", ShowNegotiations),
    McpTool("negotiate", Negotiate, writes=True),
    McpTool("run_call", RunCall, writes=True),
)


def command_of(tool: McpTool, arguments: dict[str, Any], root: Path) -> CommandLine:
    """Return the command line of a call.

    Raises:
        UsageError: GBE169, an argument is unknown, of the wrong type, too long for a process, or leaves the project.
    """
    try:
        command = msgspec.convert(arguments, tool.arguments)._command_line(root)
    except msgspec.ValidationError as error:
        raise UsageError("GBE169", value=tool.name, reason=str(error)) from None
    for word in command.words:
        if "\0" in word or len(word.encode(errors="replace")) > _MOST_WORD_BYTES:
            reason = f"it has a NUL character, or more than {_MOST_WORD_BYTES:,} bytes"
            raise UsageError("GBE169", value=f"{word[:20]!r}", reason=reason)
    return command


def _options(**values: str | int) -> list[str]:
    """Return the options with a value; True stands for an option without one."""
    given = {f"--{name.replace('_', '-')}": value for name, value in values.items() if value}
    return [name if value is True else f"{name}={value}" for name, value in given.items()]


def _inside(root: Path, paths: Iterable[str]) -> list[str]:
    """Return paths relative to the project; raise GBE169 for one that leaves it, through `..` or a link."""
    real, found = root.resolve(), []
    for path in paths:
        if "\0" in path or not (real / path).resolve().is_relative_to(real):
            raise UsageError("GBE169", value=path, reason="it is outside of the project")
        found.append(str((real / path).resolve().relative_to(real)))
    return found


def _state(root: Path, name: str) -> str:
    """Return a git revision or an artifact folder in the project; raise GBE169 for any other folder."""
    if name.startswith(("/", "~", ".")) or ".." in Path(name).parts or (root / name).exists():
        return _inside(root, [name])[0]
    return name
