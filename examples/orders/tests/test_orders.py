"""The pipeline, agent by agent and as a whole, on a clock that stands still."""

from __future__ import annotations

import pytest

from graphbus_core.testing import run_graph, say, scripted
from orders.agents.books import Books
from orders.agents.checkout import Checkout
from orders.agents.payments import Payments
from orders.agents.pricing import Pricing
from orders.bank import CardDeclined, LineDown
from orders.chaos import order

MUGS = {"order_id": "1001", "card": "4711", "lines": [{"sku": "mug", "qty": 2}]}
ACCEPTED = {"order_id": "1001", "card": "4711", "total": 25.0}


@pytest.fixture
def pipeline():
    with run_graph(Checkout, Pricing, Payments, Books) as graph:
        yield graph


def test_an_order_is_priced_paid_and_booked(pipeline):
    pipeline.publish("/Order/Placed", MUGS)
    pipeline.assert_published("/Order/Accepted", order_id="1001", total=25.0)
    pipeline.assert_published("/Order/Paid", order_id="1001", total=25.0)
    assert pipeline.call("Books", "balance") == {"revenue": 25.0}


def test_a_line_that_is_down_loses_no_order(pipeline):
    pipeline.publish_all(*[("/Order/Placed", MUGS | {"order_id": f"{number}"}) for number in range(60)])
    pipeline.settle()
    assert pipeline.failures("Payments")
    assert pipeline.call("Books", "balance") == {"revenue": 60 * 25.0}


def test_a_card_that_is_declined_is_not_tried_again(pipeline):
    pipeline.publish("/Order/Placed", MUGS | {"card": "0000"})
    pipeline.assert_published("/Order/Refused", order_id="1001")
    pipeline.assert_not_published("/Order/Paid")
    assert [each.attempt for each in pipeline.deliveries("Payments")] == [1]


def test_an_order_that_is_paid_twice_is_booked_once(pipeline):
    paid = ("/Order/Paid", {"order_id": "1001", "total": 25.0})
    pipeline.publish_all(paid, paid)
    assert pipeline.call("Books", "balance") == {"revenue": 25.0}


def test_the_books_outlive_the_process(tmp_path):
    for expected in (25.0, 50.0):
        with run_graph(Books, state=tmp_path / "books.sqlite3") as graph:
            graph.publish("/Order/Paid", {"order_id": f"{expected}", "total": 25.0})
            assert graph.call("Books", "balance") == {"revenue": expected}


def test_the_price_is_what_pricing_says():
    with run_graph(Checkout, scripted(Pricing, on={"/Price/Asked": {"total": 99.0}})) as graph:
        graph.publish("/Order/Placed", MUGS)
        graph.assert_published("/Order/Accepted", total=99.0)


def test_an_article_without_a_price_is_not_accepted():
    with run_graph(Checkout, Pricing, on_error="isolate") as graph:
        graph.publish("/Order/Placed", MUGS | {"lines": [{"sku": "hat", "qty": 1}]})
        graph.assert_not_published("/Order/Accepted")
        assert graph.dead_letters()


def test_payment_is_tried_as_often_as_it_says():
    script = [LineDown("1"), LineDown("2"), say("/Order/Paid", {"order_id": "1001", "total": 25.0})]
    with run_graph(scripted(Payments, on={"/Order/Accepted": script}), Books) as graph:
        graph.publish("/Order/Accepted", ACCEPTED)
        assert graph.clock.waiting == [0.01]
        graph.settle()
        assert graph.call("Books", "balance") == {"revenue": 25.0}


def test_other_failures_are_not_tried_again():
    script = [CardDeclined("no")]
    with run_graph(scripted(Payments, on={"/Order/Accepted": script}), on_error="isolate") as graph:
        graph.publish("/Order/Accepted", ACCEPTED)
        assert not graph.clock.waiting
        assert [letter.error for letter in graph.dead_letters()] == ["CardDeclined: no"]


def test_one_order_in_a_thousand_of_chaos_has_no_price(pipeline):
    pipeline.publish("/Order/Placed", order(776))
    with pytest.raises(KeyError, match="calendar"):
        pipeline.publish("/Order/Placed", order(777))
