"""The shop as its customers, its buyer and its accountant see it: real agents on a real bus."""

from __future__ import annotations

import pytest

from agents.accounts import AccountsService
from agents.inventory import InventoryService
from agents.notification import NotificationService
from agents.order_processor import OrderProcessor
from graphbus_core.testing import run_graph

MUGS = {"sku": "mug", "price": 12.5, "qty": 2}
SHIRTS = {"sku": "shirt", "price": 20.0, "qty": 4}


@pytest.fixture
def shop():
    with run_graph(InventoryService, OrderProcessor, NotificationService, AccountsService) as graph:
        yield graph


def place(shop, order_id, *items):
    shop.publish("/Order/Placed", {"order_id": order_id, "items": list(items)})


def test_an_order_is_confirmed_with_its_total_and_an_id(shop):
    result = shop.call("OrderProcessor", "process_order", order_id="1001", items=[MUGS, SHIRTS])
    assert result == {"status": "confirmed", "total": 105.0, "event_id": "ord_1001"}


def test_an_order_takes_its_items_from_stock(shop):
    place(shop, "1001", MUGS)
    assert shop.node("InventoryService").stock["mug"] == 10


@pytest.mark.parametrize("qty", [13, 0, -1])
def test_nothing_leaves_the_shelf_for_an_order_that_cannot_be_filled(shop, qty):
    place(shop, "1001", MUGS | {"qty": qty})
    shop.assert_not_published("/Inventory/Updated")
    shop.assert_published("/Order/Created", order_id="1001", status="backordered")


def test_an_order_waits_as_a_whole_when_one_of_its_items_is_missing(shop):
    place(shop, "1001", MUGS, SHIRTS | {"qty": 9})
    shop.assert_published("/Order/Created", order_id="1001", status="backordered", total=205.0)


def test_each_customer_gets_one_message_about_the_own_order(shop):
    place(shop, "1001", MUGS)
    place(shop, "1002", SHIRTS | {"qty": 9})
    assert shop.node("NotificationService").sent == [
        "Your order 1001 over 25.00 is confirmed.",
        "Your order 1002 over 180.00 is backordered.",
    ]


def test_the_buyer_is_warned_when_little_is_left(shop):
    place(shop, "1001", SHIRTS)
    assert "Only 1 x shirt left: please order." in shop.node("NotificationService").sent


def test_a_delivery_fills_the_shelf(shop):
    shop.publish("/Delivery/Arrived", {"sku": "shirt", "quantity": 20})
    place(shop, "1001", SHIRTS | {"qty": 25})
    assert shop.node("InventoryService").stock["shirt"] == 0
    assert "Your order 1001 over 500.00 is confirmed." in shop.node("NotificationService").sent


def test_the_books_tell_earned_from_waiting_money(shop):
    place(shop, "1001", MUGS)
    place(shop, "1002", SHIRTS | {"qty": 9})
    assert shop.call("AccountsService", "balance") == {"earned": 25.0, "waiting": 180.0}


def test_a_day_without_orders_earns_nothing(shop):
    assert shop.call("AccountsService", "balance") == {"earned": 0.0, "waiting": 0.0}


def test_an_order_that_is_placed_again_is_earned_once(shop):
    place(shop, "1001", SHIRTS | {"qty": 9})
    shop.publish("/Delivery/Arrived", {"sku": "shirt", "quantity": 10})
    place(shop, "1001", SHIRTS | {"qty": 9})
    assert shop.call("AccountsService", "balance") == {"earned": 180.0, "waiting": 0.0}
