"""Who relies on what has changed: the other ends of the edges of the new graph, as they are now.

An end whose class did not change relies on what it relied on before. Where nobody can know what that was, `is_certain` is False.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.contracts.changes import Broken, Change
from graphbus_core.contracts.surface import Handler, Said, Surface
from graphbus_core.model.agent import AgentDefinition, Call, SourceSpan
from graphbus_core.model.schema import Field, Schema
from graphbus_core.model.schema_fit import why_not


class Consumers:
    """The ends of the new graph, each beside what it was."""

    def __init__(self, old: Surface, new: Surface) -> None:
        self.old = old
        self.new = new

    def is_untouched(self, agent: AgentDefinition) -> bool:
        """True when the text of a class is what it was."""
        was = self.old.agents.get(agent.name)
        return was is not None and was.source_digest == agent.source_digest

    # --- methods ------------------------------------------------------------------------

    def of_gone_agent(self, agent: str) -> Iterator[Broken]:
        """Calls to an agent that is no longer there, and agents that depend on it."""
        yield from self.of_gone_method(agent, "")
        for other in self.new.agents.values():
            for dependency in other.dependencies:
                if dependency.name == agent:
                    yield Broken(f"{other.name} → {agent}", other.name, dependency.span, "still depends on it")

    def of_gone_method(self, agent: str, method: str) -> Iterator[Broken]:
        """Calls to a method that is no longer there."""
        for caller, call in self.new.calls(agent, method):
            yield _call(caller, call, "still calls it")

    def of_input(self, agent: str, method: str, change: Change, pair: tuple[Schema, Schema]) -> Iterator[Broken]:
        """Calls whose arguments the new input refuses; of a change that breaks nothing, those that it took before."""
        before, after = pair
        for caller, call in self.new.calls(agent, method) if change.name else ():
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
        is_doubtful = change.is_breaking and is_unknown and self.is_untouched(caller)
        return (f"gives a {name!r} that is not known", False) if is_doubtful else ("", True)

    def of_output(self, agent: str, method: str, change: Change) -> Iterator[Broken]:
        """Calls in classes that did not change: what they read of the result is not known, and is what it was."""
        for caller, call in self.new.calls(agent, method) if change.is_breaking else ():
            if self.is_untouched(caller):
                yield _call(caller, call, "reads the result as it was", is_certain=False)

    # --- payloads -----------------------------------------------------------------------

    def of_gone_topic(self, topic: str) -> Iterator[Broken]:
        """Handlers of a topic that nobody publishes any more; not those of a pattern that others still feed."""
        is_certain = not (self.new.may_compute(topic) or self.new.is_external(topic))
        for handler in self.new.hearers(topic):
            if handler.subscription.topic == topic or not self.new.is_fed(handler.subscription.topic):
                why = "still waits for it" if is_certain else "still waits for it, and may get it from elsewhere"
                yield _handler(topic, handler, why, is_certain=is_certain)

    def of_payload(self, topic: str, change: Change, before: Schema | None, after: Schema | None) -> Iterator[Broken]:
        """Handlers that cannot take the new payload; of a change that breaks nothing, those that took the old one."""
        if after is None:
            yield from self._of_unknown_payload(topic)
            return
        name = change.was or change.name
        for handler in self.new.hearers(topic):
            need = handler.needs.get(name)
            why, is_certain = _unmet(need, after)
            if not change.is_breaking and _unmet(need, before)[0]:
                continue
            if not why and change.is_breaking and self._may_rely(handler, need, change):
                why, is_certain = f"takes {name!r} as it was" if need else "passes the payload on as it was", False
            if why:
                yield _handler(topic, handler, why, _place_of(handler, name), is_certain=is_certain)

    def _of_unknown_payload(self, topic: str) -> Iterator[Broken]:
        for handler in self.new.hearers(topic):
            needed = [repr(field.name) for field in handler.needs.fields if field.required]
            if self.is_untouched(handler.agent) and (needed or not handler.is_whole):
                why = f"needs {', '.join(needed)}" if needed else "passes the payload on as it was"
                yield _handler(topic, handler, why, is_certain=False)

    def _may_rely(self, handler: Handler, need: Field | None, change: Change) -> bool:
        if not self.is_untouched(handler.agent):
            return False
        return not handler.is_whole if need is None else need.type.kind == "unknown" and change.kind == "type-changed"

    # --- handlers -----------------------------------------------------------------------

    def of_handler(self, handler: Handler, change: Change, before: Schema) -> Iterator[Broken]:
        """Publications that a handler no longer takes; of a change that breaks nothing, those that it took before."""
        was, need = before.get(change.was or change.name), handler.needs.get(change.name)
        for said in self.new.speakers(handler.subscription.topic) if need else ():
            why, is_certain = self._says_too_little(said, need, change)
            was_unfit = not change.is_breaking and _unmet(was, said.publication.payload)[0]
            if why and not was_unfit:
                yield _publication(said, why, handler.name, is_certain=is_certain)

    def _says_too_little(self, said: Said, need: Field | None, change: Change) -> tuple[str, bool]:
        payload = said.publication.payload
        if payload is None:  # what is declared is kept at run time
            payload = self.new.payload(said.publication.topic)
        if payload is None:
            is_doubtful = change.is_breaking and self.is_untouched(said.agent)
            return ("publishes what is not known", False) if is_doubtful else ("", True)
        why, is_certain = _unmet(need, payload)
        why = why.replace("needs", "does not send" if is_certain else "may not send")
        return why.removesuffix(", which may be missing"), is_certain

    def of_gone_answer(self, topic: str) -> Iterator[Broken]:
        """Requests that nobody answers any more."""
        for said in self.new.asked(topic) if not self.new.hearers(topic) else ():
            yield _publication(said, "still asks, and nobody answers")

    def of_second_answer(self, topic: str) -> Iterator[Broken]:
        """Requests that more than one handler would answer now."""
        is_new = len(self.old.hearers(topic)) < 2 <= len(self.new.hearers(topic))
        for said in self.new.asked(topic) if is_new else ():
            yield _publication(said, "asks, and more than one handler would answer")

    def of_answer(self, topic: str, change: Change) -> Iterator[Broken]:
        """Requests in classes that did not change: what they read of the answer is what it was."""
        for said in self.new.speakers(topic) if change.is_breaking else ():
            if said.publication.is_request and self.is_untouched(said.agent):
                yield _publication(said, "reads the answer as it was", is_certain=False)


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
