"""The result of a build, and the cache of the last build, which is reused as long as none of its inputs has changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core import __version__, store
from graphbus_core.compiler.discover import discover_modules
from graphbus_core.errors import ArtifactError, ModelError
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import LLMConfig, ResolvedBuild
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
        """Count the agents, topics and subscriptions that artifacts describe."""
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
    """Write a build that has just ended to the cache; the key of the fingerprint `sources` must be `key_of(config)`."""
    cache.write_cache(_cache_path(config), LastBuild(sources, _fingerprint_artifacts(config), tally, tuple(findings)))


def recall_build(config: ResolvedBuild) -> LastBuild | None:
    """Return the last build if sources, settings, artifacts and GraphBus itself are unchanged since; else None.

    A file is read only if its status (size, time) has changed; no file is parsed. The cache may be written again.
    """
    last = cache.read_cache(_cache_path(config), LastBuild)
    if last is None:
        return None
    index = discover_modules(config)
    if index.errors or not last.sources.is_current(config.root, (file.path for file in index.files), key_of(config)):
        return None
    if not last.artifacts.is_current(config.artifacts_dir, ()) or _would_be_refused(config):
        return None
    if last.artifacts.is_racy:  # the files were too new for their time stamps to be trusted; by now they can be
        remember_build(config, last.sources, last.tally, last.findings)
    return last


def _would_be_refused(config: ResolvedBuild) -> bool:
    """True if a run of these artifacts would be refused: the manifest cannot be read, or does not fit the files it lists."""
    try:
        return bool(store.find_drift(config.artifacts_dir, store.load_manifest(config.artifacts_dir)))
    except ArtifactError:
        return True


def _fingerprint_artifacts(config: ResolvedBuild) -> stamps.Fingerprint:
    """Return the fingerprint of the artifacts and the manifest as they are on disk now."""
    return stamps.Fingerprint.take(config.artifacts_dir, [*store.ARTIFACTS, store.MANIFEST])


def _cache_path(config: ResolvedBuild) -> Path:
    return Path(config.artifacts_dir, cache.CACHE, "build")


def key_of(config: ResolvedBuild) -> str:
    """Return a digest of all inputs of a build except its files: GraphBus, artifact format, Python, paths and settings."""
    paths = [os.path.relpath(path, config.root) for path in config.paths]
    python = sys.version_info[:2]  # a newer version can parse more files
    made_by = f"{__version__}:{SCHEMA_VERSION}:{python}"
    settings = msgspec.structs.replace(config.settings, llm=LLMConfig())  # no artifact depends on the models
    return sha256_hex(msgspec.json.encode([made_by, paths, msgspec.to_builtins(settings)]))


class BuildResult(NamedTuple):
    """The result of a build.

    Attributes:
        tally: The size of the graph.
        built: The artifacts of this build; None if nothing had changed, see `artifacts`.
        findings: What the rules find in the sources after the build.
        negotiations: The record of the negotiation, if there was one.
        applied: The source files to which the negotiation wrote changes.
        diffs: Path -> unified diff of the accepted changes; with `dry_run` they are not written.
        spent: What the negotiation cost.
        locked: In a frozen build, how many agents the lock covers.
        failure: The error with which a model was given up although changes were accepted; those are written. Else None.
        is_unchanged: Nothing had changed since the last build, so nothing was written.
        was_dry_run: The build wrote no files.
    """

    config: ResolvedBuild
    tally: GraphCounts
    built: BuildArtifacts | None = None
    findings: tuple[Finding, ...] = ()
    negotiations: Negotiations | None = None
    applied: tuple[FileChange, ...] = ()
    diffs: Mapping[str, str] = {}
    failure: ModelError | None = None
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
