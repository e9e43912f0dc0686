"""A program as a model: it reads the prompt on stdin and prints the answer, for example a coding agent in headless mode.

It gets PATH, HOME, the locale and what `pass_env` names, nothing else of the environment. Token counts are estimated by length;
it costs nothing as far as GraphBus knows.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from graphbus_core.errors import ModelError
from graphbus_core.isolation import end_marked
from graphbus_core.llm.client import Completion, Progress, Prompt, estimated
from graphbus_core.llm.providers import MAX_ANSWER_BYTES, scrub, without
from graphbus_core.model.spending import Price, Usage

_MAX_STDERR_BYTES = 64_000
_ALWAYS = ("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TMPDIR")
_CHUNK = 65_536
_MARK = "GRAPHBUS_PROGRAM"
"""The variable by which whatever a program has started is found, wherever it has moved."""
_POLL_S = 0.05
_SILENCE_S, _LONGEST_REST_S = 0.2, 2.0
"""How long an ended program's output is still listened to while others hold it open: to silence, or to the longest rest."""
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Colours, movements and titles for a terminal: some programs print them into a pipe as well."""


class CommandClient:
    """Runs a program for each prompt, in a process group of its own, and takes what it prints as the answer.

    Args:
        argv: The program and its arguments; no shell sees them.
        timeout_s: Then the whole group is killed.
        pass_env: Further variables of `environ` that the program gets.
    """

    def __init__(
        self,
        argv: Iterable[str],
        timeout_s: float,
        environ: Mapping[str, str],
        pass_env: Iterable[str] = (),
        price: Price | None = None,
    ) -> None:
        self._argv = tuple(argv)
        self.model = "command:" + scrub(shlex.join([os.path.basename(self._argv[0]), *self._argv[1:]]), "")
        self.price: Price | None = price or Price(0.0, 0.0)
        self._timeout_s = timeout_s
        self._secrets = tuple(environ[name] for name in pass_env if environ.get(name))
        self._environ = {name: environ[name] for name in (*_ALWAYS, *pass_env) if name in environ}
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], str] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"CommandClient({self.model!r})"

    def complete(self, prompt: Prompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Run the program once. It is not told of `max_output_tokens`.

        Raises:
            ModelError: GBE447, GBE448, GBE450, GBE452, GBE453.
        """
        asked = as_text(prompt).encode("utf-8", "replace")
        mark = os.urandom(8).hex()
        process = self._start(mark)
        has_answered = False
        try:
            output = _Exchange(process, asked, self._timeout_s, progress).run()
            has_answered = not (output.is_late or output.is_too_long or self._is_closed)
        finally:
            _kill_group(process)
            process.wait()
            if not has_answered:  # a server that a program has started for later may stay when all went well
                end_marked(_MARK, mark)
            with self._lock:
                del self._running[process]
        said = self._judge(process.returncode, output)
        usage = Usage(input_tokens=estimated(asked.decode()), output_tokens=estimated(said))
        return Completion(text=said, model=self.model, usage=usage, cost_usd=0.0)

    def close(self) -> None:
        """Kill what still runs."""
        with self._lock:
            self._is_closed = True
            for process, mark in self._running.items():
                _kill_group(process)
                end_marked(_MARK, mark)

    def _start(self, mark: str) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                reason = "the client was closed"
                raise ModelError("GBE448", is_final=True, provider=self.model, reason=reason)
            try:
                process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**self._environ, _MARK: mark},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = (getattr(error, "strerror", "") or str(error)).lower()
                raise ModelError("GBE452", is_final=True, program=self._argv[0], reason=reason) from None
            self._running[process] = mark
            return process

    def _judge(self, status: int, output: _Output) -> str:
        if output.is_late:
            raise ModelError(
                "GBE447", is_transient=True, may_be_billed=True, provider=self.model, timeout_s=self._timeout_s
            )
        if output.is_too_long:
            raise ModelError("GBE450", may_be_billed=True, provider=self.model, limit_bytes=MAX_ANSWER_BYTES)
        if status != 0:
            reason = self._last_line(output.errors) or self._last_line(output.answer) or "it says nothing"
            raise ModelError("GBE453", may_be_billed=True, program=self._argv[0], status=status, reason=reason)
        said = _TERMINAL.sub("", output.answer.decode("utf-8", "replace"))
        for secret in self._secrets:
            said = without(said, secret)
        return said

    def _last_line(self, data: bytes) -> str:
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        text = lines[-1] if lines else ""
        for secret in self._secrets:
            text = scrub(text, secret)
        return scrub(text, "")


