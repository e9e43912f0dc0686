"""Asks models through the libraries of their providers. No other module imports these, and this one only when it asks.

There are no tools, retries or redirects: one call is one request to one address, which `_RequestGuard` checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import product
from typing import Any

import msgspec

from graphbus_core.errors import ModelError
from graphbus_core.isolation import attempt
from graphbus_core.llm.call_limits import ServerFacts, is_local, read_facts
from graphbus_core.llm.client import Completion, LLMClient, ModelPrompt, Progress, StopReason, estimate_tokens
from graphbus_core.llm.endpoint import BILLED, FINAL, TRANSIENT, ModelAnswer, ModelEndpoint
from graphbus_core.llm.providers import (
    MAX_ANSWER_BYTES,
    Provider,
    host_of,
    is_https,
    is_loopback,
    remove_key,
)
from graphbus_core.llm.server_errors import describe_excess, extract_message, is_model_unknown, is_prompt_too_long
from graphbus_core.model.config import AnswerForm
from graphbus_core.model.spending import Price, Usage

MAX_WIRE_BYTES = 64_000_000
"""The largest number of bytes of an answer on the network, where a stream wraps a few letters in hundreds of bytes of JSON."""
_MAX_ERROR_BYTES = 1_000_000
_DUMMY_KEY = "no-key"
"""Passed to the libraries for a server without a key, because they require one."""
_MAX_TOKENS = 10**12
"""More tokens than any call can have. A larger count reported by a server is cut to this."""
_PROMPT_SIZES = (1_000, 1_000_000)
"""Tokens of the prompts for which prices are looked up, because rates may rise with the size of the prompt."""
_PROGRESS_EVERY_S = 0.05
"""The shortest time between two reports of progress."""
_CONNECT_TIMEOUT_S = 5.0
_FACTS_TIMEOUT_S = 5.0
"""The seconds in which a local server must answer a question about itself."""
_MAX_FACTS_BYTES = 1_000_000
_ALLOWED_HEADERS = frozenset(
    {
        *{"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length"},
        *{"transfer-encoding", "anthropic-version", "anthropic-beta"},
    }
)
"""Headers that are sent, besides `x-stainless-…` and the key of the provider. All others are removed."""


def missing_package(provider: Provider) -> str:
    """Return the name of a package that this provider needs and that is not installed; empty if none is missing."""
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


class _Blocked(Exception):  # noqa: N818 - converted before it leaves this module
    """The request guard has blocked a request or an answer."""


class _AnswerTooLong(_Blocked):
    """An answer exceeds the limit of bytes."""


def _limit_bytes(stream: Any, limit_bytes: int) -> Any:
    """Return a stream with the same bytes, which raises `_AnswerTooLong` after `limit_bytes`."""
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
    """Checks each request before it is sent: it must go to the provider's address, and gets no key but the provider's."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        import httpx2

        self._origin_of = _origin_of(httpx2.URL(endpoint.provider.base_url))
        self._key = endpoint.key
        self._header = "x-api-key" if endpoint.provider.wire == "anthropic" else "authorization"

    async def check_answer(self, response: Any) -> None:
        """Raise `_Blocked` for a redirect or a compressed answer, and limit the size of any other."""
        if 300 <= response.status_code < 400:
            raise _Blocked(f"it answers with a redirect ({response.status_code}), which is not followed")
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise _Blocked("its answer is compressed, which was not asked for")
        response.stream = _limit_bytes(response.stream, MAX_WIRE_BYTES if response.is_success else _MAX_ERROR_BYTES)

    async def check_request(self, request: Any) -> None:
        """Raise `_Blocked` for another address; otherwise remove unknown headers, and set the key of the provider."""
        if _origin_of(request.url) != self._origin_of:
            raise _Blocked("a request to another address was stopped")
        for name in list(request.headers.keys()):
            if name.lower() not in _ALLOWED_HEADERS and not name.lower().startswith("x-stainless-"):
                del request.headers[name]
        request.headers["accept-encoding"] = "identity"
        if self._key:
            request.headers[self._header] = self._key if self._header == "x-api-key" else f"Bearer {self._key}"


