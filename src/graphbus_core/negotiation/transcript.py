"""What was said in a session, and where it is kept: `.graphbus/sessions/S001/`.

transcript.jsonl   every event of the negotiation in order, one `{"topic": ..., "payload": ...}` a line, no clock times
record.json        the outcome: proposals, votes, commits, ending
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from graphbus_core.errors import NegotiationError, Place, did_you_mean
from graphbus_core.model.proposals import Json, Negotiations
from graphbus_core.store import encode, write_atomic

RECORD_VERSION = 1
_SESSION = re.compile(r"S(\d{3,})")


class Said(msgspec.Struct, frozen=True):
    """One event of a negotiation as it went over the bus."""

    topic: str
    payload: Json


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """record.json.

    Attributes:
        backend: Who negotiated: `"rules"`, or the model.
        agents: All who took part, in the order of activation.
    """

    schema_version: int
    session: str
    backend: str
    agents: tuple[str, ...]
    arbiters: tuple[str, ...]
    intent: str
    negotiations: Negotiations


def sessions_dir(artifacts_dir: str | Path) -> Path:
    """Give the folder of all sessions."""
    return Path(artifacts_dir) / "sessions"


def list_sessions(artifacts_dir: str | Path) -> tuple[str, ...]:
    """Give the names of the sessions, the oldest first."""
    folder = sessions_dir(artifacts_dir)
    names = [path.name for path in folder.iterdir() if _SESSION.fullmatch(path.name)] if folder.is_dir() else []
    return tuple(sorted(names, key=lambda name: (len(name), name)))


def next_session(artifacts_dir: str | Path) -> str:
    """Give the first free name after all sessions."""
    names = list_sessions(artifacts_dir)
    return f"S{int(names[-1][1:]) + 1 if names else 1:03}"


def save_session(artifacts_dir: str | Path, record: SessionRecord, said: Iterable[Said]) -> Path:
    """Write a session, the record last: a session without a record is not complete.

    Returns:
        The folder of the session.

    Raises:
        NegotiationError: GBE402, a session of this name is there already.
        ArtifactError: It cannot be written.
    """
    folder = sessions_dir(artifacts_dir) / record.session
    if folder.exists():
        raise NegotiationError("GBE402", session=record.session, where=Place(str(folder)))
    lines = b"".join(msgspec.json.encode(event, order="sorted") + b"\n" for event in said)
    folder.mkdir(parents=True)
    write_atomic(folder / "transcript.jsonl", lines)
    write_atomic(folder / "record.json", encode(record))
    return folder


def load_session(artifacts_dir: str | Path, session: str = "") -> SessionRecord:
    """Read what came of a session, by default of the last one.

    Raises:
        NegotiationError: GBE403 there is none, GBE404 there is no such one, GBE405 its record cannot be read.
    """
    names = list_sessions(artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=str(artifacts_dir))
    name = session or names[-1]
    if name not in names:
        raise NegotiationError("GBE404", session=name, suggestion=did_you_mean(name, names), known=", ".join(names))
    path = sessions_dir(artifacts_dir) / name / "record.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=SessionRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise NegotiationError("GBE405", session=name, reason=str(error), where=Place(str(path))) from error


def load_transcript(artifacts_dir: str | Path, session: str) -> tuple[Said, ...]:
    """Read every event of a session, in order.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    path = sessions_dir(artifacts_dir) / session / "transcript.jsonl"
    try:
        return tuple(msgspec.json.decode(line, type=Said) for line in path.read_bytes().splitlines())
    except (OSError, msgspec.DecodeError) as error:
        raise NegotiationError("GBE405", session=session, reason=str(error), where=Place(str(path))) from error
