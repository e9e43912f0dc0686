"""The command line: `graphbus COMMAND`. A command's module is imported when the command is used, not before.

main  ->  COMMANDS (a static table)  ->  one module per command  ->  console (the only module that prints)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import click

from graphbus_core import __version__, collector, errors
from graphbus_core.cli import console

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130
BROKEN_PIPE = 141
OUR_BUG = 1  # the exit status after an exception that is not a GraphBusError
COMPLETION_VARIABLE = "_GRAPHBUS_COMPLETE"
CONFIG_VARIABLE = "GRAPHBUS_CONFIG"  # as in `settings`, which `--help` does not import


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line in `graphbus --help`."""

    target: str
    summary: str
    section: str


COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("graphbus_core.cli.init:init", "Create a project from a template.", "Start"),
    "generate": CommandEntry("graphbus_core.cli.generate:generate", "Add an agent and its test to a project.", "Start"),
    "doctor": CommandEntry(
        "graphbus_core.cli.doctor:doctor", "Show which models are usable, and what is missing.", "Start"
    ),
    "completion": CommandEntry(
        "graphbus_core.cli.completion:completion", "Print the script that completes words in your shell.", "Start"
    ),
    "check": CommandEntry(
        "graphbus_core.cli.check:check", "Find mistakes in the code of agents, fix safe ones.", "Build"
    ),
    "gate": CommandEntry(
        "graphbus_core.cli.gate:gate", "Run the gate on a change made outside a negotiation.", "Build"
    ),
    "conform": CommandEntry(
        "graphbus_core.cli.conform:conform", "Test a program that shall represent an agent.", "Build"
    ),
    "relay": CommandEntry("graphbus_core.cli.relay:relay", "Connect a program on NATS with a negotiation.", "Build"),
    "mcp": CommandEntry("graphbus_core.cli.mcp:mcp", "Offer check, gate and more to coding agents over MCP.", "Build"),
    "hooks": CommandEntry("graphbus_core.cli.hooks:hooks", "Let coding agents ask the gate before they edit.", "Build"),
    "build": CommandEntry("graphbus_core.cli.build:build", "Write the artifacts; let agents negotiate first.", "Build"),
    "negotiate": CommandEntry(
        "graphbus_core.cli.build:negotiate", "Let the agents change the code; write no artifacts.", "Build"
    ),
    "undo": CommandEntry("graphbus_core.cli.decisions:undo", "Take back what a negotiation changed.", "Build"),
    "migrate": CommandEntry("graphbus_core.cli.artifacts:migrate", "Convert artifacts of an older GraphBus.", "Build"),
    "inspect": CommandEntry(
        "graphbus_core.cli.artifacts:inspect", "Show agents, topics and the graph of a build.", "Inspect"
    ),
    "powers": CommandEntry(
        "graphbus_core.cli.powers:powers", "Show which powers are declared, and which are used.", "Inspect"
    ),
    "inspect-negotiation": CommandEntry(
        "graphbus_core.cli.inspect_negotiation:inspect_negotiation",
        "Show the proposals, votes and commits of a session.",
        "Inspect",
    ),
    "view": CommandEntry(
        "graphbus_core.cli.view:view", "Show a trace, a build, a session or a ledger on a page.", "Inspect"
    ),
    "why": CommandEntry("graphbus_core.cli.decisions:why", "Show which decision of a session wrote a line.", "Inspect"),
    "report": CommandEntry("graphbus_core.cli.report:report", "Write a session as one HTML page.", "Inspect"),
    "replay": CommandEntry(
        "graphbus_core.cli.decisions:replay", "Repeat a session from its record, and compare.", "Inspect"
    ),
    "validate": CommandEntry(
        "graphbus_core.cli.artifacts:validate", "Verify that artifacts are intact and match the sources.", "Inspect"
    ),
    "diff": CommandEntry("graphbus_core.cli.diff:diff", "List every value that differs between two builds.", "Inspect"),
    "dev": CommandEntry("graphbus_core.cli.dev:dev", "Run agents from their sources, restart on each save.", "Run"),
    "run": CommandEntry("graphbus_core.cli.run:run", "Run the graph that a build wrote.", "Run"),
    "cluster": CommandEntry(
        "graphbus_core.cli.cluster:cluster", "Run agents in several processes on this machine.", "Run"
    ),
    "ledger": CommandEntry("graphbus_core.cli.ledger:ledger", "Show what waits in the ledger of a graph.", "Run"),
    "dlq": CommandEntry("graphbus_core.cli.dlq:dlq", "List, replay or drop dead letters (failed events).", "Run"),
    "state": CommandEntry("graphbus_core.cli.state:state", "List, export, import or reset what agents store.", "Run"),
    "trace": CommandEntry("graphbus_core.cli.trace:trace", "Show what an event caused, handler by handler.", "Run"),
    "profile": CommandEntry("graphbus_core.cli.profile:profile", "Show how long each handler took.", "Run"),
    "simulate": CommandEntry(
        "graphbus_core.cli.simulate:simulate", "Run a graph under many seeds, with faults.", "Run"
    ),
    "docker": CommandEntry("graphbus_core.cli.docker:docker", "Write a Dockerfile, build the image, run it.", "Ship"),
    "k8s": CommandEntry("graphbus_core.cli.k8s:k8s", "Write manifests for Kubernetes, and apply them.", "Ship"),
    "nats": CommandEntry("graphbus_core.cli.nats:nats", "Prepare a NATS server as the ledger of a graph.", "Ship"),
    "ci": CommandEntry("graphbus_core.cli.ci:ci", "Write the pipeline of GitHub or GitLab.", "Ship"),
    "contract": CommandEntry(
        "graphbus_core.cli.contract:contract", "List edges between agents, compare and export them.", "Ship"
    ),
    "deployed": CommandEntry(
        "graphbus_core.cli.deployed:deployed", "Record which build runs in which environment.", "Ship"
    ),
}
"""Name -> command, in the order of the help. Reading this table imports no command."""


