"""The audit hook: refuses actions of Python code that go beyond the declared powers, before they happen.

Theory of operation. CPython calls audit hooks before it opens files, starts programs and uses sockets. The hook raises an error
that names the agent, the line and the missing power, where the kernel (see `walls`) would only answer EPERM; and it checks host
names, which the kernel does not know. Native code bypasses it and meets the kernel's rules. An audit hook cannot be removed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, NoReturn, cast

from msgspec import Struct, field

from graphbus_core.confinement import kernel
from graphbus_core.model.powers import Power

_UNIX = 1
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RefusedAction(NamedTuple):
    """An action that goes beyond the powers.

    Attributes:
        power: The power that would allow it.
        what: The action in words that follow on "may not", such as `read /etc/passwd`.
        target: The entry to declare under the power.
    """

    power: Power
    what: str
    target: str


class PowerHook(Struct, frozen=True, kw_only=True):
    """Checks audit events of the interpreter against the declared powers.

    Attributes:
        readable: Files and folders that may be read, as real paths.
        writable: Files and folders that may be read and written, as real paths.
        hosts: Names, `*.name`, addresses or `*`; None when no network is declared.
        may_start: Programs may be started.
        refuse: Called with an action that is not allowed; raises.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    hosts: tuple[str, ...] | None
    may_start: bool
    refuse: Callable[[RefusedAction], NoReturn]
    _addresses: set[str] = field(default_factory=set)

    def install(self) -> None:
        """Check every audit event of this process from now on, until it ends.

        If particular hosts are declared, the look-up functions of `socket` are replaced too.
        """
        checks = self._checks_by_event()
        if self.hosts is not None and "*" not in self.hosts:
            self._allow_looked_up_addresses()

        def check_event(event: str, arguments: tuple[Any, ...]) -> None:
            """Check one audit event; one without a check is allowed."""
            check = checks.get(event)
            if check is not None:
                check(*arguments)

        sys.addaudithook(check_event)

    def _checks_by_event(self) -> dict[str, Callable[..., None]]:
        """Return audit event -> the method that checks it, called with the arguments of the event."""
        changes = ("os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr")
        starts = ("subprocess.Popen", "os.exec", "os.posix_spawn")
        found: dict[str, Callable[..., None]] = {
            "open": self._check_open,
            "sqlite3.connect": self._check_database,
            **dict.fromkeys(("os.listdir", "os.scandir"), self._require_readable_path),
            **dict.fromkeys(changes, self._require_writable_path),
            **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir"), self._check_entry),
            **dict.fromkeys(("os.rename", "os.link"), self._check_both_entries),
            "os.symlink": lambda _aim, path, *_rest: self._check_entry(path),
            "socket.__new__": self._check_new_socket,
            **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), self._check_connect),
            **dict.fromkeys(
                ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), self._check_look_up
            ),
            "socket.getnameinfo": lambda address: self._check_look_up(address[0]),
        }
        if not self.may_start:
            found |= {
                **dict.fromkeys(starts, self._refuse_program),
                "os.system": lambda command: self._refuse_program(os.fsdecode(command).partition(" ")[0]),
                **dict.fromkeys(("os.fork", "os.forkpty"), lambda: self._refuse_program("a copy of itself")),
                **dict.fromkeys(("os.kill", "os.killpg"), self._check_signal),
            }
        return found

    # --- files ---

    def _check_open(self, path: Any, mode: str | None, flags: int) -> None:
        """Check the opening of a file, for reading or for writing; `mode` is None for `os.open`."""
        if mode is None and (flags & os.O_PATH or not os.path.isabs(_path_text(path))):
            return  # O_PATH reads nothing; a relative path may be below a `dir_fd` that the event omits. The kernel decides.
        (self._require_writable_path if flags & _WRITES else self._require_readable_path)(path)

    def _check_database(self, path: Any) -> None:
        """Check the file of an SQLite database. One that may only be read can be opened, although SQLite could write to it."""
        text = _path_text(path)
        if text and not text.startswith((":memory:", "file:")) and not is_within(os.path.realpath(text), self.readable):
            self._require_writable_path(path)

    def _require_readable_path(self, path: Any = None, *_rest: object) -> None:
        """Refuse to read a path that is neither readable nor writable; one without text, such as a descriptor, is allowed."""
        text = _path_text(path)
        if text and not is_within(os.path.realpath(text), (*self.readable, *self.writable)):
            self.refuse(RefusedAction("read", f"read {text}", os.path.realpath(text)))

    def _require_writable_path(self, path: Any, *_rest: object) -> None:
        """Refuse to write to a path that is not writable once links are resolved; one without text is allowed."""
        text = _path_text(path)
        if text:
            self._refuse_unwritable(text, os.path.realpath(text))

    def _check_entry(self, path: Any, *numbers: Any) -> None:
        """Refuse to make, move or remove an entry, which may be a link, of a folder that is not writable.

        The last of `numbers` is a `dir_fd`, -1 for none; paths relative to one are left to the kernel.
        """
        text = _path_text(path)
        if text and (os.path.isabs(text) or numbers[-1:] in ((), (-1,))):
            folder, name = os.path.split(os.path.abspath(text))
            self._refuse_unwritable(text, os.path.join(os.path.realpath(folder), name))

    def _check_both_entries(self, source: Any, target: Any, *numbers: Any) -> None:
        """Check both paths of a rename or link; `numbers` are their `dir_fd`s."""
        for path, number in zip((source, target), (*numbers, -1, -1), strict=False):
            self._check_entry(path, number)

    def _refuse_unwritable(self, text: str, path: str) -> None:
        """Refuse to write to a real path that is not writable; `text` is the path as the code wrote it."""
        if not is_within(path, self.writable):
            self.refuse(RefusedAction("write", f"write {text}", path))

    # --- programs ---

    def _refuse_program(self, program: Any, *_rest: object) -> None:
        """Refuse to start a program."""
        self.refuse(RefusedAction("processes", f"start {_path_text(program) or 'a program'}", "true"))

    def _check_signal(self, process: int, number: int) -> None:
        """Refuse a signal to another process."""
        if process != os.getpid():
            self.refuse(RefusedAction("processes", f"send signal {number} to the process {process}", "true"))

    # --- network ---

    def _check_new_socket(self, _socket: object, family: int, *_rest: object) -> None:
        """Refuse a new socket without network; one from a descriptor that is open already, as by `accept`, is allowed."""
        maker = sys._getframe(2).f_locals  # of `socket.__init__`, above `check_event` and this function
        if self.hosts is None and maker.get("fileno") is None:
            self.refuse(RefusedAction("network", f"open a socket ({_family_name(family)})", "HOST"))

    def _check_connect(self, opened: Any, address: Any) -> None:
        """Check the target of `connect`, `sendto` or `sendmsg`: a Unix socket counts as a file, other addresses as hosts."""
        if address is None:
            return  # a send on a connected socket
        if opened.family == _UNIX:
            path = _path_text(address)
            if self.hosts is None or not path or path.startswith("\0"):
                self.refuse(RefusedAction("network", f"connect to the socket {path or address!r}", "HOST"))
            self._require_writable_path(path)
        elif isinstance(address, tuple) and address and isinstance(address[0], str):
            host = address[0]
            if not self._may_reach(host) and _canonical_host(host) not in self._addresses:
                port = f":{address[1]}" if len(address) > 1 else ""
                self.refuse(RefusedAction("network", f"connect to {host}{port}", host))

    def _check_look_up(self, host: Any, *_rest: object) -> None:
        """Refuse to look up a host that is not declared; addresses that a look-up has returned are allowed."""
        name = _path_text(host)
        if name and not self._may_reach(name) and _canonical_host(name) not in self._addresses:
            self.refuse(RefusedAction("network", f"look up {name}", name))

    def _may_reach(self, host: str) -> bool:
        """True for a declared host name or address."""
        name = host.lower().rstrip(".")
        return any(_matches_host(name, pattern.lower()) for pattern in self.hosts or ())

    def _allow_looked_up_addresses(self) -> None:
        """Replace look-up functions of `socket`, so that the addresses which they return may be connected to."""
        import socket

        look_up, look_up_one = socket.getaddrinfo, socket.gethostbyname

        def getaddrinfo(*arguments: Any, **named: Any) -> Any:
            """Look addresses up, and allow connections to them."""
            found = look_up(*arguments, **named)
            self._addresses.update(_canonical_host(cast("str", each[4][0])) for each in found)
            return found

        def gethostbyname(hostname: str) -> str:
            """Look an address up, and allow connections to it."""
            found = look_up_one(hostname)
            self._addresses.add(_canonical_host(found))
            return found

        socket.getaddrinfo = getaddrinfo
        socket.gethostbyname = gethostbyname


