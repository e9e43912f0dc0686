"""A base class: what it publishes and hears, its subclasses publish and hear."""

from __future__ import annotations

from typing import Any

from graphbus_core import GraphBusNode

from agents.contracts import AUDIT


class BaseAudited(GraphBusNode):
    """Writes down what its subclasses do."""

    def audit(self, action: str, **details: Any) -> None:
        self.publish(AUDIT, {"agent": self.name, "action": action, **details})
