"""What came of a build, and the last one, which stands as long as nothing that it rests on has changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core import __version__, store
from graphbus_core.compiler.discover import discover_modules
from graphbus_core.errors import ArtifactError
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import FileChange, Negotiations
from graphbus_core.model.spending import Spend
from graphbus_core.store import BuildArtifacts, cache, stamps


class GraphCounts(msgspec.Struct, frozen=True, array_like=True):
    """How much there is in a graph."""

    agents: int
    topics: int
    subscriptions: int

    @classmethod
    def of(cls, artifacts: BuildArtifacts) -> GraphCounts:
        """Count what artifacts describe."""
        agents = artifacts.agents.agents
        return cls(len(agents), len(artifacts.topics.topics), sum(len(agent.subscriptions) for agent in agents))


class LastBuild(msgspec.Struct, frozen=True, array_like=True):
    """What the last build rested on, what it wrote, and what it found.

    Attributes:
        sources: The files that were read.
        artifacts: The files that were written.
    """

    sources: stamps.Fingerprint
    artifacts: stamps.Fingerprint
    tally: GraphCounts
    findings: tuple[Finding, ...]


def remember_build(
    config: ResolvedBuild, sources: stamps.Fingerprint, tally: GraphCounts, findings: Sequence[Finding]
) -> None:
    """Remember a build that has just ended; `sources` were taken with `key_of(config)`."""
    cache.write_cache(_place(config), LastBuild(sources, _look_at_artifacts(config), tally, tuple(findings)))


def recall_build(config: ResolvedBuild) -> LastBuild | None:
    """Give the last build if its files, its settings, its artifacts and GraphBus itself are what they were; else None.

    The files are looked at, and read only where their status has changed; none is parsed.
    """
    last = cache.read_cache(_place(config), LastBuild)
    if last is None:
        return None
    index = discover_modules(config)
    if index.errors or not last.sources.is_current(config.root, (file.path for file in index.files), key_of(config)):
        return None
    if not last.artifacts.is_current(config.artifacts_dir, ()) or _has_drifted(config):
        return None
    if last.artifacts.is_racy:  # files so new that their status says nothing yet: look again, now that it does
        remember_build(config, last.sources, last.tally, last.findings)
    return last


def _has_drifted(config: ResolvedBuild) -> bool:
    """True when a run of the artifacts would be refused for what it would import."""
    try:
        return bool(store.find_drift(config.artifacts_dir, store.load_manifest(config.artifacts_dir)))
    except ArtifactError:
        return True


def _look_at_artifacts(config: ResolvedBuild) -> stamps.Fingerprint:
    return stamps.Fingerprint.take(config.artifacts_dir, [*store.ARTIFACTS, store.MANIFEST])


def _place(config: ResolvedBuild) -> Path:
    return Path(config.artifacts_dir, cache.CACHE, "build")


def key_of(config: ResolvedBuild) -> str:
    """Give what a build rests on besides its files: GraphBus, the format that it writes, Python, the paths and the settings."""
    wanted = [os.path.relpath(path, config.root) for path in config.paths]
    python = sys.version_info[:2]  # an older one cannot read all that a newer one can
    made_by = f"{__version__}:{SCHEMA_VERSION}:{python}"
    return sha256_hex(msgspec.json.encode([made_by, wanted, msgspec.to_builtins(config.settings)]))


class BuildResult(NamedTuple):
    """What came of a build.

    Attributes:
        tally: How much there is in the graph.
        built: The artifacts of this build; None when nothing had changed, see `artifacts`.
        findings: What the rules still find in the sources as they are now.
        applied: The files that agents changed.
        diffs: Path -> unified diff of what they changed, or would have in a dry run.
        spent: What the negotiation has cost.
        locked: In a frozen build, how many agents the lock covers.
        is_unchanged: Nothing had changed since the last build, so that nothing was done.
    """

    config: ResolvedBuild
    tally: GraphCounts
    built: BuildArtifacts | None = None
    findings: tuple[Finding, ...] = ()
    negotiations: Negotiations | None = None
    applied: tuple[FileChange, ...] = ()
    diffs: Mapping[str, str] = {}
    is_unchanged: bool = False
    was_dry_run: bool = False
    spent: Spend = Spend()
    locked: int = 0

    @property
    def artifacts(self) -> BuildArtifacts:
        """The artifacts of this build; when nothing had changed, those on disk, read and verified.

        Raises:
            ArtifactError: They were damaged since.
        """
        return self.built or store.load(Path(self.config.artifacts_dir))
