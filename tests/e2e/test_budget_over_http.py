"""Limits of money hold over HTTP, whatever the server does: by our record, and by what the server itself would charge."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Lock

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.errors import ModelError
from graphbus_core.llm import attempts
from graphbus_core.model.config import Budget, BuildConfig, SafetyConfig, Settings
from graphbus_core.negotiation.transcript import SessionRecord, load_session
from tests.fakes import zoo
from tests.fakes.model_server import KEY, KEY_VARIABLE, Answer, Broken, Failure, ModelServer, Reply, Request, Script
from tests.fakes.model_sessions import write_zoo
from tests.fakes.model_speech import Counted, tokens_of

pytestmark = [
    pytest.mark.slow,
    # the library's generator of a cut stream may be collected by one thread while another still ends it
    pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"),
]
IN_USD, OUT_USD = 3.0, 15.0


class ChargingServer(ModelServer):
    """Charges for everything that it has begun to answer, the failures among it at the whole length that was allowed."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.lock = Lock()
        self.charged_usd = 0.0
        self.charged_tokens = 0
        self.replies: Counter[str] = Counter()

    def charge(self, request: Request, reply: Reply) -> None:
        given = len(request.text.encode()) // 4
        if isinstance(reply, Failure) or (isinstance(reply, Broken) and reply.how == "closed"):
            return
        most = int(request.body["max_tokens"])
        said = tokens_of(reply.text) if isinstance(reply, Answer) else most
        with self.lock:
            self.charged_tokens += given + said
            self.charged_usd += (given * IN_USD + said * OUT_USD) / 1e6

    def count(self, request: Request) -> Counted:
        return super().count(request)._replace(read=0, written=0)


def negotiated(root: Path, server: ModelServer, budget: Budget, **settings: object) -> SessionRecord:
    llm = server.config("anthropic", input_usd=IN_USD, output_usd=OUT_USD, **settings)
    wanted = Settings(llm=llm, budget=budget, safety=SafetyConfig(max_negotiation_rounds=3))
    with suppress(
        ModelError
    ):  # if each attempt of a question was late, the session ends, and has cost what it has cost
        run_build_pipeline(BuildConfig(paths=(str(root / "agents"),), enable_agents=True, settings=wanted))
    return load_session(root / ".graphbus")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setattr(attempts, "_FIRST_WAIT_S", 0.01)
    return write_zoo(tmp_path)


def _unsteady(seed: int, servers: list[ChargingServer]) -> Script:
    random, lock = Random(seed), Lock()

    def script(request: Request) -> Reply:
        said = zoo.good(zoo.asked_in(zoo.prompt_of(request)), zoo.prompt_of(request))
        with lock:
            reply = random.choice(
                [
                    *[Answer(str(said))] * 4,
                    Failure(429, "slow down", retry_after="0.01"),
                    Failure(529, "overloaded", retry_after=0),
                    Broken("cut"),
                    Broken("error"),
                    Broken("stalled"),
                    Answer("no section at all"),
                ]
            )
        servers[0].charge(request, reply)
        return reply

    return script


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [Budget(max_usd=1.2), Budget(max_usd=0, max_tokens=200_000)], ids=["usd", "tokens"])
def test_no_retry_and_no_cut_stream_passes_a_limit(root: Path, budget: Budget, seed: int) -> None:
    servers: list[ChargingServer] = []
    with ChargingServer(_unsteady(seed, servers)) as server:
        servers.append(server)
        record = negotiated(root, server, budget, timeout_s=0.3, max_attempts=3, max_output_tokens=2000)
    for usd in (record.spent.cost_usd, server.charged_usd):
        assert not budget.max_usd or 0 < usd <= budget.max_usd
    assert server.charged_usd <= record.spent.cost_usd
    if budget.max_tokens:
        assert 0 < server.charged_tokens <= budget.max_tokens


@pytest.mark.parametrize("budget", [Budget(max_usd=2.0), Budget(max_usd=0, max_tokens=400_000)], ids=["usd", "tokens"])
def test_a_server_that_claims_more_than_can_be_ends_the_session_at_once(root: Path, budget: Budget) -> None:
    with ModelServer(lambda _request: Answer("## nothing", output_tokens=10**9)) as server:
        record = negotiated(root, server, budget, concurrency=1)
    assert len(server.requests) == 1
    ending = record.negotiations.ending
    assert ending.reason == "budget"
    assert "more than was reserved" in ending.detail
    assert ("max_usd is 2" if budget.max_usd else "max_tokens is 400000") in ending.detail
    assert record.spent.usage.output_tokens == 10**9
