"""Compares two states of a graph: every promise that differs, whether the difference breaks somebody, and whom.

agents       are called by name
methods      take arguments and give results; whoever reaches the graph over HTTP or Python may call them
topics       publishers give payloads; with `external_topics` others give and take them as well
handlers     take payloads and answer requests

`changes` says how two schemas differ. Whom that breaks is one question for all of them: does what one end of an edge gives still
fit what the other end wants (`_unmet`)? It is asked of the new state, as the other ends may have changed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from graphbus_core.compiler.rules.wiring import AgentPublication
from graphbus_core.contracts.changes import Broken, ContractChange, schema_differences, type_differences
from graphbus_core.contracts.surface import Surface, TopicHandler, answer_of, merge_schemas
from graphbus_core.model.agent import AgentDefinition, MethodSpec, SourceSpan
from graphbus_core.schema.compatibility import Side, misfit_reason
from graphbus_core.schema.types import Schema

_RANK = {"breaking": 0, "settled": 1, "compatible": 2}


class _End(NamedTuple):
    """One end of an edge: what it gives or needs, None when that is not known, and whether nothing else matters to it."""

    edge: str
    agent: AgentDefinition
    span: SourceSpan
    schema: Schema | None = None
    is_whole: bool = True

    def broken(self, why: str, *, is_certain: bool = True) -> Broken:
        """Return the entry for this end as broken."""
        return Broken(self.edge, self.agent.name, self.span, why, is_certain)


class _Pair(NamedTuple):
    """A schema in both states; `side` says who gives, as for `schema_differences`."""

    before: Schema | None
    after: Schema | None
    side: Side
    is_closed: bool = False


_Ends = Callable[[str], Iterable[_End]]
"""The name of a field -> the ends that a change of it may break."""


def compare_surfaces(old: Surface, new: Surface) -> tuple[ContractChange, ...]:
    """Return everything that differs, what breaks first, then by place.

    Args:
        old: The promises as they were.
        new: The promises as they are; what a change breaks are edges of this state.
    """
    comparison = _Comparison(old, new)
    found = [*comparison.agents(), *comparison.methods(), *comparison.topics(), *comparison.handlers()]
    return tuple(
        sorted(found, key=lambda change: (_RANK[change.effect], change.place, change.part, change.field, change.kind))
    )


class _Comparison:
    """The comparison of two states of a graph."""

    def __init__(self, old: Surface, new: Surface) -> None:
        self._old = old
        self._new = new

    def _is_public(self, topic: str) -> bool:
        return self._old.is_external(topic) or self._new.is_external(topic)

    def _is_untouched(self, agent: AgentDefinition) -> bool:
        """True when the text of a class is what it was."""
        was = self._old.agents.get(agent.name)
        return was is not None and was.source_digest == agent.source_digest

    # --- what has changed ---------------------------------------------------------------

    def agents(self) -> Iterator[ContractChange]:
        """Find added and removed agents, and removed dependencies that are still called."""
        old, new = self._old.agents, self._new.agents
        for name in old.keys() - new.keys():
            head = ContractChange("agent-removed", name, f"{name} is gone", old[name].name_span, is_breaking=True)
            breaks = (*self._callers(name, "still calls it"), *self._dependents(name))
            yield head._replace(is_public=_has_methods(old[name]), breaks=_distinct(breaks))
        for name in new.keys() - old.keys():
            is_public = _has_methods(new[name])
            yield ContractChange("agent-added", name, f"{name} is new", new[name].name_span, is_public=is_public)
        for name in old.keys() & new.keys():
            was, now = ({each.name for each in agent.dependencies} for agent in (old[name], new[name]))
            for gone in (was - now - {name}) & new.keys():
                yield from self._dependency_gone(new[name], gone)

    def _dependency_gone(self, agent: AgentDefinition, gone: str) -> Iterator[ContractChange]:
        breaks = _distinct(each for each in self._callers(gone, "calls it all the same") if each.agent == agent.name)
        if breaks:
            why = f"{agent.name} no longer depends on {gone}"
            yield ContractChange(
                "dependency-removed", agent.name, why, agent.name_span, is_breaking=True, breaks=breaks
            )

    def methods(self) -> Iterator[ContractChange]:
        """Find added and removed methods, and differences of arguments and results."""
        for agent in sorted(self._old.agents.keys() & self._new.agents.keys()):
            was, now = self._old.methods(agent), self._new.methods(agent)
            for name in sorted(was.keys() | now.keys()):
                place = f"{agent}.{name}"
                if name not in now:
                    head = ContractChange("method-removed", place, f"{place} is gone", was[name].span, is_breaking=True)
                    yield head._replace(is_public=True, breaks=_distinct(self._callers(agent, "still calls it", name)))
                elif name not in was:
                    yield ContractChange("method-added", place, f"{place} is new", now[name].span, is_public=True)
                else:
                    yield from self._method(agent, was[name], now[name])

    def _method(self, agent: str, was: MethodSpec, now: MethodSpec) -> Iterator[ContractChange]:
        head = ContractChange("type-changed", f"{agent}.{now.name}", "", now.schema_span or now.span, is_public=True)
        given, taken = head._replace(part="input"), head._replace(part="output")
        calls = self._calls(agent, now.name)
        inputs = _Pair(was.input_schema, now.input_schema, "input", is_closed=True)
        yield from self._schemas(given, inputs, lambda _: calls)
        readers = [call._replace(schema=None) for call in calls]
        yield from self._schemas(taken, _Pair(was.output_schema, now.output_schema, "output"), lambda _: readers)

    def topics(self) -> Iterator[ContractChange]:
        """Find added and removed topics, and differences of payloads."""
        for topic in sorted(self._old.publications.keys() | self._new.publications.keys()):
            was, now = self._old.publications.get(topic, ()), self._new.publications.get(topic, ())
            head = ContractChange("topic-added", topic, f"{topic} is published now", (now or was)[0].publication.span)
            head = head._replace(is_public=self._is_public(topic))
            if not now:
                yield self._topic_gone(head)
            elif not was:
                yield head
            else:
                yield from self._payload(head._replace(part="payload"), topic)

    def _topic_gone(self, head: ContractChange) -> ContractChange:
        topic = head.place
        if any(not self._is_untouched(each.agent) for each in self._new.may_compute(topic)):
            why = f"{topic} is published by that name no more; a topic that is computed now may be the same"
            return head._replace(kind="topic-removed", why=why, is_certain=False)
        is_certain = not (self._new.may_compute(topic) or self._new.is_external(topic))
        waiting = (
            _hearing(topic, each).broken("still waits for it", is_certain=is_certain)
            for each in self._new.handlers_of(topic)
            if each.subscription.topic == topic or not self._new.has_publisher(each.subscription.topic)
        )
        why = f"nobody publishes {topic} any more"
        return head._replace(kind="topic-removed", why=why, is_breaking=True, breaks=_distinct(waiting))

    def _payload(self, head: ContractChange, topic: str) -> Iterator[ContractChange]:
        before, after = self._old.payload(topic), self._new.payload(topic)
        was_declared = any(each.publication.is_declared for each in self._old.publications[topic])
        if before is not None and after is None and not was_declared:
            why = "cannot be read from the code any more"
            yield head._replace(kind="schema-unknown", why=why, before=str(before), is_certain=False)
            return
        hearers = self._new.handlers_of(topic)
        payload = _Pair(before, after, "output")
        yield from self._schemas(head, payload, lambda name: [_hearing(topic, each, name) for each in hearers])

    def handlers(self) -> Iterator[ContractChange]:
        """Find added and removed handlers, and differences of what they accept and return."""
        old, new = self._old.handler_at, self._new.handler_at
        for (topic, name), before in old.items():
            after = new.get((topic, name)) or _named(name, self._new.handlers_of(topic))
            yield from self._handler(topic, before, after) if after else [self._handler_gone(topic, before)]
        for topic, name in new.keys() - old.keys():
            after, before_by_pattern = new[topic, name], _named(name, self._old.handlers_of(topic))
            yield from (
                self._handler(topic, before_by_pattern, after) if before_by_pattern else self._handler_new(topic, after)
            )

    def _handler_gone(self, topic: str, handler: TopicHandler) -> ContractChange:
        reached = {*self._old.topics_matching(topic), *self._new.topics_matching(topic)}
        unheard = [each for each in sorted(reached) if not self._new.handlers_of(each)]
        breaks = _distinct(self._askers(unheard, "still asks, and nobody answers"))
        lost = [each for each in unheard if self._is_public(each)]
        why = f"{handler.name} no longer hears {topic}" + (", nor does anybody else" if topic in unheard else "")
        head = ContractChange("handler-removed", topic, why, handler.subscription.span, handler.name, breaks=breaks)
        return head._replace(is_public=bool(lost) or self._is_public(topic), is_breaking=bool(breaks or lost))

    def _handler_new(self, topic: str, handler: TopicHandler) -> Iterator[ContractChange]:
        asked = [each for each in self._new.topics_matching(topic) if not self._is_public(each)]
        twice = [each for each in asked if len(self._old.handlers_of(each)) < 2 <= len(self._new.handlers_of(each))]
        breaks = _distinct(self._askers(twice, "asks, and more than one handler would answer"))
        head = ContractChange(
            "handler-added", topic, f"{handler.name} hears {topic} now", handler.subscription.span, handler.name
        )
        head = head._replace(is_public=self._is_public(topic))
        yield head._replace(is_breaking=bool(breaks), breaks=breaks)
        known = merge_schemas([each.needs for each in self._old.handlers_by_topic.get(topic, ())])
        if known is not None:  # who publishes from outside knows what the others take
            yield from (change for change in self._needs(head, known, handler) if change.is_breaking)

    def _handler(self, topic: str, before: TopicHandler, after: TopicHandler) -> Iterator[ContractChange]:
        is_public, span = self._is_public(topic), after.subscription.span
        head = ContractChange("type-changed", topic, "", span, after.name, is_public=is_public)
        yield from self._needs(head, before.needs, after)
        method = after.method
        if method and not method.has_schema and (self._new.requests_to(topic) or is_public):
            head = head._replace(span=method.span)
            asking = (each for each in self._new.publications_to(topic) if each.publication.is_request)
            readers = [self._saying(each)._replace(schema=None) for each in asking]
            for change in type_differences(answer_of(before), answer_of(after), "output", "answer"):
                yield self._at(head, change, _Pair(None, None, "output"), readers)

    def _needs(self, head: ContractChange, before: Schema, handler: TopicHandler) -> Iterator[ContractChange]:
        saying = [self._saying(each, handler.name) for each in self._new.publications_to(handler.subscription.topic)]
        return self._schemas(head, _Pair(before, handler.needs, "input"), lambda _: saying)

    # --- the other ends, as they are now --------------------------------------------------

    def _calls(self, agent: str, method: str) -> list[_End]:
        found = self._new.calls(agent, method)
        given = [(caller, call, Schema(call.arguments.fields, call.has_unknown)) for caller, call in found]
        return [_End(f"{caller.name} → {agent}.{method}", caller, call.span, each) for caller, call, each in given]

    def _saying(self, said: AgentPublication, target: str = "") -> _End:
        publication = said.publication
        edge = " → ".join(filter(None, (said.agent.name, publication.topic, target)))
        payload = self._new.payload(publication.topic) if publication.payload is None else publication.payload
        return _End(edge, said.agent, publication.span, payload)

    def _callers(self, agent: str, why: str, method: str = "") -> Iterator[Broken]:
        for caller, call in self._new.calls(agent, method):
            yield Broken(f"{caller.name} → {agent}.{call.method or '?'}", caller.name, call.span, why)

    def _dependents(self, agent: str) -> Iterator[Broken]:
        for other in self._new.agents.values():
            for dependency in other.dependencies:
                if dependency.name == agent:
                    yield Broken(f"{other.name} → {agent}", other.name, dependency.span, "still depends on it")

    def _askers(self, topics: Iterable[str], why: str) -> Iterator[Broken]:
        for topic in topics:
            yield from (self._saying(said).broken(why) for said in self._new.requests_to(topic))

    # --- what a change of a schema does to them ----------------------------------------------

    def _schemas(self, head: ContractChange, pair: _Pair, ends: _Ends) -> Iterator[ContractChange]:
        """Compare two schemas; yield each change with the ends that it breaks."""
        before, after, side, is_closed = pair
        if before is not None and after is not None:
            for change in schema_differences(before, after, side, is_closed=is_closed):
                yield self._at(head, change, pair, ends(change.name))
        elif after is not None:
            why = "nothing was known of it, it is declared now"
            yield head._replace(kind="schema-known", why=why, after=str(after), is_certain=False)
        elif before is not None and side == "input":
            why = "anything is let in now, as far as can be read"
            yield head._replace(kind="schema-unknown", why=why, before=str(before))
        elif before is not None:
            why = "what was promised is gone, or cannot be read any more"
            head = head._replace(kind="schema-unknown", why=why, before=str(before), is_breaking=True)
            yield self._at(head, head, pair, ends(""))

    def _at(self, head: ContractChange, change: ContractChange, pair: _Pair, ends: Iterable[_End]) -> ContractChange:
        """Return a difference of two schemas with its place and the ends that it breaks."""
        breaks = _distinct(broken for end in ends if (broken := self._let_down(change, end, pair)))
        return change._replace(
            place=head.place, span=head.span, part=head.part, is_public=head.is_public, breaks=breaks
        )

    def _let_down(self, change: ContractChange, end: _End, pair: _Pair) -> Broken | None:
        """Describe what a change of the schema at one end does to the other end, if anything.

        What does not fit now and did not fit before is no matter of a compatible change. What is not known counts only against a
        class that did not change with a breaking one.
        """
        is_doubtful = change.is_breaking and self._is_untouched(end.agent)
        why, is_certain = _unmet(change.name, end, pair.after, pair)
        if why and not change.is_breaking and _unmet(change.name, end, pair.before, pair)[0]:
            return None
        if not why and is_doubtful and _may_rely(change, end, pair.after):
            why, is_certain = "relies on it as it was", False
        is_told = why and (is_certain or change.is_breaking)
        return end.broken(why, is_certain=is_certain) if is_told else None


def _unmet(name: str, end: _End, other: Schema | None, pair: _Pair) -> tuple[str, bool]:
    """Describe why a field of what is given is not what is wanted, empty if it is, and whether that is certain."""
    wanted, given = (other, end.schema) if pair.side == "input" else (end.schema, other)
    if wanted is None or given is None:
        return "", True
    need, has = wanted.get(name), given.get(name)
    if need is None:
        is_refused = has is not None and pair.is_closed and not wanted.is_open
        return (f"still gives {name!r}" if is_refused else ""), True
    if has is None:
        return (f"needs {name!r}" if need.required else ""), not given.is_open
    if reason := misfit_reason(need.type, has.type, is_narrowed=True):
        return f"needs another {name!r}: {reason}", True
    return (f"needs {name!r}, which may be missing" if need.required and not has.required else ""), False


def _may_rely(change: ContractChange, end: _End, after: Schema | None) -> bool:
    """True if an end that is not fully known may rely on what has changed."""
    if end.schema is None:
        return True
    if after is None:
        return not end.is_whole or any(field.required for field in end.schema.fields)
    field = end.schema.get(change.name)
    if field is None:
        return not end.is_whole
    return change.kind == "type-changed" and field.type.kind in ("unknown", "any")


def _hearing(topic: str, handler: TopicHandler, name: str = "") -> _End:
    """A handler at the other end of a topic, at the place where it takes a field."""
    subscription = handler.subscription
    found = [each.span for each in subscription.reads if each.key == name]
    found += [each.span for each in subscription.fields if each.name == name]
    span = (*found, subscription.span)[0]
    return _End(f"{topic} → {handler.name}", handler.agent, span, handler.needs, handler.is_whole)


def _distinct(found: Iterable[Broken]) -> tuple[Broken, ...]:
    """Return each place once, by place."""
    kept = {(broken.span, broken.edge): broken for broken in found}
    return tuple(sorted(kept.values(), key=lambda each: (each.span.path, each.span.line, each.span.column, each.edge)))


def _has_methods(agent: AgentDefinition) -> bool:
    return any(method.has_schema for method in agent.methods)


def _named(name: str, handlers: Iterable[TopicHandler]) -> TopicHandler | None:
    return next((each for each in handlers if each.name == name), None)
