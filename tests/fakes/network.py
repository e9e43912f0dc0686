"""A network of its own for a process of a test, whose cable can be pulled: a network namespace, where the machine allows it.

with Network() as network:
    subprocess.Popen([*network.inside, "program"])    # reaches this machine at network.host
    network.cut()
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

import pytest


class Network:
    """A network namespace with one cable to this machine. The test is skipped where it cannot be made.

    Attributes:
        host: The address of this machine in the network.
        inside: The words before a command that runs inside.
    """

    def __init__(self) -> None:
        number = os.getpid() % 60_000
        self._name, self._cable = f"gb{number}", f"gb{number}a"
        subnet = f"10.{100 + number // 256 // 4}.{number % 256}"
        self.host, self._guest = f"{subnet}.1", f"{subnet}.2"
        self.inside = ("ip", "netns", "exec", self._name)

    def __enter__(self) -> Network:
        if shutil.which("ip") is None or not self._try("netns", "add", self._name):
            pytest.skip("needs network namespaces")
        inner = f"{self._name}b"
        steps = (
            ("link", "add", self._cable, "type", "veth", "peer", "name", inner, "netns", self._name),
            ("addr", "add", f"{self.host}/30", "dev", self._cable),
            ("link", "set", self._cable, "up"),
            ("-n", self._name, "addr", "add", f"{self._guest}/30", "dev", inner),
            ("-n", self._name, "link", "set", inner, "up"),
        )
        if not all(self._try(*step) for step in steps):
            self._try("netns", "del", self._name)
            pytest.skip("needs virtual network cables")
        return self

    @staticmethod
    def _try(*words: str) -> bool:
        return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0

    def cut(self) -> None:
        """Pull the cable: what is sent is lost, and nobody is told."""
        assert self._try("link", "set", self._cable, "down")

    def mend(self) -> None:
        assert self._try("link", "set", self._cable, "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._try("netns", "del", self._name)
