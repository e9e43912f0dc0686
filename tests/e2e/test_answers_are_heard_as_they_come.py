"""While a model speaks, it is told how many answers are awaited and how much of them has come."""

from __future__ import annotations

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.model.config import BuildConfig, Settings
from graphbus_core.model.messages import Event
from tests.conftest import Project
from tests.fakes.model_server import KEY, KEY_VARIABLE, Answer, ModelServer, Request
from tests.fakes.model_sessions import ZOO
from tests.fakes.model_texts import agreeable
from tests.fakes.zoo import prompt_of


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
def test_what_has_come_of_the_answers_is_told_while_they_come(
    project: Project, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    root = project(ZOO)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    told: list[tuple[int, int]] = []

    def listen(event: Event) -> None:
        told.append((event["awaited"], event["characters"]))

    bus = MessageBus(history=0)
    bus.subscribe("/Negotiation/Awaited", listen)

    def say(request: Request) -> Answer:
        """Send each piece when the one before it has been told."""
        text = agreeable(prompt_of(request))
        return Answer(text, piece_delay_s=0.1, may_go=lambda number: len({count for _, count in told}) >= number)

    with ModelServer(say) as server:
        settings = Settings(llm=server.config("anthropic", concurrency=concurrency))
        paths = (str(root / "agents"),)
        run_build_pipeline(BuildConfig(paths=paths, enable_agents=True, dry_run=True, settings=settings), bus=bus)
    first = told[: told.index((0, 0))]
    assert {awaited for awaited, _ in first} >= {3}  # no more until the model has given a usable answer
    characters = [count for _, count in first]
    assert characters == sorted(characters)
    assert len(set(characters)) >= 3, "it came in four pieces"
    assert told[-1] == (0, 0)
