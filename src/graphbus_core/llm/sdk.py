"""The only module that uses the libraries of model providers. They are imported when a model is asked, not before.

There are no tools, retries or redirects: one call is one request to one address, checked by `_RequestGuard`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple, cast

import msgspec

from graphbus_core.errors import ModelError
from graphbus_core.isolation import attempt
from graphbus_core.llm.client import Completion, LLMClient, ModelPrompt, Progress, StopReason, estimate_tokens
from graphbus_core.llm.providers import (
    MAX_ANSWER_BYTES,
    Provider,
    host_of,
    is_https,
    is_loopback,
    remove_key,
    remove_secrets,
)
from graphbus_core.model.spending import Price, Usage

MAX_WIRE_BYTES = 64_000_000
"""The largest answer on the wire: a stream wraps each few letters in some hundred bytes of JSON."""
_MAX_ERROR_BYTES = 1_000_000
_NO_KEY = "no-key"
_MOST_TOKENS = 10**12
"""More than any call can have; a larger count of a server is cut to this."""
_SIZES = (1_000, 1_000_000)
"""Sizes of prompts at which prices are looked up, because prices may rise with the size."""
_PROGRESS_EVERY_S = 0.05
"""The shortest time between two reports of progress."""
_PASSED_ON = frozenset(
    {
        *{"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"},
        *{"transfer-encoding", "anthropic-version", "anthropic-beta"},
    }
)
"""Headers that are sent, besides `x-stainless-…` and the key of the provider; all others are removed."""


def missing_package(provider: Provider) -> str:
    """Return the name of a package that is needed to ask this provider and not installed; empty when there is none."""
    for package in ("pydantic_ai", provider.wire):
        if find_spec(package) is None:
            return package
    return ""


def load_libraries(provider: Provider) -> None:
    """Import the libraries for this provider, which takes one to two seconds the first time."""
    import pydantic_ai.direct

    if provider.wire == "anthropic":
        import pydantic_ai.models.anthropic
    else:
        import pydantic_ai.models.openai  # noqa: F401


_FINAL, _AGAIN, _BILLED = "is_final", "is_transient", "may_be_billed"
"""Flags of a `ModelError`: give up, try again, the request may have been charged."""


class ModelEndpoint(NamedTuple):
    """A model at its provider, with key and timeout."""

    provider: Provider
    model: str
    key: str
    timeout_s: float

    def error(self, code: str, reason: str, *meaning: str, retry_after_s: float | None = None) -> ModelError:
        """Return the error for a failure, without the key in its reason."""
        provider, flags = self.provider, cast("dict[str, Any]", dict.fromkeys(meaning, True))
        return ModelError(
            code,
            provider=provider.name,
            model=self.model,
            variable=provider.key_env or "no variable (`key_env` is not set)",
            address=provider.base_url,
            timeout_s=self.timeout_s,
            limit_bytes=MAX_ANSWER_BYTES,
            reason=remove_secrets(reason, self.key),
            retry_after_s=retry_after_s,
            **flags,
        )

    @property
    def closed_error(self) -> ModelError:
        """The error for a call on a client that was closed before or during the call."""
        return self.error("GBE448", "the client was closed", _FINAL, _BILLED)


class ModelAnswer(NamedTuple):
    """A finished answer."""

    text: str
    usage: Usage
    stop: StopReason


class _Blocked(Exception):  # noqa: N818 - it is no error of ours
    """The guard has blocked a request or an answer."""


class _AnswerTooLong(_Blocked):
    """An answer exceeds the limit of bytes."""


def _limit_bytes(stream: Any, limit_bytes: int) -> Any:
    """Return a stream of the bytes of an answer that fails beyond a size."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left_bytes = limit_bytes
            async for data in stream:
                left_bytes -= len(data)
                if left_bytes < 0:
                    raise _AnswerTooLong("its answer is too long")
                yield data

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


