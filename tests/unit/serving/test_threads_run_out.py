"""The threads of a server when the system gives no more of them."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable

import pytest

from graphbus_core import connect
from graphbus_core.errors import RunError
from graphbus_core.hosting.metrics import HandlerMetrics
from graphbus_core.hosting.serving.probes import ProbeServer, Status
from graphbus_core.hosting.serving.workers import Workers
from tests.fakes.http_site import read_all
from tests.patience import PATIENCE_S


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many threads may still be started; the system refuses more, as in a container with a limit of processes."""
    start = threading.Thread.start
    left = [0]

    def start_if_there_is_one_left(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    def allow(number: int) -> None:
        left[0] = number
        monkeypatch.setattr(threading.Thread, "start", start_if_there_is_one_left)

    return allow


def test_work_is_refused_while_there_is_no_thread_for_it_and_done_when_there_is_one(
    spare: Callable[[int], None],
) -> None:
    workers = Workers(2, 4)
    done: list[int] = []

    async def use() -> None:
        spare(0)
        for number in range(10):
            with pytest.raises(RunError, match="GBE678"):
                await workers.do(lambda number=number: done.append(number), 1.0)  # type: ignore[misc]
        spare(3)
        await asyncio.gather(*(workers.do(lambda number=number: done.append(number), 5.0) for number in (10, 11, 12)))  # type: ignore[misc]

    asyncio.run(use())
    assert sorted(done) == [10, 11, 12], "what was refused is never done"


def test_probes_are_answered_again_when_threads_are_there_again(spare: Callable[[int], None]) -> None:
    with connect() as graph:
        server = ProbeServer("127.0.0.1", 0)
        server.start(Status(graph, HandlerMetrics(), stuck_after_s=1, queue=10), lambda: b"")
        spare(0)
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as refused:
                assert read_all(refused) == b""
        spare(100)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
        server.stop()
