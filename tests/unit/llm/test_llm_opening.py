"""From names to clients: what is missing is said before anything is asked, and prices are known beforehand."""

from __future__ import annotations

import pytest

from graphbus_core.errors import GraphBusError, ModelError
from graphbus_core.llm import sdk
from graphbus_core.llm.opening import open_client, open_clients, price_of
from graphbus_core.llm.providers import KNOWN, Provider
from graphbus_core.model.config import LLMConfig, ProviderConfig
from graphbus_core.model.spending import Price

LOCAL = ProviderConfig(base_url="http://127.0.0.1:9/v1", default_model="small")


def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(ModelError) as caught:
        open_client("anthropic", LLMConfig(), {"ANTHROPIC_API_KEY": " "})
    assert caught.value.code == "GBE440"
    assert caught.value.is_final
    assert "ANTHROPIC_API_KEY is not in the environment" in caught.value.sentence


@pytest.mark.parametrize("key", ["two words", "line\nX-Other: 1", "kéy", "a\x00b"])
def test_what_cannot_be_a_key_is_refused_before_it_gets_into_a_header(key: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_client("anthropic", LLMConfig(), {"ANTHROPIC_API_KEY": key})
    assert (caught.value.code, caught.value.is_final) == ("GBE454", True)
    assert key not in str(caught.value)


def test_line_breaks_around_a_key_are_no_part_of_it() -> None:
    open_client("anthropic", LLMConfig(), {"ANTHROPIC_API_KEY": "  key\n"}).close()


@pytest.mark.parametrize("package", ["pydantic_ai", "openai"])
def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ModelError) as caught:
        open_client("ollama:x", LLMConfig(), {})
    assert (caught.value.code, caught.value.data["package"]) == ("GBE441", package)
    assert "pip install 'graphbus[llm]'" in caught.value.hint


def test_the_rules_give_no_answers() -> None:
    with pytest.raises(GraphBusError) as caught:
        open_client("rules", LLMConfig(), {})
    assert caught.value.code == "GBE141"


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


def test_without_the_libraries_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _name: None)
    assert price_of(KNOWN["anthropic"], "claude-sonnet-5-5") is None
