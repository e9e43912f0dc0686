"""A model that cannot be reached is no agent that has nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.errors import ModelError, NegotiationError
from graphbus_core.llm.client import Prompt
from graphbus_core.model.config import BuildRequest
from graphbus_core.negotiation.lock import load_lock
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import resolve_build
from tests.fakes.model_sessions import GoodModel, negotiate, write_zoo
from tests.fakes.model_texts import asked_in

pytestmark = pytest.mark.slow


def away(_prompt: Prompt) -> None:
    raise ModelError("GBE445", provider="scripted", reason="connection refused", is_transient=True)


def test_a_session_in_which_nobody_could_answer_fails_and_settles_nobody(tmp_path: Path) -> None:
    root = write_zoo(tmp_path)
    with pytest.raises(NegotiationError) as refused:
        negotiate(root, GoodModel(away))
    assert refused.value.code == "GBE426"
    assert refused.value.status == 5
    assert "connection refused" in refused.value.sentence
    assert load_session(root / ".graphbus").negotiations.ending.reason == "error"
    assert not (root / ".graphbus" / "negotiation.lock").exists()


def test_an_agent_that_could_not_answer_has_not_settled_and_is_asked_again(tmp_path: Path) -> None:
    root = write_zoo(tmp_path)

    def away_for_mail(prompt: Prompt) -> None:
        if asked_in(prompt).agent == "MailService" and asked_in(prompt).task == "propose":
            away(prompt)

    negotiate(root, GoodModel(away_for_mail))
    lock = load_lock(resolve_build(BuildRequest(paths=(str(root / "agents"),))))
    assert lock is not None
    assert {name for name, agent in lock.agents.items() if not agent.is_settled} == {"MailService"}

    model = GoodModel()
    negotiate(root, model)
    assert ("propose", "MailService") in model.asked
    assert ("propose", "StockService") not in model.asked
