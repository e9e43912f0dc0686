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
from graphbus_core.errors.model_register import how_to_install
from graphbus_core.llm.opening import (
    NOT_INSTALLED,
    ModelChoice,
    ProviderState,
    examine_providers,
    explain_choice,
    find_ignored_variables,
)
from graphbus_core.llm.providers import RULES
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
    help="Ask a model one evaluation as in a session; without a name, the one that would negotiate.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def doctor(*, model: str, tested: str | None, as_json: bool) -> int:
    """Show which model providers are usable and what is missing, which model `graphbus build --enable-agents` would use now
    and why, and whether changed code can run in a sandbox.

    Without --test nothing is sent to another machine. Keys are not read, only whether they are set.

    With --test the model judges one proposal, in the format of a session and about this project if there is one. The
    result says whether the answer was understood, how fast the model is, and what a session of this project takes.

    Exit status: 0 done; 5 the model that would negotiate, or the one that was tested, cannot be used, or its answer was
    not understood.

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
        _print_models(states, chosen)
        console.print_lines(_machine_lines(**surroundings))
    tried = None
    if tested is not None:
        from graphbus_core.cli.model_test import result_lines, run_model_test

        tried = run_model_test(
            _choose_tested_model(tested, chosen), write=console.print_note if as_json else console.print_line
        )
        if not as_json:
            console.print_lines(result_lines(tried))
    if as_json:
        console.emit_json({"model": chosen, "providers": states, "surroundings": surroundings, "test": tried})
    return 0 if (tried.is_understood if tried else not chosen.missing) else _NOT_USABLE


def _choose_tested_model(tested: str, chosen: ModelChoice) -> str:
    """Return the model to test: `tested`, or the one that would vote; raise GBE130 if these are the rule agents."""
    if not tested and chosen.model == RULES:
        reason = "`rules` is not a model, so there is nothing to test"
        raise UsageError("GBE130", option="--test", name=RULES, reason=reason, example="--test anthropic")
    return tested or chosen.roles.get("evaluator", chosen.model)


def _print_models(states: Sequence[ProviderState], chosen: ModelChoice) -> None:
    """Print the providers and the chosen model; a missing library that several providers need is named once, below."""
    console.print_line(style("Models", "strong"))
    console.print_table(("", "provider", "default model", "price", ""), [_provider_row(state) for state in states])
    console.print_line()
    negotiator = "the rule agents" if chosen.model == RULES else sanitize(chosen.model)
    console.print_line(f"`graphbus build --enable-agents` would use {style(negotiator, 'strong')}: {chosen.because}.")
    console.print_lines(f"  {role}: {style(sanitize(model), 'strong')}" for role, model in chosen.roles.items())
    console.print_lines(
        f"  {style('✗', 'bad')} It cannot be used: {sanitize(reason)}."
        for reason in _reasons_except_libraries(chosen.missing)
    )
    libraries = [reason for state in states for reason in state.missing if reason.endswith(NOT_INSTALLED)]
    for reason in dict.fromkeys(libraries):
        names = [state.name for state in states if reason in state.missing]
        providers = "No provider" if len(names) == len(states) else f"None of {', '.join(names)}"
        console.print_line(
            f"  {style('✗', 'bad')} {sanitize(providers)} can be used: {sanitize(reason)}. {how_to_install('llm')}"
        )
    if chosen.model == RULES:
        console.print_line("  To use a model, export its key or pass --model; see docs/models.md.")


def _reasons_except_libraries(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the reasons why a provider cannot be used, without those about a library that is not installed."""
    return tuple(reason for reason in reasons if not reason.endswith(NOT_INSTALLED))


def _provider_row(state: ProviderState) -> tuple[str, ...]:
    """Return the cells of a provider: mark, name, default model, price, and what it lacks or how it is set up."""
    prices = {"settings": "by the settings", "this machine": "free", "table": "known", "unknown": "not known"}
    mark = style("·", "dim") if state.missing else style("✓", "good")
    ready = f"{state.key_variable} is set" if state.has_key else sanitize(state.address)
    note = (
        style(sanitize("; ".join(_reasons_except_libraries(state.missing)) or ready), "dim") if state.missing else ready
    )
    return mark, style(sanitize(state.name), "name"), sanitize(state.default_model) or "-", prices[state.price], note


def _machine_lines(*, sandbox: str, has_git: bool, has_pytest: bool, without_effect: Sequence[str]) -> Iterator[str]:
    """Yield the facts on this machine that a negotiation depends on, and variables that are set but have no effect."""
    facts = [
        (sandbox[:1].upper() + sandbox[1:], not sandbox.startswith("there is no")),
        ("git is installed" if has_git else "git is missing: --commit needs it", has_git),
        ("pytest is installed" if has_pytest else "pytest is missing: the tests of a project cannot run", has_pytest),
        *((f"{name} is set and has no effect: see docs/models.md", False) for name in without_effect),
    ]
    yield from ("", style("This machine", "strong"))
    yield from (f"{style('✓', 'good') if is_good else style('·', 'warn')} {sanitize(fact)}" for fact, is_good in facts)
