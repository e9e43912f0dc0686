"""From names to clients: what is missing is told before anything is asked, and prices are known beforehand."""

from __future__ import annotations

import pytest

from graphbus_core.errors import ModelError, UsageError
from graphbus_core.llm import opening, sdk
from graphbus_core.llm.opening import (
    ProviderState,
    examine_providers,
    explain_choice,
    open_client,
    open_clients,
    price_client,
    price_of,
    try_model,
)
from graphbus_core.llm.providers import KNOWN, Provider
from graphbus_core.model.config import LLMConfig, ProviderConfig
from graphbus_core.model.spending import Price
from tests.fakes.model_server import Answer, Failure, ModelServer

KEY = "sk-secret-1234567890"
LOCAL = ProviderConfig(base_url="http://127.0.0.1:9/v1", default_model="small")
FAR = ProviderConfig(base_url="https://models.example.org/v1", input_usd=1.0)


def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(ModelError) as caught:
        open_client("anthropic", LLMConfig(), {"ANTHROPIC_API_KEY": " "})
    assert caught.value.code == "GBE440"
    assert caught.value.is_final
    assert "the environment variable ANTHROPIC_API_KEY is not set" in caught.value.sentence


@pytest.mark.parametrize("key", ["two words", "line\nX-Other: 1", "kéy", "a\x00b"])
def test_what_cannot_be_a_key_is_refused_before_it_gets_into_a_header(key: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_client("anthropic", LLMConfig(), {"ANTHROPIC_API_KEY": key})
    assert (caught.value.code, caught.value.is_final) == ("GBE454", True)
    assert key not in str(caught.value)


@pytest.mark.parametrize("package", ["pydantic_ai", "openai"])
def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ModelError) as caught:
        open_client("ollama:x", LLMConfig(), {})
    assert (caught.value.code, caught.value.data["package"]) == ("GBE441", package)
    assert "pip install '.[llm]'" in caught.value.hint
    assert ".whl[llm]'" in caught.value.hint


def test_each_role_has_its_model_and_equal_ones_share_a_client() -> None:
    config = LLMConfig(
        providers={"own": LOCAL}, proposer="own:large", arbiter=" command:cat -u", evaluator="own", timeout_s=5
    )
    clients = open_clients("own:small", config, {})
    assert clients.models == {"proposer": "own:large", "evaluator": "own:small", "arbiter": "command:cat -u"}
    same = open_clients("own", LLMConfig(providers={"own": LOCAL}), {})
    assert same.proposer is same.evaluator is same.arbiter
    for client in {*clients, same.proposer}:
        client.close()


def test_a_role_of_the_rules_has_a_client_that_cannot_answer_and_costs_nothing() -> None:
    clients = open_clients("own", LLMConfig(providers={"own": LOCAL}, evaluator="rules", arbiter=" rules"), {})
    assert clients.models == {"proposer": "own:small", "evaluator": "rules", "arbiter": "rules"}
    assert clients.evaluator.price == Price(0, 0)
    with pytest.raises(ModelError) as caught:
        clients.arbiter.generate("?")
    assert caught.value.code == "GBE471"
    clients.proposer.close()


def test_a_role_that_cannot_be_filled_closes_what_was_opened() -> None:
    with pytest.raises(ModelError):
        open_clients("own", LLMConfig(providers={"own": LOCAL}, arbiter="anthropic"), {})


@pytest.mark.parametrize(
    ("provider", "model", "price"),
    [
        (Provider("own", "openai", "http://localhost:8000/v1"), "x", Price(0, 0)),
        (Provider("own", "openai", "http://localhost:8000/v1", input_usd=1.0), "x", Price(1, 0)),
        (Provider("far", "openai", "https://models.example.org/v1"), "x", None),
        (Provider("far", "openai", "https://models.example.org/v1", output_usd=2.0), "x", Price(0, 2)),
        (KNOWN["anthropic"], "claude-sonnet-5-5", Price(2.5, 10)),
        (KNOWN["anthropic"], "no-such-model", None),
        (KNOWN["ollama"], "qwen3", Price(0, 0)),
    ],
)
def test_the_price_is_the_dearest_that_may_apply_and_known_without_a_network(
    provider: Provider, model: str, price: Price | None
) -> None:
    assert price_of(provider, model) == price


