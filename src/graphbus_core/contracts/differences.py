"""What differs between two schemas, field by field, and who is let down by it.

side "input": others give these fields, the contract takes them: it may take more, never less
side "output": the contract gives them, others take them: it may give less, never in an old place what was not given before
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from graphbus_core.contracts.samples import witness
from graphbus_core.contracts.subsets import Refusal, refusal
from graphbus_core.schema.compatibility import Side, is_same
from graphbus_core.schema.types import Field, Schema, Type

DifferenceKind = Literal["added", "removed", "renamed", "required", "optional", "type", "opened", "closed"]


class Difference(NamedTuple):
    """One thing that differs.

    Attributes:
        path: `"items[].sku"`; empty for the whole.
        is_breaking: Those who relied on it as it was may be let down.
        is_certain: False when that rests on a type that is not known; then it is not called breaking.
        why: One clause, to follow the name of the place.
        before: What was there, `""` for nothing.
        example: As the one item of a tuple, a value that was fine and is refused now, if one was found.
        is_new_value: The example is a value that may come now and never came before.
        name: The field at the top of the path, as it is now; for what was removed as it was.
        was: For a field with another name: the old one.
    """

    kind: DifferenceKind
    path: str
    is_breaking: bool
    why: str
    before: str = ""
    after: str = ""
    is_certain: bool = True
    example: tuple[Any, ...] = ()
    name: str = ""
    was: str = ""
    is_new_value: bool = False


class _Level(NamedTuple):
    """Where the walk is: the two field lists belong to one of these."""

    side: Side
    path: str = ""
    top: str = ""
    is_closed: bool = False
    was_open: bool = False
    is_open: bool = False

    def at(self, name: str) -> str:
        """The path of a field here."""
        return f"{self.path}.{name}" if self.path else name

    def below(self, path: str, name: str) -> _Level:
        """The level of what is inside of a field."""
        return _Level(self.side, path, self.top or name)


def differences(before: Schema, after: Schema, side: Side, *, is_closed: bool = False) -> tuple[Difference, ...]:
    """Give what differs, in the order of the old schema, then what is new.

    Args:
        before: As it was.
        after: As it is.
        side: Who gives.
        is_closed: The input refuses fields that it does not list, as arguments of methods are.
    """
    level = _Level(side, "", "", is_closed, before.is_open, after.is_open)
    return (*_openness(before, after, level), *_fields(before.fields, after.fields, level))


def type_differences(before: Type, after: Type, side: Side, path: str) -> tuple[Difference, ...]:
    """The same for two types, e.g. of what a handler answers."""
    return tuple(_types(before, after, _Level(side, path, path)))


def _openness(before: Schema, after: Schema, level: _Level) -> Iterator[Difference]:
    if before.is_open == after.is_open:
        return
    if after.is_open:
        yield Difference("opened", "", False, "further fields may be there", "", "...")
    else:
        is_breaking = level.side == "input" and level.is_closed
        what = "are no longer taken" if level.side == "input" else "are no longer there"
        yield Difference("closed", "", is_breaking, f"fields that it does not list {what}", "...", "")


def _fields(before: Sequence[Field], after: Sequence[Field], level: _Level) -> Iterator[Difference]:
    old, new = {field.name: field for field in before}, {field.name: field for field in after}
    gone = [field for field in before if field.name not in new]
    fresh = [field for field in after if field.name not in old]
    if len(gone) == len(fresh) == 1 and _is_renamed(gone[0], fresh[0], level):
        yield _renamed(gone[0], fresh[0], level)
        gone, fresh = [], []
    for was in before:
        if was in gone:
            yield _removed(was, level)
        elif was.name in new:
            yield from _kept(was, new[was.name], level)
    for field in fresh:
        yield _added(field, level)


def _is_renamed(gone: Field, fresh: Field, level: _Level) -> bool:
    is_one = is_same(gone.type, fresh.type) and gone.required == fresh.required
    return (
        is_one
        and gone.type.kind != "unknown"
        and (_removed(gone, level).is_breaking or _added(fresh, level).is_breaking)
    )


def _renamed(gone: Field, fresh: Field, level: _Level) -> Difference:
    return Difference(
        "renamed", level.at(gone.name), True, f"is called {fresh.name!r} now", gone.name, fresh.name,
        name=level.top or fresh.name, was=level.top or gone.name,
    )  # fmt: skip


def _removed(field: Field, level: _Level) -> Difference:
    kept_open = level.is_open
    if level.side == "input":
        is_breaking, is_certain = level.is_closed and not kept_open, True
        why = "is no longer taken" if is_breaking else "is not looked at any more"
    else:
        is_breaking, is_certain = field.required and not kept_open, not (field.required and kept_open)
        why = "is no longer there" if field.required else "is no longer there, and could be missing before"
        why = why if is_certain else "may still be among the fields that are not listed"
    return Difference(
        "removed", level.at(field.name), is_breaking, why, str(field.type), "", is_certain, name=level.top or field.name
    )


def _added(field: Field, level: _Level) -> Difference:
    is_breaking = level.side == "input" and field.required
    is_doubtful = level.side == "input" and level.was_open and not is_breaking
    if level.side == "output":
        why = "is new; who does not know it does not look at it"
    else:
        why = "has to be given now" if field.required else "is new and may be left out"
    return Difference(
        "added", level.at(field.name), is_breaking, why, "", str(field.type), not is_doubtful, name=level.top or field.name
    )  # fmt: skip


def _kept(was: Field, now: Field, level: _Level) -> Iterator[Difference]:
    path, top = level.at(was.name), level.top or was.name
    if was.required != now.required:
        is_loss = now.required == (level.side == "input")
        why = {
            ("input", True): "has to be given now",
            ("input", False): "may be left out now",
            ("output", True): "is always there now",
            ("output", False): "may be missing now",
        }[level.side, now.required]
        yield Difference("required" if now.required else "optional", path, is_loss, why, name=top)
    yield from _types(was.type, now.type, level.below(path, was.name))


# --- types ---------------------------------------------------------------------------------


def _types(before: Type, after: Type, level: _Level) -> Iterator[Difference]:
    if is_same(before, after):
        return
    pair = _same_container(before, after)
    if pair is not None:
        yield from pair_differences(pair, level)
    else:
        yield from _leaf(before, after, level)


class _Pairs(NamedTuple):
    """What two containers of one kind hold: fields, or types with what to add to the path."""

    fields: tuple[Sequence[Field], Sequence[Field]] | None = None
    inner: tuple[tuple[str, Type, Type], ...] = ()


def pair_differences(pairs: _Pairs, level: _Level) -> Iterator[Difference]:
    """Walk into both."""
    if pairs.fields:
        yield from _fields(*pairs.fields, level)
    for step, was, now in pairs.inner:
        yield from _types(was, now, level._replace(path=level.path + step))


def _same_container(before: Type, after: Type) -> _Pairs | None:
    """Pair the insides of two types, where each difference inside is a difference of the whole and the other way round."""
    if before.kind != after.kind or before.kind in ("literal", "unknown", "any"):
        return None
    if before.kind == "record":
        return _Pairs((before.fields, after.fields))
    if before.kind == "union":
        return _one_choice(before, after)
    if not before.args or len(before.args) != len(after.args):
        return None
    if before.kind == "dict":
        return _Pairs(inner=((".*", before.args[1], after.args[1]),)) if before.args[0] == after.args[0] else None
    steps = [f"[{at}]" for at in range(len(before.args))] if before.kind == "tuple" else ["[]"]
    return _Pairs(inner=tuple(zip(steps, before.args, after.args, strict=True)))


def _one_choice(before: Type, after: Type) -> _Pairs | None:
    """Two unions that differ in one container each, e.g. `Order | None` of another Order."""
    was = [part for part in before.args if part not in after.args]
    now = [part for part in after.args if part not in before.args]
    if len(was) != 1 or len(now) != 1 or was[0].kind != now[0].kind or was[0].kind not in ("record", "list", "dict"):
        return None
    others = {part.kind for part in before.args} - {was[0].kind}
    is_apart = not others & {"record", "dict", "list", "tuple", "set", "unknown", "any"}
    return _same_container(was[0], now[0]) if is_apart else None


def _leaf(before: Type, after: Type, level: _Level) -> Iterator[Difference]:
    takes, sent = (after, before) if level.side == "input" else (before, after)
    found = refusal(takes, sent)
    if not found and not refusal(sent, takes):
        return  # another way to write the same
    is_breaking = found is not None and found.is_certain
    is_known = "unknown" not in (before.kind, after.kind)
    yield Difference(
        "type",
        level.path,
        is_breaking,
        _why(before, after, level.side, found),
        str(before),
        str(after),
        is_breaking or (is_known and found is None),
        witness(takes, sent) if is_breaking else (),
        level.top,
        is_new_value=level.side == "output",
    )


def _why(before: Type, after: Type, side: Side, found: Refusal | None) -> str:
    if "unknown" in (before.kind, after.kind) or (found and not found.is_certain):
        known = after if before.kind == "unknown" else before
        return (
            f"nothing was known of it, it is {known} now"
            if known is after
            else f"it was {known}, and is not known any more"
        )
    verb = "takes" if side == "input" else "gives"
    more, less = (
        ("more than before", "less than before") if side == "input" else ("what it never gave", "less than before")
    )
    if found:
        return f"was {before}, is {after} now: it {verb} {less if side == 'input' else more}"
    return f"was {before}, is {after} now: it {verb} {more if side == 'input' else less}"
