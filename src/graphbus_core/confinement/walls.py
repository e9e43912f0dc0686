"""Limits of a process that the kernel enforces from one call of `apply_bounds` on, for code in any language.

Theory of operation. Landlock limits the files. A seccomp filter refuses the system calls for network and programs when they are
not declared, and always those that lead past the limits (`_NEVER`). The kernel knows no host names: if any network is declared it
allows all, and `hook` checks the hosts for Python code. Both limits hold for all later threads and child processes. What this
kernel cannot enforce is reported as `EnforcementGaps`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.confinement import kernel
from graphbus_core.confinement.calls import (
    CLONE_THREAD,
    ENOSYS,
    MSG_FASTOPEN,
    NEW_NAMESPACES,
    AnyBitSet,
    CallRule,
    MaskedEqual,
    NoBitSet,
    NotIn,
    compile_filter,
)

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/sys/devices/system/cpu")
_ETC = (
    "ld.so.cache localtime timezone locale.alias mime.types terminfo inputrc "
    "ssl/certs ssl/openssl.cnf pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf pki/ca-trust ca-certificates"
)
_ETC_TO_CONNECT = "resolv.conf hosts host.conf gai.conf nsswitch.conf services protocols"
_ETC_TO_START = "passwd group nsswitch.conf alternatives"
_DEVICES = {"/dev/null": kernel.WRITE, **dict.fromkeys(("/dev/zero", "/dev/random", "/dev/urandom"), kernel.READ)}
_METRICS_FILES = ("/proc/self/statm", "/proc/self/fd")
"""Files that the metrics read: the memory of this process and its open files."""

_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
_DATAGRAM, _KIND = 2, 0xF

_NEVER = (
    "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd move_pages migrate_pages "
    "bpf perf_event_open userfaultfd memfd_secret io_uring_setup io_uring_enter io_uring_register "
    "add_key request_key keyctl "
    "unshare setns chroot mount umount2 pivot_root open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick "
    "mount_setattr open_by_handle_at fanotify_init "
    "shmget shmat semget msgget mq_open "
    "init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl syslog "
    "settimeofday clock_settime adjtimex clock_adjtime iopl ioperm modify_ldt"
)
"""Always refused: access to other processes and their memory, ways past these limits, and settings of the machine."""
_START = "fork vfork execve execveat tkill pidfd_open pidfd_send_signal"
_SIGNAL = "kill tgkill rt_sigqueueinfo rt_tgsigqueueinfo"
_CHANGE_METADATA = (
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat"
)
"""Calls that change metadata of files, which Landlock does not limit."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""The requests TIOCSTI and TIOCLINUX of `ioctl`: they insert characters into a terminal as if they had been typed."""

_open_descriptors: list[int] = []
"""Descriptors that must stay open; see `kernel.restrict_files`."""