def as_text(prompt: Prompt) -> str:
    """Give a prompt as one text, in its order; what followed is marked by who said it."""
    parts = [part for part in (prompt.shared, prompt.own, prompt.task) if part]
    for turn in prompt.turns:
        who = "Your answer was:" if turn.role == "assistant" else "The reply to it:"
        parts.append(f"{who}\n\n{turn.text}")
    return "\n\n".join(parts) + "\n"


class _Output(NamedTuple):
    answer: bytes
    errors: bytes
    is_late: bool
    is_too_long: bool


class _Exchange:
    """Writes to a process and reads from it at the same time, within a time and a size."""

    def __init__(
        self, process: subprocess.Popen[bytes], asked: bytes, timeout_s: float, progress: Progress | None
    ) -> None:
        self._process = process
        self._left = memoryview(asked)
        self._end_s = time.monotonic() + timeout_s
        self._progress = progress
        self._answer = bytearray()
        self._errors = bytearray()

    def run(self) -> _Output:
        """Go on until the program has closed its output or has ended, or too much time or space is used."""
        process = self._process
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("the process has no pipes")
        with process.stdin, process.stdout, process.stderr, selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
            is_late = self._pump(selector)
            with suppress(BrokenPipeError):
                process.stdin.close()
        is_too_long = len(self._answer) > MAX_ANSWER_BYTES
        if not is_late and not is_too_long:
            is_late = not self._has_ended()
        return _Output(bytes(self._answer), bytes(self._errors), is_late, is_too_long)

    def _has_ended(self) -> bool:
        try:
            self._process.wait(max(0.0, self._end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _pump(self, selector: selectors.BaseSelector) -> bool:
        """True when the time was over first."""
        last_s = self._end_s
        while any(key.events == selectors.EVENT_READ for key in selector.get_map().values()):
            has_ended = self._process.poll() is not None
            now_s = time.monotonic()
            if has_ended:
                last_s = min(last_s, now_s + _LONGEST_REST_S)
            if now_s >= last_s:
                return not has_ended
            ready = selector.select(min(last_s - now_s, _SILENCE_S if has_ended else _POLL_S))
            for key, _events in ready:
                self._serve(selector, key)
            if len(self._answer) > MAX_ANSWER_BYTES or (has_ended and not ready):
                return False
        return False

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        """Write to the pipe that is ready, or read from it, and let go of it at its end."""
        if self._write(key.fd) if key.events == selectors.EVENT_WRITE else self._read(key.fileobj):
            return
        selector.unregister(key.fileobj)
        if key.events == selectors.EVENT_WRITE and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _write(self, pipe: int) -> bool:
        """False when everything is written or the reader has closed its end."""
        try:
            self._left = self._left[os.write(pipe, self._left[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return len(self._left) > 0

    def _read(self, pipe: object) -> bool:
        """False at the end."""
        stream: IO[bytes] | None = self._process.stdout if pipe is self._process.stdout else self._process.stderr
        data = os.read(stream.fileno(), _CHUNK) if stream else b""
        if stream is self._process.stderr:
            self._errors = (self._errors + data)[-_MAX_STDERR_BYTES:]
        else:
            self._answer += data
            if data and self._progress:
                self._progress(len(self._answer))
        return bool(data)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
