"""`graphbus doctor --test`: asks a model one evaluation as in a session; says whether it was understood, and how fast it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from graphbus_core import settings
from graphbus_core.bus import MessageBus
from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, sanitize_line, style
from graphbus_core.cli.live import TOPICS, NegotiationLines
from graphbus_core.cli.plan import describe_expected
from graphbus_core.llm.opening import TrialCall, open_client, try_model
from graphbus_core.llm.providers import advice_on_form, is_program
from graphbus_core.llm.speed import MeasuringClient, ModelSpeed, load_speed, save_speed
from graphbus_core.model.config import BuildConfig, ResolvedBuild
from graphbus_core.model.messages import Event
from graphbus_core.model.proposals import VoteDecision
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.asking import OnWait, announce_waiting
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.plan import ExpectedSession, plan_costs
from graphbus_core.negotiation.sample_question import (
    SampleQuestion,
    ask_sample_question,
    sample_question_for,
)

_UNKNOWN_TIME = "How long it takes is not known: the server had the question in its cache, so it did not read it"


class ModelTest(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test.

    Attributes:
        model: `"provider:name"`.
        first_call: The minimal request that was sent first; None for a program, which is only asked the evaluation.
        is_about_project: False if the question was about a built-in shop, because there is no project that can be asked about.
        voter: The agent that was asked to vote.
        is_understood: The answer could be read as a vote.
        vote: The vote; None without one.
        unusable: Why each unusable answer could not be used.
        reason: Why there is no vote; empty if there is one.
        seconds: The time of all answers to the question; `input_tokens` and `output_tokens` are their tokens.
        speed: None without an answer; of a program, whose tokens are estimated, also without a vote.
        expected: What a usual session of the project takes; None if it is not known, as without a vote.
    """

    model: str
    first_call: TrialCall | None
    is_about_project: bool
    voter: str
    is_understood: bool
    vote: VoteDecision | None
    unusable: tuple[str, ...]
    reason: str
    seconds: float
    input_tokens: int
    output_tokens: int
    speed: ModelSpeed | None
    expected: ExpectedSession | None


def run_model_test(model: str, *, write: Callable[[str], None]) -> ModelTest:
    """Test a model: first with a minimal request, so that a server that does not answer is found soon, then with an evaluation.

    Args:
        model: The model, as for `--model`.
        write: Writes lines about what is known already.

    Raises:
        UsageError: There is no such model.
        ModelError: The model cannot be asked.
    """
    root = settings.find_root([Path()])
    config = settings.resolve_build(BuildConfig(paths=(str(root),), enable_agents=True, model=model))
    write("")
    write(style("Test", "strong"))
    first_call = None
    if not is_program(model):
        first_call = try_model(model, config.settings.llm, os.environ)
        for line in _first_call_lines(first_call):
            write(line)
    client = MeasuringClient(
        open_client(model, msgspec.structs.replace(config.settings.llm, max_attempts=1), os.environ)
    )
    try:
        with sample_question_for(config) as question:
            answer = ask_sample_question(question, client, _show_progress(write))
            expected = _expect_session(config, question, client) if answer.vote else None
    finally:
        console.show_status("")
        client.close()
    return ModelTest(
        model=client.model,
        first_call=first_call,
        is_about_project=question.is_about_project,
        voter=question.view.name,
        is_understood=answer.vote is not None,
        vote=answer.vote.decision if answer.vote else None,
        unusable=answer.unusable,
        reason=answer.failure,
        seconds=round(client.seconds, 3),
        input_tokens=client.usage.input_tokens,
        output_tokens=client.usage.output_tokens,
        speed=client.speed if answer.vote or first_call else None,
        expected=expected,
    )


def _expect_session(config: ResolvedBuild, question: SampleQuestion, client: MeasuringClient) -> ExpectedSession | None:
    """Keep the measured speed, and return what a usual session of the project takes; None without a project or an answer."""
    speed, model = client.speed, client.model
    if not (question.is_about_project and speed):
        return None
    if speed.read_per_s or not client.usage.cache_read_tokens or load_speed(config.artifacts_dir, model):
        save_speed(config.artifacts_dir, model, speed)
    with Backend(is_asked=False) as backend:
        return plan_costs(config, question.view.project, backend).expected


def _show_progress(write: Callable[[str], None]) -> OnWait:
    """Return an `on_wait` that shows who is asked as the status, and writes a line for each unusable answer."""
    bus, live = MessageBus(history=0), NegotiationLines()

    def listen(event: Event) -> None:
        for line in live.lines(event.topic, event.payload):
            write(line)
        console.show_status(live.status)

    bus.subscribe(TOPICS, listen)
    return announce_waiting(bus)


def result_lines(tried: ModelTest) -> Iterator[str]:
    """Yield the result of a test as text."""
    name, good, bad = style(sanitize(tried.model), "strong"), style("✓", "good"), style("✗", "bad")
    about = f"{sanitize(tried.voter)} of {'this project' if tried.is_about_project else 'a built-in example'}"
    if tried.is_understood:
        again = " after its first answer was sent back" if tried.unusable else ""
        yield f"{good} {name} was understood{again}: asked for the vote of {about}, it answered `{tried.vote}`."
    else:
        how = "was not understood" if tried.unusable else "did not answer"
        yield f"{bad} {name} {how}: asked for the vote of {about}, it gave no usable answer."
        yield from console.labelled_lines("why", sanitize_line(tried.reason), 5)
        if tried.unusable:
            advice = f"{advice_on_form(tried.model)} The rules negotiate without any model: `--model rules`."
            yield from console.labelled_lines("hint", advice, 5)
    if tried.speed:
        yield f"  {_describe_speed(tried, tried.speed)}"
    if tried.expected:
        yield f"  A usual session of this project: {describe_expected(tried.expected, _UNKNOWN_TIME)}."
    if tried.is_understood:
        yield style(
            "  This shows that the format works. It says nothing about the quality of votes and proposals.", "dim"
        )


def _describe_speed(tried: ModelTest, speed: ModelSpeed) -> str:
    """Return the tokens and the speed of the answers in one sentence."""
    read = f" at {speed.read_per_s:,.0f} a second" if speed.read_per_s else ""
    written = f"wrote {tried.output_tokens:,} at {speed.write_per_s:,.0f} a second"
    return f"It read {tried.input_tokens:,} tokens{read} and {written}: {tried.seconds:.1f} s."


def _first_call_lines(call: TrialCall) -> Iterator[str]:
    """Yield how long the minimal request took, and what is known of the price."""
    cost = "its price is not known" if call.cost_usd is None else format_usd(call.cost_usd)
    yield (
        f"{style('✓', 'good')} {style(sanitize(call.model), 'strong')} answered in {call.seconds:.2f} s: "
        f"{call.input_tokens} tokens in, {call.output_tokens} out, {cost}."
    )
    if call.input_usd is None or call.output_usd is None:
        yield "  The price is not known, so `max_usd` cannot limit the cost: set `max_tokens` in [tool.graphbus.budget]."
    elif call.input_usd or call.output_usd:
        yield f"  A million tokens cost at most ${call.input_usd:g} in and ${call.output_usd:g} out."
