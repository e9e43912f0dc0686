"""Ends processes and servers under load, many times: what is lost, doubled or out of order, and how long an end takes.

    python benchmarks/kills.py [--runs 20] [sqlite] [nats] [brokers] [restarts] [restarts-nats]

It takes about an hour, and is not part of `make bench`. In each run of `sqlite` and `nats`, 10 processes are killed while 2,000
orders pass three of them; in `brokers`, the server is killed five times as well; in `restarts`, there is one run, in which
processes get SIGTERM 50 times. A run that finds anything keeps its folder.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from stopwatch import ROOT

sys.path.insert(0, str(ROOT))  # the processes and servers of the tests

from tests.fakes.nats_server import NEWEST, NatsServer
from tests.fakes.orders_fleet import GROUPS, Outcome, fleet, make_project

ORDERS = 2000
LIMIT_S = 2.0
DOWN_S = 0.3


class Plan(NamedTuple):
    """What happens in a run: how many processes end by which signal, how many servers are killed, and the pace of the orders."""

    signal: signal.Signals = signal.SIGKILL
    ends: int = 10
    brokers: int = 0
    pause_s: float = 0.003


PLANS = {
    "sqlite": Plan(),
    "nats": Plan(),
    "brokers": Plan(brokers=5),
    "restarts": Plan(signal.SIGTERM, ends=50, pause_s=0.03),
    "restarts-nats": Plan(signal.SIGTERM, ends=50, pause_s=0.03),
}


def run_once(folder: Path, name: str, seed: int) -> tuple[Outcome, list[float]]:
    """Do one run; return what came of the orders, and the seconds that each process took to end."""
    chance, plan, took_s = random.Random(f"{name} {seed}"), PLANS[name], []
    with (
        nullcontext() if name in ("sqlite", "restarts") else NatsServer(NEWEST, folder / "nats") as server,
        fleet(make_project(folder / "orders"), "sqlite" if server is None else server.url("orders")) as running,
    ):
        running.place(ORDERS, plan.pause_s)
        ends = [*(["process"] * plan.ends), *(["broker"] * plan.brokers)]
        chance.shuffle(ends)
        for each in ends:
            time.sleep(chance.uniform(0.1, 1.0))
            if each == "process":
                took_s.append(running.restart(chance.choice(GROUPS), plan.signal))
            elif server is not None:
                server.kill()
                time.sleep(DOWN_S)
                server.start()
        return running.wait_until_done(ORDERS), took_s


def measure(name: str, runs: int) -> bool:
    """Do the runs of a plan, and print what came of them; True if nothing was lost, doubled or out of order."""
    found, took_s, seconds = [], list[float](), []
    for seed in range(runs):
        folder, began = Path(tempfile.mkdtemp(prefix=f"kills-{name}-")), time.monotonic()
        outcome, ends = run_once(folder, name, seed)
        found.append(outcome)
        took_s += ends
        seconds.append(time.monotonic() - began)
        print(
            f"  {name} {seed}: {outcome.lost} lost, {outcome.doubled} doubled, {outcome.order_breaks} out of order",
            flush=True,
        )
        if any(outcome):
            print(f"  see {folder}")
        else:
            shutil.rmtree(folder)
    total = Outcome(*map(sum, zip(*found, strict=True)))
    plan = PLANS[name]
    print(
        f"{name}: {runs} runs of {ORDERS} orders, {runs * plan.ends} x {plan.signal.name}, {runs * plan.brokers} broker kills:"
        f" {total.lost} lost, {total.doubled} doubled, {total.order_breaks} out of order;"
        f" a run takes {statistics.median(seconds):.0f} s ({min(seconds):.0f} to {max(seconds):.0f})"
    )
    if plan.signal == signal.SIGTERM:
        late = sum(each >= LIMIT_S for each in took_s)
        print(
            f"  an exit takes {statistics.median(took_s):.2f} s, at most {max(took_s):.2f} s; {late} took {LIMIT_S:g} s or more"
        )
    return not any(total)


def main() -> int:
    """Run the plans that are named, or all; status 1 if anything was lost, doubled or out of order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="how many runs of each plan with kills")
    parser.add_argument("plans", nargs="*", metavar="PLAN", default=list(PLANS))
    options = parser.parse_args()
    results = [measure(each, options.runs if PLANS[each].signal == signal.SIGKILL else 1) for each in options.plans]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
