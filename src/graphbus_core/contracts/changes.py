"""A difference between two states of a graph, `ContractChange`, and the differences of two schemas, field by field.

side "input": others give these fields and the contract takes them: it may take more, never less
side "output": the contract gives them and others take them: it may give more fields, and no new values in an old one

`_EFFECTS` is the table of all cases but one: a type that changes is decided by `fit_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.compatibility import Side, fit_of, is_same
from graphbus_core.schema.types import Field, Schema, Type

ChangeKind = Literal[
    "agent-added",
    "agent-removed",
    "method-added",
    "method-removed",
    "schema-known",
    "schema-unknown",
    "field-added",
    "field-removed",
    "field-required",
    "field-optional",
    "fields-opened",
    "fields-closed",
    "type-changed",
    "topic-added",
    "topic-removed",
    "handler-added",
    "handler-removed",
    "dependency-removed",
]
Effect = Literal["breaking", "settled", "compatible"]

_GONE: frozenset[ChangeKind] = frozenset({"agent-removed", "method-removed", "topic-removed", "handler-removed"})
_NOWHERE = SourceSpan("", 0, 0, 0, 0)


class Broken(NamedTuple):
    """An edge of the new graph that a change breaks at its other end.

    Attributes:
        edge: `"Checkout → Stock.reserve"`.
        span: The other end: what would have to change with it.
        is_certain: False when that end may rely on what is gone, and did not change with it.
    """

    edge: str
    agent: str
    span: SourceSpan
    why: str
    is_certain: bool = True


class ContractChange(NamedTuple):
    """One thing that is different; a row of `graphbus contract diff`.

    Attributes:
        place: `"Stock.reserve"`, `"/Order/Placed"`, `"Stock"`; empty while two schemas are compared by themselves.
        why: One sentence, or for a field a clause that follows the title.
        part: Which part of the place: `"input"`, `"output"`, `"payload"`, `"Mail.on_placed"`, or empty.
        field: The path of the field, `"items[].sku"`, or empty.
        is_breaking: Those who relied on the old state can fail; whether somebody does, `effect` says.
        is_certain: False where a type is not known; then the change is not called breaking.
        is_public: Others than the agents of this graph may rely on it.
        breaks: The edges of this graph that it breaks.
        name: The field at the top of the path.
    """

    kind: ChangeKind
    place: str
    why: str
    span: SourceSpan = _NOWHERE
    part: str = ""
    field: str = ""
    is_breaking: bool = False
    is_certain: bool = True
    is_public: bool = False
    before: str = ""
    after: str = ""
    breaks: tuple[Broken, ...] = ()
    name: str = ""

    @property
    def effect(self) -> Effect:
        """`breaking`: somebody fails. `settled`: nobody does, because all who relied on it have changed with it."""
        if any(broken.is_certain for broken in self.breaks):
            return "breaking"
        if not self.is_breaking:
            return "compatible"
        return "breaking" if self.is_public or self.breaks else "settled"

    @property
    def breaks_outside(self) -> bool:
        """True when it breaks others than the agents of this graph."""
        return self.is_breaking and self.is_public

    @property
    def is_new_place(self) -> bool:
        """True when `span` is a place of the new state."""
        return self.kind not in _GONE

    @property
    def title(self) -> str:
        """The place in one line: `"Stock.reserve: input items[].sku"`."""
        part = " ".join(filter(None, (self.part, self.field)))
        return f"{self.place}: {part}" if part else self.place


# --- two schemas ------------------------------------------------------------------------------------

_EFFECTS: Mapping[tuple[ChangeKind, Side, str], tuple[str, Literal["breaking", "compatible", "doubtful"]]] = {
    ("field-added", "input", "required"): ("has to be given now", "breaking"),
    ("field-added", "input", "optional"): ("is new and may be left out", "compatible"),
    ("field-added", "input", "optional, was open"): ("is new and may be left out", "doubtful"),
    ("field-added", "output", ""): ("is new; who does not know it does not look at it", "compatible"),
    ("field-removed", "input", "refused"): ("is no longer taken", "breaking"),
    ("field-removed", "input", "ignored"): ("is not looked at any more", "compatible"),
    ("field-removed", "output", "required"): ("is no longer there", "breaking"),
    ("field-removed", "output", "required, is open"): ("may still be among the fields that are not listed", "doubtful"),
    ("field-removed", "output", "optional"): ("is no longer there, and could be missing before", "compatible"),
    ("field-required", "input", ""): ("has to be given now", "breaking"),
    ("field-required", "output", ""): ("is always there now", "compatible"),
    ("field-optional", "input", ""): ("may be left out now", "compatible"),
    ("field-optional", "output", ""): ("may be missing now", "breaking"),
    ("fields-opened", "input", ""): ("further fields may be there", "compatible"),
    ("fields-opened", "output", ""): ("further fields may be there", "compatible"),
    ("fields-closed", "input", "refused"): ("fields that it does not list are no longer taken", "breaking"),
    ("fields-closed", "input", "ignored"): ("fields that it does not list are no longer taken", "compatible"),
    ("fields-closed", "output", ""): ("fields that it does not list are no longer there", "compatible"),
}
"""What happened, who gives, under which condition -> how it is said, and whether it breaks somebody."""


class _Level(NamedTuple):
    """The position in two schemas; `is_closed` and the attributes after it concern the outermost fields only."""

    side: Side
    path: str = ""
    top: str = ""
    is_closed: bool = False
    was_open: bool = False
    is_open: bool = False

    def at(self, name: str) -> str:
        """The path of a field here."""
        return f"{self.path}.{name}" if self.path else name

    def differs(
        self, kind: ChangeKind, name: str = "", condition: str = "", before: str = "", after: str = ""
    ) -> ContractChange:
        """The difference of a field here, or of all fields, as the table has it."""
        why, effect = _EFFECTS[kind, self.side, condition]
        found = ContractChange(kind, "", why, is_breaking=effect == "breaking", is_certain=effect != "doubtful")
        return found._replace(before=before, after=after, field=self.at(name) if name else "", name=self.top or name)


def schema_differences(
    before: Schema, after: Schema, side: Side, *, is_closed: bool = False
) -> tuple[ContractChange, ...]:
    """Return what differs, in the order of the old schema, then what is new.

    Args:
        before: The old schema.
        after: The new one.
        side: Who gives.
        is_closed: The input refuses fields that it does not list, as arguments of methods are.
    """
    level = _Level(side, "", "", is_closed, before.is_open, after.is_open)
    return (*_openness(level), *_fields(before.fields, after.fields, level))


def type_differences(before: Type, after: Type, side: Side, path: str) -> tuple[ContractChange, ...]:
    """The same for two types, e.g. of what a handler answers."""
    return tuple(_types(before, after, _Level(side, path, path)))


def _openness(level: _Level) -> Iterator[ContractChange]:
    if level.is_open and not level.was_open:
        yield level.differs("fields-opened", after="...")
    elif level.was_open and not level.is_open:
        condition = "" if level.side == "output" else "refused" if level.is_closed else "ignored"
        yield level.differs("fields-closed", condition=condition, before="...")


def _fields(before: Sequence[Field], after: Sequence[Field], level: _Level) -> Iterator[ContractChange]:
    old, new = {field.name: field for field in before}, {field.name: field for field in after}
    for name, field in old.items():
        if name in new:
            yield from _kept(field, new[name], level)
        else:
            yield level.differs("field-removed", name, _when_removed(field, level), before=str(field.type))
    for name in new.keys() - old.keys():
        yield level.differs("field-added", name, _when_added(new[name], level), after=str(new[name].type))


def _when_removed(field: Field, level: _Level) -> str:
    if level.side == "input":
        return "refused" if level.is_closed and not level.is_open else "ignored"
    if not field.required:
        return "optional"
    return "required, is open" if level.is_open else "required"


def _when_added(field: Field, level: _Level) -> str:
    if level.side == "output":
        return ""
    return "required" if field.required else "optional, was open" if level.was_open else "optional"


def _kept(was: Field, now: Field, level: _Level) -> Iterator[ContractChange]:
    if was.required != now.required:
        yield level.differs("field-required" if now.required else "field-optional", now.name)
    yield from _types(was.type, now.type, _Level(level.side, level.at(was.name), level.top or was.name))


# --- types ---------------------------------------------------------------------------------


def _types(before: Type, after: Type, level: _Level) -> Iterator[ContractChange]:
    if is_same(before, after):
        return
    if before.kind == after.kind == "record":
        yield from _fields(before.fields, after.fields, level)
        return
    inside = _inside(before, after)
    for step, was, now in inside:
        yield from _types(was, now, level._replace(path=level.path + step))
    if not inside:
        yield from _whole(before, after, level)


def _inside(before: Type, after: Type) -> list[tuple[str, Type, Type]]:
    """Return the items of two comparable containers with the step of the path; an empty list for other types."""
    is_pair = before.kind == after.kind and before.args and len(before.args) == len(after.args)
    if not is_pair or before.kind in ("union", "literal"):
        return []
    if before.kind == "dict":
        return [(".*", before.args[1], after.args[1])] if before.args[0] == after.args[0] else []
    steps = [f"[{at}]" for at in range(len(before.args))] if before.kind == "tuple" else ["[]"]
    return list(zip(steps, before.args, after.args, strict=True))


_DIRECTIONS: Mapping[tuple[Side, bool], str] = {
    ("input", True): "takes less than before",
    ("input", False): "takes more than before",
    ("output", True): "gives what it never gave",
    ("output", False): "gives less than before",
}


def _whole(before: Type, after: Type, level: _Level) -> Iterator[ContractChange]:
    """Yield the difference of two types, compared as sets of values."""
    takes, sent = (after, before) if level.side == "input" else (before, after)
    fit = fit_of(takes, sent)
    if {fit.verdict, fit_of(sent, takes).verdict} == {"fits"}:
        return  # another way to write the same
    is_known = "unknown" not in (before.kind, after.kind) and not fit.lacks_type
    is_breaking = fit.verdict != "fits" and not fit.lacks_type
    why = f"was {before}, is {after} now"
    why += f": it {_DIRECTIONS[level.side, is_breaking]}" if is_known or is_breaking else "; one of them is not known"
    found = ContractChange(
        "type-changed", "", why, field=level.path, name=level.top, before=str(before), after=str(after)
    )
    yield found._replace(is_breaking=is_breaking, is_certain=is_breaking or is_known)
