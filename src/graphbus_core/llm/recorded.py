"""Recorded answers, used instead of asking a model again: the cache of all sessions, and the tape of one session.

answers/        the cache: the same request costs nothing the second time; never committed, safe to delete
answers.jsonl   the tape: a line for each request with its digest, and the answer or failure; no prompts, no keys of providers,
                no times. `--resume` and `graphbus replay` read it

Entries are sealed, that is, signed with a secret of this user (`store.cache`): a file from anybody else is not accepted as an
answer of the model.
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

from graphbus_core.errors import ModelError, Place
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.llm.budget import NANO, Amount, Bill, current_bill
from graphbus_core.llm.client import ClientWrapper, Completion, LLMClient, ModelPrompt, Progress
from graphbus_core.store import cache
from graphbus_core.store.cache import seal_of
from graphbus_core.store.folders import Folder

# --- the cache of answers ----------------------------------------------------------------------


PROTOCOL_VERSION = 1
"""Part of each digest. Raise it if the same prompt shall no longer be answered from the cache."""


_LAYOUT = msgspec.msgpack.Decoder(Completion)
"""Created only so that msgspec inspects the type here, in one thread: two threads at once can crash it."""


def request_key(model: str, max_output_tokens: int, prompt: ModelPrompt, temperature: float | None = None) -> str:
    """Return the digest of a request: protocol version, model, limit, messages, and the temperature if it is set."""
    turns = [list(turn) for turn in prompt.turns]
    parameters: list[list[str | float]] = [["max_output_tokens", max_output_tokens]]
    parameters += [] if temperature is None else [["temperature", temperature]]
    parts = [PROTOCOL_VERSION, model, parameters, prompt.shared, prompt.own, prompt.task, turns]
    parts += [prompt.schema] if prompt.schema is not None else []
    return sha256(msgspec.json.encode(parts)).hexdigest()


class AnswerCache:
    """A folder of answers by the digest of their request.

    Only complete answers are stored: no failures, no refusals, nothing cut off. An entry that cannot be read, or that this user
    has not written, counts as missing.

    Args:
        folder: The folder, which need not exist.
        is_read_only: True in a dry run: `store` does nothing.
    """

    def __init__(self, folder: Path, *, is_read_only: bool = False) -> None:
        self._folder = folder
        self._is_read_only = is_read_only

    def lookup(self, key: str) -> Completion | None:
        """Return the stored answer, at no cost; None if there is none and the model must be asked."""
        kept = cache.read_cache(self._path(key), Completion, _place(key))
        return replace(kept, cost_usd=0.0, is_cached=True) if kept else None

    def store(self, key: str, completion: Completion) -> None:
        """Store an answer if it is complete and not itself from the cache."""
        is_whole = completion.stop == "end" and completion.text.strip() and not completion.is_cached
        if is_whole and not self._is_read_only:
            cache.write_cache(self._path(key), completion, _place(key))

    def remove(self, key: str) -> None:
        """Delete the stored answer to a request if there is one."""
        if not self._is_read_only:
            with suppress(OSError):
                self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key[2:]}.answer"


def _place(key: str) -> str:
    """Return what the seal of an entry is tied to: the request, but no project, so that projects may share entries."""
    return f"answers/{key}"


# --- the provider's cache of prefixes ----------------------------------------------------------


_MIN_PREFIX_BYTES = 4 * 1024
"""Requests with a shorter prefix do not wait: providers do not cache less than about 1,024 tokens."""


class WarmingClient(ClientWrapper):
    """Makes requests with the same shared prefix wait until the first of them has ended and filled the provider's cache.

    After that they run at the same time, whether the first request has succeeded or not.
    """

    def __init__(self, inner: LLMClient) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._warm: dict[str, Event] = {}

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer; wait first if another request with this prefix was the first, and has not ended.

        Raises:
            ModelError: As the inner client.
        """
        if len(prompt.shared.encode()) < _MIN_PREFIX_BYTES:
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
        """Close the inner client, and let all waiting requests go on, which then fail."""
        super().close()
        with self._lock:
            for is_warm in self._warm.values():
                is_warm.set()


