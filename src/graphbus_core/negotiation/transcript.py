"""The transcript and the record of a session, kept in `.graphbus/sessions/S001/`.

transcript.jsonl   every event of the negotiation in order, one `{"topic": ..., "payload": ...}` a line, without times
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
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.proposals import Negotiations
from graphbus_core.model.spending import Spend
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, Json
from graphbus_core.store.folders import Folder, read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode_artifact, write_atomic

RECORD_VERSION = 1
TRANSCRIPT, RECORD = "transcript.jsonl", "record.json"
_LONG_TEXT, _LONG_LIST = 2000, 50
_NUMBERED_NAME = re.compile(r"S\d{3,}")
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)


class TranscriptEvent(msgspec.Struct, frozen=True):
    """One event of a negotiation with its whole payload."""

    topic: str
    payload: Json


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of record.json: the outcome of a session.

    Attributes:
        backend: The names of the models, or `"rules"`; then `"programs"` if some represent agents.
        models: Role -> `"provider:name"`; empty if rules negotiated.
        agents: All agents of the session, in the order of activation.
        intent: What the user wanted, in free text.
        spent: The cost of the session.
        costs: Proposal id -> its share of the cost in dollars; empty if prices are not known.
        diffs: Proposal id -> path -> the unified diff that the voters saw; if nobody voted, that of the files when the gate last
            checked the proposal. Left out are proposals whose commit has the same diffs, and those whose edits did not apply.
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
    diffs: dict[str, dict[str, str]] = {}
    base: dict[str, str] = {}
    is_applied: bool = False
    refusal: str = ""


def fit_for_bus(payload: Json) -> Json:
    """Return a payload as it is, or with long texts and lists cut if it is too large for the bus."""
    return _shorten_value(payload) if len(msgspec.json.encode(payload)) > MAX_PAYLOAD_BYTES // 2 else payload


def _shorten_value(value: Json) -> Json:
    """Return a JSON value in which every text is cut to `_LONG_TEXT` characters, and every list to `_LONG_LIST` items."""
    if isinstance(value, str):
        return value if len(value) <= _LONG_TEXT else f"{value[:_LONG_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _shorten_value(item) for key, item in value.items()}
    return [_shorten_value(item) for item in value[:_LONG_LIST]] if isinstance(value, list) else value


def sessions_dir(artifacts_dir: str | Path) -> Path:
    """Return the folder of all sessions."""
    return Path(artifacts_dir) / "sessions"


def list_sessions(artifacts_dir: str | Path) -> tuple[str, ...]:
    """Return the names of the sessions that have a record: S001 before S002, and longer names at the end."""
    folder = sessions_dir(artifacts_dir)
    return tuple(
        name for name in _list_names(folder) if _NAME_PATTERN.fullmatch(name) and (folder / name / RECORD).is_file()
    )


def _list_names(folder: Path) -> list[str]:
    """Return the names in a folder, shorter ones first, so that S1000 follows S999; empty if there is no such folder."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(names, key=lambda name: (len(name), name))


def claim_session(artifacts_dir: str | Path, wanted: str = "", *, is_kept: bool = True) -> str:
    """Return the name of a new session, and make its folder at once, so that no other process can get the same name.

    Args:
        artifacts_dir: The folder of the artifacts.
        wanted: The requested name; empty for the number after the highest one.
        is_kept: False in a dry run, which makes no folder.

    Raises:
        NegotiationError: GBE402, the name is taken; GBE408, it is not a valid name; GBE407, the folder cannot be made.
    """
    folder = sessions_dir(artifacts_dir)
    if wanted and not _NAME_PATTERN.fullmatch(wanted):
        raise NegotiationError("GBE408", session=wanted)
    while True:
        taken = _list_names(folder)
        if wanted and os.path.lexists(folder / wanted):  # not `in taken`: the disk may ignore case
            raise NegotiationError("GBE402", session=wanted, where=Place(str(folder / wanted)))
        numbers = [int(name[1:]) for name in taken if _NUMBERED_NAME.fullmatch(name)]
        name = wanted or f"S{max(numbers, default=0) + 1:03}"
        # A FileExistsError means that another process has just taken the name: try again with the next one.
        with refuse_file_errors(name, folder / name), suppress(FileExistsError):
            if is_kept:
                with Folder.at(folder, make=True) as sessions:
                    sessions.make(name)
            return name


