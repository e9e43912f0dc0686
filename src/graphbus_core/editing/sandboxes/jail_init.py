"""The first process in an isolated sandbox: a separate program, run by `python -I -S`, never imported by GraphBus.

Theory of operation
===================
    GraphBus -> bubblewrap --------------------------> this program, pid 1 -> the command, behind Landlock
    GraphBus -> this program -> unshare, new root ---> this program, pid 1 -> the command, behind Landlock

With bubblewrap the isolation is already there. Without it (`spec["build"]`) this program sets it up: new namespaces, a root made
of tmpfs and bind mounts, `pivot_root`, and the old root unmounted. Then it starts the command, which first gives up all rights
and sets its limits and the seccomp filter. When the command ends, this process ends, and the kernel ends all others with pid 1.

The exit status goes over a pipe that only this process has. No other process can write into its memory: it is not dumpable, it
runs as root only if the command does not, and `/proc` is read-only, which Landlock enforces again where the kernel has it.

`spec` is the JSON that `jails._make_spec` writes. The numbers below are constants of the Linux kernel that Python does not name.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import sys
from typing import Any, NoReturn

_NEW = "/new"
_PDEATHSIG, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVS, _FILTER = 1, 4, 22, 38, 2
_NS = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
_BIND, _REC, _PRIVATE, _NOSUID, _NODEV, _NOEXEC = 4096, 16384, 1 << 18, 2, 4, 8
_DETACH, _AT_RECURSIVE, _READ_ONLY = 2, 0x8000, 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_LAST_OF_BEST_EFFORT = 2 << 13 | 7
_NICER = 5
_MOUNT_SETATTR, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 442, 444, 445, 446
_READ, _READ_FILE, _ALL_1, _FILE_ONLY = 0b1101, 0b101, (1 << 13) - 1, 0b111 | 1 << 14 | 1 << 15
_libc = ctypes.CDLL(None, use_errno=True)

_Spec = dict[str, Any]


def main() -> NoReturn:
    """Set up the isolation if bubblewrap has not, start the command, wait for its end and report its exit status."""
    spec: _Spec = json.loads(sys.argv[1])
    command = sys.argv[2:]
    os.umask(0o022)
    os.set_inheritable(spec["status"], False)
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if spec["build"]:
        _enter_namespaces(spec)
        _build_root(spec)
        if not spec["network"]:
            _raise_loopback()
    _prctl(_DUMPABLE, 0)
    _prctl(_NO_NEW_PRIVS, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _lower_priority()
    child = os.fork()
    if child == 0:
        _become_command(spec, command)
    os.close(0)
    while True:  # process 1 also waits for orphans
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os.write(spec["status"], b"%d\n" % code)
            os._exit(code if code >= 0 else 128 - code)


def _become_command(spec: _Spec, command: list[str]) -> NoReturn:
    """In the child process: give up all rights, set the limits, write `ready` to the status pipe, and execute the command."""
    try:
        os.setsid()
        if spec["drop"]:
            os.setgroups([])
            os.setresgid(*[spec["drop"]] * 3)
            os.setresuid(*[spec["drop"]] * 3)
        _prctl(_PDEATHSIG, signal.SIGKILL)
        os.chdir(spec["place"])
        if spec["build"] or _has_landlock():
            _restrict_paths(spec)
        _set_limits(spec["limits"])
        if spec["filter"]:
            _install_filter(bytes.fromhex(spec["filter"]))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.write(spec["status"], b"ready\n")
    except OSError as error:
        os.write(2, f"starting the command failed: {error}\n".encode())
        os._exit(125)
    try:
        os.execvpe(command[0], command, os.environ)  # noqa: S606 - it becomes the command
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _lower_priority() -> None:
    """Give all other processes of the machine precedence on the processor and the disk."""
    os.nice(_NICER)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    _libc.syscall(ctypes.c_long(_IOPRIO_SET[os.uname().machine]), 1, 0, _LAST_OF_BEST_EFFORT)


def _set_limits(limits: dict[str, int]) -> None:
    """Set the limits of this process, e.g. `{"CPU": 61}`, none above its present hard limit, and forbid core dumps."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, most = resource.getrlimit(number)
        bound = value if most < 0 else min(value, most)
        resource.setrlimit(number, (bound, bound))


