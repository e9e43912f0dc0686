"""JSON documents that say their version in `schema_version`: the version is looked at before anything else."""

from __future__ import annotations

from typing import TypeVar

import msgspec

Document = TypeVar("Document", bound=msgspec.Struct)


class _Versioned(msgspec.Struct):
    schema_version: int


def decode_versioned(data: bytes, kind: type[Document], version: int) -> Document:
    """Give what a document says, if it has this version.

    Raises:
        msgspec.DecodeError: It is damaged, or of another version, whatever else it says.
    """
    try:
        found = msgspec.json.decode(data, type=_Versioned).schema_version
        if found != version:
            raise msgspec.ValidationError(f"it has version {found}, this GraphBus reads version {version}")
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
