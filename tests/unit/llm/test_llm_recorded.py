"""Answers that are kept and given again, tabs, and clients that save money."""

from __future__ import annotations

import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.attempts import Amount, RetryingClient, Tab, current_tab, priced, tab_open, watch, worst_request
from graphbus_core.llm.client import Bound, Completion, Price, Prompt, ScriptedClient
from graphbus_core.llm.recorded import (
    AnswerCache,
    RecordedClient,
    Tape,
    TapedClient,
    WarmingClient,
    decode_answers,
)

PROMPT = Prompt(shared="who", task="what")


def refuse(**fields: bool) -> ScriptedClient:
    def speak(_prompt: Prompt) -> str:
        raise ModelError("GBE448", provider="x", reason="chance", **fields)

    return ScriptedClient(speak, price=Price(1.0, 1.0))


def taped(path: Path, client: ScriptedClient) -> tuple[Tape, TapedClient]:
    tape = Tape()
    tape.write_to(path)
    return tape, TapedClient(RetryingClient(client, 1, 0, 1, on_attempt=watch(client.price)), tape)


def test_answers_to_the_same_request_are_given_again_in_their_order(tmp_path: Path) -> None:
    path, texts = tmp_path / "answers.jsonl", iter(["one", "two"])
    tape, client = taped(path, ScriptedClient(lambda _prompt: next(texts)))
    assert [client.complete(PROMPT, 10).text for _ in range(2)] == ["one", "two"]
    tape.close()
    assert b"what" not in path.read_bytes(), "no prompt is kept"
    again = Tape()
    again.rewind(decode_answers(path.read_bytes()))
    replayed = TapedClient(RecordedClient("scripted:test"), again)
    assert [replayed.complete(PROMPT, 10).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ModelError, match="holds no answer of scripted:test") as failure:
        replayed.complete(PROMPT, 10)
    assert failure.value.is_final
    assert (replayed.price, client.price) == (None, Price(0.0, 0.0))
    replayed.close()


def test_a_failure_is_given_again_with_what_it_may_have_cost(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, refuse(may_be_billed=True))
    with tab_open(Tab()) as first, pytest.raises(ModelError):
        client.complete(PROMPT, 10)
    tape.close()
    again = Tape()
    again.rewind(decode_answers(path.read_bytes()))
    with tab_open(Tab()) as second, pytest.raises(ModelError, match="broke off: chance"):
        TapedClient(RecordedClient("scripted:test"), again).complete(PROMPT, 10)
    assert first.spent == first.lost == second.lost == priced(worst_request(PROMPT, 10), Price(1.0, 1.0))


def test_what_ends_a_session_is_not_kept_for_it_may_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, refuse(is_final=True))
    with pytest.raises(ModelError):
        client.complete(PROMPT, 10)
    tape.close()
    assert path.read_bytes() == b""


def test_a_line_that_was_cut_off_is_left_out_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, ScriptedClient(lambda _prompt: "one"))
    client.complete(PROMPT, 10)
    tape.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert len(decode_answers(path.read_bytes())) == 1
    tape, client = taped(path, ScriptedClient(lambda _prompt: "two"))
    client.complete(PROMPT, 10)
    tape.close()
    assert [answer.completion and answer.completion.text for answer in decode_answers(path.read_bytes())] == [
        "one",
        "two",
    ]


