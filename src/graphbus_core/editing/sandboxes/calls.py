"""Calls to the kernel that no jailed command needs and that lead past its walls: a filter for seccomp, as bytes.

| refused | because |
|---|---|
| sockets but unix, IPv4, IPv6, netlink | `AF_VSOCK` reaches the host of a virtual machine from any network namespace |
| new namespaces, mounts | root's rights in a namespace of one's own reach parts of the kernel that users do not |
| keyrings | a session's keys are inherited |
| ptrace, memory of other processes | a process of the command could rewrite the one that runs its tests |
| io_uring, bpf, perf, userfaultfd | they do what other calls do, past filters, or have been ways into the kernel |
| memory without a name: memfd, System V IPC, shared anonymous maps, vmsplice | no limit of a process counts it |

Refused calls fail with EPERM, as for a user whom the system forbids them; `clone3` is not there, so that libraries take `clone`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT, _FOURTH_ARGUMENT_AT = 0, 4, 16, 40
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_FAMILIES = (1, 2, 10, 16)
_SHARED_AND_NAMELESS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS: such memory stays when its addresses are given back one by one."""
_CLONE3 = 435
_SAME_EVERYWHERE = (
    *(425, 426, 427),  # io_uring
    *(428, 429, 430, 431, 432, 433, 442),  # the calls that make mounts
    *(438, 440),  # pidfd_getfd process_madvise
    447,  # memfd_secret
)


class _Machine(NamedTuple):
    """How a kind of processor is called in a filter, and its numbers of the calls that differ."""

    audit: int
    clone: int
    socket: int
    mmap: int
    refused: tuple[int, ...]


_GENERIC = (
    *(97, 268, 39, 40, 41),  # unshare setns umount2 mount pivot_root
    *(217, 218, 219),  # add_key request_key keyctl
    *(117, 270, 271),  # ptrace process_vm_readv process_vm_writev
    *(280, 241, 282),  # bpf perf_event_open userfaultfd
    *(279, 194, 190, 186, 75),  # memfd_create shmget semget msgget vmsplice
)
_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(
        0xC000003E,
        56,
        41,
        9,
        (
            *(272, 308, 165, 166, 155, 248, 249, 250, 101, 310, 311, 321, 298, 323),
            *(319, 29, 64, 68, 278),
        ),
    ),
    "aarch64": _Machine(0xC00000B7, 220, 198, 222, _GENERIC),
    "riscv64": _Machine(0xC00000F3, 220, 198, 222, _GENERIC),
}


def call_filter(machine: str) -> bytes:
    """Give the filter for a kind of processor (`os.uname().machine`); empty where the numbers of its calls are not known."""
    known = _MACHINES.get(machine)
    if known is None:
        return b""
    refused = (*known.refused, *_SAME_EVERYWHERE)
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, known.audit),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUAL, 0, 4, known.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_OF, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 5, known.mmap),
        (_LOAD, 0, 0, _FOURTH_ARGUMENT_AT),
        (_MASK, 0, 0, _SHARED_AND_NAMELESS),
        (_EQUAL, 0, 1, _SHARED_AND_NAMELESS),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3 + len(_FAMILIES), known.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        *((_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _ERRNO | _EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
        *((_EQUAL, len(refused) - at, 0, number) for at, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
