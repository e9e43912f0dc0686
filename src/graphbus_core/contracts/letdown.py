"""Who is let down by a difference: the other ends of the new graph, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.contracts.changes import Broken
from graphbus_core.contracts.differences import Difference
from graphbus_core.contracts.surface import Handler, Said, Surface
from graphbus_core.model.agent import AgentDefinition, Call, SourceSpan
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.types import Field, Schema


class States:
    """A graph before and after."""

    def __init__(self, old: Surface, new: Surface) -> None:
        self.old = old
        self.new = new

    def is_untouched(self, agent: AgentDefinition) -> bool:
        """True when the text of a class is what it was: it relies on what it relied on."""
        was = self.old.agents.get(agent.name)
        return was is not None and was.source_digest == agent.source_digest

    # --- methods ------------------------------------------------------------------------

    def callers_of_gone(self, agent: str, method: str = "") -> Iterator[Broken]:
        """Calls to what is no longer there."""
        for caller, call in self.new.calls(agent, method):
            yield _of_call(caller, call, agent, "still calls it")

    def dependants_of_gone(self, agent: str) -> Iterator[Broken]:
        """Agents that depend on one that is no longer there."""
        for other in self.new.agents.values():
            for dependency in other.dependencies:
                if dependency.name == agent:
                    yield Broken(f"{other.name} → {agent}", other.name, dependency.span, "still depends on it")

    def callers_of_input(
        self, agent: str, method: str, difference: Difference, pair: tuple[Schema, Schema]
    ) -> Iterator[Broken]:
        """Calls whose arguments the new input refuses; of a change that breaks nothing, those that it took before."""
        before, after = pair
        for caller, call in self.new.calls(agent, method) if difference.name else ():
            why, is_certain = self._call_misfits(caller, call, difference, after)
            was_unfit = not difference.is_breaking and self._call_misfits(caller, call, difference, before)[0]
            if why and not was_unfit:
                yield _of_call(caller, call, agent, why, is_certain=is_certain)

    def _call_misfits(
        self, caller: AgentDefinition, call: Call, difference: Difference, after: Schema
    ) -> tuple[str, bool]:
        was, name = difference.was or difference.name, difference.name
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
        is_doubtful = difference.is_breaking and given.type.kind in ("unknown", "any") and difference.kind == "type"
        return (
            (f"gives a {name!r} that is not known", False) if is_doubtful and self.is_untouched(caller) else ("", True)
        )

    def callers_of_output(self, agent: str, method: str) -> Iterator[Broken]:
        """Calls in classes that did not change: what they read of the result is not known, and is what it was."""
        for caller, call in self.new.calls(agent, method):
            if self.is_untouched(caller):
                yield _of_call(caller, call, agent, "reads the result as it was", is_certain=False)

    # --- topics -------------------------------------------------------------------------

    def hearers_of_gone(self, topic: str) -> Iterator[Broken]:
        """Handlers of a topic that nobody publishes any more; not those of a pattern that others still feed."""
        is_certain = not (self.new.may_compute(topic) or self.new.is_external(topic))
        for handler in self.new.hearers(topic):
            heard = handler.subscription.topic
            if heard == topic or not (
                self.new.speakers(heard) or any(map(self.new.is_external, self.new.reached(heard)))
            ):
                why = "still waits for it" if is_certain else "still waits for it, and may get it from elsewhere"
                edge = f"{topic} → {handler.name}"
                yield Broken(edge, handler.agent.name, handler.subscription.span, why, is_certain)

    def may_be_computed_now(self, topic: str) -> bool:
        """True when an agent that has changed computes a topic that may be this one."""
        return any(not self.is_untouched(each.agent) for each in self.new.may_compute(topic))

    def hearers_of_payload(
        self, topic: str, difference: Difference, pair: tuple[Schema | None, Schema | None]
    ) -> Iterator[Broken]:
        """Handlers that the new payload lets down; of a change that breaks nothing, those that the old one did not."""
        before, after = pair
        if after is None:
            yield from self._hearers_of_unknown(topic)
            return
        for handler in self.new.hearers(topic):
            name = difference.was or difference.name
            need = handler.needs.get(name)
            why, is_certain = _unmet(need, after)
            if not difference.is_breaking and _unmet(need, before)[0]:
                continue
            if not why and difference.is_breaking and self._may_rely(handler, name, difference):
                why = f"takes {name!r} as it was" if need else "passes the payload on as it was"
                is_certain = False
            if why:
                edge = f"{topic} → {handler.name}"
                yield Broken(edge, handler.agent.name, _place_of(handler, name), why, is_certain)

    def _hearers_of_unknown(self, topic: str) -> Iterator[Broken]:
        for handler in self.new.hearers(topic):
            needed = [repr(field.name) for field in handler.needs.fields if field.required]
            if self.is_untouched(handler.agent) and (needed or not handler.is_whole):
                why = f"needs {', '.join(needed)}" if needed else "passes the payload on as it was"
                edge = f"{topic} → {handler.name}"
                yield Broken(edge, handler.agent.name, handler.subscription.span, why, is_certain=False)

    def _may_rely(self, handler: Handler, name: str, difference: Difference) -> bool:
        need = handler.needs.get(name)
        if not self.is_untouched(handler.agent):
            return False
        return not handler.is_whole if need is None else need.type.kind == "unknown" and difference.kind == "type"

    def speakers_to(self, handler: Handler, difference: Difference, before: Schema) -> Iterator[Broken]:
        """Publications that a handler can no longer take; of a change that breaks nothing, those that it took before."""
        was = before.get(difference.was or difference.name)
        need = handler.needs.get(difference.name)
        for said in self.new.speakers(handler.subscription.topic) if need else ():
            why, is_certain = self._say_too_little(said, need, difference)
            was_unfit = not difference.is_breaking and _unmet(was, said.publication.payload)[0]
            if why and not was_unfit:
                edge = f"{said.agent.name} → {said.publication.topic} → {handler.name}"
                yield Broken(edge, said.agent.name, said.publication.span, why, is_certain)

    def _say_too_little(self, said: Said, need: Field | None, difference: Difference) -> tuple[str, bool]:
        payload = said.publication.payload
        if payload is None:  # what is declared is kept at run time
            payload = self.new.payload(said.publication.topic)
        if payload is None:
            is_doubtful = difference.is_breaking and self.is_untouched(said.agent)
            return ("publishes what is not known", False) if is_doubtful else ("", True)
        why, is_certain = _unmet(need, payload)
        return why.replace("needs", "does not send" if is_certain else "may not send").removesuffix(
            ", which may be missing"
        ), is_certain

    def askers_of_gone(self, topic: str) -> Iterator[Broken]:
        """Requests that nobody answers any more."""
        for said in self.new.said.get(topic, ()):
            if said.publication.is_request and not self.new.hearers(topic):
                edge = f"{said.agent.name} → {topic}"
                yield Broken(edge, said.agent.name, said.publication.span, "still asks, and nobody answers")

    def askers_of_many(self, topic: str) -> Iterator[Broken]:
        """Requests that more than one handler would answer now."""
        if len(self.old.hearers(topic)) > 1 or len(self.new.hearers(topic)) < 2:
            return
        for said in self.new.said.get(topic, ()):
            if said.publication.is_request:
                edge = f"{said.agent.name} → {topic}"
                yield Broken(
                    edge, said.agent.name, said.publication.span, "asks, and more than one handler would answer"
                )

    def askers(self, topic: str) -> Iterator[Broken]:
        """Requests in classes that did not change: what they read of the answer is what it was."""
        for said in self.new.speakers(topic):
            if said.publication.is_request and self.is_untouched(said.agent):
                edge = f"{said.agent.name} → {said.publication.topic}"
                yield Broken(edge, said.agent.name, said.publication.span, "reads the answer as it was", False)


def distinct(found: Iterable[Broken]) -> tuple[Broken, ...]:
    """Give each place once, by place."""
    kept = {(broken.span, broken.edge): broken for broken in found}
    return tuple(sorted(kept.values(), key=lambda each: (each.span.path, each.span.line, each.span.column, each.edge)))


def _of_call(caller: AgentDefinition, call: Call, agent: str, why: str, *, is_certain: bool = True) -> Broken:
    return Broken(f"{caller.name} → {agent}.{call.method or '?'}", caller.name, call.span, why, is_certain)


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
    read = next((each.span for each in subscription.reads if each.key == name), None)
    parameter = next((each.span for each in subscription.fields if each.name == name), None)
    return read or parameter or subscription.span