def test_an_answer_that_cannot_be_kept_ends_the_session(tmp_path: Path) -> None:
    tape = Tape()
    tape.write_to(tmp_path / "answers.jsonl")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(ModelError, match="file too large") as failure:
            TapedClient(ScriptedClient(lambda _prompt: "one"), tape).complete(PROMPT, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failure.value.is_final
    tape.close()


def test_an_attempt_that_the_budget_does_not_allow_is_not_made() -> None:
    asked: list[Prompt] = []
    client = ScriptedClient(lambda prompt: asked.append(prompt) or "one", price=Price(1.0, 1.0))  # type: ignore[func-returns-value]
    metered = TapedClient(RetryingClient(client, 3, 0, 1, on_attempt=watch(client.price)), Tape())
    with (
        tab_open(Tab(lambda worst: "" if worst.tokens < 100 else "too much")) as tab,
        pytest.raises(ModelError, match="too much"),
    ):
        metered.complete(PROMPT, 10)
    assert (asked, tab.refusal, tab.spend.requests) == ([], "too much", 0)


def test_a_tab_counts_what_was_spent_now_and_not_what_the_cache_gave() -> None:
    with tab_open(Tab()) as tab:
        current_tab().take(Completion(text="", model="m", cost_usd=0.5))
        current_tab().take(Completion(text="", model="m", is_cached=True, cost_usd=0.0))
        current_tab().take(Completion(text="", model="m"))
    spend = tab.spend
    assert (spend.requests, spend.cached, spend.unpriced, spend.cost_usd) == (3, 1, 1, 0.5)
    assert current_tab() is not tab


def test_a_price_that_is_not_known_leaves_the_tokens() -> None:
    assert priced(Bound(1, 10, 5), None) == Amount(15, 0)
    assert priced(Bound(1, 1, 0), Price(1e-7, 0.0)).nano_usd == 1, "rounded up"
    assert Amount(1, 1).minus(Amount(2, 0)) == Amount(0, 1)


def test_one_request_goes_ahead_where_the_provider_caches_prefixes() -> None:
    running, most, lock = [0], [0, 0], threading.Lock()
    answered = threading.Event()

    def speak(_prompt: Prompt) -> str:
        with lock:
            running[0] += 1
            most[answered.is_set()] = max(most[answered.is_set()], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        answered.set()
        return "yes"

    client = WarmingClient(ScriptedClient(speak))
    long = Prompt(shared="x" * 5000, task="what")
    threads = [threading.Thread(target=client.complete, args=(long, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 3]
    assert client.complete(PROMPT, 10).text == "yes"
    assert (client.model, client.price) == ("scripted:test", Price(0.0, 0.0))
    client.close()


def test_a_dry_run_reads_the_cache_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    model = ScriptedClient(lambda _prompt: "fresh")
    peeking = TapedClient(model, Tape(), AnswerCache(model.model, tmp_path, is_read_only=True))
    assert peeking.complete(PROMPT, 10).text == "fresh"
    assert list(tmp_path.iterdir()) == []
    TapedClient(model, Tape(), AnswerCache(model.model, tmp_path)).complete(PROMPT, 10)
    assert peeking.complete(PROMPT, 10).is_cached


def test_an_answer_is_on_the_tape_before_it_is_in_the_cache(tmp_path: Path) -> None:
    """Who is killed in between has paid for the answer, and the session that goes on must count it."""

    class Looking(AnswerCache):
        def keep(self, prompt: Prompt, max_output_tokens: int, completion: Completion) -> None:
            taped_then.append(decode_answers((tmp_path / "answers.jsonl").read_bytes()))
            super().keep(prompt, max_output_tokens, completion)

    taped_then: list[object] = []
    model, tape = ScriptedClient(lambda _prompt: "one"), Tape()
    tape.write_to(tmp_path / "answers.jsonl")
    client = TapedClient(model, tape, Looking(model.model, tmp_path))
    assert [client.complete(PROMPT, 10).is_cached for _ in range(2)] == [False, True]
    tape.close()
    assert [answer.key for answer in decode_answers((tmp_path / "answers.jsonl").read_bytes())][1:]
    assert len(taped_then[0]) == 1  # type: ignore[arg-type]


def test_a_full_disk_leaves_no_half_line_before_those_that_come_later(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, ScriptedClient(lambda _prompt: "x" * 3000))
    client.complete(PROMPT, 10)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
        with pytest.raises(ModelError, match="cannot be kept") as failure:
            client.complete(PROMPT, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert failure.value.is_final
    client.complete(PROMPT, 10)
    tape.close()
    assert len(decode_answers(path.read_bytes())) == 2