@pytest.mark.parametrize("name", [name for name, provider in KNOWN.items() if provider.default_model])
def test_the_price_of_every_default_model_is_known(name: str) -> None:
    price = price_of(KNOWN[name], KNOWN[name].default_model)
    assert price is not None
    assert price.input_usd > 0
    assert price.output_usd > 0


def test_a_price_needs_neither_key_nor_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert price_client("anthropic", LLMConfig(), {}).price == Price(2.5, 10)
    monkeypatch.setattr(sdk, "find_spec", lambda _name: None)
    assert price_client("anthropic", LLMConfig(), {}).price is None


# --- what `graphbus doctor` is told ------------------------------------------------------------


def states(config: LLMConfig | None = None, environ: dict[str, str] | None = None) -> dict[str, ProviderState]:
    return {state.name: state for state in examine_providers(config or LLMConfig(), environ or {})}


def test_a_provider_can_be_asked_when_its_key_its_library_and_its_server_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "_is_listening", lambda provider: provider.name == "ollama")
    found = states(environ={"ANTHROPIC_API_KEY": KEY})
    assert (found["anthropic"].has_key, found["anthropic"].missing, found["ollama"].missing) == (True, (), ())
    assert (found["openai"].has_key, found["openai"].missing) == (False, ("OPENAI_API_KEY is not set",))
    assert found["vllm"].missing == ("no server answers there",)
    assert KEY not in str(found)
    monkeypatch.setattr(sdk, "find_spec", lambda _name: None)
    assert states()["anthropic"].missing[0] == "pydantic_ai is not installed"


def test_where_a_price_comes_from_is_told_without_looking_it_up() -> None:
    found = states(LLMConfig(providers={"own": LOCAL, "far": FAR, "odd": ProviderConfig(base_url="https://x.example")}))
    sources = {"anthropic": "table", "own": "this machine", "far": "settings", "odd": "unknown"}
    assert {name: found[name].price for name in sources} == sources


SETTINGS = "the settings or the command line say so"


@pytest.mark.parametrize(
    ("config", "environ", "model", "because", "missing"),
    [
        (LLMConfig(), {}, "rules", "neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set", ()),
        (LLMConfig(), {"OPENAI_API_KEY": KEY}, "openai:gpt-6.1-sol", "OPENAI_API_KEY is set", ()),
        (LLMConfig(model="rules"), {"OPENAI_API_KEY": KEY}, "rules", SETTINGS, ()),
        (LLMConfig(model="command:sh"), {"PATH": "/usr/bin:/bin"}, "command:sh", SETTINGS, ()),
        (
            LLMConfig(model="command:no-such-program -p", arbiter="ollama:x"),
            {"PATH": "/usr/bin"},
            "command:no-such-program -p",
            SETTINGS,
            ("there is no program no-such-program", "ollama: no server answers there"),
        ),
    ],
)
def test_the_choice_comes_with_its_reason_and_with_what_is_missing(
    config: LLMConfig, environ: dict[str, str], model: str, because: str, missing: tuple[str, ...]
) -> None:
    chosen = explain_choice(config, environ)
    assert (chosen.model, chosen.because, chosen.missing) == (model, because, missing)
    assert chosen.roles == ({"arbiter": "ollama:x"} if config.arbiter else {})
    with pytest.raises(UsageError):
        explain_choice(LLMConfig(evaluator="antropic"), {})


@pytest.mark.slow
def test_the_smallest_call_is_made_once_and_tells_latency_tokens_and_cost() -> None:
    with ModelServer(lambda _request: Answer("ok", delay_s=0.05)) as server:
        tried = try_model("stub", server.config("openai", input_usd=2.0, output_usd=10.0), server.environ)
        server.script = lambda _request: Failure(529)
        with pytest.raises(ModelError):
            try_model("stub", server.config("openai"), server.environ)
    assert (tried.model, tried.output_tokens, tried.input_usd) == ("stub:test-model", 1, 2.0)
    assert tried.seconds >= 0.05
    assert tried.cost_usd == pytest.approx((tried.input_tokens * 2 + 10) / 1e6)
    assert [request.body["max_tokens"] for request in server.requests] == [16, 16]
