"""The harbour as ships see it: real agents on a real bus."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agents.cashier import Cashier, dues, shown
from agents.logbook import Logbook
from agents.master import Berth, BerthState, HarbourMaster, country, is_call_sign, normalized
from agents.shapes import Kind
from agents.tugs import Tugs
from graphbus_core.testing import run_graph

FERRY = {"call_sign": "LAXK7", "kind": "ferry", "length_m": 85.0, "tonnage": 4_000}
TANKER = {"call_sign": "oj-bc 4", "kind": "tanker", "length_m": 250.0, "tonnage": 65_000}


@pytest.fixture
def harbour():
    with run_graph(Tugs, HarbourMaster, Cashier, Logbook) as graph:
        yield graph


def test_a_ship_moors_at_the_shortest_berth_that_it_fits(harbour):
    harbour.publish("/Ship/Sighted", FERRY)
    harbour.assert_published("/Ship/Moored", call_sign="LAXK7", berth=1)
    assert harbour.call("HarbourMaster", "overview") == {"free": [2, 3], "taken": 1}


def test_a_ship_that_fits_nowhere_is_refused(harbour):
    harbour.publish("/Ship/Sighted", FERRY | {"length_m": 400.5})
    harbour.assert_published("/Ship/Refused", call_sign="LAXK7", reason="no berth")


def test_who_has_no_call_sign_is_refused(harbour):
    harbour.publish("/Ship/Sighted", FERRY | {"call_sign": "?"})
    harbour.assert_published("/Ship/Refused", reason="no call sign")


def test_a_berth_is_free_again_when_its_ship_has_departed(harbour):
    harbour.publish("/Ship/Sighted", FERRY)
    harbour.publish("/Ship/Departed", {"call_sign": "LAXK7"})
    assert harbour.call("HarbourMaster", "overview") == {"free": [1, 2, 3], "taken": 0}


def test_large_ships_need_more_tugs(harbour):
    assert harbour.call("Tugs", "assist", call_sign="OJBC4", tonnage=65_000) == {"tugs": 4, "trips": 1}
    assert harbour.call("Tugs", "assist", call_sign="LAXK7", tonnage=4_000) == {"tugs": 1, "trips": 2}


def test_every_ship_gets_an_invoice(harbour):
    harbour.publish("/Ship/Sighted", FERRY)
    harbour.publish("/Ship/Sighted", TANKER)
    harbour.assert_published("/Invoice/Issued", number=1, call_sign="LAXK7", amount="160.00")
    harbour.assert_published("/Invoice/Issued", number=2, call_sign="OJBC4", amount="7312.50")
    assert harbour.call("Cashier", "statement", call_sign="OJBC4") == {"invoices": 1, "total": "7312.50"}
    assert harbour.call("Cashier", "statement", call_sign="PBXK") == {"invoices": 0, "total": "0.00"}


def test_the_logbook_tells_what_happened(harbour):
    harbour.publish("/Ship/Sighted", FERRY | {"length_m": 500.0})
    page = harbour.call("Logbook", "page", limit=10)
    assert page["count"] == 3
    assert page["lines"][0].endswith("sighted LAXK7")
    assert "LAXK7: no berth" in page["lines"]
    assert harbour.call("Logbook", "page", limit=0)["lines"] == []


def test_money_is_rounded_half_up_and_never_below_the_minimum():
    assert dues(Kind.TANKER, 1_002, 2) == Decimal("225.45")
    assert dues(Kind.FERRY, 10, 1) == Decimal("120.00")
    assert shown(Decimal("7312.5")) == "€ 7,312.50"


@pytest.mark.parametrize(("text", "wanted"), [("pb-xk 7", "PBXK7"), ("DABC", "DABC"), ("d\tabc", "DABC")])
def test_call_signs_are_normalized(text, wanted):
    assert normalized(text) == wanted
    assert is_call_sign(text)


@pytest.mark.parametrize("text", ["", "7ABC", "AB", "ABCDEFGHI", "AB?CD"])
def test_other_texts_are_no_call_signs(text):
    assert not is_call_sign(text)


def test_a_prefix_tells_the_country():
    assert country("LAXK7") == "Norway"
    assert country("DABC") == "Germany"
    assert country("ZZ99") == ""


def test_a_closed_berth_fits_no_ship():
    assert Berth(1, 90.0).fits(90.0)
    assert not Berth(1, 90.0, BerthState.CLOSED).fits(10.0)
    assert not Berth(1, 90.0).fits(90.5)
