"""Recorded answers, used instead of asking again: the cache of all sessions, and the tape of one session.

answers/        the cache: a request that is repeated word for word costs nothing; never committed, safe to delete
answers.jsonl   the tape: one line for each request with its key and the answer or failure; no prompts, no keys of providers,
                no times. `--resume` and `graphbus replay` read it

Entries are sealed (`store.cache`): a file that somebody else puts into the project must not pass for an answer of the model.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from os import SEEK_END
from pathlib import Path
from threading import Event, Lock
from typing import IO

import msgspec
from msgspec.structs import replace

from graphbus_core.errors import ModelError
from graphbus_core.llm.budget import Amount, current_bill
from graphbus_core.llm.client import ClientWrapper, Completion, LLMClient, ModelPrompt, Progress
from graphbus_core.store import cache
from graphbus_core.store.cache import seal_of
from graphbus_core.store.folders import Folder

# --- the cache of answers ----------------------------------------------------------------------


PROTOCOL_VERSION = 1
"""Raised when an equal prompt gets another meaning."""


_LAYOUT = msgspec.msgpack.Decoder(Completion)
"""Made at import, in one thread: msgspec can crash if two threads inspect a type for the first time at once."""


def request_key(model: str, max_output_tokens: int, prompt: ModelPrompt) -> str:
    """Return the sha256 of everything that an answer depends on: protocol version, model, limit, messages."""
    turns = [list(turn) for turn in prompt.turns]
    parameters = [["max_output_tokens", max_output_tokens]]
    parts = [PROTOCOL_VERSION, model, parameters, prompt.shared, prompt.own, prompt.task, turns]
    return sha256(msgspec.json.encode(parts)).hexdigest()


class AnswerCache:
    """A folder of answers by the key of their request.

    It holds complete answers only: no failures, no refusals, nothing cut off. An entry that cannot be read, or that this user
    has not written, counts as missing.

    Args:
        is_read_only: `store` writes nothing: for dry runs.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self._folder = folder
        self._is_read_only = is_read_only

    def lookup(self, key: str) -> Completion | None:
        """Return the stored answer; None if the model has to be asked."""
        kept = cache.read_cache(self._path(key), Completion, _place(key))
        return replace(kept, cost_usd=0.0, is_cached=True) if kept else None

    def store(self, key: str, completion: Completion) -> None:
        """Store a new answer if it is complete."""
        is_whole = completion.stop == "end" and completion.text.strip() and not completion.is_cached
        if is_whole and not self._is_read_only:
            cache.write_cache(self._path(key), completion, _place(key))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}.answer"


def _place(key: str) -> str:
    """Return the place for which an entry is sealed: this request, in any project of this user."""
    return f"answers/{key}"


# --- the provider's cache of prefixes ----------------------------------------------------------


_WORTH_BYTES = 4 * 1024
"""Shorter prefixes are not worth waiting for: providers cache none below about 1,024 tokens."""


