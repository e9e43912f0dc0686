"""A program that represents an agent: started in the sandbox, asked with lines on its standard input, judged by `Conversation`.

It runs in an empty folder, and sees of the project only the files that its command and its settings name, read-only. Its standard
error goes to a file without a name, of which errors quote the last line.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from graphbus_core.editing.sandboxes.process import Limits, Sandbox, remove_tree
from graphbus_core.errors import ModelError
from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.config import AgentProgram
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conversation import Conversation
from graphbus_core.negotiation.gbnp.messages import BYE, MAX_LINE_BYTES

_LIMITS = Limits(timeout_s=3600.0, memory_mb=2048, processes=64, file_size_mb=16, disk_mb=64)
_POLL_S = 0.05
_END_S = 2.0
_TAIL_BYTES = 4096
_PIECE_BYTES = 65536
_ERROR = re.compile(r"error|exception|panic", re.IGNORECASE)


class Program:
    """One start of a program, in a folder of its own. It is asked from one thread; any thread may call `stop`.

    Args:
        settings: Its command and its limits.
        root: The project.
        sandbox: Where it runs.
        end_s: How many seconds it has to end after a farewell, or after the end of its input.
        note_line: Called with who speaks and each line.

    Attributes:
        conversation: Judges what is said.

    Raises:
        ModelError: GBE465, it cannot be started.
    """

    def __init__(
        self,
        settings: AgentProgram,
        root: Path,
        sandbox: Sandbox,
        end_s: float = _END_S,
        note_line: Callable[[Literal["host", "program"], bytes], object] = lambda _side, _line: None,
    ) -> None:
        self.conversation = Conversation()
        self._note_line = note_line
        self._settings = settings
        self._end_s = end_s
        self._is_stopped = False
        self._unread = bytearray()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        self._folder = Path(tempfile.mkdtemp(prefix="graphbus-agent-"))
        with ExitStack() as stack:
            stack.callback(self._remove_files)
            _refuse_unseen(settings, root, sandbox)
            try:
                self._started = sandbox.start(
                    _locate_command(settings, root),
                    self._folder,
                    self._log,
                    limits=_LIMITS,
                    environment={name: os.environ[name] for name in settings.pass_env if name in os.environ},
                    readable=[*_list_readable(settings, root)],
                    has_network=settings.network,
                )
            except OSError as error:
                reason, advice = reason_of(error), advise_on(error)
                raise ModelError("GBE465", program=settings.command[0], reason=reason, advice=advice) from None
            stack.pop_all()
        process = self._started.process
        if process.stdin is None or process.stdout is None:
            raise AssertionError("a program is started with pipes")
        self._process, self._stdin, self._stdout = process, process.stdin.fileno(), process.stdout.fileno()
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe, False)

    # --- questions ---

    def ask(self, method: str, params: object) -> Any:
        """Return the answer to a request: the result as an instance of its class, or a `Refusal`.

        Raises:
            BreachError: The program has broken a requirement, or has ended; or the request is too long.
        """
        return self.exchange(self.conversation.request(method, params))

    def tell(self, method: str, params: object) -> None:
        """Send a notification; raise BreachError as `ask`."""
        self.exchange(self.conversation.notification(method, params))

    def exchange(self, line: bytes) -> Any:
        """Send a line of the host after judging it, and return the answer; None if nothing was asked.

        Raises:
            BreachError: As `ask`.
        """
        conversation, limit_s = self.conversation, time.monotonic() + self._settings.timeout_s
        self._transfer(memoryview(b""), 0)
        if self._has_line():
            self._take_line()  # nothing was asked, so it is refused
        conversation.host_says(line)
        is_request = conversation.asked is not None
        self._note_line("host", line)
        unsent = memoryview(line)
        while unsent or is_request:
            self._refuse_silence(limit_s)
            unsent, has_ended = self._transfer(unsent)
            if self._has_line():
                answer = self._take_line()
                if unsent:
                    raise BreachError("GBNP-013", "it answers before it has read the question")
                return answer
            if has_ended:
                self._take_end()
        return None

    def _refuse_silence(self, limit_s: float) -> None:
        """Raise BreachError if the time for an answer is over, or the session does not wait for it any longer."""
        if self._is_stopped:
            raise BreachError("GBNP-017", "the session ended meanwhile", "host")
        if time.monotonic() > limit_s:
            self._refuse_missing_end()
            raise self.conversation.time_is_up()

    def _refuse_missing_end(self) -> None:
        """Raise BreachError if the program has written a whole message, but not the end of its line."""
        with suppress(msgspec.DecodeError):
            msgspec.json.decode(self._unread)
            self._take_line()

    def _has_line(self) -> bool:
        """Return whether a line was received, or more than one may have."""
        return b"\n" in self._unread or len(self._unread) > MAX_LINE_BYTES

    def _take_line(self) -> Any:
        """Return the answer in the next line, or in what there is of it; raise BreachError if it breaks a requirement."""
        end = self._unread.find(b"\n") + 1 or MAX_LINE_BYTES + 1
        received = bytes(self._unread[:end])
        del self._unread[:end]
        self._note_line("program", received)
        return self.conversation.take(received)

    def _transfer(self, unsent: memoryview, wait_s: float = _POLL_S) -> tuple[memoryview, bool]:
        """Write and read what is possible now, after a short wait; return what is still to be sent, and if the output ended.

        The output of a program that has ended is what is there now: processes that it has left behind may hold the pipe.
        """
        had_ended = self._process.poll() is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            if unsent:
                selector.register(self._stdin, selectors.EVENT_WRITE)
            for key, _ in selector.select(wait_s):
                if key.fd == self._stdin:
                    with suppress(BrokenPipeError):  # its output has ended, too, or ends soon
                        unsent = unsent[os.write(self._stdin, unsent) :]
                else:
                    piece = os.read(self._stdout, _PIECE_BYTES)
                    self._unread += piece
                    return unsent, not piece
        return unsent, had_ended

    def _take_end(self) -> None:
        """Judge the end of the program, or of its output, which comes to the same."""
        self._refuse_missing_end()
        with suppress(TimeoutError):
            self._wait(self._end_s)
        self.conversation.take_end(self._process.poll(), self._started.excess or self.last_words)

    def _wait(self, seconds: float) -> None:
        """Wait until the program has ended; raise TimeoutError if it does not."""
        end_s = time.monotonic() + seconds
        while self._process.poll() is None:
            if time.monotonic() > end_s:
                raise TimeoutError
            time.sleep(_POLL_S / 10)

    @property
    def last_words(self) -> str:
        """The last line of its standard error that is not indented, without paths of this machine; empty if there is none.

        A line that names an error comes first: after it, Node prints its version and Go its stack.
        """
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
        lines = [line.strip() for line in tail.splitlines() if line[:1].strip()]
        telling = [line for line in lines if _ERROR.search(line)] or lines
        return remove_paths(telling[-1])[:300] if telling else ""

    # --- the end ---

    def leave(self, reason: str) -> None:
        """Say farewell, and judge how the program ends; raise BreachError if that is wrong. Then call `kill`."""
        self.ask(BYE, {"reason": reason})
        self.end_input()

    def end_input(self) -> None:
        """Close the input of the program, and judge how it ends; raise BreachError if it does not, or speaks meanwhile."""
        if self._process.stdin:
            self._process.stdin.close()
        self.conversation.close_input()
        limit_s = time.monotonic() + self._end_s
        while time.monotonic() < limit_s:
            _, has_ended = self._transfer(memoryview(b""))
            if has_ended or self._has_line():
                break
        if self._unread:
            self._take_line()  # nothing was asked, so it is refused
        try:
            self._wait(max(0.0, limit_s - time.monotonic()))
        except TimeoutError:
            raise self.conversation.time_is_up() from None
        self.conversation.take_end(self._process.returncode, self._started.excess or self.last_words)

    def stop(self) -> None:
        """Let the question that is being asked now fail soon. Any thread may call it."""
        self._is_stopped = self.conversation.asked is not None

    def kill(self) -> None:
        """Kill the program with all processes that it has started, and remove its folder."""
        self._started.kill()
        self._remove_files()

    def _remove_files(self) -> None:
        self._log.close()
        remove_tree(self._folder)


def _refuse_unseen(settings: AgentProgram, root: Path, sandbox: Sandbox) -> None:
    """Raise GBE465 for files that do not exist, and for a program that the sandbox would show without what it needs."""
    name, found = settings.command[0], shutil.which(settings.command[0]) or ""
    reason = next(
        (f"`files` names {file}, which does not exist" for file in settings.files if not (root / file).exists()), ""
    )
    advice = "Correct the path, or remove it."
    if "shims" in Path(found).parts and sandbox.tier != "process":
        reason = "it is the shim of a version manager, whose programs the sandbox does not see"
        advice = (
            f"Write the full path of the program itself, e.g. what `pyenv which {name}` or `asdf which {name}` prints."
        )
    if reason:
        raise ModelError("GBE465", program=name, reason=reason, advice=advice)


def _locate_command(settings: AgentProgram, root: Path) -> list[str]:
    """Return the command with absolute paths for the files of the project in it.

    Raises:
        FileNotFoundError: There is no such program.
    """
    first, *words = settings.command
    inside = root / first
    found = str(inside) if "/" in first and inside.is_file() else shutil.which(first)
    if found is None:
        raise FileNotFoundError(2, os.strerror(2), first)
    return [found, *(str(root / word) if (root / word).is_file() else word for word in words)]


def _list_readable(settings: AgentProgram, root: Path) -> Iterator[Path]:
    """Yield the files and folders that a program may read: those that its command names, and those in its settings."""
    for word in _locate_command(settings, root):
        if os.path.isabs(word) and os.path.isfile(word):
            yield Path(word)
            yield Path(os.path.realpath(word))
    yield from (root / name for name in settings.files)
