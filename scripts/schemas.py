"""Write the JSON Schema of each artifact from the classes of model/; `--check` only compares."""

from __future__ import annotations

import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from graphbus_core.model.artifacts import SCHEMA_VERSION, Manifest
from graphbus_core.store import ARTIFACTS, MANIFEST

FOLDER = Path(__file__).parent.parent / "src" / "graphbus_core" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Give the JSON Schema of one artifact, with a title a person can read."""
    schema = _cleaned(msgspec.json.schema(kind))
    return {"$schema": DIALECT, "title": f"GraphBus {kind.__name__}, format {SCHEMA_VERSION}", **schema}


def _cleaned(part: Any) -> Any:
    """The same with docstrings as Python 3.13 would have them: no indentation of the source."""
    if isinstance(part, dict):
        return {key: cleandoc(value) if key == "description" else _cleaned(value) for key, value in part.items()}
    return [_cleaned(item) for item in part] if isinstance(part, list) else part


def all_schemas() -> dict[str, bytes]:
    """Give file name -> content of every schema."""
    kinds = {**ARTIFACTS, MANIFEST: Manifest}
    return {
        name.replace(".json", ".schema.json"): msgspec.json.format(
            msgspec.json.encode(schema_of(kind), order="sorted"), indent=2
        )
        + b"\n"
        for name, kind in kinds.items()
    }


def main() -> int:
    written = all_schemas()
    if "--check" in sys.argv:
        stale = [name for name, data in written.items() if not _is_same(FOLDER / name, data)]
        if stale:
            print(f"Not what scripts/schemas.py makes: {', '.join(stale)}", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, data in written.items():
        (FOLDER / name).write_bytes(data)
    return 0


def _is_same(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


if __name__ == "__main__":
    sys.exit(main())
