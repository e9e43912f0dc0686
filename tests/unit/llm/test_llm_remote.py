"""The libraries of the providers against a server that speaks their wire formats."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm import sdk
from graphbus_core.llm.client import Completion, FollowUp, ModelPrompt
from graphbus_core.llm.endpoint import ModelEndpoint
from graphbus_core.llm.opening import open_client
from graphbus_core.llm.providers import KNOWN, Provider
from graphbus_core.llm.sdk import RemoteClient
from graphbus_core.model.config import LLMConfig, ProviderConfig, Wire
from graphbus_core.model.spending import Usage
from tests.fakes.model_server import KEY, Answer, Broken, Failure, ModelServer, Raw, Reply, Script
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow  # the libraries take two seconds to import
WIRES: tuple[Wire, ...] = ("anthropic", "openai")
each_wire = pytest.mark.parametrize("wire", WIRES)
PROMPT = ModelPrompt(shared="protocol " * 600, own="source " * 800, task="say ok")
SHORT = ModelPrompt(shared="protocol", task="say ok")


class Asking:
    """A server and clients of it; all are closed at the end of the test."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def server(self, script: Script | list[Reply], **settings: Any) -> ModelServer:
        replies = script
        speak = script if callable(script) else lambda request: replies[min(request.n, len(replies)) - 1]  # type: ignore[index, arg-type]
        server = ModelServer(speak, **settings).__enter__()
        self._open.append(lambda: server.__exit__(None, None, None))
        return server

    def client(self, server: ModelServer, wire: Wire, **settings: Any) -> Any:
        """One attempt for each call unless the settings say otherwise."""
        config = server.config(wire, **{"max_attempts": 1, "timeout_s": 20.0, **settings})
        client = open_client(config.model, config, server.environ)
        self._open.append(client.close)
        return client

    def close(self) -> None:
        for end in reversed(self._open):
            end()


@pytest.fixture
def asking() -> Iterator[Asking]:
    every = Asking()
    yield every
    every.close()


def refused(client: Any, prompt: ModelPrompt = SHORT) -> ModelError:
    with pytest.raises(ModelError) as caught:
        client.complete(prompt, 100)
    return caught.value


