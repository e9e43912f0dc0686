"""How a model server speaks: Anthropic Messages and OpenAI Chat Completions, whole or as a stream of events."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Protocol

from tests.fakes.model_speech import Answer, Broken, Counted, Failure, Raw, Reply, Request, pieces_of, tokens_of
from tests.fakes.pausing import comes_true


class Connection(Protocol):
    """What a speaker needs of the connection that it speaks on."""

    def wait(self, seconds: float) -> None: ...
    def wait_for_the_end(self) -> None: ...
    def count(self, request: Request) -> Counted: ...
    def send_whole(self, status: int, data: bytes, headers: Mapping[str, str]) -> None: ...
    def begin_stream(self) -> None: ...
    def send_event(self, event: str, data: str) -> None: ...
    def end_stream(self) -> None: ...
    def hang_up(self) -> None: ...
    def send_raw(self, data: bytes) -> None: ...


class Speaker:
    """What both wires have in common."""

    def __init__(self, handler: Connection, request: Request) -> None:
        self.handler = handler
        self.request = request

    def say(self, reply: Reply) -> None:
        if isinstance(reply, Failure):
            self._fail(reply)
        elif isinstance(reply, Broken):
            self._break(reply)
        elif isinstance(reply, Raw):
            self._send_raw(reply)
        else:
            self._answer(reply)

    def _answer(self, answer: Answer) -> None:
        self.handler.wait(answer.delay_s)
        counted = self.handler.count(self.request)
        output = tokens_of(answer.text) if answer.output_tokens is None else answer.output_tokens
        self.handler.begin_stream()
        for event, data in self.opening(counted):
            self.handler.send_event(event, data)
        for number, piece in enumerate(pieces_of(answer.text, answer.pieces)):
            if number:
                comes_true(partial(answer.may_go, number))
                self.handler.wait(answer.piece_delay_s)
            self.handler.send_event(*self.piece(piece))
        for event, data in self.closing(answer, counted, output):
            self.handler.send_event(event, data)
        self.handler.end_stream()

    def _fail(self, failure: Failure) -> None:
        self.handler.wait(failure.delay_s)
        headers = {} if failure.retry_after is None else {"retry-after": str(failure.retry_after)}
        if failure.location:
            headers["location"] = failure.location
        self.handler.send_whole(failure.status, json.dumps(self.error(failure)).encode(), headers)

    def _break(self, broken: Broken) -> None:
        if broken.how == "closed":
            self.handler.hang_up()
        elif broken.how in ("json", "schema"):
            self._send_nonsense(
                "{not JSON" if broken.how == "json" else '{"choices": 5, "content": 7, "type": "message"}'
            )
        else:
            self._break_stream(broken)

    def _send_nonsense(self, data: str) -> None:
        self.handler.begin_stream()
        self.handler.send_event("message_start" if self.request.wire == "anthropic" else "", data)
        self.handler.end_stream()

    def _break_stream(self, broken: Broken) -> None:
        counted = self.handler.count(self.request)
        self.handler.begin_stream()
        for event, data in self.opening(counted):
            self.handler.send_event(event, data)
        self.handler.send_event(*self.piece(broken.text))
        if broken.how == "error":
            self.handler.send_event(*self.error_event(broken.message))
            self.handler.end_stream()
        elif broken.how == "stalled":
            self._stall()
        else:
            self.handler.hang_up()

    def _send_raw(self, raw: Raw) -> None:
        self.handler.send_raw(raw.data)
        for _ in range(raw.times):
            self.handler.send_raw(raw.part)
        self.handler.hang_up()

    def _stall(self) -> None:
        self.handler.wait_for_the_end()
        self.handler.hang_up()

    def opening(self, counted: Counted) -> list[tuple[str, str]]:
        raise NotImplementedError

    def piece(self, text: str) -> tuple[str, str]:
        raise NotImplementedError

    def closing(self, answer: Answer, counted: Counted, output: int) -> list[tuple[str, str]]:
        raise NotImplementedError

    def error(self, failure: Failure) -> dict[str, Any]:
        raise NotImplementedError

    def error_event(self, message: str) -> tuple[str, str]:
        raise NotImplementedError


class Anthropic(Speaker):
    """Messages."""

    _ERRORS: ClassVar = {
        400: "invalid_request_error",
        401: "authentication_error",
        402: "billing_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    _STOPS: ClassVar = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}

    def _usage(self, counted: Counted, output: int) -> dict[str, int]:
        return {
            "input_tokens": counted.total - counted.read - counted.written,
            "cache_read_input_tokens": counted.read,
            "cache_creation_input_tokens": counted.written,
            "output_tokens": output,
        }

    def _message(self, counted: Counted, output: int) -> dict[str, Any]:
        return {
            "id": f"msg_{self.request.n}",
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(counted, output),
        }

    def opening(self, counted: Counted) -> list[tuple[str, str]]:
        start = {"type": "message_start", "message": self._message(counted, 1)}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return [(event["type"], json.dumps(event)) for event in (start, block)]  # type: ignore[misc]

    def piece(self, text: str) -> tuple[str, str]:
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        return "content_block_delta", json.dumps(delta)

    def closing(self, answer: Answer, counted: Counted, output: int) -> list[tuple[str, str]]:
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": self._STOPS[answer.stop], "stop_sequence": None},
            "usage": self._usage(counted, output),
        }
        events = ({"type": "content_block_stop", "index": 0}, delta, {"type": "message_stop"})
        return [(str(event["type"]), json.dumps(event)) for event in events]

    def error(self, failure: Failure) -> dict[str, Any]:
        kind = self._ERRORS.get(failure.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": failure.message or kind}, "request_id": "req_stub"}

    def error_event(self, message: str) -> tuple[str, str]:
        return "error", json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": message}})


class OpenAI(Speaker):
    """Chat Completions."""

    _CODES: ClassVar = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    _STOPS: ClassVar = {"end": "stop", "length": "length", "refusal": "content_filter"}

    def _usage(self, counted: Counted, output: int) -> dict[str, Any]:
        return {
            "prompt_tokens": counted.total,
            "completion_tokens": output,
            "total_tokens": counted.total + output,
            "prompt_tokens_details": {"cached_tokens": counted.read},
        }

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.request.n}",
            "object": kind,
            "created": int(time.time()),
            "model": self.request.model,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> tuple[str, str]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", json.dumps(self._frame("chat.completion.chunk") | {"choices": [choice]})

    def opening(self, counted: Counted) -> list[tuple[str, str]]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def piece(self, text: str) -> tuple[str, str]:
        return self._chunk({"content": text})

    def closing(self, answer: Answer, counted: Counted, output: int) -> list[tuple[str, str]]:
        events = [self._chunk({}, self._STOPS[answer.stop])]
        if (self.request.body.get("stream_options") or {}).get("include_usage"):
            usage = {"choices": [], "usage": self._usage(counted, output)}
            events.append(("", json.dumps(self._frame("chat.completion.chunk") | usage)))
        return [*events, ("", "[DONE]")]

    def error(self, failure: Failure) -> dict[str, Any]:
        code = self._CODES.get(failure.status)
        return {"error": {"message": failure.message or str(code), "type": "stub_error", "param": None, "code": code}}

    def error_event(self, message: str) -> tuple[str, str]:
        return "", json.dumps({"error": {"message": message, "type": "server_error", "code": "overloaded"}})
