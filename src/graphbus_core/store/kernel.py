"""Two calls of Linux that Python does not offer: open without following a link, and let two names change places."""

from __future__ import annotations

import os
import sys
from errno import EAGAIN, EINVAL, ENOSYS, EOPNOTSUPP, EPERM
from functools import cache
from typing import Any

_OPENAT2 = 437
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_BENEATH, _NO_SYMLINKS, _NO_MAGICLINKS = 0x08, 0x04, 0x02
_EXCHANGE = 2
_NOT_HERE = frozenset({ENOSYS, EPERM})
"""What a kernel says that lacks a call, and what a jail says that does not know it."""


@cache
def _libc() -> Any:
    """The C library, loaded when it is first needed; None where the calls do not exist."""
    if sys.platform != "linux":
        return None
    try:
        from ctypes import CDLL
    except ImportError:  # a Python that was built without
        return None
    return CDLL(None, use_errno=True)


def open_beneath(folder: int, relative: str, flags: int, mode: int, shown: str) -> int | None:
    """Open a path below a folder in which no part is a link.

    Args:
        shown: The path as those see it who audit what is opened.

    Returns:
        A descriptor; None where this call cannot be made.

    Raises:
        OSError: It is not there, a part of it is a link, ...
    """
    libc = _libc()
    if libc is None:
        return None
    from ctypes import byref, c_uint64, get_errno, sizeof

    sys.audit("open", shown, None, flags)
    how = (c_uint64 * 3)(flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    handle = libc.syscall(_OPENAT2, folder, os.fsencode(relative), byref(how), sizeof(how))
    if handle >= 0:
        return int(handle)
    number = get_errno()
    if number in _NOT_HERE or number == EAGAIN:  # EAGAIN: something on the way was renamed just now
        return None
    raise OSError(number, os.strerror(number))


def exchange(folder: int, one: str, other: str) -> bool:
    """Let two names in a folder change places at once; False where this kernel or this file system cannot do that.

    Raises:
        OSError: One is not there, ...
    """
    libc = _libc()
    call = getattr(libc, "renameat2", None) if libc else None
    number = _RENAMEAT2.get(os.uname().machine) if libc and call is None else None
    if call is None and number is None:
        return False
    from ctypes import get_errno

    sys.audit("os.rename", one, other, folder, folder)
    names = (folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE)
    if (call(*names) if call else libc.syscall(number, *names)) == 0:
        return True
    error = get_errno()
    if error in _NOT_HERE or error in (EINVAL, EOPNOTSUPP):  # the last two are said by file systems
        return False
    raise OSError(error, os.strerror(error), one)
