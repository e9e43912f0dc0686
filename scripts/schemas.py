"""Write the JSON Schema of each artifact and of the negotiation protocol from their classes; `--check` only compares."""

from __future__ import annotations

import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from graphbus_core.model.artifacts import SCHEMA_VERSION, Manifest
from graphbus_core.negotiation.gbnp import messages
from graphbus_core.store import ARTIFACTS, MANIFEST

FOLDER = Path(__file__).parent.parent / "src" / "graphbus_core" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Give the JSON Schema of one artifact, with a title a person can read."""
    schema = _cleaned(msgspec.json.schema(kind))
    return {"$schema": DIALECT, "title": f"GraphBus {kind.__name__}, format {SCHEMA_VERSION}", **schema}


def schema_of_protocol() -> dict[str, Any]:
    """Give the JSON Schema of a message of the negotiation protocol, with a definition for each method's result."""
    methods = messages.METHODS
    kinds = [each for method in methods.values() for each in (method.params, method.result)]
    references, components = msgspec.json.schema_components(
        [*kinds, messages.SessionEvent], ref_template="#/$defs/{name}"
    )
    requests = {
        method: _message({"id": {"type": "integer"}, "method": {"const": method}, "params": params})
        for method, params in zip(methods, references[:-1:2], strict=True)
    }
    event = _message({"method": {"const": messages.EVENT}, "params": references[-1]})
    answers = {
        f"{method} answer": _message({"id": {"type": "integer"}, "result": result})
        for method, result in zip(methods, references[1:-1:2], strict=True)
    }
    error = {
        "type": "object",
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
        "required": ["code", "message"],
    }
    named = {
        **requests,
        messages.EVENT: event,
        **answers,
        "refusal": _message({"id": {"type": "integer"}, "error": error}),
    }
    return {
        "$schema": DIALECT,
        "title": f"A message of the GraphBus Negotiation Protocol, version {messages.VERSION}",
        "description": f"Version {messages.SCHEMA_VERSION} of the schema.",
        "anyOf": [{"$ref": f"#/$defs/{name.replace('/', '~1')}"} for name in named],
        "$defs": _cleaned(components) | named,
    }


def _message(properties: dict[str, Any]) -> dict[str, Any]:
    """Give the schema of a JSON-RPC message that needs all of these members."""
    members = {"jsonrpc": {"const": "2.0"}, **properties}
    return {"type": "object", "properties": members, "required": [*members]}


def _cleaned(part: Any) -> Any:
    """The same with docstrings as Python 3.13 would have them: no indentation of the source."""
    if isinstance(part, dict):
        return {key: cleandoc(value) if key == "description" else _cleaned(value) for key, value in part.items()}
    return [_cleaned(item) for item in part] if isinstance(part, list) else part


def all_schemas() -> dict[str, bytes]:
    """Give file name -> content of every schema."""
    kinds = {**ARTIFACTS, MANIFEST: Manifest}
    found = {name.replace(".json", ".schema.json"): schema_of(kind) for name, kind in kinds.items()}
    found["negotiation-protocol.schema.json"] = schema_of_protocol()
    return {
        name: msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"
        for name, schema in found.items()
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
