"""GB120: agents report errors in different shapes: `{status, error}` here, `{success, error_message}` there (seed 002, 5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.rules.wiring import Wiring, owns
from graphbus_core.model.agent import AgentDefinition, MethodSpec
from graphbus_core.model.findings import Finding, Related
from graphbus_core.schema.types import Schema

STATUS_KEYS = frozenset({"status", "success", "succeeded", "ok", "is_ok", "is_success"})
ERROR_KEYS = frozenset({"error", "errors", "err", "error_message", "error_msg", "err_msg", "errmsg"})
_FEWEST_AGENTS = 3


class Shape(NamedTuple):
    """How a method says that it failed: the field that tells success from failure (empty: none) and the one with the reason."""

    status: str
    error: str

    def __str__(self) -> str:
        return "{" + ", ".join(filter(None, self)) + "}"

    def differs(self, usual: Shape) -> bool:
        """True when another name is used for the same thing."""
        return self.error != usual.error or bool(self.status and usual.status and self.status != usual.status)


class Reporting(msgspec.Struct, frozen=True):
    """A method that declares how it reports errors."""

    agent: AgentDefinition
    method: MethodSpec
    shape: Shape

    def __str__(self) -> str:
        return f"{self.agent.name}.{self.method.name}"


def check_error_shapes(wiring: Wiring) -> Iterator[Finding]:
    """Find agents that do not report errors like most others; silent without a clear majority."""
    if not any(True for agent in wiring.asked for _ in _reports_of(agent)):
        return
    reporting = tuple(error_reports(wiring))
    usual = usual_shape(reporting)
    odd = [each for each in reporting if usual and each.shape.differs(usual)]
    if not odd or usual is None:
        return
    first = odd[0]
    models = [each for each in reporting if each.shape == usual]
    yield Finding(
        code="GB120",
        severity="info",
        agent=first.agent.name,
        span=first.method.schema_span or first.method.span,
        message=f"{first} reports errors as {first.shape}, most other agents as {usual}",
        hint=f"Use {usual} everywhere, so that callers can treat all agents alike.",
        related=tuple(
            Related(each.agent.name, each.method.schema_span or each.method.span, f"{each} reports {each.shape}")
            for each in [*odd[1:], *models]
        ),
        is_fixable=True,
        data={"status": usual.status, "error": usual.error},
    )


def error_reports(wiring: Wiring) -> Iterator[Reporting]:
    """Give every method whose output schema has exactly one field for the reason of a failure."""
    for agent in wiring.agents.values():
        yield from _reports_of(agent)


def _reports_of(agent: AgentDefinition) -> Iterator[Reporting]:
    for method in agent.methods:
        shape = shape_of(method.output_schema) if method.output_schema and owns(agent, method.span) else None
        if shape:
            yield Reporting(agent, method, shape)


def shape_of(schema: Schema) -> Shape | None:
    """Give the shape that an output schema declares; None when it is not clear which fields serve for it."""
    status, error = schema.names & STATUS_KEYS, schema.names & ERROR_KEYS
    return Shape(next(iter(status), ""), next(iter(error))) if len(error) == 1 and len(status) <= 1 else None


def usual_shape(reporting: tuple[Reporting, ...]) -> Shape | None:
    """Give the shape that more than half of the agents use, of at least three; None without one."""
    votes = Counter({(each.agent.name, each.shape): 1 for each in reporting})
    shapes = Counter(shape for _, shape in votes)
    agents = {each.agent.name for each in reporting}
    if len(agents) < _FEWEST_AGENTS:
        return None
    shape, count = shapes.most_common(1)[0]
    return shape if count * 2 > len(agents) else None
