"""`graphbus simulate`: loads the graph and its events, tries the seeds, and shows the first failure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.graph import GraphOrigin
from graphbus_core.hosting.imports import NodeModules
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.simulation.events import make_up_events, read_events
from graphbus_core.simulation.faults import Kind
from graphbus_core.simulation.invariants import invariants_of
from graphbus_core.simulation.record import Record, Violation
from graphbus_core.simulation.search import Failure, Simulation
from graphbus_core.simulation.subject import Subject, subject_of_build
from graphbus_core.store import BuildArtifacts

_LINES = 40
"""How many lines of what happened are shown, the last ones."""


def simulate_graph(
    request: RuntimeConfig,
    events_path: str,
    seeds: range,
    kinds: Sequence[Kind],
    *,
    nodes: int,
    upgrade: str,
    again: str,
    as_json: bool,
) -> None:
    """Run a built graph under these seeds up to the first failure, and print what came of it.

    Args:
        request: The artifacts.
        events_path: The file with the events; empty: they are made up.
        seeds: The seeds.
        kinds: The kinds of faults.
        nodes: How many processes there are at most; 0: as many as possible.
        upgrade: The artifacts of another build, which replaces the first one while it runs; empty: there is none.
        again: The command that repeats a run, without its seed.
        as_json: Print a JSON document.

    Raises:
        GraphBusError: The graph cannot be loaded.
        RunError: GBE666 for events that cannot be used, GBE667 for a graph that cannot be simulated, GBE668 for a failure.
    """
    other = None
    if upgrade:
        with _loaded(msgspec.structs.replace(request, artifacts=upgrade), nodes) as (other, _):
            pass  # its modules make room for those of the first build, which have the same names
    with _loaded(request, nodes) as (first, artifacts):
        topics = first.topics
        events = read_events(events_path, topics) if events_path else make_up_events(artifacts, topics)
        subject = first if other is None else first.upgraded_to(other)
        simulation = Simulation(subject, events, kinds)
        _print_notes(simulation, subject)
        failure = _try_seeds(simulation, seeds)
        _print_result(failure, seeds, len(events), as_json=as_json)
        if failure is not None:
            raise _make_error(failure, subject, again)


@contextmanager
def _loaded(request: RuntimeConfig, nodes: int) -> Iterator[tuple[Subject, BuildArtifacts]]:
    """Yield the graph and its artifacts; its modules are imported while the block runs."""
    stages = runtime.PIPELINE.excluding("INIT_SIMPLE_BUS", "EXECUTE_ENTRYPOINT", "SHUTDOWN")
    products = stages.run(request)
    modules = products[NodeModules]
    try:
        origin = GraphOrigin(products[BuildArtifacts], modules, products[ResolvedRun])
        subject = subject_of_build(origin, nodes, users=invariants_of(modules.import_own("simulation")))
        yield subject, origin.artifacts
    finally:
        modules.forget()


def _print_notes(simulation: Simulation, subject: Subject) -> None:
    """Print which processes there are, and what is not under control."""
    console.print_note(f"Processes: {', '.join(subject.nodes)}")
    for each in simulation.named:
        console.print_note(style(f"Not under control: {sanitize(each)}", "warn"))
    reason = "on a clock or on chance" if subject.upgrade is None else "on a clock, on chance or on the build"
    for each in sorted(simulation.expected.changing):
        console.print_note(style(f"Not compared, because it depends {reason}: {sanitize(each)}", "warn"))


def _try_seeds(simulation: Simulation, seeds: Iterable[int]) -> Failure | None:
    """Return the first failure, or None; show the progress."""
    began = time.monotonic()
    for done, seed in enumerate(seeds, 1):
        failure = simulation.find(seed)
        if failure is not None:
            return failure
        took_s = max(time.monotonic() - began, 1e-9)
        if not done % 50:
            console.show_status(f"{done} seeds · {done / took_s:.0f} a second")
    if done > 1:
        console.print_note(f"{done} seeds in {took_s:.1f} s, {done / took_s:.0f} a second")
    return None


def _print_result(failure: Failure | None, seeds: range, events: int, *, as_json: bool) -> None:
    tried = pluralize(len(seeds), "seed") if len(seeds) > 1 else f"seed {seeds[0]}"
    held = f"Every invariant held: {tried}, {pluralize(events, 'event')}."
    if not as_json:
        console.print_lines([held] if failure is None else _failure_lines(failure))
    elif failure is None:
        console.emit_json({"seeds": len(seeds), "failure": None})
    else:
        console.emit_json({"seeds": failure.seed - seeds[0] + 1, "failure": _as_document(failure)})


def _as_document(failure: Failure) -> dict[str, object]:
    return {
        "seed": failure.seed,
        **msgspec.structs.asdict(failure.violation),
        "faults": [{"sentence": each.sentence, "fault": each} for each in failure.faults],
        "events": failure.events,
    }


def _failure_lines(failure: Failure) -> Iterator[str]:
    """Yield a failure as text: what is wrong, the faults and events that are needed for it, and what happened."""
    record, violation = failure.result.record, failure.violation
    yield f"{style('Seed', 'strong')} {failure.seed}: {sanitize(violation.what)}"
    yield f"Violated: {sanitize(violation.invariant)}"
    yield f"Faults ({len(failure.faults)} of {failure.all_faults} are needed):"
    yield from (f"  {sanitize(each.sentence)}" for each in failure.faults)
    yield f"Events ({len(failure.events)} of {failure.all_events} are needed):"
    yield from (f"  {sanitize(msgspec.json.encode(each).decode())}" for each in failure.events)
    concerned = _find_concerned(record, violation)
    if concerned:
        yield "Causal tree:"
        yield from (f"  {sanitize(each)}" for each in record.causal_tree(concerned))
    yield "What happened:"
    start = record.lines[0][0] if record.lines else 0.0
    yield from (f"  {at - start:9.3f} s  {sanitize(f'{who} {what}')}" for at, who, what in record.lines[-_LINES:])


def _find_concerned(record: Record, violation: Violation) -> str:
    """Return the id of the event to show: that of the violation, or the last one of its agent; empty if there is no event."""
    if violation.event in record.events:
        return violation.event
    of_agent = [event for event, handler, _ in record.outcomes if handler.partition(".")[0] == violation.handler]
    return [*record.events, *of_agent][-1] if record.events else ""


def _make_error(failure: Failure, subject: Subject, again: str) -> RunError:
    seed, found = failure.seed, failure.violation
    where, what = _place_of(found.handler, subject), found.what.rstrip(".")
    return RunError("GBE668", where=where, seed=seed, invariant=found.invariant, what=what, command=f"{again} {seed}")


def _place_of(handler: str, subject: Subject) -> Place | None:
    """Return the line of a handler, or of the class of an agent; None if it is not known.

    Of two builds it is that of the second, which is the one on trial.
    """
    agent, _, method = handler.partition(".")
    upgraded = subject.upgrade.members if subject.upgrade else ()
    for member in (*upgraded, *subject.members):
        if member.name == agent:
            code = getattr(getattr(member.node, method or "_", None), "__code__", None)
            return member.place if code is None else Place(os.path.relpath(code.co_filename), code.co_firstlineno)
    return None
