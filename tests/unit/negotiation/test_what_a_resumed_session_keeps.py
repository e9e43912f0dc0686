"""`--resume` goes on as the session began: no person is passed over, no commit is forgotten."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from graphbus_core.errors import NegotiationError
from graphbus_core.model.config import BuildRequest
from graphbus_core.negotiation.sessions import load_start, resumed
from graphbus_core.store.seals import seal_of
from graphbus_core.store.writing import encode
from tests.fakes.model_sessions import GoodModel, negotiate, write_zoo


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A session without a record, as a kill leaves it."""
    root = write_zoo(tmp_path)
    negotiate(root, GoodModel(), rounds=1)
    (root / ".graphbus" / "sessions" / "S001" / "record.json").unlink()
    return root


def begun_with(root: Path, **asked_for: bool) -> BuildRequest:
    start = msgspec.structs.replace(load_start(root / ".graphbus", "S001"), **asked_for)
    folder = root / ".graphbus" / "sessions" / "S001"
    (folder / "session.json").write_bytes(encode(start))
    (folder / "seal").write_text(seal_of("session", f"{root.resolve()}\0S001", encode(start)))
    return BuildRequest(paths=(str(root / "agents"),), enable_agents=True, is_resumed=True)


@pytest.mark.slow
def test_a_session_that_was_reviewed_does_not_go_on_without_a_person(interrupted: Path) -> None:
    request = begun_with(interrupted, is_reviewed=True)
    with pytest.raises(NegotiationError, match="--review was dropped since it was interrupted") as refused:
        resumed(request)
    assert refused.value.code == "GBE422"
    assert resumed(msgspec.structs.replace(request, is_reviewed=True)).is_reviewed


@pytest.mark.slow
@pytest.mark.parametrize("makes_commits", [True, False])
def test_a_session_that_makes_commits_goes_on_to_make_them(interrupted: Path, makes_commits: bool) -> None:
    assert resumed(begun_with(interrupted, makes_commits=makes_commits)).makes_commits is makes_commits