def _install_filter(steps: bytes) -> None:
    """Install the seccomp filter for this process and its children; it cannot be removed."""
    kept = ctypes.create_string_buffer(steps, len(steps))
    program = struct.pack("@HP", len(steps) // 8, ctypes.addressof(kept))
    _check_result(_libc.prctl(_SECCOMP, ctypes.c_ulong(_FILTER), program, 0, 0), "seccomp")


# --- isolation: namespaces and a root of its own ------------------------------------------------


def _enter_namespaces(spec: _Spec) -> None:
    """Create the namespaces and fork. Only the child returns, as process 1 in them; the parent waits for it and exits."""
    user, group, inner = os.geteuid(), os.getegid(), spec["users"]
    unwanted = {"user" if not spec["userns"] else "", "net" if spec["network"] else ""}
    kinds = [kind for kind in _NS if kind not in unwanted]
    _check_result(_libc.unshare(sum(_NS[kind] for kind in kinds)), "unshare")
    if spec["userns"]:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{inner[0]} {user} 1"),
            ("gid_map", f"{inner[1]} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    child = os.fork()
    if child:
        os.close(spec["status"])
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    _prctl(_PDEATHSIG, signal.SIGKILL)


def _build_root(spec: _Spec) -> None:
    """Build a tree that contains only what may be seen, make it the root, and unmount the old root.

    Meanwhile the old root is at `/old` and the new one at `/new`.
    """
    _mount("", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", _NOSUID | _NODEV, "mode=0755")  # noqa: S108 - a mount point, not a file
    os.mkdir("/tmp/old")  # noqa: S108
    os.mkdir("/tmp/new")  # noqa: S108
    _pivot_root("/tmp", "/tmp/old")  # noqa: S108
    os.chdir("/")
    _mount("tmpfs", _NEW, "tmpfs", _NOSUID | _NODEV, "mode=0755")
    tmpfs_folders = [(place, spec["disk_bytes"], 0o1777, _NODEV) for place in spec["own"]]
    for place, size, mode, no_devices in (*tmpfs_folders, ("/dev", 65536, 0o755, 0)):
        os.makedirs(_NEW + place)
        _mount("tmpfs", _NEW + place, "tmpfs", _NOSUID | no_devices, f"size={size},nr_inodes=65536,mode={mode:o}")
    os.mkdir(_NEW + "/dev/shm")  # noqa: S108
    _mount("tmpfs", _NEW + "/dev/shm", "tmpfs", _NOSUID | _NODEV, f"size={spec['shm_bytes']},mode=1777")  # noqa: S108
    os.mkdir(_NEW + "/proc")
    _mount("proc", _NEW + "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    for name in ("null", "zero", "full", "random", "urandom"):
        _bind(f"/old/dev/{name}", f"{_NEW}/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{_NEW}/dev/{name}")
    os.symlink("/proc/self/fd", f"{_NEW}/dev/fd")
    outer = [read for read in spec["reads"] if not _is_under(read[1], spec["place"])]
    for source, place in outer:
        _bind("/old" + source, _NEW + place, _READ_ONLY)
    for target, place in spec["links"]:
        os.makedirs(os.path.dirname(_NEW + place), exist_ok=True)
        os.symlink(target, _NEW + place)
    _bind("/old" + spec["cwd"], _NEW + spec["place"])
    for source, place in spec["reads"]:
        if _is_under(place, spec["place"]):
            _bind("/old" + source, _NEW + place, _READ_ONLY)
    _check_result(_libc.umount2(b"/old", _DETACH), "umount2")
    os.chdir(_NEW)
    _pivot_root(".", ".")
    _check_result(_libc.umount2(b".", _DETACH), "umount2")
    os.chdir("/")
    for place in ("/proc", "/dev", "/"):
        _set_attributes(place, _READ_ONLY, 0)


def _is_under(path: str, folder: str) -> bool:
    """True for a path below the folder."""
    return path.startswith(f"{folder}/")


def _bind(source: str, place: str, attributes: int = 0) -> None:
    """Make a file or folder of the old root visible at `place`, with further mount attributes."""
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.exists(place):
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, place, "", _BIND | _REC)
    _set_attributes(place, attributes | _NOSUID, _AT_RECURSIVE)


def _mount(source: str, place: str, kind: str, flags: int, data: str = "") -> None:
    """Call `mount(2)`, with NULL for an empty text; raise OSError if it fails."""
    words = [word.encode() or None for word in (source, place, kind)]
    _check_result(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None), f"mount {place}")


def _set_attributes(place: str, attributes: int, at: int) -> None:
    """Add mount attributes to those of a mount; `at` are the flags of `mount_setattr(2)`.

    `mount` with MS_REMOUNT would replace the present ones.
    """
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    arguments = (ctypes.c_long(-100), place.encode(), ctypes.c_uint(at), ctypes.byref(wanted), ctypes.c_size_t(32))
    _check_result(_libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *arguments), f"mount_setattr {place}")


def _pivot_root(new: str, old: str) -> None:
    """Make `new` the root, and move the old root to `old`."""
    _check_result(
        _libc.syscall(ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), new.encode(), old.encode()), "pivot_root"
    )