def _origin_of(url: Any) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL."""
    return url.scheme, url.host, url.port or {"https": 443}.get(url.scheme, 80)


class ProviderCalls:
    """The provider's library, set up for one model. It must only be used in the thread of its event loop."""

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
            timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S),  # `ask` limits the rest
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            event_hooks={"request": [guard.check_request], "response": [guard.check_answer]},
        )
        self._has_answered = False
        make = _make_anthropic_model if endpoint.provider.wire == "anthropic" else _make_openai_model
        self._model = make(endpoint, self._http)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> ModelAnswer:
        """Ask once. Exceptions of the libraries are raised as they are; the caller converts them with `_convert_failure`."""
        import asyncio

        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        await self._refuse_mute_server()
        shared = [InstructionPart(content=prompt.shared)] if prompt.shared else []
        form: dict[str, Any] = {}
        if prompt.schema is not None:
            if not self._model.profile.get("supports_json_schema_output"):
                raise self._endpoint.error("GBE444", "this model takes none")
            wanted = OutputObjectDefinition(json_schema=prompt.schema, name="answer", strict=True)
            form = {"output_mode": "native", "output_object": wanted, "allow_text_output": True}
        characters, reported_s = 0, 0.0
        try:
            async with asyncio.timeout(self._endpoint.first_token_timeout_s) as limit:
                async with model_request_stream(
                    self._model,
                    _make_messages(prompt, is_cached=self._endpoint.provider.wire == "anthropic"),
                    model_settings=self._make_settings(max_output_tokens),
                    model_request_parameters=ModelRequestParameters(instruction_parts=shared, **form),
                ) as stream:
                    async for event in stream:
                        text = _text_in_event(event)
                        if text and not characters:
                            limit.reschedule(asyncio.get_running_loop().time() + self._endpoint.timeout_s)
                        characters += len(text)
                        if characters > MAX_ANSWER_BYTES:
                            raise self._endpoint.error("GBE450", "", BILLED)
                        if progress and text and time.monotonic() - reported_s >= _PROGRESS_EVERY_S:
                            reported_s = time.monotonic()
                            progress(characters)
                    response = stream.get()
        except TimeoutError:
            if characters:
                raise
            meaning = FINAL if is_local(self._endpoint.provider) else TRANSIENT
            raise self._endpoint.error("GBE455", "", meaning, BILLED) from None
        return _convert_response(response, prompt, self._endpoint)

    async def _refuse_mute_server(self) -> None:
        """Before the first request to a local server, raise GBE446 if it accepts connections but does not answer a small request.

        A server that has requests waiting answers such a request at once, so this tells a dead server from a busy one.
        """
        provider = self._endpoint.provider
        if self._has_answered or not (is_local(provider) and provider.wire == "openai"):
            return
        if await self.fetch(f"{provider.base_url.rstrip('/')}/models") is None:
            raise self._endpoint.error("GBE446", "it accepts connections, but sends no HTTP response", TRANSIENT)
        self._has_answered = True

    async def fetch(self, address: str) -> bytes | None:
        """Return what a server answers to `GET address`, at most a megabyte in at most 5 s.

        Empty if it cannot be reached, or answers with an error or in a way that is not allowed; None if it accepts the
        connection and sends no HTTP response.
        """
        import asyncio

        import httpx2

        data = None
        try:
            async with asyncio.timeout(_FACTS_TIMEOUT_S), self._http.stream("GET", address) as response:
                data = b""
                if response.is_success:
                    async for piece in _limit_bytes(response.stream, _MAX_FACTS_BYTES):
                        data += piece
        except (httpx2.ConnectError, httpx2.ConnectTimeout, _Blocked):
            return b""
        except (TimeoutError, httpx2.HTTPError):
            return None if data is None else b""
        return data

    def _make_settings(self, max_output_tokens: int) -> Any:
        """Return the options of a request; at Anthropic the shared prompt is cached."""
        settings: dict[str, Any] = {"max_tokens": max_output_tokens, "max_retries": 0}
        if self._endpoint.temperature is not None:
            settings["temperature"] = self._endpoint.temperature
        if self._endpoint.provider.wire == "anthropic":
            return {**settings, "anthropic_cache_instructions": True}
        return settings


