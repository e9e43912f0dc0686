"""Servers on this machine: what they report about themselves, how long they may take, and how it is told that one is dead."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm.call_limits import ServerFacts, limits_of, read_facts
from graphbus_core.llm.client import ModelPrompt
from graphbus_core.llm.opening import open_client, settle_limits
from graphbus_core.llm.providers import KNOWN
from graphbus_core.llm.server_errors import describe_excess, is_model_unknown
from graphbus_core.model.config import LLMConfig, ProviderConfig
from tests.fakes.model_server import KEY, Answer, Broken, Failure, ModelServer, Raw, Reply, Request

PROMPT = ModelPrompt(shared="protocol", task="say ok")
# as llama.cpp's server answers: two slots of 4096 tokens each
LLAMA_MODELS = (
    b'{"object":"list","data":[{"id":"smollm2","owned_by":"llamacpp","meta":{"n_ctx":4096,"n_ctx_train":8192}}]}'
)
LLAMA_PROPS = (
    b'{"default_generation_settings":{"params":{"seed":1},"n_ctx":4096},"total_slots":2,"model_alias":"smollm2"}'
)
VLLM_MODELS = (
    b'{"object":"list","data":[{"id":"a","max_model_len":512},{"id":"qwen","max_model_len":32768,"root":"x"}]}'
)
LLAMA_EXCEEDED = {
    "error": {
        "code": 400,
        "message": "request (6031 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 6031,
        "n_ctx": 4096,
    }
}
VLLM_EXCEEDED = (
    "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, "
    "10000 in the completion). Please reduce the length of the messages or completion."
)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def ask(config: LLMConfig, environ: dict[str, str]) -> str:
    with closing(open_client(config.model, config, environ)) as client:
        return client.complete(PROMPT, 100).text


def failure_of(config: LLMConfig, environ: dict[str, str] | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(config, environ or {})
    return caught.value


# --- what servers report ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "models", "properties", "facts"),
    [
        ("smollm2", LLAMA_MODELS, LLAMA_PROPS, (4096, 2)),
        ("whatever", LLAMA_MODELS, b"", (4096, None)),
        ("qwen", VLLM_MODELS, b'{"detail":"Not Found"}', (32768, None)),
        ("a", VLLM_MODELS, b"", (512, None)),
        ("m", b'{"data":[{"id":"m","meta":{"n_ctx_train":8192}}]}', b"", (None, None)),
        ("m", b'{"data":[{"id":"m","max_model_len":-1}]}', b'{"total_slots":0}', (None, None)),
        ("m", b'{"data":[{"id":"m","max_model_len":"many"}]}', b'{"total_slots":100000}', (None, 64)),
        ("m", b"<html>", b"[]", (None, None)),
        ("m", b"[" * 100_000, b"{" * 100_000, (None, None)),
        ("m", b"", b"", (None, None)),
    ],
)
def test_context_and_slots_are_read_from_what_servers_really_answer(
    model: str, models: bytes, properties: bytes, facts: tuple[int | None, int | None]
) -> None:
    assert read_facts(model, models, properties) == facts


def test_a_local_server_gets_one_slot_no_chance_and_a_share_of_its_context() -> None:
    known, unknown = (limits_of(LLMConfig(), KNOWN["llamacpp"], ServerFacts(size)) for size in (4096, None))
    assert (known.max_output_tokens, known.max_prompt_tokens) == (1024, 3072)
    assert (known.temperature, known.concurrency, known.timeout_s, known.first_token_timeout_s) == (0, 1, 1200, 1800)
    assert (unknown.max_output_tokens, unknown.max_prompt_tokens) == (2048, 150_000)
    assert limits_of(LLMConfig(), KNOWN["vllm"], ServerFacts(1_000_000)).max_output_tokens == 8192
    remote = limits_of(LLMConfig(), KNOWN["anthropic"])
    assert remote == (150_000, 8192, None, 180, 600, 16)
    here = ProviderConfig(base_url="http://127.0.0.1:9")
    assert limits_of(LLMConfig(), KNOWN["openai"]._replace(base_url=here.base_url)).concurrency == 1


def test_every_limit_can_be_set() -> None:
    config = LLMConfig(
        max_prompt_tokens=1,
        max_output_tokens=2,
        temperature=0.3,
        timeout_s=4,
        first_token_timeout_s=5,
        concurrency=6,
    )
    for provider in (KNOWN["llamacpp"], KNOWN["anthropic"], None):
        assert limits_of(config, provider, ServerFacts(4096, 2)) == (1, 2, 0.3, 4, 5, 6)


def test_the_limits_of_a_negotiation_come_from_the_server_and_the_key_goes_nowhere_else(server: ModelServer) -> None:
    server.pages = {"/v1/models": (200, LLAMA_MODELS, {}), "/props": (200, LLAMA_PROPS, {})}
    found = settle_limits(server.config("openai"), server.environ | {"OPENAI_API_KEY": "other-secret"})
    assert (found.max_prompt_tokens, found.max_output_tokens, found.concurrency) == (3072, 1024, 2)
    assert {page["path"] for page in server.pages_read} == {"/v1/models", "/props"}
    assert {page["authorization"] for page in server.pages_read} == {f"Bearer {KEY}"}
    assert "other-secret" not in str(server.pages_read)
    assert settle_limits(found, {}) == found


PAGES = {
    "redirect": (302, b"", {"location": "http://127.0.0.1:9/v1/models"}),
    "error": (500, LLAMA_MODELS, {}),
    "large": (200, b" " * 2_000_000 + LLAMA_MODELS, {}),
    "compressed": (200, LLAMA_MODELS, {"content-encoding": "gzip"}),
    "no json": (200, b"<html>hello</html>", {}),
}


@pytest.mark.parametrize("page", PAGES)
def test_what_cannot_be_had_from_a_server_gives_the_defaults(server: ModelServer, page: str) -> None:
    other = server.pages
    server.pages = other | {"/v1/models": PAGES[page], "/props": PAGES[page]}
    found = settle_limits(server.config("openai"), server.environ)
    assert (found.max_prompt_tokens, found.max_output_tokens, found.concurrency) == (150_000, 2048, 1)


def test_roles_with_several_models_keep_to_the_smallest_limits(server: ModelServer) -> None:
    server.pages = {"/v1/models": (200, LLAMA_MODELS, {})}
    config = server.config("openai", proposer="openai:gpt-x", concurrency="auto")
    found = settle_limits(config, server.environ)
    assert (found.max_prompt_tokens, found.max_output_tokens, found.concurrency) == (3072, 1024, "auto")


# --- time ----------------------------------------------------------------------------------------------


def test_time_counts_from_the_first_token(server: ModelServer) -> None:
    server.script = lambda _request: Answer("all of it", delay_s=1.5)
    assert ask(server.config("openai", timeout_s=0.5), server.environ) == "all of it"


def test_requests_that_a_server_lets_wait_are_in_time(server: ModelServer) -> None:
    one_at_a_time = threading.Lock()

    def answer_one(_request: Request) -> Reply:
        with one_at_a_time:
            time.sleep(0.5)
        return Answer("ok")

    server.script = answer_one
    config = server.config("openai", timeout_s=0.4, concurrency=4, max_attempts=1)
    answers: list[str] = []
    with closing(open_client(config.model, config, server.environ)) as client:
        threads = [threading.Thread(target=lambda: answers.append(client.complete(PROMPT, 100).text)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == ["ok"] * 4
    assert len(server.requests) == 4


def test_an_answer_that_takes_too_long_after_its_first_token_is_late(server: ModelServer) -> None:
    server.script = lambda _request: Answer("a b c d e f g h", pieces=8, piece_delay_s=0.3)
    error = failure_of(server.config("openai", timeout_s=0.5, max_attempts=1), server.environ)
    assert (error.code, error.is_final) == ("GBE447", True)


def test_the_wait_for_the_first_token_has_a_limit_of_its_own(server: ModelServer) -> None:
    server.script = lambda _request: Answer("ok", delay_s=30)
    config = server.config("openai", timeout_s=20.0, first_token_timeout_s=0.5)
    error = failure_of(config, server.environ)
    assert (error.code, error.is_final) == ("GBE455", True)
    assert "did not begin its answer within 0.5 s" in error.sentence
    assert len(server.requests) == 1


# --- dead servers ------------------------------------------------------------------------------------------


@contextmanager
def port_that(behave: Callable[[socket.socket], object] | None) -> Iterator[int]:
    """A port of this machine on which each connection is handled by a function; None: nobody accepts it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if behave is not None:

            def serve(handle: Callable[[socket.socket], object]) -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection:
                        handle(connection)

            threading.Thread(target=serve, args=(behave,), daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def gone() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def config_at(port: int) -> LLMConfig:
    provider = ProviderConfig(base_url=f"http://127.0.0.1:{port}/v1")
    return LLMConfig(model="own:m", providers={"own": provider})


DEAD: dict[str, tuple[Callable[[socket.socket], object] | None, str]] = {
    "accepts nothing": (None, "GBE446"),
    "is another program": (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"), "GBE446"),
    "hangs up": (lambda connection: connection.recv(10), "GBE446"),
    "is a web page": (
        lambda connection: (
            connection.recv(65536),
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>"),
        ),
        "GBE449",
    ),
}


@pytest.mark.parametrize("how", DEAD)
def test_a_server_that_is_none_is_told_in_a_few_seconds(how: str) -> None:
    behave, code = DEAD[how]
    with port_that(behave) as port:
        start_s = time.monotonic()
        error = failure_of(config_at(port))
        seconds = time.monotonic() - start_s
    assert (error.code, error.is_final) == (code, True), error
    assert seconds < 15


def test_a_port_without_a_server_is_told_in_a_few_seconds() -> None:
    start_s = time.monotonic()
    error = failure_of(config_at(gone()))
    assert (error.code, error.is_final) == ("GBE446", True)
    assert "Connection refused" in error.sentence
    assert time.monotonic() - start_s < 15


def test_a_server_that_has_answered_is_not_taken_for_dead_when_it_stumbles(server: ModelServer) -> None:
    replies: list[Reply] = [Answer("ok"), Broken("closed"), Answer("again")]
    server.script = lambda request: replies[request.n - 1]
    config = server.config("openai")
    with closing(open_client(config.model, config, server.environ)) as client:
        assert [client.complete(PROMPT, 100).text for _ in range(2)] == ["ok", "again"]


@pytest.mark.parametrize(
    "reply",
    [
        Failure(404, "model 'nosuch' not found"),
        Failure(404, "The model `nosuch` does not exist."),
        Failure(400, "Model nosuch does not exist"),
        Failure(400, "unknown model: nosuch"),
        Failure(400, "No such model: nosuch"),
        Failure(400, 'model "nosuch" is not loaded'),
    ],
    ids=lambda reply: reply.message,
)
def test_a_wrong_model_ends_the_session_at_once(server: ModelServer, reply: Failure) -> None:
    server.script = lambda _request: reply
    error = failure_of(server.config("openai"), server.environ)
    assert (error.code, error.is_final, len(server.requests)) == ("GBE443", True, 1)


@pytest.mark.parametrize(
    "message", ["max_tokens must be at least 1", "temperature: unknown parameter", "bad model output"]
)
def test_other_complaints_are_not_about_the_models_name(message: str) -> None:
    assert not is_model_unknown(message)


# --- a prompt that is too long -------------------------------------------------------------------------------


def test_the_context_of_llama_cpp_is_told_with_both_numbers(server: ModelServer) -> None:
    body = json.dumps(LLAMA_EXCEEDED).encode()
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    server.script = lambda _request: Raw(head + body)
    error = failure_of(server.config("openai"), server.environ)
    assert error.code == "GBE462"
    assert "it has 6031 tokens, and the context of the model has 4096." in error.sentence
    assert not error.is_final, "prompts about other agents may be shorter"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("message", "tokens", "size"),
    [
        (VLLM_EXCEEDED, "112946", "16384"),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and "
            "your request has 2676 input tokens (8192 > 4096 - 2676).",
            "2676",
            "4096",
        ),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130012 tokens.",
            "130012",
            "128000",
        ),
        ("prompt is too long: 208310 tokens > 200000 maximum", "208310", "200000"),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that",
            "5000",
            "4096",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt contains "
            "at least 4097 input tokens, for a total of at least 4097 tokens.",
            "4097",
            "4096",
        ),
        ("the request exceeds the available context size, try increasing it", "about 4", ""),
        ("input length exceeds maximum context length", "about 4", ""),
    ],
)
def test_the_numbers_are_read_from_the_words_of_servers(message: str, tokens: str, size: str) -> None:
    shown, limit = describe_excess(RuntimeError(), message, PROMPT)
    assert shown == tokens
    assert limit == (
        f"the context of the model has {size}" if size else "the server does not say how many its context has"
    )


def test_fields_of_the_error_count_more_than_its_words() -> None:
    failure: Any = RuntimeError()
    failure.body = LLAMA_EXCEEDED
    assert describe_excess(failure, "context size of 1", PROMPT) == ("6031", "the context of the model has 4096")
