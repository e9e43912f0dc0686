"""Findings of the rules, and the fixes for them."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.proposals import CodeChange

NEW_DEPENDS_ON = "depend_on"
"""The intent of a fix that adds a `@depends_on`. Agents do not propose such fixes, because the gate refuses them."""

Severity = Literal["error", "warning", "info"]


class Related(msgspec.Struct, frozen=True):
    """Another place of a finding, such as the other end of a broken edge: its agent, its place, and a message about it."""

    agent: str
    span: SourceSpan
    message: str


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A change that fixes a finding.

    Attributes:
        title: The change in the imperative, for people and proposals.
        intent: The proposal's intent, e.g. `"align_schema"`, `"add_validation"`.
        changes: The edits, possibly in several files; they are applied together or not at all.
        is_safe: True if it changes nothing for other agents and callers; `graphbus check --fix` then applies it without a
            negotiation.
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
        code: The code of the rule, e.g. `"GB003"`.
        agent: The class in which it is reported.
        message: The problem in one sentence; for an edge it names both ends.
        hint: How to correct it.
        related: The other places of the problem, such as the other end of an edge.
        is_fixable: True if `rules.fix_for` can return a fix.
        is_fix_safe: True if that fix is safe.
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
        """Identifies a finding, even after an edit that moves it to another line: code, agent and message."""
        return (self.code, self.agent, self.message)
