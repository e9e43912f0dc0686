"""Requests and calls that were made before a reload and get their turn after it: they meet the new version, whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from graphbus_core.errors import RunError
from graphbus_core.hosting.reload import Reloaded
from tests.conftest import Project
from tests.fakes.living_project import LivingProject
from tests.patience import PATIENCE_S

PYPROJECT = '[tool.graphbus]\nexternal_topics = ["/Price/Asked", "/Word/Asked"]\n'
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
WORDS = """
    from graphbus_core import GraphBusNode, subscribe

    class Words(GraphBusNode):
        @subscribe("/Word/Asked")
        def on_asked(self, event):
            return "mug"
    """
OTHER = "from graphbus_core import GraphBusNode\n\nclass Other(GraphBusNode):\n    pass\n"


@contextmanager
def reloading(shop: LivingProject) -> Iterator[None]:
    """In the block the bus is busy, and a reload to what was saved waits for its turn; afterwards it has come."""
    artifacts = shop.build()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_go.wait(PATIENCE_S)

    done: list[Reloaded] = []
    threads = [threading.Thread(target=lambda: shop.graph.bus.run(hold))]
    threads[0].start()
    is_held.wait(PATIENCE_S)
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
        time.sleep(0.001)


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


def test_a_call_that_waits_while_the_agent_becomes_async_or_plain_gets_its_result(guarded: LivingProject) -> None:
    is_async = "async def" in (guarded.root / "shop/prices.py").read_text()
    guarded.edit("shop/prices.py", *(("async def", "def") if is_async else ("    def ", "    async def ")))
    guarded.edit(
        "shop/prices.py", *(("return {", "self.request('/Word/Asked')\n        return {") if is_async else ("", ""))
    )
    guarded.save("shop/words.py", WORDS)
    assert outcome_after(guarded, lambda: guarded.graph.call("Prices", "price", sku="mug")) == {"price": 1}


def test_a_call_that_was_looked_up_before_a_reload_and_begins_after_it_goes_to_the_new_version(
    project: Project,
) -> None:
    shop = LivingProject(project({"pyproject.toml": PYPROJECT, "shop/prices.py": PRICES.format(kind="")}))
    with shop.graph:
        shop.graph.call("Prices", "price", sku="mug")
        looked_up = shop.graph._calls["Prices"]["price"]
        shop.edit("shop/prices.py", '{"price": 1}', '{"price": len(self.version())}')
        shop.edit("shop/prices.py", 'return "old"', 'return "newest"')
        shop.reload()
        assert looked_up({"sku": "mug"}) == {"price": 6}


def test_a_call_of_an_agent_that_is_gone_after_the_reload_says_so(guarded: LivingProject) -> None:
    (guarded.root / "shop/prices.py").unlink()
    refused = outcome_after(guarded, lambda: guarded.graph.call("Prices", "price", sku="mug"))
    assert isinstance(refused, RunError)
    assert refused.code == "GBE620"


BUYER = """
    from graphbus_core import GraphBusNode, publishes, subscribe

    @publishes("/Price/Asked", {{"sku": str}})
    class Buyer(GraphBusNode):
        {kind}def on_start(self):
            self.heard = {ask}
            self.publish("/Buyer/Ready", {{"by": "old"}})

        {kind}def on_stop(self):
            self.last = {ask}

        @subscribe("/Buyer/Ready")
        {kind}def on_ready(self, by: str):
            self.ready = by
    """


@pytest.mark.parametrize("is_serving", [False, True])
@pytest.mark.parametrize("kind", ["", "async "])
def test_an_agent_may_ask_another_while_it_is_started_and_stopped_by_a_reload(
    project: Project, kind: str, is_serving: bool
) -> None:
    ask = f'{"await " * bool(kind)}self.request("/Price/Asked", {{"sku": "mug"}}, 3)'
    files = {"shop/prices.py": PRICES.format(kind=""), "shop/buyer.py": BUYER.format(kind=kind, ask=ask)}
    shop = LivingProject(project({"pyproject.toml": ""} | files), is_serving=is_serving)
    with shop.graph:
        shop.edit("shop/prices.py", '"old"', '"new"')
        shop.edit("shop/buyer.py", '"by": "old"', '"by": "new"')
        assert set(shop.reload().restarted) == {"Buyer"}
        shop.graph.settle(5)
        buyer = vars(shop.graph.node("Buyer"))
        assert (buyer["last"], buyer["heard"], buyer["ready"]) == (["old", "old"], ["new", "new"], "new")


def test_a_handler_that_asks_is_answered_by_the_version_that_it_began_with(project: Project) -> None:
    asker = """
    from graphbus_core import GraphBusNode, publishes, subscribe

    @publishes("/Price/Asked", {"sku": str})
    class Asker(GraphBusNode):
        @subscribe("/Buyer/Came")
        async def on_came(self):
            first = await self.request("/Price/Asked", {"sku": "mug"})
            self.is_halfway = True
            import asyncio
            while not self.may_go:
                await asyncio.sleep(0.001)
            self.answers = [first, await self.request("/Price/Asked", {"sku": "mug"})]

        def on_start(self):
            self.is_halfway = self.may_go = False
    """
    pyproject = '[tool.graphbus]\nexternal_topics = ["/Buyer/Came"]\n'
    files = {"pyproject.toml": pyproject, "shop/prices.py": PRICES.format(kind=""), "shop/asker.py": asker}
    shop = LivingProject(project(files), is_serving=True)
    with shop.graph:
        shop.graph.publish("/Buyer/Came")
        state = vars(shop.graph.node("Asker"))
        while not state["is_halfway"]:
            time.sleep(0.001)
        shop.edit("shop/prices.py", '"old"', '"new"')
        artifacts = shop.build()
        reloaded: list[Reloaded] = []
        thread = threading.Thread(target=lambda: reloaded.append(shop.reloader.reload(artifacts)))
        thread.start()
        thread.join(0.2)
        assert not reloaded
        state["may_go"] = True
        thread.join()
        assert state["answers"] == [["old", "old"], ["old", "old"]]
        assert shop.graph.request("/Price/Asked", {"sku": "mug"}) == ["new", "new"]
