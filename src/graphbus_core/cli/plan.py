"""`--plan`: show what a negotiation can cost at most, and what a usual one takes, without asking a model."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import format_duration, pluralize, sanitize
from graphbus_core.compiler.project import Project
from graphbus_core.errors import raise_all
from graphbus_core.llm.providers import COMMAND, RULES
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.plan import CostPlan, ExpectedSession, plan_costs


def show_plan(request: BuildConfig, *, as_json: bool, backend: Backend | None = None) -> None:
    """Print the highest possible cost of the negotiation. No model is asked, and nothing is written."""
    config = settings.resolve_build(request)
    project = Project.read(config, cache=False)
    raise_all(project.errors)
    with backend or Backend(is_asked=False) as answering:
        planned = plan_costs(config, project, answering)
    if as_json:
        totals = {"calls": planned.calls, "tokens": planned.tokens, "cost_usd": planned.cost_usd}
        console.emit_json({"bound": totals, "plan": planned})
        return
    console.print_lines(_summary_lines(planned))
    if not planned.models:
        console.print_line(f"At most {pluralize(planned.calls, 'question')} to agents.")
        return
    has_costs = any(price and any(price) for price in planned.prices.values())
    headers = ("task", "model", "calls ≤", "tokens ≤", "dollars ≤")[: 4 + has_costs]
    rows = [
        (phase.task, sanitize(phase.model), f"{phase.calls:,}", f"{phase.tokens:,}", format_usd(phase.cost_usd))[
            : len(headers)
        ]
        for phase in planned.phases
    ]
    console.print_table(headers, rows, right=headers[2:])
    cost = "" if planned.unpriced or not has_costs else f"{format_usd(planned.cost_usd)} and "
    console.print_line(f"At most {planned.calls:,} questions. Worst case {cost}{planned.tokens:,} tokens.")
    if planned.expected:
        console.print_line(f"Expected: {describe_expected(planned.expected)}.")
    console.print_lines(_limit_lines(planned))
    console.print_line("Nothing was asked and nothing was written.")


_UNKNOWN_TIME = "How long it takes is not known: `graphbus doctor --test` measures the speed of the model"


def describe_expected(expected: ExpectedSession, unknown_time: str = _UNKNOWN_TIME) -> str:
    """Return what a usual session takes: `about 22 questions, 48,000 tokens and 14 min 5 s at the measured speed`."""
    amounts = [f"about {pluralize(expected.questions, 'question')}", f"{_round_tokens(expected.tokens):,} tokens"]
    amounts += [format_usd(expected.cost_usd)] if expected.cost_usd else []
    if expected.seconds is None:
        return f"{', '.join(amounts)}. {unknown_time}"
    return f"{', '.join(amounts)} and {format_duration(expected.seconds)} at the measured speed"


def _round_tokens(tokens: int) -> int:
    """Return an estimate with two significant digits."""
    return round(tokens, 2 - len(str(tokens)))


def _limit_lines(planned: CostPlan) -> Iterator[str]:
    """Yield at which limits the negotiation stops, and which limit in dollars cannot be kept."""
    where = "[tool.graphbus.budget]"
    caps = [f"{planned.max_calls:,} calls"]
    caps += [f"{planned.max_tokens:,} tokens"] if planned.max_tokens else []
    priced = [model for model, price in planned.prices.items() if price and any(price)]
    if planned.max_usd and priced:
        caps += [f"${planned.max_usd:g}" + (f" for {sanitize(', '.join(priced))}" if planned.unpriced else "")]
    option = " or with --max-usd" if priced else ""
    yield f"It stops before it exceeds {', '.join(caps)}. Set these limits in {where}{option}."
    if planned.unpriced:
        named = sanitize(", ".join(planned.unpriced))
        yield f"No limit in dollars is possible for {named}; `max_tokens` in {where} limits the tokens."


def _summary_lines(planned: CostPlan) -> Iterator[str]:
    """Yield the numbers of agents and rounds, how many agents are only asked for votes, and the price of each model."""
    arbiters = f", {pluralize(planned.arbiters, 'arbiter')} among them" if planned.arbiters else ""
    yield f"{pluralize(planned.agents, 'agent')}{arbiters}, at most {pluralize(planned.rounds, 'round')}."
    if not planned.models:
        why = f" ({planned.note})" if planned.note else ""
        programs = f" and programs for {', '.join(planned.programs)}" if planned.programs else ""
        spent = "what the programs spend is not known" if programs else "nothing is spent"
        yield f"The rules{programs} negotiate{why}: no model is asked, {spent}."
    elif planned.asked < planned.agents:
        yield f"{planned.agents - planned.asked} have settled on their present inputs and are asked only for votes."
    for model, price in planned.prices.items() if planned.models else ():
        named = f"{sanitize(model)} ({', '.join(role for role, name in planned.models.items() if name == model)})"
        if model == RULES:
            yield f"{named}: no model is asked, nothing is spent."
        elif model.startswith(f"{COMMAND}:"):
            yield f"{named}: what the program spends is not known, so only calls and tokens are limited."
        elif price is None:
            yield f"{named}: its price is not known, so only calls and tokens are limited."
        elif not any(price):
            yield f"{named}: it runs on this machine and costs nothing."
        else:
            yield f"{named}: up to ${price.input_usd:g} for a million tokens in, ${price.output_usd:g} out."