def release_session(artifacts_dir: str | Path, session: str) -> None:
    """Remove the folder of a session if it is empty; otherwise, and on any error, leave it."""
    with suppress(OSError), Folder.at(sessions_dir(artifacts_dir)) as sessions:
        sessions.remove_empty(session)


@contextmanager
def refuse_file_errors(session: str, path: Path, code: str = "GBE407") -> Iterator[None]:
    """Raise an OSError of the block as a NegotiationError with this code."""
    try:
        yield
    except OSError as error:
        reason, advice = reason_of(error), advise_on(error, path)
        raise NegotiationError(code, session=session, reason=reason, advice=advice, where=Place(str(path))) from error


def save_session(artifacts_dir: str | Path, record: SessionRecord, events: Iterable[TranscriptEvent]) -> Path:
    """Write transcript and record into the folder of a session, the record last: only with it a session is complete.

    Returns:
        The folder of the session.

    Raises:
        NegotiationError: GBE402, the session has a record already; GBE407, the folder cannot be written.
    """
    folder = sessions_dir(artifacts_dir) / record.session
    lines = b"".join(msgspec.json.encode(event, order="sorted") + b"\n" for event in events)
    if (folder / RECORD).exists():
        raise NegotiationError("GBE402", session=record.session, where=Place(str(folder)))
    with refuse_file_errors(record.session, folder):
        write_atomic(folder / TRANSCRIPT, lines)
        write_atomic(folder / RECORD, encode_artifact(record))
    return folder


def record_application(artifacts_dir: str | Path, session: str, *, is_applied: bool = False, refusal: str = "") -> None:
    """Write into the record of a session that its changes were written to the source files, or why not (`refusal`).

    Raises:
        NegotiationError: As `load_session`; GBE410, the record cannot be written.
    """
    record = msgspec.structs.replace(load_session(artifacts_dir, session), is_applied=is_applied, refusal=refusal)
    path = sessions_dir(artifacts_dir) / session / RECORD
    with refuse_file_errors(session, path, "GBE410"):
        write_atomic(path, encode_artifact(record))


def load_session(artifacts_dir: str | Path, session: str = "") -> SessionRecord:
    """Return the record of a session, by default of the last one in `list_sessions`.

    Raises:
        NegotiationError: GBE403, there are no sessions; GBE404, there is no session of this name; GBE405, its record cannot be
            read, or is of another version.
    """
    names = list_sessions(artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=str(artifacts_dir))
    name = session or names[-1]
    if name not in names:
        raise NegotiationError("GBE404", session=name, suggestion=did_you_mean(name, names), known=", ".join(names))
    return read_session_document(sessions_dir(artifacts_dir) / name / RECORD, name, SessionRecord, RECORD_VERSION)


def load_transcript(artifacts_dir: str | Path, session: str) -> tuple[TranscriptEvent, ...]:
    """Return every event of a session, in order.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    path = sessions_dir(artifacts_dir) / session / TRANSCRIPT
    return read_session_file(
        path, session, lambda data: tuple(msgspec.json.decode(line, type=TranscriptEvent) for line in data.splitlines())
    )


def read_session_document(path: Path, session: str, kind: type[StructT], version: int) -> StructT:
    """Return the content of a JSON file of a session as a struct of this `kind`, which has a field `session`.

    Raises:
        NegotiationError: GBE405, it cannot be read, or is of another version or session.
    """

    def decode(data: bytes) -> StructT:
        """Decode the file, and check that it belongs to this session."""
        found = decode_versioned(data, kind, version)
        if getattr(found, "session", "") != session:  # callers use this field in paths
            raise msgspec.ValidationError("it belongs to another session")
        return found

    return read_session_file(path, session, decode)


def read_session_file(path: Path, session: str, decode: Callable[[bytes], T]) -> T:
    """Return the bytes of a file of a session, as `decode` converts them.

    Raises:
        NegotiationError: GBE405, the file cannot be read or decoded.
    """
    try:
        return decode(read_plain(path))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NegotiationError("GBE405", session=session, reason=str(error), where=Place(str(path))) from error
