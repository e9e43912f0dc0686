"""An event loop in a thread: results, failures, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError

import pytest

from graphbus_core.llm.remote import LoopThread
from tests.patience import PATIENCE_S


class Tenant:
    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self.is_closed = False
        self.begun = threading.Event()

    async def close(self) -> None:
        self.is_closed = True

    async def double(self, number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def fail(self) -> None:
        raise KeyError("x")

    async def wait(self) -> None:
        self.begun.set()
        await asyncio.sleep(60)


def test_coroutines_run_in_the_thread_and_give_results_and_failures() -> None:
    loop = LoopThread("tenant", Tenant)
    assert loop.run(lambda tenant: tenant.double(4)) == 8
    with pytest.raises(KeyError):
        loop.run(lambda tenant: tenant.fail())
    loop.stop()


def test_stopping_drops_what_is_under_way_closes_the_tenant_and_ends_the_thread() -> None:
    tenants: list[Tenant] = []

    def move_in() -> Tenant:
        tenants.append(Tenant())
        return tenants[0]

    loop = LoopThread("tenant", move_in)
    outcomes: list[str] = []

    def wait() -> None:
        try:
            loop.run(lambda tenant: tenant.wait())
        except CancelledError:
            outcomes.append("dropped")

    caller = threading.Thread(target=wait)
    caller.start()
    while not tenants:
        caller.join(0.01)
    assert tenants[0].begun.wait(PATIENCE_S)
    loop.stop()
    loop.stop()
    caller.join(PATIENCE_S)
    assert outcomes == ["dropped"]
    assert tenants[0].thread == "tenant"
    assert tenants[0].is_closed
    with pytest.raises(CancelledError):
        loop.run(lambda tenant: tenant.double(1))
    assert "tenant" not in [thread.name for thread in threading.enumerate()]


def test_who_cannot_move_in_tells_each_caller_why() -> None:
    def refuse() -> Tenant:
        raise ImportError("no such library", name="library")

    loop = LoopThread("tenant", refuse)
    for _ in range(2):
        with pytest.raises(ImportError):
            loop.run(lambda tenant: tenant.double(1))
    loop.stop()


def test_who_takes_long_to_move_in_holds_nobody_up_who_wants_to_stop() -> None:
    doors = threading.Event()
    tenants: list[Tenant] = []

    def move_in() -> Tenant:
        doors.wait(PATIENCE_S)
        tenants.append(Tenant())
        return tenants[0]

    loop = LoopThread("tenant", move_in)
    outcomes: list[str] = []

    def double() -> None:
        try:
            loop.run(lambda tenant: tenant.double(1))
        except CancelledError:
            outcomes.append("dropped")

    caller = threading.Thread(target=double)
    caller.start()
    loop.stop()
    caller.join(PATIENCE_S)
    assert outcomes == ["dropped"]
    assert tenants == []
    doors.set()
    loop._thread.join(PATIENCE_S)
    assert tenants[0].is_closed


def test_ctrl_c_in_the_caller_drops_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LoopThread("tenant", Tenant)

    class Interrupted:
        def __init__(self, future: object) -> None:
            self.future = future
            self.is_cancelled = False

        def result(self) -> None:
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self.is_cancelled = True

    submit = loop._submit
    made: list[Interrupted] = []

    def interrupted(work: object) -> Interrupted:
        made.append(Interrupted(submit(work)))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(loop, "_submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run(lambda tenant: tenant.wait())
    loop.stop()
    assert made[0].is_cancelled


def test_a_generator_that_is_left_alone_at_the_last_moment_still_comes_to_its_end() -> None:
    """As the body of an answer that was cut off: a library has let go of it, and the loop is to close it."""
    ended: list[bool] = []

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b""
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.append(True)

    class Client:
        async def close(self) -> None:
            await anext(body())

    thread = LoopThread("test", Client)
    thread.stop()
    assert ended == [True]
