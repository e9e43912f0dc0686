"""GB001 to GB005, GB010, GB011: topics with one end, payloads that do not fit, requests, and circles of dependencies."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import msgspec

from graphbus_core.compiler.graph import components, find_circle
from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.compiler.rules.names import are_near_topics, is_slip_of_topic, near_match, near_topic
from graphbus_core.compiler.rules.wiring import (
    Demand,
    Evidence,
    Heard,
    Sent,
    Wiring,
    demands,
    is_heard_elsewhere,
    is_sent_elsewhere,
    owns,
    report,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Dependency, KeyRead, SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.model.topics import is_topic, is_topic_or_pattern
from graphbus_core.schema.compatibility import is_disjoint, why_not
from graphbus_core.schema.types import UNKNOWN, Schema, Type

COVERED_ERRORS = frozenset({"GBE211", "GBE212", "GBE214", "GBE215"})
"""What stops a build and is reported as a finding (GB010, GB011, GB310, GB001): a check must not say it twice."""


def check_dependencies(wiring: Wiring) -> Iterator[Finding]:
    """Find dependencies on nobody, and circles of them."""
    if not wiring.is_partial:
        yield from _unknown(wiring)
        yield from _unknown_or_undeclared_calls(wiring)
    if any(agent.dependencies for agent in wiring.asked):
        yield from _circles(wiring)


def _unknown(wiring: Wiring) -> Iterator[Finding]:
    for agent in wiring.asked:
        for dependency in agent.dependencies:
            if dependency.name not in wiring.agents and owns(agent, dependency.span):
                suggestion = did_you_mean(dependency.name, wiring.agents).strip()
                yield report(
                    "GB010",
                    agent.name,
                    dependency.span,
                    f"{agent.name} depends on {dependency.name}, which is no agent of this graph",
                    suggestion or "Correct the name, or check the folder that holds the agent as well.",
                )


def _unknown_or_undeclared_calls(wiring: Wiring) -> Iterator[Finding]:
    """A running graph refuses `self.call` to an agent that is not there or that `@depends_on` does not name."""
    for agent in wiring.asked:
        declared = {dependency.name for dependency in agent.dependencies} | {"", agent.name}
        for call in agent.calls:
            if call.agent in declared or not owns(agent, call.span):
                continue
            is_known = call.agent in wiring.agents
            what = "without depending on it" if is_known else "which is no agent of this graph"
            suggestion = did_you_mean(call.agent, wiring.agents).strip()
            yield report(
                "GB010",
                agent.name,
                call.span,
                f"{agent.name} calls {call.agent}, {what}",
                f'Add @depends_on("{call.agent}") to {agent.name}.' if is_known else suggestion,
            )


def _circles(wiring: Wiring) -> Iterator[Finding]:
    edges = {
        name: [dependency for dependency in agent.dependencies if dependency.name in wiring.agents]
        for name, agent in wiring.agents.items()
    }
    needs = {name: {each.name for each in found} for name, found in edges.items()}
    for group in components(needs):
        if len(group) > 1 or group[0] in needs[group[0]]:
            yield _circle(find_circle(group, needs)[:-1], edges, wiring.agents)


def _circle(circle: tuple[str, ...], edges: dict[str, list[Dependency]], agents: dict[str, AgentDefinition]) -> Finding:
    steps = list(zip(circle, (*circle[1:], circle[0]), strict=True))
    places = {step: next(each for each in edges[step[0]] if each.name == step[1]) for step in steps}
    return report(
        "GB011",
        circle[0],
        places[steps[0]].span,
        f"The dependencies form a circle: {' -> '.join((*circle, circle[0]))}",
        "Remove one @depends_on; events may go round, dependencies may not.",
        related=tuple(
            Related(agents[source].name, places[source, target].span, f"{source} depends on {target}")
            for source, target in steps[1:]
        ),
    )


class Known(msgspec.Struct, frozen=True):
    """A publication whose payload is known."""

    sent: Sent
    payload: Schema

    @property
    def is_complete(self) -> bool:
        """True when it surely sends nothing but what is listed."""
        return not self.payload.is_open


def check_agreement(wiring: Wiring) -> Iterator[Finding]:
    """Compare the publications of each topic with the declared payload, else with each other."""
    for topic in sorted({sent.topic for sent in wiring.asked_sent if sent.topic}):
        publications = [
            Known(sent, sent.publication.payload)
            for sent in wiring.publishers(topic)
            if sent.publication.payload is not None
        ]
        if len(publications) > 1:
            yield from _check_topic(publications, wiring)


def _check_topic(publications: list[Known], wiring: Wiring) -> Iterator[Finding]:
    declared = next((each for each in publications if each.sent.publication.is_declared), None)
    model = declared or _usual(publications)
    needs = _needs(publications, wiring)
    for other in publications:
        if other is model:
            continue
        pair = _Pair(model, other, needs)
        found = [*pair.different_types(), *pair.missing_keys()]
        if found and (declared or not _are_told_apart(model, other, wiring.evidence)):
            yield from found


def _usual(publications: list[Known]) -> Known:
    """The publication that most others look like; the first of them in case of doubt."""
    shapes = Counter(each.payload.names for each in publications)
    return max(publications, key=lambda each: shapes[each.payload.names])


def _needs(publications: list[Known], wiring: Wiring) -> dict[str, tuple[Heard, Demand]]:
    """What the handlers of a topic cannot do without, if some publication sends it and some other does not."""
    sent = [each.payload.names for each in publications]
    contested = frozenset().union(*sent) - frozenset.intersection(*map(frozenset, sent))
    if not contested:
        return {}
    needs: dict[str, tuple[Heard, Demand]] = {}
    for heard in wiring.hearers(publications[0].sent.topic):
        for demand in demands(heard, wiring.evidence):
            if demand.name in contested:
                needs.setdefault(demand.name, (heard, demand))
    return needs


class _Pair:
    """Two publications of one topic: the one that serves as the model, and the one that is compared with it."""

    def __init__(self, model: Known, other: Known, needs: dict[str, tuple[Heard, Demand]]) -> None:
        self._model = model
        self._other = other
        self._needs = needs
        self._is_declared = model.sent.publication.is_declared

    def different_types(self) -> Iterator[Finding]:
        """Find keys whose values are of one type here and of another there."""
        for field in self._model.payload.fields:
            given = self._other.payload.get(field.name)
            if given is not None and self._differ(field.type, given.type):
                yield self._finding(
                    self._other,
                    f"sends {field.name!r} to {self._other.sent.topic!r} as {given.type}, "
                    f"but {self._says(self._model)} it as {field.type}",
                    "Make both ends of the topic agree on one type.",
                )

    def _differ(self, wanted: Type, given: Type) -> bool:
        return why_not(wanted, given, is_narrowed=True) is not None if self._is_declared else is_disjoint(wanted, given)

    def missing_keys(self) -> Iterator[Finding]:
        """Find keys that go by another name, and keys that are left out though somebody needs them."""
        renamed = dict(self._misnamed())
        for name, meant in renamed.items():
            is_model_wrong = meant in self._needs and name not in self._needs and not self._is_declared
            full, lacking = (self._other, self._model) if is_model_wrong else (self._model, self._other)
            yield self._wrong_name(*((name, meant) if is_model_wrong else (meant, name)), full, lacking)
        yield from self._left_out(self._model, self._other, set(renamed))
        if not self._is_declared:
            yield from self._left_out(self._other, self._model, set(renamed.values()))

    def _misnamed(self) -> Iterator[tuple[str, str]]:
        """Give `(key of the model, key of the other)` for what is nearly the same name and may hold the same values."""
        if not (self._model.is_complete and self._other.is_complete):
            return
        mine = self._model.payload.names - self._other.payload.names
        theirs = self._other.payload.names - self._model.payload.names
        for name in sorted(mine):
            near = near_match(name, theirs)
            if near and near_match(near, mine) == name and not is_disjoint(self._type(name), self._type(near)):
                yield name, near

    def _type(self, name: str) -> Type:
        field = self._model.payload.get(name) or self._other.payload.get(name)
        return field.type if field else UNKNOWN

    def _left_out(self, full: Known, lacking: Known, renamed: set[str]) -> Iterator[Finding]:
        for field in full.payload.fields if lacking.is_complete else ():
            is_owed = field.name in self._needs or (self._is_declared and field.required)
            if is_owed and field.name not in lacking.payload.names | renamed:
                need = self._needs.get(field.name)
                yield self._finding(
                    lacking,
                    f"sends no {field.name!r} to {lacking.sent.topic!r}, but {self._says(full)} it"
                    + (f" and {need[0].name} needs it" if need else ""),
                    f"Send {field.name!r} as well, or let the handlers do without.",
                    need=need,
                )

    def _wrong_name(self, old: str, new: str, full: Known, lacking: Known) -> Finding:
        return self._finding(
            lacking,
            f"sends {old!r} to {lacking.sent.topic!r}, but {self._says(full)} {new!r}",
            f"Rename {old!r} to {new!r}.",
            need=self._needs.get(new),
            data={"old": old, "new": new},
        )

    @staticmethod
    def _says(known: Known) -> str:
        return f"{known.sent.agent.name} {'declares' if known.sent.publication.is_declared else 'sends'}"

    def _finding(
        self,
        at: Known,
        message: str,
        hint: str,
        *,
        need: tuple[Heard, Demand] | None = None,
        data: dict[str, str] | None = None,
    ) -> Finding:
        related = [described((self._other if at is self._model else self._model).sent)]
        if need:
            related.append(Related(need[0].agent.name, need[1].span, f"{need[0].name} needs {need[1].name!r}"))
        return report(
            "GB004",
            at.sent.agent.name,
            at.sent.publication.payload_span or at.sent.publication.span,
            f"{at.sent.agent.name} {message}",
            hint,
            related=tuple(related),
            data=data,
        )


# --- payloads that differ on purpose --------------------------------------------------------


def _are_told_apart(one: Known, other: Known, evidence: Evidence) -> bool:
    """Tell whether a handler can see which of two payloads it got: a key holds another constant in each, or may do so."""
    mine, theirs = _labels(one, evidence), _labels(other, evidence)
    if mine is None or theirs is None:
        return True
    return any(mine[key] != theirs[key] for key in mine.keys() & theirs.keys())


def _labels(known: Known, evidence: Evidence) -> dict[str, str] | None:
    """The keys of a dict display that hold a constant which may serve as a label; None when it is no display."""
    span = known.sent.publication.payload_span
    if span is None:
        return {}
    display = _display(span, evidence)
    if display is None:
        return None
    return {
        key.value: ast.unparse(value)
        for key, value in zip(display.keys, display.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_label(value)
    }


def _is_label(value: ast.expr) -> bool:
    """A text, a truth value, or a name that stands for one: `ADDED`, `Kind.ADDED`."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str | bool)
    return isinstance(value, ast.Attribute | ast.Name) and ast.unparse(value).rpartition(".")[2].isupper()


