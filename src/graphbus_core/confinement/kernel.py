"""Calls of the kernel that Python has no function for."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_NO_NEW_PRIVILEGES = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277, "riscv64": 277}
_CAPABILITIES = {"x86_64": (125, 126), "aarch64": (90, 91), "riscv64": (90, 91)}
_CAPABILITY_VERSION = 0x20080522
_OVER_FILES = 0b11011
"""CHOWN, DAC_OVERRIDE, FOWNER and FSETID."""
_SET_FILTER, _ALL_THREADS = 1, 1


def call(number: int, *arguments: Any) -> int:
    """Make a call by its number.

    Raises:
        OSError: It has failed.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def give_up_privileges() -> None:
    """Let this process, and no program that it starts, have more of root's rights than those over files, which walls bound."""
    _libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), 0, 0, 0)
    numbers = _CAPABILITIES.get(os.uname().machine)
    if numbers:
        header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
        held = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the same again for those above 31
        call(numbers[0], header, held)
        held[:] = [held[0] & _OVER_FILES, held[1] & _OVER_FILES, 0, 0, 0, 0]
        call(numbers[1], header, held)


def refuse_calls(machine: str, steps: bytes) -> bool:
    """Let the kernel judge the calls of all threads of this process by a program, for good; False where it cannot."""
    kept = ctypes.create_string_buffer(steps, len(steps))
    wanted = ctypes.create_string_buffer(struct.pack("@HP", len(steps) // 8, ctypes.addressof(kept)))
    try:
        return bool(steps) and call(_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, wanted) == 0
    except OSError:
        return False


def forget_variables(names: Collection[str]) -> None:
    """Take variables out of the environment, and write over their text in memory, which `/proc/PID/environ` shows."""
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
