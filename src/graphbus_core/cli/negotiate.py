"""`graphbus negotiate`: rounds of negotiation without a build; source files change, artifacts do not."""

from __future__ import annotations

import click


@click.command("negotiate", short_help="Let the agents improve the code.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="At most so many rounds.")
@click.option("--intent", default="", metavar="TEXT", help="What the agents shall work towards.")
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--unsafe-verify", is_flag=True, help="Let changes pass that cannot be tried or tested.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def negotiate(*, paths: tuple[str, ...], as_json: bool, rounds: int | None, **wished: object) -> None:
    """Let the agents in PATH, files or folders, propose changes and vote on them, and write what they agree on.

    The artifacts stay as they are; `graphbus build` renews them. `graphbus undo` takes the changes back.

    \b
    Examples:
      graphbus negotiate agents/ --rounds 3
      graphbus negotiate agents/ --rounds 3 --dry-run
      graphbus negotiate agents/ --intent "typed payloads everywhere"
    """
    from graphbus_core.cli.build_session import perform
    from graphbus_core.model.config import BuildRequest

    request = BuildRequest(paths=paths, enable_agents=True, emit_artifacts=False, rounds=rounds, **wished)  # type: ignore[arg-type]
    perform(request, "Negotiation", as_json=as_json)
