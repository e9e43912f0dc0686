"""The server of the tests itself: whole answers, counts, and an end without remains."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest

from graphbus_core.model.config import Wire
from tests.fakes.model_server import Answer, Broken, ModelServer, Request
from tests.patience import PATIENCE_S

PATHS: dict[Wire, str] = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
each_wire = pytest.mark.parametrize("wire", list(PATHS))


def ask(server: ModelServer, wire: Wire, system: str, text: str) -> tuple[int, dict[str, Any]]:
    body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    if wire == "anthropic":
        body["system"] = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
    else:
        body["messages"].insert(0, {"role": "system", "content": system})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", PATHS[wire], json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_whole_answer_of_anthropic() -> None:
    with ModelServer(lambda _request: "ok", min_cache_tokens=10) as server:
        whole = [ask(server, "anthropic", "s" * 80, "t" * 40)[1] for _ in range(2)]
    assert whole[0]["content"] == [{"type": "text", "text": "ok"}]
    assert whole[0]["stop_reason"] == "end_turn"
    assert whole[0]["usage"] == {
        "input_tokens": 10,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    assert whole[1]["usage"]["cache_read_input_tokens"] == 20


def test_a_whole_answer_of_openai() -> None:
    with ModelServer(lambda _request: Answer("cut", stop="length", output_tokens=7), min_cache_tokens=128) as server:
        whole = [ask(server, "openai", "s" * 1024, "t")[1] for _ in range(2)]
    assert whole[0]["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "cut"},
        "finish_reason": "length",
    }
    assert (whole[0]["usage"]["completion_tokens"], whole[0]["usage"]["prompt_tokens_details"]["cached_tokens"]) == (
        7,
        0,
    )
    assert whole[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 256


@each_wire
def test_prefixes_below_the_least_size_are_not_cached(wire: Wire) -> None:
    with ModelServer() as server:
        usages = [ask(server, wire, "s" * 2000, "t")[1]["usage"] for _ in range(2)]
    assert usages[0] == usages[1]


@each_wire
def test_the_script_sees_what_was_asked(wire: Wire) -> None:
    def speak(request: Request) -> str:
        return f"{request.n} {request.model} {request.system} {request.last} {request.text.count('question')}"

    with ModelServer(speak) as server:
        text = json.dumps(ask(server, wire, "system", "question")[1])
    assert "1 m system question 1" in text
    assert not server.requests[0].is_streamed


@each_wire
def test_it_ends_while_an_answer_stalls_and_leaves_no_thread(wire: Wire) -> None:
    before = set(threading.enumerate())
    failures: list[Exception] = []

    def hear() -> None:
        try:
            ask(server, wire, "s", "t")
        except (OSError, http.client.HTTPException) as error:
            failures.append(error)

    with ModelServer(lambda _request: Broken("stalled")) as server:
        client = threading.Thread(target=hear)
        client.start()
        while not server.requests:
            client.join(0.01)
    client.join(PATIENCE_S)
    assert len(failures) == 1
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]
