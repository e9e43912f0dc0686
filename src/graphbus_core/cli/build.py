"""`graphbus build`: the fifteen stages, with or without agents."""

from __future__ import annotations

import click

from graphbus_core.cli.negotiating.options import NEEDS_AGENTS, negotiation_options
from graphbus_core.errors import UsageError, raise_all


@click.command("build", short_help="Write the artifacts; let the agents negotiate first.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--enable-agents", is_flag=True, help="Let the agents negotiate and change source files first.")
@negotiation_options
@click.option("--force", is_flag=True, help="Build although nothing has changed; ask every agent.")
@click.option("--frozen", "is_frozen", is_flag=True, help="Ask no model; fail unless the lock covers the sources.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def build(*, paths: tuple[str, ...], as_json: bool, enable_agents: bool, **wished: object) -> None:
    """Read the agents in PATH, files or folders, and write the graph to .graphbus/; your code is read, not run.

    With --enable-agents the agents negotiate first: they propose changes, every change is verified (your tests run on
    a copy in a jail), those whom it affects vote, and what they agree on is written to the source files. `graphbus
    undo` takes it back.

    Exit status: 0 done; 2 wrong usage or settings; 3 the agents cannot be read, or no graph can be made of them, or
    the lock does not cover them (--frozen); 4 a change could not be written; 5 the negotiation could not be held; 130
    interrupted: nothing was written.

    \b
    Examples:
      graphbus build agents/
      graphbus build agents/ --enable-agents
      graphbus build agents/ --enable-agents --dry-run
      graphbus build agents/ --enable-agents --model ollama:qwen3-coder --plan
      graphbus build agents/ --frozen
    """
    from graphbus_core.cli.negotiating.session import perform, request_of

    if not enable_agents:
        useless = (option for name, option in NEEDS_AGENTS.items() if wished[name] not in {None, "", False})
        raise_all(UsageError("GBE131", option=option, needed="--enable-agents") for option in useless)
    request = request_of(paths, wished, enable_agents=enable_agents)
    perform(request, "Build", as_json=as_json, is_planned=bool(wished["is_planned"]))