class WarmingClient(ClientWrapper):
    """Lets the first request with a shared prefix finish before the others, so that they find it in the provider's cache.

    The others wait once for each prefix, whether the first request succeeds or not.
    """

    def __init__(self, inner: LLMClient) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._warm: dict[str, Event] = {}

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask, after the first request with this prefix has ended.

        Raises:
            ModelError: As the model.
        """
        if len(prompt.shared.encode()) < _WORTH_BYTES:
            return self._inner.complete(prompt, max_output_tokens, progress)
        with self._lock:
            is_first = prompt.shared not in self._warm
            is_warm = self._warm.setdefault(prompt.shared, Event())
        if not is_first:
            is_warm.wait()
        try:
            return self._inner.complete(prompt, max_output_tokens, progress)
        finally:
            is_warm.set()

    def close(self) -> None:
        """Close the model and release all waiting requests."""
        super().close()
        with self._lock:
            for is_warm in self._warm.values():
                is_warm.set()


# --- the tape of a session ---------------------------------------------------------------------


class RecordedFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there was no answer. Failures that end a session are not recorded, as they may be gone when it is resumed."""

    code: str
    data: dict[str, str | int | float | None] = {}
    is_transient: bool = False

    def to_error(self) -> ModelError:
        """Return the error that was raised."""
        return ModelError(self.code, is_transient=self.is_transient, **self.data)  # type: ignore[arg-type] # the sentence's


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one request.

    Attributes:
        key: The digest of the request.
        lost: What earlier failed attempts may have been charged for.
        seal: Proves that this user's GraphBus has recorded it for this session; empty except in answers.jsonl.
    """

    key: str
    completion: Completion | None = None
    failure: RecordedFailure | None = None
    lost: Amount = Amount()
    seal: str = ""

    def without_seal(self) -> RecordedAnswer:
        """Return the answer without its seal."""
        return replace(self, seal="") if self.seal else self

    def with_seal(self, place: str) -> RecordedAnswer:
        """Return the answer with a seal for a place."""
        return replace(self, seal=seal_of("answer", place, msgspec.json.encode(self.without_seal(), order="sorted")))


def encode_answers(answers: Iterable[RecordedAnswer]) -> bytes:
    """Return the lines of answers.jsonl."""
    return b"".join(msgspec.json.encode(answer, order="sorted") + b"\n" for answer in answers)


def decode_answers(data: bytes) -> tuple[RecordedAnswer, ...]:
    """Read the lines of answers.jsonl, without a last line that is incomplete because the process was killed.

    Raises:
        msgspec.DecodeError: Another line is damaged.
    """
    *whole, _torn = data.split(b"\n")
    try:
        return tuple(msgspec.json.decode(line, type=RecordedAnswer) for line in whole)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


class Tape:
    """The recorded answers of a session: known ones are used again, new ones are recorded.

    If the same request was made several times, its answers are used in the order in which they were recorded.
    """

    def __init__(self) -> None:
        self._known: defaultdict[str, deque[RecordedAnswer]] = defaultdict(deque)
        self._file: IO[bytes] | None = None
        self._place = ""
        self._lock = Lock()

    def load(self, answers: Iterable[RecordedAnswer]) -> None:
        """Add known answers, for a replay or a resumed session."""
        for answer in answers:
            self._known[answer.key].append(answer)

    def write_to(self, path: Path, place: str = "") -> None:
        """Append new answers to a file from now on; an incomplete last line is removed.

        Args:
            place: The place for which answers are sealed.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            with Folder.at(path.parent) as folder:
                self._file = file = open(folder.open_own(path.name), "rb+", buffering=0)  # noqa: SIM115 - to `close`
            self._place = place
            file.truncate(file.read().rfind(b"\n") + 1)

    def next_answer(self, key: str) -> RecordedAnswer | None:
        """Return the next known answer to a request; None if there is none left."""
        with self._lock:
            answers = self._known.get(key)
            return answers.popleft() if answers else None

    def record(self, answer: RecordedAnswer) -> None:
        """Record a new answer at once, so that nothing that was paid for is lost.

        Raises:
            ModelError: GBE472, it cannot be written.
        """
        with self._lock:
            if self._file is None:
                return
            line, end = encode_answers([answer.with_seal(self._place)]), self._file.seek(0, SEEK_END)
            try:
                _write_whole(self._file, line)
            except OSError as error:
                with suppress(OSError):  # an incomplete line would damage the next one
                    self._file.truncate(end)
                reason = (error.strerror or str(error)).lower()
                raise ModelError("GBE472", is_final=True, reason=reason) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file:
                self._file.close()
            self._file = None


def _write_whole(file: IO[bytes], data: bytes) -> None:
    """Write all data: on a nearly full disk, `write` may write a part without an error."""
    while data:
        data = data[file.write(data) :]


class TapedClient(ClientWrapper):
    """Answers from the tape, and records new answers on it. The outermost client.

    Args:
        cache: Searched before the client is asked. A new answer goes to the tape first and then to the cache: if the process
            is killed in between, the resumed session must still count the cost of the answer.
    """

    def __init__(self, inner: LLMClient, tape: Tape, cache: AnswerCache | None = None) -> None:
        super().__init__(inner)
        self._tape = tape
        self._cache = cache

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the recorded answer, or ask.

        Raises:
            ModelError: A failure was recorded, or there is no answer now.
        """
        key, bill = request_key(self.model, max_output_tokens, prompt), current_bill()
        answer = self._tape.next_answer(key)
        if answer:
            bill.add_loss(answer.lost)
        else:
            answer = self._ask(key, prompt, max_output_tokens, progress)
        if answer.completion is None:
            raise answer.failure.to_error() if answer.failure else ModelError("GBE471", model=self.model)
        bill.add_answer(answer.completion)
        return answer.completion

    def _ask(self, key: str, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None) -> RecordedAnswer:
        bill, cache = current_bill(), self._cache
        lost, completion, failure = bill.lost, None, None
        try:
            completion = (cache.lookup(key) if cache else None) or self._inner.complete(
                prompt, max_output_tokens, progress or bill.note_progress
            )
        except ModelError as error:
            if error.is_final or bill.refusal:
                raise
            data: dict[str, str | int | float | None] = {
                name: value if isinstance(value, str | int | float) else str(value)
                for name, value in error.data.items()
            }
            failure = RecordedFailure(code=error.code, data=data, is_transient=error.is_transient)
        answer = RecordedAnswer(key=key, completion=completion, failure=failure, lost=bill.lost.minus(lost))
        self._tape.record(answer)
        if cache and completion:
            cache.store(key, completion)
        return answer
