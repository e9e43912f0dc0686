"""The transcript and the record of a session, kept in `.graphbus/sessions/S001/`.

transcript.jsonl   every event of the negotiation in order, one `{"topic": ..., "payload": ...}` a line, no clock times
record.json        the outcome: proposals, votes, commits, ending
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from graphbus_core.errors import NegotiationError, Place, did_you_mean
from graphbus_core.model.proposals import Negotiations
from graphbus_core.model.spending import Spend
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, Json
from graphbus_core.store.folders import Folder, read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact, write_atomic

RECORD_VERSION = 1
TRANSCRIPT, RECORD = "transcript.jsonl", "record.json"
_LONG_TEXT, _LONG_LIST = 2000, 50
_SESSION = re.compile(r"S\d{3,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)


class TranscriptEvent(msgspec.Struct, frozen=True):
    """One event of a negotiation with its whole payload."""

    topic: str
    payload: Json


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """record.json.

    Attributes:
        backend: `"rules"`, or the names of the models.
        models: Role -> `"provider:name"`; empty when rules negotiated.
        agents: All agents of the session, in the order of activation.
        spent: The cost of the session.
        costs: Proposal id -> dollars of the questions about it, if prices are known.
        base: Source file -> its sha256 when the session began.
        is_applied: Its accepted changes were written to the source files; `graphbus undo` may have reverted them since.
        refusal: Why they were not written, if an error prevented it.
    """

    schema_version: int
    session: str
    backend: str
    agents: tuple[str, ...]
    arbiters: tuple[str, ...]
    intent: str
    negotiations: Negotiations
    models: dict[str, str] = {}
    spent: Spend = Spend()
    costs: dict[str, float] = {}
    base: dict[str, str] = {}
    is_applied: bool = False
    refusal: str = ""


def fit_for_bus(payload: Json) -> Json:
    """Return a payload that fits the bus: in one that is too large, long texts and lists are cut."""
    return _cut(payload) if len(msgspec.json.encode(payload)) > MAX_PAYLOAD_BYTES // 2 else payload


def _cut(value: Json) -> Json:
    if isinstance(value, str):
        return value if len(value) <= _LONG_TEXT else f"{value[:_LONG_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value[:_LONG_LIST]] if isinstance(value, list) else value


def sessions_dir(artifacts_dir: str | Path) -> Path:
    """Return the folder of all sessions."""
    return Path(artifacts_dir) / "sessions"


def list_sessions(artifacts_dir: str | Path) -> tuple[str, ...]:
    """Return the names of the complete sessions, the oldest first."""
    folder = sessions_dir(artifacts_dir)
    return tuple(name for name in _names_in(folder) if _NAME.fullmatch(name) and (folder / name / RECORD).is_file())


def _names_in(folder: Path) -> list[str]:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(names, key=lambda name: (len(name), name))


def claim_session(artifacts_dir: str | Path, wanted: str = "", *, is_kept: bool = True) -> str:
    """Choose a name, or the first free number, and make its folder at once, so that no other session can get the same name.

    Args:
        is_kept: False: no folder is made, as in a dry run.

    Raises:
        NegotiationError: GBE402 the name is taken, GBE408 it is no name, GBE407 the folder cannot be made.
    """
    folder = sessions_dir(artifacts_dir)
    if wanted and not _NAME.fullmatch(wanted):
        raise NegotiationError("GBE408", session=wanted)
    while True:
        taken = _names_in(folder)
        if wanted and os.path.lexists(folder / wanted):  # a disk may not tell capitals apart
            raise NegotiationError("GBE402", session=wanted, where=Place(str(folder / wanted)))
        numbers = [int(name[1:]) for name in taken if _SESSION.fullmatch(name)]
        name = wanted or f"S{max(numbers, default=0) + 1:03}"
        with refuse_file_errors(name, folder / name), suppress(FileExistsError):  # another process may be faster
            if is_kept:
                with Folder.at(folder, make=True) as sessions:
                    sessions.make(name)
            return name


def release_session(artifacts_dir: str | Path, session: str) -> None:
    """Remove the folder of a claimed name if it is empty."""
    with suppress(OSError), Folder.at(sessions_dir(artifacts_dir)) as sessions:
        sessions.remove_empty(session)


@contextmanager
def refuse_file_errors(session: str, path: Path, code: str = "GBE407") -> Iterator[None]:
    """Raise an OSError of the block as a NegotiationError with this code."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NegotiationError(code, session=session, reason=reason, where=Place(str(path))) from error


def save_session(artifacts_dir: str | Path, record: SessionRecord, said: Iterable[TranscriptEvent]) -> Path:
    """Write a session into its folder, the record last: a session without a record is not complete.

    Returns:
        The folder of the session.

    Raises:
        NegotiationError: GBE402 a session of this name is there already, GBE407 it cannot be written.
    """
    folder = sessions_dir(artifacts_dir) / record.session
    lines = b"".join(msgspec.json.encode(event, order="sorted") + b"\n" for event in said)
    if (folder / RECORD).exists():
        raise NegotiationError("GBE402", session=record.session, where=Place(str(folder)))
    with refuse_file_errors(record.session, folder):
        write_atomic(folder / TRANSCRIPT, lines)
        write_atomic(folder / RECORD, encode_artifact(record))
    return folder


def record_application(artifacts_dir: str | Path, session: str, *, is_applied: bool = False, refusal: str = "") -> None:
    """Write into the record of a session whether its accepted changes were applied, or why not.

    Raises:
        NegotiationError: As `load_session`; GBE410, the record cannot be written.
    """
    record = msgspec.structs.replace(load_session(artifacts_dir, session), is_applied=is_applied, refusal=refusal)
    path = sessions_dir(artifacts_dir) / session / RECORD
    with refuse_file_errors(session, path, "GBE410"):
        write_atomic(path, encode_artifact(record))


def load_session(artifacts_dir: str | Path, session: str = "") -> SessionRecord:
    """Read the record of a session, by default of the last one.

    Raises:
        NegotiationError: GBE403 there is none, GBE404 there is no such one, GBE405 its record cannot be read, or is
            of another version.
    """
    names = list_sessions(artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=str(artifacts_dir))
    name = session or names[-1]
    if name not in names:
        raise NegotiationError("GBE404", session=name, suggestion=did_you_mean(name, names), known=", ".join(names))
    return read_session_document(sessions_dir(artifacts_dir) / name / RECORD, name, SessionRecord, RECORD_VERSION)


def load_transcript(artifacts_dir: str | Path, session: str) -> tuple[TranscriptEvent, ...]:
    """Read every event of a session, in order.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    path = sessions_dir(artifacts_dir) / session / TRANSCRIPT
    return read_session_file(
        path, session, lambda data: tuple(msgspec.json.decode(line, type=TranscriptEvent) for line in data.splitlines())
    )


def read_session_document(path: Path, session: str, kind: type[StructT], version: int) -> StructT:
    """Read a document of a session.

    Raises:
        NegotiationError: GBE405, it cannot be read, or is of another version or session.
    """

    def decode(data: bytes) -> StructT:
        found = decode_versioned(data, kind, version)
        if getattr(found, "session", "") != session:  # a name in it may lead anywhere
            raise msgspec.ValidationError("it belongs to another session")
        return found

    return read_session_file(path, session, decode)


def read_session_file(path: Path, session: str, decode: Callable[[bytes], T]) -> T:
    """Read a file of a session.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    try:
        return decode(read_plain(path))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NegotiationError("GBE405", session=session, reason=str(error), where=Place(str(path))) from error
