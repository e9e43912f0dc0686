"""A format, once raised, stays what it is: whoever changes the shape of an artifact raises it, and writes a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import graphbus_core
from graphbus_core import store
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.digests import sha256_hex

FOLDER = Path(graphbus_core.__file__).parent / "schemas"
FROZEN: dict[int, dict[str, str]] = {
    2: {
        "graph.json": "30ed10d1ca88607151a526cb76d971988e030285cf7ff7c461384bcba02b14b5",
        "agents.json": "6b39f95ff5a32cf7e58ba4cc5fd87d775546705965bb49c62f07c69296283182",
        "topics.json": "9878673a80b00cb1c98c16ba48f2d918d2770ca1e06acfb234ca76bd15c4bfc9",
        "negotiations.json": "9b38c29eae2705b5fad3ffe172d83a7bddf803e2758d4e0b8d330df269dae7f8",
        "modified_files.json": "15f30fe2ddbf38277595c610f90028fc53d52abadd271c2b1d381a2c27c9bb3b",
        "manifest.json": "b754d6ddf8a7481b57ba3a3f16e81098dc23bf4d303c4c898ab065dc6b1629e1",
    },
    3: {
        "graph.json": "30ed10d1ca88607151a526cb76d971988e030285cf7ff7c461384bcba02b14b5",
        "agents.json": "9b4370e225d53b37608ba9085f0a8d9438bb22ea765cbca2dc7aa95701410299",
        "topics.json": "43b8108cae290229b730f5b6105e023b18997262848340df394c6469434f8863",
        "negotiations.json": "5bb048d1b3d7166f32323eec5fdfd3d99f35283acccfbb9e078853229e9b2017",
        "modified_files.json": "15f30fe2ddbf38277595c610f90028fc53d52abadd271c2b1d381a2c27c9bb3b",
        "manifest.json": "b754d6ddf8a7481b57ba3a3f16e81098dc23bf4d303c4c898ab065dc6b1629e1",
    },
    4: {
        "graph.json": "30ed10d1ca88607151a526cb76d971988e030285cf7ff7c461384bcba02b14b5",
        "agents.json": "06db0f5913f1c926611f000bec57b380c45bc6f30ebc06349022818b60032c80",
        "topics.json": "43b8108cae290229b730f5b6105e023b18997262848340df394c6469434f8863",
        "negotiations.json": "b179b0efddb62d919324f8cf4724490687bb808e8ad3867a376d0d43fc8a28fe",
        "modified_files.json": "15f30fe2ddbf38277595c610f90028fc53d52abadd271c2b1d381a2c27c9bb3b",
        "manifest.json": "b754d6ddf8a7481b57ba3a3f16e81098dc23bf4d303c4c898ab065dc6b1629e1",
    },
    5: {
        "graph.json": "30ed10d1ca88607151a526cb76d971988e030285cf7ff7c461384bcba02b14b5",
        "agents.json": "883588c57bf339d91a5e0b1fc8ab89555906e335faf8c0ee2af65100413d1e3b",
        "topics.json": "43b8108cae290229b730f5b6105e023b18997262848340df394c6469434f8863",
        "negotiations.json": "b179b0efddb62d919324f8cf4724490687bb808e8ad3867a376d0d43fc8a28fe",
        "modified_files.json": "15f30fe2ddbf38277595c610f90028fc53d52abadd271c2b1d381a2c27c9bb3b",
        "manifest.json": "b754d6ddf8a7481b57ba3a3f16e81098dc23bf4d303c4c898ab065dc6b1629e1",
    },
}
"""Format -> artifact -> digest of its shape.

An entry is never changed. A field that is new raises SCHEMA_VERSION, and so does one that goes or becomes something else; then a
new entry is added here, a step to `store/migration.py`, samples of the format that ends to `tests/projects/frozen/`, and a line
to docs/artifacts.md.
"""
WORDS = frozenset({"description", "title", "$schema"})


def shape(schema: Any) -> Any:
    """Give a schema without the words that are for people."""
    if isinstance(schema, dict):
        return {key: shape(value) for key, value in schema.items() if key not in WORDS or not isinstance(value, str)}
    return [shape(each) for each in schema] if isinstance(schema, list) else schema


def digest(schema: Any) -> str:
    return sha256_hex(json.dumps(shape(schema), sort_keys=True).encode())


def _schema(name: str) -> Any:
    return json.loads((FOLDER / name.replace(".json", ".schema.json")).read_bytes())


@pytest.mark.parametrize("name", [*store.ARTIFACTS, store.MANIFEST])
def test_the_shape_of_an_artifact_changes_with_the_format_only(name: str) -> None:
    assert digest(_schema(name)) == FROZEN[SCHEMA_VERSION][name], f"SCHEMA_VERSION is {SCHEMA_VERSION}; see FROZEN"


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["properties"].update(new={"type": "string"}),
        lambda schema: schema["properties"]["sources"].update(additionalProperties={"type": "integer"}),
        lambda schema: schema["required"].remove("imports"),
        lambda schema: schema["properties"].pop("roots"),
    ],
)
def test_a_change_of_shape_changes_the_digest(change: Any) -> None:
    schema = _schema(store.MANIFEST)
    holder = schema["$defs"]["Manifest"] if "$defs" in schema else schema
    change(holder)
    assert digest(schema) != FROZEN[SCHEMA_VERSION][store.MANIFEST]
