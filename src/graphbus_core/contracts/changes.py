"""What is different between two states of a graph, and whom that breaks."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from graphbus_core.model.agent import SourceSpan

ChangeKind = Literal[
    "agent-added",
    "agent-removed",
    "agent-renamed",
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
