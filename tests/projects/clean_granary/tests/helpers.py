"""Parts that several tests need."""

from __future__ import annotations

import socket
import subprocess
import sys


def run_script(*arguments: str) -> str:
    """Run a script of the project as a person would."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def free_port() -> int:
    """Find a port that nobody uses."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def truck(grain: str = "rye", kg: float = 1000.0) -> dict[str, object]:
    """Give what a truck brings."""
    return {"grain": grain, "kg": kg}
