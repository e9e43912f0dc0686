"""`graphbus negotiate`: rounds of negotiation without a build; source files change, artifacts do not."""

from __future__ import annotations

import click

from graphbus_core.cli.negotiating.options import negotiation_options


@click.command("negotiate", short_help="Let the agents improve the code.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@negotiation_options
@click.option("--force", is_flag=True, help="Ask every agent, also those that have settled.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def negotiate(*, paths: tuple[str, ...], as_json: bool, **wished: object) -> None:
    """Let the agents in PATH, files or folders, propose changes and vote on them, and write what they agree on.

    The artifacts stay as they are; `graphbus build` renews them. `graphbus undo` takes the changes back.

    Exit status: 0 done, also when nothing was agreed on; 2 wrong usage or settings; 3 the agents cannot be read; 4 a
    change could not be written; 5 the negotiation could not be held; 130 interrupted: nothing was written.

    \b
    Examples:
      graphbus negotiate agents/ --rounds 3
      graphbus negotiate agents/ --rounds 3 --dry-run
      graphbus negotiate agents/ --intent "typed payloads everywhere"
    """
    from graphbus_core.cli.negotiating.session import perform, request_of

    request = request_of(paths, wished, enable_agents=True, emit_artifacts=False)
    perform(request, "Negotiation", as_json=as_json, is_planned=bool(wished["is_planned"]))
