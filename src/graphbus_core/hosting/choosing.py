"""`--only`: some agents of a graph run in this process, the others do not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from graphbus_core.errors import GraphBusError, RunError, did_you_mean, raise_all
from graphbus_core.model.agent import AgentDefinition


class Choice(msgspec.Struct, frozen=True):
    """The agents that run here, in the order of activation, and why the others do not."""

    agents: tuple[AgentDefinition, ...]
    left_out: dict[str, GraphBusError]


def choose(agents: Sequence[AgentDefinition], only: Sequence[str]) -> Choice:
    """Take these agents; without a name, all.

    Raises:
        RunError: GBE695 for a name that no agent has; SeveralErrors for more than one.
    """
    if not only:
        return Choice(tuple(agents), {})
    known = [agent.name for agent in agents]
    raise_all(
        RunError("GBE695", name=name, suggestion=did_you_mean(name, known), known=", ".join(sorted(known)))
        for name in dict.fromkeys(only)
        if name not in known
    )
    asked = " ".join(f"--only {name}" for name in only)
    left_out: dict[str, GraphBusError] = {
        name: RunError("GBE696", agent=name, asked=asked) for name in known if name not in only
    }
    return Choice(tuple(agent for agent in agents if agent.name in only), left_out)
