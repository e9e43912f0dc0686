"""What the commands of the prompt work on, and how a line that cannot be understood is refused."""

from __future__ import annotations

from typing import NamedTuple

from graphbus_core.cli.running.instruments import Instruments
from graphbus_core.errors import UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.schema import Schema

EXAMPLES = {
    "call": "call Stock.take sku=mug count=2",
    "publish": 'publish /Order/Placed {"order_id": "1"}',
    "request": "request /Price/Asked sku=mug",
    "nodes": "nodes Stock",
    "topics": "topics",
    "stats": "stats",
    "history": "history 20",
    "dead": "dead 20",
    "trace": "trace 3f2a91c4",
    "break": "break Stock.on_taken",
    "profile": "profile",
    "log": "log debug",
    "help": "help call",
    "quit": "quit",
}


class Session(NamedTuple):
    """What the commands work on."""

    graph: LiveGraph
    artifacts: BuildArtifacts
    instruments: Instruments
    is_typed: bool
    """A person types at a terminal."""

    def agents(self) -> list[str]:
        """The agents that run."""
        return list(self.graph.nodes)

    def methods(self) -> dict[str, Schema | None]:
        """`Agent.method` -> what it takes, for all that can be called."""
        return {
            f"{agent.name}.{method.name}": method.input_schema
            for agent in self.artifacts.agents.agents
            for method in agent.methods
            if method.has_schema
        }

    def topics(self) -> dict[str, Schema | None]:
        """Every topic that is known -> what its payloads look like, by its publishers or else by its first handler."""
        heard: dict[str, Schema] = {}
        for agent in self.artifacts.agents.agents:
            for subscription in agent.subscriptions:
                if subscription.declared is not None:
                    heard.setdefault(subscription.topic, subscription.declared)
        return {topic.name: topic.schema or heard.get(topic.name) for topic in self.artifacts.topics.topics}


def misunderstood(command: str, reason: str) -> UsageError:
    """Make the refusal of a line."""
    return UsageError("GBE160", command=command, reason=reason, example=EXAMPLES[command])
