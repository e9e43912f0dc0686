"""Reloading while events stream in: none is lost, none comes twice, and each is handled by one version from beginning to end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from graphbus_core.errors import RunError
from graphbus_core.hosting.reload import Reloaded
from tests.conftest import Project
from tests.fakes.living_project import LivingProject
from tests.patience import PATIENCE_S

RELOADS = 10
READER = """
    from graphbus_core import GraphBusNode, publishes, subscribe
    from shop.version import VERSION, helper

    @publishes("/Load/Echo", {"number": int})
    class Reader(GraphBusNode):
        def __init__(self):
            self.seen = []

        def here(self):
            return VERSION

        @subscribe("/Load/Sent")
        def on_sent(self, number: int):
            first = VERSION
            if number % 10 == 0:
                self.publish("/Load/Echo", {"number": number})
            self.seen.append((number, first, self.here(), helper()))

        @subscribe("/Load/Echo")
        def on_echo(self, number: int):
            self.seen.append((-number, VERSION, self.here(), helper()))
    """
VERSION = "VERSION = {number}\n\ndef helper():\n    return VERSION\n"
FILES = {
    "pyproject.toml": '[tool.graphbus]\nexternal_topics = ["/Load/Sent"]\n[tool.graphbus.runtime]\nhistory = 0\n',
    "shop/version.py": VERSION.format(number=0),
    "shop/reader.py": READER,
}


@pytest.fixture
def shop(project: Project) -> Iterator[LivingProject]:
    living = LivingProject(project(FILES))
    with living.graph:
        yield living


def reload_often(shop: LivingProject, times: int) -> list[Reloaded]:
    done = []
    for number in range(1, times + 1):
        shop.save("shop/version.py", VERSION.format(number=number))
        done.append(shop.reload())
    return done


def seen(shop: LivingProject) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = shop.graph.node("Reader").seen  # type: ignore[attr-defined]
    return found


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_hundred_thousand_events_while_ten_versions_follow_each_other(shop: LivingProject) -> None:
    done: list[Reloaded] = []
    sent = 0

    def send() -> None:
        nonlocal sent
        # To queue is quicker than to deliver: the thread that reloads, and delivers meanwhile, would never come to an end.
        while sent % 1_000 == 0 and shop.graph.bus.statistics().queued:
            time.sleep(0.001)
        shop.graph.publish("/Load/Sent", {"number": sent})
        sent += 1

    send()
    reloading = in_thread(lambda: done.extend(reload_often(shop, RELOADS)))
    while sent < 100_000 or reloading.is_alive():
        send()
    reloading.join()
    send()
    assert [each.replaced for each in done] == [("Reader",)] * RELOADS
    entries = seen(shop)
    assert Counter(number for number, *_ in entries if number > 0) == Counter(range(1, sent))
    assert Counter(-number for number, *_ in entries if number < 0) == Counter(range(10, sent, 10))
    assert {len(set(versions)) for _, *versions in entries} == {1}
    order = [first for _, first, *_ in entries]
    assert order == sorted(order)
    assert set(order) >= {0, RELOADS}
    assert not shop.graph.bus.dead_letters()


@pytest.mark.slow
@pytest.mark.parametrize("is_serving", [False, True])
def test_publishers_on_many_threads_while_versions_follow_each_other(project: Project, is_serving: bool) -> None:
    each_sends = 3_000
    shop = LivingProject(project(FILES), is_serving=is_serving)

    def send(first: int) -> None:
        for number in range(first, first + each_sends):
            shop.graph.publish("/Load/Sent", {"number": number})

    with shop.graph:
        starts = range(1, 6 * each_sends, each_sends)
        senders = [in_thread(lambda start=start: send(start)) for start in starts]  # type: ignore[misc]
        reload_often(shop, RELOADS)
        for sender in senders:
            sender.join()
        assert shop.graph.settle(10)
        entries = seen(shop)
    assert Counter(number for number, *_ in entries if number > 0) == Counter(range(1, 6 * each_sends + 1))
    assert {len(set(versions)) for _, *versions in entries} == {1}


ASYNC_READER = """
    import asyncio
    from graphbus_core import GraphBusNode, subscribe
    from shop.version import VERSION

    class Reader(GraphBusNode):
        def __init__(self):
            self.seen = []

        def here(self):
            return VERSION

        @subscribe("/Load/Sent")
        async def on_sent(self, number: int):
            first = VERSION
            await asyncio.sleep(0.001)
            self.seen.append((number, first, self.here()))
    """


def test_what_is_under_way_on_the_event_loop_ends_on_the_old_version(project: Project) -> None:
    shop = LivingProject(project(FILES | {"shop/reader.py": ASYNC_READER}))
    with shop.graph:

        def send() -> None:
            for number in range(120):
                shop.graph.publish("/Load/Sent", {"number": number})

        sender = in_thread(send)
        reload_often(shop, 4)
        sender.join()
        shop.graph.publish("/Load/Sent", {"number": 120})
        entries = seen(shop)
    assert [number for number, *_ in entries] == list(range(121))
    assert {len(set(versions)) for _, *versions in entries} == {1}
    assert entries[-1][1] == 4


def test_an_agent_becomes_async_and_plain_again(shop: LivingProject) -> None:
    shop.graph.publish("/Load/Sent", {"number": 1})
    shop.save("shop/reader.py", ASYNC_READER)
    shop.reload()
    shop.graph.publish("/Load/Sent", {"number": 2})
    shop.save("shop/reader.py", READER)
    shop.reload()
    shop.graph.publish("/Load/Sent", {"number": 3})
    assert [number for number, *_ in seen(shop)] == [1, 2, 3]


def test_a_handler_on_the_event_loop_that_does_not_end_puts_the_reload_off(project: Project) -> None:
    stuck = ASYNC_READER.replace("asyncio.sleep(0.001)", "self.free.wait()").replace(
        "self.seen = []", "self.seen = []\n            self.free = asyncio.Event()\n            self.loop = None"
    )
    stuck = stuck.replace("first = VERSION\n", "first = VERSION\n            self.loop = asyncio.get_running_loop()\n")
    shop = LivingProject(project(FILES | {"shop/reader.py": stuck}), patience_s=0.2)
    with shop.graph:
        sender = in_thread(lambda: shop.graph.publish("/Load/Sent", {"number": 1}))
        node = shop.graph.node("Reader")
        while node.loop is None:  # type: ignore[attr-defined]
            pass
        shop.save("shop/version.py", VERSION.format(number=1))
        artifacts = shop.build()
        with pytest.raises(RunError) as refused:
            shop.reloader.reload(artifacts)
        assert refused.value.code == "GBE690"
        node.loop.call_soon_threadsafe(node.free.set)  # type: ignore[attr-defined]
        sender.join()
        assert shop.reload().replaced == ("Reader",)
        shop.graph.publish("/Load/Sent", {"number": 2})
        assert seen(shop) == [(1, 0, 0), (2, 1, 1)]


def test_events_that_wait_for_a_topic_that_is_gone_are_no_hindrance(shop: LivingProject) -> None:
    artifacts = []

    def reload_in_between() -> None:
        shop.edit("shop/reader.py", "/Load/Echo", "/Load/Other")
        artifacts.append(shop.build())

    reload_in_between()
    # queued behind the reload: one event of a topic that the new version does not know
    blocker = threading.Event()
    shop.graph.bus.subscribe("/Load/Sent", lambda: blocker.wait(PATIENCE_S))
    sender = in_thread(lambda: shop.graph.publish("/Load/Sent", {"number": 1}))
    reloading = in_thread(lambda: shop.reloader.reload(artifacts[0]))
    while shop.graph.bus.statistics().queued < 1:
        pass
    shop.graph.publish("/Load/Echo", {"number": 5})
    blocker.set()
    sender.join()
    reloading.join()
    shop.graph.publish("/Load/Other", {"number": 6})
    assert [number for number, *_ in seen(shop)] == [1, -6]


def _calls(kind: str) -> str:
    wait = "await asyncio.sleep(0)" if kind == "async " else "pass"
    return f"""
    import asyncio
    from graphbus_core import GraphBusNode, schema_method
    from shop.version import VERSION

    class Reader(GraphBusNode):
        def here(self):
            return VERSION

        @schema_method(input_schema={{"number": int}}, output_schema={{"versions": list}})
        {kind}def read(self, number: int):
            {wait}
            return {{"versions": [VERSION, self.here()]}}
    """


@pytest.mark.parametrize("kind", ["", "async "])
def test_calls_that_wait_for_a_reload_go_to_the_new_version(project: Project, kind: str) -> None:
    shop = LivingProject(project(FILES | {"shop/reader.py": _calls(kind)}))
    answers: list[list[int]] = []
    with shop.graph:
        done: list[Reloaded] = []
        reloading = in_thread(lambda: done.extend(reload_often(shop, 4)))
        while reloading.is_alive():
            answers.append(shop.graph.call("Reader", "read", number=1)["versions"])
        reloading.join()
        answers.append(shop.graph.call("Reader", "read", number=1)["versions"])
    assert all(first == second for first, second in answers)
    assert answers[-1] == [4, 4]
    assert len(done) == 4


def test_a_call_that_waits_meets_the_contract_of_the_new_version(project: Project) -> None:
    shop = LivingProject(project(FILES | {"shop/reader.py": _calls("")}))
    with shop.graph:
        shop.graph.call("Reader", "read", number=1)
        shop.edit("shop/reader.py", "number", "count")
        artifacts = shop.build()
        blocker, is_held = threading.Event(), threading.Event()

        def hold() -> None:
            is_held.set()
            blocker.wait(PATIENCE_S)

        holding = in_thread(lambda: shop.graph.bus.run(hold))
        is_held.wait(PATIENCE_S)
        reloading = in_thread(lambda: shop.reloader.reload(artifacts))
        while shop.graph.bus.statistics().queued < 2:
            pass
        refused: list[RunError] = []

        def call() -> None:
            with pytest.raises(RunError) as error:
                shop.graph.call("Reader", "read", number=1)
            refused.append(error.value)

        calling = in_thread(call)
        while shop.graph.bus.statistics().queued < 3:
            pass
        blocker.set()
        for thread in (holding, reloading, calling):
            thread.join()
        assert [error.code for error in refused] == ["GBE622"]
        assert shop.graph.call("Reader", "read", count=1) == {"versions": [0, 0]}
