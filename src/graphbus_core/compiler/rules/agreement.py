"""GB004: the publishers of one topic send different payloads, and somebody is let down by it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import msgspec

from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.compiler.rules.demands import Demand, demands
from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.reads import described
from graphbus_core.compiler.rules.wiring import Heard, Sent, Wiring
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.schema.compatibility import is_disjoint, why_not
from graphbus_core.schema.types import UNKNOWN, Schema, Type


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
        return Finding(
            code="GB004",
            severity="error",
            agent=at.sent.agent.name,
            span=at.sent.publication.payload_span or at.sent.publication.span,
            message=f"{at.sent.agent.name} {message}",
            hint=hint,
            related=tuple(related),
            is_fixable=bool(data),
            data=data or {},
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
