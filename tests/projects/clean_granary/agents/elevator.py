"""Lifts grain from the trucks into the silo."""

from __future__ import annotations

import json
import re
from collections import Counter

from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe

from agents.grain import ARRIVED, STORED, Load, receipt
from lib import units

KINDS = re.compile(r"wheat|rye|oats|barley")


@depends_on("Silo")
class Elevator(GraphBusNode):
    """Lifts what arrives, and says what was stored."""

    SYSTEM_PROMPT = """
    I lift grain. What I announce as stored is stored.
    """

    def on_start(self) -> None:
        self.lifted: Counter[str] = Counter()
        self.receipts: list[str] = []

    @subscribe(ARRIVED)
    def on_arrived(self, event: Event) -> None:
        """Unload a truck."""
        load = Load(event["grain"], event["kg"])
        if self._is_known(load.grain):
            self.receipts.append(receipt(load))
            self.unload(load.grain, load.kg)

    @schema_method(input_schema={"grain": str, "kg": float}, output_schema={"stored": float, "left": float})
    @publishes(STORED, {"grain": str, "tonnes": float})
    def unload(self, grain: str, kg: float) -> dict[str, float]:
        """Lift a load; what does not fit stays on the truck."""
        answer = self.call("Silo", "store", grain=grain, kg=kg)
        self.lifted[grain] += round(answer["stored"])
        self.publish(STORED, {"grain": grain, "tonnes": units.tonnes(answer["stored"])})
        return {"stored": answer["stored"], "left": kg - answer["stored"]}

    @schema_method(input_schema={}, output_schema={"text": str})
    def summary(self) -> dict[str, str]:
        """Give what was lifted, as JSON."""
        return {"text": json.dumps(dict(self.lifted), sort_keys=True)}

    @staticmethod
    def _is_known(grain: str) -> bool:
        return KINDS.fullmatch(grain) is not None
