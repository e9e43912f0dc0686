"""Compiles rules about system calls into a seccomp filter: a BPF program that the kernel runs before each call.

    steps = compile_filter(os.uname().machine, [CallRule("execve"), CallRule("clone", when=NoBitSet(0, CLONE_THREAD))])

Theory of operation. A filter is a list of 8-byte instructions over the number, architecture and arguments of a call, with one
accumulator and forward jumps. It first checks the architecture: calls of another one, and those of the x32 interface, end with
ENOSYS, because their numbers mean other calls. Then comes a block for each rule: compare the number, jump over the block if it is
another call, else test the condition and return the error. The last instruction allows the call. Arguments are compared by their
low 32 bits, which suffices for flags. A filter cannot follow pointers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from errno import EPERM
from typing import NamedTuple

ENOSYS = 38
# Instructions of classic BPF, from linux/bpf_common.h: load a word, jump if equal, if >=, if any bit is set, and, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# Offsets in `struct seccomp_data`.
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000
_ALL_BITS = 0xFFFFFFFF

CLONE_THREAD = 0x00010000
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
MSG_FASTOPEN = 0x20000000

_Step = tuple[int, int, int, int]
"""One instruction: its code, how many instructions to skip when a test holds and when it does not, and its constant."""


class AnyBitSet(NamedTuple):
    """Condition: at least one of these bits is set in the argument with this index."""

    argument: int
    bits: int


class NoBitSet(NamedTuple):
    """Condition: none of these bits is set in the argument with this index."""

    argument: int
    bits: int


class MaskedEqual(NamedTuple):
    """Condition: the argument with this index, after `and` with the mask, has this value."""

    argument: int
    value: int
    mask: int = _ALL_BITS


class NotIn(NamedTuple):
    """Condition: the argument with this index has none of these values."""

    argument: int
    values: tuple[int, ...]


class CallRule(NamedTuple):
    """A system call that fails with this errno; with a condition, only when that holds."""

    call: str
    error: int = EPERM
    when: AnyBitSet | NoBitSet | MaskedEqual | NotIn | None = None


_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}

_NUMBERS: dict[str, tuple[int, int]] = {
    "socket": (41, 198), "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "bind": (49, 200), "listen": (50, 201), "socketpair": (53, 199),
    "clone": (56, 220), "fork": (57, -1), "vfork": (58, -1), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "ioctl": (16, 29), "mmap": (9, 222), "memfd_create": (319, 279), "vmsplice": (278, 75),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1),
}  # fmt: skip
"""Call -> its number on x86_64, and on aarch64 and riscv64, which share one table; -1 where the call does not exist."""


def has_call_numbers(machine: str) -> bool:
    """True when the table has the call numbers of this processor, named as in `os.uname().machine`."""
    return machine in _AUDIT


def compile_filter(machine: str, rules: Iterable[CallRule]) -> bytes:
    """Return the filter as the bytes that seccomp takes; empty for a processor whose call numbers are not known.

    Args:
        machine: The processor, as in `os.uname().machine`.
        rules: What to refuse; calls that no rule names are allowed.
    """
    if not has_call_numbers(machine):
        return b""
    steps: list[_Step] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _ERRNO | ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | ENOSYS),
    ]
    for rule in rules:
        number = _NUMBERS[rule.call][machine != "x86_64"]
        if number >= 0:
            block = list(_instructions_for(rule))
            steps += [(_EQUAL, 0, len(block), number), *block]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _instructions_for(rule: CallRule) -> Iterator[_Step]:
    """Yield the instructions that run if the call number is that of the rule.

    They refuse the call if the condition holds. Otherwise they load the call number again, for the next rule.
    """
    refuse: _Step = (_RETURN, 0, 0, _ERRNO | rule.error)
    if rule.when is None:
        yield refuse
        return
    yield (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * rule.when.argument)  # the low half: all these processors are little-endian
    match rule.when:
        case AnyBitSet(_, bits):
            yield (_ANY_OF, 0, 1, bits)
        case NoBitSet(_, bits):
            yield (_ANY_OF, 1, 0, bits)
        case MaskedEqual(_, value, mask):
            yield (_AND, 0, 0, mask)
            yield (_EQUAL, 0, 1, value)
        case NotIn(_, values):
            # Each match skips the remaining comparisons and the refusal.
            yield from ((_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values))
    yield refuse
    yield (_LOAD, 0, 0, _NUMBER_AT)
