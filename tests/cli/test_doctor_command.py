"""`graphbus doctor`: the models that can be asked, the choice, and the smallest call."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.llm import sdk
from tests.fakes.model_server import KEY, KEY_VARIABLE, Answer, Broken, Failure, ModelServer, Reply, Request, Script
from tests.fakes.model_sessions import write_zoo
from tests.fakes.model_texts import agreeable, asked_in, data_in
from tests.fakes.zoo import prompt_of
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
    assert "git is installed" in out
    assert "pytest is installed" in out
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
        "✗ No provider can be used: pydantic_ai is not installed. In a checkout of GraphBus, run `pip install '.[llm]'`"
        in out
    )
    assert out.count("OPENROUTER_API_KEY is not set") == 1


def test_a_library_that_some_providers_need_names_these(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "find_spec", lambda name: None if name == "anthropic" else object())
    assert main(["doctor"]) == 0
    assert "✗ None of anthropic can be used: anthropic is not installed." in capsys.readouterr().out


def test_a_model_that_cannot_be_asked_is_status_5(here: Path, capsys: Streams) -> None:
    assert main(["doctor", "--model", "anthropic"]) == 5
    assert "✗ It cannot be used: anthropic: ANTHROPIC_API_KEY is not set." in capsys.readouterr().out


def vote(request: Request) -> Answer:
    """A scripted model: it answers the minimal request with a word, and an evaluation with a vote."""
    prompt = prompt_of(request) if request.system else None
    return Answer(agreeable(prompt) if prompt else "ok", piece_delay_s=0.03)


@pytest.mark.slow
def test_a_test_asks_a_minimal_request_and_then_one_real_evaluation(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(vote) as server:
        use(server, here, monkeypatch)
        assert main(["doctor", "--test"]) == 0
        out = capsys.readouterr().out
        assert re.search(r"^✓ +stub +test-model +by the settings +STUB_API_KEY is set$", out, re.MULTILINE)
        assert "✓ stub:test-model answered in " in out
        assert "tokens in, 1 out, " in out
        assert "A million tokens cost at most $2 in and $10 out." in out
        assert (
            "✓ stub:test-model was understood: asked for the vote of Stock of a built-in example, it answered `accept`."
            in out
        )
        assert "It says nothing about the quality" in out
        assert "A usual session" not in out
        assert main(["doctor", "--test", "stub:other", "--json"]) == 0
    tested = json.loads(capsys.readouterr().out)["test"]
    assert (tested["model"], tested["first_call"]["model"]) == ("stub:other", "stub:other")
    assert (tested["is_understood"], tested["vote"], tested["unusable"], tested["reason"]) == (True, "accept", [], "")
    assert (tested["is_about_project"], tested["expected"]) == (False, None)
    assert [request.model for request in server.requests] == ["test-model", "test-model", "other", "other"]
    assert not (here / ".graphbus").exists(), "there is no project whose session could be expected"


@pytest.mark.slow
def test_the_question_is_about_the_project_and_its_session_can_then_be_planned(
    tmp_path: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_zoo(tmp_path / "zoo")
    monkeypatch.chdir(root)
    with ModelServer(vote) as server:
        use(server, root, monkeypatch)
        assert main(["doctor", "--test", "--json"]) == 0
    tested = json.loads(capsys.readouterr().out)["test"]
    question = prompt_of(server.requests[-1])
    assert asked_in(question).task == "evaluate"
    assert asked_in(question).agent == tested["voter"]
    assert "+    def _name_in_log" in data_in(question, "diff of P001")
    assert tested["is_about_project"]
    assert tested["speed"]["write_per_s"] == pytest.approx(tested["output_tokens"] / 0.09, rel=0.6)
    assert 0 < tested["expected"]["seconds"] < 600
    assert tested["speed"]["answer_tokens"] == tested["output_tokens"]
    assert 0 < tested["expected"]["cost_usd"] < 2
    assert main(["negotiate", "agents", "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["expected"] == tested["expected"]
    assert subprocess.run(["git", "init", "-q", "."], check=True, cwd=root).returncode == 0
    seen = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], check=True, cwd=root, capture_output=True, text=True
    )
    assert ".graphbus" not in seen.stdout


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["Sure, it looks good to me!", "## evaluation P007\ndecision: accept\n", ""])
def test_an_answer_that_is_not_understood_is_told_with_its_reason(
    answer: str, here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(lambda request: Answer(answer if request.system else "ok")) as server:
        use(server, here, monkeypatch)
        assert main(["doctor", "--test"]) == 5
        out = capsys.readouterr().out
        assert "[AGENT] Stock: unusable answer, asked again (evaluate P001): " in out
        assert "[AGENT] Stock: second unusable answer (evaluate P001): " in out
        assert "✗ stub:test-model was not understood: asked for the vote of Stock of a built-in example" in out
        assert re.search(r"^  why: +stub:test-model gave no usable answer in two attempts\. ", out, re.MULTILINE)
        assert main(["doctor", "--test", "--json"]) == 5
    tested = json.loads(capsys.readouterr().out)["test"]
    assert (tested["is_understood"], tested["vote"], len(tested["unusable"])) == (False, None, 2)
    assert tested["reason"]


@pytest.mark.slow
def test_of_a_program_that_prints_garbage_no_speed_is_told(
    tmp_path: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_zoo(tmp_path / "zoo")
    monkeypatch.chdir(root)
    assert main(["doctor", "--test", "command:echo garbage"]) == 5
    out = capsys.readouterr().out
    assert "was not understood" in out
    for told in (" a second", "measured speed", "larger model"):
        assert told not in out
    assert "Let the program print only the answer" in out


@pytest.mark.slow
def test_an_answer_that_is_understood_after_it_was_sent_back_is_said_to_be(
    here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(request: Request) -> Answer:
        return vote(request) if len(request.messages) != 1 or not request.system else Answer("Looks good!")

    with ModelServer(say) as server:
        use(server, here, monkeypatch)
        assert main(["doctor", "--test"]) == 0
    assert "was understood after its first answer was sent back: " in capsys.readouterr().out
    assert len(server.requests) == 3


@pytest.mark.slow
def test_a_program_is_asked_the_evaluation_only(
    tmp_path: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vote = "## evaluation P001\\ndecision: reject\\nreasoning: No."
    code = f"import sys; assert 'evaluate P001' in sys.stdin.read(); print('{vote}')"
    program = f"command:{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    assert main(["doctor", "--test", program, "--json"]) == 0
    tested = json.loads(capsys.readouterr().out)["test"]
    assert (tested["vote"], tested["first_call"], tested["unusable"]) == ("reject", None, [])
    assert main(["doctor", "--test", "command:false"]) == 5
    out = capsys.readouterr().out
    assert "The program false failed with exit status 1" in out
    assert "did not answer" in out
    assert "A larger model" not in out, "it is no fault of the format"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nobody listens", "nothing is ever said", "no such model", "a page of HTML"])
def test_a_dead_server_or_a_wrong_model_is_told_within_fifteen_seconds(
    kind: str, here: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    scripts: dict[str, Script] = {
        "nothing is ever said": lambda _request: Answer("ok", delay_s=PATIENCE_S),
        "no such model": lambda request: Failure(404, f"model '{request.model}' not found"),
        "a page of HTML": lambda _request: Broken("json"),
    }
    with ModelServer(scripts.get(kind)) as server:
        use(server, here, monkeypatch)
        if kind == "nobody listens":
            write_project(
                here, {"pyproject.toml": (here / "pyproject.toml").read_text().replace(f":{server.port}", ":9")}
            )
        begun_s = time.monotonic()
        assert main(["doctor", "--test"]) == 5
        seconds = time.monotonic() - begun_s
    err = capsys.readouterr().err
    code = {"nobody listens": "GBE446", "nothing is ever said": "GBE456", "no such model": "GBE443"}.get(kind, "GBE449")
    assert f"[{code}]" in err
    limit_s = re.search(r"within (\d+) s", err)
    assert limit_s is None or int(limit_s[1]) <= 10  # what it waits for; the rest is this machine, however busy it is
    figure(f"seconds until a word: {kind}", f"{seconds:.1f}")


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
