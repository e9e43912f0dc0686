"""What goes around every handler: counting, for the one who runs the pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from graphbus_core.middleware import Handling


class Metrics:
    """Attempts by handler, and how many of them failed."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Count one attempt."""
        self.attempts[handling.name] += 1
        self.failed[handling.name] += 1
        yield
        self.failed[handling.name] -= 1


metrics = Metrics()
