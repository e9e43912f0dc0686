"""What prompts have in common is read from the provider's cache: whole builds over the real libraries, by the stub's counts."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.model.config import BuildConfig, LLMConfig, SafetyConfig, Settings
from graphbus_core.negotiation.transcript import load_session
from tests.conftest import Figure, Project
from tests.fakes import zoo
from tests.fakes.model_server import KEY, KEY_VARIABLE, ModelServer, Request
from tests.fakes.model_speech import Counted
from tests.fakes.model_texts import asked_in, decision, evaluation
from tests.fakes.zoo_project import FILES

pytestmark = pytest.mark.slow


class Sent(NamedTuple):
    """One request as the provider has counted it."""

    model: str
    task: str
    agent: str
    shared: int
    own: str
    counted: Counted


REPORTS = "from graphbus_core import Event, GraphBusNode, publishes, subscribe\n" + "".join(
    f'''

@publishes("/Report/{period}", {{"orders": int, "total": float, "largest_order": str}})
class {period}Report(GraphBusNode):
    """Adds up the orders of a period."""

    def __init__(self) -> None:
        super().__init__()
        self.orders, self.total = 0, 0.0

    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        self.orders, self.total = self.orders + 1, self.total + event["total"]
        self.publish("/Report/{period}", {{"orders": self.orders, "total": self.total, "largest_order": event["order_id"]}})
'''
    for period in ("Hourly", "Daily", "Weekly", "Monthly", "Quarterly", "Yearly")
)
"""More agents: what the four of the zoo share is shorter than the prefixes that providers keep."""
AGAINST = ("MailService", "HourlyReport", "DailyReport", "WeeklyReport")


class CountingServer(ModelServer):
    """Keeps what was counted for each request, in the order in which they were answered."""

    def __init__(self) -> None:
        super().__init__(_divided)
        self.sent: list[Sent] = []

    def count(self, request: Request) -> Counted:
        counted, prompt = super().count(request), zoo.prompt_of(request)
        asked = asked_in(prompt)
        shared = len(prompt.shared.encode()) // 4
        self.sent.append(Sent(request.model, asked.task, asked.agent, shared, prompt.own, counted))
        return counted


def _divided(request: Request) -> str:
    """Good agents of whom half are against everything, so that an arbiter has to decide."""
    prompt = zoo.prompt_of(request)
    asked = asked_in(prompt)
    if asked.task == "arbitrate":
        return "".join(decision(name, "accept") for name in asked.proposals)
    if asked.task == "evaluate" and asked.agent in AGAINST:
        return "".join(evaluation(name, "reject", reasoning="I do not like it.") for name in asked.proposals)
    return str(zoo.good(asked, prompt))


def negotiated(server: CountingServer, project: Project, rounds: int, **roles: str) -> list[Sent]:
    root = project(
        {path: text for path, text in FILES.items() if not path.startswith("tests/")} | {"agents/reports.py": REPORTS}
    )
    llm: LLMConfig = server.config("anthropic", concurrency=1, **roles)
    settings = Settings(llm=llm, safety=SafetyConfig(max_negotiation_rounds=rounds, electorate="all"))
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True, settings=settings)
    run_build_pipeline(request)
    usage = load_session(root / ".graphbus").spent.usage
    assert usage.cache_read_tokens == sum(one.counted.read for one in server.sent)
    assert usage.input_tokens == sum(one.counted.total for one in server.sent)
    return server.sent


def test_the_shared_part_is_written_once_and_read_by_all_agents_roles_and_rounds(
    project: Project, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with CountingServer() as server:
        sent = negotiated(server, project, 2)
    assert {one.task for one in sent} >= {"analyze", "propose", "evaluate", "arbitrate"}
    assert sent[0].counted.read == 0
    known: dict[str, set[str]] = defaultdict(set)
    votes = [one for one in sent if one.task in ("evaluate", "arbitrate")]
    assert max(one.counted.total for one in votes) < min(one.counted.total for one in sent if one not in votes)
    sent = [one for one in sent if one not in votes]  # the prefix of a vote is too short for the cache of a provider
    for one in sent[1:]:
        assert one.counted.read >= one.shared, one
    for one in sent:
        if one.own in known[one.agent]:  # asked before, and nothing has changed at its ends
            assert one.counted.read > one.shared, one
        known[one.agent].add(one.own)
    read, total = sum(one.counted.read for one in sent), sum(one.counted.total for one in sent)
    figure(
        "input read from the provider's cache, one model",
        f"{read / total:.0%} of {total} tokens in {len(sent)} requests of {len(known)} agents",
    )
    assert read / total > 0.6