class _RequestGuard:
    """Checks each request before it is sent: it goes only to the provider's own address, with no other key than its own."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        import httpx2

        self._origin = _origin(httpx2.URL(endpoint.provider.base_url))
        self._key = endpoint.key
        self._header = "x-api-key" if endpoint.provider.wire == "anthropic" else "authorization"

    async def check_answer(self, response: Any) -> None:
        """Refuse redirects and compressed answers, and limit the size of the answer."""
        if 300 <= response.status_code < 400:
            raise _Blocked(f"it answers with a redirect ({response.status_code}), which is not followed")
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise _Blocked("its answer is compressed, which was not asked for")
        response.stream = _limit_bytes(response.stream, MAX_WIRE_BYTES if response.is_success else _MAX_ERROR_BYTES)

    async def check_request(self, request: Any) -> None:
        """Refuse other addresses, remove unknown headers, and set the key of the provider."""
        if _origin(request.url) != self._origin:
            raise _Blocked("a request to another address was stopped")
        for name in list(request.headers.keys()):
            if name.lower() not in _PASSED_ON and not name.lower().startswith("x-stainless-"):
                del request.headers[name]
        request.headers["accept-encoding"] = "identity"
        if self._key:
            request.headers[self._header] = self._key if self._header == "x-api-key" else f"Bearer {self._key}"


def _origin(url: Any) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"https": 443}.get(url.scheme, 80)


class ProviderCalls:
    """The provider's library, set up for one model. Used in the thread of its event loop only."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        import ssl

        import httpx2

        self._endpoint = endpoint
        is_here = is_loopback(host_of(endpoint.provider))
        guard = _RequestGuard(endpoint)
        self._http = httpx2.AsyncClient(
            follow_redirects=False,
            trust_env=not is_here,
            verify=True
            if is_https(endpoint.provider)
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # loads no certificates
            timeout=httpx2.Timeout(endpoint.timeout_s),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            event_hooks={"request": [guard.check_request], "response": [guard.check_answer]},
        )
        make = _anthropic_model if endpoint.provider.wire == "anthropic" else _openai_model
        self._model = make(endpoint, self._http)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> ModelAnswer:
        """Ask once. Exceptions of the libraries go up; `_error_for` translates them."""
        import asyncio

        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters

        shared = [InstructionPart(content=prompt.shared)] if prompt.shared else []
        characters, reported_s = 0, 0.0
        async with asyncio.timeout(self._endpoint.timeout_s):
            async with model_request_stream(
                self._model,
                _messages(prompt, is_cached=self._endpoint.provider.wire == "anthropic"),
                model_settings=self._settings(max_output_tokens),
                model_request_parameters=ModelRequestParameters(instruction_parts=shared),
            ) as stream:
                async for event in stream:
                    text = _new_text(event)
                    characters += len(text)
                    if characters > MAX_ANSWER_BYTES:
                        raise self._endpoint.error("GBE450", "", _BILLED)
                    if progress and text and time.monotonic() - reported_s >= _PROGRESS_EVERY_S:
                        reported_s = time.monotonic()
                        progress(characters)
                response = stream.get()
        return _answer_of(response, prompt, self._endpoint)

    def _settings(self, max_output_tokens: int) -> Any:
        settings = {"max_tokens": max_output_tokens, "timeout": self._endpoint.timeout_s, "max_retries": 0}
        if self._endpoint.provider.wire == "anthropic":
            return {**settings, "anthropic_cache_instructions": True}
        return settings


def _new_text(event: Any) -> str:
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent

    if isinstance(event, PartStartEvent):
        return getattr(event.part, "content", "") or ""
    if isinstance(event, PartDeltaEvent):
        return getattr(event.delta, "content_delta", "") or ""
    return ""


def _anthropic_model(endpoint: ModelEndpoint, http: Any) -> Any:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=endpoint.key or _NO_KEY, base_url=endpoint.provider.base_url, http_client=http, max_retries=0
    )
    return AnthropicModel(endpoint.model, provider=AnthropicProvider(anthropic_client=client))


def _openai_model(endpoint: ModelEndpoint, http: Any) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        api_key=endpoint.key or _NO_KEY, base_url=endpoint.provider.base_url, http_client=http, max_retries=0
    )
    provider = OpenAIProvider(openai_client=client)
    if endpoint.provider.name == "openai" and not endpoint.provider.is_configured:
        return OpenAIChatModel(endpoint.model, provider=provider)
    profile = OpenAIModelProfile(
        openai_chat_supports_max_completion_tokens=False,
        openai_supports_prompt_cache_breakpoints=False,
        openai_system_prompt_role="system",
    )
    return OpenAIChatModel(endpoint.model, provider=provider, profile=profile)


def _messages(prompt: ModelPrompt, *, is_cached: bool) -> list[Any]:
    """The prompt in the order in which it is cached: own source, breakpoint, task, then what was said after it."""
    from pydantic_ai.messages import CachePoint, ModelRequest, ModelResponse, TextPart, UserPromptPart

    if prompt.own and is_cached:
        first = UserPromptPart(content=[prompt.own, CachePoint(), prompt.task])
    else:
        first = UserPromptPart(content="\n\n".join(text for text in (prompt.own, prompt.task) if text))
    turns = (
        ModelResponse(parts=[TextPart(content=turn.text)])
        if turn.role == "assistant"
        else ModelRequest(parts=[UserPromptPart(content=turn.text)])
        for turn in prompt.turns
    )
    return [ModelRequest(parts=[first]), *turns]


