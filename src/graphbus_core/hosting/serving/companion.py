"""What stands beside a running graph for `--serve` and `--health`: made before it, entered when it is ready.

leaving:  /readyz says no -> requests in flight end -> (the graph stops) -> the servers hang up
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.metrics import Meter, exposition
from graphbus_core.hosting.serving.address import find_token
from graphbus_core.hosting.serving.status import Status
from graphbus_core.model.config import RuntimeConfig, ServeConfig
from graphbus_core.settings import find_root

_POLL_S = 0.01

Show = Callable[[str], None]


class Asked(NamedTuple):
    """What the command line says.

    Attributes:
        is_serving: Calls and events over HTTP.
        host: Overrides `serve.host`; empty: it does not.
        port: Overrides `serve.port`.
        health: Host and port for probes and metrics alone.
    """

    is_serving: bool = False
    host: str = ""
    port: int | None = None
    health: tuple[str, int] | None = None


class Servers:
    """Both servers of a run. The meter is to be among the middleware of its graph.

    Attributes:
        ports: Where they listen, once they do: `serve` and `health`.
    """

    def __init__(self, asked: Asked, show: Show) -> None:
        self.meter = Meter()
        self.ports: dict[str, int] = {}
        self._asked = asked
        self._show = show
        if asked.is_serving:
            require_packages()

    @contextmanager
    def beside(self, graph: LiveGraph) -> Iterator[None]:
        """Listen while the graph runs, and until it has stopped.

        Raises:
            RunError: GBE672 when an address cannot be had.
            UsageError: GBE155, GBE156 when there is no token to use.
        """
        run = _config_of(graph)
        settings = run.settings
        config = self._overridden(settings.serve)
        status = Status(graph, self.meter, stuck_after_s=config.stuck_after_s, queue=settings.queue)
        if self._asked.health is not None:
            self._answer_probes(graph, status, *self._asked.health)
        busy = self._serve(graph, run, config, status) if self._asked.is_serving else _never_busy
        try:
            yield
        finally:
            status.is_stopping = True
            _wait_while(busy, graph.grace_s)

    def _overridden(self, config: ServeConfig) -> ServeConfig:
        port = config.port if self._asked.port is None else self._asked.port
        return msgspec.structs.replace(config, host=self._asked.host or config.host, port=port)

    def _answer_probes(self, graph: LiveGraph, status: Status, host: str, port: int) -> None:
        from graphbus_core.hosting.serving.probes import ProbeServer

        server = ProbeServer(host, port, status, lambda: exposition(graph.bus.statistics(), self.meter))
        server.start()
        graph.at_end(server.stop)
        self.ports["health"] = server.port
        self._show(f"Probes and metrics at http://{_shown(host)}:{server.port}/metrics")

    def _serve(self, graph: LiveGraph, run: RuntimeConfig, config: ServeConfig, status: Status) -> Callable[[], bool]:
        from graphbus_core.hosting.serving.app import make_app
        from graphbus_core.hosting.serving.server import HttpServer, listen
        from graphbus_core.hosting.serving.site import Site

        token = find_token(config, find_root([Path(run.artifacts_dir).parent]), Path(run.state_dir))
        site = Site(graph, config, token=token.text, meter=self.meter, status=status)
        server = HttpServer(make_app(site), config, listen(config.host, config.port))
        server.start()
        graph.at_end(site.crew.dismiss)
        graph.at_end(server.stop)
        self.ports["serve"] = server.port
        self._show(f"Listening at http://{_shown(config.host)}:{server.port}/")
        if token.notice:
            self._show(token.notice)
        return lambda: site.in_flight > 0


def _config_of(graph: LiveGraph) -> RuntimeConfig:
    if graph.origin is None:
        raise TypeError("only a graph that was built can be served")
    return graph.origin.config


def require_packages() -> None:
    """Find out before anything starts whether what `--serve` needs is installed.

    Raises:
        RunError: GBE671.
    """
    from importlib.util import find_spec

    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise RunError("GBE671", what="--serve", packages=" and ".join(missing), extra="serve")


def _wait_while(is_busy: Callable[[], bool], grace_s: float) -> None:
    deadline = monotonic() + grace_s
    while is_busy() and monotonic() < deadline:
        sleep(_POLL_S)


def _never_busy() -> bool:
    return False


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
