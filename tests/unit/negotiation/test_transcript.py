from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.errors import NegotiationError
from graphbus_core.negotiation.transcript import (
    SessionRecord,
    TranscriptEvent,
    claim_session,
    fit_for_bus,
    list_sessions,
    load_session,
    load_transcript,
    record_application,
    release_session,
    save_session,
)
from graphbus_core.schema.json import MAX_PAYLOAD_BYTES, freeze
from tests.fakes.negotiating_world import World, draft

SAID = (
    TranscriptEvent("/Negotiation/Round", {"round": 1}),
    TranscriptEvent("/Negotiation/Finished", {"ending": {"reason": "convergence"}}),
)


def record(session: str = "S001") -> SessionRecord:
    world = World("A", "B")
    world.proposes("A", draft("one"))
    outcome = world.run()
    return SessionRecord(
        schema_version=1,
        session=session,
        backend="rules",
        agents=("A", "B"),
        arbiters=(),
        intent="",
        negotiations=replace(outcome, session=session),
    )


def test_a_session_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = save_session(tmp_path, record(), SAID)
    assert folder == tmp_path / "sessions" / "S001"
    assert load_session(tmp_path) == load_session(tmp_path, "S001") == record()
    assert load_transcript(tmp_path, "S001") == SAID


def test_a_record_says_nothing_was_written_until_it_was(tmp_path: Path) -> None:
    save_session(tmp_path, record(), SAID)
    assert (load_session(tmp_path).is_applied, load_session(tmp_path).refusal) == (False, "")
    record_application(tmp_path, "S001", refusal="A file has changed.")
    assert load_session(tmp_path) == replace(record(), refusal="A file has changed.")
    record_application(tmp_path, "S001", is_applied=True)
    assert load_session(tmp_path) == replace(record(), is_applied=True)
    assert load_transcript(tmp_path, "S001") == SAID


def test_a_record_that_cannot_be_renewed_after_the_files_were_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_session(tmp_path, record(), SAID)

    def full(_source: object, _target: object, **_folders: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(NegotiationError, match="could not be updated: no space left on device") as info:
        record_application(tmp_path, "S001", is_applied=True)
    assert info.value.code == "GBE410"


def test_sessions_are_numbered_on(tmp_path: Path) -> None:
    assert claim_session(tmp_path, is_kept=False) == "S001"
    for name in ("S001", "S002", "S999"):
        save_session(tmp_path, record(name), ())
    assert claim_session(tmp_path, is_kept=False) == "S1000"
    save_session(tmp_path, record("S1000"), ())
    assert list_sessions(tmp_path) == ("S001", "S002", "S999", "S1000")
    assert load_session(tmp_path).session == "S1000"


def test_a_session_without_a_record_is_not_listed_and_its_number_not_used_again(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "S004").mkdir(parents=True)
    (tmp_path / "sessions" / "notes").mkdir()
    assert list_sessions(tmp_path) == ()
    assert claim_session(tmp_path, is_kept=False) == "S005"


def test_a_session_is_never_overwritten(tmp_path: Path) -> None:
    save_session(tmp_path, record(), SAID)
    with pytest.raises(NegotiationError, match="S001 already exists") as info:
        save_session(tmp_path, record(), ())
    assert info.value.code == "GBE402"
    assert load_transcript(tmp_path, "S001") == SAID


@pytest.mark.parametrize("name", [".", "..", "../S001", "a/b", "a b", "-x", "x" * 65])
def test_a_session_s_name_is_a_plain_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(NegotiationError) as info:
        claim_session(tmp_path, name)
    assert info.value.code == "GBE408"


def test_a_session_may_have_a_name_of_its_own_if_it_is_free(tmp_path: Path) -> None:
    assert claim_session(tmp_path, "mine", is_kept=False) == claim_session(tmp_path, "mine") == "mine"
    save_session(tmp_path, record("mine"), ())
    assert load_session(tmp_path, "mine").session == "mine"
    for is_kept in (True, False):
        with pytest.raises(NegotiationError, match="mine already exists") as info:
            claim_session(tmp_path, "mine", is_kept=is_kept)
        assert "leave the name out" in info.value.hint


def test_everybody_who_claims_a_name_at_once_gets_one_of_his_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = sorted(pool.map(lambda _: claim_session(tmp_path), range(24)))
    assert names == [f"S{number:03}" for number in range(1, 25)]
    assert list_sessions(tmp_path) == ()


def test_what_is_claimed_is_saved_or_given_back(tmp_path: Path) -> None:
    save_session(tmp_path, record(claim_session(tmp_path)), SAID)
    release_session(tmp_path, "S001")
    assert load_transcript(tmp_path, "S001") == SAID
    release_session(tmp_path, claim_session(tmp_path))
    assert claim_session(tmp_path) == "S002"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_session_that_cannot_be_kept_is_said_so(tmp_path: Path, is_link: bool) -> None:
    if is_link:
        (tmp_path / "sessions").symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "sessions").write_text("in the way")
    for keep in (lambda: claim_session(tmp_path), lambda: save_session(tmp_path, record(), ())):
        with pytest.raises(NegotiationError, match=r"cannot be recorded: .*No source file was changed") as info:
            keep()
        assert info.value.code == "GBE407"


@pytest.mark.parametrize("data", [b"", b"{", b'{"session": 7}', b"\xff\xfe"])
def test_a_damaged_session_is_said_with_its_file(tmp_path: Path, data: bytes) -> None:
    folder = save_session(tmp_path, record(), SAID)
    (folder / "record.json").write_bytes(data)
    (folder / "transcript.jsonl").write_bytes(data or b"x")
    for read in (load_session, load_transcript):
        with pytest.raises(NegotiationError, match="cannot be read") as info:
            read(tmp_path, "S001")
        assert info.value.code == "GBE405"
        assert info.value.where is not None


def test_what_is_too_large_for_the_bus_is_shortened() -> None:
    small = {"proposal": {"reason": "x" * 5000}}
    assert fit_for_bus(small) is small
    large = {"text": "x" * MAX_PAYLOAD_BYTES, "list": list(range(1000)), "number": 7, "short": "y"}
    fitted = fit_for_bus(large)
    freeze(fitted)
    assert fitted["text"] == f"{'x' * 2000}… ({MAX_PAYLOAD_BYTES} characters)"
    assert (fitted["list"], fitted["number"], fitted["short"]) == (list(range(50)), 7, "y")
