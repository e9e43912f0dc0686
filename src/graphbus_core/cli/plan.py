"""`--plan`: show what a negotiation can cost at most, without asking a model."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize
from graphbus_core.compiler.project import Project
from graphbus_core.errors import raise_all
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.plan import CostPlan, plan_costs


def show_plan(request: BuildConfig, *, as_json: bool, backend: Backend | None = None) -> None:
    """Print what the negotiation can cost at most. No model is asked, and nothing is written."""
    config = settings.resolve_build(request)
    project = Project.read(config, cache=False)
    raise_all(project.errors)
    with backend or Backend(is_asked=False) as answering:
        planned = plan_costs(config, project, answering)
    if as_json:
        totals = {"calls": planned.calls, "tokens": planned.tokens, "cost_usd": planned.cost_usd}
        console.emit_json({"bound": totals, "plan": planned})
        return
    console.print_lines(_plan_head(planned))
    if not planned.models:
        console.print_line(f"Never more than {pluralize(planned.calls, 'question')} to agents.")
        return
    headers = ("task", "model", "calls ≤", "tokens ≤", "dollars ≤")
    rows = [
        (phase.task, sanitize(phase.model), f"{phase.calls:,}", f"{phase.tokens:,}", format_usd(phase.cost_usd))
        for phase in planned.phases
    ]
    console.print_table(headers, rows, right=headers[2:])
    caps = [f"{planned.max_calls:,} calls"]
    caps += [f"{planned.max_tokens:,} tokens"] if planned.max_tokens else []
    caps += [f"${planned.max_usd:g}"] if planned.max_usd else []
    worst = f"Worst case {format_usd(planned.cost_usd)} and {planned.tokens:,} tokens"
    console.print_line(f"Never more than {planned.calls:,} questions. {worst}.")
    console.print_line(f"It stops before it passes {', '.join(caps)}: [tool.graphbus.budget], --max-usd.")
    console.print_line("Nothing was asked and nothing was written.")


def _plan_head(planned: CostPlan) -> Iterator[str]:
    arbiters = f", {pluralize(planned.arbiters, 'arbiter')} among them" if planned.arbiters else ""
    yield f"{pluralize(planned.agents, 'agent')}{arbiters}, at most {pluralize(planned.rounds, 'round')}."
    if not planned.models:
        why = f" ({planned.note})" if planned.note else ""
        yield f"The rules negotiate{why}: no model is asked, nothing is spent."
    elif planned.asked < planned.agents:
        yield f"{planned.agents - planned.asked} have settled on their present inputs and are asked only for votes."
    for model, price in planned.prices.items() if planned.models else ():
        named = f"{sanitize(model)} ({', '.join(role for role, name in planned.models.items() if name == model)})"
        if price is None:
            yield f"{named}: its price is not known, only calls and tokens count."
        else:
            yield f"{named}: up to ${price.input_usd:g} for a million tokens in, ${price.output_usd:g} out."
