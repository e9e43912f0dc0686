"""The two jails. A command in one sees the system and Python read-only, its copy of the project, an empty home, and itself.

A seccomp filter refuses system calls that no jailed command needs and that lead past the walls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphbus_core.confinement.calls import (
    ENOSYS,
    NEW_NAMESPACES,
    AnyBitSet,
    CallRule,
    MaskedEqual,
    NotIn,
    compile_filter,
)
from graphbus_core.editing.sandboxes.process import (
    FinishedProcess,
    Limits,
    cpu_seconds,
    environment_of,
    process_count,
    run_watched,
)
from graphbus_core.errors import EditError

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "protocols", "services", "localtime", "timezone"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "python3"),
)
_ASK = """\
import sys
found = list(sys.path)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [str(path) for path in getattr(module, "MAPPING", {}).values()]
sys.stdout.write("\\0".join(found))
"""


class _Reach(NamedTuple):
    """What a jailed command can read, outer paths first.

    Attributes:
        reads: (real path, path in the jail) of files and folders.
        links: (target, path in the jail) of symbolic links.
    """

    reads: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]


def visible_paths(project: Path | None, more: tuple[str, ...]) -> _Reach:
    """Return what a jailed command can read: the system, Python with its packages, and `more`.

    Args:
        project: The real project, which stays hidden even if it is installed in this Python.
        more: Further files or folders.
    """
    links: list[tuple[str, str]] = []
    wanted: list[str] = []
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC)):
        if os.path.islink(path):
            links.append((os.readlink(path), path))
            wanted += [os.path.realpath(path)] if path not in _SYSTEM else []
        else:
            wanted.append(path)
    wanted += [*_interpreter(), *(path for path in _packages() if _is_shown(path, project)), *more]
    shown = sorted({os.path.abspath(path) for path in wanted if os.path.exists(path)})
    return _Reach(tuple((os.path.realpath(path), path) for path in _roots(shown)), tuple(links))


def _roots(paths: list[str]) -> list[str]:
    """Leave out paths that lie below another one."""
    kept: list[str] = []
    for path in paths:
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not any(place == root or place.startswith(f"{root}/") for root in map(os.path.realpath, kept)):
            kept.append(path)
    return kept


def _interpreter() -> list[str]:
    """Return the folders of this Python, and every symbolic link between the name of its program and the real file."""
    folders = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    found = [*(path for path in folders if not _is_wide(path)), sys.executable]
    while os.path.islink(found[-1]) and len(found) < 16:
        found.append(os.path.normpath(os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1]))))
    return found


@cache
def _packages() -> tuple[str, ...]:
    """Return the module search path of a clean interpreter, without variables of the environment and current folder."""
    done = subprocess.run([sys.executable, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
    return tuple(path for path in done.stdout.split("\0") if os.path.isabs(path))


def _is_shown(path: str, project: Path | None) -> bool:
    """True for a folder of modules that may be shown: not too wide, and not in the real project."""
    if _is_wide(path):
        return False
    return project is None or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project))


def _is_wide(path: str) -> bool:
    """True for a folder that contains the user's home, and for top-level folders except `/usr`: too much to show."""
    real = Path(os.path.realpath(path))
    return Path(os.path.realpath(Path.home())).is_relative_to(real) or (len(real.parts) < 3 and real != Path("/usr"))


def sources_in(project: Path) -> tuple[str, ...]:
    """Return the folders of a project that are on the module search path (editable installs), relative to the project."""
    root = Path(os.path.realpath(project))
    real = (Path(os.path.realpath(path)) for path in _packages() if not Path(path).is_relative_to(sys.prefix))
    return tuple(str(path.relative_to(root)) for path in real if path.is_relative_to(root))


