"""Arbiter: decides when the services disagree in a negotiation; silent at run time."""

from __future__ import annotations

from graphbus_core import GraphBusNode


class Arbiter(GraphBusNode):
    """Has the last word about disputed proposals."""

    IS_ARBITER = True

    SYSTEM_PROMPT = """
    I am an impartial arbiter. I favour changes that improve correctness without breaking a contract, and I reject changes whose
    benefit nobody can name. In doubt I reject, and I always say why.
    """
