"""Two states of a graph, compared: every promise that is different, whether that breaks it, and for whom.

methods      arguments are taken, results are given; whoever reaches the graph over HTTP or Python may call them
topics       publishers give payloads, handlers take them, and answer requests; `external_topics` belong to others as well
agents       are called and depended on by name
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from graphbus_core.contracts.changes import Broken, Change, ChangeKind
from graphbus_core.contracts.differences import Difference, DifferenceKind, differences, type_differences
from graphbus_core.contracts.letdown import States, distinct
from graphbus_core.contracts.surface import Handler, Surface, answer_of, merged
from graphbus_core.model.agent import AgentDefinition, MethodSpec
from graphbus_core.schema.types import Schema

_KINDS: Mapping[DifferenceKind, ChangeKind] = {
    "added": "field-added",
    "removed": "field-removed",
    "renamed": "field-renamed",
    "required": "field-required",
    "optional": "field-optional",
    "type": "type-changed",
    "opened": "fields-opened",
    "closed": "fields-closed",
}
_RANK = {"breaking": 0, "settled": 1, "compatible": 2}

LetDown = Callable[[Difference], Iterable[Broken]]


def compare(old: Surface, new: Surface) -> tuple[Change, ...]:
    """Give everything that differs, what breaks first, then by place.

    Args:
        old: The promises as they were.
        new: The promises as they are; what a change breaks are edges of this state.
    """
    comparison = _Comparison(old, new)
    found = [*comparison.agents(), *comparison.methods(), *comparison.payloads(), *comparison.handlers()]
    return tuple(
        sorted(found, key=lambda change: (_RANK[change.effect], change.place, change.what, change.path, change.kind))
    )


class _Comparison:
    def __init__(self, old: Surface, new: Surface) -> None:
        self._names = _renamed(old, new)
        self._old = _with_names(old, self._names)
        self._new = new
        self._was = old
        self._states = States(self._old, new)

    # --- agents -------------------------------------------------------------------------

    def agents(self) -> Iterator[Change]:
        """Find agents that have come, gone, or go by another name, and what they depend on."""
        for before, after in self._names.items():
            agent = self._new.agents[after]
            breaks = self._gone(before)
            why = f"{before} is called {after} now"
            yield self._agent_change("agent-renamed", agent, before, why, breaks, is_breaking=True)
        for name in self._old.agents.keys() - self._new.agents.keys():
            agent = self._old.agents[name]
            breaks = self._gone(name)
            yield self._agent_change("agent-removed", agent, name, f"{name} is gone", breaks, is_breaking=True)
        for name in self._new.agents.keys() - self._old.agents.keys():
            yield self._agent_change("agent-added", self._new.agents[name], name, f"{name} is new", ())
        for name in self._old.agents.keys() & self._new.agents.keys():
            yield from self._dependencies(self._old.agents[name], self._new.agents[name])

    def _gone(self, name: str) -> tuple[Broken, ...]:
        return distinct([*self._states.callers_of_gone(name), *self._states.dependants_of_gone(name)])

    @staticmethod
    def _agent_change(
        kind: ChangeKind,
        agent: AgentDefinition,
        place: str,
        why: str,
        breaks: tuple[Broken, ...],
        *,
        is_breaking: bool = False,
    ) -> Change:
        is_public = any(method.has_schema for method in agent.methods)
        return Change(kind, place, why, agent.name_span, is_breaking=is_breaking, is_public=is_public, breaks=breaks,
                      is_new_place=kind != "agent-removed")  # fmt: skip

    def _dependencies(self, before: AgentDefinition, after: AgentDefinition) -> Iterator[Change]:
        was = {each.name: each for each in before.dependencies}
        now = {each.name: each for each in after.dependencies}
        for name in now.keys() - was.keys():
            yield Change("dependency-added", after.name, f"{after.name} depends on {name} now", now[name].span)
        for name in was.keys() - now.keys():
            calls = [] if name == after.name else [call for call in after.calls if call.agent == name]
            breaks = distinct(
                Broken(f"{after.name} → {name}.{call.method or '?'}", after.name, call.span, "calls it all the same")
                for call in calls
                if name in self._new.agents
            )
            why = f"{after.name} no longer depends on {name}"
            yield Change(
                "dependency-removed", after.name, why, after.name_span, is_breaking=bool(breaks), breaks=breaks
            )

    # --- methods ------------------------------------------------------------------------

    def methods(self) -> Iterator[Change]:
        """Find methods that have come or gone, and what differs in their arguments and results."""
        for agent in sorted(self._old.agents.keys() & self._new.agents.keys()):
            was, now = self._old.methods(agent), self._new.methods(agent)
            for name in sorted(was.keys() | now.keys()):
                if name not in now:
                    yield self._method_gone(agent, was[name])
                elif name not in was:
                    yield Change(
                        "method-added", f"{agent}.{name}", f"{agent}.{name} is new", now[name].span, is_public=True
                    )
                else:
                    yield from self._method(agent, was[name], now[name])

    def _method_gone(self, agent: str, method: MethodSpec) -> Change:
        left = self._new.agents[agent].method(method.name)
        why = "has no @schema_method any more" if left else "is gone"
        breaks = distinct(self._states.callers_of_gone(agent, method.name))
        place = f"{agent}.{method.name}"
        span = left.span if left else method.span
        return Change("method-removed", place, f"{place} {why}", span, is_breaking=True, is_public=True, breaks=breaks,
                      is_new_place=left is not None)  # fmt: skip

    def _method(self, agent: str, was: MethodSpec, now: MethodSpec) -> Iterator[Change]:
        place, span = f"{agent}.{now.name}", now.schema_span or now.span
        head = Change("type-changed", place, "", span, is_public=True)

        def calls(difference: Difference) -> Iterator[Broken]:
            pair = was.input_schema or Schema(), now.input_schema or Schema()
            return self._states.callers_of_input(agent, now.name, difference, pair)

        def reads(difference: Difference) -> Iterable[Broken]:
            return self._states.callers_of_output(agent, now.name) if difference.is_breaking else ()

        yield from _schemas(head._replace(what="input"), was.input_schema, now.input_schema, calls)
        yield from _schemas(head._replace(what="output"), was.output_schema, now.output_schema, reads)

    # --- topics: what is given ----------------------------------------------------------

    def payloads(self) -> Iterator[Change]:
        """Find topics that are published or no longer, by whom, and what differs in their payloads."""
        for topic in sorted(self._old.said.keys() | self._new.said.keys()):
            was, now = self._old.said.get(topic, ()), self._new.said.get(topic, ())
            head = Change("topic-added", topic, "", (now or was)[0].publication.span, is_public=self._is_public(topic))
            if not now:
                yield self._topic_gone(head)
            elif not was:
                yield head._replace(why=f"{topic} is published now")
            else:
                yield from self._publishers(head, {each.agent.name for each in was}, {each.agent.name for each in now})
                yield from self._payload(head._replace(what="payload"), topic)

    def _topic_gone(self, head: Change) -> Change:
        head = head._replace(kind="topic-removed", why=f"nobody publishes {head.place} any more", is_new_place=False)
        if self._states.may_be_computed_now(head.place):
            why = f"{head.place} is published by that name no more; a topic that is computed now may be the same"
            return head._replace(why=why, is_certain=False)
        return head._replace(is_breaking=True, breaks=distinct(self._states.hearers_of_gone(head.place)))

    def _publishers(self, head: Change, was: set[str], now: set[str]) -> Iterator[Change]:
        others = ", ".join(sorted(now))
        for name in sorted(now - was):
            yield head._replace(kind="publisher-added", why=f"{name} publishes {head.place} as well", what=name)
        for name in sorted(was - now):
            yield head._replace(
                kind="publisher-removed", why=f"{name} no longer publishes {head.place}; {others} still does", what=name
            )

    def _payload(self, head: Change, topic: str) -> Iterator[Change]:
        before, after = self._old.payload(topic), self._new.payload(topic)
        declared = [each.publication for each in self._new.said[topic] if each.publication.is_declared]
        head = head._replace(span=declared[0].span) if declared else head
        was_declared = any(each.publication.is_declared for each in self._old.said[topic])
        if before is not None and after is None and not was_declared:
            why = "cannot be read from the code any more"
            yield head._replace(kind="schema-unknown", why=why, before=str(before), is_certain=False)
            return
        yield from _schemas(
            head, before, after, lambda each: self._states.hearers_of_payload(topic, each, (before, after)), "output"
        )

    def _is_public(self, topic: str) -> bool:
        return self._was.is_external(topic) or self._new.is_external(topic)

    # --- topics: what is taken ----------------------------------------------------------

    def handlers(self) -> Iterator[Change]:
        """Find handlers that have come or gone, and what differs in what they take and answer."""
        for topic in sorted(self._old.heard.keys() | self._new.heard.keys()):
            was, now = self._old.heard.get(topic, ()), self._new.heard.get(topic, ())
            pairs = _paired(was, now)
            for handler in (each for each in was if each not in [before for before, _ in pairs]):
                still = next((each for each in self._new.hearers(topic) if each.name == handler.name), None)
                yield from self._handler(topic, handler, still) if still else (self._handler_gone(topic, handler),)
            for handler in (each for each in now if each not in [after for _, after in pairs]):
                before = next((each for each in self._old.hearers(topic) if each.name == handler.name), None)
                yield from self._handler(topic, before, handler) if before else self._handler_new(topic, handler, was)
            for before, after in pairs:
                yield from self._handler(topic, before, after)

    def _handler_gone(self, topic: str, handler: Handler) -> Change:
        reached = {*self._old.reached(topic), *self._new.reached(topic)}
        unheard = [each for each in sorted(reached) if not self._new.hearers(each)]
        breaks = distinct(broken for each in unheard for broken in self._states.askers_of_gone(each))
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
        span, is_public = handler.subscription.span, self._is_public(topic)
        asked = [each for each in self._new.reached(topic) if not self._is_public(each)]
        breaks = distinct(broken for each in asked for broken in self._states.askers_of_many(each))
        why = f"{handler.name} hears {topic} now"
        yield Change("handler-added", topic, why, span, handler.name, is_public=is_public, is_breaking=bool(breaks),
                     breaks=breaks)  # fmt: skip
        known = merged([each.needs for each in others])
        if known is not None:  # who publishes from outside knows what the others take
            head = Change("type-changed", topic, "", span, handler.name, is_public=is_public)
            yield from (
                change
                for change in _schemas(
                    head, known, handler.needs, lambda each: self._states.speakers_to(handler, each, known), "input"
                )
                if change.is_breaking
            )

    def _handler(self, topic: str, before: Handler, after: Handler) -> Iterator[Change]:
        head = Change("type-changed", topic, "", after.subscription.span, after.name, is_public=self._is_public(topic))
        yield from _schemas(
            head, before.needs, after.needs, lambda each: self._states.speakers_to(after, each, before.needs), "input"
        )
        method = after.agent.method(after.subscription.method)
        is_asked = self._new.is_requested(topic) or self._is_public(topic)
        if is_asked and method and not method.has_schema:
            found = type_differences(answer_of(before), answer_of(after), "output", "answer")
            yield from (self._answer(head._replace(span=method.span), each) for each in found)

    def _answer(self, head: Change, difference: Difference) -> Change:
        return _change(head, difference, self._states.askers(head.place) if difference.is_breaking else ())


# --- one schema after the other ------------------------------------------------------------


def _schemas(
    head: Change, before: Schema | None, after: Schema | None, let_down: LetDown, side: str = ""
) -> Iterator[Change]:
    """Compare two schemas; of methods (no `side`) the part says who gives, and further arguments are refused."""
    is_input = (side or head.what) == "input"
    if before is None and after is None:
        return
    if before is None:
        yield head._replace(
            kind="schema-known", why="nothing was known of it, it is declared now", after=str(after), is_certain=False
        )
    elif after is None:
        is_breaking = not is_input
        why = (
            "anything is let in now, as far as can be read"
            if is_input
            else "what was promised is gone, or cannot be read any more"
        )
        whole = Difference("removed", "", is_breaking, why, name="")
        breaks = distinct(let_down(whole)) if is_breaking else ()
        yield head._replace(kind="schema-unknown", why=why, before=str(before), is_breaking=is_breaking, breaks=breaks)
    else:
        found = differences(before, after, "input" if is_input else "output", is_closed=is_input and not side)
        yield from (_change(head, each, let_down(each)) for each in found)


def _change(head: Change, difference: Difference, let_down: Iterable[Broken]) -> Change:
    return head._replace(
        kind=_KINDS[difference.kind],
        path=difference.path,
        why=difference.why,
        before=difference.before,
        after=difference.after,
        is_breaking=difference.is_breaking,
        is_certain=difference.is_certain,
        breaks=distinct(let_down),
        example=difference.example,
        is_new_value=difference.is_new_value,
    )


def _paired(was: tuple[Handler, ...], now: tuple[Handler, ...]) -> list[tuple[Handler, Handler]]:
    """The same handlers before and after; one that is alone in its agent may have another name."""
    pairs = []
    for before in was:
        same = [each for each in now if each.name == before.name]
        mine = [each for each in was if each.agent.name == before.agent.name]
        theirs = [each for each in now if each.agent.name == before.agent.name]
        if same or len(mine) == len(theirs) == 1:
            pairs.append((before, (same or theirs)[0]))
    return pairs


# --- agents under another name ---------------------------------------------------------------


def _renamed(old: Surface, new: Surface) -> dict[str, str]:
    """Old -> new name of each agent that is gone, where exactly one that is new promises, hears and says the same."""
    gone = [agent for name, agent in old.agents.items() if name not in new.agents]
    fresh = [agent for name, agent in new.agents.items() if name not in old.agents]
    found = {}
    for agent in gone:
        alike = [each for each in fresh if _shape(each) == _shape(agent)]
        rivals = [each for each in gone if _shape(each) == _shape(agent)]
        if len(alike) == len(rivals) == 1 and any(_shape(agent)):
            found[agent.name] = alike[0].name
    return found


def _shape(agent: AgentDefinition) -> tuple[frozenset[str], ...]:
    return (
        frozenset(f"{each.name}{each.input_schema}{each.output_schema}" for each in agent.methods if each.has_schema),
        frozenset(f"{each.topic}:{each.method}" for each in agent.subscriptions),
        frozenset(f"{each.topic}{each.payload}" for each in agent.publications),
    )


def _with_names(old: Surface, names: Mapping[str, str]) -> Surface:
    """The old state, with agents under the names that they have now."""
    if not names:
        return old
    import msgspec

    agents = [msgspec.structs.replace(each, name=names.get(name, name)) for name, each in old.agents.items()]
    return Surface(agents, old.topics)
