"""`graphbus doctor`: show which models are usable, which one would negotiate, and what this machine provides."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.errors import UsageError
from graphbus_core.errors.run_register import how_to_install
from graphbus_core.llm.opening import (
    NOT_INSTALLED,
    ModelChoice,
    ProviderState,
    TrialCall,
    examine_providers,
    explain_choice,
    find_ignored_variables,
    try_model,
)
from graphbus_core.llm.providers import RULES
from graphbus_core.model.config import LLMConfig
from graphbus_core.model.spending import format_usd
from graphbus_core.settings import find_root, load

_NOT_USABLE = 5


@click.command("doctor", short_help="Show which models are usable, and what is missing.")
@click.option("--model", default="", metavar="MODEL", help="Examine this model instead of the one in the settings.")
@click.option(
    "--test",
    "tested",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[MODEL]",
    help="Send a minimal request to a model; without a name, to the one that would negotiate.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def doctor(*, model: str, tested: str | None, as_json: bool) -> int:
    """Show which model providers are usable and what is missing, which model `graphbus build --enable-agents` would use now
    and why, and whether changed code can run in a sandbox.

    Without --test nothing is sent to another machine. Keys are not read, only whether they are set.

    Exit status: 0 done; 5 the model that would negotiate, or the one that was tested, cannot be used.

    \b
    Examples:
      graphbus doctor
      graphbus doctor --test
      graphbus doctor --test ollama:qwen3-coder
      graphbus doctor --json
    """
    config = load(find_root([Path()])).llm
    if model:
        config = msgspec.structs.replace(config, model=model)
    states, chosen = examine_providers(config, os.environ), explain_choice(config, os.environ)
    from graphbus_core.editing import sandboxes

    surroundings: dict[str, Any] = {
        "sandbox": sandboxes.describe_isolation(),
        "has_git": shutil.which("git") is not None,
        "has_pytest": find_spec("pytest") is not None,
        "without_effect": find_ignored_variables(os.environ),
    }
    if not as_json:
        _show(states, chosen)
        console.print_lines(_machine(**surroundings))
    tried = _try(tested, chosen, config) if tested is not None else None
    if as_json:
        console.emit_json({"model": chosen, "providers": states, "surroundings": surroundings, "test": tried})
    elif tried:
        _show_tried(tried)
    return _NOT_USABLE if chosen.missing and not tried else 0


def _try(tested: str, chosen: ModelChoice, config: LLMConfig) -> TrialCall:
    if not tested and chosen.model == RULES:
        reason = "`rules` is not a model, so there is nothing to test"
        raise UsageError("GBE130", option="--test", name=RULES, reason=reason, example="anthropic")
    return try_model(tested or chosen.model, config, os.environ)


def _show(states: Sequence[ProviderState], chosen: ModelChoice) -> None:
    """Print the providers and the chosen model; a missing library that several providers need is named once, below."""
    console.print_line(style("Models", "strong"))
    console.print_table(("", "provider", "default model", "price", ""), [_row(state) for state in states])
    console.print_line()
    who = "the rule agents" if chosen.model == RULES else sanitize(chosen.model)
    console.print_line(f"`graphbus build --enable-agents` would use {style(who, 'strong')}: {chosen.because}.")
    console.print_lines(f"  {role}: {style(sanitize(model), 'strong')}" for role, model in chosen.roles.items())
    console.print_lines(
        f"  {style('✗', 'bad')} It cannot be asked: {sanitize(reason)}." for reason in _own(chosen.missing)
    )
    libraries = [reason for state in states for reason in state.missing if reason.endswith(NOT_INSTALLED)]
    for reason in dict.fromkeys(libraries):
        names = [state.name for state in states if reason in state.missing]
        who = "No provider" if len(names) == len(states) else f"None of {', '.join(names)}"
        console.print_line(
            f"  {style('✗', 'bad')} {sanitize(who)} can be asked: {sanitize(reason)}. {how_to_install('llm')}"
        )
    if chosen.model == RULES:
        console.print_line("  Export a key or name a model with --model; docs/models.md tells how.")


def _own(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(reason for reason in reasons if not reason.endswith(NOT_INSTALLED))


def _row(state: ProviderState) -> tuple[str, ...]:
    prices = {"settings": "by the settings", "this machine": "free", "table": "known", "unknown": "not known"}
    mark = style("·", "dim") if state.missing else style("✓", "good")
    ready = f"{state.key_variable} is set" if state.has_key else sanitize(state.address)
    note = style(sanitize("; ".join(_own(state.missing)) or ready), "dim") if state.missing else ready
    return mark, style(sanitize(state.name), "name"), sanitize(state.default_model) or "-", prices[state.price], note


def _machine(*, sandbox: str, has_git: bool, has_pytest: bool, without_effect: Sequence[str]) -> Iterator[str]:
    """Yield what else a negotiation needs, and the variables that are set but have no effect."""
    facts = [
        (sandbox[:1].upper() + sandbox[1:], not sandbox.startswith("there is no")),
        ("git is there" if has_git else "git is missing: --commit needs it", has_git),
        ("pytest is there" if has_pytest else "pytest is missing: the tests of a project cannot run", has_pytest),
        *((f"{name} is set and has no effect: see docs/models.md", False) for name in without_effect),
    ]
    yield from ("", style("This machine", "strong"))
    yield from (f"{style('✓', 'good') if is_good else style('·', 'warn')} {sanitize(fact)}" for fact, is_good in facts)


def _show_tried(tried: TrialCall) -> None:
    """Print the result of the test request."""
    cost = "its price is not known" if tried.cost_usd is None else format_usd(tried.cost_usd)
    console.print_line()
    console.print_line(
        f"{style('✓', 'good')} {style(sanitize(tried.model), 'strong')} answered in {tried.seconds:.2f} s: "
        f"{tried.input_tokens} tokens in, {tried.output_tokens} out, {cost}."
    )
    if tried.input_usd is None or tried.output_usd is None:
        console.print_line("  `max_usd` cannot limit what it costs: set `max_tokens` in [tool.graphbus.budget].")
    elif tried.input_usd or tried.output_usd:
        console.print_line(f"  A million tokens cost at most ${tried.input_usd:g} in and ${tried.output_usd:g} out.")
