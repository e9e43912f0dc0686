"""Rung G4: what a change does to what agents promise each other, computed from the two states and never taken on trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.again import check_again
from graphbus_core.editing.rungs.codes import Problem
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import SchemaChange
from graphbus_core.schema.types import UNKNOWN, Field, Schema


def check_agents(before: Project, after: Project, free: Container[str] = ()) -> Problem | None:
    """Refuse another set of agents but for the free ones, files that cannot be read any more, other arbiters and prompts."""
    known = {(error.code, str(error)) for error in before.errors}
    for error in after.errors:
        if (error.code, str(error)) not in known:
            where = error.where
            return Problem("G4.agents", error.sentence, where.path if where else "", where.line if where else 0)
    names = [
        sorted(agent.name for agent in project.definitions if agent.name not in free) for project in (before, after)
    ]
    if names[0] != names[1]:
        changed = ", ".join(sorted(set(names[0]) ^ set(names[1])))
        return Problem("G4.agents", f"The agents of the project would change: {changed}.")
    for old in before.definitions:
        new = after.agent(old.name)
        if new and (new.is_arbiter, new.system_prompt) != (old.is_arbiter, old.system_prompt):
            code, what = (
                ("G3.prompt", "prompt") if new.is_arbiter == old.is_arbiter else ("G3.arbiter", "role as arbiter")
            )
            return Problem(code, f"The {what} of {old.name} would change.", new.path, new.span.line)
    return None


def check_findings(before: tuple[Finding, ...], after: tuple[Finding, ...]) -> Problem | None:
    """Refuse what the rules find after the change and did not find before; notes (`info`) do not count."""
    known = Counter(finding.key for finding in before)
    for finding in after:
        if known[finding.key] > 0:
            known[finding.key] -= 1
        elif finding.severity != "info":
            said = f"{finding.code}: {finding.message}"
            message = f"{said}. {finding.hint}" if finding.hint else said
            return Problem("G4.finding", message, finding.span.path, finding.span.line)
    return None


def check_edges(before: Project, after: Project, declared: tuple[SchemaChange, ...]) -> Problem | None:
    """Refuse that an agent no longer hears what is still said to it, unless the proposal declares the topic."""
    kept = {(edge.source, edge.target, edge.label) for edge in after.graph.edges if edge.kind == "topic"}
    said = {(agent.name, item.topic) for agent in after.definitions for item in agent.publications}
    names = {change.method for change in declared}
    for edge in before.graph.edges:
        is_lost = edge.kind == "topic" and (edge.source, edge.target, edge.label) not in kept
        if is_lost and (edge.source, edge.label) in said and edge.label not in names:
            agent = after.agent(edge.target)
            message = f"{edge.target} would no longer hear {edge.label!r}, which {edge.source} still publishes."
            return Problem("G4.edge", message, agent.path if agent else "", agent.span.line if agent else 0)
    return None


_DEFAULT_RULES = tuple(code for code, rule in rules.REGISTER.items() if rule.is_default)


def findings_of(project: Project) -> tuple[Finding, ...]:
    """Give what the default rules find, whatever the project selects to be reported; what it ignores stays ignored."""
    return rules.check(project, select=_DEFAULT_RULES)


def findings_after(project: Project, before: Project, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Give the same for a project that came of another one by a change; only what the change concerns is looked at."""
    return check_again(project, before, found, select=_DEFAULT_RULES)


def check_declared(declared: tuple[SchemaChange, ...], actual: tuple[SchemaChange, ...]) -> Problem | None:
    """Refuse other contract changes than the declared ones; a proposal that declares none is judged by the actual ones."""
    names = {change.method for change in declared}
    surprise = [change.method for change in actual if declared and change.method not in names]
    if surprise:
        return Problem("G4.undeclared", f"Not declared, but changed: {', '.join(surprise)}.")
    return None


def schema_changes(before: Project, after: Project) -> tuple[SchemaChange, ...]:
    """Give every element of a contract that differs: methods, topics, and an agent's name for whatever else differs."""
    found: list[SchemaChange] = []
    for old in before.definitions:
        new = after.agent(old.name)
        if new and new.contract_digest != old.contract_digest:
            found += list(_changes_of(old, new)) or [SchemaChange(method=old.name)]
    return tuple(sorted(found, key=lambda change: change.method))


def _changes_of(old: AgentDefinition, new: AgentDefinition) -> Iterator[SchemaChange]:
    specs = {spec.name: spec for spec in old.methods if spec.has_schema}
    fresh = {spec.name: spec for spec in new.methods if spec.has_schema}
    for name in sorted(specs.keys() | fresh.keys()):
        was, now = specs.get(name), fresh.get(name)
        change = SchemaChange(
            method=f"{old.name}.{name}",
            input_schema_before=was.input_schema if was else None,
            input_schema_after=now.input_schema if now else None,
            output_schema_before=was.output_schema if was else None,
            output_schema_after=now.output_schema if now else None,
        )
        if not was or not now or (was.input_schema, was.output_schema) != (now.input_schema, now.output_schema):
            yield change
    for topic, (sent_before, sent_after) in _paired(_sent(old), _sent(new)):
        yield SchemaChange(method=topic, output_schema_before=sent_before, output_schema_after=sent_after)
    for topic, (read_before, read_after) in _paired(_read(old), _read(new)):
        yield SchemaChange(method=topic, input_schema_before=read_before, input_schema_after=read_after)


def _paired(
    before: Mapping[str, list[Schema]], after: Mapping[str, list[Schema]]
) -> Iterator[tuple[str, tuple[Schema | None, Schema | None]]]:
    """Give the topics that differ, with what is said or read there first."""
    for topic in sorted(before.keys() | after.keys()):
        was, now = before.get(topic, []), after.get(topic, [])
        if Counter(map(str, was)) != Counter(map(str, now)):
            yield topic, (was[0] if was else None, now[0] if now else None)


def _sent(agent: AgentDefinition) -> dict[str, list[Schema]]:
    found: dict[str, list[Schema]] = {}
    for item in agent.publications:
        if item.topic:
            found.setdefault(item.topic, []).append(item.payload or Schema(is_open=True))
    return found


def _read(agent: AgentDefinition) -> dict[str, list[Schema]]:
    """What handlers need of a payload: their parameters, and the keys that they read."""
    found: dict[str, list[Schema]] = {}
    for item in agent.subscriptions:
        if item.topic:
            named = [Field(field.name, field.type, not field.has_default) for field in item.fields]
            keys = {read.key: Field(read.key, UNKNOWN, not read.is_optional) for read in item.reads}
            schema = Schema((*named, *(keys[key] for key in sorted(keys))), is_open=not item.reads_all_known)
            found.setdefault(item.topic, []).append(schema)
    return found
