"""`graphbus contract`: whether what agents promise each other holds, what a change breaks, and the promises as documents.

contract [PATH]...   every method and edge, validated; with --against, what has changed since a revision
contract diff        two states of the graph, compared                         cli/contracting/diff.py
contract export      the promises in formats that others read                  cli/contracting/export.py
"""

from __future__ import annotations

import os
from collections import UserDict
from importlib import import_module
from typing import Any

import click

from graphbus_core.cli.contracting.diff import chosen_form, options
from graphbus_core.errors import UsageError, did_you_mean


class Parts(UserDict[str, Any]):
    """Name -> subcommand, imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, attribute = self.data[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


class PathsOrPart(click.Group):
    """A command with subcommands: the first word decides. `diff` is the subcommand, `./diff` a folder."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Leave out [PATH]... where a subcommand takes the words."""
        found = super().get_params(ctx)
        return [each for each in found if isinstance(each, click.Option)] if ctx.meta.get(__name__) else found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give the words to the subcommand that the first one names, else to this command."""
        at = self._first_word(args)
        word = args[at] if at < len(args) else ""
        is_part = word in self.commands
        if word and not is_part and not os.path.exists(word) and (near := did_you_mean(word, self.commands)):
            message = f"There is no folder and no command {word!r}.{near}"
            raise UsageError("GBE110", message=message, command=ctx.command_path)
        if is_part:  # its options may stand before its name
            args = [word, *args[:at], *args[at + 1 :]]
        ctx.meta[__name__] = is_part
        ctx.allow_interspersed_args = not is_part
        return super().parse_args(ctx, args)

    def _first_word(self, args: list[str]) -> int:
        """Where the first word is that is no option and no value of one; behind the end if there is none."""
        valued = {
            name for each in self.params if isinstance(each, click.Option) and not each.is_flag for name in each.opts
        }
        at = 0
        while at < len(args) and args[at].startswith("-"):
            if args[at] == "--":
                return len(args)
            at += 2 if args[at] in valued else 1
        return at

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The subcommands stand below the options; the line of usage is about the command itself."""
        return click.Command.collect_usage_pieces(self, ctx)


@click.group(
    "contract",
    cls=PathsOrPart,
    commands=Parts(
        diff="graphbus_core.cli.contracting.diff:diff",
        export="graphbus_core.cli.contracting.export:export",
    ),
    invoke_without_command=True,
    short_help="Validate, compare and export what agents promise.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--against", metavar="REV", help="Say what has changed since HEAD left REV, and whom it breaks.")
@options
@click.pass_context
def contract(
    context: click.Context,
    /,
    *,
    against: str | None,
    form: str | None,
    as_json: bool,
    current: str,
    allow_breaking: bool,
    allow_announced: bool,
    check_version: bool,
    paths: tuple[str, ...] = (),
) -> int:
    """Validate what agents promise each other: every `@schema_method` and every edge. No code of yours is run.

    PATH is a folder or file with agents, or a folder with artifacts; without PATH it is what the artifacts here describe,
    else the project. Every edge is told with its verdict: it holds, it does not, or it cannot be known. It is the verdict of
    `graphbus check`, by edge. A folder that is called like a subcommand is written ./diff.

    With --against the changes since then are told as well, for pull requests: REV is a branch, tag or commit, and
    origin/REV stands in for a branch that is not here.

    Exit status: 0 everything holds; 3 it does not, or somebody is let down by a change; 2 wrong usage.

    \b
    Examples:
      graphbus contract agents/
      graphbus contract agents/ --against main --format github
      graphbus contract diff v1.2
      graphbus contract export --format jsonschema
    """
    form = chosen_form(form, as_json=as_json, command="graphbus contract")
    if context.invoked_subcommand:
        return 0
    if against is not None and not against.strip():
        raise UsageError(
            "GBE110", message="--against is empty: there is nothing to compare with.", command="graphbus contract"
        )
    if not against and (current or allow_breaking or allow_announced or check_version):
        raise UsageError(
            "GBE110", message="There is nothing to compare with: give --against.", command="graphbus contract"
        )
    from graphbus_core.cli.contracting import check

    wanted = check.Wanted(form, against or "", current, allow_breaking, allow_announced, check_version)
    return check.run(paths, wanted)
