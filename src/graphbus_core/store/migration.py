"""Artifacts of an older format, read and proved to be whole, and brought to the format of today.

Only the manifest changes from one format to the next. So a migration proves that everything else is what the manifest says, and
replaces the manifest by a rename: whatever happens, the folder has the old format or the new one. A step is written when the
format is raised, and never changed afterwards: `tests/projects/frozen/` holds it to what it did.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core.errors import ArtifactError, Place
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
    reason_of,
)
from graphbus_core.store.writing import encode_artifact, lock_folder


class SourceFacts(NamedTuple):
    """What a step needs to know and the old artifacts do not say; it is read from the sources.

    Attributes:
        imports: Path -> sha256 of the files that agents import.
        third_party: The packages of other people that all files import.
    """

    imports: Mapping[str, str] = {}
    third_party: tuple[str, ...] = ()


def _to_2(manifest: Mapping[str, Any], learned: SourceFacts) -> dict[str, Any]:
    """Let the manifest name what agents import."""
    return {**manifest, "schema_version": 2, "imports": learned.imports, "third_party": learned.third_party}


def _to_3(manifest: Mapping[str, Any], _learned: SourceFacts) -> dict[str, Any]:
    """Let agents say what types their topics have and what is read of results; who does not say it, has none."""
    return {**manifest, "schema_version": 3}


_STEPS: Mapping[int, Callable[[Mapping[str, Any], SourceFacts], dict[str, Any]]] = {1: _to_2, 2: _to_3}
"""Format -> what makes the manifest of the next one."""
_UNSAID = frozenset({"imports", "third_party"})
"""What the manifest of format 1 does not say: without `SourceFacts` it is empty, which means nothing."""


class MigrationResult(NamedTuple):
    """What a migration did, or would do.

    Attributes:
        before: The format that the artifacts had.
        after: The format that they have now; the same when there was nothing to do.
        changed: File name -> bytes before and after.
        learned: What was read from the sources for it.
    """

    before: int
    after: int
    changed: Mapping[str, tuple[bytes, bytes]]
    learned: SourceFacts


def find_artifact_folder(name: str) -> Path:
    """Give the artifact folder that a person means: a project stands for the one in it."""
    inside = os.path.join(name, ".graphbus")
    return Path(inside if os.path.isfile(os.path.join(inside, MANIFEST)) else name)


def load_any(folder: Path) -> tuple[BuildArtifacts, int, frozenset[str]]:
    """Read artifacts of this or an older format; nothing is written.

    Returns:
        The artifacts, their format, and the fields of the manifest that this format does not say: they are empty.

    Raises:
        ArtifactError: As `load`; GBE513, GBE514.
    """
    version = read_version(folder)
    if version >= SCHEMA_VERSION:
        return load(folder), version, frozenset()
    manifest, _ = _upgraded(folder, version, SourceFacts())
    return load_parts(folder, manifest), version, _UNSAID if version == 1 else frozenset()


def migrate(folder: Path, learn: Callable[[BuildArtifacts], SourceFacts], *, dry_run: bool = False) -> MigrationResult:
    """Bring the artifacts of a folder to the format of today; a damaged artifact stays as it is.

    Args:
        folder: Where they are.
        learn: Reads from the sources what the old artifacts do not say; given them as far as they are known.
        dry_run: Only say what would be done.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504-507 as `load`; GBE510 the folder cannot be written; GBE513 no step leads from that
            format; GBE514 a file is too large; and what `learn` raises. Then nothing has changed.
    """
    with _alone(folder, dry_run=dry_run) as opened:
        artifacts, version, unsaid = load_any(folder)
        if version == SCHEMA_VERSION:
            return MigrationResult(version, version, {}, SourceFacts())
        learned = learn(artifacts) if unsaid else SourceFacts()
        before, (_, after) = read_file(str(folder / MANIFEST)), _upgraded(folder, version, learned)
        if opened:
            opened.write_atomic(MANIFEST, after)
    return MigrationResult(version, SCHEMA_VERSION, {MANIFEST: (before, after)}, learned)


def _upgraded(folder: Path, version: int, learned: SourceFacts) -> tuple[Manifest, bytes]:
    """Go all steps from a format to that of today."""
    path = str(folder / MANIFEST)
    document = decode_artifact(read_file(path), dict[str, Any], path)
    for number in range(version, SCHEMA_VERSION):
        if number not in _STEPS:
            raise ArtifactError("GBE513", version=version, oldest=min(_STEPS))
        document = _STEPS[number](document, learned)
    data = encode_artifact(document)
    return decode_artifact(data, Manifest, path), data


@contextmanager
def _alone(folder: Path, *, dry_run: bool) -> Iterator[Folder | None]:
    """Open the folder and keep builds out while artifacts are replaced; None where nothing is to be written."""
    if dry_run or not os.path.isdir(folder):
        yield None
        return
    try:
        with Folder.at(resolve_parent(folder)) as opened, lock_folder(opened):
            yield opened
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(format_path(folder)), reason=reason_of(error)) from None
