"""The findings after a change, from those before it: only the agents that the change can affect are checked again.

    changed agents, and those with changed result types --> the agents at their edges --> check(only these)

The result is always that of `check` for the whole project. The whole project is checked whenever the change may affect agents
without an edge to a changed agent: when a name changes that rules compare with other names, when classes inherit, or when the
graph has errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from graphbus_core.compiler.rules import REGISTER, check, place_of
from graphbus_core.compiler.rules.contracts import shape_of
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring, is_written_in
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import matches

_FIXED_ALONE = frozenset({"GB201", "GB202"})
"""Rules whose fixes depend only on the file of the finding."""


def check_again(
    after: ProjectFacts,
    before: ProjectFacts,
    found: Sequence[Finding],
    *,
    select: Iterable[str] = (),
    all_fixable: bool = False,
) -> tuple[Finding, ...]:
    """Return what `check` finds in a project after a change of a few files.

    Args:
        after: The project after the change.
        before: The project before the change, with the same settings.
        found: The findings of `check` in `before`, with the same `select` and `all_fixable`.
        select: As for `check`.
        all_fixable: As for `check`.
    """
    wiring = Wiring(after)
    changed = _changed_agents(before, after)
    if changed is None:
        return check(after, select=select, all_fixable=all_fixable, wiring=wiring)
    affected = _affected_agents([*changed, *_agents_with_new_types(before.wiring, wiring)], wiring, found)
    fresh = check(after, select=select, all_fixable=all_fixable, wiring=wiring.narrow_to(affected))
    return tuple(sorted([*(each for each in found if each.agent not in affected), *fresh], key=place_of))


def _changed_agents(before: ProjectFacts, after: ProjectFacts) -> list[AgentDefinition] | None:
    """Return the new definitions of the agents in changed files; None if agents without an edge to them may be affected too."""
    if before.errors or after.errors or before.digests.keys() != after.digests.keys():  # or a file was added or removed
        return None
    paths = {path for path, digest in after.digests.items() if before.digests[path] != digest}
    old_agents = {agent.name: agent for agent in before.definitions}
    changed = [agent for agent in after.definitions if agent.path in paths]
    others = (agent for agent in after.definitions if agent.path not in paths)
    if len(old_agents) != len(after.definitions) or any(old_agents.get(agent.name) is not agent for agent in others):
        return None  # agents were added or removed, or the change altered how an unchanged file is read
    if not all(_affects_only_neighbours(old_agents.get(agent.name), agent) for agent in changed):
        return None
    return None if _mentions_unmatched_topic(paths, before, after) else changed


def _agents_with_new_types(before: Wiring, after: Wiring) -> Iterator[AgentDefinition]:
    """Yield the agents whose resolved definition differs: a result type that changes in one agent passes through others."""
    for name, agent in after.agents.items():
        if before.agents[name] is not agent and before.agents[name] != agent:
            yield agent


def _affects_only_neighbours(old: AgentDefinition | None, new: AgentDefinition) -> bool:
    """Return whether a change of one agent can only affect agents with an edge to it; False for a new agent (`old` is None)."""
    if old is None or _inherits(old) or _inherits(new):
        return False
    return _facts_compared_across_agents(old) == _facts_compared_across_agents(new)


def _facts_compared_across_agents(agent: AgentDefinition) -> tuple[object, ...]:
    """Return what rules compare with all agents of the graph: the names that they suggest, and the error shapes."""
    return (
        agent.path,
        agent.bases,
        [(each.topic, each.prefix, each.is_request) for each in agent.publications],
        [(each.topic, each.method) for each in agent.subscriptions],
        [each.name for each in agent.dependencies],
        [(each.agent, each.method) for each in agent.calls],
        [shape_of(method.output_schema) for method in agent.methods if method.output_schema],
    )


def _inherits(agent: AgentDefinition) -> bool:
    """Return whether a method, subscription or publication of the agent is written in a base class."""
    spans = [each.span for each in agent.methods]
    spans += [each.span for each in agent.subscriptions]
    spans += [each.span for each in agent.publications]
    return not all(is_written_in(agent, span) for span in spans)


def _mentions_unmatched_topic(paths: Iterable[str], before: ProjectFacts, after: ProjectFacts) -> bool:
    """Return whether a changed file mentions an unmatched topic; for such a topic, rules search the text of all files."""
    texts = [side.source(path).data for side in (before, after) for path in paths]
    return any(topic.encode() in text for topic in _unmatched_topics(after) for text in texts)


def _unmatched_topics(project: ProjectFacts) -> Iterator[str]:
    """Yield the subscribed topics without a publication, and the requested topics without a subscription to exactly them."""
    publications = [each for agent in project.definitions for each in agent.publications if each.topic]
    published = {each.topic for each in publications}
    subscribed = {each.topic for agent in project.definitions for each in agent.subscriptions if each.topic}
    yield from (topic for topic in subscribed - published if not any(matches(topic, name) for name in published))
    yield from {each.topic for each in publications if each.is_request} - subscribed


def _affected_agents(changed: Sequence[AgentDefinition], wiring: Wiring, found: Iterable[Finding]) -> frozenset[str]:
    """Return the names of the agents whose findings may differ after the change; `found` are the findings before the change."""
    names = {agent.name for agent in changed}
    affected = set(names)
    for agent in changed:
        affected.update(_neighbours_of(agent, wiring))
    for finding in found:
        # whether such a finding can be fixed may depend on any file
        has_wider_fix = REGISTER[finding.code].is_fixable and finding.code not in _FIXED_ALONE
        if has_wider_fix or any(related.agent in names for related in finding.related):
            affected.add(finding.agent)
    return frozenset(affected)


def _neighbours_of(agent: AgentDefinition, wiring: Wiring) -> Iterator[str]:
    """Yield the names of the agents that share a topic with an agent, call it or depend on it, or that it calls or depends on."""
    for publication in agent.publications:
        yield from (handler.agent.name for handler in wiring.subscribers(publication.topic))
        yield from (sent.agent.name for sent in wiring.publishers(publication.topic))
    for subscription in agent.subscriptions:
        yield from (sent.agent.name for sent in wiring.publishers(subscription.topic))
    yield from (each.name for each in agent.dependencies)
    yield from (call.agent for call in agent.calls)
    yield from wiring.neighbours(agent.name)
