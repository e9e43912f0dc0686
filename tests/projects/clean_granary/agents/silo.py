"""Stores grain."""

from __future__ import annotations

from graphbus_core import GraphBusNode, schema_method


class Silo(GraphBusNode):
    """Knows how much of which grain there is; never holds more than fits."""

    CAPACITY = 60_000.0

    def on_start(self) -> None:
        self.kg: dict[str, float] = {}
        self.sealed = False

    @schema_method(input_schema={"grain": str, "kg": float}, output_schema={"stored": float, "free": float})
    def store(self, grain: str, kg: float) -> dict[str, float]:
        """Take what fits."""
        stored = min(kg, self._free())
        self.kg[grain] = self.kg.get(grain, 0.0) + stored
        return {"stored": stored, "free": self._free()}

    @schema_method(input_schema={"grain": str}, output_schema={"removed": float})
    def clear(self, grain: str) -> dict[str, float]:
        """Give away all of one grain."""
        return {"removed": self.kg.pop(grain, 0.0)}

    def _free(self) -> float:
        return self.CAPACITY - sum(self.kg.values())