_HYPHEN = "\ue000"  # of the private use area: click does not break a word at it


class _HelpFormatter(click.HelpFormatter):
    """Wraps help between words only: click would also break `requirements-dev.txt` after its hyphen."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of options or commands with their explanations."""
        super().write_dl([(term, text.replace("-", _HYPHEN)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the whole help, with hyphens put back."""
        return super().getvalue().replace(_HYPHEN, "-")


click.Context.formatter_class = _HelpFormatter


class _LazyGroup(click.Group):
    """A group whose help comes from `COMMANDS` and whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with this name; None if there is no such command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        collector.resume()  # imports are done; the command itself may run long and create garbage
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete options, and commands from the table, without importing a command."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [name for name in names if name.value.startswith(incomplete)] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table by sections, without importing a command."""
        width = max(map(len, COMMANDS))
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(name.ljust(width), entry.summary) for name, entry in COMMANDS.items() if entry.section == section]
                )


def _change_directory(ctx: click.Context, _option: click.Parameter, folder: str | None) -> None:
    """Change to another folder for this command; the working directory is restored when the command ends."""
    if folder is None or ctx.resilient_parsing:
        return
    here = os.getcwd()
    ctx.call_on_close(lambda: os.chdir(here))
    os.chdir(folder)


def _use_config(ctx: click.Context, _option: click.Parameter, file: str | None) -> None:
    """Set GRAPHBUS_CONFIG to this file for the command and its subprocesses; the old value is restored when the command ends."""
    if file is None or ctx.resilient_parsing:
        return
    before = os.environ.get(CONFIG_VARIABLE)
    ctx.call_on_close(lambda: _set_variable(CONFIG_VARIABLE, before))
    _set_variable(CONFIG_VARIABLE, os.path.abspath(file))


def _set_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""`graphbus COMMAND --help` explains a command and gives examples.

    \b
    Exit status:
      0  done                                  5    negotiation failed
      1  a bug in GraphBus                     6    artifacts unusable
      2  wrong usage or settings               7    graph failed
      3  source code wrong, or findings        8    shipping failed
      4  files could not be changed            130  interrupted
    """,
)
@click.option(
    "-C",
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_change_directory,
    help="Run the command in this folder.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    expose_value=False,
    callback=_use_config,
    help="Read this TOML file; its values replace those of the project's settings.",
)
@click.version_option(__version__, "-V", "--version", prog_name="graphbus", message="%(prog)s %(version)s")
def graphbus() -> None:
    """Agents improve the code once, at build time; afterwards plain Python runs it on a message bus."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; docs/command-line.md lists the statuses.

    Args:
        argv: The words after `graphbus`; None means those of this process.

    Raises:
        SystemExit: The code of an agent ended the process with this status.
    """
    if COMPLETION_VARIABLE in os.environ:
        from graphbus_core.cli.completion import print_completions

        return print_completions(os.environ[COMPLETION_VARIABLE])
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        console.prepare_streams()
        status = _invoke(arguments)
        console.flush()
    except errors.GraphBusError as error:
        from graphbus_core.cli.suggestions import with_better_cause

        status = _report_error(with_better_cause(error), as_json=_wants_json(arguments))
    except (KeyboardInterrupt, click.Abort):
        console.print_note("\nInterrupted.")
        status = _end_with_document(INTERRUPTED, "Interrupted.", as_json=_wants_json(arguments))
    except SystemExit:  # raised by the code of an agent, which chooses the exit status
        _end_with_document(0, "The code of an agent ended the process.", as_json=_wants_json(arguments))
        console.flush()
        raise
    except BrokenPipeError:
        console.abandon_stdout()
        status = BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last resort: stdout cannot be written to, or GraphBus has a bug
        lost = console.output_failure(error)
        if lost:
            return _report_error(lost, as_json=False)
        if "gate" in arguments and any(word.startswith("--hook") for word in arguments):
            from graphbus_core.cli.hook_answer import refuse_for_bug

            return refuse_for_bug(arguments, error)
        console.print_bug_report()
        status = _end_with_document(
            OUR_BUG, f"This is a bug in GraphBus: {type(error).__name__}.", as_json=_wants_json(arguments)
        )
    return status


def _wants_json(arguments: Sequence[str]) -> bool:
    """True when the arguments ask for JSON, so that even a failure must write a JSON document; words after `--` do not count."""
    before_dashes = [*arguments, "--"][: [*arguments, "--"].index("--")]
    has_pair = ("--format", "json") in pairwise(before_dashes)
    return has_pair or "--json" in before_dashes or "--format=json" in before_dashes


def _invoke(arguments: list[str]) -> int:
    """Run the command and return its exit status; raise the errors of click as UsageError, so that all errors look alike."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        with graphbus.make_context("graphbus", arguments) as context:
            status = graphbus.invoke(context)
    except click.exceptions.Exit as leaving:
        status = leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as nothing:
        console.print_note(nothing.format_message())
        status = nothing.exit_code
    except click.ClickException as refusal:
        from graphbus_core.cli.suggestions import as_usage_error

        raise as_usage_error(refusal, graphbus, arguments) from refusal
    return status if isinstance(status, int) else 0


def _end_with_document(status: int, sentence: str, *, as_json: bool) -> int:
    """Return the status; with `as_json`, first write an error with this sentence, unless the command has written JSON."""
    if as_json and not console.has_emitted_json():
        console.emit_json({"errors": [{"code": "", "message": sentence, "hint": "", "where": None}]})
    return status


def _report_error(error: errors.GraphBusError, *, as_json: bool) -> int:
    """Print an error, or each error of a group, and return its exit status."""
    found = error.errors if isinstance(error, errors.SeveralErrors) else (error,)
    for each in found:
        console.print_error(each)
    if as_json and not console.has_emitted_json():
        console.emit_json({"errors": [console.error_as_json(each) for each in found]})
    return error.status
