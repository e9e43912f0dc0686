"""What all agents of the market have in common."""

from __future__ import annotations

from typing import Any

from graphbus_core import GraphBusNode, schema_method


class BaseService(GraphBusNode):
    """Answers whether it is well, and keeps a count of what went wrong."""

    failures = 0

    @schema_method(input_schema={"verbose": bool}, output_schema={"healthy": bool, "failures": int})
    def health(self, verbose: bool) -> dict[str, Any]:
        if verbose:
            self.log("asked for health")
        return {"healthy": self.failures == 0, "failures": self.failures}

    def fail(self, reason: str) -> None:
        self.failures += 1
        self.publish("/Service/Failed", {"service": type(self).__name__, "reason": reason})
