"""What an event handler is called with, decided from its signature alone: the one table that compiler and runtime share.

The compiler reads the parameters from the syntax tree, the runtime from the live function; both ask `decide`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from graphbus_core.model.agent import HandlerShape, ParameterKind

EVENT_NAMES = frozenset({"event", "evt", "ev", "message", "msg"})
PAYLOAD_NAMES = frozenset({"payload", "data", "body"})

Annotation = Literal["none", "event", "mapping", "typed", "other"]
"""`mapping`: dict or Mapping, with or without arguments. `typed`: a TypedDict, dataclass, msgspec or pydantic class."""


class HandlerParameter(msgspec.Struct, frozen=True):
    """A parameter of a handler, `self` left out."""

    name: str
    kind: ParameterKind = "positional"
    annotation: Annotation = "none"


def decide(parameters: Sequence[HandlerParameter]) -> HandlerShape:
    """Say what a handler with these parameters is called with.

    An annotation counts more than a name; defaults do not count. Fields are passed by keyword, all else by position.
    """
    if any(parameter.kind == "var_positional" for parameter in parameters):
        return "invalid"
    if not parameters:
        return "nothing"
    if all(parameter.kind in ("positional", "positional_only") for parameter in parameters):
        whole = _decide_by_position(parameters)
        if whole:
            return whole
    return "invalid" if any(parameter.kind == "positional_only" for parameter in parameters) else "fields"


def _decide_by_position(parameters: Sequence[HandlerParameter]) -> HandlerShape | None:
    if len(parameters) == 1:
        return _decide_one(parameters[0])
    if len(parameters) == 2 and _is_event(parameters[0]) and _is_payload(parameters[1]):
        return "event_payload"
    return None


def _decide_one(parameter: HandlerParameter) -> HandlerShape | None:
    if parameter.annotation == "typed":
        return "typed"
    if _is_event(parameter):
        return "event"
    return "payload" if _is_payload(parameter) else None


def _is_event(parameter: HandlerParameter) -> bool:
    by_name = parameter.name in EVENT_NAMES and parameter.annotation in ("none", "other")
    return parameter.annotation == "event" or by_name


def _is_payload(parameter: HandlerParameter) -> bool:
    by_name = parameter.name in PAYLOAD_NAMES and parameter.annotation != "event"
    return parameter.annotation in ("mapping", "typed") or by_name