def _answer_of(response: Any, prompt: ModelPrompt, endpoint: ModelEndpoint) -> ModelAnswer:
    stops: dict[str | None, StopReason] = {"stop": "end", "length": "length", "content_filter": "refusal"}
    text = "".join(part.content for part in response.parts if part.part_kind == "text")
    if response.finish_reason not in stops:
        raise endpoint.error("GBE448", "it did not end", _AGAIN, _BILLED)
    return ModelAnswer(text, _usage_of(response.usage, prompt, text), stops[response.finish_reason])


def _usage_of(counted: Any, prompt: ModelPrompt, answer: str) -> Usage:
    """Return the usage of a call. Tokens that the server does not count are estimated by length, so that budgets hold."""
    given = _plausible(counted.input_tokens) or estimate_tokens(*prompt.texts)
    read = min(_plausible(counted.cache_read_tokens), given)
    return Usage(
        input_tokens=given,
        cache_read_tokens=read,
        cache_write_tokens=min(_plausible(counted.cache_write_tokens), given - read),
        output_tokens=_plausible(counted.output_tokens) or estimate_tokens(answer),
    )


def _plausible(count: int) -> int:
    return max(0, min(count, _MOST_TOKENS))


# --- one model of one provider ------------------------------------------------------------


class RemoteClient(LLMClient):
    """Asks one model of one provider through the provider's own asynchronous library. May be called from several threads.

    thread of the caller                     thread of the client: one event loop, one HTTP client
    complete(prompt)  --- coroutine --->     Calls: messages -> stream -> text, usage
                      <-- Completion ---
    """

    def __init__(
        self, provider: Provider, model: str, key: str, timeout_s: float, *, price: Price | None, has_known_price: bool
    ) -> None:
        self.model = f"{provider.name}:{model}"
        self.price = price
        self._endpoint = ModelEndpoint(provider, model, key, timeout_s)
        self._has_known_price = has_known_price
        self._lock = threading.Lock()
        self._thread = ExitStack()
        self._portal: Any = None
        self._calls: Any = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"RemoteClient({self.model!r})"

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask once.

        Raises:
            ModelError: GBE441 to GBE451.
        """
        said, failure = attempt(lambda: self._ask(prompt, max_output_tokens, progress))
        if said is None:  # raised outside of `attempt`, so that the library's exception is not its context
            raise self._as_model_error(failure or RuntimeError("no answer"))
        text = remove_key(said.text, self._endpoint.key)
        return Completion(
            text=text, model=self.model, usage=said.usage, cost_usd=self._cost(said.usage), stop=said.stop
        )

    def close(self) -> None:
        """Cancel running calls, close connections and end the thread."""
        with self._lock:
            is_running, self._is_closed = self._portal is not None and not self._is_closed, True
        if is_running:
            self._portal.call(self._calls.close)
            self._portal.call(self._portal.stop, True)
            self._thread.close()

    def _ask(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> ModelAnswer:
        with self._lock:
            if self._is_closed:
                raise self._endpoint.closed_error
            if self._portal is None:
                self._start()
        future = self._portal.start_task_soon(self._calls.ask, prompt, max_output_tokens, progress)
        try:
            said: ModelAnswer = future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        return said

    def _start(self) -> None:
        from anyio.from_thread import start_blocking_portal

        with ExitStack() as thread:
            portal = thread.enter_context(start_blocking_portal(name=f"model-{self._endpoint.provider.name}"))
            self._calls = portal.call(ProviderCalls, self._endpoint)
            self._thread, self._portal = thread.pop_all(), portal

    def _as_model_error(self, failure: Exception) -> Exception:
        if isinstance(failure, ModelError):
            return failure
        if isinstance(failure, ImportError):
            package = failure.name or "a library"
            return ModelError("GBE441", provider=self._endpoint.provider.name, package=package, is_final=True)
        return self._endpoint.closed_error if self._is_closed else _error_for(failure, self._endpoint)

    def _cost(self, usage: Usage) -> float | None:
        known = cost_of(self._endpoint.provider.prices, self._endpoint.model, usage) if self._has_known_price else None
        return known if known is not None or self.price is None else self.price.of(usage)


# --- failures -----------------------------------------------------------------------------


_TOO_LARGE = re.compile(
    r"context.{0,20}(length|window|size)|(prompt|request|input).{0,20}too (long|large)|exceeds? the (available )?context",
    re.IGNORECASE,
)
"""Messages about a prompt that is too long: some servers send them within a stream, or with an unusual status."""
_BUSY = frozenset({408, 409, 425, 429})
_LATE = frozenset({504, 524})
"""Statuses of a gateway that stopped waiting: the model may have answered, and the answer may be charged."""


def _error_for(failure: Exception, endpoint: ModelEndpoint) -> ModelError:
    """Return the error for what the libraries raise."""
    from pydantic_ai import exceptions as said

    stopped, reason = _stopped_by_us(failure), _message(failure)
    if stopped:
        is_long = isinstance(stopped, _AnswerTooLong)
        return endpoint.error("GBE450", "", _BILLED) if is_long else endpoint.error("GBE444", str(stopped), _FINAL)
    if isinstance(failure, said.ModelRequestTimeout | said.ModelTimeoutError | TimeoutError):
        return endpoint.error("GBE447", reason, _AGAIN, _BILLED)
    if isinstance(failure, said.ModelConnectionError):
        is_unsent = failure.phase in ("pool", "connect")
        return (
            endpoint.error("GBE446", reason, _AGAIN) if is_unsent else endpoint.error("GBE448", reason, _AGAIN, _BILLED)
        )
    hopeless = {
        said.ModelQuotaExceededError: "GBE451",
        said.ModelAuthenticationError: "GBE442",
        said.ModelNotFoundError: "GBE443",
    }
    for kind, code in hopeless.items():
        if isinstance(failure, kind):
            return endpoint.error(code, reason, _FINAL)
    is_in_stream = bool(getattr(failure, "in_stream", False))
    if isinstance(failure, said.ModelAPIError) and (is_in_stream or getattr(failure, "status_code", None)):
        return _by_status(failure, endpoint, reason, is_in_stream=is_in_stream)
    return endpoint.error("GBE449", reason, _AGAIN, _BILLED)  # it could not even be read


def _by_status(failure: Any, endpoint: ModelEndpoint, reason: str, *, is_in_stream: bool) -> ModelError:
    status = getattr(failure, "status_code", 0) or 0
    reason = reason or f"status {status}"
    is_hopeless = _TOO_LARGE.search(reason) is not None and status not in _BUSY
    if is_hopeless or not (status in _BUSY or status >= 500 or is_in_stream):
        return endpoint.error("GBE444", reason, *([_BILLED] if is_in_stream else []))
    meaning = (_AGAIN, _BILLED) if is_in_stream or status in _LATE else (_AGAIN,)
    return endpoint.error("GBE445", reason, *meaning, retry_after_s=getattr(failure, "retry_after", None))


def _stopped_by_us(failure: BaseException | None) -> _Blocked | None:
    while failure is not None and not isinstance(failure, _Blocked):
        failure = failure.__cause__ or failure.__context__
    return failure


def _message(failure: Exception) -> str:
    body = getattr(failure, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(inner, dict):
        inner = inner.get("message")
    if isinstance(inner, str) and inner.strip():
        return inner
    said = str(getattr(failure, "message", "") or failure)
    return _root(failure) if said.startswith("Connection error") else said


def _root(failure: BaseException) -> str:
    """What went wrong in the first place, below all that was made of it."""
    below = failure.__cause__ or failure.__context__
    if below is not None:
        return _root(below)
    if isinstance(failure, OSError) and failure.errno and failure.errno > 0:
        return os.strerror(failure.errno)
    return str(getattr(failure, "strerror", "") or failure) or type(failure).__name__


# --- prices -------------------------------------------------------------------------------


def known_price(prices: str, model: str) -> Price | None:
    """Return the highest rates that a model of the table of prices may have, at any time of the day, for prompts of any size and
    with writing to the provider's cache; None when the table does not know it.
    """
    inputs: list[float] = []
    outputs: list[float] = []
    for hour, size in product(range(24), _SIZES):
        for written in (0, size):
            found = _calculated(prices, model, hour, input_tokens=size, cache_write_tokens=written, output_tokens=size)
            if found is None:
                return None
            inputs.append(float(found.input_price) * 1e6 / size)
            outputs.append(float(found.output_price) * 1e6 / size)
    return Price(max(inputs), max(outputs))


def cost_of(prices: str, model: str, usage: Usage) -> float | None:
    """Return what a call has cost by the table of prices, what was cached at its own rate; None when it is not known."""
    found = _calculated(prices, model, None, **msgspec.structs.asdict(usage))
    return None if found is None else float(found.total_price)


def _calculated(prices: str, model: str, hour: int | None, **tokens: int) -> Any:
    """Ask the table of prices, which is part of the package: no network. None when it does not know."""
    from datetime import UTC, datetime

    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    now = datetime.now(UTC)
    when = now if hour is None else now.replace(hour=hour, minute=30)
    found, _unknown = attempt(
        lambda: calc_price(Tokens(**tokens), model, provider_id=prices, genai_request_timestamp=when)
    )
    return found
