"""The topics of a graph that is simulated."""

from __future__ import annotations

from typing import Any

from graphbus_core.bus.routes import PayloadCheck
from graphbus_core.hosting.contracts import TopicContracts
from graphbus_core.model.topics import Topic
from graphbus_core.schema.json import Json


class KnownTopics:
    """The topics of a graph; unlike `TopicContracts` it compiles the check of each topic once for all processes."""

    def __init__(self, contracts: TopicContracts) -> None:
        self._contracts = contracts
        self._checks: dict[str, PayloadCheck | None] = {}

    def admit(self, topic: str) -> PayloadCheck | None:
        """See `TopicContracts.admit`."""
        if topic not in self._checks:
            self._checks[topic] = self._contracts.admit(topic)
        return self._checks[topic]

    def learn(self, topic: Topic[Any]) -> bool:
        """See `TopicContracts.learn`."""
        is_new = self._contracts.learn(topic)
        if is_new:
            self._checks.pop(topic.name, None)
        return is_new

    def check(self, topic: str, payload: Json) -> None:
        """Raise RunError GBE614 or GBE619 for a payload or topic that does not fit."""
        check = self.admit(topic)
        if check is not None:
            check(payload)
