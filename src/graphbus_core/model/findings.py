"""Findings of the rules, and the fixes for them."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.proposals import CodeChange

NEW_DEPENDS_ON = "depend_on"
"""The intent of a fix that adds a `@depends_on`. Agents do not propose it: the gate refuses changes of the graph."""

Severity = Literal["error", "warning", "info"]


class Related(msgspec.Struct, frozen=True):
    """The other end of a broken edge: its agent, its place, and what stands there."""

    agent: str
    span: SourceSpan
    message: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A change that fixes a finding.

    Attributes:
        title: The change in the imperative, for people and proposals.
        intent: The proposal's intent, e.g. `"align_schema"`, `"add_validation"`.
        changes: The edits, possibly in several files; they are applied together or not at all.
        is_safe: True if no other agent and no caller can notice: `graphbus check --fix` applies it without a negotiation.
        affects: Agents whose contracts the change touches, except the owner.
    """

    title: str
    intent: str
    changes: tuple[CodeChange, ...]
    is_safe: bool = False
    affects: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One problem that a rule has found.

    Attributes:
        code: The rule, e.g. `"GB003"`.
        agent: The class in which it is reported.
        message: The problem in one sentence that names both ends.
        hint: What to do.
        related: The other ends.
        is_fixable: True if `rules.fix_for` can make a change that fixes it.
        data: The data for the fix as plain strings, e.g. `{"old": "skuu", "new": "sku"}`.
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
        """Identifies a finding before and after an edit that moves lines."""
        return (self.code, self.agent, self.message)
