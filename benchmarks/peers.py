"""The libraries that GraphBus is measured against: each in an environment of its own, set up on first use.

One that does not install here is left out, with a sentence. The peer called graphbus 0.5.1 is an unrelated package
that has our distribution's name.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from stopwatch import ROOT

HOMES = ROOT / ".peers"
REQUIREMENTS = {
    "graphbus 0.5.1": "peer-graphbus.txt",
    "blinker": "peer-signals.txt",
    "pyee": "peer-signals.txt",
    "LangGraph": "peer-langgraph.txt",
    "FastStream": "peer-faststream.txt",
    "bubus": "peer-bubus.txt",
    "autogen-core": "peer-autogen.txt",
    "validators": "peer-validators.txt",
}
"""Peer -> the hashed requirements of its environment."""

QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "BUBUS_LOGGING_LEVEL": "ERROR",
}
"""Keeps libraries from asking the network for prices or sending traces at a start, and from logging each event."""

_INSTALL = [
    "--quiet",
    "--no-deps",
    "--only-binary",
    ":all:",
    "--require-hashes",
    "--disable-pip-version-check",
    "--no-input",
]


def environment(peer: str) -> Path | None:
    """Give the `bin` folder of the peer's environment, made on first use; None, with a sentence, where that is impossible."""
    return _environment(REQUIREMENTS[peer])


def old_graphbus() -> Path | None:
    """Give the environment of graphbus 0.5.1."""
    return environment("graphbus 0.5.1")


@cache
def _environment(requirements: str) -> Path | None:
    wanted = ROOT / "requirements" / requirements
    home = HOMES / wanted.stem
    binaries, ready = home / "bin", home / "ready"
    if ready.is_file() and ready.read_bytes() == wanted.read_bytes():
        return binaries
    names = " and ".join(peer for peer, file in REQUIREMENTS.items() if file == requirements)
    print(f"setting up {names} as a peer (once) ...", flush=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
        subprocess.run(
            [binaries / "python", "-m", "pip", "install", *_INSTALL, "-r", wanted],
            check=True,
            capture_output=True,
            timeout=600,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"{names} cannot be installed here ({type(problem).__name__}); these rows are left out", flush=True)
        return None
    ready.write_bytes(wanted.read_bytes())
    return binaries
