"""Which model a name means, who negotiates without one, that a key goes only to its own provider, and what failures say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphbus_core.errors import UsageError
from graphbus_core.llm.providers import (
    KEY_OWNERS,
    KNOWN,
    ModelSpec,
    check_provider,
    choose_model,
    is_loopback,
    parse_model,
    providers_of,
    remove_secrets,
)
from graphbus_core.model.config import LLMConfig, ProviderConfig, Wire
from tests.patience import PATIENCE_S

KEY = "0123456789-key"
OFFICE = ProviderConfig(base_url="https://models.example.org/v1", key_env="OFFICE_KEY", default_model="qwen3")


def _config(name: str = "office", **provider: str) -> LLMConfig:
    return LLMConfig(providers={name: ProviderConfig(**{"base_url": "https://models.example.org/v1", **provider})})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("rules", ModelSpec("rules")),
        ("anthropic:claude-haiku-5-5", ModelSpec("anthropic", "claude-haiku-5-5")),
        ("anthropic", ModelSpec("anthropic", "claude-sonnet-5-5")),
        (" openai : gpt-6-luna ", ModelSpec("openai", "gpt-6-luna")),
        ("ollama:qwen3:30b", ModelSpec("ollama", "qwen3:30b")),
        ("openrouter:deepseek/deepseek-r1:free", ModelSpec("openrouter", "deepseek/deepseek-r1:free")),
        ("command:claude -p 'in one line'", ModelSpec("command", "claude -p 'in one line'")),
        ("office", ModelSpec("office", "qwen3")),
    ],
)
def test_a_name_means_one_model_of_one_provider(text: str, spec: ModelSpec) -> None:
    providers = providers_of(LLMConfig(providers={"office": OFFICE}))
    assert parse_model(text, providers) == spec


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("antropic:x", "GBE140", "Did you mean 'anthropic'?"),
        ("gpt-5", "GBE140", "Did you mean 'openai:gpt-5'?"),
        ("gpt-6.1-sol", "GBE140", "Did you mean 'openai:gpt-6.1-sol'?"),
        ("", "GBE140", "There is no model provider named ''"),
        ("ollama", "GBE141", "ollama has no default model"),
        ("anthropic:a b", "GBE141", "cannot contain spaces"),
        ("anthropic:a\x1b", "GBE141", "cannot contain spaces or invisible characters"),
        ("command:", "GBE141", "there is no program"),
        ("command:claude 'open", "GBE141", "no closing quotation"),
        ("scripted:x", "GBE141", "ScriptedClient can be passed only from Python"),
        ("recorded", "GBE141", "RecordedClient can be passed only from Python"),
        ("rules:x", "GBE140", "There is no model provider named 'rules'"),
    ],
)
def test_a_name_that_means_no_model_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model(text, KNOWN)
    assert caught.value.code == code
    assert says in caught.value.sentence


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({}, "rules"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai:gpt-6.1-sol"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5-5"),
        ({"ANTHROPIC_API_KEY": " ", "OPENAI_API_KEY": "k"}, "openai:gpt-6.1-sol"),
        ({"DEEPSEEK_API_KEY": "k"}, "rules"),
    ],
)
def test_without_a_setting_the_key_in_the_environment_decides_and_without_a_key_the_rules_negotiate(
    environ: dict[str, str], model: str
) -> None:
    assert choose_model(LLMConfig(), environ) == model


def test_a_well_known_provider_that_was_moved_elsewhere_is_not_chosen_by_the_key_that_it_does_not_get() -> None:
    moved = LLMConfig(providers={"anthropic": ProviderConfig(base_url="https://proxy.example.org")})
    assert choose_model(moved, {"ANTHROPIC_API_KEY": "k"}) == "rules"
    assert providers_of(moved)["anthropic"].key_env == ""


STEALING = [
    ("https://models.example.org/v1", variable) for variable in sorted(KEY_OWNERS) if not variable.startswith("AWS")
] + [
    ("https://api.anthropic.com.example.org", "ANTHROPIC_API_KEY"),
    ("https://example.org/api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("https://xapi.anthropic.com", "ANTHROPIC_API_KEY"),
    ("http://api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("https://api.anthropic.com:8443", "ANTHROPIC_API_KEY"),
    ("http://localhost:8000/v1", "OPENAI_API_KEY"),
    ("http://127.0.0.1:8000/v1", "ANTHROPIC_API_KEY"),
    ("https://api.openai.com/v1", "ANTHROPIC_API_KEY"),
    ("https://models.example.org/v1", "anthropic_api_key"),
    ("https://evilgoogleapis.com/v1", "GEMINI_API_KEY"),
    ("https://bedrock.amazonaws.com/v1", "AWS_SECRET_ACCESS_KEY"),
]


@pytest.mark.parametrize(("address", "variable"), STEALING)
def test_the_key_of_a_well_known_provider_goes_to_no_other_host(address: str, variable: str) -> None:
    for name in ("office", "anthropic", "openai"):
        with pytest.raises(UsageError) as caught:
            providers_of(_config(name, base_url=address, key_env=variable))
        assert caught.value.code == "GBE142"


@pytest.mark.parametrize(
    ("address", "variable"),
    [
        ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("https://api.anthropic.com:443/", "ANTHROPIC_API_KEY"),
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://house.openai.azure.com/openai/v1", "AZURE_OPENAI_API_KEY"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
        ("https://models.example.org/v1", "OFFICE_KEY"),
        ("http://localhost:8000/v1", "OFFICE_KEY"),
        ("http://[::1]:8000/v1", "OFFICE_KEY"),
        ("http://models.example.org/v1", ""),
    ],
)
def test_a_key_may_go_to_its_own_host_and_a_server_without_a_key_may_be_anywhere(address: str, variable: str) -> None:
    assert providers_of(_config(base_url=address, key_env=variable))["office"].base_url == address


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://models.example.org/v1", "plain http"),
        ("http://127.0.0.1.example.org/v1", "plain http"),
        ("http://1270.0.0.1/v1", "plain http"),
        ("ftp://models.example.org", "must begin with https"),
        ("models.example.org/v1", "must begin with https"),
        ("https://", "must begin with https"),
        ("https://exämple.org", "must begin with https"),
        ("https://user:secret@models.example.org", "must not contain a user name or password"),
        ("https://api.openai.com@models.example.org", "must not contain a user name or password"),
        ("https://models.example.org/v1?key=1", "host, port and path"),
        ("https://models.example.org/v1#x", "host, port and path"),
        ("https://models.example.org\\@api.openai.com", "must not contain a user name"),
        ("https://models.example.org:x", "not a valid URL"),
        ("https://[::1", "not a valid URL"),
    ],
)
def test_an_address_that_would_lay_a_key_open_or_is_none_is_refused(address: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        providers_of(_config(base_url=address, key_env="OFFICE_KEY"))
    assert caught.value.code == "GBE143"
    assert says in caught.value.sentence
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["rules", "command", "scripted", "recorded", "a b", "a:b", ""])
def test_a_provider_cannot_take_a_name_that_means_something_else(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        providers_of(_config(name))
    assert caught.value.code == "GBE141"


def test_every_well_known_provider_obeys_the_rules_for_providers_and_speaks_a_wire() -> None:
    wires: set[Wire] = {"anthropic", "openai"}
    for provider in KNOWN.values():
        check_provider(provider)
        assert provider.wire in wires


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("a.localhost", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("127.0.0.1.example.org", False),
        ("127.x.0.1", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_this_machine_is_told_from_others_by_name(host: str, is_here: bool) -> None:
    assert is_loopback(host) is is_here


def test_reading_the_wing_of_models_loads_no_library_of_a_provider() -> None:
    wing = "attempts budget client command opening providers recorded sdk"
    code = (
        f"import sys\nfor name in {wing!r}.split(): __import__('graphbus_core.llm.' + name)\n"
        "heavy = {'pydantic_ai', 'pydantic', 'anthropic', 'openai', 'httpx2', 'genai_prices', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout
    assert shown.strip() == "[]"


# --- text that must not hold a key -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bad {KEY}.", "bad ***"),
        (f"twice {KEY}{KEY}", "twice ******"),
        ("Incorrect API key provided: sk-proj-ab*****yz. See", "Incorrect API key provided: *** See"),
        ("gsk_abcdefgh1234 and AIzaSyAbcdefgh", "*** and ***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("two\n  lines\tand\x1b[31m colour", "two lines and[31m colour"),
        ("ask-me-anything stays", "ask-me-anything stays"),
    ],
)
def test_keys_and_odd_signs_are_taken_out(text: str, shown: str) -> None:
    assert remove_secrets(text, KEY) == shown
    assert len(remove_secrets("word " * 1000, KEY)) == 301