def _text_in_event(event: Any) -> str:
    """Return the new text of the answer in an event of its stream; empty if there is none."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent

    if isinstance(event, PartStartEvent):
        return getattr(event.part, "content", "") or ""
    if isinstance(event, PartDeltaEvent):
        return getattr(event.delta, "content_delta", "") or ""
    return ""


def _make_anthropic_model(endpoint: ModelEndpoint, http: Any) -> Any:
    """Return the model for a server that speaks Anthropic Messages."""
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=endpoint.key or _DUMMY_KEY, base_url=endpoint.provider.base_url, http_client=http, max_retries=0
    )
    return AnthropicModel(endpoint.model, provider=AnthropicProvider(anthropic_client=client))


def _make_openai_model(endpoint: ModelEndpoint, http: Any) -> Any:
    """Return the model for a server that speaks OpenAI Chat Completions.

    Newer features are used only with the built-in provider `openai`, because other servers may not have them.
    """
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        api_key=endpoint.key or _DUMMY_KEY, base_url=endpoint.provider.base_url, http_client=http, max_retries=0
    )
    provider = OpenAIProvider(openai_client=client)
    if endpoint.provider.name == "openai" and not endpoint.provider.is_configured:
        return OpenAIChatModel(endpoint.model, provider=provider)
    profile = OpenAIModelProfile(
        openai_chat_supports_max_completion_tokens=False,
        openai_supports_prompt_cache_breakpoints=False,
        openai_system_prompt_role="system",
        supports_json_schema_output=True,
    )
    return OpenAIChatModel(endpoint.model, provider=provider, profile=profile)


def _make_messages(prompt: ModelPrompt, *, is_cached: bool) -> list[Any]:
    """Return the messages after the system prompt: own text, a cache breakpoint if `is_cached`, task, and turns."""
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


def _convert_response(response: Any, prompt: ModelPrompt, endpoint: ModelEndpoint) -> ModelAnswer:
    """Return the answer in a response of the library; raise ModelError if it did not end properly."""
    stops: dict[str | None, StopReason] = {"stop": "end", "length": "length", "content_filter": "refusal"}
    text = "".join(part.content for part in response.parts if part.part_kind == "text")
    if response.finish_reason not in stops:
        raise endpoint.error("GBE448", "it did not end", TRANSIENT, BILLED)
    return ModelAnswer(text, _convert_usage(response.usage, prompt, text), stops[response.finish_reason])


def _convert_usage(counted: Any, prompt: ModelPrompt, answer: str) -> Usage:
    """Return the usage of a call. Tokens that the server does not report are estimated by length, for the budget."""
    input_tokens = _clamp_count(counted.input_tokens) or estimate_tokens(*prompt.texts)
    read = min(_clamp_count(counted.cache_read_tokens), input_tokens)
    return Usage(
        input_tokens=input_tokens,
        cache_read_tokens=read,
        cache_write_tokens=min(_clamp_count(counted.cache_write_tokens), input_tokens - read),
        output_tokens=_clamp_count(counted.output_tokens) or estimate_tokens(answer),
    )


def _clamp_count(count: int) -> int:
    """Return a count that a server has reported, limited to a plausible range."""
    return max(0, min(count, _MAX_TOKENS))


# --- one model of one provider ------------------------------------------------------------


class RemoteClient(LLMClient):
    """Asks one model through the asynchronous library of its provider. It may be called from several threads.

    thread of the caller                     thread of the client: one event loop, one HTTP client
    complete(prompt)  --- coroutine --->     ProviderCalls: messages -> stream -> text, usage
                      <-- Completion ---
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        key: str,
        timeout_s: float,
        *,
        first_token_timeout_s: float = 600.0,
        temperature: float | None = None,
        price: Price | None,
        has_known_price: bool,
        answers: AnswerForm = "auto",
    ) -> None:
        self.model = f"{provider.name}:{model}"
        self.price = price
        self._endpoint = ModelEndpoint(provider, model, key, timeout_s, first_token_timeout_s, temperature)
        self._has_known_price = has_known_price
        self._lock = threading.Lock()
        self._thread = ExitStack()
        self._portal: Any = None
        self._calls: Any = None
        self._is_closed = False
        self._answers = answers

    def __repr__(self) -> str:
        return f"RemoteClient({self.model!r})"

    @property
    def takes_schema(self) -> bool:
        """True unless the settings ask for text, or the server has refused a schema."""
        return self._answers != "text"

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask once, and return the answer with its cost.

        Raises:
            ModelError: GBE441 to GBE451, there is no answer.
        """
        answer, failure = attempt(lambda: self._ask_in_portal(prompt, max_output_tokens, progress))
        if (
            answer is None
        ):  # raised here and not in a handler, so that it does not hold the library's exception as context
            error = self._as_model_error(failure or RuntimeError("no answer"), prompt)
            raise self._note_refused_schema(error) if prompt.schema is not None else error
        text = remove_key(answer.text, self._endpoint.key)
        return Completion(
            text=text, model=self.model, usage=answer.usage, cost_usd=self._cost_of(answer.usage), stop=answer.stop
        )

    def close(self) -> None:
        """Cancel running calls, close the connections, and end the thread. Later calls raise ModelError."""
        with self._lock:
            is_running, self._is_closed = self._portal is not None and not self._is_closed, True
        if is_running:
            self._portal.call(self._calls.close)
            self._portal.call(self._portal.stop, True)
            self._thread.close()

    def _ask_in_portal(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> ModelAnswer:
        """Run the call in the client's thread, and wait for its answer."""
        self._open_portal()
        future = self._portal.start_task_soon(self._calls.ask, prompt, max_output_tokens, progress)
        try:
            answer: ModelAnswer = future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        return answer

    def fetch_facts(self) -> ServerFacts:
        """Ask a local server for the size of its context and its slots; whatever fails counts as not reported."""
        base = self._endpoint.provider.base_url.rstrip("/")
        self._open_portal()
        addresses = (f"{base}/models", f"{base.removesuffix('/v1')}/props")
        tasks = [self._portal.start_task_soon(self._calls.fetch, address) for address in addresses]
        models, properties = (task.result() or b"" for task in tasks)
        return read_facts(self._endpoint.model, models, properties)

    def _open_portal(self) -> None:
        """Start the client's thread if it does not run; raise ModelError if the client was closed."""
        with self._lock:
            if self._is_closed:
                raise self._endpoint.closed_error
            if self._portal is None:
                self._start_thread()

    def _start_thread(self) -> None:
        """Start the thread with an event loop, and set up the library in it."""
        from anyio.from_thread import start_blocking_portal

        with ExitStack() as thread:
            portal = thread.enter_context(start_blocking_portal(name=f"model-{self._endpoint.provider.name}"))
            self._calls = portal.call(ProviderCalls, self._endpoint)
            self._thread, self._portal = thread.pop_all(), portal

    def _as_model_error(self, failure: Exception, prompt: ModelPrompt) -> Exception:
        """Return a failed call as a ModelError."""
        if isinstance(failure, ModelError):
            return failure
        if isinstance(failure, ImportError):
            package = failure.name or "a library"
            return ModelError("GBE441", provider=self._endpoint.provider.name, package=package, is_final=True)
        return self._endpoint.closed_error if self._is_closed else _convert_failure(failure, self._endpoint, prompt)

    def _note_refused_schema(self, error: Exception) -> Exception:
        """Return GBE459 for a request with a schema that was not accepted, and ask for text from now on; or the error itself.

        Servers that do not know schemas say so in many ways, so any refusal counts that is not about the length of the prompt.
        If there is another reason, the request for text meets it again.
        """
        if not isinstance(error, ModelError) or error.code != "GBE444" or error.is_final:
            return error
        is_demanded = self._answers == "json"
        if not is_demanded:
            self._answers = "text"
        reason = str(error.data.get("reason", ""))
        return self._endpoint.error("GBE459", reason, *([FINAL] if is_demanded else []))

    def _cost_of(self, usage: Usage) -> float | None:
        """Return the dollars for a call by the price table, else by `price`; None if no price is known."""
        known = cost_of(self._endpoint.provider.prices, self._endpoint.model, usage) if self._has_known_price else None
        return known if known is not None or self.price is None else self.price.of(usage)


