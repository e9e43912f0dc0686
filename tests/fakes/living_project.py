"""A project on disk with a graph that runs from it: files are saved, built and reloaded as `graphbus dev` does it."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from graphbus_core.build import run_build_pipeline
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.reload import Reloaded, Reloader
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import BuildRequest, RuntimeRequest
from graphbus_core.runtime import PIPELINE as RUNTIME


class LivingProject:
    """The graph of the agents in `shop/`."""

    def __init__(self, root: Path, patience_s: float = 5.0, **wanted: bool) -> None:
        self.root = root
        self.build()
        self.graph = _start(root / ".graphbus", **wanted)
        self.reloader = Reloader(self.graph, patience_s=patience_s)

    def save(self, path: str, text: str) -> None:
        """Write a file as careful editors do: beside, then over it."""
        target = self.root / path
        beside = target.with_name(f".{target.name}.tmp")
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(textwrap.dedent(text).lstrip())
        os.replace(beside, target)

    def edit(self, path: str, old: str, new: str) -> None:
        """Exchange a piece of a file."""
        text = (self.root / path).read_text()
        assert old in text
        self.save(path, text.replace(old, new))

    def build(self) -> BuildArtifacts:
        """Give the artifacts of the files as they are."""
        return run_build_pipeline(BuildRequest(paths=(str(self.root / "shop"),))).artifacts

    def reload(self) -> Reloaded:
        """Build, and reload."""
        return self.reloader.reload(self.build())

    def reload_unread(self) -> Reloaded:
        """Reload with the artifacts of the last build when the files cannot be built."""
        try:
            artifacts = self.build()
        except GraphBusError:
            assert self.graph.origin is not None
            artifacts = self.graph.origin.artifacts
        return self.reloader.reload(artifacts)


def _start(artifacts: Path, **wanted: bool) -> LiveGraph:
    request = RuntimeRequest(artifacts=str(artifacts), **wanted)  # type: ignore[arg-type]
    graph: LiveGraph = RUNTIME.without("EXECUTE_ENTRYPOINT", "SHUTDOWN").run(request)[LiveGraph]
    return graph
