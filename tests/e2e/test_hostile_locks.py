"""A lock that somebody else has written, or a merge has mangled: nothing runs, nothing is written, and the refusal has a code."""

from __future__ import annotations

import json
import shutil
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.model.config import BuildConfig, ResolvedBuild
from graphbus_core.negotiation.lock import MOST_BYTES, check_frozen, lock_path, pack_bytes, settled_agents
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.settings import resolve_build
from tests.fakes.model_sessions import GoodModel, negotiate, write_zoo

pytestmark = pytest.mark.slow
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_zoo(tmp_path_factory.mktemp("locked") / "zoo")
    negotiate(root, GoodModel())
    shutil.rmtree(root / ".graphbus/sessions")
    return root


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    """A clone with the lock alone."""
    shutil.copytree(finished, tmp_path / "zoo")
    return tmp_path / "zoo"


def config_of(root: Path) -> ResolvedBuild:
    return resolve_build(BuildConfig(paths=(str(root / "agents"),)))


def tamper(root: Path, change: Change) -> None:
    path = root / ".graphbus/negotiation.lock"
    lock = json.loads(path.read_text(encoding="utf-8"))
    change(lock)
    path.write_text(json.dumps(lock), encoding="utf-8")


def test_a_replay_starts_no_program_that_the_lock_names(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "started"

    def name_program(lock: dict[str, Any]) -> None:
        lock["session"]["start"]["models"] = {}
        lock["session"]["start"]["settings"]["llm"]["model"] = f"command:touch {mark}"

    tamper(root, name_program)
    assert replay_session(config_of(root)).differences
    assert not mark.exists()


def test_a_replay_runs_the_checks_of_the_project_and_not_those_of_the_lock(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "started"

    def name_check(lock: dict[str, Any]) -> None:
        gate = lock["session"]["start"]["settings"]["gate"]
        gate["test_command"] = ["touch", str(mark)]
        gate["checks"] = [["touch", str(mark)]]
        gate["isolation"] = "process"

    tamper(root, name_check)
    assert replay_session(config_of(root)).differences == ()
    assert not mark.exists()


def test_a_replay_writes_nowhere_but_into_its_copy(root: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"

    def lead_away(lock: dict[str, Any]) -> None:
        lock["session"]["start"]["settings"]["artifacts"] = f"../../../../../../..{place}"

    tamper(root, lead_away)
    replay_session(config_of(root))
    assert not place.exists()


@pytest.mark.parametrize("part", ["answers", "record", "before"])
def test_what_unpacks_to_more_than_a_session_can_be_is_refused(root: Path, part: str) -> None:
    bomb = b64encode(zlib.compress(bytes(MOST_BYTES + 1), 1)).decode()

    def swell(lock: dict[str, Any]) -> None:
        lock["session"][part] = {"agents/stock.py": bomb} if part == "before" else bomb

    tamper(root, swell)
    with pytest.raises(GraphBusError, match="larger than"):
        replay_session(config_of(root))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"agents":' * 100_000,
        bytes(range(256)),
        b'{"schema_version": 0, "agents": {}}',
        b'{"schema_version": 1, "agents": {"StockService": {"is_settled": true}}}',
        b'{\n<<<<<<< HEAD\n  "agents": {}\n=======\n>>>>>>> theirs\n}',
    ],
)
def test_a_lock_that_cannot_be_read_is_refused_and_wakes_everybody(root: Path, data: bytes) -> None:
    (root / ".graphbus/negotiation.lock").write_bytes(data)
    for read in (check_frozen, replay_session):
        with pytest.raises(GraphBusError) as refusal:
            read(config_of(root))
        assert refusal.value.code == "GBE222"
    assert settled_agents(config_of(root)) == {}


def test_a_lock_edited_by_hand_vouches_for_nobody_else(root: Path) -> None:
    tamper(root, lambda lock: lock["agents"].pop("StockService"))
    with pytest.raises(GraphBusError, match="StockService: it has never negotiated"):
        check_frozen(config_of(root))
    tamper(root, lambda lock: lock["agents"]["MailService"].update(is_settled=False))
    with pytest.raises(SeveralErrors) as several:
        check_frozen(config_of(root))
    assert {error.code for error in several.value.errors} == {"GBE221"}


@pytest.mark.parametrize(
    ("part", "data", "told"),
    [
        ("answers", b"{}\n", "its answers are damaged"),
        ("answers", b"[" * 9_999 + b"\n", "its answers are damaged"),
        ("record", b"[]", "its record cannot be read"),
        ("record", b"[" * 9_999, "its record cannot be read"),
    ],
)
def test_a_damaged_part_of_the_session_is_named(root: Path, part: str, data: bytes, told: str) -> None:
    tamper(root, lambda lock: lock["session"].update({part: pack_bytes(data)}))
    with pytest.raises(GraphBusError, match=told) as refusal:
        replay_session(config_of(root))
    assert refusal.value.code == "GBE423"


def test_a_cut_off_part_is_refused_and_a_missing_role_is_no_traceback(root: Path) -> None:
    tamper(root, lambda lock: lock["session"]["start"]["models"].pop("arbiter"))
    assert replay_session(config_of(root)).differences == ()
    tamper(root, lambda lock: lock["session"].update(record=lock["session"]["record"][:400]))
    with pytest.raises(GraphBusError, match="cut off"):
        replay_session(config_of(root))


def test_a_block_that_a_merge_made_of_two_sessions_settles_nobody(root: Path) -> None:
    assert "MailService" in settled_agents(config_of(root))
    other = {"findings": "0" * 16}
    tamper(root, lambda lock: lock["agents"]["MailService"]["inputs"].update(other))
    assert "MailService" not in settled_agents(config_of(root))
    with pytest.raises(GraphBusError, match="MailService: its block in the lock was merged or edited"):
        check_frozen(config_of(root))


def test_a_conflict_of_a_merge_is_named_with_its_line(root: Path) -> None:
    path = lock_path(config_of(root))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[3:3] = ["<<<<<<< ours\n", "=======\n", ">>>>>>> theirs\n"]
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(GraphBusError, match=r"negotiation\.lock:4: .*a merge left a conflict here"):
        check_frozen(config_of(root))
