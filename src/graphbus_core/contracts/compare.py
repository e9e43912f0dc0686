"""Two states of a graph, compared: every promise that is different, whether that breaks it, and for whom.

agents       are called and depended on by name
methods      take arguments and give results; whoever reaches the graph over HTTP or Python may call them
topics       publishers give payloads; with `external_topics` others give and take them as well
handlers     take payloads and answer requests

`changes` says how two schemas differ, `_Consumers` who relies on what; `compare` brings each place together with its old state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from graphbus_core.contracts.changes import Broken, Change, differences, type_differences
from graphbus_core.contracts.surface import Handler, Said, Surface, answer_of, merged
from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, SourceSpan
from graphbus_core.schema.compatibility import Side, why_not
from graphbus_core.schema.types import Field, Schema

_RANK = {"breaking": 0, "settled": 1, "compatible": 2}

Breaks = Callable[[Change], Iterable[Broken]]


def compare(old: Surface, new: Surface) -> tuple[Change, ...]:
    """Give everything that differs, what breaks first, then by place.

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
    """Both states while they are compared."""

    def __init__(self, old: Surface, new: Surface) -> None:
        self._old = old
        self._new = new

    def _is_public(self, topic: str) -> bool:
        return self._old.is_external(topic) or self._new.is_external(topic)

    # --- agents -------------------------------------------------------------------------

    def agents(self) -> Iterator[Change]:
        """Find agents that have come or gone, and what they depend on."""
        old, new = self._old.agents, self._new.agents
        for name in old.keys() - new.keys():
            yield Change(
                "agent-removed", name, f"{name} is gone", old[name].name_span, is_breaking=True,
                is_public=_has_methods(old[name]), breaks=distinct(self._of_gone_agent(name)), is_new_place=False,
            )  # fmt: skip
        for name in new.keys() - old.keys():
            is_public = _has_methods(new[name])
            yield Change("agent-added", name, f"{name} is new", new[name].name_span, is_public=is_public)
        for name in old.keys() & new.keys():
            yield from self._dependencies(old[name], new[name])

    def _dependencies(self, before: AgentDefinition, after: AgentDefinition) -> Iterator[Change]:
        was, now = ({each.name: each for each in agent.dependencies} for agent in (before, after))
        for name in now.keys() - was.keys():
            yield Change("dependency-added", after.name, f"{after.name} depends on {name} now", now[name].span)
        for name in was.keys() - now.keys():
            is_called = name != after.name and name in self._new.agents
            breaks = distinct(
                Broken(f"{after.name} → {name}.{call.method or '?'}", after.name, call.span, "calls it all the same")
                for call in after.calls
                if is_called and call.agent == name
            )
            why, is_breaking = f"{after.name} no longer depends on {name}", bool(breaks)
            yield Change("dependency-removed", after.name, why, after.name_span, is_breaking=is_breaking, breaks=breaks)

    # --- methods ------------------------------------------------------------------------

    def methods(self) -> Iterator[Change]:
        """Find methods that have come or gone, and what differs in their arguments and results."""
        for agent in sorted(self._old.agents.keys() & self._new.agents.keys()):
            was, now = self._old.methods(agent), self._new.methods(agent)
            for name in sorted(was.keys() | now.keys()):
                place = f"{agent}.{name}"
                if name not in now:
                    yield self._method_gone(agent, was[name])
                elif name not in was:
                    yield Change("method-added", place, f"{place} is new", now[name].span, is_public=True)
                else:
                    yield from self._method(agent, was[name], now[name])

    def _method_gone(self, agent: str, method: MethodSpec) -> Change:
        left = self._new.agents[agent].method(method.name)
        place = f"{agent}.{method.name}"
        why = f"{place} has no @schema_method any more" if left else f"{place} is gone"
        breaks = distinct(self._of_gone_method(agent, method.name))
        return Change("method-removed", place, why, (left or method).span, is_breaking=True, is_public=True, breaks=breaks,
                      is_new_place=left is not None)  # fmt: skip

    def _method(self, agent: str, was: MethodSpec, now: MethodSpec) -> Iterator[Change]:
        head = Change("type-changed", f"{agent}.{now.name}", "", now.schema_span or now.span, is_public=True)
        inputs = was.input_schema or Schema(), now.input_schema or Schema()
        yield from _schemas(
            head._replace(part="input"), was.input_schema, now.input_schema, "input",
            lambda change: self._of_input(agent, now.name, change, inputs), is_closed=True,
        )  # fmt: skip
        yield from _schemas(
            head._replace(part="output"), was.output_schema, now.output_schema, "output",
            lambda change: self._of_output(agent, now.name, change),
        )  # fmt: skip

    # --- topics -------------------------------------------------------------------------

    def topics(self) -> Iterator[Change]:
        """Find topics that are published or no longer, by whom, and what differs in their payloads."""
        for topic in sorted(self._old.said.keys() | self._new.said.keys()):
            was, now = self._old.said.get(topic, ()), self._new.said.get(topic, ())
            span, why = (now or was)[0].publication.span, f"{topic} is published now"
            head = Change("topic-added", topic, why, span, is_public=self._is_public(topic))
            if not now:
                yield self._topic_gone(head)
            elif not was:
                yield head
            else:
                yield from _publishers(head, {each.agent.name for each in was}, {each.agent.name for each in now})
                yield from self._payload(head._replace(part="payload"), topic)

    def _topic_gone(self, head: Change) -> Change:
        topic = head.place
        head = head._replace(kind="topic-removed", is_new_place=False)
        if any(not self._is_untouched(each.agent) for each in self._new.may_compute(topic)):
            why = f"{topic} is published by that name no more; a topic that is computed now may be the same"
            return head._replace(why=why, is_certain=False)
        breaks = distinct(self._of_gone_topic(topic))
        return head._replace(why=f"nobody publishes {topic} any more", is_breaking=True, breaks=breaks)

    def _payload(self, head: Change, topic: str) -> Iterator[Change]:
        before, after = self._old.payload(topic), self._new.payload(topic)
        declared = [each.publication.span for each in self._new.said[topic] if each.publication.is_declared]
        head = head._replace(span=declared[0]) if declared else head
        was_declared = any(each.publication.is_declared for each in self._old.said[topic])
        if before is not None and after is None and not was_declared:
            why = "cannot be read from the code any more"
            yield head._replace(kind="schema-unknown", why=why, before=str(before), is_certain=False)
            return
        yield from _schemas(
            head, before, after, "output", lambda change: self._of_payload(topic, change, before, after)
        )

    # --- handlers -----------------------------------------------------------------------

    def handlers(self) -> Iterator[Change]:
        """Find handlers that have come or gone, and what differs in what they take and answer."""
        for topic in sorted(self._old.heard.keys() | self._new.heard.keys()):
            was, now = self._old.heard.get(topic, ()), self._new.heard.get(topic, ())
            fresh = list(now)
            for before in was:
                after = _same(before, was, now) or _named(before.name, self._new.hearers(topic))
                fresh = [each for each in fresh if each != after]
                yield from self._handler(topic, before, after) if after else [self._handler_gone(topic, before)]
            for handler in fresh:
                before_by_pattern = _named(handler.name, self._old.hearers(topic))
                if before_by_pattern:
                    yield from self._handler(topic, before_by_pattern, handler)
                else:
                    yield from self._handler_new(topic, handler, was)

    def _handler_gone(self, topic: str, handler: Handler) -> Change:
        reached = {*self._old.reached(topic), *self._new.reached(topic)}
        unheard = [each for each in sorted(reached) if not self._new.hearers(each)]
        breaks = distinct(broken for each in unheard for broken in self._of_gone_answer(each))
        lost = [each for each in unheard if self._is_public(each)]
        why = f"{handler.name} no longer hears {topic}"
        if lost and topic not in lost:
            why += f", and nobody hears {', '.join(lost)}"
        elif topic in unheard:
            why += ", nor does anybody else"
        return Change("handler-removed", topic, why, handler.subscription.span, handler.name, breaks=breaks,
                      is_public=bool(lost) or self._is_public(topic), is_breaking=bool(breaks or lost),
                      is_new_place=False)  # fmt: skip

    def _handler_new(self, topic: str, handler: Handler, others: tuple[Handler, ...]) -> Iterator[Change]:
        asked = [each for each in self._new.reached(topic) if not self._is_public(each)]
        breaks = distinct(broken for each in asked for broken in self._of_second_answer(each))
        why = f"{handler.name} hears {topic} now"
        head = Change("handler-added", topic, why, handler.subscription.span, handler.name,
                      is_public=self._is_public(topic))  # fmt: skip
        yield head._replace(is_breaking=bool(breaks), breaks=breaks)
        known = merged([each.needs for each in others])
        if known is not None:  # who publishes from outside knows what the others take
            yield from (change for change in self._needs(head, known, handler) if change.is_breaking)

    def _handler(self, topic: str, before: Handler, after: Handler) -> Iterator[Change]:
        is_public = self._is_public(topic)
        head = Change("type-changed", topic, "", after.subscription.span, after.name, is_public=is_public)
        yield from self._needs(head, before.needs, after)
        method = after.method
        if method and not method.has_schema and (self._new.asked(topic) or is_public):
            found = type_differences(answer_of(before), answer_of(after), "output", "answer")
            head = head._replace(span=method.span)
            yield from (_at(head, each, self._of_answer(topic, each)) for each in found)

    def _needs(self, head: Change, before: Schema, handler: Handler) -> Iterator[Change]:
        return _schemas(head, before, handler.needs, "input", lambda change: self._of_handler(handler, change, before))

    # --- who relies on what has changed: the ends of the new graph, each beside what it was ---

    def _is_untouched(self, agent: AgentDefinition) -> bool:
        """True when the text of a class is what it was."""
        was = self._old.agents.get(agent.name)
        return was is not None and was.source_digest == agent.source_digest

    # --- who relies on a method ------------------------------------------------------------------------

    def _of_gone_agent(self, agent: str) -> Iterator[Broken]:
        """Calls to an agent that is no longer there, and agents that depend on it."""
        yield from self._of_gone_method(agent, "")
        for other in self._new.agents.values():
            for dependency in other.dependencies:
                if dependency.name == agent:
                    yield Broken(f"{other.name} → {agent}", other.name, dependency.span, "still depends on it")

    def _of_gone_method(self, agent: str, method: str) -> Iterator[Broken]:
        """Calls to a method that is no longer there."""
        for caller, call in self._new.calls(agent, method):
            yield _call(caller, call, "still calls it")

    def _of_input(self, agent: str, method: str, change: Change, pair: tuple[Schema, Schema]) -> Iterator[Broken]:
        """Calls whose arguments the new input refuses; of a change that breaks nothing, those that it took before."""
        before, after = pair
        for caller, call in self._new.calls(agent, method) if change.name else ():
            why, is_certain = self._misfit(caller, call, change, after)
            was_unfit = not change.is_breaking and self._misfit(caller, call, change, before)[0]
            if why and not was_unfit:
                yield _call(caller, call, why, is_certain=is_certain)

    def _misfit(self, caller: AgentDefinition, call: Call, change: Change, after: Schema) -> tuple[str, bool]:
        was, name = change.was or change.name, change.name
        wanted, given = after.get(name), call.arguments.get(name)
        if call.arguments.get(was) and not after.get(was) and not after.is_open:
            return f"still gives {was!r}", True
        if wanted and wanted.required and not given:
            return (f"may not give {name!r}", False) if call.has_unknown else (f"gives no {name!r}", True)
        if not wanted or not given:
            return "", True
        reason = why_not(wanted.type, given.type, is_narrowed=True)
        if reason:
            return f"gives an unfit {name!r}: {reason}", True
        is_unknown = given.type.kind in ("unknown", "any") and change.kind == "type-changed"
        is_doubtful = change.is_breaking and is_unknown and self._is_untouched(caller)
        return (f"gives a {name!r} that is not known", False) if is_doubtful else ("", True)

    def _of_output(self, agent: str, method: str, change: Change) -> Iterator[Broken]:
        """Calls in classes that did not change: what they read of the result is not known, and is what it was."""
        for caller, call in self._new.calls(agent, method) if change.is_breaking else ():
            if self._is_untouched(caller):
                yield _call(caller, call, "reads the result as it was", is_certain=False)

    # --- payloads -----------------------------------------------------------------------

    def _of_gone_topic(self, topic: str) -> Iterator[Broken]:
        """Handlers of a topic that nobody publishes any more; not those of a pattern that others still feed."""
        is_certain = not (self._new.may_compute(topic) or self._new.is_external(topic))
        for handler in self._new.hearers(topic):
            if handler.subscription.topic == topic or not self._new.is_fed(handler.subscription.topic):
                why = "still waits for it" if is_certain else "still waits for it, and may get it from elsewhere"
                yield _handler(topic, handler, why, is_certain=is_certain)

    def _of_payload(self, topic: str, change: Change, before: Schema | None, after: Schema | None) -> Iterator[Broken]:
        """Handlers that cannot take the new payload; of a change that breaks nothing, those that took the old one."""
        if after is None:
            yield from self._of_unknown_payload(topic)
            return
        name = change.was or change.name
        for handler in self._new.hearers(topic):
            need = handler.needs.get(name)
            why, is_certain = _unmet(need, after)
            if not change.is_breaking and _unmet(need, before)[0]:
                continue
            if not why and change.is_breaking and self._may_rely(handler, need, change):
                why, is_certain = f"takes {name!r} as it was" if need else "passes the payload on as it was", False
            if why:
                yield _handler(topic, handler, why, _place_of(handler, name), is_certain=is_certain)

    def _of_unknown_payload(self, topic: str) -> Iterator[Broken]:
        for handler in self._new.hearers(topic):
            needed = [repr(field.name) for field in handler.needs.fields if field.required]
            if self._is_untouched(handler.agent) and (needed or not handler.is_whole):
                why = f"needs {', '.join(needed)}" if needed else "passes the payload on as it was"
                yield _handler(topic, handler, why, is_certain=False)

    def _may_rely(self, handler: Handler, need: Field | None, change: Change) -> bool:
        if not self._is_untouched(handler.agent):
            return False
        return not handler.is_whole if need is None else need.type.kind == "unknown" and change.kind == "type-changed"

    # --- handlers -----------------------------------------------------------------------

    def _of_handler(self, handler: Handler, change: Change, before: Schema) -> Iterator[Broken]:
        """Publications that a handler no longer takes; of a change that breaks nothing, those that it took before."""
        was, need = before.get(change.was or change.name), handler.needs.get(change.name)
        for said in self._new.speakers(handler.subscription.topic) if need else ():
            why, is_certain = self._says_too_little(said, need, change)
            was_unfit = not change.is_breaking and _unmet(was, said.publication.payload)[0]
            if why and not was_unfit:
                yield _publication(said, why, handler.name, is_certain=is_certain)

    def _says_too_little(self, said: Said, need: Field | None, change: Change) -> tuple[str, bool]:
        payload = said.publication.payload
        if payload is None:  # what is declared is kept at run time
            payload = self._new.payload(said.publication.topic)
        if payload is None:
            is_doubtful = change.is_breaking and self._is_untouched(said.agent)
            return ("publishes what is not known", False) if is_doubtful else ("", True)
        why, is_certain = _unmet(need, payload)
        why = why.replace("needs", "does not send" if is_certain else "may not send")
        return why.removesuffix(", which may be missing"), is_certain

    def _of_gone_answer(self, topic: str) -> Iterator[Broken]:
        """Requests that nobody answers any more."""
        for said in self._new.asked(topic) if not self._new.hearers(topic) else ():
            yield _publication(said, "still asks, and nobody answers")

    def _of_second_answer(self, topic: str) -> Iterator[Broken]:
        """Requests that more than one handler would answer now."""
        is_new = len(self._old.hearers(topic)) < 2 <= len(self._new.hearers(topic))
        for said in self._new.asked(topic) if is_new else ():
            yield _publication(said, "asks, and more than one handler would answer")

    def _of_answer(self, topic: str, change: Change) -> Iterator[Broken]:
        """Requests in classes that did not change: what they read of the answer is what it was."""
        for said in self._new.speakers(topic) if change.is_breaking else ():
            if said.publication.is_request and self._is_untouched(said.agent):
                yield _publication(said, "reads the answer as it was", is_certain=False)


