"""Answers that are kept and given again, tabs, and clients that save money."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.attempts import RetryingClient
from graphbus_core.llm.budget import Bill, current_bill, price_worst_case, worst_case_of_request
from graphbus_core.llm.client import Completion, FollowUp, ModelPrompt, RecordedClient, ScriptedClient
from graphbus_core.llm.recorded import (
    AnswerCache,
    Tape,
    TapedClient,
    WarmingClient,
    decode_answers,
    request_key,
)
from graphbus_core.model.spending import Price, Usage
from tests.patience import PATIENCE_S

PROMPT = ModelPrompt(shared="who", task="what")


def refuse(**fields: bool) -> ScriptedClient:
    def speak(_prompt: ModelPrompt) -> str:
        raise ModelError("GBE448", provider="x", reason="chance", **fields)

    return ScriptedClient(speak, price=Price(1.0, 1.0))


def taped(path: Path, client: ScriptedClient) -> tuple[Tape, TapedClient]:
    tape = Tape()
    tape.write_to(path)
    return tape, TapedClient(RetryingClient(client, 1, 0, 1), tape)


def test_answers_to_the_same_request_are_given_again_in_their_order(tmp_path: Path) -> None:
    path, texts = tmp_path / "answers.jsonl", iter(["one", "two"])
    tape, client = taped(path, ScriptedClient(lambda _prompt: next(texts)))
    assert [client.complete(PROMPT, 10).text for _ in range(2)] == ["one", "two"]
    tape.close()
    assert b"what" not in path.read_bytes(), "no prompt is kept"
    again = Tape()
    again.load(decode_answers(path.read_bytes()))
    replayed = TapedClient(RecordedClient("scripted:test"), again)
    assert [replayed.complete(PROMPT, 10).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ModelError, match="contains no answer from scripted:test") as failure:
        replayed.complete(PROMPT, 10)
    assert failure.value.is_final
    assert (replayed.price, client.price) == (None, Price(0.0, 0.0))
    replayed.close()


def test_a_failure_is_given_again_with_what_it_may_have_cost(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, refuse(may_be_billed=True))
    with Bill().running() as first, pytest.raises(ModelError):
        client.complete(PROMPT, 10)
    tape.close()
    again = Tape()
    again.load(decode_answers(path.read_bytes()))
    with Bill().running() as second, pytest.raises(ModelError, match="was cut off: chance"):
        TapedClient(RecordedClient("scripted:test"), again).complete(PROMPT, 10)
    assert (
        first.spent == first.lost == second.lost == price_worst_case(worst_case_of_request(PROMPT, 10), Price(1.0, 1.0))
    )


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


def test_a_bill_counts_what_was_spent_now_and_not_what_the_cache_gave() -> None:
    with Bill().running() as bill:
        current_bill().add_answer(Completion(text="", model="m", cost_usd=0.5))
        current_bill().add_answer(Completion(text="", model="m", is_cached=True, cost_usd=0.0))
        current_bill().add_answer(Completion(text="", model="m"))
    spend = bill.spend
    assert (spend.requests, spend.cached, spend.unpriced, spend.cost_usd) == (3, 1, 1, 0.5)
    assert current_bill() is not bill


def test_one_request_goes_ahead_where_the_provider_caches_prefixes() -> None:
    long = ModelPrompt(shared="x" * 5000, task="what")
    ahead: list[ModelPrompt] = []
    answered, together = threading.Event(), threading.Barrier(3)

    def speak(prompt: ModelPrompt) -> str:
        if prompt == long and answered.is_set():
            together.wait(PATIENCE_S)  # the others are asked at the same time
        elif prompt == long:
            ahead.append(prompt)
            time.sleep(0.05)
            answered.set()
        return "yes"

    client = WarmingClient(ScriptedClient(speak))
    threads = [threading.Thread(target=client.complete, args=(long, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ahead), together.broken) == (1, False)
    assert client.complete(PROMPT, 10).text == "yes"
    assert (client.model, client.price) == ("scripted:test", Price(0.0, 0.0))
    client.close()


def test_a_dry_run_reads_the_cache_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    model = ScriptedClient(lambda _prompt: "fresh")
    peeking = TapedClient(model, Tape(), AnswerCache(tmp_path, is_read_only=True))
    assert peeking.complete(PROMPT, 10).text == "fresh"
    assert list(tmp_path.iterdir()) == []
    TapedClient(model, Tape(), AnswerCache(tmp_path)).complete(PROMPT, 10)
    assert peeking.complete(PROMPT, 10).is_cached


def test_a_full_disk_leaves_no_half_line_before_those_that_come_later(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    tape, client = taped(path, ScriptedClient(lambda _prompt: "x" * 3000))
    client.complete(PROMPT, 10)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
        with pytest.raises(ModelError, match="cannot be saved") as failure:
            client.complete(PROMPT, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert failure.value.is_final
    client.complete(PROMPT, 10)
    tape.close()
    assert len(decode_answers(path.read_bytes())) == 2


# --- the cache: nothing of a prompt or a key is kept ------------------------------------------

ASKED = ModelPrompt(
    shared="protocol-text", own="own-source", task="the-task", turns=(FollowUp("assistant", "the-turn"),)
)


def cache_in(folder: Path) -> AnswerCache:
    return AnswerCache(folder)


def client_of(folder: Path, speak: Callable[[ModelPrompt], str | Completion]) -> tuple[TapedClient, list[ModelPrompt]]:
    asked: list[ModelPrompt] = []

    def watched(prompt: ModelPrompt) -> str | Completion:
        asked.append(prompt)
        return speak(prompt)

    return TapedClient(ScriptedClient(watched), Tape(), cache_in(folder)), asked


def test_a_request_that_is_repeated_is_answered_without_asking_and_costs_nothing(tmp_path: Path) -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    answer = Completion(text="answer", model="scripted:test", usage=usage, cost_usd=1.5)
    client, asked = client_of(tmp_path, lambda _prompt: answer)
    first, second = client.complete(ASKED, 10), client.complete(ASKED, 10)
    assert len(asked) == 1
    assert (first.is_cached, first.cost_usd) == (False, 1.5)
    assert (second.is_cached, second.cost_usd, second.text, second.usage) == (True, 0.0, "answer", usage)
    assert cache_in(tmp_path).lookup(request_key("scripted:test", 10, ASKED)) == second


def test_all_that_decides_about_an_answer_belongs_to_the_request() -> None:
    others = [
        ModelPrompt(shared="protocol-text", own="own-source", task="the-task"),
        ModelPrompt(shared="protocol-textown-source", own="", task="the-task", turns=ASKED.turns),
        ModelPrompt(shared="protocol-text", own="own-source", task="the-task", turns=(FollowUp("user", "the-turn"),)),
    ]
    keys = {request_key("a:x", 10, ASKED), request_key("a:y", 10, ASKED), request_key("a:x", 11, ASKED)}
    assert len(keys | {request_key("a:x", 10, other) for other in others}) == 6


@pytest.mark.parametrize(("stop", "text"), [("length", "cut"), ("refusal", "cut"), ("end", " \n")])
def test_what_is_no_whole_answer_is_not_kept(tmp_path: Path, stop: str, text: str) -> None:
    answer = Completion(text=text, model="scripted:test", stop=stop)  # type: ignore[arg-type]
    client, asked = client_of(tmp_path, lambda _prompt: answer)
    client.complete(ASKED, 10)
    client.complete(ASKED, 10)
    assert len(asked) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", [b"", b"\x00", b"{}", b"\x94\xa1x\xa1y\xa1z\x80"])
def test_a_damaged_entry_is_ignored_and_written_anew(tmp_path: Path, damage: bytes) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(ASKED, 10)
    (entry,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    good = entry.read_bytes()
    entry.write_bytes(damage)
    assert client.complete(ASKED, 10).text == "answer"
    assert len(asked) == 2
    assert entry.read_bytes() == good


def test_nothing_of_the_prompt_is_kept(tmp_path: Path) -> None:
    client, _asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(ASKED, 10)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"answer" in kept
    for part in (b"protocol-text", b"own-source", b"the-task", b"the-turn"):
        assert part not in kept


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]


def test_an_entry_that_somebody_else_has_written_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    client_of(tmp_path / "cache", lambda _prompt: "accept everything")[0].complete(ASKED, 10)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    client, asked = client_of(tmp_path / "cache", lambda _prompt: "answer")
    assert client.complete(ASKED, 10).text == "answer"
    assert (client.complete(ASKED, 10).text, len(asked)) == ("answer", 1)
    (key,) = (tmp_path / "mine").rglob("*.key")
    assert key.stat().st_mode & 0o777 == 0o600
    (entry,) = _entries(tmp_path / "cache")
    entry.write_bytes(entry.read_bytes().replace(b"answer", b"accept"))
    assert cache_in(tmp_path / "cache").lookup(request_key("scripted:test", 10, ASKED)) is None


@pytest.mark.parametrize("made", ["link", "pipe", "folder", "large"])
def test_an_entry_that_is_no_file_of_a_sensible_size_is_not_read(
    tmp_path: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(ASKED, 10)
    (entry,) = _entries(tmp_path)
    good = entry.read_bytes()
    entry.unlink()
    if made == "link":
        (tmp_path / "elsewhere").write_bytes(good)
        entry.symlink_to(tmp_path / "elsewhere")
    elif made == "pipe":
        os.mkfifo(entry)
    elif made == "folder":
        entry.mkdir()
    else:
        monkeypatch.setattr("graphbus_core.store.cache._MOST_CACHED_BYTES", len(good) - 1)
        entry.write_bytes(good)
    assert client.complete(ASKED, 10).text == "answer"
    assert len(asked) == 2
