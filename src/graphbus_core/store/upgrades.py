"""Artifacts of older formats brought to the format of today: pure functions on JSON data, one for each step.

    1 --to_2--> 2

A step is written when the format is raised, and never changed afterwards: `tests/projects/frozen/` holds it to what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from graphbus_core.errors import ArtifactError
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.store.reading import MANIFEST

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


def to_2(documents: Documents, learned: Learned) -> Documents:
    """Let the manifest name what agents import."""
    said = {"imports": dict(learned.imports), "third_party": list(learned.third_party)}
    return {**documents, MANIFEST: {**documents[MANIFEST], **said}}


UPGRADES: Mapping[int, Upgrade] = {1: to_2}
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


def unsaid_by(version: int) -> frozenset[str]:
    """Give the fields of the manifest that artifacts of this format do not say."""
    return frozenset().union(*(fields for number, fields in UNSAID.items() if number >= version))
