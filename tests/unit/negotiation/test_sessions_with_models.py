"""A model that cannot be reached is no agent that has nothing to say; `--resume` goes on as the session began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.errors import ModelError, NegotiationError
from graphbus_core.llm.client import ModelPrompt
from graphbus_core.model.config import BuildConfig, LLMConfig, Settings
from graphbus_core.negotiation.lock import load_lock
from graphbus_core.negotiation.sessions import digest_of_settings, load_start, replayable_settings, resume_request
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import load, resolve_build
from graphbus_core.store.cache import seal_of
from graphbus_core.store.writing import encode_artifact
from tests.fakes.model_sessions import GoodModel, negotiate, write_zoo
from tests.fakes.model_texts import asked_in

pytestmark = pytest.mark.slow


def away(_prompt: ModelPrompt) -> None:
    raise ModelError("GBE445", provider="scripted", reason="connection refused", is_transient=True)


def test_a_session_in_which_nobody_could_answer_fails_and_settles_nobody(tmp_path: Path) -> None:
    root = write_zoo(tmp_path)
    with pytest.raises(NegotiationError) as refused:
        negotiate(root, GoodModel(away))
    assert refused.value.code == "GBE426"
    assert refused.value.status == 5
    assert "connection refused" in refused.value.sentence
    assert "`graphbus doctor --test scripted:test`" in refused.value.hint
    assert load_session(root / ".graphbus").negotiations.ending.reason == "error"
    assert not (root / ".graphbus" / "negotiation.lock").exists()


def test_an_agent_that_could_not_answer_has_not_settled_and_is_asked_again(tmp_path: Path) -> None:
    root = write_zoo(tmp_path)

    def away_for_mail(prompt: ModelPrompt) -> None:
        if asked_in(prompt).agent == "MailService" and asked_in(prompt).task == "propose":
            away(prompt)

    negotiate(root, GoodModel(away_for_mail))
    lock = load_lock(resolve_build(BuildConfig(paths=(str(root / "agents"),))))
    assert lock is not None
    assert {name for name, agent in lock.agents.items() if not agent.is_settled} == {"MailService"}

    model = GoodModel()
    negotiate(root, model)
    assert ("propose", "MailService") in model.asked
    assert ("propose", "StockService") not in model.asked


# --- resumed sessions ------------------------------------------------------------------------


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A session without a record, as a kill leaves it."""
    root = write_zoo(tmp_path)
    negotiate(root, GoodModel(), rounds=1)
    (root / ".graphbus" / "sessions" / "S001" / "record.json").unlink()
    return root


def begun_with(root: Path, **asked_for: Any) -> BuildConfig:
    start = msgspec.structs.replace(load_start(root / ".graphbus", "S001"), **asked_for)
    folder = root / ".graphbus" / "sessions" / "S001"
    (folder / "session.json").write_bytes(encode_artifact(start))
    (folder / "seal").write_text(seal_of("session", f"{root.resolve()}\0S001", encode_artifact(start)))
    return BuildConfig(paths=(str(root / "agents"),), enable_agents=True, is_resumed=True)


def test_a_session_that_was_reviewed_does_not_go_on_without_a_person(interrupted: Path) -> None:
    request = begun_with(interrupted, is_reviewed=True)
    with pytest.raises(NegotiationError, match="since it was interrupted: --review was dropped") as refused:
        resume_request(request)
    assert refused.value.code == "GBE422"
    assert resume_request(msgspec.structs.replace(request, is_reviewed=True)).is_reviewed


@pytest.mark.parametrize("makes_commits", [True, False])
def test_a_session_that_makes_commits_goes_on_to_make_them(interrupted: Path, makes_commits: bool) -> None:
    assert resume_request(begun_with(interrupted, makes_commits=makes_commits)).makes_commits is makes_commits


PROGRAM = "/".join(["command:", "opt", "models", "ask.py"])


@pytest.mark.parametrize("model", [PROGRAM, f"command:python3 {PROGRAM.removeprefix('command:')} -q"])
def test_a_session_does_not_hold_the_folders_of_a_program(model: str) -> None:
    found = replayable_settings(Settings(llm=LLMConfig(model=model, evaluator="command:tools/vote.py")))

    assert b"/opt" not in msgspec.json.encode(found)
    assert "ask.py" in found.llm.model
    assert found.llm.evaluator == "command:tools/vote.py"
    assert replayable_settings(found) == found


def test_a_program_whose_folder_is_not_recorded_is_named_again(interrupted: Path) -> None:
    settings = replayable_settings(Settings(llm=LLMConfig(model=PROGRAM)))
    request = begun_with(interrupted, settings=settings)

    with pytest.raises(
        NegotiationError, match=r"in `command:…/ask\.py` is not recorded, so pass the same --model again"
    ):
        resume_request(request)
    with pytest.raises(NegotiationError, match="the model has changed"):
        resume_request(msgspec.structs.replace(request, model="command:other.py"))
    resumed = resume_request(msgspec.structs.replace(request, model=PROGRAM))
    assert resumed.settings is not None
    assert resumed.settings.llm.model == PROGRAM


def test_a_program_that_votes_is_named_again_for_all_who_vote(interrupted: Path) -> None:
    settings = replayable_settings(Settings(llm=LLMConfig(evaluator=PROGRAM, arbiter=PROGRAM)))
    request = begun_with(interrupted, settings=settings)

    with pytest.raises(NegotiationError, match="so pass the same --voters again"):
        resume_request(request)
    resumed = resume_request(msgspec.structs.replace(request, voters=PROGRAM))
    assert resumed.settings is not None
    assert (resumed.settings.llm.evaluator, resumed.settings.llm.arbiter) == (PROGRAM, PROGRAM)


def test_a_session_does_not_hold_a_key_of_a_program() -> None:
    key = "sk-live-" + "4f9a8b7c6d5e4f3a2b1c"
    found = replayable_settings(Settings(llm=LLMConfig(model=f"command:agent --api-key {key}")))
    assert key.encode() not in msgspec.json.encode(found)


def test_a_program_of_the_settings_is_found_there_again(interrupted: Path) -> None:
    settings = replayable_settings(Settings(llm=LLMConfig(evaluator=PROGRAM)))
    (interrupted / "pyproject.toml").write_text(f'[tool.graphbus.llm]\nevaluator = "{PROGRAM}"\n')
    digest = digest_of_settings(load(interrupted))

    resumed = resume_request(begun_with(interrupted, settings=settings, project_settings=digest))
    assert resumed.settings is not None
    assert resumed.settings.llm.evaluator == PROGRAM
