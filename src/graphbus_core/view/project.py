"""What every source of the page has that belongs to a built project: its graph, its sources, its sessions and its traces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from graphbus_core import store
from graphbus_core.model.artifacts import AgentsArtifact, Artifacts, GraphArtifact, TopicsArtifact
from graphbus_core.view.comparing import Side, compare_sides
from graphbus_core.view.drawing import Verdicts, draw_graph, read_verdicts
from graphbus_core.view.messages import Comparison, GraphPicture, NegotiationPicture, Origin, SourceText
from graphbus_core.view.sources import read_source

EMPTY = Artifacts(
    graph=GraphArtifact(nodes=(), edges=(), activation_order=(), generations=()),
    agents=AgentsArtifact(()),
    topics=TopicsArtifact(()),
)
"""What is shown of a trace whose graph is not known."""


class ProjectSource:
    """A part of a source of the page: what does not change while the page is shown.

    Args:
        artifacts: What was built.
        folder: The folder of the artifacts.

    Attributes:
        origin: What the page shows.
        root: The folder of the project.
    """

    origin: Origin

    def __init__(self, artifacts: Artifacts, folder: str | Path) -> None:
        self.artifacts = artifacts
        self.folder = Path(folder)
        manifest = artifacts.manifest
        self.root = Path(store.project_root(folder, manifest) if manifest else self.folder.parent).resolve()

    def graph(self, *, is_trusted: bool) -> GraphPicture:
        """Return the drawing of the graph."""
        return draw_graph(
            self.artifacts, origin_for(self.origin, is_trusted=is_trusted), self._verdicts, self.left_out()
        )

    @cached_property
    def _verdicts(self) -> Verdicts:
        return read_verdicts(self.artifacts, self.folder)

    def left_out(self) -> Mapping[str, str]:
        """Return name -> why an agent does not run."""
        return {}

    def source_text(self, name: str) -> SourceText:
        """Return the text of `Agent.method`; raise GBE620 or GBE621 if there is none."""
        return read_source(name, self.artifacts, self.root, self.failing_places(name))

    def failing_places(self, name: str) -> list[str]:
        """Return the places at which a handler has failed, `file:line`."""
        del name
        return []

    def negotiation(self, session: str) -> NegotiationPicture:
        """Return a session of the past; raise GBE404 or GBE405 if it cannot be shown."""
        from graphbus_core.view.negotiation import show_session

        return show_session(self.folder, session)

    def sides(self) -> Mapping[str, Side]:
        """Return name -> what can be compared."""
        return {}

    def compare(self, left: str, right: str) -> Comparison:
        """Return what is published differently on two sides, by default the last two; raise GBE694 for an unknown name."""
        return compare_sides(self.sides(), left, right)


def origin_for(origin: Origin, *, is_trusted: bool) -> Origin:
    """Return the origin as a request gets it: what needs the token is not there without it."""
    return origin if is_trusted else msgspec.structs.replace(origin, has_payloads=False, may_replay=False)
