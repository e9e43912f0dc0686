"""Verifies artifacts of an older format and upgrades them to the present one.

Only the manifest differs between formats. A migration verifies the other artifacts against the manifest and then replaces it by a
rename, so after a crash the folder has either the old format or the new one. Each step between two formats is frozen once it is
released; `tests/projects/frozen/` verifies its result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.artifacts import SCHEMA_VERSION, Manifest
from graphbus_core.store.folders import Folder, resolve_parent
from graphbus_core.store.reading import (
    MANIFEST,
    BuildArtifacts,
    decode_artifact,
    format_path,
    load,
    load_parts,
    read_file,
    read_version,
)
from graphbus_core.store.writing import encode_artifact, lock_folder


class SourceFacts(NamedTuple):
    """Facts that a newer format needs and an older one lacks; they are read from the source files.

    Attributes:
        imports: Path -> sha256 of the project's own files that agents import.
        third_party: The third-party packages that all these files import.
    """

    imports: Mapping[str, str] = {}
    third_party: tuple[str, ...] = ()


def _upgrade_1_to_2(manifest: Mapping[str, Any], learned: SourceFacts) -> dict[str, Any]:
    """Return the manifest in format 2: with the files and packages that agents import."""
    return {**manifest, "schema_version": 2, "imports": learned.imports, "third_party": learned.third_party}


def _upgrade_2_to_3(manifest: Mapping[str, Any], _learned: SourceFacts) -> dict[str, Any]:
    """Return the manifest in format 3. Only the number changes, because the new fields (topic types, keys read) are optional."""
    return {**manifest, "schema_version": 3}


def _upgrade_3_to_4(manifest: Mapping[str, Any], _learned: SourceFacts) -> dict[str, Any]:
    """Return the manifest in format 4. Only the number changes, because the new field (what a change removes) is optional."""
    return {**manifest, "schema_version": 4}


def _upgrade_4_to_5(manifest: Mapping[str, Any], _learned: SourceFacts) -> dict[str, Any]:
    """Return the manifest in format 5. Only the number changes, because the new fields (how payloads are read) are optional."""
    return {**manifest, "schema_version": 5}


_STEPS: Mapping[int, Callable[[Mapping[str, Any], SourceFacts], dict[str, Any]]] = {
    1: _upgrade_1_to_2,
    2: _upgrade_2_to_3,
    3: _upgrade_3_to_4,
    4: _upgrade_4_to_5,
}
"""Format -> the function that makes a manifest of the next format."""
_UNKNOWN_IN_1 = frozenset({"imports", "third_party"})
"""Fields that a manifest of format 1 lacks; without `SourceFacts` they are empty, which then means unknown."""


class MigrationResult(NamedTuple):
    """What a migration did, or would do in a dry run.

    Attributes:
        before: The format that the artifacts had.
        after: The format that they have now; the same when there was nothing to do.
        changed: File name -> (bytes before, bytes after).
        learned: The facts that were read from the sources.
    """

    before: int
    after: int
    changed: Mapping[str, tuple[bytes, bytes]]
    learned: SourceFacts


def find_artifact_folder(name: str) -> Path:
    """Return the artifact folder for a path on the command line: `.graphbus` below it if that has a manifest, else the path."""
    inside = os.path.join(name, ".graphbus")
    return Path(inside if os.path.isfile(os.path.join(inside, MANIFEST)) else name)


def load_any(folder: Path) -> tuple[BuildArtifacts, int, frozenset[str]]:
    """Read artifacts of the present or an older format, without writing anything.

    Returns:
        The artifacts, their format, and the names of the manifest's fields that this format lacks and that are therefore empty.

    Raises:
        ArtifactError: As `load`, but not GBE503; GBE513 for a format that is too old.
    """
    version = read_version(folder)
    if version >= SCHEMA_VERSION:
        return load(folder), version, frozenset()
    manifest, _ = _upgrade_manifest(folder, version, SourceFacts())
    return load_parts(folder, manifest), version, _UNKNOWN_IN_1 if version == 1 else frozenset()


def migrate(folder: Path, learn: Callable[[BuildArtifacts], SourceFacts], *, dry_run: bool = False) -> MigrationResult:
    """Upgrade the artifacts of a folder to the present format. Does nothing if they have it; damaged artifacts are refused.

    Args:
        folder: The artifact folder.
        learn: Returns the facts from the sources for the old artifacts; called only if the new format needs them.
        dry_run: Change nothing, only return what would be done.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504-507 as `load`; GBE510 when the folder cannot be written; GBE513 for a format without
            a step; GBE514 for a file that is too large; and what `learn` raises. After an error nothing has changed.
    """
    with _lock_artifact_folder(folder, dry_run=dry_run) as opened:
        artifacts, version, missing = load_any(folder)
        if version == SCHEMA_VERSION:
            return MigrationResult(version, version, {}, SourceFacts())
        learned = learn(artifacts) if missing else SourceFacts()
        before, (_, after) = read_file(str(folder / MANIFEST)), _upgrade_manifest(folder, version, learned)
        if opened:
            opened.write_atomic(MANIFEST, after)
    return MigrationResult(version, SCHEMA_VERSION, {MANIFEST: (before, after)}, learned)


def _upgrade_manifest(folder: Path, version: int, learned: SourceFacts) -> tuple[Manifest, bytes]:
    """Return the manifest of a folder, upgraded from format `version` to the present one, and its bytes; nothing is written."""
    path = str(folder / MANIFEST)
    document = decode_artifact(read_file(path), dict[str, Any], path)
    for number in range(version, SCHEMA_VERSION):
        if number not in _STEPS:
            raise ArtifactError("GBE513", where=Place(format_path(path)), version=version, oldest=min(_STEPS))
        document = _STEPS[number](document, learned)
    data = encode_artifact(document)
    return decode_artifact(data, Manifest, path), data


@contextmanager
def _lock_artifact_folder(folder: Path, *, dry_run: bool) -> Iterator[Folder | None]:
    """Open the folder and lock it in the block; None in a dry run or if it is missing. OSError becomes ArtifactError GBE510."""
    if dry_run or not os.path.isdir(folder):
        yield None
        return
    try:
        with Folder.at(resolve_parent(folder)) as opened, lock_folder(opened):
            yield opened
    except OSError as error:
        where, advice = Place(format_path(folder)), advise_on(error, folder)
        raise ArtifactError("GBE510", where=where, reason=reason_of(error), advice=advice) from None
