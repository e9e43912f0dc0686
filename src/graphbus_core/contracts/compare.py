"""Compares two states of a graph: every difference in its contracts, and the edges that the difference breaks.

agents       are called by name
methods      take arguments and return results; code outside of the graph may call them over HTTP or from Python
topics       carry payloads; those in `external_topics` are also used outside of the graph
handlers     take payloads and answer requests

`changes` finds how two schemas differ. A difference breaks an edge if what one end gives no longer fits what the other end wants
(`_describe_misfit`). The other end is taken from the new state, because it may have been changed as well.

A `head` is a `ContractChange` with only the common attributes set; each change at the same place is a copy of it.
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
    """The end, `span`, of an edge, such as `"Checkout → Stock.reserve"`, that a change may break.

    `schema` has the fields that this end gives or needs; None: they are not known. With `is_whole` it certainly needs no others.
    """

    edge: str
    agent: AgentDefinition
    span: SourceSpan
    schema: Schema | None = None
    is_whole: bool = True

    def as_broken(self, why: str, *, is_certain: bool = True) -> Broken:
        """Return this end as an entry of `ContractChange.breaks`."""
        return Broken(self.edge, self.agent.name, self.span, why, is_certain)


class _Pair(NamedTuple):
    """A schema in both states (None: not known), with the arguments `side` and `is_closed` of `schema_differences`."""

    before: Schema | None
    after: Schema | None
    side: Side
    is_closed: bool = False


_Ends = Callable[[str], Iterable[_End]]
"""A function: name of a changed field -> the ends of edges that the change may break."""


def compare_surfaces(old: Surface, new: Surface) -> tuple[ContractChange, ...]:
    """Return all differences, the breaking ones first, then sorted by place.

    Args:
        old: The contracts of the old state.
        new: The contracts of the new state; `breaks` lists edges of this state.
    """
    comparison = _Comparison(old, new)
    found = [*comparison.agents(), *comparison.methods(), *comparison.topics(), *comparison.handlers()]
    return tuple(
        sorted(found, key=lambda change: (_RANK[change.effect], change.place, change.part, change.field, change.kind))
    )


class _Comparison:
    """The comparison of two states of a graph. Each public method finds the changes of one kind of contract."""

    def __init__(self, old: Surface, new: Surface) -> None:
        self._old = old
        self._new = new

    def _is_public(self, topic: str) -> bool:
        """Return whether a topic is used outside of the graph in one of the states."""
        return self._old.is_external(topic) or self._new.is_external(topic)

    def _is_untouched(self, agent: AgentDefinition) -> bool:
        """Return whether an agent is in both states with the same source."""
        was = self._old.agents.get(agent.name)
        return was is not None and was.source_digest == agent.source_digest

    # --- what has changed ---------------------------------------------------------------

    def agents(self) -> Iterator[ContractChange]:
        """Find added and removed agents, and removed dependencies that are still called."""
        old, new = self._old.agents, self._new.agents
        for name in old.keys() - new.keys():
            head = ContractChange("agent-removed", name, f"{name} is gone", old[name].name_span, is_breaking=True)
            breaks = (*self._broken_calls(name, "still calls it"), *self._broken_dependencies(name))
            yield head._replace(is_public=_has_methods(old[name]), breaks=_unique(breaks))
        for name in new.keys() - old.keys():
            is_public = _has_methods(new[name])
            yield ContractChange("agent-added", name, f"{name} is new", new[name].name_span, is_public=is_public)
        for name in old.keys() & new.keys():
            was, now = ({each.name for each in agent.dependencies} for agent in (old[name], new[name]))
            for gone in (was - now - {name}) & new.keys():
                yield from self._compare_dependency(new[name], gone)

    def _compare_dependency(self, agent: AgentDefinition, gone: str) -> Iterator[ContractChange]:
        """Yield a change if an agent still calls `gone`, another agent, although it no longer declares that it depends on it."""
        breaks = _unique(each for each in self._broken_calls(gone, "calls it all the same") if each.agent == agent.name)
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
                    breaks = _unique(self._broken_calls(agent, "still calls it", name))
                    yield head._replace(is_public=True, breaks=breaks)
                elif name not in was:
                    yield ContractChange("method-added", place, f"{place} is new", now[name].span, is_public=True)
                else:
                    yield from self._compare_method(agent, was[name], now[name])

    def _compare_method(self, agent: str, was: MethodSpec, now: MethodSpec) -> Iterator[ContractChange]:
        """Yield the differences of the schemas of a method, with the calls that they break."""
        head = ContractChange("type-changed", f"{agent}.{now.name}", "", now.schema_span or now.span, is_public=True)
        input_head, output_head = head._replace(part="input"), head._replace(part="output")
        calls = self._caller_ends(agent, now.name)
        inputs = _Pair(was.input_schema, now.input_schema, "input", is_closed=True)
        yield from self._diff_schemas(input_head, inputs, lambda _: calls)
        readers = [call._replace(schema=None) for call in calls]  # which fields of the result they read is not known
        outputs = _Pair(was.output_schema, now.output_schema, "output")
        yield from self._diff_schemas(output_head, outputs, lambda _: readers)

    def topics(self) -> Iterator[ContractChange]:
        """Find added and removed topics, and differences of payloads."""
        for topic in sorted(self._old.publications.keys() | self._new.publications.keys()):
            was, now = self._old.publications.get(topic, ()), self._new.publications.get(topic, ())
            head = ContractChange("topic-added", topic, f"{topic} is published now", (now or was)[0].publication.span)
            head = head._replace(is_public=self._is_public(topic))
            if not now:
                yield self._topic_removal(head)
            elif not was:
                yield head
            else:
                yield from self._compare_payload(head._replace(part="payload"), topic)

    def _topic_removal(self, head: ContractChange) -> ContractChange:
        """Return the removal of a topic, with the handlers that wait for it and get it from no other publisher.

        The removal is uncertain if a changed agent publishes a computed topic, which may be the same one. That a handler breaks
        is uncertain if any agent may compute the topic, or if it may come from outside of the graph.
        """
        topic = head.place
        if any(not self._is_untouched(each.agent) for each in self._new.may_compute(topic)):
            why = f"{topic} is no longer published under this name; a topic that is computed now may be the same"
            return head._replace(kind="topic-removed", why=why, is_certain=False)
        is_certain = not (self._new.may_compute(topic) or self._new.is_external(topic))
        waiting = (
            _handler_end(topic, each).as_broken("still waits for it", is_certain=is_certain)
            for each in self._new.handlers_of(topic)
            if each.subscription.topic == topic or not self._new.has_publisher(each.subscription.topic)
        )
        why = f"nobody publishes {topic} any more"
        return head._replace(kind="topic-removed", why=why, is_breaking=True, breaks=_unique(waiting))

    def _compare_payload(self, head: ContractChange, topic: str) -> Iterator[ContractChange]:
        """Yield the differences of the payload of a topic, with the handlers that they break."""
        before, after = self._old.payload(topic), self._new.payload(topic)
        was_declared = any(each.publication.is_declared for each in self._old.publications[topic])
        if before is not None and after is None and not was_declared:
            why = "cannot be read from the code any more"
            yield head._replace(kind="schema-unknown", why=why, before=str(before), is_certain=False)
            return
        handlers = self._new.handlers_of(topic)
        payload = _Pair(before, after, "output")
        yield from self._diff_schemas(
            head, payload, lambda name: [_handler_end(topic, each, name) for each in handlers]
        )

    def handlers(self) -> Iterator[ContractChange]:
        """Find added and removed handlers, and differences of what they accept and return."""
        old, new = self._old.handler_at, self._new.handler_at
        for (topic, name), before in old.items():
            after = new.get((topic, name)) or _find_handler(name, self._new.handlers_of(topic))
            yield from self._compare_handler(topic, before, after) if after else [self._handler_removal(topic, before)]
        for topic, name in new.keys() - old.keys():
            after, before_by_pattern = new[topic, name], _find_handler(name, self._old.handlers_of(topic))
            if before_by_pattern:
                yield from self._compare_handler(topic, before_by_pattern, after)
            else:
                yield from self._report_added_handler(topic, after)

    def _handler_removal(self, topic: str, handler: TopicHandler) -> ContractChange:
        """Return the removal of a handler, with the requests that it breaks because no handler answers them any more."""
        reached = {*self._old.topics_matching(topic), *self._new.topics_matching(topic)}
        unanswered = [each for each in sorted(reached) if not self._new.handlers_of(each)]
        breaks = _unique(self._broken_requests(unanswered, "still asks, and nobody answers"))
        lost = [each for each in unanswered if self._is_public(each)]
        why = f"{handler.name} no longer hears {topic}" + (", nor does anybody else" if topic in unanswered else "")
        head = ContractChange("handler-removed", topic, why, handler.subscription.span, handler.name, breaks=breaks)
        return head._replace(is_public=bool(lost) or self._is_public(topic), is_breaking=bool(breaks or lost))

    def _report_added_handler(self, topic: str, handler: TopicHandler) -> Iterator[ContractChange]:
        """Yield the addition of a handler, with the requests that it breaks, and what only this handler of the topic needs."""
        asked = [each for each in self._new.topics_matching(topic) if not self._is_public(each)]
        ambiguous = [each for each in asked if len(self._old.handlers_of(each)) < 2 <= len(self._new.handlers_of(each))]
        breaks = _unique(self._broken_requests(ambiguous, "asks, and more than one handler would answer"))
        head = ContractChange(
            "handler-added", topic, f"{handler.name} hears {topic} now", handler.subscription.span, handler.name
        )
        head = head._replace(is_public=self._is_public(topic))
        yield head._replace(is_breaking=bool(breaks), breaks=breaks)
        known = merge_schemas([each.needs for each in self._old.handlers_by_topic.get(topic, ())])
        if known is not None:  # code outside of the graph publishes what the old handlers need
            yield from (change for change in self._compare_needs(head, known, handler) if change.is_breaking)

    def _compare_handler(self, topic: str, before: TopicHandler, after: TopicHandler) -> Iterator[ContractChange]:
        """Yield the differences of the fields that a handler needs, and of its answers if it answers requests."""
        is_public, span = self._is_public(topic), after.subscription.span
        head = ContractChange("type-changed", topic, "", span, after.name, is_public=is_public)
        yield from self._compare_needs(head, before.needs, after)
        method = after.method  # one with a schema is compared by `methods`
        if method and not method.has_schema and (self._new.requests_to(topic) or is_public):
            head = head._replace(span=method.span)
            asking = (each for each in self._new.publications_to(topic) if each.publication.is_request)
            readers = [self._publisher_end(each)._replace(schema=None) for each in asking]
            for change in type_differences(answer_of(before), answer_of(after), "output", "answer"):
                yield self._complete(head, change, _Pair(None, None, "output"), readers)

    def _compare_needs(self, head: ContractChange, before: Schema, handler: TopicHandler) -> Iterator[ContractChange]:
        """Yield the differences of the fields that a handler needs, with the publications that they break."""
        reaching = self._new.publications_to(handler.subscription.topic)
        ends = [self._publisher_end(each, handler.name) for each in reaching]
        return self._diff_schemas(head, _Pair(before, handler.needs, "input"), lambda _: ends)

    # --- the other ends, in the new state ---------------------------------------------------

    def _caller_ends(self, agent: str, method: str) -> list[_End]:
        """Return an end for each call of a method, with the arguments that it passes."""
        found = self._new.calls(agent, method)
        given = [(caller, call, Schema(call.arguments.fields, call.has_unknown)) for caller, call in found]
        return [_End(f"{caller.name} → {agent}.{method}", caller, call.span, each) for caller, call, each in given]

    def _publisher_end(self, sent: AgentPublication, target: str = "") -> _End:
        """Return the end of a publication with its payload; `target`, the name of a handler, completes the name of the edge."""
        publication = sent.publication
        edge = " → ".join(filter(None, (sent.agent.name, publication.topic, target)))
        payload = self._new.payload(publication.topic) if publication.payload is None else publication.payload
        return _End(edge, sent.agent, publication.span, payload)

    def _broken_calls(self, agent: str, why: str, method: str = "") -> Iterator[Broken]:
        """Yield each call of an agent, or of `method` alone if it is not empty, as broken; `why` is the reason."""
        for caller, call in self._new.calls(agent, method):
            yield Broken(f"{caller.name} → {agent}.{call.method or '?'}", caller.name, call.span, why)

    def _broken_dependencies(self, agent: str) -> Iterator[Broken]:
        """Yield each dependency on an agent as broken."""
        for other in self._new.agents.values():
            for dependency in other.dependencies:
                if dependency.name == agent:
                    yield Broken(f"{other.name} → {agent}", other.name, dependency.span, "still depends on it")

    def _broken_requests(self, topics: Iterable[str], why: str) -> Iterator[Broken]:
        """Yield each request on these topics as broken; `why` is the reason."""
        for topic in topics:
            yield from (self._publisher_end(sent).as_broken(why) for sent in self._new.requests_to(topic))

    # --- the effect of a changed schema on the other ends -------------------------------------

    def _diff_schemas(self, head: ContractChange, pair: _Pair, ends: _Ends) -> Iterator[ContractChange]:
        """Yield the differences of two schemas, each with the ends that it breaks.

        If only one of the schemas is known, the single difference is that it is known now, or is not known any more.
        """
        before, after, side, is_closed = pair
        if before is not None and after is not None:
            for change in schema_differences(before, after, side, is_closed=is_closed):
                yield self._complete(head, change, pair, ends(change.name))
        elif after is not None:
            why = "nothing was known of it, it is declared now"
            yield head._replace(kind="schema-known", why=why, after=str(after), is_certain=False)
        elif before is not None and side == "input":
            why = "anything is let in now, as far as can be read"
            yield head._replace(kind="schema-unknown", why=why, before=str(before))
        elif before is not None:
            why = "what was promised is gone, or cannot be read any more"
            head = head._replace(kind="schema-unknown", why=why, before=str(before), is_breaking=True)
            yield self._complete(head, head, pair, ends(""))

    def _complete(
        self, head: ContractChange, diff: ContractChange, pair: _Pair, ends: Iterable[_End]
    ) -> ContractChange:
        """Return a difference of two schemas, completed by the place of `head` and by those of `ends` that it breaks."""
        breaks = _unique(broken for end in ends if (broken := self._break_end(diff, end, pair)))
        return diff._replace(place=head.place, span=head.span, part=head.part, is_public=head.is_public, breaks=breaks)

    def _break_end(self, change: ContractChange, end: _End, pair: _Pair) -> Broken | None:
        """Return how a change of a schema breaks the other end of an edge; None if it does not.

        A compatible change does not count if the ends did not fit before either. A breaking change also counts, as uncertain, if
        the other end may rely on the old state and its agent was not changed.
        """
        is_doubtful = change.is_breaking and self._is_untouched(end.agent)
        why, is_certain = _describe_misfit(change.name, end, pair.after, pair)
        if why and not change.is_breaking and _describe_misfit(change.name, end, pair.before, pair)[0]:
            return None
        if not why and is_doubtful and _may_rely_on_old(change, end, pair.after):
            why, is_certain = "relies on it as it was", False
        is_reported = why and (is_certain or change.is_breaking)
        return end.as_broken(why, is_certain=is_certain) if is_reported else None


def _describe_misfit(name: str, end: _End, other: Schema | None, pair: _Pair) -> tuple[str, bool]:
    """Return why a field does not fit between an end and the schema `other`, empty if it fits, and whether that is certain.

    For an input, the end gives the field and `other` wants it; for an output, the other way round.
    """
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


def _may_rely_on_old(change: ContractChange, end: _End, after: Schema | None) -> bool:
    """Return whether an end that fits the new schema `after`, as far as is known, may still rely on what has changed."""
    if end.schema is None:  # what it gives or needs is not known
        return True
    if after is None:  # the new schema is not known: any field may be missing now
        return not end.is_whole or any(field.required for field in end.schema.fields)
    field = end.schema.get(change.name)
    if field is None:  # it may use the changed field without being seen to
        return not end.is_whole
    # it uses the field as a value of any type, and may rely on the old one
    return change.kind == "type-changed" and field.type.kind in ("unknown", "any")


def _handler_end(topic: str, handler: TopicHandler, name: str = "") -> _End:
    """Return the end of a handler of a topic. Its place is where it reads or takes the field `name`, else its subscription."""
    subscription = handler.subscription
    found = [each.span for each in subscription.reads if each.key == name]
    found += [each.span for each in subscription.fields if each.name == name]
    span = (*found, subscription.span)[0]
    return _End(f"{topic} → {handler.name}", handler.agent, span, handler.needs, handler.is_whole)


def _unique(found: Iterable[Broken]) -> tuple[Broken, ...]:
    """Return the entries sorted by place; of those with the same place and edge, only the last one."""
    kept = {(broken.span, broken.edge): broken for broken in found}
    return tuple(sorted(kept.values(), key=lambda each: (each.span.path, each.span.line, each.span.column, each.edge)))


def _has_methods(agent: AgentDefinition) -> bool:
    return any(method.has_schema for method in agent.methods)


def _find_handler(name: str, handlers: Iterable[TopicHandler]) -> TopicHandler | None:
    """Return the first handler with a name such as `"Mail.on_placed"`; None if there is none."""
    return next((each for each in handlers if each.name == name), None)
