"""`graphbus contract`: whether what agents promise each other holds, what a change breaks, and the promises as documents.

contract [PATH]...   every method and edge, validated; with --against, what has changed since a revision
contract diff        two states of the graph, compared
contract export      the promises in formats that others read
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from graphbus_core.cli.shipping import writing
from graphbus_core.errors import UsageError, did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])


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
            raise _refusal(f"There is no folder and no command {word!r}.{near}", ctx.command_path)
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


_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "github", "markdown"]),
        help="How to report: text (default), json, github or markdown.",
    ),
    click.option("--check-version", is_flag=True, help="Fail if the version is lower than what has changed asks for."),
    click.option("--current", default="", metavar="VERSION", help="The version before (that of pyproject.toml there)."),
    click.option(
        "--allow-announced",
        is_flag=True,
        help="Do not fail for what breaks somebody if the version was raised as far as it asks for.",
    ),
    click.option("--allow-breaking", is_flag=True, help="Do not fail for what breaks somebody."),
)


def _options(command: Function) -> Function:
    """Add what `contract --against` and `contract diff` have in common."""
    for option in _OPTIONS:
        command = option(command)
    return command


def _refusal(message: str, command: str) -> UsageError:
    return UsageError("GBE110", message=message, command=command)


def _form(wished: dict[str, Any], command: str) -> str:
    """Take the form out of the options.

    Raises:
        UsageError: GBE110, there are two.
    """
    form, as_json = wished.pop("form"), wished.pop("as_json")
    if as_json and form not in (None, "json"):
        raise _refusal(f"--json and --format {form} contradict each other.", command)
    return "json" if as_json else form or "text"


@click.group(
    "contract",
    cls=PathsOrPart,
    invoke_without_command=True,
    short_help="Validate, compare and export what agents promise.",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--against", metavar="REV", help="Say what has changed since HEAD left REV, and whom it breaks.")
@_options
@click.pass_context
def contract(context: click.Context, /, *, against: str | None, paths: tuple[str, ...] = (), **wished: Any) -> int:
    """Validate what agents promise each other: every `@schema_method` and every edge. No code of yours is run.

    PATH is a folder or file with agents, or a folder with artifacts; without PATH it is what the artifacts here describe,
    else the project. Every edge is shown with its verdict: it holds, it does not, or it cannot be known. It is the verdict of
    `graphbus check`, by edge. A folder that is called like a subcommand is written ./diff.

    With --against the changes since then are shown as well, for pull requests: REV is a branch, tag or commit, and
    origin/REV stands in for a branch that is not here.

    Exit status: 0 everything holds; 3 it does not, or a change breaks somebody; 2 wrong usage.

    \b
    Examples:
      graphbus contract agents/
      graphbus contract agents/ --against main --format github
      graphbus contract diff v1.2
      graphbus contract export --format jsonschema
    """
    form = _form(wished, "graphbus contract")
    if context.invoked_subcommand:
        return 0
    if against is not None and not against.strip():
        raise _refusal("--against is empty: there is nothing to compare with.", "graphbus contract")
    if not against and any(wished.values()):
        raise _refusal("There is nothing to compare with: give --against.", "graphbus contract")
    from graphbus_core.cli.contracting import check

    return check.validate(paths, against or "", check.Wanted(form, **wished))


@contract.command("diff", short_help="Compare two states of the contracts.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default="")
@click.option("--path", "paths", multiple=True, metavar="PATH", help="Where the agents are, in a revision and here.")
@_options
def diff(*, old: str, new: str, paths: tuple[str, ...], **wished: Any) -> int:
    """Compare the contracts of two states of the graph: OLD, and NEW (the working tree by default).

    Each is a folder with sources, a folder with artifacts, or a git revision; a folder that exists comes first, and
    `rev:NAME` is a revision in any case. A revision is read from git; nothing is checked out and no code of yours is run.
    Without --path the agents are where the artifacts here say, else anywhere in the project.

    A change is breaking if those who relied on the contract can fail: agents of the graph that did not change with it, or
    others, for methods and for external_topics. The next version follows from that.

    Exit status: 0 no change breaks anybody; 3 one does, or --check-version fails; 2 wrong usage.

    \b
    Examples:
      graphbus contract diff main
      graphbus contract diff v1.2 HEAD --path agents/
      graphbus contract diff old/.graphbus .graphbus --json
      graphbus contract diff main --format markdown > comment.md
    """
    form = _form(wished, "graphbus contract diff")
    if not old.strip():
        raise _refusal("OLD is empty: there is nothing to compare with.", "graphbus contract diff")
    from graphbus_core.cli.contracting import check

    return check.compare(old, new, paths, check.Wanted(form, **wished))


@contract.command("export", short_help="Write the contracts as JSON Schema, OpenAPI or AsyncAPI.")
@click.argument("path", metavar="[PATH]", default="")
@click.option(
    "--format", "form", required=True, type=click.Choice(["jsonschema", "openapi", "asyncapi"]), help="What is written."
)
@click.option(
    "--output",
    "-o",
    default="",
    metavar="FILE|DIR",
    help="Where to; a folder ends with `/` or is there. Default: stdout.",
)
@click.option("--yaml", "as_yaml", is_flag=True, help="YAML instead of JSON.")
@writing.options
def export(*, path: str, form: str, output: str, as_yaml: bool, **wished: bool) -> None:
    """Write what agents promise in a format that others read. No code of yours is run.

    PATH is a folder with sources, or one with artifacts. Without PATH the working directory is read. The same contracts
    give the same bytes.

    \b
    jsonschema  payloads of topics, arguments and results (draft 2020-12):
                one document, or with a folder as --output one for each
    openapi     what `graphbus run --serve` offers over HTTP (OpenAPI 3.1)
    asyncapi    topics with their payloads and both ends (AsyncAPI 3.0)

    Exit status: 0 done; 2 wrong usage; 3 sources cannot be read; 6 artifacts cannot; 8 a file is there already, or with --check
    differs.

    \b
    Examples:
      graphbus contract export --format asyncapi
      graphbus contract export agents/ --format jsonschema --output schemas/
      graphbus contract export .graphbus/ --format openapi --yaml
      graphbus contract export --format asyncapi --output asyncapi.json --check
    """
    from graphbus_core.cli.contracting.export import write

    write(path, form, output, writing.Wish(**wished), as_yaml=as_yaml)
