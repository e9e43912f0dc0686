"""The transcript and the record of a session, kept in `.graphbus/sessions/S001/`.

transcript.jsonl   every event of the negotiation in order, one `{"topic": ..., "payload": ...}` a line, no clock times
record.json        the outcome: proposals, votes, commits, ending
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from graphbus_core.errors import NegotiationError, Place, did_you_mean
from graphbus_core.model.proposals import Negotiations
from graphbus_core.model.spending import Spend
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, Json
from graphbus_core.store.beneath import Folder, read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import encode, write_atomic

RECORD_VERSION = 1
_LONG_TEXT, _LONG_LIST = 2000, 50
_SESSION = re.compile(r"S\d{3,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TRANSCRIPT, _RECORD = "transcript.jsonl", "record.json"


class Said(msgspec.Struct, frozen=True):
    """One event of a negotiation as it went over the bus."""

    topic: str
    payload: Json


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """record.json.

    Attributes:
        backend: Who negotiated: `"rules"`, or the model.
        models: Role -> `"provider:name"`; empty when rules negotiated.
        agents: All who took part, in the order of activation.
        spent: What asking the models has cost.
        costs: Proposal id -> dollars of the questions about it, where prices are known.
        base: Source file -> its sha256 when the session began.
        is_applied: Its accepted changes were written to the source files; `graphbus undo` may have taken them back since.
        refusal: Why they were not, if something refused it.
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
    """Give a payload that the bus takes: of one that is too large, the beginnings of its longest texts and lists."""
    return _cut(payload) if len(msgspec.json.encode(payload)) > MAX_PAYLOAD_BYTES // 2 else payload


def _cut(value: Json) -> Json:
    if isinstance(value, str):
        return value if len(value) <= _LONG_TEXT else f"{value[:_LONG_TEXT]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value[:_LONG_LIST]] if isinstance(value, list) else value


def sessions_dir(artifacts_dir: str | Path) -> Path:
    """Give the folder of all sessions."""
    return Path(artifacts_dir) / "sessions"


def list_sessions(artifacts_dir: str | Path) -> tuple[str, ...]:
    """Give the names of the complete sessions, the oldest first."""
    folder = sessions_dir(artifacts_dir)
    names = (name for name in _taken_names(folder) if _NAME.fullmatch(name))
    return tuple(name for name in names if (folder / name / _RECORD).is_file())


def next_session(artifacts_dir: str | Path) -> str:
    """Give the first free name after all sessions, complete or not."""
    numbers = [int(name[1:]) for name in _taken_names(sessions_dir(artifacts_dir)) if _SESSION.fullmatch(name)]
    return f"S{max(numbers, default=0) + 1:03}"


def choose_session(artifacts_dir: str | Path, wanted: str = "") -> str:
    """Give the name that a person wants for a session, or the next free one.

    Raises:
        NegotiationError: GBE402 the name is taken, GBE408 it is no name.
    """
    if not wanted:
        return next_session(artifacts_dir)
    if not _NAME.fullmatch(wanted):
        raise NegotiationError("GBE408", session=wanted)
    folder = sessions_dir(artifacts_dir) / wanted
    if os.path.lexists(folder):
        raise NegotiationError("GBE402", session=wanted, where=Place(str(folder)))
    return wanted


def claim_session(artifacts_dir: str | Path, wanted: str = "") -> str:
    """Choose a name and make its folder at once, so that no other session can get the same name.

    Raises:
        NegotiationError: As `choose_session`; GBE407, the folder cannot be made.
    """
    while True:
        name = choose_session(artifacts_dir, wanted)
        try:
            with Folder.at(sessions_dir(artifacts_dir), make=True) as sessions:
                sessions.make(name)
        except FileExistsError:
            continue  # another process was faster
        except OSError as error:
            raise _cannot_keep(name, sessions_dir(artifacts_dir) / name, error) from error
        return name


def release_session(artifacts_dir: str | Path, session: str) -> None:
    """Give a claimed name back, unless something is kept under it."""
    with suppress(OSError), Folder.at(sessions_dir(artifacts_dir)) as sessions:
        sessions.remove_empty(session)


def _cannot_keep(session: str, folder: Path, error: OSError) -> NegotiationError:
    reason = (error.strerror or str(error)).lower()
    return NegotiationError("GBE407", session=session, reason=reason, where=Place(str(folder)))


def _taken_names(folder: Path) -> list[str]:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(names, key=lambda name: (len(name), name))


def save_session(artifacts_dir: str | Path, record: SessionRecord, said: Iterable[Said]) -> Path:
    """Write a session into its folder, the record last: a session without a record is not complete.

    Returns:
        The folder of the session.

    Raises:
        NegotiationError: GBE402 a session of this name is there already, GBE407 it cannot be written.
    """
    folder = sessions_dir(artifacts_dir) / record.session
    lines = b"".join(msgspec.json.encode(event, order="sorted") + b"\n" for event in said)
    if (folder / _RECORD).exists():
        raise NegotiationError("GBE402", session=record.session, where=Place(str(folder)))
    try:
        write_atomic(folder / _TRANSCRIPT, lines)
        write_atomic(folder / _RECORD, encode(record))
    except OSError as error:
        raise _cannot_keep(record.session, folder, error) from error
    return folder


def settle_session(artifacts_dir: str | Path, session: str, *, is_applied: bool = False, refusal: str = "") -> None:
    """Write into the record of a session what became of its accepted changes.

    Raises:
        NegotiationError: As `load_session`; GBE410, the record cannot be written.
    """
    record = load_session(artifacts_dir, session)
    path = sessions_dir(artifacts_dir) / session / _RECORD
    try:
        write_atomic(path, encode(msgspec.structs.replace(record, is_applied=is_applied, refusal=refusal)))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NegotiationError("GBE410", session=session, reason=reason, where=Place(str(path))) from error


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
    path = sessions_dir(artifacts_dir) / name / _RECORD
    try:
        record = decode_versioned(read_plain(path), SessionRecord, RECORD_VERSION)
        if record.session != name:  # a name in it may lead anywhere
            raise msgspec.ValidationError("it is the record of another session")
    except (OSError, msgspec.DecodeError) as error:
        raise NegotiationError("GBE405", session=name, reason=str(error), where=Place(str(path))) from error
    return record


def load_transcript(artifacts_dir: str | Path, session: str) -> tuple[Said, ...]:
    """Read every event of a session, in order.

    Raises:
        NegotiationError: GBE405, it cannot be read.
    """
    path = sessions_dir(artifacts_dir) / session / _TRANSCRIPT
    try:
        return tuple(msgspec.json.decode(line, type=Said) for line in read_plain(path).splitlines())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NegotiationError("GBE405", session=session, reason=str(error), where=Place(str(path))) from error
