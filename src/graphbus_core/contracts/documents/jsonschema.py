"""The contracts as JSON Schema (draft 2020-12): in one document, or each in one of its own that needs no other.

`$id`s are relative names: nobody has given us a domain, and a document may lie anywhere.
"""

from __future__ import annotations

from typing import Any

from graphbus_core.contracts.documents.classes import Classes
from graphbus_core.contracts.documents.parts import Part, Parts
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.project_info import ProjectInfo
from graphbus_core.schema.json_schema import JsonSchema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BUNDLE = "contracts"


def bundle(artifacts: BuildArtifacts, info: ProjectInfo) -> dict[str, Any]:
    """One document with the schemas of all payloads, arguments and results in its `$defs`."""
    parts = _parts_of(artifacts)
    classes = Classes(parts, "#/$defs/")
    described = {part.name: _described(part, classes) for part in parts}
    document = {
        "$schema": DIALECT,
        "$id": BUNDLE,
        "title": f"Contracts of {info.title}",
        "description": info.description,
        "$defs": {**classes.needed(), **described},
    }
    return {key: value for key, value in document.items() if value or key == "$defs"}


def single(artifacts: BuildArtifacts) -> dict[str, dict[str, Any]]:
    """Name -> the document of one payload, of the arguments or the result of one method."""
    parts = _parts_of(artifacts)
    classes = Classes(parts, "#/$defs/")
    documents = {}
    for part in parts:
        schema = _described(part, classes)
        needed = classes.needed()
        documents[part.name] = {"$schema": DIALECT, "$id": part.name, **schema, **({"$defs": needed} if needed else {})}
    return documents


def _parts_of(artifacts: BuildArtifacts) -> list[Part]:
    parts = Parts(artifacts)
    return sorted(
        (*(parts.payload_of(topic.name) for topic in parts.topics), *parts.sides()), key=lambda each: each.name
    )


def _described(part: Part, classes: Classes) -> JsonSchema:
    note = {"description": part.note} if part.note else {}
    return {"title": part.title, **note, **part.written(classes.writer)}
