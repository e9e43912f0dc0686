"""The result of a build, and the memory of the last one: it is reused as long as none of its inputs has changed."""

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
    """The numbers of agents, topics and subscriptions in a graph."""

    agents: int
    topics: int
    subscriptions: int

    @classmethod
    def of(cls, artifacts: BuildArtifacts) -> GraphCounts:
        """Count what artifacts describe."""
        agents = artifacts.agents.agents
        return cls(len(agents), len(artifacts.topics.topics), sum(len(agent.subscriptions) for agent in agents))


class LastBuild(msgspec.Struct, frozen=True, array_like=True):
    """The last build, as it is kept in the cache.

    Attributes:
        sources: Fingerprint of the files that were read.
        artifacts: Fingerprint of the files that were written.
        tally: The size of the graph.
        findings: What the rules found.
    """

    sources: stamps.Fingerprint
    artifacts: stamps.Fingerprint
    tally: GraphCounts
    findings: tuple[Finding, ...]


def remember_build(
    config: ResolvedBuild, sources: stamps.Fingerprint, tally: GraphCounts, findings: Sequence[Finding]
) -> None:
    """Remember a build that has just ended; `sources` must have the key `key_of(config)`."""
    cache.write_cache(_cache_path(config), LastBuild(sources, _fingerprint_artifacts(config), tally, tuple(findings)))


def recall_build(config: ResolvedBuild) -> LastBuild | None:
    """Return the last build if sources, settings, artifacts and GraphBus itself are unchanged; else None.

    A file is read only if its status (size, time) has changed, and no file is parsed.
    """
    last = cache.read_cache(_cache_path(config), LastBuild)
    if last is None:
        return None
    index = discover_modules(config)
    if index.errors or not last.sources.is_current(config.root, (file.path for file in index.files), key_of(config)):
        return None
    if not last.artifacts.is_current(config.artifacts_dir, ()) or _has_drifted(config):
        return None
    if last.artifacts.is_racy:  # the files were too new for their time stamps to be trusted; by now they can be
        remember_build(config, last.sources, last.tally, last.findings)
    return last


def _has_drifted(config: ResolvedBuild) -> bool:
    """True if a run of the artifacts would be refused because imported files have changed."""
    try:
        return bool(store.find_drift(config.artifacts_dir, store.load_manifest(config.artifacts_dir)))
    except ArtifactError:
        return True


def _fingerprint_artifacts(config: ResolvedBuild) -> stamps.Fingerprint:
    return stamps.Fingerprint.take(config.artifacts_dir, [*store.ARTIFACTS, store.MANIFEST])


def _cache_path(config: ResolvedBuild) -> Path:
    return Path(config.artifacts_dir, cache.CACHE, "build")


def key_of(config: ResolvedBuild) -> str:
    """Return a digest of what a build depends on besides its files: GraphBus, artifact format, Python, paths and settings."""
    wanted = [os.path.relpath(path, config.root) for path in config.paths]
    python = sys.version_info[:2]  # an older one cannot read all that a newer one can
    made_by = f"{__version__}:{SCHEMA_VERSION}:{python}"
    return sha256_hex(msgspec.json.encode([made_by, wanted, msgspec.to_builtins(config.settings)]))


class BuildResult(NamedTuple):
    """The result of a build.

    Attributes:
        tally: The size of the graph.
        built: The artifacts of this build; None if nothing had changed, see `artifacts`.
        findings: What the rules find in the sources after the build.
        negotiations: The record of the negotiation, if there was one.
        applied: The files that agents changed.
        diffs: Path -> unified diff of what they changed, or would have changed without `dry_run`.
        spent: What the negotiation cost.
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
        """The artifacts of this build; if nothing had changed, those on disk, read and verified.

        Raises:
            ArtifactError: The artifacts on disk are damaged.
        """
        return self.built or store.load(Path(self.config.artifacts_dir))
