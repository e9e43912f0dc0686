"""Which files a process may touch: rules of Landlock, for this thread and all that come of it, for good."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from graphbus_core.confinement.kernel import call

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER, _REMOVE_FOLDER, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_FOLDER, _MAKE_FILE, _MAKE_SOCKET, _MAKE_PIPE, _MAKE_LINK = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
_MOVE, _TRUNCATE, _CONTROL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_ALWAYS = (1 << 13) - 1
_SINCE = {2: _MOVE, 3: _TRUNCATE, 5: _CONTROL_DEVICE}
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
"""Neither running what was written, nor making devices."""


def version() -> int:
    """Give the version of Landlock that this kernel speaks, 0 where it has none or does not let us use it."""
    try:
        return call(_CREATE, None, 0, 1)
    except OSError:
        return 0


def lock(rights: Mapping[str, int], *, may_connect: bool) -> list[int]:
    """Refuse whatever the rights do not allow: path -> what may be done with it and everything below it.

    Nothing may listen on a TCP port that did not before; signals and abstract sockets do not reach other processes.

    Returns:
        Open handles of what is in `/proc`: without them the kernel may forget the rules for it.

    Raises:
        OSError: It cannot be done.
    """
    known = version()
    handled = _ALWAYS | sum(bit for since, bit in _SINCE.items() if known >= since)
    ports = (_LISTEN if may_connect else _LISTEN | _CONNECT) if known >= PORTS_SINCE else 0
    wanted = (ctypes.c_uint64 * 3)(handled, ports, _SCOPES if known >= SCOPES_SINCE else 0)
    size = 24 if known >= SCOPES_SINCE else 16 if known >= PORTS_SINCE else 8
    rules = call(_CREATE, wanted, size, 0)
    handles = {path: _allow(rules, path, right & handled) for path, right in rights.items() if os.path.exists(path)}
    call(_RESTRICT, rules, 0)
    os.close(rules)
    for path in [path for path in handles if not path.startswith("/proc/")]:
        os.close(handles.pop(path))
    return list(handles.values())


def _allow(rules: int, path: str, rights: int) -> int:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= _OF_A_FILE
    rule = ctypes.create_string_buffer(rights.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder), 12)
    call(_ADD, rules, 1, rule, 0)
    return handle