def _raise_loopback() -> None:
    """Switch on the loopback device of the sandbox's own network."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))


# --- isolation: Landlock ---------------------------------------------------------------------------


def _restrict_paths(spec: _Spec) -> None:
    """Forbid all access outside of the visible paths by Landlock, for this process and its children; it cannot be undone."""
    version = _landlock(_CREATE_RULESET, None, 0, 1)
    known = _ALL_1  # the rights of version 1; later versions know more, and version 6 restricts signals and sockets
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        known |= (version >= since) << bit
    handled = (ctypes.c_uint64 * 3)(known, 0, 3 if version >= 6 else 0)
    rules = _landlock(_CREATE_RULESET, handled, 24 if version >= 6 else 8, 0)
    for _, place in spec["reads"]:
        _allow_path(rules, place, _READ & known)
    for place in (spec["place"], *spec["own"], "/dev/shm", "/dev/pts"):  # noqa: S108
        if os.path.isdir(place):
            _allow_path(rules, place, known)
    for name, rights in (("null", 0b110), ("zero", 0b100), ("full", 0b110), ("random", 0b110), ("urandom", 0b110)):
        _allow_path(rules, f"/dev/{name}", rights)
    for place, rights in (("/", 0b1000), ("/proc", 0b1100), ("/dev", 0b1100)):
        _allow_path(rules, place, rights)
    _landlock(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow_path(rules: int, place: str, rights: int) -> None:
    """Add to a Landlock ruleset (`rules` is its descriptor) the rights to a file, or to a folder and all that is in it."""
    handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(place):
        rights &= _FILE_ONLY
    rule = ctypes.create_string_buffer(rights.to_bytes(8, sys.byteorder) + handle.to_bytes(4, sys.byteorder), 12)
    _landlock(_ADD_RULE, rules, 1, rule, 0)
    os.close(handle)


def _has_landlock() -> bool:
    """True if the kernel supports Landlock: asked for its version, it returns a positive number."""
    return bool(_libc.syscall(ctypes.c_long(_CREATE_RULESET), None, 0, 1) > 0)


def _landlock(number: int, *arguments: Any) -> int:
    """Make the system call of Landlock with this number and return its result; raise OSError if it fails."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _check_result(_libc.syscall(ctypes.c_long(number), *words), "Landlock")
    return result


def _prctl(option: int, value: int) -> None:
    """Call `prctl(2)`; raise OSError if it fails."""
    _check_result(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def _check_result(result: int, what: str) -> int:
    """Return the result of a call of the C library; raise OSError, which names `what`, if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError) as reason:
        os.write(2, f"isolating the command failed: {reason}\n".encode())
        os._exit(125)
