"""The command line: `graphbus COMMAND`. A command's module is imported when the command is used, not before.

main  ->  COMMANDS (a static table)  ->  one module per command  ->  console (the only module that prints)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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
OUR_BUG = 1
COMPLETION_VARIABLE = "_GRAPHBUS_COMPLETE"
CONFIG_VARIABLE = "GRAPHBUS_CONFIG"  # as in `settings`, which `--help` does not import


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line in `graphbus --help`."""

    target: str
    summary: str
    section: str


COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("graphbus_core.cli.init:init", "Make a new project to start from.", "Begin"),
    "generate": CommandEntry("graphbus_core.cli.generate:generate", "Add an agent and its test to a project.", "Begin"),
    "doctor": CommandEntry(
        "graphbus_core.cli.doctor:doctor", "Tell which models are usable, and what is missing.", "Begin"
    ),
    "completion": CommandEntry(
        "graphbus_core.cli.completion:completion", "Print the script that completes words.", "Begin"
    ),
    "check": CommandEntry(
        "graphbus_core.cli.check:check", "Find what does not fit together, and mend what is safe.", "Build"
    ),
    "gate": CommandEntry("graphbus_core.cli.gate:gate", "Judge a change that another tool or a person made.", "Build"),
    "build": CommandEntry(
        "graphbus_core.cli.build:build", "Write the artifacts; let the agents negotiate first.", "Build"
    ),
    "negotiate": CommandEntry("graphbus_core.cli.build:negotiate", "Let the agents improve the code.", "Build"),
    "undo": CommandEntry("graphbus_core.cli.decisions:undo", "Take back what a negotiation changed.", "Build"),
    "migrate": CommandEntry("graphbus_core.cli.artifacts:migrate", "Bring artifacts to the format of today.", "Build"),
    "inspect": CommandEntry("graphbus_core.cli.artifacts:inspect", "Show agents, topics and the graph.", "Look"),
    "powers": CommandEntry(
        "graphbus_core.cli.powers:powers", "Show which powers are declared, and which are used.", "Look"
    ),
    "inspect-negotiation": CommandEntry(
        "graphbus_core.cli.inspect_negotiation:inspect_negotiation", "Browse proposals, votes and commits.", "Look"
    ),
    "why": CommandEntry("graphbus_core.cli.decisions:why", "Tell which decision wrote a line.", "Look"),
    "report": CommandEntry("graphbus_core.cli.report:report", "Write a session as one HTML page.", "Look"),
    "replay": CommandEntry(
        "graphbus_core.cli.decisions:replay", "Run a session again on its record, and compare.", "Look"
    ),
    "validate": CommandEntry("graphbus_core.cli.artifacts:validate", "Verify artifacts and source files.", "Look"),
    "diff": CommandEntry("graphbus_core.cli.diff:diff", "Tell what changed between two artifact folders.", "Look"),
    "dev": CommandEntry("graphbus_core.cli.dev:dev", "Run the agents, and restart them on each save.", "Run"),
    "run": CommandEntry("graphbus_core.cli.run:run", "Run the graph as plain Python.", "Run"),
    "dlq": CommandEntry("graphbus_core.cli.dlq:dlq", "Look at dead letters, replay or drop them.", "Run"),
    "state": CommandEntry("graphbus_core.cli.state:state", "Look at states, export, import and empty them.", "Run"),
    "trace": CommandEntry("graphbus_core.cli.trace:trace", "Show what an event has caused.", "Run"),
    "profile": CommandEntry("graphbus_core.cli.profile:profile", "Show how long handlers took.", "Run"),
    "docker": CommandEntry("graphbus_core.cli.docker:docker", "Write a Dockerfile, build the image, run it.", "Ship"),
    "k8s": CommandEntry("graphbus_core.cli.k8s:k8s", "Write manifests for Kubernetes, and apply them.", "Ship"),
    "ci": CommandEntry("graphbus_core.cli.ci:ci", "Write the pipeline of GitHub or GitLab.", "Ship"),
    "contract": CommandEntry(
        "graphbus_core.cli.contract:contract", "Validate, compare and export what agents promise.", "Ship"
    ),
}
"""Name -> command, in the order of the help. Reading this table imports no command."""