_EAFNOSUPPORT = 97
_FAMILIES = (1, 2, 10, 16)
_SHARED_AND_NAMELESS = 0x21
"""The flags MAP_SHARED and MAP_ANONYMOUS of mmap."""
# refused                                     because
# sockets but unix, IPv4, IPv6 and netlink    AF_VSOCK reaches the host of a virtual machine from any network namespace
# new namespaces, mounts                      root in a namespace of its own reaches parts of the kernel that users cannot
# keyrings                                    the keys of the session are inherited
# ptrace, memory of other processes           a process of the command could rewrite the one that runs its tests
# io_uring, bpf, perf, userfaultfd            they bypass filters of other calls, or have been ways into the kernel
# memfd, System V IPC, vmsplice and           no limit of a process counts such memory
#   shared anonymous maps
# They fail with EPERM, as for a user without the right. `clone3` fails with ENOSYS, so that libraries fall back to `clone`.
_REFUSED = (
    "unshare setns mount umount2 pivot_root open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr "
    "add_key request_key keyctl ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise "
    "io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd "
    "memfd_create memfd_secret shmget semget msgget vmsplice"
)
_RULES = (
    CallRule("clone3", ENOSYS),
    CallRule("clone", when=AnyBitSet(0, NEW_NAMESPACES)),
    CallRule("mmap", when=MaskedEqual(3, _SHARED_AND_NAMELESS, _SHARED_AND_NAMELESS)),
    CallRule("socket", _EAFNOSUPPORT, NotIn(0, _FAMILIES)),
    *map(CallRule, _REFUSED.split()),
)


def call_filter(machine: str) -> bytes:
    """Return the seccomp filter for a kind of processor (`os.uname().machine`); empty if its call numbers are not known."""
    return compile_filter(machine, _RULES)


Tier = Literal["bubblewrap", "landlock"]

_HOME = "/tmp/home"  # noqa: S108 - the home in the jail if the user's own path cannot be used
_SHM_BYTES = 64_000_000
_OPEN_FILES = 1024
_JAIL_INIT = str(Path(__file__).with_name("jail_init.py"))
_FIRST_USER, _USERS, _NOBODY = 64_000, 1_000, 65_534
_ADMINISTRATOR = 21
_runs = count(os.getpid())  # `next` is atomic


class Jail:
    """Runs commands with a new root, an own network with nobody in it, own process ids, and limits.

    Args:
        tier: `"bubblewrap"`: the program `bwrap` builds the walls; `"landlock"`: `jail_init.py` does.
        project: The real project, which stays hidden.
    """

    def __init__(self, tier: Tier, project: Path | None = None) -> None:
        self.tier = tier
        self._project = project

    def visible_path(self, cwd: Path) -> Path:
        """Return the path of the copy in the jail: the project's real path if possible, so that tracebacks look as outside."""
        if self._project is None:
            return cwd.resolve()
        place = os.path.realpath(self._project)
        wide = (*_SYSTEM, "/etc", "/dev", "/proc", "/tmp", _home())  # noqa: S108
        is_taken = any(_is_in(taken, place) for taken in wide) or place in (sys.prefix, sys.base_prefix)
        return cwd.resolve() if is_taken else Path(place)

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> FinishedProcess:
        """Run a command to its end; all processes that it has started end with it.

        Raises:
            EditError: GBE331, the jail could not be built; the command has not run.
        """
        folder = str(cwd.resolve())
        user = _other_user() if _is_root() else 0
        if user:
            _give_to_user(folder, user)
        shown = visible_paths(self._project, (_JAIL_INIT, *map(str, readable)))
        heard, told = os.pipe()
        spec = _spec(folder, str(self.visible_path(cwd)), user, shown, limits)
        spec |= {"build": self.tier == "landlock", "status": told}
        variables = environment_of(Path(spec["home"]), environment or {})
        start = [] if self.tier == "landlock" else _bwrap(spec, shown)
        try:
            whole = [*start, sys.executable, "-I", "-S", _JAIL_INIT, json.dumps(spec), *command]
            held = (*spec["own"], "/dev/shm")  # noqa: S108 - of the jail
            done = run_watched(whole, cwd, variables, limits, weighed=(cwd,), held=held, passed=(told,))
        finally:
            os.close(told)
            with open(heard, "rb") as pipe:
                said = pipe.read().split()
        if said[:1] != [b"ready"] and not done.timed_out and done.returncode > 0:
            raise EditError(
                "GBE331", tier=self.tier, reason=done.stderr.strip().rpartition("\n")[2] or "no reason given"
            )
        return done._replace(returncode=int(said[1])) if len(said) > 1 else done