def _matches_host(name: str, pattern: str) -> bool:
    """True if a host name or address matches a declared one; `*` and `*.name` match any beginning."""
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name == pattern or _canonical_host(name) == _canonical_host(pattern)


def _canonical_host(host: str) -> str:
    """Return an IP address in its canonical spelling, and a name unchanged."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def _family_name(number: int) -> str:
    """Return the name of an address family, for a message."""
    return {_UNIX: "Unix", 2: "IPv4", 10: "IPv6"}.get(number, f"family {number}")


def _path_text(path: Any) -> str:
    """Return a path as text; empty for a file descriptor and for any value that is not a path."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return path if isinstance(path, str) else ""


def is_within(path: str, roots: tuple[str, ...]) -> bool:
    """True when a path is one of these roots or lies below one."""
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)


# --- variables -------------------------------------------------------------------------------------

_KEPT = (
    *("PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "TMPDIR", "PYTHON*", "GRAPHBUS_CONFIG"),
    *("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"),
)
"""Variables that stay: Python, its time zone, the terminal and GraphBus read them, and they hold no secrets."""


def hide_variables(declared: Collection[str], refuse: Callable[[str], object]) -> None:
    """Remove all environment variables of this process except the declared ones and those that Python needs.

    Args:
        declared: Names of variables; `*` stands for any characters.
        refuse: Called with the name whenever code reads a variable that was removed; may raise.
    """
    removed = frozenset(name for name in os.environ if not any(fnmatchcase(name, each) for each in (*_KEPT, *declared)))
    kernel.erase_variables(removed)
    kind = type(os.environ)

    class Environment(kind):  # type: ignore[valid-type, misc]
        """`os.environ` that calls `refuse` when a removed variable is read."""

        def __getitem__(self, name: str) -> str:
            try:
                return super().__getitem__(name)  # type: ignore[no-any-return]
            except KeyError:
                if name in removed:
                    refuse(name)
                raise

    os.environ.__class__ = Environment
