"""GB004, GB006: publishers of one topic that send different payloads, and Topics of one name with different types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.rules.names import near_match, wrong_type_data
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Demand,
    Wiring,
    describe_publication,
    make_finding,
    required_fields,
)
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import matches
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import UNKNOWN, Schema, Type

# --- GB004: publishers of one topic -------------------------------------------------------------


class _Payload(msgspec.Struct, frozen=True):
    """A publication whose payload is known."""

    sent: AgentPublication
    payload: Schema

    @property
    def is_declared(self) -> bool:
        return self.sent.publication.is_declared

    def subject_and_verb(self, other: _Payload) -> str:
        """Return subject and verb of a clause such as `Orders sends {id}`, for a message about the publication `other`."""
        if self.is_declared and self.sent.agent.name == other.sent.agent.name:
            return "its own declaration has"
        if self.sent.agent.name == other.sent.agent.name:
            return "elsewhere it sends"
        return f"{self.sent.agent.name} {'declares' if self.is_declared else 'sends'}"


_AGREE_ON_TYPE = "Make both ends of the topic agree on one type."
_Needs = dict[str, tuple[AgentSubscription, Demand]]
"""Name of a field -> a handler that needs the field in every event, and the place where it does."""


def check_agreement(wiring: Wiring) -> Iterator[Finding]:
    """Find publications on one topic that disagree (GB004).

    Each is compared with its agent's declaration, else with another agent's, else with the most frequent payload.
    """
    for topic in sorted({sent.topic for sent in wiring.checked_publications if sent.topic}):
        publishers = wiring.publishers(topic)
        yield from _check_own_declaration(publishers)
        payloads = ((each, each.publication.payload) for each in publishers)
        known = [_Payload(each, payload) for each, payload in payloads if payload is not None]
        if len(known) < 2:
            continue
        # each payload is compared with `model`: the first declared one, or else the first with the most frequent field names
        shapes = Counter(each.payload.names for each in known)
        usual = max(known, key=lambda each: shapes[each.payload.names])
        model = next((each for each in known if each.is_declared), usual)
        own = {each.sent.agent.name: each for each in reversed(known) if each.is_declared}
        needs = _collect_needs(known, wiring)
        for other in known:
            yield from _compare_payloads(
                other, model if other.is_declared else own.get(other.sent.agent.name, model), needs
            )


def _compare_payloads(other: _Payload, model: _Payload, needs: _Needs) -> Iterator[Finding]:
    """Find where the payload of `other` differs from that of `model`; GB006 compares Topics that both have a type."""
    have_topic_types = all(each.sent.publication.promised.kind != "unknown" for each in (model, other))
    if other is model or have_topic_types:
        return
    # handlers tell two kinds of payload apart: their types may differ, and similar names in them are not misspelled
    is_variant = not model.is_declared and _are_distinguishable(model.payload, other.payload)
    yield from [] if is_variant else _check_types(model, other)
    yield from _check_key_names(model, other, needs, is_variant=is_variant)


def _check_own_declaration(publishers: tuple[AgentPublication, ...]) -> Iterator[Finding]:
    """Find payloads that contradict their agent's declaration, if the fields of the payload or of the declaration are unknown."""
    own = {each.agent.name: each for each in reversed(publishers) if each.publication.is_declared}
    for sent in publishers:
        declared, publication = own.get(sent.agent.name), sent.publication
        if (
            declared is None
            or publication.is_declared
            or None not in (publication.payload, declared.publication.payload)  # known fields are compared elsewhere
        ):
            continue
        wanted, given = declared.publication.payload_type, publication.payload_type
        if misfit_reason(wanted, given, is_narrowed=True):
            message = f"{sent.agent.name} sends {given} to {sent.topic!r}, but its own declaration says {wanted}"
            place, related = publication.payload_span or publication.span, [describe_publication(declared)]
            hint = "Send what is declared, or correct the declaration."
            yield make_finding("GB004", sent.agent.name, place, message, hint, related=related, data={"unfit": ""})


