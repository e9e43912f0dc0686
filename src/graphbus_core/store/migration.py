"""An artifact folder of an older format, read, proved to be whole, and brought to the format of today: all files or none.

    verify the digests of before  ->  upgrade  ->  decode  ->  keep the old files  ->  replace, manifest last  ->  drop the old

An upgrade is a chain of pure functions on JSON data, one for each step from a format to the next. A step is written when the
format is raised, and never changed afterwards: `tests/projects/frozen/` holds it to what it did.

The manifest is replaced last. So a migration that is killed leaves an old manifest, and those old files that it replaced already
are in `before-migration/`: their digests prove them, and the next migration takes them from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import SCHEMA_VERSION, BuildArtifacts, Manifest
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.beneath import Folder, anchored
from graphbus_core.store.reading import ARTIFACTS, MANIFEST, decode, load, read_file, read_version, reason_of, shown
from graphbus_core.store.writing import format_json, locked, write_together

KEPT = "before-migration"

Documents = Mapping[str, Any]
"""File name -> content, as JSON data."""


class Learned(NamedTuple):
    """What a step needs to know and the old artifacts do not say; it is read from the sources.

    Attributes:
        imports: Path -> sha256 of the files that agents import.
        third_party: The packages of other people that all files import.
    """

    imports: Mapping[str, str] = {}
    third_party: tuple[str, ...] = ()


Upgrade = Callable[[Documents, Learned], Documents]


def _to_2(documents: Documents, learned: Learned) -> Documents:
    """Let the manifest name what agents import."""
    said = {"imports": dict(learned.imports), "third_party": list(learned.third_party)}
    return {**documents, MANIFEST: {**documents[MANIFEST], **said}}


UPGRADES: Mapping[int, Upgrade] = {1: _to_2}
"""Format -> what makes the next one of it."""

UNSAID: Mapping[int, frozenset[str]] = {1: frozenset({"imports", "third_party"})}
"""Format -> what its manifest does not say and the next one does: with `Learned()` it is empty, which means nothing."""


def upgrade(
    documents: Documents, version: int, learned: Learned, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> Documents:
    """Go all steps from a format to that of today.

    Raises:
        ArtifactError: GBE513 when no way leads there.
    """
    for number in range(version, max(version, SCHEMA_VERSION)):
        step = upgrades.get(number)
        if step is None:
            raise ArtifactError("GBE513", version=version, oldest=min(upgrades, default=SCHEMA_VERSION))
        documents = step(documents, learned)
        documents = {**documents, MANIFEST: {**documents[MANIFEST], "schema_version": number + 1}}
    return documents


def _unsaid_by(version: int) -> frozenset[str]:
    """Give the fields of the manifest that artifacts of this format do not say."""
    return frozenset().union(*(fields for number, fields in UNSAID.items() if number >= version))


Learn = Callable[[BuildArtifacts], Learned]


class Migrated(NamedTuple):
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
    learned: Learned


class _Old(NamedTuple):
    """Artifacts of an older format whose digests are right."""

    version: int
    data: Mapping[str, bytes]
    documents: Mapping[str, Any]


def folder_in(name: str) -> Path:
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
    old = _read_old(folder, version)
    return _decoded(folder, _upgraded(old, Learned(), UPGRADES)), version, _unsaid_by(version)


def migrate(
    folder: Path, learn: Learn, *, dry_run: bool = False, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> Migrated:
    """Bring the artifacts of a folder to the format of today; a damaged artifact stays as it is.

    Args:
        folder: Where they are.
        learn: Reads from the sources what the old artifacts do not say; given them as far as they are known.
        dry_run: Only say what would be done.
        upgrades: The steps.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504-507 as `load`; GBE510 the folder cannot be written; GBE513 no step leads from that
            format; GBE514 a file is too large; and what `learn` raises. Then nothing has changed.
    """
    with _alone(folder, dry_run=dry_run) as opened:
        version = read_version(folder)
        if version >= SCHEMA_VERSION:
            load(folder)
            if opened:
                with suppress(OSError):  # of a migration that was killed when all was done but this
                    opened.remove_tree(KEPT)
            return Migrated(version, version, {}, Learned())
        old = _read_old(folder, version)
        learned = learn(_decoded(folder, _upgraded(old, Learned(), upgrades)))
        made = _upgraded(old, learned, upgrades)
        _decoded(folder, made)
        changed = {name: (old.data[name], data) for name, data in made.items() if data != old.data[name]}
        if opened:
            _replace(opened, changed)
    return Migrated(version, SCHEMA_VERSION, changed, learned)


@contextmanager
def _alone(folder: Path, *, dry_run: bool) -> Iterator[Folder | None]:
    """Open the folder and keep builds out while artifacts are replaced; None where nothing is to be written."""
    if dry_run or not os.path.isdir(folder):
        yield None
        return
    try:
        with Folder.at(anchored(folder)) as opened, locked(opened):
            yield opened
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(shown(folder)), reason=reason_of(error)) from None


# --- reading ------------------------------------------------------------------------------


def _read_old(folder: Path, version: int) -> _Old:
    manifest_data = read_file(str(folder / MANIFEST))
    manifest = decode(manifest_data, _Digests, str(folder / MANIFEST))
    data = {name: _whole(folder, name, manifest.artifacts.get(name, "")) for name in ARTIFACTS}
    data[MANIFEST] = manifest_data
    documents = {name: decode(each, dict[str, Any], str(folder / name)) for name, each in data.items()}
    return _Old(version, data, documents)


class _Digests(msgspec.Struct):
    """What every format says since the first."""

    artifacts: dict[str, str]


def _whole(folder: Path, name: str, digest: str) -> bytes:
    """Give the bytes that the manifest means: those in place, or those that an interrupted migration has kept."""
    for place in (folder / name, folder / KEPT / name):
        if os.path.exists(place):
            data = read_file(str(place))
            if sha256_hex(data) == digest:
                return data
    code = "GBE506" if os.path.exists(folder / name) else "GBE505"
    raise ArtifactError(code, where=Place(shown(folder / name)), name=name)


# --- making -------------------------------------------------------------------------------


def _upgraded(old: _Old, learned: Learned, upgrades: Mapping[int, Upgrade]) -> dict[str, bytes]:
    """Give the new files; one whose content stays the same keeps its bytes."""
    documents = upgrade(old.documents, old.version, learned, upgrades)
    data = {
        name: old.data[name] if documents[name] == old.documents[name] else format_json(documents[name])
        for name in ARTIFACTS
    }
    digests = {name: sha256_hex(each) for name, each in data.items()}
    return {**data, MANIFEST: format_json({**documents[MANIFEST], "artifacts": digests})}


def _decoded(folder: Path, data: Mapping[str, bytes]) -> BuildArtifacts:
    """Prove that files are what this GraphBus reads."""
    parts: Any = {
        name.removesuffix(".json"): decode(data[name], kind, str(folder / name)) for name, kind in ARTIFACTS.items()
    }
    return BuildArtifacts(manifest=decode(data[MANIFEST], Manifest, str(folder / MANIFEST)), **parts)


# --- writing ------------------------------------------------------------------------------


def _replace(folder: Folder, changed: Mapping[str, tuple[bytes, bytes]]) -> None:
    """Put the new files in the place of the old ones, the manifest last."""
    replaced = {name: before for name, (before, _) in changed.items() if name != MANIFEST}
    if replaced:
        folder.remove_link(KEPT)  # what is kept is kept here, and nowhere else
        with folder.folder(KEPT, make=True) as kept:
            for name, before in replaced.items():
                kept.write(name, before)
            kept.flush()
        folder.flush()
    write_together(folder, {name: changed[name][1] for name in (*ARTIFACTS, MANIFEST) if name in changed})
    with suppress(OSError):
        folder.remove_tree(KEPT)