def _display(span: SourceSpan, evidence: Evidence) -> ast.Dict | None:
    for node in ast.walk(parse(evidence.source(span.path).text)):
        if isinstance(node, ast.Dict) and (node.lineno, node.col_offset) == (span.line, span.column):
            return node
    return None


def check_requests(wiring: Wiring) -> Iterator[Finding]:
    """Find requests that nobody, more than one handler, or only the asking agent itself answers."""
    for sent in wiring.asked_sent:
        if sent.publication.is_request and is_topic(sent.topic) and not wiring.is_external(sent.topic):
            yield from _check(sent, wiring.hearers(sent.topic), wiring)


def _check(sent: Sent, answering: tuple[Heard, ...], wiring: Wiring) -> Iterator[Finding]:
    if len(answering) > 1:
        *names, last = (heard.name for heard in answering)
        problem = f"which {', '.join(names)} and {last} answer"
        hint = "A request has one answer: keep one of these handlers, or publish the event instead."
        yield _misanswered(sent, answering, problem, hint)
    elif answering and answering[0].agent.name == sent.agent.name:
        problem = "which it answers itself: that would wait for ever"
        yield _misanswered(sent, answering, problem, "Call the method directly.")
    elif not answering and not wiring.has_unknown_subscribers and not is_heard_elsewhere(sent.topic, wiring.evidence):
        meant = near_topic(sent.topic, {heard.topic for heard in wiring.heard if is_topic(heard.topic)})
        guess = f"Did you mean {meant!r}? " if meant else ""
        hint = f"{guess}Give one agent a handler of it that returns the answer."
        yield _misanswered(sent, (), "which no agent answers", hint)


