"""A program as a model: it reads the prompt on stdin and prints the answer, for example a coding agent in headless mode.

The prompt is an unnamed temporary file. The output is polled together with the end of the program; a child process that keeps the
pipe open after that is not waited for. The program gets PATH, HOME, the locale and the variables in `pass_env`, and nothing else
of the environment. Token counts are estimated by length; its cost counts as 0.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from graphbus_core.errors import ModelError
from graphbus_core.isolation import kill_marked_processes
from graphbus_core.llm.client import Completion, LLMClient, ModelPrompt, Progress, estimate_tokens
from graphbus_core.llm.providers import MAX_ANSWER_BYTES, remove_key, remove_secrets
from graphbus_core.model.spending import Price, Usage

_MOST_MESSAGES_BYTES = 16 * MAX_ANSWER_BYTES
_SHOWN_BYTES = 64_000
_ALWAYS = ("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TMPDIR")
_MARK = "GRAPHBUS_PROGRAM"
"""This variable marks all processes that a program starts, so that they are found in other process groups as well."""
_POLL_S = 0.05
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences of terminals, which some programs print into a pipe as well."""


class _ProgramOutput:
    """The output of a running program so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.answer, self.messages = bytearray(), bytearray()
        self._streams = [
            (stream, kept) for stream, kept in zip(_outputs(process), (self.answer, self.messages), strict=True)
        ]

    def read(self) -> None:
        """Read what is available now, up to a limit."""
        for stream, kept in self._streams:
            most = len(kept) + MAX_ANSWER_BYTES
            with suppress(BlockingIOError):  # there is no more for now
                while len(kept) <= most and (piece := os.read(stream.fileno(), 65536)):
                    kept.extend(piece)

    def close(self) -> None:
        """Close the pipes."""
        for stream, _ in self._streams:
            stream.close()


def _outputs(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    for stream in streams:
        os.set_blocking(stream.fileno(), False)
    return streams


class CommandClient(LLMClient):
    """Runs a program for each prompt, in a process group of its own, and takes what it prints as the answer.

    Args:
        argv: The program and its arguments; no shell sees them.
        timeout_s: After this time the whole process group is killed.
        pass_env: Further variables of `environ` that the program gets.
    """

    def __init__(
        self, argv: Iterable[str], timeout_s: float, environ: Mapping[str, str], pass_env: Iterable[str] = ()
    ) -> None:
        self._argv = tuple(argv)
        self.model = "command:" + remove_secrets(shlex.join([os.path.basename(self._argv[0]), *self._argv[1:]]), "")
        self.price: Price | None = Price(0.0, 0.0)
        self._timeout_s = timeout_s
        self._secrets = tuple(environ[name] for name in pass_env if environ.get(name))
        self._environ = {name: environ[name] for name in (*_ALWAYS, *pass_env) if name in environ}
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], str] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"CommandClient({self.model!r})"

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Run the program once. It does not learn `max_output_tokens`.

        Raises:
            ModelError: GBE447, GBE448, GBE450, GBE452, GBE453.
        """
        asked = prompt_as_text(prompt)
        try:
            said = self._run(asked, progress or _ignore)
        except OSError as error:  # of the temporary files
            reason = (error.strerror or str(error)).lower()
            raise ModelError("GBE448", is_final=True, provider=self.model, reason=reason) from error
        usage = Usage(input_tokens=estimate_tokens(asked), output_tokens=estimate_tokens(said))
        return Completion(text=said, model=self.model, usage=usage, cost_usd=0.0)

    def _run(self, asked: str, progress: Progress) -> str:
        with TemporaryFile() as given:
            given.write(asked.encode("utf-8", "replace"))
            given.seek(0)
            process = self._start(given)
        said, has_ended = _ProgramOutput(process), False
        try:
            self._wait(process, said, progress)
            has_ended = not self._is_closed
        finally:
            self._end(process, is_orderly=has_ended)
            said.close()
        return self._judge(process.returncode, bytes(said.answer), bytes(said.messages[-_SHOWN_BYTES:]))

    def close(self) -> None:
        """Kill the programs that still run."""
        with self._lock:
            self._is_closed = True
            for process, mark in self._running.items():
                _kill_group(process)
                kill_marked_processes(_MARK, mark)

    def _start(self, given: IO[bytes]) -> subprocess.Popen[bytes]:
        mark = os.urandom(8).hex()
        with self._lock:
            if self._is_closed:
                reason = "the client was closed"
                raise ModelError("GBE448", is_final=True, provider=self.model, reason=reason)
            try:
                process = subprocess.Popen(
                    self._argv,
                    stdin=given,
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

    def _wait(self, process: subprocess.Popen[bytes], said: _ProgramOutput, progress: Progress) -> None:
        """Wait for the end of the program, within a time and a size."""
        end_s = time.monotonic() + self._timeout_s
        has_ended = False
        while not has_ended:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise ModelError(
                    "GBE447", is_transient=True, may_be_billed=True, provider=self.model, timeout_s=self._timeout_s
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(left_s, _POLL_S))
                has_ended = True
            said.read()
            if len(said.answer) > MAX_ANSWER_BYTES or len(said.messages) > _MOST_MESSAGES_BYTES:
                raise ModelError("GBE450", may_be_billed=True, provider=self.model, limit_bytes=MAX_ANSWER_BYTES)
            if said.answer:
                progress(len(said.answer))

    def _end(self, process: subprocess.Popen[bytes], *, is_orderly: bool) -> None:
        """Kill the process group of a program; after a failure also the processes that have left the group."""
        _kill_group(process)
        process.wait()
        with self._lock:
            mark = self._running.pop(process)
        if not is_orderly:
            kill_marked_processes(_MARK, mark)

    def _judge(self, status: int, answer: bytes, messages: bytes) -> str:
        if status != 0:
            reason = self._last_line(messages) or self._last_line(answer) or "it printed nothing"
            raise ModelError("GBE453", may_be_billed=True, program=self._argv[0], status=status, reason=reason)
        said = _TERMINAL.sub("", answer.decode("utf-8", "replace"))
        for secret in self._secrets:
            said = remove_key(said, secret)
        return said

    def _last_line(self, data: bytes) -> str:
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        text = lines[-1] if lines else ""
        for secret in self._secrets:
            text = remove_secrets(text, secret)
        return remove_secrets(text, "")


def prompt_as_text(prompt: ModelPrompt) -> str:
    """Return a prompt as one text; later messages have a heading that says who wrote them."""
    parts = [part for part in (prompt.shared, prompt.own, prompt.task) if part]
    for turn in prompt.turns:
        who = "Your answer was:" if turn.role == "assistant" else "The reply to it:"
        parts.append(f"{who}\n\n{turn.text}")
    return "\n\n".join(parts) + "\n"


def _ignore(_characters: int) -> None:
    """A `Progress` that does nothing."""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
