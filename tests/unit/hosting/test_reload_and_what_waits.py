"""Requests and calls that were made before a reload and get their turn after it: they meet the new version, whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from graphbus_core.errors import RunError
from graphbus_core.hosting.reload import Reloaded
from tests.conftest import Project
from tests.fakes.living_project import LivingProject

PYPROJECT = '[tool.graphbus]\nexternal_topics = ["/Price/Asked"]\n'
MIDDLEWARE = '[tool.graphbus.runtime]\nmiddleware = ["around:plain"]\n'
AROUND = "def plain(handling):\n    yield\n"
PRICES = """
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class Prices(GraphBusNode):
        def version(self):
            return "old"

        @subscribe("/Price/Asked")
        {kind}def on_asked(self, sku: str):
            return ["old", self.version()]

        @schema_method(input_schema={{"sku": str}}, output_schema={{"price": int}})
        {kind}def price(self, sku: str):
            return {{"price": 1}}
    """
OTHER = "from graphbus_core import GraphBusNode\n\nclass Other(GraphBusNode):\n    pass\n"


@contextmanager
def reloading(shop: LivingProject) -> Iterator[None]:
    """In the block the bus is busy, and a reload to what was saved waits for its turn; afterwards it has come."""
    artifacts = shop.build()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_go.wait(5)

    done: list[Reloaded] = []
    threads = [threading.Thread(target=lambda: shop.graph.bus.run(hold))]
    threads[0].start()
    is_held.wait(5)
    threads.append(threading.Thread(target=lambda: done.append(shop.reloader.reload(artifacts))))
    threads[1].start()
    wait_for_queue(shop, 1)
    try:
        yield
    finally:
        may_go.set()
        for thread in threads:
            thread.join()
    assert done


def wait_for_queue(shop: LivingProject, length: int) -> None:
    while shop.graph.bus.statistics().queued < length:
        pass


def outcome_after(shop: LivingProject, work: Callable[[], Any]) -> Any:
    """What comes of work that begins to wait behind a reload: its result, or the RunError that it raises."""
    found: list[Any] = []

    def do() -> None:
        try:
            found.append(work())
        except RunError as error:
            found.append(error)

    thread = threading.Thread(target=do)
    with reloading(shop):
        before = shop.graph.bus.statistics().queued
        thread.start()
        wait_for_queue(shop, before + 1)
    thread.join()
    return found[0]


@pytest.fixture(params=["def", "async def", "def, served", "async def, served"])
def shop(request: pytest.FixtureRequest, project: Project) -> Iterator[LivingProject]:
    kind = "async " if "async" in request.param else ""
    files = {"pyproject.toml": PYPROJECT, "shop/prices.py": PRICES.format(kind=kind), "shop/other.py": OTHER}
    living = LivingProject(project(files), is_serving="served" in request.param)
    with living.graph:
        yield living


def test_a_request_that_waits_for_a_reload_is_answered_by_the_new_version(shop: LivingProject) -> None:
    shop.edit("shop/prices.py", '"old"', '"new"')
    assert outcome_after(shop, lambda: shop.graph.request("/Price/Asked", {"sku": "mug"}, 5)) == ["new", "new"]
    assert shop.graph.bus.statistics().subscriptions["Prices.on_asked <- /Price/Asked"].delivered == 1


def test_a_request_whose_responder_is_gone_after_the_reload_is_refused_and_not_answered_with_nothing(
    shop: LivingProject,
) -> None:
    (shop.root / "shop/prices.py").unlink()
    refused = outcome_after(shop, lambda: shop.graph.request("/Price/Asked", {"sku": "mug"}, 5))
    assert isinstance(refused, RunError)
    assert refused.code == "GBE631"


@pytest.fixture(params=["def", "async def"])
def guarded(request: pytest.FixtureRequest, project: Project) -> Iterator[LivingProject]:
    kind = "async " if "async" in request.param else ""
    prices = PRICES.format(kind=kind)
    files = {"pyproject.toml": PYPROJECT + MIDDLEWARE, "around.py": AROUND, "shop/prices.py": prices}
    living = LivingProject(project(files | {"shop/other.py": OTHER}))
    with living.graph:
        living.graph.call("Prices", "price", sku="mug")
        yield living


def test_a_call_through_middleware_that_waits_meets_the_contract_of_the_new_version(guarded: LivingProject) -> None:
    guarded.edit("shop/prices.py", '{"sku": str}', '{"sku": int}')
    refused = outcome_after(guarded, lambda: guarded.graph.call("Prices", "price", sku="mug"))
    assert isinstance(refused, RunError)
    assert refused.code == "GBE622"


def test_a_call_through_middleware_that_waits_has_its_result_judged_by_the_new_version(guarded: LivingProject) -> None:
    guarded.edit("shop/prices.py", '{"price": int}', '{"cents": int}')
    guarded.edit("shop/prices.py", '{"price": 1}', '{"cents": 100}')
    assert outcome_after(guarded, lambda: guarded.graph.call("Prices", "price", sku="mug")) == {"cents": 100}


def test_a_call_of_an_agent_that_is_gone_after_the_reload_says_so(guarded: LivingProject) -> None:
    (guarded.root / "shop/prices.py").unlink()
    refused = outcome_after(guarded, lambda: guarded.graph.call("Prices", "price", sku="mug"))
    assert isinstance(refused, RunError)
    assert refused.code == "GBE620"