# --- the tape of a session ---------------------------------------------------------------------


class RecordedFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there was no answer. Failures that end a session are not recorded: they need not occur again when it is resumed."""

    code: str
    data: dict[str, str | int | float | None] = {}
    is_transient: bool = False

    def to_error(self) -> ModelError:
        """Return the error that was raised."""
        return ModelError(self.code, is_transient=self.is_transient, **self.data)  # type: ignore[arg-type] # data of the sentence


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one request.

    Attributes:
        key: The digest of the request.
        completion: The answer; None if there was none.
        failure: Why there was no answer; None if there was one.
        lost: The amount that earlier failed attempts may have been charged for.
        is_rejected: True for a line that is no answer: it says that the last answer to this request before it could not be used;
            or, without a key, what the unusable answers of an interrupted session have cost.
        seal: Proves that this user has recorded it for this session; empty except in answers.jsonl.
    """

    key: str
    completion: Completion | None = None
    failure: RecordedFailure | None = None
    lost: Amount = Amount()
    is_rejected: bool = False
    seal: str = ""

    def without_seal(self) -> RecordedAnswer:
        """Return the answer without its seal."""
        return replace(self, seal="") if self.seal else self

    @property
    def cost(self) -> Amount:
        """What the answer has cost, `lost` included."""
        answer = self.completion
        if answer is None or answer.is_cached:
            return self.lost
        return self.lost.plus(Amount(answer.usage.total_tokens, round((answer.cost_usd or 0.0) * NANO)))

    def with_seal(self, place: str) -> RecordedAnswer:
        """Return the answer with a seal that is tied to a place: a project folder and a session."""
        return replace(self, seal=seal_of("answer", place, msgspec.json.encode(self.without_seal(), order="sorted")))


def encode_answers(answers: Iterable[RecordedAnswer]) -> bytes:
    """Return the lines of answers.jsonl."""
    return b"".join(msgspec.json.encode(answer, order="sorted") + b"\n" for answer in answers)


def decode_answers(data: bytes) -> tuple[RecordedAnswer, ...]:
    """Return the answers in answers.jsonl; an incomplete last line, left by a killed process, is skipped.

    Raises:
        msgspec.DecodeError: Another line is damaged.
    """
    *whole, _torn = data.split(b"\n")
    try:
        return tuple(msgspec.json.decode(line, type=RecordedAnswer) for line in whole)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def drop_unusable(answers: Iterable[RecordedAnswer]) -> tuple[RecordedAnswer, ...]:
    """Return the answers that a resumed session uses again: without failures, and without answers that could not be used.

    If the others have cost something, a line at the end says so; the first new answer after it includes that in its `lost`.
    """
    kept: list[RecordedAnswer] = []
    lost = untaken = Amount()
    for answer in answers:
        if answer.is_rejected and not answer.key:
            untaken = answer.lost
        elif answer.is_rejected:
            dropped = next((each for each in reversed(kept) if each.key == answer.key), None)
            kept = [each for each in kept if each is not dropped]
            lost = lost.plus(dropped.cost if dropped else Amount())
        else:
            kept += [answer] if answer.completion else []
            lost, untaken = lost.plus(Amount() if answer.completion else answer.lost), Amount()
    lost = lost.plus(untaken)
    return (*kept, RecordedAnswer(key="", lost=lost, is_rejected=True)) if lost != Amount() else tuple(kept)