def _misanswered(sent: Sent, answering: tuple[Heard, ...], problem: str, hint: str) -> Finding:
    return report(
        "GB005",
        sent.agent.name,
        sent.publication.span,
        f"{sent.agent.name} requests {sent.topic!r}, {problem}",
        hint,
        related=tuple(Related(each.agent.name, each.subscription.span, f"{each.name} answers") for each in answering),
    )


def check_reads(wiring: Wiring) -> Iterator[Finding]:
    """Compare what handlers read with everything that can reach them; silent where anything of that is unknown."""
    for heard in _by_handler(wiring):
        sent = everything_sent_to(heard, wiring) if wiring.asks_about(heard.agent.name) else None
        if sent:
            yield from _unsent_keys(heard, sent)


def _by_handler(wiring: Wiring) -> Iterator[Heard]:
    """Each handler once, though it may listen to several topics."""
    seen: set[tuple[str, int, str]] = set()
    for heard in wiring.heard:
        method = heard.agent.method(heard.subscription.method)
        place = method.span if method else heard.subscription.span
        key = (place.path, place.line, heard.subscription.method)
        if key not in seen:
            seen.add(key)
            yield heard


def everything_sent_to(heard: Heard, wiring: Wiring) -> tuple[Sent, ...] | None:
    """Give every publication that reaches a handler by any of its topics, or None when one of them is not fully known."""
    found: list[Sent] = []
    for subscription in heard.agent.subscriptions:
        if subscription.method == heard.subscription.method:
            sent = wiring.all_publishers(subscription.topic)
            if sent is None or any(each.publication.payload is None for each in sent):
                return None
            found.extend(sent)
    if any(each.publication.payload is not None and each.publication.payload.is_open for each in found):
        return None
    return tuple(dict.fromkeys(found))


