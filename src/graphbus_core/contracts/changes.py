"""Changes: what is different between two states of a graph, and whom it lets down."""

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


class Broken(NamedTuple):
    """An edge of the new graph whose other end a change lets down.

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
    """One thing that is different.

    Attributes:
        kind: What has happened.
        place: `"Stock.reserve"`, `"/Order/Placed"`, `"Stock"`.
        what: Which part of it: `"input"`, `"output"`, `"payload"`, `"Mail.on_placed"`, or empty.
        path: The field, `"items[].sku"`, or empty.
        is_breaking: Somebody who relied on it as it was can be let down: whether somebody is, `effect` says.
        is_certain: False where a type is not known; then it is not called breaking.
        is_public: Others than the agents of this graph may rely on it.
        why: One sentence.
        breaks: The edges of this graph that it breaks.
        example: As the one item of a tuple, a value that was fine and is refused now.
        is_new_value: The example is a value that may come now and never came before.
    """

    kind: ChangeKind
    place: str
    why: str
    span: SourceSpan
    what: str = ""
    path: str = ""
    is_breaking: bool = False
    is_certain: bool = True
    is_public: bool = False
    before: str = ""
    after: str = ""
    breaks: tuple[Broken, ...] = ()
    example: tuple[Any, ...] = ()
    is_new_value: bool = False
    is_new_place: bool = True

    @property
    def effect(self) -> Effect:
        """`breaking`: somebody is let down. `settled`: nobody is, for all who relied on it have changed with it."""
        if any(broken.is_certain for broken in self.breaks):
            return "breaking"
        if not self.is_breaking:
            return "compatible"
        return "breaking" if self.is_public or self.breaks else "settled"

    @property
    def breaks_outside(self) -> bool:
        """True when others than the agents of this graph are let down."""
        return self.is_breaking and self.is_public

    @property
    def title(self) -> str:
        """The place in one line: `"Stock.reserve: input items[].sku"`."""
        part = " ".join(filter(None, (self.what, self.path)))
        return f"{self.place}: {part}" if part else self.place
