"""Run as a child process: land a session with two accepted proposals and one git commit for each.

    python -m tests.e2e.commit_driver ROOT

The `git` on its PATH may be one that kills this process at a certain command.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fakes.landed_sessions import LOG, PRICE, Agreed

if __name__ == "__main__":
    Agreed(Path(sys.argv[1])).accept(PRICE).accept(LOG, title="Log what was sold").land()