# --- failures -----------------------------------------------------------------------------


_BUSY_STATUSES = frozenset({408, 409, 425, 429})
_TIMEOUT_STATUSES = frozenset({504, 524})
"""Statuses of a gateway that has stopped waiting. The model may have answered, so the request may be charged."""


def _convert_failure(failure: Exception, endpoint: ModelEndpoint, prompt: ModelPrompt) -> ModelError:
    """Return an exception of the libraries, for a request with this prompt, as a ModelError."""
    from pydantic_ai import exceptions

    blocked, reason = _find_guard_error(failure), extract_message(failure)
    if blocked:
        is_long = isinstance(blocked, _AnswerTooLong)
        return endpoint.error("GBE450", "", BILLED) if is_long else endpoint.error("GBE444", str(blocked), FINAL)
    if isinstance(failure, exceptions.ModelConnectionError) and failure.phase in ("pool", "connect"):
        return endpoint.error("GBE446", reason, TRANSIENT)
    if isinstance(failure, exceptions.ModelRequestTimeout | exceptions.ModelConnectionError | TimeoutError):
        is_cut = isinstance(failure, exceptions.ModelConnectionError)
        is_late = isinstance(failure, exceptions.ModelTimeoutError) or not is_cut
        return endpoint.error("GBE447" if is_late else "GBE448", reason, TRANSIENT, BILLED)
    hopeless = {
        exceptions.ModelQuotaExceededError: "GBE451",
        exceptions.ModelAuthenticationError: "GBE442",
        exceptions.ModelNotFoundError: "GBE443",
    }
    for kind, code in hopeless.items():
        if isinstance(failure, kind):
            return endpoint.error(code, reason, FINAL)
    is_in_stream = bool(getattr(failure, "in_stream", False))
    if isinstance(failure, exceptions.ModelAPIError) and (is_in_stream or getattr(failure, "status_code", None)):
        return _convert_status(failure, endpoint, reason, prompt, is_in_stream=is_in_stream)
    return endpoint.error("GBE449", reason, TRANSIENT, BILLED)  # the response could not be parsed


