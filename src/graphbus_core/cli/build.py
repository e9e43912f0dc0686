"""`graphbus build`: the fifteen stages, with or without agents."""

from __future__ import annotations

import click

from graphbus_core.errors import UsageError, raise_all


@click.command("build", short_help="Write the artifacts; let the agents negotiate first.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--enable-agents", is_flag=True, help="Let the agents negotiate and change source files first.")
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="At most so many rounds of negotiation.")
@click.option("--intent", default="", metavar="TEXT", help="What the agents shall work towards.")
@click.option("--unsafe-verify", is_flag=True, help="Let changes pass that cannot be tried or tested.")
@click.option("--force", is_flag=True, help="Build although nothing has changed.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def build(*, paths: tuple[str, ...], as_json: bool, rounds: int | None, **wished: object) -> None:
    """Read the agents in PATH, files or folders, and write the graph to .graphbus/; your code is read, not run.

    With --enable-agents the agents negotiate first: they propose changes, every change is verified (your tests run in
    a process apart), those whom it affects vote, and what they agree on is written to the source files. `graphbus
    undo` takes it back.

    \b
    Examples:
      graphbus build agents/
      graphbus build agents/ --enable-agents
      graphbus build agents/ --enable-agents --dry-run
    """
    from graphbus_core.cli.build_session import perform
    from graphbus_core.model.config import BuildRequest

    useless = {"--rounds": rounds, "--intent": wished["intent"], "--unsafe-verify": wished["unsafe_verify"]}
    if not wished["enable_agents"]:
        raise_all(
            UsageError("GBE131", option=option, needed="--enable-agents") for option, given in useless.items() if given
        )
    request = BuildRequest(paths=paths, rounds=rounds, **wished)  # type: ignore[arg-type]
    perform(request, "Build", as_json=as_json)