@each_wire
def test_a_prompt_is_answered_piece_by_piece(asking: Asking, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphbus_core.llm.sdk._PROGRESS_EVERY_S", 0)  # else pieces that arrive at once are told as one
    heard: list[int] = []
    answer = Answer("twelve signs", pieces=4, may_go=lambda number: len(heard) == number)
    server = asking.server([answer])
    completion = asking.client(server, wire).complete(SHORT, 100, heard.append)
    assert completion.text == "twelve signs"
    assert (completion.model, completion.stop, completion.is_cached) == ("stub:test-model", "end", False)
    assert heard == [3, 6, 9, 12]
    assert server.requests[0].is_streamed
    assert server.requests[0].body["max_tokens"] == 100


@each_wire
def test_a_request_holds_the_prompt_in_its_order_and_nothing_else(asking: Asking, wire: Wire) -> None:
    server = asking.server([Answer("ok")])
    turns = (FollowUp("assistant", "an answer"), FollowUp("user", "a reply"))
    asking.client(server, wire).complete(ModelPrompt(shared="protocol", own="source", task="task", turns=turns), 100)
    request = server.requests[0]
    assert request.system == "protocol"
    first, *rest = request.messages
    assert first.text.replace("\n", "") == "sourcetask"
    assert rest == [("assistant", "an answer"), ("user", "a reply")]
    assert not {"tools", "tool_choice"} & set(request.body)
    expected = 0 if wire == "openai" else None  # models of Anthropic take none
    assert request.body.get("temperature") == expected, "a server on this machine"


@each_wire
def test_what_prompts_share_is_read_from_the_providers_cache(asking: Asking, wire: Wire) -> None:
    client = asking.client(asking.server([Answer("ok")]), wire)
    shared, own = len(PROMPT.shared) // 4, (len(PROMPT.shared) + len(PROMPT.own)) // 4
    written = [0, 0, 0]
    if wire == "anthropic":
        written = [own, 0, own - shared]
    first = client.complete(PROMPT, 100).usage
    again = client.complete(ModelPrompt(shared=PROMPT.shared, own=PROMPT.own, task="another task"), 100).usage
    other = client.complete(ModelPrompt(shared=PROMPT.shared, own="body " * 1120, task="say ok"), 100).usage
    assert [first.cache_write_tokens, again.cache_write_tokens, other.cache_write_tokens] == written
    assert first.cache_read_tokens == 0
    assert own - 128 < again.cache_read_tokens <= own + 4
    assert shared - 128 < other.cache_read_tokens <= shared
    assert first.input_tokens > own
    assert first.output_tokens == 1


def test_shared_and_own_text_end_with_a_cache_breakpoint_on_the_anthropic_wire(asking: Asking) -> None:
    server = asking.server([Answer("ok")])
    asking.client(server, "anthropic").complete(ModelPrompt(shared="protocol", own="source", task="task"), 100)
    body = server.requests[0].body
    marked = [block["text"] for block in [*body["system"], *body["messages"][0]["content"]] if "cache_control" in block]
    assert marked == ["protocol", "source"]


@each_wire
@pytest.mark.parametrize(("stop", "text"), [("length", "half an ans"), ("refusal", "")])
def test_an_answer_that_is_cut_short_or_refused_says_so(asking: Asking, wire: Wire, stop: Any, text: str) -> None:
    completion = asking.client(asking.server([Answer(text, stop=stop)]), wire).complete(SHORT, 100)
    assert (completion.stop, completion.text) == (stop, text)


def _told(value: object) -> str:
    """The same in every process, whatever order a set has there."""
    return ",".join(sorted(value)) if isinstance(value, set) else str(value)


FAILURES = [
    (Failure(401, "invalid x-api-key"), "GBE442", {"is_final"}),
    (Failure(403, "not for you"), "GBE442", {"is_final"}),
    (Failure(402, "no credit"), "GBE451", {"is_final"}),
    (Failure(404, "model: test-model"), "GBE443", {"is_final"}),
    (Failure(400, "prompt is too long"), "GBE462", set()),
    (Failure(413, "request too large"), "GBE462", set()),
    (Failure(422, "no such parameter"), "GBE444", set()),
    (Failure(302, location="http://127.0.0.1:9/"), "GBE444", {"is_final"}),
    (Failure(307, location="https://api.anthropic.com/"), "GBE444", {"is_final"}),
    (Failure(429, "slow down"), "GBE445", {"is_transient"}),
    (Failure(500, "internal"), "GBE445", {"is_transient"}),
    (Failure(503, "unavailable"), "GBE445", {"is_transient"}),
    (Failure(529, "overloaded"), "GBE445", {"is_transient"}),
    (Failure(504, "gateway"), "GBE445", {"is_transient", "may_be_billed"}),
    (Broken("error"), "GBE445", {"is_transient", "may_be_billed"}),
    (Broken("cut"), "GBE448", {"is_transient", "may_be_billed"}),
    (Broken("closed"), "GBE448", {"is_transient", "may_be_billed"}),
    (Broken("json"), "GBE449", {"is_transient", "may_be_billed"}),
]


@each_wire
@pytest.mark.parametrize(("reply", "code", "flags"), FAILURES, ids=_told)
def test_each_failure_says_whether_to_try_again_and_whether_it_may_cost(
    asking: Asking, wire: Wire, reply: Reply, code: str, flags: set[str]
) -> None:
    server = asking.server([reply])
    error = refused(asking.client(server, wire))
    assert error.code == code
    assert {name for name in ("is_final", "is_transient", "may_be_billed") if getattr(error, name)} == flags
    assert len(server.requests) == 1, "the libraries must not try again by themselves"


@each_wire
def test_a_stalled_answer_ends_at_the_time_limit(asking: Asking, wire: Wire) -> None:
    client = asking.client(asking.server([Broken("stalled")]), wire, timeout_s=0.5)
    refused(client)  # the first call may include the import
    start_s = time.monotonic()
    error = refused(client)
    assert time.monotonic() - start_s > 0.4
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE447", True, True)


@each_wire
def test_an_answer_without_end_is_refused(asking: Asking, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "MAX_ANSWER_BYTES", 100_000)
    error = refused(asking.client(asking.server([Answer("x" * 300_000, pieces=30)]), wire))
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE450", False, True)


@each_wire
def test_the_server_says_when_to_come_back_in_seconds_or_as_a_date(asking: Asking, wire: Wire) -> None:
    from email.utils import formatdate

    replies = [Failure(429, retry_after=7), Failure(503, retry_after=formatdate(time.time() + 10_000, usegmt=True))]
    client = asking.client(asking.server(list(replies)), wire)
    assert refused(client).retry_after_s == 7
    wait_s = refused(client).retry_after_s
    assert wait_s is not None
    assert 9_000 < wait_s <= 10_000


@each_wire
def test_a_server_that_is_not_there_cannot_be_reached(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    provider = ProviderConfig(base_url=f"http://127.0.0.1:{port}", wire=wire)
    config = LLMConfig(providers={"gone": provider}, max_attempts=1)
    client = open_client("gone:x", config, {})
    error = refused(client)
    client.close()
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE446", True, False)
    assert error.sentence == f"The provider `gone` cannot be reached at http://127.0.0.1:{port}: Connection refused."


# --- keys ---------------------------------------------------------------------------------


@each_wire
def test_only_the_providers_own_key_and_known_headers_leave_the_house(
    asking: Asking, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID"):
        monkeypatch.setenv(name, f"other-secret-{name}")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "other-secret-project")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Company: other-secret-header\nAuthorization: other-secret-auth")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Company: other-secret-header\nAuthorization: other-secret-auth")
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = asking.server([Answer("ok")])
    assert asking.client(server, wire).complete(SHORT, 100).text == "ok"
    sent = server.requests[0].headers
    key_headers = {name: value for name, value in sent.items() if KEY in value}
    assert key_headers == ({"x-api-key": KEY} if wire == "anthropic" else {"authorization": f"Bearer {KEY}"})
    assert not [value for value in sent.values() if "other-secret" in value]


@each_wire
def test_a_server_without_a_key_is_sent_none(asking: Asking, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = asking.server([Answer("ok")])
    config = LLMConfig(providers={"own": ProviderConfig(base_url=server.url(wire), wire=wire)})
    client = open_client("own:x", config, {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY})
    client.complete(SHORT, 100)
    client.close()
    assert not {"authorization", "x-api-key"} & set(server.requests[0].headers)
    assert KEY not in str(server.requests[0])


@each_wire
def test_a_redirect_is_not_followed_so_that_the_key_stays(asking: Asking, wire: Wire) -> None:
    other = asking.server([Answer("stolen")])
    server = asking.server([Failure(308, location=f"{other.url(wire)}/v1/messages")])
    assert "redirect (308)" in refused(asking.client(server, wire)).sentence
    assert other.requests == []


@each_wire
def test_no_key_shows_in_errors_logs_or_descriptions(
    asking: Asking, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    replies: list[Reply] = [
        Failure(401, f"Incorrect API key provided: {KEY} or sk-abcdef1234567890"),
        Failure(500, f"Bearer {KEY} failed"),
        Broken("error", message=f"with {KEY}"),
    ]
    client = asking.client(asking.server(replies), wire)
    for _ in replies:
        error = refused(client)
        shown = f"{error} {error!r} {error.data} {error.__cause__} {error.__context__}"
        assert KEY not in shown
        assert "sk-abcdef" not in shown
    assert KEY not in caplog.text
    assert KEY not in repr(client)


def test_the_guard_stops_a_request_to_another_address() -> None:
    import asyncio

    import httpx2

    provider = Provider("stub", "anthropic", "http://127.0.0.1:9/v1", "STUB_API_KEY")
    guard = sdk._RequestGuard(ModelEndpoint(provider, "m", KEY, 1.0))
    for address in ("http://127.0.0.1:10/v1", "https://127.0.0.1:9/v1", "http://localhost:9/v1"):
        with pytest.raises(sdk._Blocked):
            asyncio.run(guard.check_request(httpx2.Request("POST", address)))


# --- many, and the end --------------------------------------------------------------------


@each_wire
def test_closing_drops_what_is_under_way_and_no_call_may_follow(asking: Asking, wire: Wire) -> None:
    server = asking.server([Answer("ok"), Broken("stalled")])
    client = asking.client(server, wire, max_attempts=3)
    client.complete(SHORT, 100)
    failures: list[ModelError] = []
    thread = threading.Thread(target=lambda: failures.append(refused(client)))
    thread.start()
    while len(server.requests) < 2:
        time.sleep(0.01)
    client.close()
    thread.join(PATIENCE_S)
    assert [(error.code, error.is_final) for error in failures] == [("GBE448", True)]
    assert refused(client).code == "GBE448"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("model-")]


@each_wire
def test_the_well_known_provider_is_asked_with_the_parameters_of_its_newest_models(
    asking: Asking, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenAI itself takes `max_completion_tokens`, other servers of its protocol `max_tokens`."""
    server = asking.server([Answer("ok")])
    provider = KNOWN[wire]._replace(base_url=server.url(wire))
    client = RemoteClient(provider, provider.default_model, KEY, 20.0, price=None, has_known_price=True)
    completion = client.complete(SHORT, 100)
    client.close()
    limit = "max_completion_tokens" if wire == "openai" else "max_tokens"
    assert server.requests[0].body[limit] == 100
    assert completion.cost_usd == pytest.approx((completion.usage.input_tokens * 2 + 10) / 1e6)
    assert repr(client) == f"RemoteClient('{wire}:{provider.default_model}')"


# --- cost ---------------------------------------------------------------------------------


def test_what_was_read_from_the_providers_cache_is_cheaper() -> None:
    whole = sdk.cost_of("anthropic", "claude-sonnet-5-5", Usage(input_tokens=1000, output_tokens=100))
    read = Usage(input_tokens=1000, cache_read_tokens=900, output_tokens=100)
    written = Usage(input_tokens=1000, cache_write_tokens=900, output_tokens=100)
    costs = [sdk.cost_of("anthropic", "claude-sonnet-5-5", usage) for usage in (read, written)]
    assert whole == pytest.approx(0.003)
    assert costs == [pytest.approx(0.00129), pytest.approx(0.00345)]


# --- servers that send too much, too little, or what a budget and a key must not see -----------------

LONG = ModelPrompt(shared="p" * 400, task="t" * 4)
ESTIMATED = Usage(input_tokens=101, output_tokens=2)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def asked(asking: Asking, reply: Reply, wire: Wire = "openai", **settings: Any) -> Completion:
    client = asking.client(asking.server([reply]), wire, timeout_s=PATIENCE_S, **settings)
    return client.complete(LONG, 100)  # type: ignore[no-any-return]


def failed(asking: Asking, reply: Reply, wire: Wire = "openai") -> ModelError:
    return refused(asking.client(asking.server([reply]), wire, timeout_s=PATIENCE_S), LONG)


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
    asking: Asking, usage: list[dict[str, Any]]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = asked(asking, chunks(*usage), input_usd=1.0, output_usd=2.0)
    assert (answer.text, answer.usage, answer.cost_usd) == ("hello", ESTIMATED, pytest.approx(105e-6))


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
    what: str, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "MAX_WIRE_BYTES", 500_000)
    error = failed(asking, ENDLESS[what])
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE450", False, True)


def test_nothing_is_unpacked(asking: Asking) -> None:
    bomb = gzip.compress(b"data: " + b"x" * 5_000_000, 1)
    error = failed(asking, Raw(HEAD + b"content-encoding: gzip\r\n\r\n", bomb))
    assert error.is_final
    assert "compressed, which was not asked for" in error.sentence


# --- words ---------------------------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("message", ["maximum context length is 4096 tokens", "prompt is too long: 9 tokens > 8"])
def test_a_prompt_that_is_too_long_is_refused_once_even_if_the_server_says_so_late(
    asking: Asking, wire: Wire, message: str
) -> None:
    error = failed(asking, Broken("error", message=message), wire)
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE462", False, True)


@each_wire
def test_a_key_that_a_server_repeats_is_not_part_of_the_answer(asking: Asking, wire: Wire) -> None:
    answer = asked(asking, Answer(f"## analysis\nissue: you sent {KEY}\n"), wire)
    assert answer.text == "## analysis\nissue: you sent ***\n"


# --- the form of answers --------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["accept", "reject"]}},
    "required": ["decision"],
    "additionalProperties": False,
}
FORCED = ModelPrompt(shared="protocol", task="decide", schema=SCHEMA)


def test_a_schema_is_sent_as_the_response_format(asking: Asking) -> None:
    server = asking.server([Answer('{"decision": "accept"}')])
    client = asking.client(server, "openai")
    assert client.takes_schema
    assert client.complete(FORCED, 100).text == '{"decision": "accept"}'
    sent = server.requests[0].body["response_format"]
    assert (sent["type"], sent["json_schema"]["schema"], sent["json_schema"]["strict"]) == ("json_schema", SCHEMA, True)
    client.complete(SHORT, 100)
    assert "response_format" not in server.requests[1].body


def test_anthropic_is_sent_the_schema_where_the_model_takes_one(asking: Asking) -> None:
    server = asking.server([Answer('{"decision": "accept"}')])
    client = asking.client(server, "anthropic", model="stub:claude-sonnet-5-5")
    assert client.complete(FORCED, 100).text == '{"decision": "accept"}'
    sent = server.requests[0].body["output_config"]["format"]
    assert (sent["type"], sent["schema"]["required"]) == ("json_schema", ["decision"])
    older = asking.client(server, "anthropic", model="stub:test-model")
    assert (refused(older, FORCED).code, older.takes_schema) == ("GBE459", False)
    assert len(server.requests) == 1


def test_a_server_that_refuses_the_schema_is_asked_for_text_from_then_on(asking: Asking) -> None:
    server = asking.server([Failure(400, "unknown field response_format"), Answer("ok")])
    client = asking.client(server, "openai")
    error = refused(client, FORCED)
    assert (error.code, error.is_final, client.takes_schema) == ("GBE459", False, False)
    assert "unknown field response_format" in error.sentence
    assert client.complete(SHORT, 100).text == "ok"


def test_a_refusal_is_an_error_where_json_is_demanded(asking: Asking) -> None:
    client = asking.client(asking.server([Failure(400, "no response_format")]), "openai", answers="json")
    error = refused(client, FORCED)
    assert (error.code, error.is_final, client.takes_schema) == ("GBE459", True, True)
    assert not asking.client(asking.server([Answer("ok")]), "openai", answers="text").takes_schema


@pytest.mark.parametrize(
    "failure",
    [Failure(400, "the request exceeds the available context size"), Failure(401, "no key"), Failure(503, "busy")],
)
def test_another_failure_does_not_count_as_a_refusal(asking: Asking, failure: Failure) -> None:
    client = asking.client(asking.server([failure]), "openai")
    assert refused(client, FORCED).code != "GBE459"
    assert client.takes_schema