def _convert_status(
    failure: Any, endpoint: ModelEndpoint, reason: str, prompt: ModelPrompt, *, is_in_stream: bool
) -> ModelError:
    """Return the ModelError for an error response: transient or not by its status, or if it is about the prompt's length."""
    status = getattr(failure, "status_code", 0) or 0
    reason = reason or f"status {status}"
    billed = [BILLED] if is_in_stream else []
    if is_prompt_too_long(reason) and status not in _BUSY_STATUSES:
        tokens, limit = describe_excess(failure, reason, prompt)
        model = f"{endpoint.provider.name}:{endpoint.model}"
        return ModelError("GBE462", may_be_billed=is_in_stream, model=model, tokens=tokens, limit=limit)
    if not (status in _BUSY_STATUSES or status >= 500 or is_in_stream):
        is_unknown = is_model_unknown(reason)
        return endpoint.error("GBE443", reason, FINAL) if is_unknown else endpoint.error("GBE444", reason, *billed)
    meaning = (TRANSIENT, BILLED) if is_in_stream or status in _TIMEOUT_STATUSES else (TRANSIENT,)
    return endpoint.error("GBE445", reason, *meaning, retry_after_s=getattr(failure, "retry_after", None))


def _find_guard_error(failure: BaseException | None) -> _Blocked | None:
    """Return the error of the request guard among the causes of an exception; None if there is none."""
    while failure is not None and not isinstance(failure, _Blocked):
        failure = failure.__cause__ or failure.__context__
    return failure


# --- prices -------------------------------------------------------------------------------


def highest_price(provider_id: str, model: str) -> Price | None:
    """Return the highest rates of a model, in dollars for a million tokens; None if the price table does not list it.

    Rates are compared over the hours of a day, for small and large prompts, with and without writing to the provider's cache.
    """
    inputs: list[float] = []
    outputs: list[float] = []
    for hour, size in product(range(24), _PROMPT_SIZES):
        for cache_write_tokens in (0, size):
            found = _look_up_price(
                provider_id, model, hour, input_tokens=size, cache_write_tokens=cache_write_tokens, output_tokens=size
            )
            if found is None:
                return None
            inputs.append(float(found.input_price) * 1e6 / size)
            outputs.append(float(found.output_price) * 1e6 / size)
    return Price(max(inputs), max(outputs))


def cost_of(prices: str, model: str, usage: Usage) -> float | None:
    """Return the dollars for a call by the price table, with its rates for cached tokens; None if it does not list the model."""
    found = _look_up_price(prices, model, None, **msgspec.structs.asdict(usage))
    return None if found is None else float(found.total_price)


def _look_up_price(prices: str, model: str, hour: int | None, **tokens: int) -> Any:
    """Return the price of a call in the installed price table, now or at an `hour`; None if it lists no such model."""
    from datetime import UTC, datetime

    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    now = datetime.now(UTC)
    when = now if hour is None else now.replace(hour=hour, minute=30)
    found, _unknown = attempt(
        lambda: calc_price(Tokens(**tokens), model, provider_id=prices, genai_request_timestamp=when)
    )
    return found
