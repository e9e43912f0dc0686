"""`graphbus contract diff OLD [NEW]`: what has changed between two states of a graph, and whom it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from graphbus_core.cli import console
from graphbus_core.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


def options(command: Function) -> Function:
    """Add what `contract --against` and `contract diff` have in common."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
        click.option(
            "--format",
            "form",
            type=click.Choice(["text", "json", "github", "markdown"]),
            help="How to report: text (default), json, github or markdown.",
        ),
        click.option(
            "--check-version", is_flag=True, help="Fail if the version is lower than what has changed asks for."
        ),
        click.option(
            "--current", default="", metavar="VERSION", help="The version before (that of pyproject.toml there)."
        ),
        click.option(
            "--allow-announced",
            is_flag=True,
            help="Do not fail for what breaks somebody if the version was raised as far as it asks for.",
        ),
        click.option("--allow-breaking", is_flag=True, help="Do not fail for what breaks somebody."),
    ):
        command = option(command)
    return command


def chosen_form(form: str | None, *, as_json: bool, command: str) -> str:
    """Give the form.

    Raises:
        UsageError: GBE110, there are two.
    """
    if as_json and form not in (None, "json"):
        raise UsageError("GBE110", message=f"--json and --format {form} contradict each other.", command=command)
    return "json" if as_json else form or "text"


@click.command("diff", short_help="Compare two states of the contracts.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", default="")
@click.option("--path", "paths", multiple=True, metavar="PATH", help="Where the agents are, in a revision and here.")
@options
def diff(
    *,
    old: str,
    new: str,
    paths: tuple[str, ...],
    form: str | None,
    as_json: bool,
    current: str,
    allow_breaking: bool,
    allow_announced: bool,
    check_version: bool,
) -> int:
    """Compare the contracts of two states of the graph: OLD, and NEW (the working tree by default).

    Each is a folder with sources, a folder with artifacts, or a git revision; a folder that exists comes first, and
    `rev:NAME` is a revision in any case. A revision is read from git; nothing is checked out and no code of yours is run.
    Without --path the agents are where the artifacts here say, else anywhere in the project.

    A change is breaking if somebody who relied on the contract is let down: agents of the graph that did not change with
    it, or others, for methods and for external_topics. The next version follows from that.

    Exit status: 0 nobody is let down; 3 somebody is, or --check-version fails; 2 wrong usage.

    \b
    Examples:
      graphbus contract diff main
      graphbus contract diff v1.2 HEAD --path agents/
      graphbus contract diff old/.graphbus .graphbus --json
      graphbus contract diff main --format markdown > comment.md
    """
    from graphbus_core.cli.contracting import check, documents, text
    from graphbus_core.cli.contracting.states import read_state

    form = chosen_form(form, as_json=as_json, command="graphbus contract diff")
    if not old.strip():
        raise UsageError(
            "GBE110", message="OLD is empty: there is nothing to compare with.", command="graphbus contract diff"
        )
    wanted = check.Wanted(form, "", current, allow_breaking, allow_announced, check_version)
    comparison = check.compared(read_state(old, paths), read_state(new, paths), current)
    if form == "json":
        console.emit_json(documents.changes_document(comparison))
    elif form == "github":
        text.written(check.for_github(comparison, wanted))
    elif form == "markdown":
        text.written(text.as_markdown(comparison, None, comparison.root))
    else:
        text.written(text.change_lines(comparison))
    check.report_version(comparison, wanted)
    return check.FAILED if check.fails(comparison, wanted) else 0