def _home() -> str:
    """Return the path of the empty home in the jail: that of the user's home, unless it would hide something."""
    home = os.path.realpath(Path.home())
    wide = ("/", "/home", "/var", "/opt", "/srv", "/run", "/tmp", *_SYSTEM)  # noqa: S108
    return _HOME if home in wide or any(_is_in(home, taken) for taken in (*_SYSTEM, "/etc", "/dev", "/proc")) else home


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _spec(folder: str, place: str, user: int, shown: _Reach, limits: Limits) -> dict[str, Any]:
    """Return the description of a jail for `jail_init.py`."""
    bounds = {"CPU": cpu_seconds(limits), "FSIZE": limits.file_size_mb << 20, "NOFILE": _OPEN_FILES}
    if limits.memory_mb:
        bounds["AS"] = limits.memory_mb << 20
    if limits.processes:
        bounds["NPROC"] = limits.processes if user else limits.processes + process_count()
    home = _home()
    return {
        "userns": not user,
        "users": (os.geteuid() or _NOBODY, os.getegid() or _NOBODY),
        "drop": user,
        "reads": shown.reads,
        "links": shown.links,
        "cwd": folder,
        "place": place,
        "home": home,
        "own": ["/tmp", home],  # noqa: S108
        "limits": bounds,
        "filter": call_filter(os.uname().machine).hex(),
        "disk_bytes": limits.disk_mb * 1_000_000,
        "shm_bytes": _SHM_BYTES,
    }


def _bwrap(spec: Mapping[str, Any], shown: _Reach) -> list[str]:
    """Return the command line of bubblewrap for a jail."""
    rights = ["--cap-drop", "ALL"]
    place = spec["place"]
    if spec["drop"]:
        rights += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        user, group = spec["users"]
        rights += ["--unshare-user", "--disable-userns", "--uid", str(user), "--gid", str(group)]
    inner = [read for read in shown.reads if _is_in(read[1], place)]
    outer = [read for read in shown.reads if read not in inner]
    links = [word for aim, path in shown.links for word in ("--symlink", aim, path)]
    paths = [path for _, path in (*outer, *shown.links)]
    own = [
        word for path in spec["own"] for word in ("--perms", "1777", "--size", str(spec["disk_bytes"]), "--tmpfs", path)
    ]
    above = sorted({str(up) for path in (*paths, place) for up in Path(path).parents} - {"/", *spec["own"], *paths})
    folders = [word for parent in above for word in ("--perms", "0755", "--dir", parent)]
    return [
        *(shutil.which("bwrap") or "bwrap", *rights),
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
        *(*own, *folders, *_read_only(outer), *links, "--bind", spec["cwd"], place, *_read_only(inner)),
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"),
    ]


def _read_only(reads: Sequence[tuple[str, str]]) -> list[str]:
    return [word for source, path in reads for word in ("--ro-bind", source, path)]


def _is_root() -> bool:
    """True if this process is root with CAP_SYS_ADMIN: then no user namespace is needed, but another user for the command."""
    rights = re.search(r"^CapEff:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return os.geteuid() == 0 and rights is not None and bool(int(rights[1], 16) >> _ADMINISTRATOR & 1)


def _other_user() -> int:
    """Return a user id that nothing else uses, so that the limit on processes counts those of this command only."""
    return _FIRST_USER + next(_runs) % _USERS


def _give_to_user(folder: str, user: int) -> None:
    """Make the user of the command the owner of its copy."""
    os.lchown(folder, user, user)
    for path, names, files in os.walk(folder):
        for name in (*names, *files):
            os.lchown(os.path.join(path, name), user, user)
