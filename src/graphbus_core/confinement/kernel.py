"""System calls that Python has no function for: dropping privileges, seccomp, Landlock, and erasing environment variables.

Landlock restricts the files that a thread and its future threads and child processes may use. Like seccomp, it cannot be undone.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Collection, Mapping
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_NO_NEW_PRIVILEGES = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277}
_CAPABILITIES = {"x86_64": (125, 126), "aarch64": (90, 91), "riscv64": (90, 91)}
_CAPABILITY_VERSION = 0x20080522
_OVER_FILES = 0b11011
"""The capabilities CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_FSETID."""
_SET_FILTER, _ALL_THREADS = 1, 1


def _make_system_call(number: int, *arguments: Any) -> int:
    """Make a system call by its number and return its result.

    Raises:
        OSError: The call failed.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def give_up_privileges() -> None:
    """Drop all capabilities of root except those over files, for good. Programs that are started later cannot regain any.

    Capabilities over files stay, because a project may belong to another user than root, and Landlock limits them.
    """
    _libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), 0, 0, 0)
    numbers = _CAPABILITIES.get(os.uname().machine)
    if numbers:
        header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
        held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same again for those above 31
        _make_system_call(numbers[0], header, held)
        held[:] = [held[0] & _OVER_FILES, held[1] & _OVER_FILES, 0, 0, 0, 0]
        _make_system_call(numbers[1], header, held)


def install_filter(machine: str, steps: bytes) -> bool:
    """Install a seccomp filter on all threads of this process; return False if the filter is empty or the kernel refuses it.

    Args:
        machine: The processor, as in `os.uname().machine`.
        steps: What `calls.compile_filter` returned.
    """
    program = ctypes.create_string_buffer(steps, len(steps))  # must stay referenced until the call
    descriptor = ctypes.create_string_buffer(struct.pack("@HP", len(steps) // 8, ctypes.addressof(program)))
    try:
        return bool(steps) and _make_system_call(_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, descriptor) == 0
    except OSError:
        return False


def erase_variables(names: Collection[str]) -> None:
    """Remove variables from the environment, and overwrite their memory, which `/proc/PID/environ` would still show."""
    wanted = {os.fsencode(name) for name in names}
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
    found: list[tuple[int, int]] = []
    index = 0
    while address := entries[index]:
        text = ctypes.string_at(address)
        if text.partition(b"=")[0] in wanted:
            found.append((address, len(text)))
        index += 1
    for name in names:
        os.environ.pop(name, None)
    for address, length in found:
        ctypes.memset(address, 0, length)


# --- Landlock -------------------------------------------------------------------------------------

# Numbers and flags from linux/landlock.h; the calls have the same numbers on every processor.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _REMOVE_FOLDER, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_FOLDER, _MAKE_FILE, _MAKE_SOCKET, _MAKE_PIPE, _MAKE_LINK = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
_MOVE, _TRUNCATE, _CONTROL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_ALWAYS = (1 << 13) - 1
_SINCE = {2: _MOVE, 3: _TRUNCATE, 5: _CONTROL_DEVICE}  # version of Landlock -> the right that it added
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _CONTROL_DEVICE
_LISTEN, _CONNECT = 1, 2
_SCOPES = 3
TRUNCATE_SINCE, PORTS_SINCE, SCOPES_SINCE = 3, 4, 6

READ = _READ_FILE | _READ_FOLDER
RUN = READ | _EXECUTE
WRITE = (
    READ | _WRITE_FILE | _TRUNCATE | _MOVE | _REMOVE_FILE | _REMOVE_FOLDER
    | _MAKE_FILE | _MAKE_FOLDER | _MAKE_LINK | _MAKE_PIPE | _MAKE_SOCKET
)  # fmt: skip
"""Includes neither executing files nor making devices."""


def landlock_version() -> int:
    """Return the version of Landlock in this kernel; 0 when there is none or it is switched off."""
    try:
        return _make_system_call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def restrict_files(rights: Mapping[str, int], *, may_connect: bool) -> list[int]:
    """Restrict this thread and its later threads and child processes with Landlock, for good.

    Only the listed paths, and what is below them, can be used. As far as the version of Landlock supports these limits, the
    process cannot listen on new TCP ports, or reach other processes through signals and abstract sockets.

    Args:
        rights: Path -> rights, such as `READ` or `WRITE`. Paths that do not exist are ignored.
        may_connect: TCP connections are allowed.

    Returns:
        Open descriptors of paths in `/proc`. The caller keeps them open: the kernel drops a rule together with the inode, and
        `/proc` may drop the inode of a file that is not open.

    Raises:
        OSError: The kernel refused.
    """
    known = landlock_version()
    # The rights that are denied wherever no rule grants them.
    handled = _ALWAYS | sum(bit for since, bit in _SINCE.items() if known >= since)
    ports = (_LISTEN if may_connect else _LISTEN | _CONNECT) if known >= PORTS_SINCE else 0
    attributes = (ctypes.c_uint64 * 3)(handled, ports, _SCOPES if known >= SCOPES_SINCE else 0)
    # An older kernel refuses a longer struct than it knows.
    size = 24 if known >= SCOPES_SINCE else 16 if known >= PORTS_SINCE else 8
    rules = _make_system_call(_CREATE, attributes, size, 0)
    handles = {path: _add_rule(rules, path, right & handled) for path, right in rights.items() if os.path.exists(path)}
    _make_system_call(_RESTRICT, rules, 0)
    os.close(rules)
    for path in [path for path in handles if not path.startswith("/proc/")]:
        os.close(handles.pop(path))
    return list(handles.values())


def _add_rule(rules: int, path: str, rights: int) -> int:
    """Add a rule for one path to the ruleset, and return the open descriptor of the path."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= _OF_A_FILE
    rule = ctypes.create_string_buffer(rights.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder), 12)
    _make_system_call(_ADD, rules, 1, rule, 0)
    return handle
