"""What the live view costs: a graph that nobody looks at, and one that ten pages look at while 5,000 events a second come.

The measure for the first is the same served graph without the view. For the second it is the processor time of a second: that of
the graph alone, and with ten readers of `/view/events`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from socket import create_connection

from stopwatch import Row, medians, report, timed

from graphbus_core import build_graph
from graphbus_core.bus import MessageBus
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.metrics import HandlerMetrics
from graphbus_core.hosting.serving.companion import ServerOptions, Servers
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.runtime import PIPELINE
from graphbus_core.view.live import LiveView
from graphbus_core.view.recorder import Recorder
from graphbus_core.view.records import MemoryRecords

PAYLOAD = {"order_id": "1001", "status": "confirmed", "total": 105.0, "items": 2, "express": False}
READERS, RATE, SECONDS = 10, 5000, 6
AGENT = """
from graphbus_core import GraphBusNode, subscribe

class Listener(GraphBusNode):
    @subscribe("/Order/Created")
    def on_event(self, event):
        pass
"""


def publish(meter: HandlerMetrics) -> Callable[[], object]:
    bus = MessageBus(middleware=[meter])
    bus.subscribe("/Order/Created", lambda event: None, name="Listener.on_event", owner="Listener")
    return lambda: bus.publish("/Order/Created", PAYLOAD)


def unwatched() -> Row:
    """Publish with one handler, as `run --serve` measures it, and with the ring of `--view` besides."""
    recorder = Recorder(MemoryRecords())
    view = publish(HandlerMetrics(recorder.note, recorder.note_failure))
    took = medians({"view": timed(view, 5000), "served": timed(publish(HandlerMetrics()), 5000)}, rounds=101)
    return Row("publish, 1 handler, nobody looks", took["view"], took["served"], "served without --view", 1.02)


def read_stream(port: int) -> None:
    """Read a stream of events to its end, as a browser does."""
    with create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /view/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while connection.recv(1 << 16):
            pass


def processor_share(root: Path, view: LiveView | None, readers: int) -> float:
    """Processor seconds of a served graph for each second in which it gets `RATE` events; readers are processes of their own."""
    artifacts = str(root / ".graphbus")
    servers = Servers(ServerOptions(True, "", 0, view=view), artifacts, lambda _: None)
    request = RuntimeConfig(artifacts=artifacts, is_serving=True, instruments=(servers.meter,))
    graph = PIPELINE.excluding("EXECUTE_ENTRYPOINT", "SHUTDOWN").run(request)[LiveGraph]
    children = []
    with graph, servers.run_beside(graph):
        for _ in range(readers):
            child = os.fork()
            if not child:
                read_stream(servers.ports["serve"])
                os._exit(0)
            children.append(child)
        time.sleep(1)
        before, began = time.process_time(), time.monotonic()
        for number in range(RATE * SECONDS // 50):  # 50 at a time
            for _ in range(50):
                graph.publish("/Order/Created", PAYLOAD)
            time.sleep(max(0.0, began + (number + 1) * 50 / RATE - time.monotonic()))
        share = (time.process_time() - before) / (time.monotonic() - began)
    for child in children:
        os.waitpid(child, 0)
    return share


def watched(root: Path) -> list[Row]:
    """The processor time that ten readers add."""
    alone = min(processor_share(root, None, 0) for _ in range(3))
    looked_at = min(processor_share(root, LiveView(), READERS) for _ in range(3))
    what = f"a second of {RATE:,} events, {READERS} pages look"
    return [
        Row(what, looked_at, alone, "the same without --view"),
        Row(f"{what}: what they add", max(looked_at - alone, 1e-9), 1.0, "one core", 0.25),
    ]


def main() -> list[Row]:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text("[tool.graphbus]\n")
        (root / "listener.py").write_text(AGENT)
        os.environ["GRAPHBUS_TOKEN"] = "a-token-of-the-benchmark"
        build_graph(root / "listener.py")
        return report("The live view", [unwatched(), *watched(root)])


if __name__ == "__main__":
    main()
