"""Three validators by themselves: what it costs to check the five fields of an order, without a bus."""

from __future__ import annotations

import sys
from collections.abc import Callable

import fastjsonschema
import msgspec
import pydantic
from protocol import PAYLOAD, serve

SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string"},
        "status": {"type": "string"},
        "total": {"type": "number"},
        "items": {"type": "integer"},
        "express": {"type": "boolean"},
    },
    "required": ["order_id", "status", "total", "items", "express"],
}


class Struct(msgspec.Struct):
    """An order for msgspec."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


class Model(pydantic.BaseModel):
    """An order for pydantic."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


def converted() -> Callable[[], object]:
    """A struct of msgspec."""
    return lambda: msgspec.convert(PAYLOAD, Struct)


def modelled() -> Callable[[], object]:
    """A model of pydantic."""
    return lambda: Model.model_validate(PAYLOAD)


def validated() -> Callable[[], object]:
    """The function that fastjsonschema generates."""
    check = fastjsonschema.compile(SCHEMA)
    return lambda: check(PAYLOAD)


if __name__ == "__main__":
    serve(
        {"msgspec": converted, "pydantic": modelled, "fastjsonschema": validated},
        lambda: sys.exit("there is no graph here"),
    )
