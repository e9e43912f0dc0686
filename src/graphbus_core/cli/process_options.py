"""Options of commands about the processes of a graph: which ledger connects them, and which agents run together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click

from graphbus_core.hosting.arguments import LEDGER_VARIABLE

Function = TypeVar("Function", bound=Callable[..., Any])


def ledger_option(text: str, *, has_variable: bool = True) -> Callable[[Function], Function]:
    """Return the option `--ledger`, whose value is None if neither the command line nor the variable names one.

    Args:
        text: Its help.
        has_variable: `GRAPHBUS_LEDGER` names the ledger if the command line does not.
    """
    variable = LEDGER_VARIABLE if has_variable else None
    return click.option("--ledger", envvar=variable, metavar="LEDGER", callback=_refuse_empty, help=text)


def _refuse_empty(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("name a ledger, or leave the option out")
    return value


def groups_option(text: str, shared: str = "") -> Callable[[Function], Function]:
    """Return the option `--agents`, whose value is a tuple of names for each time that it is given.

    Args:
        text: Its help.
        shared: A name that is no agent, and may be in several groups.
    """

    def split(
        _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
    ) -> tuple[tuple[str, ...], ...]:
        groups = tuple(tuple(filter(None, map(str.strip, value.split(",")))) for value in values)
        counts = Counter(name for group in groups for name in group if name != shared)
        twice = next((name for name, count in counts.items() if count > 1), "")
        if () in groups:
            raise click.BadParameter("name at least one agent")
        if twice:
            raise click.BadParameter(f"{twice} is named twice, but one process runs it")
        return groups

    return click.option("--agents", "groups", multiple=True, metavar="AGENT[,AGENT...]", callback=split, help=text)
