"""A difference between two states of a graph, `ContractChange`, and the differences of two schemas, field by field.

side "input": others pass these fields, such as arguments. It is compatible to accept more, and breaking to accept less.
side "output": others read these fields, such as results. It is compatible to add fields, and breaking to add values to a field.

The table `_EFFECTS` decides every case except a changed type, which `fit_of` decides.
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
        edge: Such as `"Checkout → Stock.reserve"`.
        agent: The agent at the other end.
        span: The place at the other end that has to be changed.
        why: Why that end no longer fits, one clause.
        is_certain: False if it is only possible that this end relies on what changed.
    """

    edge: str
    agent: str
    span: SourceSpan
    why: str
    is_certain: bool = True


class ContractChange(NamedTuple):
    """One difference between two states of a graph; a row of `graphbus contract diff`.

    Attributes:
        place: A method, topic or agent: `"Stock.reserve"`, `"/Order/Placed"`, `"Stock"`; empty if only schemas are compared.
        why: What has changed: one sentence, or for a field a clause that follows the title.
        span: Where it is declared: in the old state for what was removed, else in the new one.
        part: The part of the place: `"input"`, `"output"`, `"payload"`, a handler such as `"Mail.on_placed"`, or empty.
        field: The path of the field, such as `"items[].sku"`, or empty.
        is_breaking: True if code that relied on the old state can fail; `effect` tells whether some code does.
        is_certain: False if a type is not known; such a change does not count as breaking.
        is_public: True if code outside of this graph may rely on it.
        before: The old type or schema as text, or empty.
        after: The new one, or empty.
        breaks: The edges of this graph that it breaks.
        name: The first field of the path `field`.
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
        """How the change affects other code.

        `breaking`: some code fails, or may fail outside of this graph. `settled`: only agents of this graph could rely on the old
        state, and none of them fails. `compatible`: nothing can fail.
        """
        if any(broken.is_certain for broken in self.breaks):
            return "breaking"
        if not self.is_breaking:
            return "compatible"
        return "breaking" if self.is_public or self.breaks else "settled"

    @property
    def breaks_outside(self) -> bool:
        """True if the change can break code outside of this graph."""
        return self.is_breaking and self.is_public

    @property
    def is_new_place(self) -> bool:
        """True if `span` is a place in the new state; False for something that was removed, which has a place in the old one."""
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
"""Kind of change, side, condition -> the text for `why`, and the effect; `doubtful`: not known whether it breaks anything."""


class _Level(NamedTuple):
    """A position in two schemas: `path` leads to a field, is empty for the schemas themselves, and begins with the field `top`.

    The flags describe the whole schemas; at fields inside they are False. `is_closed`: the input refuses fields that it does not
    list. `was_open`, `is_open`: the old or new schema has fields that it does not list.
    """

    side: Side
    path: str = ""
    top: str = ""
    is_closed: bool = False
    was_open: bool = False
    is_open: bool = False

    def path_to(self, name: str) -> str:
        """Return the path of a field at this position."""
        return f"{self.path}.{name}" if self.path else name

    def differs(
        self, kind: ChangeKind, name: str = "", condition: str = "", before: str = "", after: str = ""
    ) -> ContractChange:
        """Return the change that `_EFFECTS` lists for the field `name` at this position; without `name`, for the whole schema."""
        why, effect = _EFFECTS[kind, self.side, condition]
        found = ContractChange(kind, "", why, is_breaking=effect == "breaking", is_certain=effect != "doubtful")
        path = self.path_to(name) if name else ""
        return found._replace(before=before, after=after, field=path, name=self.top or name)


def schema_differences(
    before: Schema, after: Schema, side: Side, *, is_closed: bool = False
) -> tuple[ContractChange, ...]:
    """Return the differences of two schemas: those of the old fields in their order, then the added fields.

    Args:
        before: The old schema.
        after: The new one.
        side: Whether others pass the fields (`"input"`) or read them (`"output"`).
        is_closed: The input refuses fields that it does not list, as methods refuse unknown arguments.
    """
    level = _Level(side, "", "", is_closed, before.is_open, after.is_open)
    return (*_compare_openness(level), *_compare_fields(before.fields, after.fields, level))


def type_differences(before: Type, after: Type, side: Side, path: str) -> tuple[ContractChange, ...]:
    """Return the differences of two types, such as those of the answers to a request; `path` names the value."""
    return tuple(_compare_types(before, after, _Level(side, path, path)))


def _compare_openness(level: _Level) -> Iterator[ContractChange]:
    """Yield the change if only one of two schemas is open, that is, has fields that it does not list."""
    if level.is_open and not level.was_open:
        yield level.differs("fields-opened", after="...")
    elif level.was_open and not level.is_open:
        condition = "" if level.side == "output" else "refused" if level.is_closed else "ignored"
        yield level.differs("fields-closed", condition=condition, before="...")


def _compare_fields(before: Sequence[Field], after: Sequence[Field], level: _Level) -> Iterator[ContractChange]:
    """Yield the differences of the fields of two records, then the added fields."""
    old, new = {field.name: field for field in before}, {field.name: field for field in after}
    for name, field in old.items():
        if name in new:
            yield from _compare_field(field, new[name], level)
        else:
            yield level.differs("field-removed", name, _condition_of_removal(field, level), before=str(field.type))
    for name in new.keys() - old.keys():
        yield level.differs("field-added", name, _condition_of_addition(new[name], level), after=str(new[name].type))


def _condition_of_removal(field: Field, level: _Level) -> str:
    """Return the condition, the third part of a key of `_EFFECTS`, for the removal of a field."""
    if level.side == "input":
        return "refused" if level.is_closed and not level.is_open else "ignored"
    if not field.required:
        return "optional"
    return "required, is open" if level.is_open else "required"


def _condition_of_addition(field: Field, level: _Level) -> str:
    """Return the condition, the third part of a key of `_EFFECTS`, for the addition of a field."""
    if level.side == "output":
        return ""
    return "required" if field.required else "optional, was open" if level.was_open else "optional"


def _compare_field(was: Field, now: Field, level: _Level) -> Iterator[ContractChange]:
    """Yield the differences of one field: whether it is required, and its type."""
    if was.required != now.required:
        yield level.differs("field-required" if now.required else "field-optional", now.name)
    yield from _compare_types(was.type, now.type, _Level(level.side, level.path_to(was.name), level.top or was.name))


# --- types ---------------------------------------------------------------------------------


def _compare_types(before: Type, after: Type, level: _Level) -> Iterator[ContractChange]:
    """Yield the differences of two types: those inside of two records or containers of one kind, else one for the whole type."""
    if is_same(before, after):
        return
    if before.kind == after.kind == "record":
        yield from _compare_fields(before.fields, after.fields, level)
        return
    items = _pair_items(before, after)
    for step, was, now in items:
        yield from _compare_types(was, now, level._replace(path=level.path + step))
    if not items:
        yield from _compare_whole(before, after, level)


def _pair_items(before: Type, after: Type) -> list[tuple[str, Type, Type]]:
    """Return `(path step, old item type, new item type)` for two containers of one kind; an empty list for other types."""
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


def _compare_whole(before: Type, after: Type, level: _Level) -> Iterator[ContractChange]:
    """Yield the difference of two types, compared as sets of values; nothing if each type fits the other."""
    # an input must still take the values of the old type; readers of an output expect values of the old type
    takes, sent = (after, before) if level.side == "input" else (before, after)
    fit = fit_of(takes, sent)
    if {fit.verdict, fit_of(sent, takes).verdict} == {"fits"}:
        return  # the same type, written in another way
    is_known = "unknown" not in (before.kind, after.kind) and not fit.lacks_type
    is_breaking = fit.verdict != "fits" and not fit.lacks_type
    why = f"was {before}, is {after} now"
    why += f": it {_DIRECTIONS[level.side, is_breaking]}" if is_known or is_breaking else "; one of them is not known"
    found = ContractChange(
        "type-changed", "", why, field=level.path, name=level.top, before=str(before), after=str(after)
    )
    yield found._replace(is_breaking=is_breaking, is_certain=is_breaking or is_known)
