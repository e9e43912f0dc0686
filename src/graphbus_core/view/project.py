"""What all sources of the page share: a project with its graph and sessions, the deliveries that are kept, and a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from graphbus_core import store
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import StoredLetter
from graphbus_core.hosting.serving.pages import Asked, Send
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import AgentsArtifact, Artifacts, GraphArtifact, TopicsArtifact
from graphbus_core.view.comparing import Side, compare_sides
from graphbus_core.view.drawing import Verdicts, draw_graph, read_verdicts
from graphbus_core.view.letters import find_places, list_letters, show_letter
from graphbus_core.view.messages import (
    Comparison,
    DeadLetterList,
    DeliveryPage,
    EventTree,
    GraphPicture,
    Hello,
    NegotiationPicture,
    Origin,
    ReplayOrder,
    ReplayReport,
    SourceText,
    Tick,
)
from graphbus_core.view.pulse import WATCHED_S, Pulse
from graphbus_core.view.records import Query, Records
from graphbus_core.view.sources import read_source
from graphbus_core.view.trees import Known, Reveal, build_tree

EMPTY = Artifacts(
    graph=GraphArtifact(nodes=(), edges=(), activation_order=(), generations=()),
    agents=AgentsArtifact(()),
    topics=TopicsArtifact(()),
)
"""What is shown of a trace whose graph is not known."""


class ProjectSource:
    """What all sources of the page share: the project, the deliveries that are kept, and a stream. Replays are refused.

    Args:
        artifacts: What was built.
        folder: The folder of the artifacts.
        origin: What the page shows.
        records: The deliveries.
        reveal: What of the payloads may be shown.

    Attributes:
        pulse: Asks `tick` what is new, and sends it to all who look.
        root: The folder of the project.
    """

    no_replay = ""
    """Why nothing is replayed here, and what to do instead."""
    interval_s = WATCHED_S
    """As in `Hello`."""

    def __init__(
        self, artifacts: Artifacts, folder: str | Path, origin: Origin, records: Records, reveal: Reveal
    ) -> None:
        self.artifacts = artifacts
        self.folder = Path(folder)
        self.origin, self.records, self.reveal = origin, records, reveal
        self.pulse = Pulse(origin.server, lambda asked: self.hello(is_trusted=asked.is_trusted), self.tick)
        manifest = artifacts.manifest
        self.root = Path(store.project_root(folder, manifest) if manifest else self.folder.parent).resolve()

    # --- the stream ---

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Begin a stream; see `Pages.follow`."""
        return self.pulse.follow(asked, last_id, send)

    def hello(self, *, is_trusted: bool) -> Hello:
        """Return the first message of a stream."""
        oldest, newest = attempt(self.records.bounds)[0] or (0, 0)  # a file may be gone: the next request says so
        origin = origin_for(self.origin, is_trusted=is_trusted)
        return Hello(origin=origin, oldest=oldest, newest=newest, interval_s=self.interval_s)

    def tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return what has happened since the last call; see `MakeTick`."""
        raise NotImplementedError

    # --- requests ---

    def deliveries(self, query: Query) -> DeliveryPage:
        """Return deliveries of the past."""
        return self.records.page(query)

    def tree(self, event_id: str, *, with_payload: bool) -> EventTree:
        """Return the causal tree of an event; raise GBE685 if nothing is known of it."""
        letters = self.letters()
        known = Known(
            events=[each.letter.event for each in letters],
            letters=[show_letter(each.letter, self.root, each.replays) for each in letters],
        )
        return build_tree(event_id, self.records.tree(event_id), known, self.reveal._replace(is_asked=with_payload))

    def letters(self) -> Sequence[StoredLetter]:
        """Return the dead letters that are known."""
        return ()

    def dead_letters(self, *, is_trusted: bool) -> DeadLetterList:
        """Return the dead letters, newest first."""
        del is_trusted
        return list_letters(self.letters(), root=self.root, may_replay=False, note=self.no_replay)

    def replay(self, order: ReplayOrder) -> ReplayReport:
        """Refuse; a source that has a graph overrides this."""
        del order
        raise RunError("GBE694", reason="this page only reads", advice=self.no_replay)

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
        return read_source(name, self.artifacts, self.root, find_places(name, self.letters(), self.records))

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
