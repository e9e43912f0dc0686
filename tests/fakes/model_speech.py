"""What a model server is asked and what it can answer, and what a provider counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from graphbus_core.model.config import Wire

_BYTES_PER_TOKEN = 4
_OPENAI_STEP = 128 * _BYTES_PER_TOKEN
"""OpenAI counts cached tokens in steps of 128."""


class Message(NamedTuple):
    """One message of a request, its text blocks joined."""

    role: str
    text: str


class Request(NamedTuple):
    """What a client has sent.

    Attributes:
        n: Which request of this server it is, from 1.
        system: The system prompt.
        messages: What follows it, as plain text.
        headers: By their names in small letters.
        body: The JSON as it came.
    """

    n: int
    wire: Wire
    path: str
    model: str
    system: str
    messages: tuple[Message, ...]
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All that the model is shown."""
        return "\n".join([self.system, *(message.text for message in self.messages)])

    @property
    def last(self) -> str:
        """The last message."""
        return self.messages[-1].text

    @property
    def is_streamed(self) -> bool:
        """The client wants the answer piece by piece."""
        return bool(self.body.get("stream"))


class Answer(NamedTuple):
    """The model answers.

    Attributes:
        delay_s: How long it thinks before the first piece.
        piece_delay_s: And before each further one.
        may_go: Whether a further piece, by its number from 1, may be sent already.
        pieces: In how many pieces a streamed answer comes.
        output_tokens: None: counted from the text.
    """

    text: str
    delay_s: float = 0.0
    piece_delay_s: float = 0.0
    pieces: int = 4
    output_tokens: int | None = None
    stop: Literal["end", "length", "refusal"] = "end"
    may_go: Callable[[int], bool] = lambda _number: True


class Failure(NamedTuple):
    """The server answers with an error; `retry_after` is sent as it is."""

    status: int
    message: str = ""
    retry_after: str | float | None = None
    delay_s: float = 0.0
    location: str = ""


class Broken(NamedTuple):
    """The server does not do as the protocol says.

    Attributes:
        how: It stops in the middle of `text` and keeps the connection (`stalled`) or closes it (`cut`), it closes before it says
            anything (`closed`), it sends no JSON (`json`), other JSON (`schema`), or an error within the stream (`error`).
    """

    how: Literal["stalled", "cut", "closed", "json", "schema", "error"]
    text: str = "## analysis\nresponsibility: takes orders\n"
    message: str = "Overloaded"


class Raw(NamedTuple):
    """The server sends bytes of the script's, head and all, then a part again and again, and hangs up."""

    data: bytes
    part: bytes = b""
    times: int = 1


Reply = Answer | Failure | Broken | Raw


class Counted(NamedTuple):
    """Tokens of one request as a provider counts them."""

    total: int
    read: int = 0
    written: int = 0


class Caches:
    """What the provider remembers of earlier requests: digests of prefixes."""

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens
        self._written: set[str] = set()
        self._chunks: set[str] = set()

    def count_anthropic(self, body: Mapping[str, Any]) -> Counted:
        """An entry is written at each `cache_control` and read at any block boundary that equals one."""
        digest = sha256(str(body.get("model")).encode())
        size = read = last = 0
        written_now = []
        for block in _blocks(body):
            text = _block_text(block)
            digest.update(text.encode() + b"\0")
            size += len(text.encode())
            tokens = size // _BYTES_PER_TOKEN
            if tokens < self._min_tokens:
                continue
            if digest.hexdigest() in self._written:
                read = tokens
            if "cache_control" in block:
                last = tokens
                written_now.append(digest.hexdigest())
        self._written.update(written_now)
        read = min(read, last)
        return Counted(max(1, size // _BYTES_PER_TOKEN), read, last - read)

    def count_openai(self, request: Request) -> Counted:
        """Cached by itself, in steps, from a least size on."""
        data = f"{request.model}\0{request.system}\0".encode() + b"\0".join(
            f"{message.role}:{message.text}".encode() for message in request.messages
        )
        digest, read, is_known = sha256(), 0, True
        for end in range(_OPENAI_STEP, len(data) + 1, _OPENAI_STEP):
            digest.update(data[end - _OPENAI_STEP : end])
            name = digest.hexdigest()
            is_known = is_known and name in self._chunks
            if is_known and end // _BYTES_PER_TOKEN >= self._min_tokens:
                read = end // _BYTES_PER_TOKEN
            self._chunks.add(name)
        return Counted(max(1, len(data) // _BYTES_PER_TOKEN), read)


def _blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    system = body.get("system") or []
    yield from [{"text": system}] if isinstance(system, str) else system
    for message in body.get("messages", []):
        content = message["content"]
        yield from [{"text": content}] if isinstance(content, str) else content


def _block_text(block: Mapping[str, Any]) -> str:
    return str(block.get("text", ""))


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(_block_text(block) for block in content or [])


def read_anthropic(body: Mapping[str, Any]) -> tuple[str, tuple[Message, ...]]:
    messages = tuple(Message(message["role"], _text_of(message["content"])) for message in body["messages"])
    return _text_of(body.get("system")), messages


def read_openai(body: Mapping[str, Any]) -> tuple[str, tuple[Message, ...]]:
    messages = [Message(message["role"], _text_of(message.get("content"))) for message in body["messages"]]
    system = "".join(message.text for message in messages if message.role in ("system", "developer"))
    return system, tuple(message for message in messages if message.role not in ("system", "developer"))


def pieces_of(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def tokens_of(text: str) -> int:
    return max(1, -(-len(text.encode()) // _BYTES_PER_TOKEN))
