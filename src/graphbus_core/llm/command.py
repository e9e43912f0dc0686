"""Uses a program as a model, for example a coding agent in headless mode: it reads the prompt on stdin and prints the answer.

The prompt is an unnamed temporary file. The output is read until the program ends; a child process that keeps the pipe open
after that is not waited for. The program gets only these environment variables: PATH, HOME, TMPDIR, the locale, and those in
`pass_env`. Tokens are estimated by length, and the cost counts as 0.
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
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.isolation import kill_marked_processes
from graphbus_core.llm.client import Completion, LLMClient, ModelPrompt, Progress, estimate_tokens
from graphbus_core.llm.providers import (
    COMMAND,
    MAX_ANSWER_BYTES,
    ModelSpec,
    public_name,
    remove_key,
    remove_secrets,
)
from graphbus_core.model.spending import Price, Usage

_MAX_MESSAGES_BYTES = 16 * MAX_ANSWER_BYTES
_TAIL_BYTES = 64_000
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TMPDIR")
_MARK = "GRAPHBUS_PROGRAM"
"""The environment variable that marks all processes of a program, so that those in other process groups are found too."""
_POLL_S = 0.05
_ESCAPE_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences of terminals, which some programs print even into a pipe."""


class _ProgramOutput:
    """The output of a running program so far: `answer` from stdout, `messages` from stderr."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.answer, self.messages = bytearray(), bytearray()
        self._streams = [
            (stream, kept)
            for stream, kept in zip(_open_nonblocking(process), (self.answer, self.messages), strict=True)
        ]

    def read(self) -> None:
        """Read what is available now without waiting, from each pipe at most about `MAX_ANSWER_BYTES`."""
        for stream, kept in self._streams:
            limit = len(kept) + MAX_ANSWER_BYTES
            with suppress(BlockingIOError):  # nothing more is available now
                while len(kept) <= limit and (piece := os.read(stream.fileno(), 65536)):
                    kept.extend(piece)

    def close(self) -> None:
        """Close the pipes."""
        for stream, _ in self._streams:
            stream.close()


def _open_nonblocking(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    """Return stdout and stderr of a process, after making them non-blocking."""
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    for stream in streams:
        os.set_blocking(stream.fileno(), False)
    return streams


class CommandClient(LLMClient):
    """Runs a program for each prompt, in a process group of its own, and returns what it prints as the answer.

    Args:
        argv: The program and its arguments; no shell is used.
        timeout_s: The whole process group is killed after this time.
        environ: The environment variables.
        pass_env: The names of further variables that the program gets. Their values are removed from answers and errors.
    """

    def __init__(
        self, argv: Iterable[str], timeout_s: float, environ: Mapping[str, str], pass_env: Iterable[str] = ()
    ) -> None:
        self._argv = tuple(argv)
        self.model = public_name(ModelSpec(COMMAND, shlex.join(self._argv)))
        self.price: Price | None = Price(0.0, 0.0)
        self._timeout_s = timeout_s
        self._secrets = tuple(environ[name] for name in pass_env if environ.get(name))
        self._environ = {name: environ[name] for name in (*_INHERITED_VARIABLES, *pass_env) if name in environ}
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], str] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"CommandClient({self.model!r})"

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Run the program once, and return its answer. `max_output_tokens` is not passed to it.

        Raises:
            ModelError: GBE447, it took too long; GBE448, the client was closed, or there is no temporary file; GBE450, it printed
                too much; GBE452, it cannot be started; GBE453, it failed.
        """
        text = prompt_as_text(prompt)
        try:
            answer = self._run_program(text, progress or _ignore_progress)
        except OSError as error:  # the temporary file
            reason, advice = f"no temporary file for the prompt, {reason_of(error)}", advise_on(error)
            raise ModelError("GBE452", is_final=True, program=self._argv[0], reason=reason, advice=advice) from error
        usage = Usage(input_tokens=estimate_tokens(text), output_tokens=estimate_tokens(answer))
        return Completion(text=answer, model=self.model, usage=usage, cost_usd=0.0)

    def _run_program(self, prompt: str, progress: Progress) -> str:
        """Run the program with a prompt on stdin, and return its answer; at the end all its processes are killed."""
        with TemporaryFile() as stdin:
            stdin.write(prompt.encode("utf-8", "replace"))
            stdin.seek(0)
            process = self._start_program(stdin)
        output, has_ended = _ProgramOutput(process), False
        try:
            self._wait_for_end(process, output, progress)
            has_ended = not self._is_closed
        finally:
            self._kill_leftovers(process, is_orderly=has_ended)
            output.close()
        return self._read_answer(process.returncode, bytes(output.answer), bytes(output.messages[-_TAIL_BYTES:]))

    def close(self) -> None:
        """Kill the programs that still run; later calls raise ModelError."""
        with self._lock:
            self._is_closed = True
            for process, mark in self._running.items():
                _kill_group(process)
                kill_marked_processes(_MARK, mark)

    def _start_program(self, stdin: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the program and remember its process and mark, for `close`; raise ModelError if it cannot be started."""
        mark = os.urandom(8).hex()
        with self._lock:
            if self._is_closed:
                reason = "the client was closed"
                raise ModelError("GBE448", is_final=True, provider=self.model, reason=reason)
            try:
                process = subprocess.Popen(
                    self._argv,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**self._environ, _MARK: mark},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                advice = "Correct the program's name after `command:`, or write its full path."
                if isinstance(error, PermissionError):
                    advice = "Make it executable, e.g. with `chmod +x`."
                program, reason = self._argv[0], reason_of(error)
                raise ModelError("GBE452", is_final=True, program=program, reason=reason, advice=advice) from None
            self._running[process] = mark
            return process

    def _wait_for_end(self, process: subprocess.Popen[bytes], output: _ProgramOutput, progress: Progress) -> None:
        """Read the output until the program ends; raise ModelError if it takes too long or prints too much."""
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
            output.read()
            if len(output.answer) > MAX_ANSWER_BYTES or len(output.messages) > _MAX_MESSAGES_BYTES:
                raise ModelError("GBE450", may_be_billed=True, provider=self.model, limit_bytes=MAX_ANSWER_BYTES)
            if output.answer:
                progress(len(output.answer))

    def _kill_leftovers(self, process: subprocess.Popen[bytes], *, is_orderly: bool) -> None:
        """Kill the process group of a program; after a failure also the processes that have left the group."""
        _kill_group(process)
        process.wait()
        with self._lock:
            mark = self._running.pop(process)
        if not is_orderly:
            kill_marked_processes(_MARK, mark)

    def _read_answer(self, status: int, answer: bytes, messages: bytes) -> str:
        """Return the answer as text, without escape sequences and secrets; raise GBE453 for a nonzero exit status."""
        if status != 0:
            reason = self._last_line(messages) or self._last_line(answer) or "it printed nothing"
            program = os.path.basename(self._argv[0])
            raise ModelError("GBE453", may_be_billed=True, program=program, status=status, reason=remove_paths(reason))
        text = _ESCAPE_SEQUENCES.sub("", answer.decode("utf-8", "replace"))
        for secret in self._secrets:
            text = remove_key(text, secret)
        return text

    def _last_line(self, data: bytes) -> str:
        """Return the last line of an output that is not empty, without secrets, for an error message."""
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
        text = lines[-1] if lines else ""
        for secret in self._secrets:
            text = remove_secrets(text, secret)
        return remove_secrets(text, "")


def prompt_as_text(prompt: ModelPrompt) -> str:
    """Return a prompt as one text, in which each later message has a heading that names its author."""
    parts = [part for part in (prompt.shared, prompt.own, prompt.task) if part]
    for turn in prompt.turns:
        heading = "Your answer was:" if turn.role == "assistant" else "The reply to it:"
        parts.append(f"{heading}\n\n{turn.text}")
    return "\n\n".join(parts) + "\n"


def _ignore_progress(_characters: int) -> None:
    """A `Progress` that does nothing."""


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a program, if it still exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
