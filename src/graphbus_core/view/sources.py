"""The text of a handler, and the decisions of negotiations that wrote its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from graphbus_core import settings
from graphbus_core.errors import GraphBusError, RunError, did_you_mean
from graphbus_core.model.agent import AgentDefinition, MethodSpec
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.view.messages import Decision, SourceText, Vote

_CHANGED = "The file has changed since the build: these lines may not be what runs."
_NO_HISTORY = "It is not known which decisions wrote these lines: {reason}"
_LONGEST = 400


def read_source(name: str, artifacts: Artifacts, root: Path, places: Sequence[str] = ()) -> SourceText:
    """Return the text of a method, and who decided its lines.

    Args:
        name: `Agent.method`.
        artifacts: What was built.
        root: The folder of the project.
        places: The places of failures, `file:line`.

    Raises:
        RunError: GBE620, GBE621: there is no such agent or method.
    """
    agent, method = _find_method(name, artifacts)
    span, manifest = method.span, artifacts.manifest
    path = (root / span.path).resolve()
    empty = SourceText(name=name, file=span.path, first=span.line, lines=())
    if not path.is_relative_to(root):
        return _with_note(empty, f"{agent.name} is not in this project, so its source is not shown.")
    try:
        data = path.read_bytes()
        text = data.decode("utf-8", "replace").split("\n")
    except OSError as error:
        return _with_note(empty, f"The file cannot be read: {(error.strerror or str(error)).lower()}.")
    last = min(span.end_line, span.line + _LONGEST - 1, len(text))
    built = {**manifest.sources, **manifest.imports}.get(span.path, "") if manifest else ""
    note = _CHANGED if built and built != sha256_hex(data) else ""
    why: tuple[Decision, ...] = ()
    try:
        why = tuple(_find_decisions(root, span.path, span.line, last))
    except (GraphBusError, OSError) as error:
        reason = error.sentence if isinstance(error, GraphBusError) else str(error)
        note = " ".join(filter(None, (note, _NO_HISTORY.format(reason=reason))))
    return SourceText(
        name=name,
        file=span.path,
        first=span.line,
        lines=tuple(line.removesuffix("\r") for line in text[span.line - 1 : last]),
        why=why,
        failing=_lines_in(places, span.path, span.line, last),
        note=note,
    )


def _with_note(source: SourceText, note: str) -> SourceText:
    from msgspec.structs import replace

    return replace(source, note=note)


def _find_method(name: str, artifacts: Artifacts) -> tuple[AgentDefinition, MethodSpec]:
    """Return the agent and the method that a name means; raise GBE620 or GBE621 if there is none."""
    agent_name, _, method_name = name.partition(".")
    agents = {agent.name: agent for agent in artifacts.agents.agents}
    agent = agents.get(agent_name)
    if agent is None:
        suggestion, known = did_you_mean(agent_name, agents), ", ".join(sorted(agents))
        raise RunError("GBE620", agent=agent_name, suggestion=suggestion, known=known)
    method = agent.method(method_name)
    if method is None:
        names = [each.name for each in agent.methods]
        advice = f"It has {', '.join(names)}."
        suggestion = did_you_mean(method_name, names)
        raise RunError("GBE621", agent=agent_name, method=method_name, suggestion=suggestion, advice=advice)
    return agent, method


def _find_decisions(root: Path, path: str, first: int, last: int) -> Iterator[Decision]:
    """Yield the decisions that wrote lines `first` to `last` of a file, in the order of the lines."""
    from graphbus_core.negotiation.provenance import trace_lines

    config = ResolvedBuild(root=str(root), paths=(str(root),), settings=settings.load(root))
    origins = trace_lines(config, path)[first - 1 : last]
    for origin, run in groupby(enumerate(origins, first), key=lambda each: each[1]):
        numbers = [number for number, _ in run]
        for each in origin.decisions:
            yield Decision(
                session=each.session,
                proposal=each.proposal,
                agent=each.agent,
                title=each.title,
                reason=each.reason,
                consensus=each.consensus,
                commit=each.commit,
                first=numbers[0],
                last=numbers[-1],
                votes=tuple(
                    Vote(
                        evaluator=vote.agent, decision=vote.decision, is_arbiter=vote.is_arbiter, reason=vote.reasoning
                    )
                    for vote in each.votes
                ),
            )


def _lines_in(places: Sequence[str], path: str, first: int, last: int) -> tuple[int, ...]:
    """Return the numbers of the lines of `places` that are in this part of the file, each once, sorted."""
    pairs = (place.rpartition(":") for place in places)
    numbers = {int(line) for file, _, line in pairs if file.endswith(path) and line.isdecimal()}
    return tuple(sorted(number for number in numbers if first <= number <= last))