class Bounds(NamedTuple):
    """What a process may do.

    Attributes:
        readable: Files and folders to read, in addition to those of the system and of Python.
        writable: Files and folders to read and write.
        may_write: Agents may write to some of these; otherwise only GraphBus writes, and metadata of files cannot be changed.
        may_connect: Connect to other machines and processes.
        may_start: Start programs and send signals.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    may_write: bool = False
    may_connect: bool = False
    may_start: bool = False


class EnforcementGaps(NamedTuple):
    """What this kernel does not enforce, one phrase for each gap; `is_all` when it enforces nothing."""

    gaps: tuple[str, ...]
    is_all: bool


def apply_bounds(bounds: Bounds) -> EnforcementGaps:
    """Apply the limits to this process, for good, and return what could not be enforced. Root loses its privileges, too."""
    if sys.platform != "linux":
        return EnforcementGaps(("anything (this is not Linux)",), is_all=True)
    kernel.give_up_privileges()
    machine = os.uname().machine
    gaps = list(_restrict_files(bounds))
    has_files = kernel.landlock_version() > 0
    has_calls = kernel.install_filter(machine, compile_filter(machine, _filter_rules(bounds, os.getpid())))
    if not has_calls:
        gaps.append(f"network and programs (no seccomp for {machine} here)")
    return EnforcementGaps(tuple(gaps), is_all=not has_files and not has_calls)


def list_readable(bounds: Bounds) -> Iterator[str]:
    """Yield every file and folder that may be read, including those of the system and of Python."""
    etc = [_ETC, *([_ETC_TO_CONNECT] if bounds.may_connect else []), *([_ETC_TO_START] if bounds.may_start else [])]
    yield from _SYSTEM
    yield from (f"/etc/{name}" for names in etc for name in names.split())
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    yield from filter(None, [sys.pycache_prefix])
    yield from (*_METRICS_FILES, *_DEVICES, *bounds.readable, *bounds.writable)


def _filter_rules(bounds: Bounds, pid: int) -> Iterator[CallRule]:
    """Yield the rules of the seccomp filter; the process `pid`, usually this one, may always receive signals."""
    yield from map(CallRule, _NEVER.split())
    # The flags of `clone3` are in memory, where a filter cannot see them; libraries then use `clone`.
    yield CallRule("clone3", ENOSYS)
    yield CallRule("clone", when=AnyBitSet(0, NEW_NAMESPACES))
    yield CallRule("ioctl", when=MaskedEqual(1, _TIOCSTI))
    yield CallRule("ioctl", when=MaskedEqual(1, _TIOCLINUX))
    if not bounds.may_start:
        yield CallRule("clone", when=NoBitSet(0, CLONE_THREAD))
        yield from map(CallRule, _START.split())
        yield from (CallRule(call, when=NotIn(0, (pid,))) for call in _SIGNAL.split())
    if bounds.may_connect:
        yield CallRule("socket", when=NotIn(0, (_UNIX, _IPV4, _IPV6, _NETLINK)))
    else:
        # Listening sockets keep working, and so do socket pairs, which connect threads; but no datagram may name another address.
        yield from map(CallRule, ("socket", "connect", "bind"))
        yield CallRule("socketpair", when=MaskedEqual(1, _DATAGRAM, _KIND))
        yield CallRule("sendto", when=AnyBitSet(3, MSG_FASTOPEN))
        yield CallRule("sendmsg", when=AnyBitSet(2, MSG_FASTOPEN))
        yield CallRule("sendmmsg", when=AnyBitSet(3, MSG_FASTOPEN))
    if not bounds.may_write:
        yield from map(CallRule, _CHANGE_METADATA.split())


def _restrict_files(bounds: Bounds) -> Iterator[str]:
    """Apply Landlock, and yield a phrase for each limit that it does not enforce here; nothing is applied before iteration."""
    known = kernel.landlock_version()
    if not known:
        yield "files (this kernel has no Landlock)"
        return
    threads = len(os.listdir("/proc/self/task")) - 1
    run = kernel.RUN if bounds.may_start else kernel.READ
    # Each of these lines replaces the rights of paths that an earlier line has set.
    rights = {os.path.realpath(path): run for path in list_readable(bounds)}
    rights |= {os.path.realpath(path): kernel.READ for path in bounds.readable}
    rights |= {os.path.realpath(path): kernel.WRITE for path in bounds.writable}
    rights |= _DEVICES
    _open_descriptors.extend(kernel.restrict_files(rights, may_connect=bounds.may_connect))
    if threads > 0:
        yield f"files, in {threads} thread{'s'[: threads > 1]} that had been started before"
    for since, what, matters in (
        (kernel.TRUNCATE_SINCE, "truncating files", True),
        (kernel.PORTS_SINCE, "listening on new ports", bounds.may_connect),
        (kernel.SCOPES_SINCE, "signals of programs to other processes", bounds.may_start),
        (kernel.SCOPES_SINCE, "abstract sockets of other processes", bounds.may_connect),
    ):
        if known < since and matters:
            yield f"{what} (this kernel's Landlock is too old)"
