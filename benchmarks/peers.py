"""graphbus 0.5.1, an unrelated package with our distribution's name, as a peer: in an environment of its own, if it installs."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from stopwatch import ROOT

HOME = ROOT / ".peers" / "graphbus-0.5.1"
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Keeps a library that it imports from asking the network for prices at every start."""


@cache
def old_graphbus() -> Path | None:
    """Give the `bin` folder of the peer's environment, made on first use; None, with a sentence, where that is impossible."""
    binaries = HOME / "bin"
    if (HOME / "ready").exists():
        return binaries
    print("setting up graphbus 0.5.1 as a peer (about two minutes, once) ...", flush=True)
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--disable-pip-version-check",
    ]
    try:
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run(
            [binaries / "python", "-m", "pip", *install, "-r", ROOT / "requirements" / "peer.txt"],
            check=True,
            capture_output=True,
            timeout=600,
        )
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"graphbus 0.5.1 cannot be installed here ({type(problem).__name__}); its rows are left out")
        return None
    (HOME / "ready").touch()
    return binaries
