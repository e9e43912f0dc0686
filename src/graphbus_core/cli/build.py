"""`graphbus build`, the fifteen stages with or without agents, and `graphbus negotiate`, which leaves the artifacts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from graphbus_core.errors import UsageError, raise_all

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--model", default="", metavar="MODEL", help='Who negotiates: "provider:name", or "rules".'),
    click.option("--intent", default="", metavar="TEXT", help="What the agents shall work towards."),
    click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="At most so many rounds of negotiation."),
    click.option("--max-usd", type=click.FloatRange(min=0), metavar="USD", help="Spend at most so much; 0: no limit."),
    click.option("--plan", "is_planned", is_flag=True, help="Say what it can cost at most; ask nobody."),
    click.option("--review", "is_reviewed", is_flag=True, help="Ask me before each change is committed."),
    click.option("--resume", "is_resumed", is_flag=True, help="Go on with the session that was interrupted."),
    click.option("--commit", "makes_commits", is_flag=True, help="Make one git commit of each accepted proposal."),
    click.option("--dry-run", is_flag=True, help="Show what would change; write nothing."),
    click.option("--no-cache", is_flag=True, help="Send every request to the provider."),
    click.option("--unsafe-verify", is_flag=True, help="Let changes pass that cannot be tried or tested."),
)

NEEDS_AGENTS = {
    "model": "--model",
    "intent": "--intent",
    "rounds": "--rounds",
    "max_usd": "--max-usd",
    "is_planned": "--plan",
    "is_reviewed": "--review",
    "is_resumed": "--resume",
    "makes_commits": "--commit",
    "no_cache": "--no-cache",
    "unsafe_verify": "--unsafe-verify",
}
"""Parameter -> option, of those that have no effect on a static build."""


def negotiation_options(command: F) -> F:
    """Add the options, in the order in which the help shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


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