def _collect_needs(known: list[_Payload], wiring: Wiring) -> _Needs:
    """Return the fields that a handler needs and that only some of these publications, all of one topic, send."""
    names = [each.payload.names for each in known]
    contested = frozenset().union(*names) - frozenset.intersection(*map(frozenset, names))
    needs: _Needs = {}
    for handler in wiring.subscribers(known[0].sent.topic) if contested else ():
        for demand in required_fields(handler, wiring.project):
            if demand.name in contested:
                needs.setdefault(demand.name, (handler, demand))
    return needs


def _check_types(model: _Payload, other: _Payload) -> Iterator[Finding]:
    """Find keys of `other` whose type does not fit a declared `model`, or has no value in common with a `model` that is sent."""
    for field in model.payload.fields:
        found = other.payload.get(field.name)
        given = found.type if found else UNKNOWN
        if misfit_reason(field.type, given, is_narrowed=True) if model.is_declared else is_disjoint(field.type, given):
            shown = " or ".join(map(repr, given.values)) if model.is_declared and given.values else given
            message = f"sends {field.name!r} to {other.sent.topic!r} as {shown}"
            message += f", but {model.subject_and_verb(other)} it as {field.type}"
            is_own = model.is_declared and model.sent.agent.name == other.sent.agent.name
            hint = "Send what is declared, or correct the declaration." if is_own else _AGREE_ON_TYPE
            yield _make_disagreement(other, model, message, hint, data=wrong_type_data(field.name, field.type))


def _check_key_names(model: _Payload, other: _Payload, needs: _Needs, *, is_variant: bool) -> Iterator[Finding]:
    """Find keys that one payload misspells, and keys that it lacks although a handler or a declaration needs them."""
    renamed = {} if is_variant else dict(_pair_misnamed_keys(model, other))
    for name, other_name in renamed.items():  # the name that a handler needs or a declaration has is the right one
        if other_name in needs and name not in needs and not model.is_declared:
            yield _make_misnamed_key(name, other_name, other, model, needs)
        else:
            yield _make_misnamed_key(other_name, name, model, other, needs)
    yield from _check_omitted_fields(model, other, set(renamed), needs)
    if not model.is_declared:
        yield from _check_omitted_fields(other, model, set(renamed.values()), needs)


def _pair_misnamed_keys(model: _Payload, other: _Payload) -> Iterator[tuple[str, str]]:
    """Yield `(key of model, key of other)` for each pair of keys with similar names whose types have values in common."""
    if model.payload.is_open or other.payload.is_open:
        return
    model_only, other_only = model.payload.names - other.payload.names, other.payload.names - model.payload.names
    for name in sorted(model_only):
        near = near_match(name, other_only)
        if near and near_match(near, model_only) == name:
            one, two = model.payload.get(name), other.payload.get(near)
            if not is_disjoint(one.type if one else UNKNOWN, two.type if two else UNKNOWN):
                yield name, near


def _make_misnamed_key(old: str, new: str, full: _Payload, lacking: _Payload, needs: _Needs) -> Finding:
    """Return the finding that the payload `lacking` has the key `old`, which the payload `full` calls `new`."""
    message = f"sends {old!r} to {lacking.sent.topic!r}, but {full.subject_and_verb(lacking)} {new!r}"
    data = {"old": old, "new": new}
    return _make_disagreement(lacking, full, message, f"Rename {old!r} to {new!r}.", need=needs.get(new), data=data)


def _check_omitted_fields(full: _Payload, lacking: _Payload, renamed: set[str], needs: _Needs) -> Iterator[Finding]:
    """Find fields of `full` that `lacking` does not have, although a handler needs them or `full` declares them as required."""
    for field in full.payload.fields if not lacking.payload.is_open else ():
        need = needs.get(field.name)
        is_needed = need or (full.is_declared and field.required)
        if is_needed and field.name not in lacking.payload.names | renamed:
            message = f"sends no {field.name!r} to {lacking.sent.topic!r}, but {full.subject_and_verb(lacking)} it"
            message += f" and {need[0].name} needs it" if need else ""
            hint = f"Send {field.name!r} as well, or let the handlers do without."
            yield _make_disagreement(lacking, full, message, hint, need=need, data={"missing": field.name})


