"""`graphbus doctor`: the models that can be asked, the choice, and the smallest call."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.llm import sdk
from tests.fakes.model_server import KEY, KEY_VARIABLE, Answer, Failure, ModelServer, Reply, Request
from tests.patience import PATIENCE_S
from tests.project_files import write_project

Streams = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(write_project(tmp_path, {"pyproject.toml": ""}))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def use(server: ModelServer, here: Path, monkeypatch: pytest.MonkeyPatch, *, model: str = "stub") -> None:
    text = f"""
        [tool.graphbus.llm]
        model = "{model}"
        [tool.graphbus.llm.providers.stub]
        base_url = "{server.url("anthropic")}"
        wire = "anthropic"
        key_env = "{KEY_VARIABLE}"
        default_model = "test-model"
        input_usd = 2
        output_usd = 10
    """
    write_project(here, {"pyproject.toml": text})
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def test_without_a_key_the_rule_agents_negotiate_and_it_says_why(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example.org")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "· ANTHROPIC_BASE_URL is set and has no effect: see docs/models.md" in out
    assert "would use the rule agents: neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set." in out
    assert "ANTHROPIC_API_KEY is not set" in out
    assert "git is there" in out
    assert "pytest is there" in out
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["model"]["model"], document["test"]) == ("rules", None)
    assert document["providers"][0]["missing"] == ["ANTHROPIC_API_KEY is not set"]


def test_a_key_is_told_to_be_there_and_never_shown(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    assert main(["doctor"]) == 0
    assert main(["doctor", "--json"]) == 0
    out = capsys.readouterr().out
    assert "would use anthropic:claude-sonnet-5-5: ANTHROPIC_API_KEY is set." in out
    assert KEY not in out


@pytest.mark.parametrize("model", [[], ["--model", "anthropic"]], ids=["the rules", "a model"])
def test_a_library_that_all_providers_need_is_named_once(
    model: list[str], here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda _name: None)
    assert main(["doctor", *model]) == (5 if model else 0)
    out = capsys.readouterr().out
    assert out.count("is not installed") == 1
    assert (
        "✗ No provider can be asked: pydantic_ai is not installed. In a checkout of GraphBus run `pip install '.[llm]'`"
        in out
    )
    assert out.count("OPENROUTER_API_KEY is not set") == 1


def test_a_library_that_some_providers_need_names_these(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None if name == "anthropic" else object())
    assert main(["doctor"]) == 0
    assert "✗ None of anthropic can be asked: anthropic is not installed." in capsys.readouterr().out


def test_a_model_that_cannot_be_asked_is_status_5(here: Path, capsys: Streams) -> None:
    assert main(["doctor", "--model", "anthropic"]) == 5
    assert "✗ It cannot be asked: anthropic: ANTHROPIC_API_KEY is not set." in capsys.readouterr().out


@pytest.mark.slow
def test_a_test_makes_the_smallest_call_and_tells_what_it_cost(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(lambda _request: Answer("ok")) as server:
        use(server, here, monkeypatch)
        assert main(["doctor", "--test"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"^✓ +stub +test-model +by the settings +STUB_API_KEY is set$", out, re.MULTILINE)
        assert "✓ stub:test-model answered in " in out
        assert "tokens in, 1 out, " in out
        assert "A million tokens cost at most $2 in and $10 out." in out
        assert main(["doctor", "--test", "stub:other", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"]["model"] == "stub:other"
    assert [request.model for request in server.requests] == ["test-model", "other"]


@pytest.mark.slow
def test_a_wrong_key_is_told_without_showing_it(here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_request: Request) -> Reply:
        return Failure(401, f"invalid x-api-key {KEY}")

    with ModelServer(refuse) as server:
        use(server, here, monkeypatch)
        assert main(["doctor", "--test", "stub", "--json"]) == 5
    streams = capsys.readouterr()
    assert json.loads(streams.out)["errors"][0]["code"] == "GBE442"
    assert "rejected the key in STUB_API_KEY: invalid x-api-key ***." in streams.err
    assert KEY not in streams.out + streams.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--test"], "GBE130"), (["--test", "antropic"], "GBE140"), (["--model", "gpt-6.1-sol"], "GBE140")],
)
def test_a_model_that_there_is_not_is_refused(here: Path, capsys: Streams, arguments: list[str], code: str) -> None:
    assert main(["doctor", *arguments]) == 2
    assert f"[{code}]" in capsys.readouterr().err


def test_it_loads_no_library_of_a_provider(here: Path) -> None:
    code = (
        "import sys; from graphbus_core.cli import main; main(['doctor'])\n"
        "heavy = {'pydantic_ai', 'pydantic', 'anthropic', 'openai', 'httpx2', 'genai_prices'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S, cwd=here
    )
    assert done.stderr.strip().splitlines()[-1] == "[]"
