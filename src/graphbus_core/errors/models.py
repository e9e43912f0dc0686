"""Refusals of models and their providers: exit status 5, as all of a negotiation."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {}