def sent_names(sent: tuple[Sent, ...]) -> frozenset[str]:
    """Give the names of all fields that are sent."""
    return frozenset(name for each in sent if each.publication.payload for name in each.publication.payload.names)


def _unsent_keys(heard: Heard, sent: tuple[Sent, ...]) -> Iterator[Finding]:
    known = sent_names(sent)
    declared = {field.name for field in heard.subscription.payload.fields}  # what is declared is compared by GB110
    reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in known | declared]
    for key in dict.fromkeys(read.key for read in reads):
        yield _unsent_key(heard, [read for read in reads if read.key == key], sent, known)


def _unsent_key(heard: Heard, reads: list[KeyRead], sent: tuple[Sent, ...], known: frozenset[str]) -> Finding:
    key = reads[0].key
    meant = near_match(key, known)
    keys = ", ".join(sorted(known)) or "nothing"
    return report(
        "GB003",
        heard.agent.name,
        reads[0].span,
        f"{heard.name} reads {key!r}, which no publisher of {heard.topic!r} sends",
        f"Did you mean {meant!r}?" if meant else did_you_mean(key, known).strip() or f"What is sent: {keys}.",
        related=tuple(described(each) for each in sent),
        data={"old": key, "new": meant} if meant else None,
    )


def described(sent: Sent) -> Related:
    """Show a publication with what it sends."""
    publication = sent.publication
    verb = "declares" if publication.is_declared else "sends"
    return Related(sent.agent.name, publication.span, f"{sent.agent.name} {verb} {publication.payload or 'a payload'}")


def check_topics(wiring: Wiring) -> Iterator[Finding]:
    """Find subscriptions that hear nothing and publications that nobody hears."""
    silent = [heard for heard in wiring.asked_heard if _is_silent(heard, wiring)]
    for heard in silent:
        yield _no_topic(heard, wiring) if _is_no_topic(heard) else _without_publisher(heard, wiring)
    if not wiring.has_unknown_subscribers:
        yield from _without_subscriber(wiring, silent)


def _is_silent(heard: Heard, wiring: Wiring) -> bool:
    return _is_no_topic(heard) or _hears_nothing(heard, wiring)


def _is_no_topic(heard: Heard) -> bool:
    return bool(heard.topic) and not is_topic_or_pattern(heard.topic)


