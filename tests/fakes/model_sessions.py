"""Whole sessions with models that are functions, over the zoo's project without its tests, so that the gate is quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.llm.client import Clients, Completion, ModelPrompt, ScriptedClient
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.backend import Backend
from tests.fakes import zoo
from tests.fakes.model_texts import asked_in
from tests.fakes.zoo_project import FILES
from tests.project_files import write_project

PRICE = Price(3.0, 15.0)
ZOO = {path: text for path, text in FILES.items() if not path.startswith("tests/")}
ARTIFACTS = ("graph.json", "agents.json", "topics.json", "negotiations.json", "modified_files.json", "manifest.json")


class GoodModel:
    """Proposes one good change for each agent and accepts what the others propose; it counts what it is asked.

    Args:
        before: Called with each prompt before it is answered: to wait, to fail, to look.
    """

    def __init__(
        self, before: Callable[[ModelPrompt], object] = lambda _prompt: None, price: Price | None = PRICE
    ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.closed = 0
        self._before = before
        self._lock = Lock()
        self.client = ScriptedClient(self._speak, price=price)
        self.client.close = self._close  # type: ignore[method-assign]

    def _speak(self, prompt: ModelPrompt) -> str | Completion:
        asked = asked_in(prompt)
        with self._lock:
            self.asked.append((asked.task, asked.agent))
        self._before(prompt)
        said = zoo.good(asked, prompt)
        assert isinstance(said, str)
        return said

    def _close(self) -> None:
        self.closed += 1

    def backend(self) -> Backend:
        """Let it answer in every role."""
        return Backend(Clients(self.client, self.client, self.client))


def write_zoo(root: Path) -> Path:
    """Write the project."""
    return write_project(root, ZOO)


def negotiate(root: Path, model: GoodModel, **asked_for: Any) -> BuildResult:
    """Build with agents."""
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True, **asked_for)
    return run_build_pipeline(request, backend=model.backend())


def sources(root: Path) -> dict[str, bytes]:
    """All files of the agents."""
    return {path.name: path.read_bytes() for path in sorted((root / "agents").glob("*.py"))}


def result_of(root: Path) -> dict[str, bytes]:
    """Everything that must not depend on chance: sources, artifacts, record, transcript and lock."""
    kept = root / ".graphbus"
    names = [*ARTIFACTS, "sessions/S001/record.json", "sessions/S001/transcript.jsonl"]
    files = {name: (kept / name).read_bytes() for name in names}
    return {**sources(root), **files, "lock": (kept / "negotiation.lock").read_bytes()}
