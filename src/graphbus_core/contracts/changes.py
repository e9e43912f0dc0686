"""What is different between two states of a graph: a `Change`, and the changes between two schemas, field by field.

side "input": others give these fields and the contract takes them: it may take more, never less
side "output": the contract gives them and others take them: it may give more fields, and no new values in an old one

`_EFFECTS` is the table of all cases but one: a type that changes is decided by `fit_of`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.compatibility import Side, fit_of, is_same
from graphbus_core.schema.types import EXAMPLES, Field, Schema, Type
from graphbus_core.schema.validation import problems_in

_MOST = 400
_PLAIN: dict[str, tuple[Any, ...]] = {
    "unknown": (None, True, 1, 0.5, "text", [], {}),
    "any": (None, True, 1, 0.5, "text", [], {}),
    "null": (None,),
    "bool": (True, False),
    "int": (1, 0, -1, 1_000_003),
    "float": (0.5, 1, -0.25),
    "str": ("text", "", "another text"),
    "bytes": (b"bytes",),
}


def samples(of: Type) -> Iterator[Any]:
    """Give values of a type; what is unknown may be anything."""
    if of.kind == "str" and of.name:
        yield from EXAMPLES[of.name]
    elif of.kind in _PLAIN:
        yield from _PLAIN[of.kind]
    elif of.kind == "union":
        for part in of.args:
            yield from samples(part)
    elif of.kind == "literal":
        yield from of.values
    elif of.kind == "record":
        yield from field_samples(of.fields)
    else:
        yield from _containers(of)


def field_samples(fields: Sequence[Field]) -> Iterator[dict[str, Any]]:
    """Give mappings with these fields: all of them, then each value of each field in turn, then without what may be missing."""
    whole = {field.name: next(samples(field.type), None) for field in fields}
    yield whole
    yield {field.name: whole[field.name] for field in fields if field.required}
    for field in fields:
        for value in islice(samples(field.type), 1, _MOST):
            yield {**whole, field.name: value}
        if not field.required:
            yield {name: value for name, value in whole.items() if name != field.name}


def _containers(of: Type) -> Iterator[Any]:
    if of.kind == "dict":
        keys, values = of.args[:2] if len(of.args) > 1 else (Type("str"), Type("any"))
        key = next(samples(keys), None)
        yield from ({key: value} for value in samples(values))
        yield from ({other: next(samples(values), None)} for other in samples(keys))
        yield {}
    elif of.kind == "tuple" and of.args:
        whole = [next(samples(part), None) for part in of.args]
        for at, part in enumerate(of.args):
            yield from ([*whole[:at], value, *whole[at + 1 :]] for value in samples(part))
    else:
        items = of.args[0] if of.args else Type("any")
        yield from ([value] for value in samples(items))
        yield []
        if of.kind == "set":  # JSON has none, but a call within the process may pass one
            yield from ({value} for value in samples(items) if isinstance(value, Hashable))


def witness(takes: Type, sent: Type) -> tuple[Any, ...]:
    """Give, as the one item of a tuple, a value of `sent` that `takes` refuses; an empty tuple if none was found."""
    found = (value for value in islice(samples(sent), _MOST) if problems_in(takes, value))
    return tuple(islice(found, 1))


ChangeKind = Literal[
    "agent-added",
    "agent-removed",
    "method-added",
    "method-removed",
    "schema-known",
    "schema-unknown",
    "field-added",
    "field-removed",
    "field-renamed",
    "field-required",
    "field-optional",
    "fields-opened",
    "fields-closed",
    "type-changed",
    "topic-added",
    "topic-removed",
    "publisher-added",
    "publisher-removed",
    "handler-added",
    "handler-removed",
    "dependency-added",
    "dependency-removed",
]
Effect = Literal["breaking", "settled", "compatible"]

NOWHERE = SourceSpan("", 0, 0, 0, 0)


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


class Change(NamedTuple):
    """One thing that is different; a row of `graphbus contract diff`.

    Attributes:
        kind: What has happened.
        place: `"Stock.reserve"`, `"/Order/Placed"`, `"Stock"`; empty while two schemas are compared by themselves.
        why: One sentence, or for a field a clause that follows the title.
        span: Where it is in the source.
        part: Which part of the place: `"input"`, `"output"`, `"payload"`, `"Mail.on_placed"`, or empty.
        field: The path of the field, `"items[].sku"`, or empty.
        is_breaking: Those who relied on the old state can fail; whether somebody does, `effect` says.
        is_certain: False where a type is not known; then the change is not called breaking.
        is_public: Others than the agents of this graph may rely on it.
        breaks: The edges of this graph that it breaks.
        example: As the one item of a tuple, a value that was fine and is refused now.
        is_new_value: The example is a value that may come now and never came before.
        is_new_place: `span` is a place of the new state.
        name: The field at the top of the path, as it is now; for what was removed as it was.
        was: For a field with another name: the old one.
    """

    kind: ChangeKind
    place: str
    why: str
    span: SourceSpan = NOWHERE
    part: str = ""
    field: str = ""
    is_breaking: bool = False
    is_certain: bool = True
    is_public: bool = False
    before: str = ""
    after: str = ""
    breaks: tuple[Broken, ...] = ()
    example: tuple[Any, ...] = ()
    is_new_value: bool = False
    is_new_place: bool = True
    name: str = ""
    was: str = ""

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
    def title(self) -> str:
        """The place in one line: `"Stock.reserve: input items[].sku"`."""
        part = " ".join(filter(None, (self.part, self.field)))
        return f"{self.place}: {part}" if part else self.place


# --- two schemas ------------------------------------------------------------------------------------


class _Effect(NamedTuple):
    why: str
    is_breaking: bool = False
    is_certain: bool = True


_EFFECTS: Mapping[tuple[ChangeKind, Side, str], _Effect] = {
    ("field-added", "input", "required"): _Effect("has to be given now", is_breaking=True),
    ("field-added", "input", "optional"): _Effect("is new and may be left out"),
    ("field-added", "input", "optional, was open"): _Effect("is new and may be left out", is_certain=False),
    ("field-added", "output", ""): _Effect("is new; who does not know it does not look at it"),
    ("field-removed", "input", "refused"): _Effect("is no longer taken", is_breaking=True),
    ("field-removed", "input", "ignored"): _Effect("is not looked at any more"),
    ("field-removed", "output", "required"): _Effect("is no longer there", is_breaking=True),
    ("field-removed", "output", "required, is open"): _Effect(
        "may still be among the fields that are not listed", is_certain=False
    ),
    ("field-removed", "output", "optional"): _Effect("is no longer there, and could be missing before"),
    ("field-required", "input", ""): _Effect("has to be given now", is_breaking=True),
    ("field-required", "output", ""): _Effect("is always there now"),
    ("field-optional", "input", ""): _Effect("may be left out now"),
    ("field-optional", "output", ""): _Effect("may be missing now", is_breaking=True),
    ("fields-opened", "input", ""): _Effect("further fields may be there"),
    ("fields-opened", "output", ""): _Effect("further fields may be there"),
    ("fields-closed", "input", "refused"): _Effect(
        "fields that it does not list are no longer taken", is_breaking=True
    ),
    ("fields-closed", "input", "ignored"): _Effect("fields that it does not list are no longer taken"),
    ("fields-closed", "output", ""): _Effect("fields that it does not list are no longer there"),
}
"""What happened, who gives, under which condition -> how it is said, and whether it breaks somebody."""


class _Level(NamedTuple):
    """Where the walk is; `is_closed` and what follows are about the outermost fields only."""

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
    ) -> Change:
        """The difference of a field here, or of all fields, as the table has it."""
        why, is_breaking, is_certain = _EFFECTS[kind, self.side, condition]
        found = Change(kind, "", why, is_breaking=is_breaking, is_certain=is_certain, before=before, after=after)
        return found._replace(field=self.at(name) if name else "", name=self.top or name)


def differences(before: Schema, after: Schema, side: Side, *, is_closed: bool = False) -> tuple[Change, ...]:
    """Give what differs, in the order of the old schema, then what is new.

    Args:
        before: The old schema.
        after: The new one.
        side: Who gives.
        is_closed: The input refuses fields that it does not list, as arguments of methods are.
    """
    level = _Level(side, "", "", is_closed, before.is_open, after.is_open)
    return (*_openness(level), *_fields(before.fields, after.fields, level))


def type_differences(before: Type, after: Type, side: Side, path: str) -> tuple[Change, ...]:
    """The same for two types, e.g. of what a handler answers."""
    return tuple(_types(before, after, _Level(side, path, path)))


def _openness(level: _Level) -> Iterator[Change]:
    if level.is_open and not level.was_open:
        yield level.differs("fields-opened", after="...")
    elif level.was_open and not level.is_open:
        condition = "" if level.side == "output" else "refused" if level.is_closed else "ignored"
        yield level.differs("fields-closed", condition=condition, before="...")


def _fields(before: Sequence[Field], after: Sequence[Field], level: _Level) -> Iterator[Change]:
    old, new = {field.name: field for field in before}, {field.name: field for field in after}
    removed = {name: _removed(field, level) for name, field in old.items() if name not in new}
    added = {name: _added(field, level) for name, field in new.items() if name not in old}
    if len(removed) == len(added) == 1:
        (was,), (now,) = removed, added
        if _is_renamed(old[was], new[now]) and (removed[was].is_breaking or added[now].is_breaking):
            yield Change(
                "field-renamed", "", f"is called {now!r} now", field=level.at(was), is_breaking=True, before=was, after=now,
                name=level.top or now, was=level.top or was,
            )  # fmt: skip
            removed, added = {}, {}
    for name, field in old.items():
        if name in removed:
            yield removed[name]
        elif name in new:
            yield from _kept(field, new[name], level)
    yield from added.values()


def _is_renamed(gone: Field, fresh: Field) -> bool:
    is_one = is_same(gone.type, fresh.type) and gone.required == fresh.required
    return is_one and gone.type.kind != "unknown"


def _removed(field: Field, level: _Level) -> Change:
    if level.side == "input":
        condition = "refused" if level.is_closed and not level.is_open else "ignored"
    elif not field.required:
        condition = "optional"
    else:
        condition = "required, is open" if level.is_open else "required"
    return level.differs("field-removed", field.name, condition, before=str(field.type))


def _added(field: Field, level: _Level) -> Change:
    condition = ""
    if level.side == "input":
        condition = "required" if field.required else "optional, was open" if level.was_open else "optional"
    return level.differs("field-added", field.name, condition, after=str(field.type))


def _kept(was: Field, now: Field, level: _Level) -> Iterator[Change]:
    if was.required != now.required:
        yield level.differs("field-required" if now.required else "field-optional", now.name)
    yield from _types(was.type, now.type, _Level(level.side, level.at(was.name), level.top or was.name))


# --- types ---------------------------------------------------------------------------------


def _types(before: Type, after: Type, level: _Level) -> Iterator[Change]:
    if is_same(before, after):
        return
    if before.kind == after.kind == "union":
        before, after = _one_choice(before, after) or (before, after)
    if before.kind == after.kind == "record":
        yield from _fields(before.fields, after.fields, level)
        return
    inside = _inside(before, after)
    for step, was, now in inside:
        yield from _types(was, now, level._replace(path=level.path + step))
    if not inside:
        yield from _whole(before, after, level)


def _inside(before: Type, after: Type) -> list[tuple[str, Type, Type]]:
    """What two containers hold, with the step of the path, where a difference inside is one of the whole; else nothing."""
    is_pair = before.kind == after.kind and before.args and len(before.args) == len(after.args)
    if not is_pair or before.kind in ("union", "literal"):
        return []
    if before.kind == "dict":
        return [(".*", before.args[1], after.args[1])] if before.args[0] == after.args[0] else []
    steps = [f"[{at}]" for at in range(len(before.args))] if before.kind == "tuple" else ["[]"]
    return list(zip(steps, before.args, after.args, strict=True))


def _one_choice(before: Type, after: Type) -> tuple[Type, Type] | None:
    """The one container in which two unions differ, e.g. `Order | None` of another Order."""
    was = [part for part in before.args if part not in after.args]
    now = [part for part in after.args if part not in before.args]
    if len(was) != 1 or len(now) != 1 or was[0].kind != now[0].kind or was[0].kind not in ("record", "list", "dict"):
        return None
    others = {part.kind for part in before.args} - {was[0].kind}
    is_apart = not others & {"record", "dict", "list", "tuple", "set", "unknown", "any"}
    is_walked = was[0].kind == "record" or _inside(was[0], now[0])
    return (was[0], now[0]) if is_apart and is_walked else None


_DIRECTIONS: Mapping[tuple[Side, bool], str] = {
    ("input", True): "takes less than before",
    ("input", False): "takes more than before",
    ("output", True): "gives what it never gave",
    ("output", False): "gives less than before",
}


def _whole(before: Type, after: Type, level: _Level) -> Iterator[Change]:
    """Two types that are compared as sets of values."""
    is_input = level.side == "input"
    takes, sent = (after, before) if is_input else (before, after)
    fit = fit_of(takes, sent)
    if {fit.verdict, fit_of(sent, takes).verdict} == {"fits"}:
        return  # another way to write the same
    is_unknown = "unknown" in (before.kind, after.kind) or fit.lacks_type
    is_breaking = fit.verdict != "fits" and not fit.lacks_type
    why = f"was {before}, is {after} now: it {_DIRECTIONS[level.side, is_breaking]}"
    if is_unknown and before.kind == "unknown":
        why = f"nothing was known of it, it is {after} now"
    elif is_unknown:
        why = f"it was {before}, and is not known any more"
    yield Change(
        "type-changed",
        "",
        why,
        field=level.path,
        is_breaking=is_breaking,
        is_certain=is_breaking or not is_unknown,
        before=str(before),
        after=str(after),
        example=witness(takes, sent) if is_breaking else (),
        is_new_value=not is_input,
        name=level.top,
    )