def _no_topic(heard: Heard, wiring: Wiring) -> Finding:
    """A graph with such a subscription does not start at all."""
    meant = _meant_topic(heard.topic, wiring)
    shape = "A topic is one or more segments of letters, digits, '-' and '_', each behind a slash: '/Order/Placed'."
    return report(
        "GB001",
        heard.agent.name,
        heard.subscription.span,
        f"{heard.name} subscribes to {heard.topic!r}, which is no topic: a run refuses it",
        f"Did you mean {meant!r}? {shape}" if is_topic(meant) else shape,
        related=tuple(_publisher(sent) for sent in wiring.publishers(meant)) if is_topic(meant) else (),
        data={"old": heard.topic, "new": meant, "rename": "subscriber"} if is_topic(meant) else None,
    )


def _hears_nothing(heard: Heard, wiring: Wiring) -> bool:
    return wiring.all_publishers(heard.topic) == () and not is_sent_elsewhere(heard.topic, wiring.evidence)


def _without_publisher(heard: Heard, wiring: Wiring) -> Finding:
    meant = _meant_topic(heard.topic, wiring)
    guess = f"Did you mean {meant!r}?" if meant else did_you_mean(heard.topic, wiring.topics).strip()
    outside = f"it comes from outside, {_line_to_add(heard.topic, wiring)}"
    mendable = _end_to_rename(heard.topic, meant, wiring) if meant else ""
    return report(
        "GB001",
        heard.agent.name,
        heard.subscription.span,
        f"{heard.name} subscribes to {heard.topic!r}, which no agent publishes",
        f"{guess} If {outside}" if guess else f"Publish it; if {outside}",
        severity="warning",
        related=tuple(_publisher(sent) for sent in wiring.publishers(meant)) if meant else (),
        data={"old": heard.topic, "new": meant, "rename": mendable} if meant else None,
    )


def _meant_topic(topic: str, wiring: Wiring) -> str:
    """Give the one published topic that a subscription without publisher is likely meant for, or the empty string.

    A published topic that somebody hears already is only meant when a single slip lies between the two.
    """
    near = {name for name in wiring.topics if are_near_topics(topic, name)}
    unheard = {name for name in near if not wiring.hearers(name)}
    return near_topic(topic, unheard) or near_topic(topic, {name for name in near if is_slip_of_topic(topic, name)})


def _end_to_rename(topic: str, meant: str, wiring: Wiring) -> str:
    """Say whose topic has to be renamed: `"publisher"` when several agents hear the one name and one place sends the other."""
    subscribers = {heard.agent.name for heard in wiring.heard if heard.topic == topic}
    senders = wiring.publishers(meant)
    if len(subscribers) > 1 and len(senders) == 1 and not wiring.hearers(meant):
        return "publisher"
    return "subscriber"


def _publisher(sent: Sent) -> Related:
    return Related(sent.agent.name, sent.publication.span, f"{sent.agent.name} publishes {sent.topic!r}")


def _without_subscriber(wiring: Wiring, silent: list[Heard]) -> Iterator[Finding]:
    """Find what nobody hears; a topic that is nearly one that hears nothing is reported at that end."""
    unheard = [sent for sent in wiring.asked_sent if not sent.publication.is_request and _is_unheard(sent, wiring)]
    if not unheard:
        return
    others = (heard for heard in wiring.heard if not wiring.asks_about(heard.agent.name))
    dangling = {heard.topic for heard in (*silent, *(heard for heard in others if _is_silent(heard, wiring)))}
    reported: set[tuple[str, str]] = set()
    for sent in unheard:
        key = (sent.agent.name, sent.topic)
        if key in reported or any(are_near_topics(sent.topic, topic) for topic in dangling):
            continue
        reported.add(key)
        yield report(
            "GB002",
            sent.agent.name,
            sent.publication.span,
            f"{sent.agent.name} publishes {sent.topic!r}, which no agent subscribes to",
            f"Subscribe to it or stop publishing it; if it is heard outside, {_line_to_add(sent.topic, wiring)}",
            severity="info",
        )


def _line_to_add(topic: str, wiring: Wiring) -> str:
    """Say what to write for a topic whose other end is outside of the graph: the whole line, ready to be copied."""
    listed = ", ".join(f'"{each}"' for each in (*wiring.evidence.config.settings.external_topics, topic))
    return f"write external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."


def _is_unheard(sent: Sent, wiring: Wiring) -> bool:
    return is_topic(sent.topic) and not wiring.hearers(sent.topic) and not wiring.is_external(sent.topic)
