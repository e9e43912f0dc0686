"""The last build, as long as nothing that it rests on has changed: then there is nothing to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core import __version__, store
from graphbus_core.compiler.discover import discover_modules
from graphbus_core.errors import ArtifactError
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding


class LastBuild(NamedTuple):
    """The artifacts as they are on disk, verified, and what the rules found in their sources."""

    artifacts: BuildArtifacts
    findings: tuple[Finding, ...]


class _Remembered(msgspec.Struct, frozen=True, array_like=True):
    fingerprint: store.Fingerprint
    findings: tuple[Finding, ...]


def keep(config: BuildConfig, fingerprint: store.Fingerprint, findings: Sequence[Finding]) -> None:
    """Remember what a build that has just ended rests on, taken with `key_of(config)`, and what it found."""
    store.write_cache(_place(config), _Remembered(fingerprint, tuple(findings)))


def recall(config: BuildConfig) -> LastBuild | None:
    """Give the last build if its files, its settings, its artifacts and GraphBus itself are what they were; else None.

    The files are looked at, and read only where their status has changed; none is parsed.
    """
    last = store.read_cache(_place(config), _Remembered)
    if last is None:
        return None
    index = discover_modules(config)
    if index.errors or not last.fingerprint.holds(config.root, (file.path for file in index.files), key_of(config)):
        return None
    try:
        return LastBuild(store.load(Path(config.artifacts_dir)), last.findings)
    except ArtifactError:
        return None


def _place(config: BuildConfig) -> Path:
    return Path(config.artifacts_dir, store.CACHE, "build")


def key_of(config: BuildConfig) -> str:
    """Give what a build rests on besides its files: GraphBus, the paths and the settings."""
    wanted = [os.path.relpath(path, config.root) for path in config.paths]
    return sha256(msgspec.json.encode([__version__, wanted, msgspec.to_builtins(config.settings)])).hexdigest()
