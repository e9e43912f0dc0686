"""What `graphbus doctor` is told: who can be asked, what is missing, which model would negotiate and why."""

from __future__ import annotations

import pytest

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm import sdk
from graphbus_core.llm.diagnosis import ProviderState, choice, examine, is_listening, try_model
from graphbus_core.model.config import LLMConfig, ProviderConfig
from tests.fakes.model_server import Answer, Failure, ModelServer

KEY = "sk-secret-1234567890"
LOCAL = ProviderConfig(base_url="http://127.0.0.1:1234/v1", default_model="small")
FAR = ProviderConfig(base_url="https://models.example.org/v1", input_usd=1.0)


def nobody(_host: str, _port: int) -> bool:
    return False


def everybody(_host: str, _port: int) -> bool:
    return True


def states(config: LLMConfig | None = None, environ: dict[str, str] | None = None) -> dict[str, ProviderState]:
    return {state.name: state for state in examine(config or LLMConfig(), environ or {}, nobody)}


def test_a_provider_can_be_asked_when_its_key_is_there() -> None:
    found = states(environ={"ANTHROPIC_API_KEY": KEY})
    assert (found["anthropic"].has_key, found["anthropic"].missing) == (True, ())
    assert (found["openai"].has_key, found["openai"].missing) == (False, ("OPENAI_API_KEY is not set",))
    assert KEY not in str(found)


def test_a_server_on_this_machine_can_be_asked_when_it_listens() -> None:
    knocked: list[tuple[str, int]] = []

    def knock(host: str, port: int) -> bool:
        knocked.append((host, port))
        return port == 11434

    config = LLMConfig(providers={"tls": ProviderConfig(base_url="https://localhost/v1")})
    found = {state.name: state.missing for state in examine(config, {}, knock)}
    assert found["ollama"] == ()
    assert found["vllm"] == ("no server answers there",)
    assert ("localhost", 443) in knocked
    assert {host for host, _port in knocked} == {"localhost"}


def test_nobody_listens_where_no_server_is_and_somebody_where_one_is() -> None:
    with ModelServer() as server:
        port = server.port
        assert is_listening("127.0.0.1", port)
    assert not is_listening("127.0.0.1", port)


def test_where_a_price_comes_from_is_told_without_looking_it_up() -> None:
    found = states(LLMConfig(providers={"own": LOCAL, "far": FAR, "odd": ProviderConfig(base_url="https://x.example")}))
    assert {name: found[name].price for name in ("anthropic", "own", "far", "odd")} == {
        "anthropic": "table",
        "own": "this machine",
        "far": "settings",
        "odd": "unknown",
    }


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _name: None)
    assert states()["anthropic"].missing[0] == "pydantic_ai is not installed: pip install 'graphbus[llm]'"


@pytest.mark.parametrize(
    ("config", "environ", "model", "because", "missing"),
    [
        (LLMConfig(), {}, "rules", "neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set", ()),
        (LLMConfig(), {"OPENAI_API_KEY": KEY}, "openai:gpt-6.1-sol", "OPENAI_API_KEY is set", ()),
        (LLMConfig(model="rules"), {"OPENAI_API_KEY": KEY}, "rules", "the settings or the command line say so", ()),
        (
            LLMConfig(model="anthropic"),
            {},
            "anthropic:claude-sonnet-5-5",
            "the settings or the command line say so",
            ("anthropic: ANTHROPIC_API_KEY is not set",),
        ),
        (
            LLMConfig(model="command:no-such-program -p", arbiter="ollama:x"),
            {"PATH": "/usr/bin"},
            "command:no-such-program -p",
            "the settings or the command line say so",
            ("there is no program no-such-program", "ollama: no server answers there"),
        ),
    ],
)
def test_the_choice_comes_with_its_reason_and_with_what_is_missing(
    config: LLMConfig, environ: dict[str, str], model: str, because: str, missing: tuple[str, ...]
) -> None:
    chosen = choice(config, environ, nobody)
    assert (chosen.model, chosen.because, chosen.missing) == (model, because, missing)
    assert chosen.roles == ({"arbiter": "ollama:x"} if config.arbiter else {})


def test_nothing_is_missing_for_a_program_that_is_there() -> None:
    assert choice(LLMConfig(model="command:sh"), {"PATH": "/usr/bin:/bin"}, everybody).missing == ()


def test_a_model_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError):
        choice(LLMConfig(evaluator="antropic"), {}, nobody)


@pytest.mark.slow
def test_the_smallest_call_tells_latency_tokens_and_cost() -> None:
    with ModelServer(lambda _request: Answer("ok", delay_s=0.05)) as server:
        tried = try_model("stub", server.config("openai", input_usd=2.0, output_usd=10.0), server.environ)
    assert tried.model == "stub:test-model"
    assert tried.seconds >= 0.05
    assert (tried.output_tokens, tried.input_usd, tried.output_usd) == (1, 2.0, 10.0)
    assert tried.cost_usd == pytest.approx((tried.input_tokens * 2 + 10) / 1e6)
    assert server.requests[0].body["max_tokens"] == 64


@pytest.mark.slow
def test_the_smallest_call_is_made_once() -> None:
    with ModelServer(lambda _request: Failure(529)) as server, pytest.raises(ModelError):
        try_model("stub", server.config("anthropic"), server.environ)
    assert len(server.requests) == 1
