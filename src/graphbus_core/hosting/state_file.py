"""An export of states: one JSON document with the values and versions of one moment."""

from __future__ import annotations

from json import dumps
from typing import Annotated, Any, Literal

import msgspec

from graphbus_core import strict_json
from graphbus_core.errors import Place, RunError
from graphbus_core.hosting.state import Kept, Snapshot, check_key, encode

_DEPTH = strict_json.MAX_DEPTH + 4
"""A value may be as deep as any, and is inside of the document, its agents, an agent and an entry."""

_Version = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62) - 1)]  # SQLite counts to twice as many


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    version: _Version


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["graphbus-state"]
    format_version: Literal[1]
    version: _Version
    agents: dict[str, dict[str, _Entry]]


def render(snapshot: Snapshot) -> bytes:
    """Write states as one JSON document, in ASCII: a value may have what no terminal and no UTF-8 takes."""
    agents = {
        agent: {key: {"value": kept.value, "version": kept.version} for key, kept in keys.items()}
        for agent, keys in snapshot.agents.items()
    }
    head = {"format": "graphbus-state", "format_version": 1, "version": snapshot.version}
    return f"{dumps({**head, 'agents': agents}, indent=2)}\n".encode()


def parse(data: bytes, path: str) -> Snapshot:
    """Read what `render` has written; all of it is checked before any of it is used.

    Args:
        data: The document.
        path: Where it is from, for refusals.

    Raises:
        RunError: GBE697 it is no export; GBE641, GBE642 a value that no state can have.
    """
    try:
        document = msgspec.convert(strict_json.loads(data, any_text=True, max_depth=_DEPTH), _Document)
    except ValueError as error:  # msgspec's ValidationError is one
        raise RunError("GBE697", where=Place(path), reason=str(error)) from None
    agents = {agent: _read_keys(agent, entries) for agent, entries in sorted(document.agents.items())}
    return Snapshot(document.version, agents)


def _read_keys(agent: str, entries: dict[str, _Entry]) -> dict[str, Kept]:
    check_key(agent, agent)
    return {key: Kept(encode(agent, key, entry.value), entry.version) for key, entry in sorted(entries.items())}
