"""Shrinking of lists, faults as plain values, and the repetition of whole runs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from random import Random
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe
from graphbus_core.errors import RunError
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.memory_queue import Delivery, Queue
from graphbus_core.simulation.faults import KINDS, OUTSIDE, Fault, Kind, make_faults
from graphbus_core.simulation.invariants import UserInvariants, View, invariant
from graphbus_core.simulation.record import ORDER
from graphbus_core.simulation.search import Simulation, make_early, shrink
from graphbus_core.simulation.subject import RootEvent, subject_of_classes
from graphbus_core.simulation.surroundings import ModuleMemory


@given(st.lists(st.integers(0, 40), unique=True), st.sets(st.integers(0, 40), max_size=4))
def test_shrinking_leaves_exactly_what_is_needed(items: list[int], needed: set[int]) -> None:
    wanted = [each for each in items if each in needed]
    assert shrink(items, lambda some: set(wanted) <= set(some)) == wanted


def test_shrinking_ends_after_a_number_of_runs() -> None:
    runs: list[int] = []

    def fails(some: Sequence[int]) -> bool:
        runs.append(len(some))
        return len(some) > 90

    assert len(shrink(range(100), fails, most_runs=5)) <= 100
    assert len(runs) == 5


def test_faults_come_as_early_as_they_may() -> None:
    late = Fault("crash", "Till", "settle", 9, 5.0)
    found = make_early([late], lambda faults: faults[0].number >= 3)
    assert found == [msgspec.structs.replace(late, number=3)]


COUNTS = {"Till": {"claim": 9, "settle": 4, "extend": 2}, OUTSIDE: {"append": 5}}


@given(st.integers(), st.sets(st.sampled_from(KINDS)))
def test_faults_are_of_the_chosen_kinds_and_hit_operations_that_happen(seed: int, kinds: set[Kind]) -> None:
    for fault in make_faults(Random(seed), COUNTS, kinds):  # type: ignore[arg-type]
        assert fault.kind in kinds
        assert 1 <= fault.number <= COUNTS[fault.node][fault.operation]
        assert fault.node != OUTSIDE or fault.kind not in ("crash", "slow", "lease", "clock", "restart")


@given(st.integers())
def test_a_seed_chooses_the_same_faults_again(seed: int) -> None:
    assert make_faults(Random(seed), COUNTS, KINDS) == make_faults(Random(seed), COUNTS, KINDS)  # type: ignore[arg-type]


@given(st.integers())
def test_faults_survive_as_json(seed: int) -> None:
    faults = make_faults(Random(seed), COUNTS, KINDS)  # type: ignore[arg-type]
    assert msgspec.json.decode(msgspec.json.encode(faults), type=list[Fault]) == faults


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            Fault("crash", "Till", "settle", 2, 5.0, is_after=True),
            "Till crashes after its 2nd settle, and starts again 5 s later",
        ),
        (Fault("lost", "Till", "claim", 11), "Till does not hear that its 11th claim was applied"),
        (
            Fault("clock", "Till", "claim", 3, -3600.0),
            "Till has a clock that goes 3600 s back at its 3rd claim",
        ),
    ],
)
def test_a_fault_is_told_in_plain_words(fault: Fault, sentence: str) -> None:
    assert fault.sentence == sentence


# --- whole runs ---


class Till(GraphBusNode):
    @subscribe("/Sale")
    @publishes("/Sold", {"n": int})
    async def on_sale(self, event: Event) -> None:
        await asyncio.sleep(random.random())
        self.state["sum"] = self.state.get("sum", 0) + event["n"]
        self.publish("/Sold", {"n": event["n"]})


class Book(GraphBusNode):
    @subscribe("/Sold")
    def on_sold(self, n: int) -> None:
        self.state["last"] = n


SALES = [RootEvent("/Sale", {"n": number}) for number in range(4)]


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_repeats_a_run_exactly(seed: int) -> None:
    first, second = (Simulation(subject_of_classes(Till, Book), SALES).run(seed) for _ in range(2))
    assert first.record.lines == second.record.lines
    assert first.record.lines
    assert first.record.outcomes == second.record.outcomes


def test_a_run_leaves_clocks_and_chance_as_they_were() -> None:
    before = time.time, time.sleep, random.getstate()
    Simulation(subject_of_classes(Till, Book), SALES).run(3)
    assert (time.time, time.sleep, random.getstate()) == before


class Stamps(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.state["at"] = time.time()
        self.state["luck"] = random.random()
        self.state["sum"] = self.state.get("sum", 0) + event["n"]


def test_what_depends_on_a_clock_or_on_chance_is_named_and_not_compared() -> None:
    simulation = Simulation(subject_of_classes(Stamps), SALES)
    assert simulation.expected.changing == {"Stamps.at", "Stamps.luck"}
    assert all(simulation.find(seed) is None for seed in range(50))


class Sleeps(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        time.sleep(3600)
        self.state["hours"] = self.state.get("hours", 0) + 1


def test_a_handler_that_sleeps_takes_no_real_time() -> None:
    began = time.monotonic()
    assert Simulation(subject_of_classes(Sleeps), SALES).run(0).violation is None
    assert time.monotonic() - began < 600


class StartsAThread(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        import threading

        threading.Thread(target=print).start()


def test_a_graph_that_cannot_be_repeated_is_refused_and_the_handler_is_named() -> None:
    with pytest.raises(RunError, match=r"StartsAThread\.on_sale uses a thread") as refused:
        Simulation(subject_of_classes(StartsAThread), SALES)
    assert refused.value.code == "GBE667"


class Counts(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"count": int})
    async def count(self) -> dict[str, int]:
        await asyncio.sleep(1)
        return {"count": 1}


@depends_on("Counts")
class Blocks(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.call("Counts", "count")


def test_a_plain_handler_that_blocks_for_an_async_agent_is_refused_and_named() -> None:
    with pytest.raises(RunError, match=r"Blocks\.on_sale uses an agent with `async def` handlers .* blocks"):
        Simulation(subject_of_classes(Counts, Blocks), SALES)


class CannotStart(GraphBusNode):
    def on_start(self) -> None:
        raise OSError("no licence")


def test_an_agent_that_cannot_start_is_an_error() -> None:
    with pytest.raises(RunError, match="no licence") as refused:
        Simulation(subject_of_classes(CannotStart), SALES)
    assert refused.value.code == "GBE667"


class Echo(GraphBusNode):
    @subscribe("/Sale")
    @subscribe("/Again")
    def on_event(self, event: Event) -> None:
        self.publish("/Again", {"n": 1})


def test_a_graph_that_never_comes_to_rest_ends_at_the_limit_of_a_chain() -> None:
    result = Simulation(subject_of_classes(Echo, max_hops=5), SALES[:1]).run(0)
    assert result.violation is None


class Prices(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"price": int})
    def price(self) -> dict[str, int]:
        return {"price": 2}


@depends_on("Prices")
class Asks(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.state["sum"] = self.state.get("sum", 0) + self.call("Prices", "price")["price"]


def test_agents_that_call_each_other_share_a_process() -> None:
    subject = subject_of_classes(Till, Prices, Asks, Book)
    assert list(subject.nodes) == ["Till", "Prices+Asks", "Book"]
    assert Simulation(subject, SALES).run(5).violation is None


def test_the_number_of_processes_may_be_limited() -> None:
    assert len(subject_of_classes(Till, Prices, Asks, Book, nodes=2).nodes) == 2


class Keyed(GraphBusNode):
    @subscribe("/Sale", key="n", retries=1)
    def on_sale(self, event: Event) -> None:
        self.state[f"n{event['n']}"] = self.state.get(f"n{event['n']}", 0) + 1


def test_partitions_may_be_handled_in_any_order() -> None:
    simulation = Simulation(subject_of_classes(Keyed, partitions=3), SALES * 2)
    assert all(simulation.find(seed) is None for seed in range(60))


class DividesByNumber(MemoryLedger):
    def _queue_of(self, delivery: Delivery) -> Queue:
        delivery.partition = delivery.number % 3
        return super()._queue_of(delivery)


def test_an_engine_that_does_not_divide_by_key_is_found() -> None:
    """Events of one key are in several partitions, which do not wait for each other."""
    simulation = Simulation(subject_of_classes(Keyed, partitions=3, ledger=DividesByNumber), SALES * 2)
    failures = [failure for seed in range(60) if (failure := simulation.find(seed)) is not None]
    assert ORDER in {each.violation.invariant for each in failures}


class Flips(GraphBusNode):
    @subscribe("/Step")
    def on_step(self, by: int) -> None:
        self.state["last"] = by


class One(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.publish("/Step", {"by": 1})


class Two(GraphBusNode):
    @subscribe("/Sale")
    def on_sale(self, event: Event) -> None:
        self.publish("/Step", {"by": 2})


def test_a_project_may_say_what_is_not_compared() -> None:
    subject = subject_of_classes(One, Two, Flips)
    assert any(Simulation(subject, SALES).find(seed) for seed in range(20))
    subject.users = UserInvariants((), ("Flips.l*",))
    assert not any(Simulation(subject, SALES).find(seed) for seed in range(20))


@invariant
def sums_are_small(view: View) -> None:
    assert view.states["Till"]["sum"] < 6, "too much"


def test_an_invariant_of_the_project_is_reported_with_its_message() -> None:
    users = UserInvariants((sums_are_small,))
    found = Simulation(subject_of_classes(Till, Book, users=users), SALES).run(0).violation
    assert found is not None
    assert found.invariant == "sums_are_small holds."
    assert "too much" in found.what


class Holder:
    names: ClassVar[list[str]] = ["a"]
    number: ClassVar[int] = 1


def test_variables_of_a_class_get_their_first_values_back_in_the_same_containers() -> None:
    memory, names = ModuleMemory([Holder]), Holder.names
    Holder.names.append("b")
    Holder.number = 5
    memory.restore()
    assert (Holder.names, Holder.number) == (["a"], 1)
    assert Holder.names is names
