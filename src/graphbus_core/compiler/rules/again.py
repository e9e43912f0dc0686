"""What the rules find after a change, from what they found before it: only the agents that it can concern are checked again.

    change --> its agents, and those that get another type --> the agents at their edges --> check(only these)

`check` of the whole project is the reference. It runs whenever a change could reach further: when a name changes that others are
compared with, when classes inherit from each other, when something is wrong with the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from graphbus_core.compiler.rules import REGISTER, check, place_of
from graphbus_core.compiler.rules.contracts import shape_of
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring, is_written_in
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import matches

_MENDED_ALONE = frozenset({"GB201", "GB202"})
"""Whether and how they can be mended depends on the file of the finding alone."""


def check_again(
    after: ProjectFacts,
    before: ProjectFacts,
    found: Sequence[Finding],
    *,
    select: Iterable[str] = (),
    all_fixable: bool = False,
) -> tuple[Finding, ...]:
    """Give what `check` finds in a project after a change of a few files.

    Args:
        after: The project after the change.
        before: The project before it, with the same settings.
        found: What `check` finds there, asked with the same `select` and `all_fixable`.
        select: As for `check`.
        all_fixable: Likewise.
    """
    wiring = Wiring(after)
    changed = _changed_agents(before, after)
    if changed is None:
        return check(after, select=select, all_fixable=all_fixable, wiring=wiring)
    concerned = _concerned([*changed, *_agents_given_others(before.wiring, wiring)], wiring, found)
    fresh = check(after, select=select, all_fixable=all_fixable, wiring=wiring.narrow_to(concerned))
    return tuple(sorted([*(each for each in found if each.agent not in concerned), *fresh], key=place_of))


def _changed_agents(before: ProjectFacts, after: ProjectFacts) -> list[AgentDefinition] | None:
    """Give the agents of the changed files as they are now; None when the change may concern agents without an edge to them."""
    if before.errors or after.errors or before.digests.keys() != after.digests.keys():
        return None
    paths = {path for path, digest in after.digests.items() if before.digests[path] != digest}
    was = {agent.name: agent for agent in before.definitions}
    now = [agent for agent in after.definitions if agent.path in paths]
    others = (agent for agent in after.definitions if agent.path not in paths)
    if len(was) != len(after.definitions) or any(was.get(agent.name) is not agent for agent in others):
        return None
    if not all(_is_comparable(was.get(agent.name), agent) for agent in now):
        return None
    return None if _mention_open_ends(paths, before, after) else now


def _agents_given_others(before: Wiring, after: Wiring) -> Iterator[AgentDefinition]:
    """Give the agents whose text is the same and who give or get another type: a result travels over several agents."""
    for name, agent in after.agents.items():
        if before.agents[name] is not agent and before.agents[name] != agent:
            yield agent


def _is_comparable(was: AgentDefinition | None, now: AgentDefinition) -> bool:
    """Tell whether all names stay that findings of other agents depend on, and nothing is inherited that others have as well."""
    return was is not None and _names(was) == _names(now) and _stands_alone(was) and _stands_alone(now)


def _names(agent: AgentDefinition) -> tuple[object, ...]:
    """Give what other agents are compared with although they have no edge to this one, for suggestions and majorities."""
    return (
        agent.path,
        agent.bases,
        [(each.topic, each.prefix, each.is_request) for each in agent.publications],
        [(each.topic, each.method) for each in agent.subscriptions],
        [each.name for each in agent.dependencies],
        [(each.agent, each.method) for each in agent.calls],
        [shape_of(method.output_schema) for method in agent.methods if method.output_schema],
    )


def _stands_alone(agent: AgentDefinition) -> bool:
    spans = [each.span for each in agent.methods]
    spans += [each.span for each in agent.subscriptions]
    spans += [each.span for each in agent.publications]
    return all(is_written_in(agent, span) for span in spans)


def _mention_open_ends(paths: Iterable[str], before: ProjectFacts, after: ProjectFacts) -> bool:
    """Tell whether a changed file names a topic with one end: the rules then look for the other end in the text of all files."""
    texts = [side.source(path).data for side in (before, after) for path in paths]
    return any(topic.encode() in text for topic in _open_ends(after) for text in texts)


def _open_ends(project: ProjectFacts) -> Iterator[str]:
    """Give the topics that are heard and not sent, and those of requests that nobody hears by their name."""
    publications = [each for agent in project.definitions for each in agent.publications if each.topic]
    sent = {each.topic for each in publications}
    heard = {each.topic for agent in project.definitions for each in agent.subscriptions if each.topic}
    yield from (topic for topic in heard - sent if not any(matches(topic, name) for name in sent))
    yield from {each.topic for each in publications if each.is_request} - heard


def _concerned(changed: Sequence[AgentDefinition], wiring: Wiring, found: Iterable[Finding]) -> frozenset[str]:
    """Give the agents whose findings may be others after the change."""
    names = {agent.name for agent in changed}
    concerned = set(names)
    for agent in changed:
        concerned.update(_at_its_edges(agent, wiring))
    for finding in found:
        is_mended_with_others = REGISTER[finding.code].is_fixable and finding.code not in _MENDED_ALONE
        if is_mended_with_others or any(related.agent in names for related in finding.related):
            concerned.add(finding.agent)
    return frozenset(concerned)


def _at_its_edges(agent: AgentDefinition, wiring: Wiring) -> Iterator[str]:
    """Name the agents at the topics of an agent, and those that it calls or depends on or that do so with it."""
    for publication in agent.publications:
        yield from (heard.agent.name for heard in wiring.subscribers(publication.topic))
        yield from (sent.agent.name for sent in wiring.publishers(publication.topic))
    for subscription in agent.subscriptions:
        yield from (sent.agent.name for sent in wiring.publishers(subscription.topic))
    yield from (each.name for each in agent.dependencies)
    yield from (call.agent for call in agent.calls)
    yield from wiring.neighbours(agent.name)