class _LazyGroup(click.Group):
    """A group whose help comes from `COMMANDS` and whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, if there is one of this name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        collector.resume()  # what comes now is the command's work, which may take long and make garbage
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
    """Work in another folder from here on; the old one comes back when the command has ended."""
    if folder is None or ctx.resilient_parsing:
        return
    here = os.getcwd()
    ctx.call_on_close(lambda: os.chdir(here))
    os.chdir(folder)


def _use_config(ctx: click.Context, _option: click.Parameter, file: str | None) -> None:
    """Let the command, and what it starts, read this file; what the variable said before comes back when it has ended."""
    if file is None or ctx.resilient_parsing:
        return
    before = os.environ.get(CONFIG_VARIABLE)
    ctx.call_on_close(lambda: _set_variable(CONFIG_VARIABLE, before))
    _set_variable(CONFIG_VARIABLE, os.path.abspath(file))


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""`graphbus COMMAND --help` explains a command, with examples.

    \b
    Exit status:
      0  done                                  5    negotiation
      1  a bug of GraphBus                     6    artifacts
      2  wrong usage or settings               7    running a graph
      3  sources; also: something was found    8    shipping
      4  changing files                        130  interrupted
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
    help="Work in this folder.",
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    expose_value=False,
    callback=_use_config,
    help="Settings (TOML) that go before those of the project.",
)
@click.version_option(__version__, "-V", "--version", prog_name="graphbus", message="%(prog)s %(version)s")
def graphbus() -> None:
    """Agents improve the code once, at build time; afterwards plain Python runs it on a message bus."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status: see the end of `graphbus --help`, and docs/command-line.md."""
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

        status = _report(with_better_cause(error), as_json=_wants_json(arguments))
    except (KeyboardInterrupt, click.Abort):
        console.print_note("\nInterrupted.")
        status = _end(INTERRUPTED, "Interrupted.", as_json=_wants_json(arguments))
    except SystemExit:  # raised by code of agents, which chooses the exit status
        _end(0, "Code of an agent has ended the process.", as_json=_wants_json(arguments))
        console.flush()
        raise
    except BrokenPipeError:
        console.abandon_stdout()
        status = BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last resort: an output that takes nothing more, or a bug of ours
        lost = console.output_failure(error)
        if lost:
            return _report(lost, as_json=False)
        console.print_bug_report()
        status = _end(OUR_BUG, f"This is a bug of GraphBus: {type(error).__name__}.", as_json=_wants_json(arguments))
    return status


def _wants_json(arguments: Sequence[str]) -> bool:
    """True when stdout is to bear one JSON document, come what may; the words after `--` are not ours."""
    own = [*arguments, "--"][: [*arguments, "--"].index("--")]
    return "--json" in own or "--format=json" in own or ("--format", "json") in pairwise(own)


def _invoke(arguments: list[str]) -> int:
    """Run the command; click's refusals become ours, so that all of them look alike."""
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


def _end(status: int, sentence: str, *, as_json: bool) -> int:
    """Write the document of a command that has ended before it could write its own."""
    if as_json and not console.has_emitted_json():
        console.emit_json({"errors": [{"code": "", "message": sentence, "hint": "", "where": None}]})
    return status


def _report(error: errors.GraphBusError, *, as_json: bool) -> int:
    """Show a refusal, or every one of several, and give the exit status of its family."""
    found = error.errors if isinstance(error, errors.SeveralErrors) else (error,)
    for each in found:
        console.print_error(each)
    if as_json and not console.has_emitted_json():
        console.emit_json({"errors": [console.error_as_json(each) for each in found]})
    return error.status
