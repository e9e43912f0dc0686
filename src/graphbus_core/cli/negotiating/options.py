"""The options that `graphbus build` and `graphbus negotiate` share: who negotiates, within which limits, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