class Tape:
    """The recorded answers of a session: loaded ones are used again, new ones are recorded.

    If the same request was made several times, its answers are used in the order in which they were recorded.
    """

    def __init__(self) -> None:
        self._known: defaultdict[str, deque[RecordedAnswer]] = defaultdict(deque)
        self._lost = Amount()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._place = ""
        self._lock = Lock()

    def load(self, answers: Iterable[RecordedAnswer]) -> None:
        """Add recorded answers, for a replay or a resumed session."""
        for answer in answers:
            if answer.is_rejected:
                self._lost = answer.lost
            else:
                self._known[answer.key].append(answer)

    def write_to(self, path: Path, place: str = "") -> None:
        """Append new answers to a file from now on; an incomplete last line is removed.

        Args:
            path: The file, which is created if it does not exist.
            place: What the seals of the answers are tied to.

        Raises:
            OSError: The file cannot be written.
        """
        with self._lock:
            with Folder.at(path.parent) as folder:
                self._file = file = open(folder.open_own(path.name), "rb+", buffering=0)  # noqa: SIM115 - closed by `close`
            self._place, self._path = place, path
            file.truncate(file.read().rfind(b"\n") + 1)

    def next_answer(self, key: str) -> RecordedAnswer | None:
        """Remove and return the next recorded answer to a request; None if there is none left."""
        with self._lock:
            answers = self._known.get(key)
            return answers.popleft() if answers else None

    def take_lost(self) -> Amount:
        """Return once what the dropped answers of an interrupted session have cost."""
        with self._lock:
            lost, self._lost = self._lost, Amount()
        return lost

    def record(self, answer: RecordedAnswer) -> None:
        """Write a new answer to the file at once, so that an answer that was paid for is not lost; without a file do nothing.

        Raises:
            ModelError: GBE472, the file cannot be written.
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
                where, advice = Place(str(self._path)), advise_on(error, self._path)
                raise ModelError(
                    "GBE472", is_final=True, where=where, reason=reason_of(error), advice=advice
                ) from error

    def close(self) -> None:
        """Close the file; later answers are not recorded."""
        with self._lock:
            if self._file:
                self._file.close()
            self._file = None


def _write_whole(file: IO[bytes], data: bytes) -> None:
    """Write all data. One `write` may not be enough: on a nearly full disk it may write only a part, without an error."""
    while data:
        data = data[file.write(data) :]


def _add_loss(bill: Bill, lost: Amount) -> None:
    """Add what failed attempts have cost; nothing if there was none, as the bill would count another attempt."""
    if lost != Amount():
        bill.add_loss(lost)


class TapedClient(ClientWrapper):
    """Answers from the tape, and records new answers on it. All other wrappers are inside of this one.

    Args:
        inner: The client that is asked.
        tape: The recorded answers of the session.
        cache: Searched before the client is asked. A new answer is written to the tape first: if the process is killed before it
            is written to the cache, the resumed session still counts its cost.
        temperature: That of the settings, None if they leave it to the provider.
    """

    def __init__(
        self, inner: LLMClient, tape: Tape, cache: AnswerCache | None = None, temperature: float | None = None
    ) -> None:
        super().__init__(inner)
        self._tape = tape
        self._cache = cache
        self._temperature = temperature

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the answer from the tape or the cache, or ask; its cost is added to the current bill.

        Raises:
            ModelError: The recorded failure, or that of the inner client.
        """
        key, bill = request_key(self.model, max_output_tokens, prompt, self._temperature), current_bill()
        answer = self._tape.next_answer(key)
        if answer:
            _add_loss(bill, answer.lost)
        else:
            answer = self._ask_and_record(key, prompt, max_output_tokens, progress)
        if answer.completion is None:
            raise answer.failure.to_error() if answer.failure else ModelError("GBE471", model=self.model)
        bill.add_answer(answer.completion)
        return answer.completion

    def reject(self, prompt: ModelPrompt, max_output_tokens: int) -> None:
        """Remove the answer to a request from the cache, and note on the tape that a resumed session must not use it again.

        A replay still uses it.

        Raises:
            ModelError: GBE472, the note cannot be written.
        """
        key = request_key(self.model, max_output_tokens, prompt, self._temperature)
        if self._cache:
            self._cache.remove(key)
        self._tape.record(RecordedAnswer(key=key, is_rejected=True))

    def _ask_and_record(
        self, key: str, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None
    ) -> RecordedAnswer:
        """Return a new answer or failure from the cache or the inner client, after recording it.

        Raises:
            ModelError: A failure that ends the session, or that of the budget; it is not recorded.
        """
        bill, cache = current_bill(), self._cache
        lost, completion, failure = bill.lost, None, None
        _add_loss(bill, self._tape.take_lost())
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
