"""GB310, as far as it shows in the definitions: handlers that cannot be called; the rest is found in the syntax tree.

GB311: options of `@subscribe` that the handler cannot keep.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.wiring import Heard, Wiring
from graphbus_core.model.agent import Subscription
from graphbus_core.model.findings import Finding


def check_handlers(wiring: Wiring) -> Iterator[Finding]:
    """Find handlers whose signature fits no way of calling them."""
    for heard in wiring.asked_heard:
        if heard.subscription.shape == "invalid":
            yield _uncallable(heard)
        for problem, hint in _unkept(heard.subscription):
            yield Finding(
                code="GB311",
                severity="error",
                agent=heard.agent.name,
                span=heard.subscription.span,
                message=f"{heard.name} {problem}: a run refuses it",
                hint=hint,
            )


def _unkept(subscription: Subscription) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of one `@subscribe`, each with what to do about it."""
    options = subscription
    if options.retries < 0 or type(options.retries) is not int:
        yield (
            f"is given retries={options.retries!r}",
            "Give a whole number: how often a failed event is delivered again.",
        )
    if options.backoff_s is not None and options.backoff_s < 0:
        yield (
            f"is given backoff={options.backoff_s!r}",
            "Give seconds: how long to wait before the first further attempt.",
        )
    if options.timeout_s is not None and options.timeout_s <= 0:
        yield f"is given timeout={options.timeout_s!r}", "Give seconds, more than 0, or leave it out for no limit."
    if options.concurrency < 1 or type(options.concurrency) is not int:
        yield f"is given concurrency={options.concurrency!r}", "Give a whole number of at least 1."
    if not options.is_async and options.timeout_s is not None:
        yield (
            "is a plain `def`, which nothing can stop after a timeout",
            "Make it `async def`, or leave the timeout out.",
        )
    if not options.is_async and options.concurrency > 1:
        yield "is a plain `def`, which runs one event at a time", "Make it `async def`, or leave the concurrency out."


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
