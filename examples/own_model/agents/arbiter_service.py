"""ArbiterService: settles what the others cannot."""

from graphbus_core import GraphBusNode


class ArbiterService(GraphBusNode):
    """Decides about disputed changes."""

    IS_ARBITER = True
    SYSTEM_PROMPT = """When in doubt, reject, and say why."""
