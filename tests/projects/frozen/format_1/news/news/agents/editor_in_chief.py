"""EditorInChief: decides when the desk disagrees in a negotiation; silent at run time."""

from __future__ import annotations

from graphbus_core import GraphBusNode


class EditorInChief(GraphBusNode):
    """Has the last word about disputed proposals."""

    IS_ARBITER = True

    SYSTEM_PROMPT = """
    I settle disputes of the news desk. An article must never get lost and never appear twice: I judge every
    change by that first. I reject what widens a payload without a reader for it, and I always give my reason.
    """
