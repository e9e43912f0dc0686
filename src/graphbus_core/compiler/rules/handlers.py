"""GB310, as far as it shows in the definitions: handlers that cannot be called. The rest of GB310 is found in the syntax tree."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.wiring import Heard, Wiring
from graphbus_core.model.findings import Finding


def check_handlers(wiring: Wiring) -> Iterator[Finding]:
    """Find handlers whose signature fits no way of calling them."""
    for heard in wiring.heard:
        if heard.subscription.shape == "invalid":
            yield _uncallable(heard)


def _uncallable(heard: Heard) -> Finding:
    method = heard.agent.method(heard.subscription.method)
    parameters = ", ".join(item.name for item in method.parameters) if method else ""
    return Finding(
        code="GB310",
        severity="error",
        agent=heard.agent.name,
        span=heard.subscription.span,
        message=f"{heard.name}({parameters}) cannot be called with an event",
        hint="Take nothing, `event`, `payload`, both, or the fields of the payload by name; no *args, none by position only.",
    )
