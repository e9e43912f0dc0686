"""Contracts in words, for prompts: what an agent offers, hears, says and needs, never how. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphbus_core.compiler.project import Project
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Parameter, Publication, Subscription
from graphbus_core.model.proposals import SchemaChange
from graphbus_core.negotiation.once import once_for_each
from graphbus_core.negotiation.words.sections import clean

WHOLE_MAP_AGENTS = 30
"""A larger graph is shown with one line for each agent."""
_WHOLE_MAP_CHARS = 60_000
MAP_TOKENS = 2_000
_BYTES_PER_TOKEN = 3
"""Fewer than any known tokenizer needs for names and schemas."""
_LINE_CHARS = 400


def contract_of(agent: AgentDefinition) -> str:
    """Give one contract, a line for each of its elements."""
    lines = [f"{agent.name} in {clean(agent.path)}" + (" (an arbiter)" if agent.is_arbiter else "")]
    needs = ", ".join(dict.fromkeys(dependency.name for dependency in agent.dependencies))
    lines += [f"  needs {needs}"] if needs else []
    lines += [f"  offers {_signature(method)}" for method in agent.methods if _is_offered(method, agent)]
    lines += dict.fromkeys(f"  hears {_heard(one)}" for one in agent.subscriptions)
    lines += dict.fromkeys(
        f"  {'requests' if one.is_request else 'publishes'} {_published(one)}" for one in agent.publications
    )
    lines += dict.fromkeys(f"  calls {call.agent}.{call.method}{call.arguments}" for call in agent.calls)
    return "\n".join(lines) + "\n"


def map_of(project: Project) -> str:
    """Give the contracts of all agents, by name; of a large graph a line for each, the most connected ones, cut with a note."""
    agents = sorted(project.definitions, key=lambda agent: agent.name)
    if is_map_whole(project):
        return "".join(contract_of(agent) for agent in agents)
    ends = Counter(end for edge in project.graph.edges for end in (edge.source, edge.target))
    ranked = sorted(agents, key=lambda agent: (-ends[agent.name], agent.name))
    return _cut([_line_of(agent) for agent in ranked], MAP_TOKENS * _BYTES_PER_TOKEN)


@once_for_each
def is_map_whole(project: Project) -> bool:
    """Tell whether the map shows every contract whole."""
    agents = project.definitions
    return len(agents) <= WHOLE_MAP_AGENTS and sum(len(contract_of(one)) for one in agents) <= _WHOLE_MAP_CHARS


def schema_changes_of(changes: Iterable[SchemaChange]) -> str:
    """Give a contract delta, a line for each side of each element."""
    lines: list[str] = []
    for change in changes:
        sides = (
            ("in", change.input_schema_before, change.input_schema_after),
            ("out", change.output_schema_before, change.output_schema_after),
        )
        for side, before, after in sides:
            if before != after:
                lines.append(f"{change.method} {side}: {before or 'nothing'} -> {after or 'nothing'}")
    return "\n".join(lines)


def _is_offered(method: MethodSpec, agent: AgentDefinition) -> bool:
    is_handler = any(subscription.method == method.name for subscription in agent.subscriptions)
    return method.has_schema or (not method.name.startswith("_") and not is_handler)


def _signature(method: MethodSpec) -> str:
    given = ", ".join(map(_parameter, method.parameters))
    result = f" -> {method.returns}" if method.has_return_annotation else ""
    declared = ""
    if method.has_schema:
        declared = f" schema {method.input_schema or '?'} -> {method.output_schema or '?'}"
    return f"{method.name}({given}){result}{declared}"


def _parameter(parameter: Parameter) -> str:
    shown = parameter.name + (f": {parameter.type}" if parameter.is_annotated else "")
    stars = {"var_positional": "*", "var_keyword": "**"}.get(parameter.kind, "")
    return stars + shown + (" = ..." if parameter.has_default else "")


def _heard(subscription: Subscription) -> str:
    keys = dict.fromkeys(f"{read.key}{'?' if read.is_optional else ''}" for read in subscription.reads)
    fields = [field.name for field in subscription.fields]
    reads = ", ".join([*keys, *fields])
    payload = f" as {subscription.payload}" if subscription.payload.kind != "unknown" else ""
    return f"{subscription.topic or 'a computed topic'}{payload}{f' and reads {reads}' if reads else ''}"


def _published(publication: Publication) -> str:
    topic = publication.topic or f"{publication.prefix}..."
    return f"{topic} {publication.payload}" if publication.payload else topic


def _line_of(agent: AgentDefinition) -> str:
    parts = {
        "offers": (method.name for method in agent.methods if _is_offered(method, agent)),
        "hears": (one.topic for one in agent.subscriptions if one.topic),
        "publishes": (one.topic for one in agent.publications if one.topic),
        "needs": (dependency.name for dependency in agent.dependencies),
    }
    told = {word: ", ".join(dict.fromkeys(names)) for word, names in parts.items()}
    line = f"{agent.name} in {clean(agent.path)}: " + "; ".join(
        f"{word} {names}" for word, names in told.items() if names
    )
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 3]}..."


def _cut(lines: list[str], size_bytes: int) -> str:
    note = "({} more agents are left out of this map)\n"
    room = size_bytes - len(note.format(len(lines)))
    shown: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        shown.append(f"{line}\n")
    left = len(lines) - len(shown)
    return "".join(shown) + (note.format(left) if left else "")
