"""The cache: a repeated request is answered without a call, and nothing of a prompt or a key is kept."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, Prompt, ScriptedClient, Turn
from graphbus_core.llm.recorded import AnswerCache, Tape, TapedClient, request_key
from graphbus_core.model.spending import Usage
from graphbus_core.store import seals

PROMPT = Prompt(shared="protocol-text", own="own-source", task="the-task", turns=(Turn("assistant", "the-turn"),))


def cache_in(folder: Path) -> AnswerCache:
    return AnswerCache("scripted:test", folder)


def client_of(folder: Path, speak: Callable[[Prompt], str | Completion]) -> tuple[TapedClient, list[Prompt]]:
    asked: list[Prompt] = []

    def watched(prompt: Prompt) -> str | Completion:
        asked.append(prompt)
        return speak(prompt)

    return TapedClient(ScriptedClient(watched), Tape(), cache_in(folder)), asked


def test_a_request_that_is_repeated_is_answered_without_asking_and_costs_nothing(tmp_path: Path) -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    answer = Completion(text="answer", model="scripted:test", usage=usage, cost_usd=1.5)
    client, asked = client_of(tmp_path, lambda _prompt: answer)
    first, second = client.complete(PROMPT, 10), client.complete(PROMPT, 10)
    assert len(asked) == 1
    assert (first.is_cached, first.cost_usd) == (False, 1.5)
    assert (second.is_cached, second.cost_usd, second.text, second.usage) == (True, 0.0, "answer", usage)
    assert cache_in(tmp_path).lookup(PROMPT, 10) == second


@pytest.mark.parametrize(
    "other",
    [
        Prompt(shared="protocol-text", own="own-source", task="the-task"),
        Prompt(shared="protocol-textown-source", own="", task="the-task", turns=PROMPT.turns),
        Prompt(shared="protocol-text", own="own-source", task="the-task", turns=(Turn("user", "the-turn"),)),
    ],
)
def test_another_prompt_is_another_request(tmp_path: Path, other: Prompt) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(PROMPT, 10)
    client.complete(other, 10)
    assert len(asked) == 2


def test_model_and_parameters_belong_to_the_request() -> None:
    keys = {
        request_key("a:x", {"max_output_tokens": 10}, PROMPT),
        request_key("a:y", {"max_output_tokens": 10}, PROMPT),
        request_key("a:x", {"max_output_tokens": 11}, PROMPT),
        request_key("a:x", {"max_output_tokens": 10, "other": 1}, PROMPT),
    }
    assert len(keys) == 4
    assert request_key("a:x", {"a": 1, "b": 2}, PROMPT) == request_key("a:x", {"b": 2, "a": 1}, PROMPT)


@pytest.mark.parametrize("stop", ["length", "refusal"])
def test_what_is_no_whole_answer_is_not_kept(tmp_path: Path, stop: str) -> None:
    answer = Completion(text="cut", model="scripted:test", stop=stop)  # type: ignore[arg-type]
    client, asked = client_of(tmp_path, lambda _prompt: answer)
    client.complete(PROMPT, 10)
    client.complete(PROMPT, 10)
    assert len(asked) == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_failures_and_empty_answers_are_not_kept(tmp_path: Path) -> None:
    answers = iter([ModelError("GBE448", provider="stub", reason="cut"), " \n", "whole"])

    def speak(_prompt: Prompt) -> str:
        answer = next(answers)
        if isinstance(answer, ModelError):
            raise answer
        return answer

    client, asked = client_of(tmp_path, speak)
    with pytest.raises(ModelError):
        client.complete(PROMPT, 10)
    assert [client.complete(PROMPT, 10).text for _ in range(3)] == [" \n", "whole", "whole"]
    assert len(asked) == 3


@pytest.mark.parametrize("damage", [b"", b"\x00", b"{}", b"\x94\xa1x\xa1y\xa1z\x80"])
def test_a_damaged_entry_is_ignored_and_written_anew(tmp_path: Path, damage: bytes) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(PROMPT, 10)
    (entry,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    good = entry.read_bytes()
    entry.write_bytes(damage)
    assert client.complete(PROMPT, 10).text == "answer"
    assert len(asked) == 2
    assert entry.read_bytes() == good


def test_an_entry_in_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(PROMPT, 10)
    (entry,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    client.complete(PROMPT, 11)
    (other,) = [path for path in tmp_path.rglob("*") if path.is_file() and path != entry]
    other.write_bytes(entry.read_bytes())
    client.complete(PROMPT, 11)
    assert len(asked) == 3


def test_nothing_of_the_prompt_is_kept(tmp_path: Path) -> None:
    client, _asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(PROMPT, 10)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"answer" in kept
    for part in (b"protocol-text", b"own-source", b"the-task", b"the-turn"):
        assert part not in kept


def test_a_folder_that_cannot_be_written_costs_the_cache_and_not_the_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client, asked = client_of(tmp_path / "file", lambda _prompt: "answer")
    assert [client.complete(PROMPT, 10).text for _ in range(2)] == ["answer", "answer"]
    assert len(asked) == 2


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]


def test_an_entry_that_somebody_else_has_written_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    client_of(tmp_path / "cache", lambda _prompt: "accept everything")[0].complete(PROMPT, 10)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    client, asked = client_of(tmp_path / "cache", lambda _prompt: "answer")
    assert client.complete(PROMPT, 10).text == "answer"
    assert (client.complete(PROMPT, 10).text, len(asked)) == ("answer", 1)
    (key,) = (tmp_path / "mine").rglob("*.key")
    assert key.stat().st_mode & 0o777 == 0o600
    (entry,) = _entries(tmp_path / "cache")
    entry.write_bytes(entry.read_bytes().replace(b"answer", b"accept"))
    assert cache_in(tmp_path / "cache").lookup(PROMPT, 10) is None


@pytest.mark.parametrize("made", ["link", "pipe", "folder", "large"])
def test_an_entry_that_is_no_file_of_a_sensible_size_is_not_read(
    tmp_path: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer")
    client.complete(PROMPT, 10)
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
        monkeypatch.setattr("graphbus_core.store.cache.MOST_CACHED_BYTES", len(good) - 1)
        entry.write_bytes(good)
    assert client.complete(PROMPT, 10).text == "answer"
    assert len(asked) == 2


@pytest.mark.parametrize("state", ["a file", "a damaged key", "a link"])
def test_without_a_key_of_its_own_the_cache_lasts_as_long_as_the_process(
    tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "state"
    if state == "a file":
        place.write_text("")
    else:
        (place / "graphbus").mkdir(parents=True)
        key = place / "graphbus" / "cache.key"
        key.write_bytes(b"short") if state == "a damaged key" else key.symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    client, asked = client_of(tmp_path / "cache", lambda _prompt: "answer")
    assert [client.complete(PROMPT, 10).text for _ in range(2)] == ["answer", "answer"]
    assert len(asked) == 1
    seals._forgotten_secret.cache_clear()  # as in another process
    assert cache_in(tmp_path / "cache").lookup(PROMPT, 10) is None


def test_a_full_disk_costs_the_cache_and_leaves_nothing_behind(tmp_path: Path) -> None:
    client, asked = client_of(tmp_path, lambda _prompt: "answer" * 10_000)
    cache_in(tmp_path).lookup(PROMPT, 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        assert len({client.complete(PROMPT, 10).text for _ in range(2)}) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(asked) == 2
    assert _entries(tmp_path) == []
