"""What the rules find, and what would mend it."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.proposals import CodeChange

NEW_DEPENDS_ON = "depend_on"
"""The intent of a fix that needs a new `@depends_on`, which the gate lets nobody propose: it changes the graph."""

Severity = Literal["error", "warning", "info"]


class Related(msgspec.Struct, frozen=True):
    """The other end of a broken edge: who, where and what it says there."""

    agent: str
    span: SourceSpan
    message: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A change that mends a finding.

    Attributes:
        title: What it does, in the imperative, for people and proposals.
        intent: The proposal's intent, e.g. `"align_schema"`, `"add_validation"`.
        changes: The edits, possibly over several files; they stand or fall together.
        is_safe: True when no other agent and no caller can notice: `graphbus check --fix` applies it without a negotiation.
        affects: Agents whose contracts the change touches, the owner left out.
    """

    title: str
    intent: str
    changes: tuple[CodeChange, ...]
    is_safe: bool = False
    affects: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that is wrong.

    Attributes:
        code: The rule, e.g. `"GB003"`.
        agent: The class at whose place it is reported.
        message: What is wrong, one sentence that names both ends.
        hint: What to do.
        related: The other ends.
        is_fixable: True when `rules.fix_for` can make a change that mends it.
        data: What the fix needs to know: plain strings, e.g. `{"old": "skuu", "new": "sku"}`.
    """

    code: str
    severity: Severity
    agent: str
    span: SourceSpan
    message: str
    hint: str = ""
    related: tuple[Related, ...] = ()
    is_fixable: bool = False
    is_fix_safe: bool = False
    data: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines move: a finding that was there before an edit is recognised by it."""
        return (self.code, self.agent, self.message)
