"""GB010 and GB011: an agent that is not there or not declared, and dependencies in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.graph import components, find_circle
from graphbus_core.compiler.rules.wiring import Wiring, owns
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Dependency
from graphbus_core.model.findings import Finding, Related

COVERED_ERRORS = frozenset({"GBE211", "GBE212", "GBE214", "GBE215"})
"""What stops a build and is reported as a finding (GB010, GB011, GB310, GB001): a check must not say it twice."""


def check_dependencies(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on nobody, and circles of them."""
    if not wiring.is_partial:
        yield from _unknown(wiring)
        yield from _unknown_or_undeclared_calls(wiring)
    if any(agent.dependencies for agent in wiring.asked):
        yield from _circles(wiring)


def _unknown(wiring: Wiring) -> Iterator[Finding]:
    for agent in wiring.asked:
        for dependency in agent.dependencies:
            if dependency.name not in wiring.agents and owns(agent, dependency.span):
                suggestion = did_you_mean(dependency.name, wiring.agents).strip()
                yield Finding(
                    code="GB010",
                    severity="error",
                    agent=agent.name,
                    span=dependency.span,
                    message=f"{agent.name} depends on {dependency.name}, which is no agent of this graph",
                    hint=suggestion or "Correct the name, or check the folder that holds the agent as well.",
                )


def _unknown_or_undeclared_calls(wiring: Wiring) -> Iterator[Finding]:
    """A running graph refuses `self.call` to an agent that is not there or that `@depends_on` does not name."""
    for agent in wiring.asked:
        declared = {dependency.name for dependency in agent.dependencies} | {"", agent.name}
        for call in agent.calls:
            if call.agent in declared or not owns(agent, call.span):
                continue
            is_known = call.agent in wiring.agents
            what = "without depending on it" if is_known else "which is no agent of this graph"
            suggestion = did_you_mean(call.agent, wiring.agents).strip()
            yield Finding(
                code="GB010",
                severity="error",
                agent=agent.name,
                span=call.span,
                message=f"{agent.name} calls {call.agent}, {what}",
                hint=f'Add @depends_on("{call.agent}") to {agent.name}.' if is_known else suggestion,
            )


def _circles(wiring: Wiring) -> Iterator[Finding]:
    edges = {
        name: [dependency for dependency in agent.dependencies if dependency.name in wiring.agents]
        for name, agent in wiring.agents.items()
    }
    needs = {name: {each.name for each in found} for name, found in edges.items()}
    for group in components(needs):
        if len(group) > 1 or group[0] in needs[group[0]]:
            yield _circle(find_circle(group, needs)[:-1], edges, wiring.agents)


def _circle(circle: tuple[str, ...], edges: dict[str, list[Dependency]], agents: dict[str, AgentDefinition]) -> Finding:
    steps = list(zip(circle, (*circle[1:], circle[0]), strict=True))
    places = {step: next(each for each in edges[step[0]] if each.name == step[1]) for step in steps}
    return Finding(
        code="GB011",
        severity="error",
        agent=circle[0],
        span=places[steps[0]].span,
        message=f"The dependencies form a circle: {' -> '.join((*circle, circle[0]))}",
        hint="Remove one @depends_on; events may go round, dependencies may not.",
        related=tuple(
            Related(agents[source].name, places[source, target].span, f"{source} depends on {target}")
            for source, target in steps[1:]
        ),
    )
