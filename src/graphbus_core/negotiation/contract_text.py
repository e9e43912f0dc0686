"""Contracts of agents as text for prompts: methods, topics, calls and dependencies, without code; and the marks around data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from graphbus_core.compiler.project import Project
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Parameter, Publication, Subscription
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import SchemaChange
from graphbus_core.negotiation.answer_format import clean_text

T = TypeVar("T")


def cache_per_project(make: Callable[[Project], T]) -> Callable[[Project], T]:
    """Cache the result of a pure function for each project while the project exists. Two threads may both compute it."""
    known: WeakKeyDictionary[Project, T] = WeakKeyDictionary()

    @wraps(make)
    def cached(project: Project) -> T:
        try:
            return known[project]
        except KeyError:
            known[project] = made = make(project)
            return made

    return cached


WHOLE_MAP_AGENTS = 30
"""In a graph with more agents, the contract of each is shortened to one line."""
_WHOLE_MAP_CHARS = 60_000
MAP_TOKENS = 2_000
_BYTES_PER_TOKEN = 3
"""A low estimate: names and schemas have more bytes per token with every known tokenizer."""
_LINE_CHARS = 400


def contract_of(agent: AgentDefinition) -> str:
    """Return the contract of an agent, with a line for each element."""
    lines = [f"{agent.name} in {clean_text(agent.path)}" + (" (an arbiter)" if agent.is_arbiter else "")]
    needs = ", ".join(dict.fromkeys(dependency.name for dependency in agent.dependencies))
    lines += [f"  needs {needs}"] if needs else []
    lines += [f"  offers {_format_method(method)}" for method in agent.methods if _is_offered(method, agent)]
    lines += dict.fromkeys(f"  hears {_format_subscription(one)}" for one in agent.subscriptions)
    lines += dict.fromkeys(
        f"  {'requests' if one.is_request else 'publishes'} {_format_publication(one)}" for one in agent.publications
    )
    lines += dict.fromkeys(f"  calls {call.agent}.{call.method}{call.arguments}" for call in agent.calls)
    return "\n".join(lines) + "\n"


def map_of(project: Project) -> str:
    """Return the contracts of all agents, sorted by name.

    In a large graph there is one line for each agent, those with the most edges first; what exceeds `MAP_TOKENS` is cut off.
    """
    agents = sorted(project.definitions, key=lambda agent: agent.name)
    if is_map_whole(project):
        return "".join(contract_of(agent) for agent in agents)
    ends = Counter(end for edge in project.graph.edges for end in (edge.source, edge.target))
    ranked = sorted(agents, key=lambda agent: (-ends[agent.name], agent.name))
    return _cut_to_size([_summarize_contract(agent) for agent in ranked], MAP_TOKENS * _BYTES_PER_TOKEN)


@cache_per_project
def is_map_whole(project: Project) -> bool:
    """Return whether the graph is small enough for `map_of` to show every contract in full."""
    agents = project.definitions
    return len(agents) <= WHOLE_MAP_AGENTS and sum(len(contract_of(one)) for one in agents) <= _WHOLE_MAP_CHARS


def format_schema_changes(changes: Iterable[SchemaChange]) -> str:
    """Return a line for each changed schema: of the input or the output of a contract element, before and after."""
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
    """Return whether a method is part of the contract: it has a schema, or it is public and no handler."""
    is_handler = any(subscription.method == method.name for subscription in agent.subscriptions)
    return method.has_schema or (not method.name.startswith("_") and not is_handler)


def _format_method(method: MethodSpec) -> str:
    """Return name, parameters, result type and declared schemas of a method on one line."""
    parameters = ", ".join(map(_format_parameter, method.parameters))
    result = f" -> {method.returns}" if method.has_return_annotation else ""
    declared = ""
    if method.has_schema:
        declared = f" schema {method.input_schema or '?'} -> {method.output_schema or '?'}"
    return f"{method.name}({parameters}){result}{declared}"


def _format_parameter(parameter: Parameter) -> str:
    """Return a parameter as in a signature, such as `count: int = ...`; every default is shown as `...`."""
    shown = parameter.name + (f": {parameter.type}" if parameter.is_annotated else "")
    stars = {"var_positional": "*", "var_keyword": "**"}.get(parameter.kind, "")
    return stars + shown + (" = ..." if parameter.has_default else "")


def _format_subscription(subscription: Subscription) -> str:
    """Return topic, payload type and fields read of a subscription; `?` marks a key that may be missing."""
    keys = dict.fromkeys(f"{read.key}{'?' if read.is_optional else ''}" for read in subscription.reads)
    fields = [field.name for field in subscription.fields]
    reads = ", ".join([*keys, *fields])
    payload = f" as {subscription.payload}" if subscription.payload.kind != "unknown" else ""
    return f"{subscription.topic or 'a computed topic'}{payload}{f' and reads {reads}' if reads else ''}"


def _format_publication(publication: Publication) -> str:
    topic = publication.topic or f"{publication.prefix}..."
    return f"{topic} {publication.payload}" if publication.payload else topic


def _summarize_contract(agent: AgentDefinition) -> str:
    """Return a contract as one line with names only, cut at `_LINE_CHARS`."""
    parts = {
        "offers": (method.name for method in agent.methods if _is_offered(method, agent)),
        "hears": (one.topic for one in agent.subscriptions if one.topic),
        "publishes": (one.topic for one in agent.publications if one.topic),
        "needs": (dependency.name for dependency in agent.dependencies),
    }
    listed = {word: ", ".join(dict.fromkeys(names)) for word, names in parts.items()}
    line = f"{agent.name} in {clean_text(agent.path)}: " + "; ".join(
        f"{word} {names}" for word, names in listed.items() if names
    )
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 3]}..."


def _cut_to_size(lines: list[str], size_bytes: int) -> str:
    """Return as many of the first lines as fit into `size_bytes`, and a note that counts those left out."""
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


# --- data between marks ------------------------------------------------------------------------


_SALT = "graphbus: data, never an instruction\n"
_MARK_CHARS = 12


def fence_data(text: str, what: str) -> str:
    """Return a text between marks that it cannot contain; they depend only on the text, so that prompts are reproducible.

    Args:
        text: Any text, also one that a stranger has written.
        what: A description for the opening mark. It must not contain words from the project.
    """
    body = text if text.endswith("\n") or not text else f"{text}\n"
    mark = fence_mark(body)
    return f"<<data {mark}: {what}>>\n{body}<<end {mark}>>\n"


def fence_mark(text: str) -> str:
    """Return the shortest prefix, of `_MARK_CHARS` or more, of a hash of the text that the text does not contain."""
    digits = sha256_hex((_SALT + text).encode(errors="surrogatepass"))
    length = _MARK_CHARS
    while digits[:length] in text:
        length += 1
        if length > len(digits):
            digits += sha256_hex((_SALT + digits).encode())
    return digits[:length]
