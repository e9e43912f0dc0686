"""Run as a child process: negotiate over the zoo's project with a model that is a function and takes its time.

    python -m tests.e2e.session_driver ROOT DELAY_MS [--resume]

Prints how often the model was asked.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from graphbus_core.errors import GraphBusError
from tests.fakes.model_sessions import GoodModel, negotiate


def main(root: str, delay_ms: str, *options: str) -> int:
    """Negotiate, and give the exit status."""
    model = GoodModel(lambda _prompt: time.sleep(int(delay_ms) / 1000))
    try:
        negotiate(Path(root), model, is_resumed="--resume" in options)
    except GraphBusError as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    sys.stdout.write(f"{len(model.asked)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
