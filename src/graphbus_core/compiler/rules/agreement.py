"""GB004, GB006: what the publishers of one topic send, and the types of its Topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Demand,
    Wiring,
    demands_of,
    described,
    make_finding,
)
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import matches
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import UNKNOWN, Schema, Type

# --- GB004: publishers of one topic -------------------------------------------------------------


class _Known(msgspec.Struct, frozen=True):
    """A publication whose payload is known."""

    sent: AgentPublication
    payload: Schema

    @property
    def is_declared(self) -> bool:
        return self.sent.publication.is_declared

    def says(self, other: _Known) -> str:
        """Return the subject and verb for this publication in a message about another one."""
        if self.is_declared and self.sent.agent.name == other.sent.agent.name:
            return "its own declaration has"
        if self.sent.agent.name == other.sent.agent.name:
            return "elsewhere it sends"
        return f"{self.sent.agent.name} {'declares' if self.is_declared else 'sends'}"


_ONE_TYPE = "Make both ends of the topic agree on one type."
_Needs = dict[str, tuple[AgentSubscription, Demand]]


def check_agreement(wiring: Wiring) -> Iterator[Finding]:
    """Compare the publications of each topic with the declared payload, or else with the most frequent one."""
    for topic in sorted({sent.topic for sent in wiring.asked_publications if sent.topic}):
        publishers = wiring.publishers(topic)
        yield from _against_own_declaration(publishers)
        known = [_Known(sent, sent.publication.payload) for sent in publishers if sent.publication.payload is not None]
        if len(known) < 2:
            continue
        shapes = Counter(each.payload.names for each in known)
        usual = max(known, key=lambda each: shapes[each.payload.names])
        model = next((each for each in known if each.is_declared), usual)
        own = {each.sent.agent.name: each for each in reversed(known) if each.is_declared}
        needs = _needs(known, wiring)
        for other in known:
            yield from _compared(
                other, model if other.is_declared else own.get(other.sent.agent.name, model), needs, wiring
            )


def _compared(other: _Known, model: _Known, needs: _Needs, wiring: Wiring) -> Iterator[Finding]:
    is_of_types = all(each.sent.publication.promised.kind != "unknown" for each in (model, other))  # GB006
    if other is model or is_of_types:
        return
    is_told_apart = not model.is_declared and _are_told_apart(model.payload, other.payload)
    yield from [] if is_told_apart else _different_types(model, other)
    yield from _missing_keys(model, other, needs, is_told_apart=is_told_apart)


def _against_own_declaration(publishers: tuple[AgentPublication, ...]) -> Iterator[Finding]:
    """Find payloads that are of another kind than their agent declares; fields are compared by themselves."""
    own = {each.agent.name: each for each in reversed(publishers) if each.publication.is_declared}
    for sent in publishers:
        declared, publication = own.get(sent.agent.name), sent.publication
        if (
            declared is None
            or publication.is_declared
            or None not in (publication.payload, declared.publication.payload)
        ):
            continue
        wanted, given = declared.publication.payload_type, publication.payload_type
        if misfit_reason(wanted, given, is_narrowed=True):
            message = f"{sent.agent.name} sends {given} to {sent.topic!r}, but its own declaration says {wanted}"
            place = publication.payload_span or publication.span
            hint = "Send what is declared, or correct the declaration."
            yield make_finding(
                "GB004", sent.agent.name, place, message, hint, related=[described(declared)], data={"unfit": ""}
            )


def _needs(known: list[_Known], wiring: Wiring) -> _Needs:
    """Return the fields that handlers of a topic need and only some of its publications send."""
    names = [each.payload.names for each in known]
    contested = frozenset().union(*names) - frozenset.intersection(*map(frozenset, names))
    needs: _Needs = {}
    for heard in wiring.subscribers(known[0].sent.topic) if contested else ():
        for demand in demands_of(heard, wiring.project):
            if demand.name in contested:
                needs.setdefault(demand.name, (heard, demand))
    return needs


def _different_types(model: _Known, other: _Known) -> Iterator[Finding]:
    """Find keys whose values are of one type here and of another there."""
    for field in model.payload.fields:
        found = other.payload.get(field.name)
        given = found.type if found else UNKNOWN
        if misfit_reason(field.type, given, is_narrowed=True) if model.is_declared else is_disjoint(field.type, given):
            shown = " or ".join(map(repr, given.values)) if model.is_declared and given.values else given
            message = (
                f"sends {field.name!r} to {other.sent.topic!r} as {shown}, but {model.says(other)} it as {field.type}"
            )
            is_own = model.is_declared and model.sent.agent.name == other.sent.agent.name
            hint = "Send what is declared, or correct the declaration." if is_own else _ONE_TYPE
            yield _disagreement(other, model, message, hint, data={"unfit": field.name})


def _missing_keys(model: _Known, other: _Known, needs: _Needs, *, is_told_apart: bool) -> Iterator[Finding]:
    """Find keys that go by another name, and keys that are left out though a handler needs them of every event."""
    renamed = {} if is_told_apart else dict(_misnamed(model, other))
    for name, meant in renamed.items():
        if meant in needs and name not in needs and not model.is_declared:
            yield _wrong_name(name, meant, other, model, needs)
        else:
            yield _wrong_name(meant, name, model, other, needs)
    yield from _left_out(model, other, set(renamed), needs)
    if not model.is_declared:
        yield from _left_out(other, model, set(renamed.values()), needs)


def _misnamed(model: _Known, other: _Known) -> Iterator[tuple[str, str]]:
    """Return `(key of the model, key of the other)` for what is nearly the same name and may hold the same values."""
    if model.payload.is_open or other.payload.is_open:
        return
    mine, theirs = model.payload.names - other.payload.names, other.payload.names - model.payload.names
    for name in sorted(mine):
        near = near_match(name, theirs)
        if near and near_match(near, mine) == name:
            one, two = model.payload.get(name), other.payload.get(near)
            if not is_disjoint(one.type if one else UNKNOWN, two.type if two else UNKNOWN):
                yield name, near


def _wrong_name(old: str, new: str, full: _Known, lacking: _Known, needs: _Needs) -> Finding:
    message = f"sends {old!r} to {lacking.sent.topic!r}, but {full.says(lacking)} {new!r}"
    data = {"old": old, "new": new}
    return _disagreement(lacking, full, message, f"Rename {old!r} to {new!r}.", need=needs.get(new), data=data)


def _left_out(full: _Known, lacking: _Known, renamed: set[str], needs: _Needs) -> Iterator[Finding]:
    for field in full.payload.fields if not lacking.payload.is_open else ():
        need = needs.get(field.name)
        is_owed = need or (full.is_declared and field.required)
        if is_owed and field.name not in lacking.payload.names | renamed:
            message = f"sends no {field.name!r} to {lacking.sent.topic!r}, but {full.says(lacking)} it"
            message += f" and {need[0].name} needs it" if need else ""
            hint = f"Send {field.name!r} as well, or let the handlers do without."
            yield _disagreement(lacking, full, message, hint, need=need, data={"missing": field.name})


def _disagreement(
    at: _Known,
    other: _Known,
    message: str,
    hint: str,
    *,
    need: tuple[AgentSubscription, Demand] | None = None,
    data: dict[str, str] | None = None,
) -> Finding:
    related = [described(other.sent)]
    if need:
        related.append(Related(need[0].agent.name, need[1].span, f"{need[0].name} needs {need[1].name!r}"))
    name, publication = at.sent.agent.name, at.sent.publication
    place = publication.payload_span or publication.span
    return make_finding("GB004", name, place, f"{name} {message}", hint, related=related, data=data)


def _are_told_apart(one: Schema, other: Schema) -> bool:
    """Return whether a handler can see which of two payloads it got: a key holds another constant in each."""
    mine, theirs = _labels(one), _labels(other)
    return any(mine[key].isdisjoint(theirs[key]) for key in mine.keys() & theirs.keys())


def _labels(payload: Schema) -> dict[str, frozenset[object]]:
    """The keys that hold constants which may serve as labels: truth values, and texts of one word."""
    return {
        field.name: frozenset(field.type.values)
        for field in payload.fields
        if field.type.kind in ("str", "bool")
        and field.type.values
        and field.name not in _FREE_TEXT
        and all(len(str(value).split()) == 1 for value in field.type.values)
    }


_FREE_TEXT = frozenset(
    {"body", "comment", "content", "description", "greeting", "message", "msg", "note", "text", "title"}
)
"""Keys whose values are written for people, who do not tell payloads apart by them."""


# --- GB006: one topic, two types ----------------------------------------------------------------


class _Promise(NamedTuple):
    """Where a `Topic` is used, and the type that it says."""

    agent: str
    topic: str
    span: SourceSpan
    type: Type


def check_types_of_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find Topics of one name with different types, and Topics of patterns that do not take what is sent to one of theirs."""
    promises = list({(each.topic, each.type): each for each in reversed([*_promises(wiring)])}.values())[::-1]
    for number, each in enumerate(promises if any(wiring.asks_about(one.agent) for one in promises) else ()):
        others = [one for one in promises[:number] if one.topic == each.topic]
        others += [one for one in promises if one.topic != each.topic and matches(each.topic, one.topic)]
        for other in others:
            is_alike = other.topic == each.topic
            reason = misfit_reason(each.type, other.type) or (
                misfit_reason(other.type, each.type) if is_alike else None
            )
            if reason:
                message = (
                    f"The Topic {each.topic!r} is of {each.type} here, but {other.topic!r} is of {other.type}: {reason}"
                )
                hint = "Use one Topic object for one topic; the type of a pattern has what all its topics have."
                who = f"{other.agent} uses" if other.agent else "Another Topic is"
                related = [Related(other.agent, other.span, f"{who} {other.topic!r} of {other.type}")]
                yield make_finding("GB006", each.agent, each.span, message, hint, related=related)


def _promises(wiring: Wiring) -> Iterator[_Promise]:
    for sent in wiring.publications:
        if sent.topic and sent.publication.promised.kind != "unknown":
            yield _Promise(sent.agent.name, sent.topic, sent.publication.span, sent.publication.promised)
    for heard in wiring.subscriptions:
        if heard.topic and heard.subscription.promised.kind != "unknown":
            yield _Promise(heard.agent.name, heard.topic, heard.subscription.span, heard.subscription.promised)
    yield from (_Promise("", each.name, each.span, each.type) for each in wiring.project.topics)
