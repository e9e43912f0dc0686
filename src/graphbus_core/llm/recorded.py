"""Answers that are given again instead of being asked for: from the cache, and from the tape of a session.

answers/        the cache: a request that is repeated word for word costs nothing; never committed, safe to delete
answers.jsonl   the tape: one request a line, its key, and the answer or why there was none; no prompts, no keys of providers, no
                times. `--resume` and `graphbus replay` rest on it

Whoever can put a file into a project could otherwise speak for the model: entries are sealed (`store.cache`).
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
from graphbus_core.store.beneath import Folder
from graphbus_core.store.cache import seal_of

# --- the cache of answers ----------------------------------------------------------------------


PROTOCOL_VERSION = 1
"""Goes up when a prompt of the same words means something else."""


_LAYOUT = msgspec.msgpack.Decoder(Completion)
"""Made here, in one thread: two threads that read the layout of a type for the first time at once can crash the process."""


def request_key(model: str, max_output_tokens: int, prompt: ModelPrompt) -> str:
    """Return the sha256 of all that decides about an answer: protocol version, model, limit, messages."""
    turns = [list(turn) for turn in prompt.turns]
    parameters = [["max_output_tokens", max_output_tokens]]
    parts = [PROTOCOL_VERSION, model, parameters, prompt.shared, prompt.own, prompt.task, turns]
    return sha256(msgspec.json.encode(parts)).hexdigest()


class AnswerCache:
    """A folder with answers by the key of their request.

    It holds whole answers only: no failures, nothing cut off, no refusals. An entry that cannot be read, or that this user has
    not written, counts as none.

    Args:
        is_read_only: `store` writes nothing: for dry runs.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self._folder = folder
        self._is_read_only = is_read_only

    def lookup(self, key: str) -> Completion | None:
        """Return the answer if there is one, and None if the model would have to be asked."""
        kept = cache.read_cache(self._path(key), Completion, _place(key))
        return replace(kept, cost_usd=0.0, is_cached=True) if kept else None

    def store(self, key: str, completion: Completion) -> None:
        """Keep a new answer, if it is a whole one."""
        is_whole = completion.stop == "end" and completion.text.strip() and not completion.is_cached
        if is_whole and not self._is_read_only:
            cache.write_cache(self._path(key), completion, _place(key))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}.answer"


def _place(key: str) -> str:
    """Return what the seal of an entry is for: this request, in any project of this user."""
    return f"answers/{key}"


# --- the provider's cache of prefixes ----------------------------------------------------------


_WORTH_BYTES = 4 * 1024
"""Providers cache no prefix of fewer than about 1,024 tokens."""


class WarmingClient(ClientWrapper):
    """Sends one request before the others with the same shared prefix, so that the provider's cache holds it for them.

    Once for each prefix, whether that request succeeds or not.
    """

    def __init__(self, inner: LLMClient) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._warm: dict[str, Event] = {}

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Ask, after the first of this prefix has been answered.

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
    """Why there was no answer; one that ends a session is not kept, for it may be mended before the session goes on."""

    code: str
    data: dict[str, str | int | float | None] = {}
    is_transient: bool = False

    def to_error(self) -> ModelError:
        """Return the error as it was raised."""
        return ModelError(self.code, is_transient=self.is_transient, **self.data)  # type: ignore[arg-type] # the sentence's


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one request.

    Attributes:
        key: What was asked, as a digest.
        lost: What attempts that failed before may have been charged for.
        seal: Tells that this user's GraphBus has written it down for this session; empty elsewhere than in answers.jsonl.
    """

    key: str
    completion: Completion | None = None
    failure: RecordedFailure | None = None
    lost: Amount = Amount()
    seal: str = ""

    def without_seal(self) -> RecordedAnswer:
        """Return the same without its seal."""
        return replace(self, seal="") if self.seal else self

    def with_seal(self, place: str) -> RecordedAnswer:
        """Return the same with the seal for a place."""
        return replace(self, seal=seal_of("answer", place, msgspec.json.encode(self.without_seal(), order="sorted")))


def encode_answers(answers: Iterable[RecordedAnswer]) -> bytes:
    """Return the lines of answers.jsonl."""
    return b"".join(msgspec.json.encode(answer, order="sorted") + b"\n" for answer in answers)


def decode_answers(data: bytes) -> tuple[RecordedAnswer, ...]:
    """Read the lines of answers.jsonl; a last one that was cut off when the process was killed is left out.

    Raises:
        msgspec.DecodeError: Another line is damaged.
    """
    *whole, _torn = data.split(b"\n")
    try:
        return tuple(msgspec.json.decode(line, type=RecordedAnswer) for line in whole)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


class Tape:
    """The answers of a session: those known from before are given again, new ones are written down.

    The same request may be asked more than once; its answers are given in the order in which they came.
    """

    def __init__(self) -> None:
        self._known: defaultdict[str, deque[RecordedAnswer]] = defaultdict(deque)
        self._file: IO[bytes] | None = None
        self._place = ""
        self._lock = Lock()

    def load(self, answers: Iterable[RecordedAnswer]) -> None:
        """Know these answers from before."""
        for answer in answers:
            self._known[answer.key].append(answer)

    def write_to(self, path: Path, place: str = "") -> None:
        """Keep new answers in a file, after those that are in it; a line that was cut off goes.

        Args:
            place: What they are sealed for.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            with Folder.at(path.parent) as folder:
                self._file = file = open(folder.open_own(path.name), "rb+", buffering=0)  # noqa: SIM115 - to `close`
            self._place = place
            file.truncate(file.read().rfind(b"\n") + 1)

    def next_answer(self, key: str) -> RecordedAnswer | None:
        """Return the next answer to a request that was asked before; None when it is new."""
        with self._lock:
            answers = self._known.get(key)
            return answers.popleft() if answers else None

    def record(self, answer: RecordedAnswer) -> None:
        """Write down a new answer at once, so that nothing that was paid for is lost.

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
                with suppress(OSError):  # half a line must not stand before those that may still come
                    self._file.truncate(end)
                reason = (error.strerror or str(error)).lower()
                raise ModelError("GBE472", is_final=True, reason=reason) from error

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            if self._file:
                self._file.close()
            self._file = None


def _write_whole(file: IO[bytes], data: bytes) -> None:
    """Write all of it: on a nearly full disk, `write` takes a part without an error."""
    while data:
        data = data[file.write(data) :]


class TapedClient(ClientWrapper):
    """Gives what is on the tape again, and tapes what is new. Stands before all other clients.

    Args:
        cache: Looked into before the client is asked. A new answer is on the tape before it is in the cache: who was killed in
            between has paid for it, and must not find it free of charge.
    """

    def __init__(self, inner: LLMClient, tape: Tape, cache: AnswerCache | None = None) -> None:
        super().__init__(inner)
        self._tape = tape
        self._cache = cache

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer from before, or ask.

        Raises:
            ModelError: There was none before either, or there is none now.
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