def _has_methods(agent: AgentDefinition) -> bool:
    return any(method.has_schema for method in agent.methods)


def _publishers(head: Change, was: set[str], now: set[str]) -> Iterator[Change]:
    others = ", ".join(sorted(now))
    for name in sorted(now - was):
        yield head._replace(kind="publisher-added", why=f"{name} publishes {head.place} as well", part=name)
    for name in sorted(was - now):
        why = f"{name} no longer publishes {head.place}; {others} still does"
        yield head._replace(kind="publisher-removed", why=why, part=name)


def _named(name: str, handlers: Iterable[Handler]) -> Handler | None:
    return next((each for each in handlers if each.name == name), None)


def _same(before: Handler, was: Iterable[Handler], now: Iterable[Handler]) -> Handler | None:
    """The same handler now; one that is alone in its agent may have another name."""
    mine = [each for each in was if each.agent.name == before.agent.name]
    theirs = [each for each in now if each.agent.name == before.agent.name]
    return _named(before.name, theirs) or (theirs[0] if len(mine) == len(theirs) == 1 else None)


# --- one schema after the other ------------------------------------------------------------


def _schemas(
    head: Change, before: Schema | None, after: Schema | None, side: Side, breaks: Breaks, *, is_closed: bool = False
) -> Iterator[Change]:
    if before is not None and after is not None:
        for change in differences(before, after, side, is_closed=is_closed):
            yield _at(head, change, breaks(change))
    elif after is not None:
        why = "nothing was known of it, it is declared now"
        yield head._replace(kind="schema-known", why=why, after=str(after), is_certain=False)
    elif before is not None:
        head = head._replace(kind="schema-unknown", before=str(before))
        if side == "input":
            yield head._replace(why="anything is let in now, as far as can be read")
            return
        head = head._replace(why="what was promised is gone, or cannot be read any more", is_breaking=True)
        yield head._replace(breaks=distinct(breaks(head)))


