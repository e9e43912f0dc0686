"""What a change takes from one agent, computed from the projects before and after it: what its objection may rest on.

The gate refuses what the rules call a defect. What is left, and still breaks a contract, is

- a field that its handler reads and that a publisher no longer sends, sends only sometimes, or sends as something else;
- a topic that it hears and that an agent no longer publishes;
- a call of its own that does not fit the provider's schema any more, also where the finding is ignored;
- a field of a result that it uses and that the provider no longer gives, or gives as something else.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.compiler.project import Project
from graphbus_core.editing.text.source_text import parse
from graphbus_core.model.agent import AgentDefinition, Call, Subscription
from graphbus_core.model.topics import matches
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.types import UNKNOWN, Field, Schema


class Fact(NamedTuple):
    """One thing that breaks: the topic or `Agent.method`, the field if it is one, and the whole in a sentence."""

    element: str
    field: str
    sentence: str

    def is_stated_in(self, text: str) -> bool:
        """True when a text names the element and the field as whole words."""
        element = rf"(?<![\w/.]){re.escape(self.element)}(?![\w/])"
        rest = re.sub(element, " ", text)
        return rest != text and (not self.field or bool(re.search(rf"(?<!\w){re.escape(self.field)}(?!\w)", rest)))


def broken_for(name: str, before: Project, after: Project) -> tuple[Fact, ...]:
    """Give what a change breaks for one agent."""
    agent = after.agent(name)
    if agent is None:
        return ()
    found = [*_unheard(agent, before, after), *_unfit_calls(agent, before, after), *_lost_results(agent, before, after)]
    return tuple(dict.fromkeys(found))


# --- events ----------------------------------------------------------------------------------


def _unheard(agent: AgentDefinition, before: Project, after: Project) -> Iterator[Fact]:
    for subscription in agent.subscriptions:
        handler = f"{agent.name}.{subscription.method}"
        for old in before.definitions:
            new = after.agent(old.name)
            for topic in dict.fromkeys(item.topic for item in old.publications):
                if new and topic and subscription.topic and matches(subscription.topic, topic):
                    yield from _unsent(handler, subscription, topic, old, new)


def _unsent(
    handler: str, subscription: Subscription, topic: str, old: AgentDefinition, new: AgentDefinition
) -> Iterator[Fact]:
    if any(not item.topic for item in new.publications):
        return  # it may be published at a place that cannot be read
    sent = [item.payload for item in new.publications if item.topic == topic]
    if not sent:
        yield Fact(topic, "", f"{old.name} no longer publishes {topic!r}, which {handler} hears")
    for need in _needs(subscription):
        was = _sent_field([item.payload for item in old.publications if item.topic == topic], need.name)
        change = _change_of(was, sent, need.name) if was and sent else ""
        if change:
            yield Fact(topic, need.name, f"{old.name} {change} {need.name!r} of {topic!r}, which {handler} reads")


def _needs(subscription: Subscription) -> list[Field]:
    """What a handler takes of a payload, however it says so; a read that expects the key to be absent is none."""
    taken = [Field(item.name, item.type) for item in subscription.fields if not item.has_default]
    declared = [field for field in subscription.payload.fields if field.required]
    reads = [Field(item.key, UNKNOWN) for item in subscription.reads if not item.is_optional]
    return list({field.name: field for field in (*reads, *declared, *taken)}.values())


def _sent_field(payloads: list[Schema | None], name: str) -> Field | None:
    """The field as all publications of an agent surely send it."""
    fields = [payload.get(name) if payload else None for payload in payloads]
    return fields[0] if fields and all(field and field.required for field in fields) else None


def _change_of(was: Field, payloads: list[Schema | None], name: str) -> str:
    if any(payload is None or (payload.is_open and payload.get(name) is None) for payload in payloads):
        return ""  # nobody knows
    fields = [payload.get(name) for payload in payloads if payload]
    if not any(fields):
        return "no longer sends"
    if not all(field and field.required for field in fields):
        return "sends only sometimes"
    other = next((field for field in fields if field and why_not(was.type, field.type)), None)
    return f"sends as {other.type} and no longer as {was.type} the field" if other else ""


# --- calls -----------------------------------------------------------------------------------


def _unfit_calls(agent: AgentDefinition, before: Project, after: Project) -> Iterator[Fact]:
    old = before.agent(agent.name)
    known = {fact for call in (old.calls if old else ()) for fact in _unfit(agent.name, call, before)}
    for call in agent.calls:
        yield from (fact for fact in _unfit(agent.name, call, after) if fact not in known)


def _unfit(caller: str, call: Call, project: Project) -> Iterator[Fact]:
    callee = project.agent(call.agent)
    if callee is None or not call.method:
        return
    element = f"{call.agent}.{call.method}"
    method = callee.method(call.method)
    if method is None or not method.has_schema:
        yield Fact(element, "", f"{caller} calls {element}, which cannot be called")
        return
    wanted, given = method.input_schema, call.arguments
    for field in wanted.fields if wanted else ():
        own = given.get(field.name)
        reason = why_not(field.type, own.type, is_narrowed=True) if own else None
        if own is None and field.required and not call.has_unknown:
            yield Fact(element, field.name, f"{element} requires {field.name!r}, which {caller} does not pass")
        elif reason:
            yield Fact(element, field.name, f"{element} does not take the {field.name!r} of {caller}: {reason}")
    for own in given.fields if wanted and not wanted.is_open else ():
        if wanted and own.name not in wanted.names:
            yield Fact(element, own.name, f"{element} does not take {own.name!r}, which {caller} passes")


def _lost_results(agent: AgentDefinition, before: Project, after: Project) -> Iterator[Fact]:
    words: frozenset[str] | None = None
    for element in dict.fromkeys((call.agent, call.method) for call in agent.calls):
        was, now = (_result(project, *element) for project in (before, after))
        for field in was.fields if was and now and was != now else ():
            words = _words_of(agent, after) if words is None else words
            other = now.get(field.name) if now else None
            if field.name not in words or (other is None and now and now.is_open):
                continue
            name, reason = ".".join(element), why_not(field.type, other.type) if other else ""
            if other is None:
                yield Fact(name, field.name, f"{name} no longer gives {field.name!r}, which {agent.name} uses")
            elif field.required and not other.required:
                yield Fact(name, field.name, f"{name} gives {field.name!r} only sometimes, and {agent.name} uses it")
            elif reason:
                yield Fact(name, field.name, f"{name} gives another {field.name!r} than {agent.name} uses: {reason}")


def _result(project: Project, agent: str, method: str) -> Schema | None:
    callee = project.agent(agent)
    spec = callee.method(method) if callee else None
    return spec.output_schema if spec else None


def _words_of(agent: AgentDefinition, project: Project) -> frozenset[str]:
    """The names of attributes and the texts in a class: what it can use of a result."""
    try:
        tree = parse(textwrap.dedent(project.span_text(agent.span)))
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
