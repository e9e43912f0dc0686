"""Answers that cannot be used: they are not given again, and a model that gives nothing else is asked no longer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from threading import Lock

import pytest

from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.cli.live import NegotiationLines
from graphbus_core.errors import ModelError, NegotiationError
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.client import Clients, Completion, ModelPrompt, ScriptedClient
from graphbus_core.model.config import BuildConfig, LLMConfig, ProviderConfig, Settings
from graphbus_core.model.messages import Event
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import resolve_build
from tests.fakes import zoo
from tests.fakes.model_server import Answer, Failure, ModelServer, Raw, Request
from tests.fakes.model_sessions import GoodModel, negotiate, sources, write_zoo
from tests.fakes.model_texts import AskedOf, asked_in

pytestmark = pytest.mark.slow
NONSENSE = "I would love to help you with that!"


class Model:
    """A good model, except where `is_unusable` says so: there its answers are nonsense. It notes what it is asked."""

    def __init__(self, is_unusable: Callable[[AskedOf], bool], name: str = "scripted:test") -> None:
        self.asked: list[AskedOf] = []
        self._is_unusable = is_unusable
        self._lock = Lock()
        self.client = ScriptedClient(self._speak, name, Price(3.0, 15.0))

    def _speak(self, prompt: ModelPrompt) -> str | Completion:
        asked = asked_in(prompt)
        with self._lock:
            self.asked.append(asked)
        return NONSENSE if self._is_unusable(asked) else str(zoo.good(asked, prompt))

    @property
    def questions(self) -> int:
        """How often it was asked something, not counting answers that were sent back."""
        return sum(asked.attempt == 1 for asked in self.asked)


def everything(_asked: AskedOf) -> bool:
    return True


def nothing(_asked: AskedOf) -> bool:
    return False


def build(
    root: Path, proposer: Model, evaluator: Model | None = None, arbiter: Model | None = None, **asked_for: object
) -> BuildResult:
    clients = Clients(*(model.client for model in (proposer, evaluator or proposer, arbiter or proposer)))
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True, **asked_for)  # type: ignore[arg-type]
    return run_build_pipeline(request, backend=Backend(clients))


def differences(root: Path) -> tuple[str, ...]:
    return replay_session(resolve_build(BuildConfig(paths=(str(root / "agents"),))), "S001").differences


def cached(root: Path) -> int:
    return len(list((root / ".graphbus/cache/answers").rglob("*.answer")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_zoo(tmp_path / "zoo")


# --- they are not given again --------------------------------------------------------------------------------------


def test_a_resumed_session_asks_again_what_had_no_usable_answer(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as given_up:
        build(root, Model(everything))
    assert given_up.value.code == "GBE463"
    wasted = load_session(root / ".graphbus").spent

    better = Model(nothing)
    assert build(root, better, is_resumed=True).applied
    assert better.questions == 13
    straight = write_zoo(tmp_path / "straight" / "zoo")
    negotiate(straight, GoodModel())
    assert sources(root) == sources(straight)
    assert differences(root) == ()

    spent, alone = load_session(root / ".graphbus").spent, load_session(straight / ".graphbus").spent
    assert spent.cost_usd == pytest.approx(wasted.cost_usd + alone.cost_usd), "what was wasted has been paid too"


def test_a_resumed_session_keeps_what_could_be_used(root: Path) -> None:
    with pytest.raises(ModelError):
        build(root, Model(lambda asked: asked.task == "propose"))
    better = Model(nothing)
    assert build(root, better, is_resumed=True).applied
    assert {asked.task for asked in better.asked} == {"propose", "evaluate"}
    assert differences(root) == ()


def test_a_session_can_be_resumed_twice(root: Path) -> None:
    for is_resumed in (False, True):
        model = Model(everything)
        with pytest.raises(ModelError):
            build(root, model, is_resumed=is_resumed)
        assert (model.questions, len(model.asked)) == (3, 6)
    assert build(root, Model(nothing), is_resumed=True).applied
    assert differences(root) == ()


def test_a_new_session_asks_again_too(root: Path) -> None:
    with pytest.raises(ModelError):
        build(root, Model(everything))
    assert cached(root) == 0
    better = Model(nothing)
    assert build(root, better).applied
    assert better.questions == 13


def test_an_answer_that_was_usable_when_sent_back_is_kept(root: Path) -> None:
    first = Model(lambda asked: asked.attempt == 1)
    assert build(root, first, dry_run=False).applied
    assert cached(root) == len(first.asked) == 26


def test_a_failure_is_not_repeated_by_resume(root: Path) -> None:
    """What GBE426 says to do: it works."""

    def away(_prompt: ModelPrompt) -> None:
        raise ModelError("GBE444", provider="scripted", reason="no such parameter")

    with pytest.raises(NegotiationError) as failed:
        negotiate(root, GoodModel(away))
    assert failed.value.code == "GBE426"
    assert "--resume" in failed.value.hint
    assert "--no-cache" in failed.value.hint
    assert negotiate(root, GoodModel(), is_resumed=True).applied
    assert differences(root) == ()


@pytest.mark.parametrize("width", [1, 16])
def test_a_session_with_unusable_answers_is_replayed_to_the_byte(root: Path, width: int) -> None:
    model = Model(lambda asked: asked.agent == "MailService" and asked.task != "analyze")
    assert build(root, model, settings=Settings(llm=LLMConfig(concurrency=width))).applied
    assert differences(root) == ()


# --- a model that does not follow the format ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 16])
def test_after_three_unusable_answers_a_model_is_asked_no_longer(root: Path, width: int) -> None:
    before, model = sources(root), Model(everything)
    with pytest.raises(ModelError) as given_up:
        build(root, model, settings=Settings(llm=LLMConfig(concurrency=width)))
    error = given_up.value
    assert (error.code, error.status) == ("GBE463", 5)
    assert error.sentence.startswith("scripted:test does not follow the answer format: 3 of its answers")
    for advice in ('answers = "json"', "`graphbus doctor --test scripted:test`", "larger model"):
        assert advice in error.hint
    assert (model.questions, len(model.asked)) == (3, 6)
    assert sources(root) == before
    assert load_session(root / ".graphbus").negotiations.ending.reason == "error"


def test_unusable_answers_to_one_kind_of_question_are_enough(root: Path) -> None:
    model = Model(lambda asked: asked.task == "propose")
    with pytest.raises(ModelError) as given_up:
        build(root, model)
    assert given_up.value.code == "GBE463"
    assert sum(asked.task == "propose" for asked in model.asked) == 6


def test_a_model_that_answers_usably_in_between_is_kept(root: Path) -> None:
    model = Model(lambda asked: asked.agent == "MailService")  # one of three, in every round
    assert build(root, model).failure is None


def test_what_was_sent_back_once_and_then_usable_does_not_count(root: Path) -> None:
    result = build(root, Model(lambda asked: asked.attempt == 1))
    assert result.applied
    assert result.failure is None


def test_accepted_work_is_kept(root: Path) -> None:
    """It accepts in the first round and proposes nonsense in the second."""
    before, rounds = sources(root), []

    def second_round(asked: AskedOf) -> bool:
        if asked.task == "propose":
            rounds.append(asked.agent)
        return asked.task == "propose" and len(rounds) > 3

    result = build(root, Model(second_round))
    assert result.failure is not None
    assert result.failure.code == "GBE463"
    assert len(result.applied) == 3
    assert sources(root) != before
    record = load_session(root / ".graphbus")
    assert (record.is_applied, record.negotiations.ending.reason) == (True, "error")


def test_without_its_evaluator_a_session_goes_on_with_the_arbiter(root: Path) -> None:
    """Three votes are unusable, so that no vote is asked for any more; the arbiter, another model, decides."""
    evaluator = Model(everything, "scripted:small")
    result = build(root, Model(nothing), evaluator, Model(nothing, "scripted:judge"))
    assert result.applied
    assert result.failure is not None
    assert "scripted:small" in result.failure.sentence
    assert evaluator.questions == 3
    assert differences(root) == ()


def test_without_its_proposer_a_session_still_decides_what_was_proposed(root: Path) -> None:
    asked_for: list[str] = []

    def after_the_first(asked: AskedOf) -> bool:
        asked_for.extend([asked.agent] if asked.task == "propose" else [])
        return asked.task == "propose" and len(asked_for) > 3

    result = build(root, Model(after_the_first, "scripted:small"), Model(nothing), Model(nothing))
    assert result.failure is not None
    assert len(result.applied) == 3
    assert differences(root) == ()


def test_without_evaluator_and_arbiter_nothing_can_be_decided(root: Path) -> None:
    small = Model(everything, "scripted:small")
    with pytest.raises(ModelError) as given_up:
        build(root, Model(nothing), small, small)
    assert given_up.value.code == "GBE463"
    assert small.questions == 3


# --- as a user sees it ------------------------------------------------------------------------------------------------


def on_disk(root: Path, server: ModelServer, more: str = "") -> Path:
    """The zoo, with a server in its settings."""
    pyproject = root / "pyproject.toml"
    pyproject.write_text(
        f'{pyproject.read_text()}\n[tool.graphbus.llm]\nmodel = "own:m"\n{more}\n'
        f'[tool.graphbus.llm.providers.own]\nbase_url = "{server.url("anthropic")}"\nwire = "anthropic"\n'
    )
    return root


def graphbus(root: Path, *arguments: str) -> tuple[int, str, str]:
    command = [str(Path(sys.executable).with_name("graphbus")), *arguments]
    done = run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_tells_one_error_keeps_accepted_work_and_fails(root: Path) -> None:
    proposals: list[str] = []

    def speak(request: Request) -> Answer:
        prompt = zoo.prompt_of(request)
        asked = asked_in(prompt)
        proposals.extend([asked.agent] if asked.task == "propose" else [])
        is_bad = asked.task == "propose" and len(proposals) > 3
        return Answer(NONSENSE if is_bad else str(zoo.good(asked, prompt)))

    with ModelServer(speak) as server:
        status, out, err = graphbus(on_disk(root, server), "build", "agents/", "--enable-agents")
    assert status == 5, out + err
    assert "Modified" in out
    assert err.count("does not follow the answer format") == 1
    assert "GBE463" in err


def test_a_resumed_command_goes_on_when_the_server_is_better(root: Path) -> None:
    is_bad = [True]

    def speak(request: Request) -> Answer:
        prompt = zoo.prompt_of(request)
        return Answer(NONSENSE if is_bad[0] else str(zoo.good(asked_in(prompt), prompt)))

    with ModelServer(speak) as server:
        on_disk(root, server)
        status, _, err = graphbus(root, "build", "agents/", "--enable-agents")
        assert (status, len(server.requests)) == (5, 6), err
        is_bad[0] = False
        status, out, err = graphbus(root, "build", "agents/", "--enable-agents", "--resume")
        assert status == 0, out + err
        status, out, err = graphbus(root, "replay", "--verify")
        assert status == 0, out + err


def test_a_prompt_that_does_not_fit_is_told_once_with_both_numbers(root: Path) -> None:
    words = b'"invalid_request_error","message":"prompt is too long: 5012 tokens > 4096 maximum"'
    message = b'{"type":"error","error":{"type":' + words + b"}}"
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(message)
    with ModelServer(lambda _request: Raw(head + message)) as server:
        status, out, err = graphbus(on_disk(root, server), "build", "agents/", "--enable-agents")
    assert status == 5
    assert "5012" in err
    assert "4096" in err
    assert err.count("GBE462") == 1
    assert "larger context" in err
    assert (out + err).count("is too long for") == 2, out + err  # when it happens, and as the error at the end


def test_a_dead_server_and_a_wrong_model_fail_with_what_to_do(root: Path) -> None:
    with ModelServer(lambda _request: Failure(404, "model: m")) as server:
        on_disk(root, server)
        status, _, err = graphbus(root, "build", "agents/", "--enable-agents")
        assert (status, len(server.requests) <= 2) == (5, True)  # one that was under way already
        assert "GBE443" in err
    status, _, err = graphbus(root, "build", "agents/", "--enable-agents")
    assert status == 5
    assert "GBE446" in err


def test_further_attempts_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, failed = GoodModel(), []

    def fail_once(_prompt: ModelPrompt) -> None:
        if not failed:
            failed.append(True)
            raise ModelError("GBE445", is_transient=True, provider="scripted", reason="overloaded")

    model = GoodModel(fail_once)
    client = RetryingClient(model.client, max_attempts=3, concurrency=1)
    bus, lines, live = MessageBus(), list[str](), NegotiationLines()

    def listen(event: Event) -> None:
        lines.extend(live.lines(event.topic, event.payload))

    bus.subscribe("/Negotiation/Retried", listen)
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True)
    assert run_build_pipeline(request, bus=bus, backend=Backend(Clients(client, client, client))).applied
    (line,) = lines
    assert "Attempt 2 of 3 in" in line
    assert "overloaded" in line


def test_the_limits_of_a_local_server_are_part_of_the_session(root: Path) -> None:
    with ModelServer(lambda _request: Answer("## nothing")) as server:
        server.pages = {"/v1/models": (200, b'{"data":[{"id":"m","max_model_len":100000}]}', {})}
        provider = ProviderConfig(base_url=server.url("openai"))
        llm = LLMConfig(model="own:m", providers={"own": provider})
        request = BuildConfig(
            paths=(str(root / "agents"),), enable_agents=True, settings=Settings(llm=llm), use_cache=False
        )
        with pytest.raises(NegotiationError):
            run_build_pipeline(request)
    assert {request.body["max_tokens"] for request in server.requests} == {8192}
    assert {request.body["temperature"] for request in server.requests} == {0}
    assert server.most_at_once == 1
