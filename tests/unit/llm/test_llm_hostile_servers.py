"""Servers that send too much, too little, or what a budget and a key must not see: over the real libraries."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm import remote, sdk
from graphbus_core.llm.client import Completion, Price, Prompt
from graphbus_core.llm.opening import open_client
from graphbus_core.model.config import Wire
from graphbus_core.model.spending import Usage
from tests.fakes.model_server import KEY, Answer, Broken, ModelServer, Raw, Reply
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow  # the libraries take two seconds to import
WIRES: tuple[Wire, ...] = ("anthropic", "openai")
each_wire = pytest.mark.parametrize("wire", WIRES)
PROMPT = Prompt(shared="p" * 400, task="t" * 4)
ESTIMATED = Usage(input_tokens=101, output_tokens=2)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def ask(stack: ExitStack, reply: Reply, wire: Wire = "openai", **settings: Any) -> Completion:
    server = stack.enter_context(ModelServer(lambda _request: reply))
    config = server.config(wire, max_attempts=1, timeout_s=PATIENCE_S, **settings)
    client = open_client(config.model, config, server.environ)
    stack.callback(client.close)
    return client.complete(PROMPT, 100)


def refused(stack: ExitStack, reply: Reply, wire: Wire = "openai") -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(stack, reply, wire)
    return caught.value


def chunks(*usage: dict[str, Any], text: str = "hello") -> Raw:
    """An answer on the wire of OpenAI, with what the server says it has counted."""
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    events = [frame | {"choices": [choice]} for choice in choices]
    events += [frame | {"choices": [], "usage": counted} for counted in usage]
    body = "".join(f"data: {event}\n\n" for event in [*map(json.dumps, events), "[DONE]"])
    return Raw(HEAD + b"\r\n" + body.encode())


# --- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [
        [],
        [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}],
        [{"prompt_tokens": -5000, "completion_tokens": -7, "total_tokens": -5007}],
        [{"prompt_tokens": "many", "completion_tokens": None, "total_tokens": 5}],
    ],
)
def test_what_a_server_does_not_count_is_estimated_so_that_no_answer_is_free(
    stack: ExitStack, usage: list[dict[str, Any]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = ask(stack, chunks(*usage), input_usd=1.0, output_usd=2.0)
    assert (answer.text, answer.usage, answer.cost_usd) == ("hello", ESTIMATED, pytest.approx(105e-6))


@each_wire
def test_the_counts_of_a_server_that_counts_are_taken_as_they_are(stack: ExitStack, wire: Wire) -> None:
    given = {"anthropic": 101, "openai": 105}[wire]  # the stub counts roles there as well
    assert ask(stack, Answer("hello", output_tokens=77), wire).usage == Usage(input_tokens=given, output_tokens=77)


def test_an_impossible_count_stays_a_number_that_can_be_written(stack: ExitStack) -> None:
    counted = {"prompt_tokens": 10**30, "completion_tokens": 7, "total_tokens": 5}
    assert ask(stack, chunks(counted)).usage == Usage(input_tokens=10**12, output_tokens=7)


def test_no_more_can_have_been_cached_than_was_sent(stack: ExitStack) -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}}
    usage = ask(stack, chunks(counted | {"total_tokens": 12})).usage
    assert usage == Usage(input_tokens=5, cache_read_tokens=5, output_tokens=7)


def test_a_call_that_the_table_of_prices_cannot_reckon_costs_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "cost_of", lambda *_: None)
    price = Price(1.0, 2.0)
    client = remote.RemoteClient(
        sdk.Provider("p", "openai", "https://x"), "m", "", 1.0, price=price, has_known_price=True
    )
    assert client._cost(Usage(input_tokens=1_000_000, output_tokens=1_000_000)) == 3.0


# --- size ----------------------------------------------------------------------------------------


ENDLESS = {
    "a line": Raw(HEAD + b"\r\ndata: ", b"z" * 100_000, 100),
    "comments": Raw(HEAD + b"\r\n", b": ping\n\n" * 10_000, 100),
    "calls of tools": Raw(
        HEAD + b"\r\n",
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        b'{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"sh","arguments":"'
        + b"q" * 100_000
        + b'"}}]}}]}\n\n',
        100,
    ),
    "an error": Raw(b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\r\n", b"z" * 100_000, 100),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_whatever_has_no_end_is_refused_before_it_fills_the_memory(
    what: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "MAX_WIRE_BYTES", 500_000)
    error = refused(stack, ENDLESS[what])
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE450", False, True)


def test_nothing_is_unpacked(stack: ExitStack) -> None:
    bomb = gzip.compress(b"data: " + b"x" * 5_000_000, 1)
    error = refused(stack, Raw(HEAD + b"content-encoding: gzip\r\n\r\n", bomb))
    assert error.is_final
    assert "compressed, which was not asked for" in error.sentence


@each_wire
def test_no_compression_is_asked_for(stack: ExitStack, wire: Wire) -> None:
    server = stack.enter_context(ModelServer())
    config = server.config(wire, max_attempts=1)
    client = open_client(config.model, config, server.environ)
    stack.callback(client.close)
    client.complete(PROMPT, 10)
    assert server.requests[0].headers["accept-encoding"] == "identity"


# --- words ---------------------------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("message", ["maximum context length is 4096 tokens", "prompt is too long: 9 tokens > 8"])
def test_a_prompt_that_is_too_long_is_refused_once_even_if_the_server_says_so_late(
    stack: ExitStack, wire: Wire, message: str
) -> None:
    error = refused(stack, Broken("error", message=message), wire)
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE444", False, True)


@each_wire
def test_a_key_that_a_server_repeats_is_not_part_of_the_answer(stack: ExitStack, wire: Wire) -> None:
    answer = ask(stack, Answer(f"## analysis\nissue: you sent {KEY}\n"), wire)
    assert answer.text == "## analysis\nissue: you sent ***\n"


@pytest.mark.parametrize("body", [b'{"error":{"message":"loading"}}', b"<html>log in</html>", b""])
def test_a_success_that_is_none_is_no_answer(stack: ExitStack, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n"
    assert refused(stack, Raw(head, body)).code in ("GBE448", "GBE449")
