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

from graphbus_core.confinement.calls import ENOSYS, NEW_NAMESPACES, Has, Is, IsNoneOf, Rule, program

_EAFNOSUPPORT = 97
_FAMILIES = (1, 2, 10, 16)
_SHARED_AND_NAMELESS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS: such memory stays when its addresses are given back one by one."""
_REFUSED = (
    "unshare setns mount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr "
    "add_key request_key keyctl ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise "
    "io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd "
    "memfd_create memfd_secret shmget semget msgget vmsplice"
)
_RULES = (
    Rule("clone3", ENOSYS),
    Rule("clone", when=Has(0, NEW_NAMESPACES)),
    Rule("mmap", when=Is(3, _SHARED_AND_NAMELESS, _SHARED_AND_NAMELESS)),
    Rule("socket", _EAFNOSUPPORT, IsNoneOf(0, _FAMILIES)),
    *map(Rule, _REFUSED.split()),
)


def call_filter(machine: str) -> bytes:
    """Give the filter for a kind of processor (`os.uname().machine`); empty where the numbers of its calls are not known."""
    return program(machine, _RULES)
