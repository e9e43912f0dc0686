"""Files beside the artifacts have versions of their own: one of another version is refused, and nothing else of it is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.instruments import profile
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.negotiation.lock import load_lock, pack_bytes, unpack_bytes
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.sessions import load_start
from graphbus_core.negotiation.transcript import load_session
from tests.fakes.frozen_artifacts import thaw

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """An artifact folder with a lock, a session and a profile, as this GraphBus and the one before have written them."""
    folder = thaw("format_1/negotiated", tmp_path)
    lock = json.loads((folder / "negotiation.lock").read_bytes())
    session = folder / "sessions" / "S001"
    session.mkdir(parents=True)
    (session / "session.json").write_text(json.dumps(lock["session"]["start"]))
    (session / "record.json").write_bytes(unpack_bytes(lock["session"]["record"]))
    profile.save_profile(profile.Profile(began=1, wall_s=2, handlers=()), folder / "state")
    return folder


def _config(folder: Path) -> ResolvedBuild:
    return ResolvedBuild(root=str(folder.parent), paths=(str(folder.parent),), settings=Settings())


def _whole(edit: Edit) -> Edit:
    return edit


def _record_in_lock(edit: Edit) -> Edit:
    def edited(lock: dict[str, Any]) -> None:
        record = json.loads(unpack_bytes(lock["session"]["record"]))
        edit(record)
        lock["session"]["record"] = pack_bytes(json.dumps(record).encode())

    return edited


class Reader(NamedTuple):
    """A file, the part of it that has the version, who reads it, and the code of the refusal."""

    name: str
    part: Callable[[Edit], Edit]
    read: Callable[[Path], object]
    code: str


READERS = [
    Reader("sessions/S001/session.json", _whole, lambda folder: load_start(folder, "S001"), "GBE405"),
    Reader("sessions/S001/record.json", _whole, lambda folder: load_session(folder, "S001"), "GBE405"),
    Reader("negotiation.lock", _whole, lambda folder: load_lock(_config(folder)), "GBE222"),
    Reader("negotiation.lock", _record_in_lock, lambda folder: replay_session(_config(folder)), "GBE423"),
    Reader("state/profile.json", _whole, lambda folder: profile.load_profile(folder / "state"), "GBE687"),
]


def _other_shape(document: dict[str, Any]) -> None:
    document.clear()
    document.update(schema_version=2, events="others")


EDITS: list[tuple[Edit, str]] = [
    (lambda document: document.update(schema_version=2), "version 2"),
    (_other_shape, "version 2"),
    (lambda document: document.update(schema_version=0), "version 0"),
    (lambda document: document.pop("schema_version"), "schema_version"),
    (lambda document: document.update(schema_version="1"), "schema_version"),
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.name}-{reader.code}")
@pytest.mark.parametrize(("edit", "told"), EDITS)
def test_a_file_of_another_version_is_refused_with_that_version(
    kept: Path, reader: Reader, edit: Edit, told: str
) -> None:
    path = kept / reader.name
    document = json.loads(path.read_bytes())
    reader.part(edit)(document)
    path.write_text(json.dumps(document))
    with pytest.raises(GraphBusError) as refused:
        reader.read(kept)
    assert refused.value.code == reader.code
    assert told in refused.value.sentence


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.name}-{reader.code}")
def test_files_of_this_version_are_read(kept: Path, reader: Reader) -> None:
    assert reader.read(kept) is not None


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"{reader.name}-{reader.code}")
@pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff\xfe", b'{"schema_version": 1, "\xff": "\xff"}', b"", b"1"])
def test_a_file_with_anything_in_it_is_a_refusal_and_no_crash(kept: Path, reader: Reader, data: bytes) -> None:
    (kept / reader.name).write_bytes(data)
    with pytest.raises(GraphBusError):
        reader.read(kept)


@pytest.mark.parametrize(
    ("start", "ending", "told"),
    [
        ({"is_reviewed": True}, {}, "a person decided on its changes"),
        ({}, {"reason": "manual", "detail": "Ctrl-C"}, "it did not finish (Ctrl-C)"),
        ({}, {"reason": "error", "detail": "no answer"}, "it did not finish (no answer)"),
        ({}, {"reason": "budget", "detail": "max_seconds is 9"}, "it was stopped by `max_seconds`"),
    ],
)
def test_a_session_whose_course_was_not_recorded_is_not_replayed(
    kept: Path, start: dict[str, Any], ending: dict[str, Any], told: str
) -> None:
    path = kept / "negotiation.lock"
    document = json.loads(path.read_bytes())
    document["session"]["start"].update(start)
    _record_in_lock(lambda record: record["negotiations"]["ending"].update(ending))(document)
    path.write_text(json.dumps(document))
    with pytest.raises(GraphBusError) as refused:
        replay_session(_config(kept))
    assert refused.value.code == "GBE423"
    assert told in refused.value.sentence


@pytest.mark.parametrize("outside", ["/etc/passwd", "../other.py", "agents/../../other.py"])
def test_a_session_with_a_file_outside_of_the_project_is_not_replayed(kept: Path, outside: str) -> None:
    path = kept / "negotiation.lock"
    document = json.loads(path.read_bytes())
    document["session"]["before"][outside] = pack_bytes(b"")
    path.write_text(json.dumps(document))
    with pytest.raises(GraphBusError, match="is not a path in the project") as refused:
        replay_session(_config(kept))
    assert refused.value.code == "GBE222"
