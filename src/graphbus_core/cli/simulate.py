"""`graphbus simulate`: run the whole graph under many seeds, with crashes and other faults, and check what must hold."""

from __future__ import annotations

import shlex

import click

from graphbus_core.errors import did_you_mean
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.simulation.faults import KINDS, Kind


def _read_kinds(_ctx: click.Context, _option: click.Parameter, text: str) -> tuple[Kind, ...]:
    """Return the kinds of faults that `--faults` names."""
    if text in ("all", "none"):
        return KINDS if text == "all" else ()
    wanted = [each.strip() for each in text.split(",")]
    for each in wanted:
        if each not in KINDS:
            message = f"{each!r} is no kind of fault.{did_you_mean(each, KINDS)} Use all, none, or some of: {', '.join(KINDS)}."
            raise click.BadParameter(message)
    return tuple(each for each in KINDS if each in wanted)


@click.command("simulate", short_help="Run the graph under many seeds, with crashes and other faults.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--events", "events_path", default="", metavar="FILE", help="Publish the events of this JSON Lines file.")
@click.option("--seeds", metavar="N", type=click.IntRange(min=1), default=1000, help="How many seeds to try (1000).")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Try only this seed: repeat its run exactly.")
@click.option(
    "--faults", "kinds", default="all", callback=_read_kinds, metavar="KINDS", help="all, none, or names with commas."
)
@click.option(
    "--upgrade", default="", metavar="DIR", help="The artifacts of a build that replaces the first one meanwhile."
)
@click.option(
    "--nodes", metavar="N", type=click.IntRange(min=1), help="Divide the agents into so many processes at most."
)
@click.option("--allow-drift", is_flag=True, help="Start even if source files have changed since the build.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def simulate(
    *,
    artifacts: str,
    events_path: str,
    seeds: int,
    seed: int | None,
    kinds: tuple[Kind, ...],
    upgrade: str,
    nodes: int | None,
    allow_drift: bool,
    as_json: bool,
) -> int:
    """Run the graph in ARTIFACTS (.graphbus by default) on a ledger in memory, under one seed after the other. The seed
    decides the order of everything and what goes wrong: processes crash, answers get lost, leases end too early, clocks
    jump. Time is simulated. After each run it checks that nothing is lost, that effects happen once, that order is kept,
    that payloads fit their schemas, and the functions marked `@invariant` in `simulation.py` of the project.

    The first failure is made as small as possible and shown; the same seed shows it again. Kinds of faults: crash, lost,
    refused, duplicate, delay, lease, slow, engine, clock, restart, upgrade.

    With --upgrade, processes are replaced by those of another build, one by one, and some of them back; in the end, all run the
    other build. Both builds must have the same agents and subscriptions. No event may become a dead letter because the other
    build has published it, and in the end none may be parked.

    Exit status: 0 all held; 6 the artifacts are damaged or outdated; 7 an invariant does not hold, or the graph or the
    events cannot be used.

    \b
    Examples:
      graphbus simulate --events orders.jsonl
      graphbus simulate --events orders.jsonl --seeds 9999 --faults crash
      graphbus simulate --events orders.jsonl --seed 4711
      graphbus simulate old/.graphbus --upgrade .graphbus
    """
    from graphbus_core.cli.running.simulating import simulate_graph

    chosen = range(seeds) if seed is None else range(seed, seed + 1)
    request = RuntimeConfig(artifacts=artifacts, allow_drift=allow_drift)
    if kinds != KINDS and "upgrade" in kinds and not upgrade:
        raise click.BadParameter("upgrade needs --upgrade, the artifacts of another build.", param_hint="--faults")
    given = [artifacts] if artifacts != ".graphbus" else []
    given += ["--events", events_path] if events_path else []
    given += ["--faults", ",".join(kinds) or "none"] if kinds != KINDS else []
    given += ["--upgrade", upgrade] if upgrade else []
    given += ["--nodes", str(nodes)] if nodes else []
    again = " ".join(["graphbus simulate", *map(shlex.quote, given), "--seed"])
    simulate_graph(request, events_path, chosen, kinds, nodes=nodes or 0, upgrade=upgrade, again=again, as_json=as_json)
    return 0