def _at(head: Change, change: Change, breaks: Iterable[Broken]) -> Change:
    """A difference of two schemas at its place."""
    return change._replace(
        place=head.place, span=head.span, part=head.part, is_public=head.is_public, breaks=distinct(breaks)
    )


def distinct(found: Iterable[Broken]) -> tuple[Broken, ...]:
    """Give each place once, by place."""
    kept = {(broken.span, broken.edge): broken for broken in found}
    return tuple(sorted(kept.values(), key=lambda each: (each.span.path, each.span.line, each.span.column, each.edge)))


def _call(caller: AgentDefinition, call: Call, why: str, *, is_certain: bool = True) -> Broken:
    return Broken(f"{caller.name} → {call.agent}.{call.method or '?'}", caller.name, call.span, why, is_certain)


def _handler(
    topic: str, handler: Handler, why: str, span: SourceSpan | None = None, *, is_certain: bool = True
) -> Broken:
    return Broken(f"{topic} → {handler.name}", handler.agent.name, span or handler.subscription.span, why, is_certain)


def _publication(said: Said, why: str, target: str = "", *, is_certain: bool = True) -> Broken:
    edge = " → ".join(filter(None, (said.agent.name, said.publication.topic, target)))
    return Broken(edge, said.agent.name, said.publication.span, why, is_certain)


def _unmet(need: Field | None, payload: Schema | None) -> tuple[str, bool]:
    """Say why a payload does not give what is needed, empty if it does, and whether that is certain, as the rules see it."""
    if payload is None or need is None:
        return "", True
    found = payload.get(need.name)
    if found is None:
        is_owed = need.required and not payload.is_open
        return f"needs {need.name!r}" if is_owed else "", True
    reason = why_not(need.type, found.type, is_narrowed=True)
    if reason:
        return f"takes another {need.name!r}: {reason}", True
    is_doubtful = need.required and not found.required
    return f"needs {need.name!r}, which may be missing" if is_doubtful else "", False


def _place_of(handler: Handler, name: str) -> SourceSpan:
    subscription = handler.subscription
    found = [each.span for each in subscription.reads if each.key == name]
    found += [each.span for each in subscription.fields if each.name == name]
    return found[0] if found else subscription.span