def _make_disagreement(
    at: _Payload,
    other: _Payload,
    message: str,
    hint: str,
    *,
    need: tuple[AgentSubscription, Demand] | None = None,
    data: dict[str, str] | None = None,
) -> Finding:
    """Return the GB004 finding at the payload `at`; its related places are `other` and the handler in `need`, if there is one."""
    related = [describe_publication(other.sent)]
    if need:
        related.append(Related(need[0].agent.name, need[1].span, f"{need[0].name} needs {need[1].name!r}"))
    name, publication = at.sent.agent.name, at.sent.publication
    place = publication.payload_span or publication.span
    return make_finding("GB004", name, place, f"{name} {message}", hint, related=related, data=data)


def _are_distinguishable(one: Schema, other: Schema) -> bool:
    """Return whether a handler can tell two kinds of payload apart: some key has different constants in one and the other."""
    labels, other_labels = _find_label_values(one), _find_label_values(other)
    return any(labels[key].isdisjoint(other_labels[key]) for key in labels.keys() & other_labels.keys())


def _find_label_values(payload: Schema) -> dict[str, frozenset[object]]:
    """Return key -> its constants, for each key that may label a kind of payload: the constants are bools or single words."""
    return {
        field.name: frozenset(field.type.values)
        for field in payload.fields
        if field.type.kind in ("str", "bool")
        and field.type.values
        and field.name not in _PROSE_KEYS
        and all(len(str(value).split()) == 1 for value in field.type.values)
    }


_PROSE_KEYS = frozenset(
    {"body", "comment", "content", "description", "greeting", "message", "msg", "note", "text", "title"}
)
"""Keys whose values are text for people, not labels of a kind of payload."""


# --- GB006: one topic, two types ----------------------------------------------------------------


class _PromisedType(NamedTuple):
    """A place where a `Topic` is made or used, and the Topic's payload type; `agent` is empty for a place outside of agents."""

    agent: str
    topic: str
    span: SourceSpan
    type: Type


def check_types_of_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find Topics of one name with different types, and pattern Topics that do not accept the type of a matching topic."""
    # one place for each topic and type, the first one
    promises = list({(each.topic, each.type): each for each in reversed([*_promised_types(wiring)])}.values())[::-1]
    for number, each in enumerate(promises if any(wiring.is_checked(one.agent) for one in promises) else ()):
        others = [one for one in promises[:number] if one.topic == each.topic]  # each pair of one name is reported once
        others += [one for one in promises if one.topic != each.topic and matches(each.topic, one.topic)]
        for other in others:
            has_same_name = other.topic == each.topic
            reason = misfit_reason(each.type, other.type) or (
                misfit_reason(other.type, each.type) if has_same_name else None
            )
            if reason:
                message = (
                    f"The Topic {each.topic!r} is of {each.type} here, but {other.topic!r} is of {other.type}: {reason}"
                )
                hint = "Use one Topic object for one topic; the type of a pattern has what all its topics have."
                who = f"{other.agent} uses" if other.agent else "Another Topic is"
                related = [Related(other.agent, other.span, f"{who} {other.topic!r} of {other.type}")]
                yield make_finding("GB006", each.agent, each.span, message, hint, related=related)


def _promised_types(wiring: Wiring) -> Iterator[_PromisedType]:
    """Yield the type of each Topic that agents publish to or subscribe to, then that of each Topic that the files make."""
    for sent in wiring.publications:
        if sent.topic and sent.publication.promised.kind != "unknown":
            yield _PromisedType(sent.agent.name, sent.topic, sent.publication.span, sent.publication.promised)
    for each in wiring.subscriptions:
        if each.topic and each.subscription.promised.kind != "unknown":
            yield _PromisedType(each.agent.name, each.topic, each.subscription.span, each.subscription.promised)
    yield from (_PromisedType("", each.name, each.span, each.type) for each in wiring.project.topics)
