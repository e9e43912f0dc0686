"""Sensors: async handlers, topics made at run time, labelled payloads, retries."""

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Any, Literal

from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe

ROOT = "/Sensor"
READING = f"{ROOT}/Reading"
ALERT = ROOT + "/Alert"
logger = logging.getLogger(__name__)


class Sensor(GraphBusNode):
    """Reads a value now and then."""

    KIND = "temperature"

    @schema_method(input_schema={"count": int}, output_schema={"readings": list, "mean": float | None})
    async def sample(self, count: int) -> dict[str, Any]:
        readings = []
        for number in range(count):
            await asyncio.sleep(0)
            value = round(random.uniform(10, 30), 2)
            readings.append(value)
            self.publish(READING, {"kind": self.KIND, "number": number, "value": value, "unit": "C"})
        return {"readings": readings, "mean": sum(readings) / len(readings) if readings else None}

    async def _blocking_read(self, path: str) -> bytes:
        return await asyncio.to_thread(self._read, path)

    @staticmethod
    def _read(path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()


class Humidity(Sensor):
    """The same, for another quantity."""

    KIND = "humidity"


@publishes(ALERT, {"level": Literal["low", "high"], "value": float, "kind": str})
@depends_on(Sensor)
class Watch(GraphBusNode):
    """Raises alerts."""

    BOUNDS: Mapping[str, tuple[float, float]] = {"temperature": (12, 28)}

    @subscribe(READING)
    async def on_reading(self, event):
        low, high = self.BOUNDS.get(event["kind"], (0, 100))
        value = event["value"]
        if value < low:
            self.publish(ALERT, {"level": "low", "value": value, "kind": event["kind"]})
        elif value > high:
            self.publish(ALERT, dict(level="high", value=value, kind=event["kind"]))
        else:
            return

    async def resample(self) -> None:
        for attempt in range(3):
            try:
                result = await self.call("Sensor", "sample", count=10)
            except Exception:
                logger.exception("attempt %d", attempt)
                continue
            else:
                self.log(result["mean"])
                break


class Switch(GraphBusNode):
    """Two payloads on one topic, told apart by a label."""

    def on(self, name: str) -> None:
        self.publish(f"{ROOT}/Switch", {"state": "on", "name": name, "level": 1})

    def off(self, name: str) -> None:
        self.publish(f"{ROOT}/Switch", {"state": "off", "name": name, "level": None, "reason": "asked"})

    @subscribe(f"{ROOT}/Switch")
    def on_switch(self, payload):
        if payload["state"] == "off":
            self.log(payload["reason"])
        else:
            self.log(payload["level"])


class Recorder(GraphBusNode):
    """Hears everything, in the other style."""

    SUBSCRIBE = ["/Sensor/**", ALERT]

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, Any]] = []

    def handle_event(self, topic, payload):
        self.rows.append((topic, dict(payload)))

    @schema_method(input_schema={}, output_schema={"rows": int, "last": dict | None})
    def status(self) -> dict[str, Any]:
        last = self.rows[-1] if self.rows else None
        return {"rows": len(self.rows), "last": last and {"topic": last[0], "payload": last[1]}}
