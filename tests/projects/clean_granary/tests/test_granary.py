"""The granary as its drivers see it."""

from __future__ import annotations

import pytest

from agents.elevator import Elevator
from agents.office import Office
from agents.silo import Silo
from graphbus_core.testing import run_graph
from tests.helpers import truck


@pytest.fixture
def granary():
    with run_graph(Silo, Elevator, Office) as graph:
        yield graph


def test_a_load_goes_into_the_silo(granary):
    granary.publish("/Truck/Arrived", truck("rye", 1500.0))
    assert granary.node("Silo").kg == {"rye": 1500.0}
    assert granary.node("Office").tonnes == 1.5
    assert granary.node("Elevator").receipts == ["1500 kg of rye"]


def test_what_does_not_fit_stays_on_the_truck(granary):
    assert granary.call("Elevator", "unload", grain="oats", kg=70_000.0) == {"stored": 60_000.0, "left": 10_000.0}
    granary.assert_published("/Grain/Stored", grain="oats", tonnes=60.0)


def test_nothing_unknown_is_lifted(granary):
    granary.publish("/Truck/Arrived", truck("gravel"))
    assert granary.node("Silo").kg == {}


def test_the_elevator_knows_what_it_has_lifted(granary):
    granary.publish("/Truck/Arrived", truck("rye", 10.0))
    assert granary.call("Elevator", "summary") == {"text": '{"rye": 10}'}
