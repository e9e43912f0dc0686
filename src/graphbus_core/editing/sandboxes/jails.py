"""The two isolated sandboxes: a command sees the system and Python read-only, its copy of the project, an empty home, and itself.

A seccomp filter refuses system calls that no such command needs and that would get around the isolation.
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
from typing import IO, Any, Literal, NamedTuple

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
    StartedProgram,
    cpu_seconds,
    environment_of,
    process_count,
    run_watched,
    start_program,
)
from graphbus_core.errors import EditError

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "protocols", "services", "localtime", "timezone"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "python3"),
)
_ETC_TO_CONNECT = ("/etc/resolv.conf", "/etc/gai.conf")
_PRINT_SEARCH_PATH = """\
import sys
found = list(sys.path)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [str(path) for path in getattr(module, "MAPPING", {}).values()]
sys.stdout.write("\\0".join(found))
"""


class _VisiblePaths(NamedTuple):
    """What an isolated command can read, outer paths first.

    Attributes:
        reads: (real path, path in the sandbox) of files and folders.
        links: (target, path in the sandbox) of symbolic links.
    """

    reads: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]


def visible_paths(project: Path | None, more: tuple[str, ...]) -> _VisiblePaths:
    """Return what an isolated command can read: the system, Python with its packages, and `more`. Missing paths are left out.

    Args:
        project: The real project, which stays hidden even if it is installed in this Python; None if there is none.
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
    wanted += [*_list_interpreter_paths(), *(path for path in _module_folders() if _may_show(path, project)), *more]
    found = sorted({os.path.abspath(path) for path in wanted if os.path.exists(path)})
    return _VisiblePaths(tuple((os.path.realpath(path), path) for path in _remove_nested(found)), tuple(links))


def _remove_nested(paths: list[str]) -> list[str]:
    """Return the paths of a sorted list that do not lie below another one, once links are resolved."""
    kept: list[str] = []
    for path in paths:
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not any(place == root or place.startswith(f"{root}/") for root in map(os.path.realpath, kept)):
            kept.append(path)
    return kept


def _list_interpreter_paths() -> list[str]:
    """Return the folders of this Python, and every symbolic link between the name of its program and the real file."""
    folders = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    found = [*(path for path in folders if not _shows_too_much(path)), sys.executable]
    while os.path.islink(found[-1]) and len(found) < 16:
        found.append(os.path.normpath(os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1]))))
    return found


@cache
def _module_folders() -> tuple[str, ...]:
    """Return the folders from which this Python imports, editable installs included; PYTHONPATH and the like do not count."""
    done = subprocess.run([sys.executable, "-I", "-c", _PRINT_SEARCH_PATH], capture_output=True, text=True, check=False)
    return tuple(path for path in done.stdout.split("\0") if os.path.isabs(path))


def _may_show(path: str, project: Path | None) -> bool:
    """True if the command may see a folder of modules: it does not show too much, and is not in the real project."""
    if _shows_too_much(path):
        return False
    return project is None or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project))


def _shows_too_much(path: str) -> bool:
    """True for a folder that would show too much: it contains the user's home, or is at the top level and not `/usr`."""
    real = Path(os.path.realpath(path))
    return Path(os.path.realpath(Path.home())).is_relative_to(real) or (len(real.parts) < 3 and real != Path("/usr"))


def sources_in(project: Path) -> tuple[str, ...]:
    """Return the folders of a project that are on the module search path (editable installs), relative to the project.

    Folders of this Python itself do not count, even if its virtual environment lies in the project.
    """
    root = Path(os.path.realpath(project))
    real = (Path(os.path.realpath(path)) for path in _module_folders() if not Path(path).is_relative_to(sys.prefix))
    return tuple(str(path.relative_to(root)) for path in real if path.is_relative_to(root))


_EAFNOSUPPORT = 97
_FAMILIES = (1, 2, 10, 16)
"""The address families Unix, IPv4, IPv6 and netlink."""
_SHARED_AND_NAMELESS = 0x21
"""The flags MAP_SHARED and MAP_ANONYMOUS of mmap."""
# refused                                     because
# sockets of other families                   AF_VSOCK reaches the host of a virtual machine from any network namespace
# new namespaces, mounts                      root in a new namespace can use parts of the kernel that users cannot
# keyrings                                    the keys of the session are inherited
# ptrace, memory of other processes           a process of the command could rewrite the one that runs its tests
# io_uring, bpf, perf, userfaultfd            they bypass filters of other calls, or have been used to exploit the kernel
# memfd, System V IPC, vmsplice and           no limit of a process counts such memory
#   shared anonymous maps
# They fail with EPERM, as for a user without the right. `clone3` fails with ENOSYS, so that libraries fall back to `clone`.
_REFUSED_CALLS = (
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
    *map(CallRule, _REFUSED_CALLS.split()),
)


def call_filter(machine: str) -> bytes:
    """Return the seccomp filter for a kind of processor (`os.uname().machine`); empty if its system calls are not known."""
    return compile_filter(machine, _RULES)


Tier = Literal["bubblewrap", "landlock"]

_DEFAULT_HOME = "/tmp/home"  # noqa: S108 - the home in the sandbox if the user's own path cannot be used
_SHM_BYTES = 64_000_000
_OPEN_FILES = 1024
_JAIL_INIT = str(Path(__file__).with_name("jail_init.py"))
_FIRST_USER, _USERS, _NOBODY = 64_000, 1_000, 65_534
_CAP_SYS_ADMIN = 21
_runs = count(os.getpid())  # `next` is atomic


class _PreparedCommand(NamedTuple):
    """A command that sets up a sandbox and then runs another one, its environment, and the folders in memory that it makes."""

    command: tuple[str, ...]
    variables: dict[str, str]
    in_memory: tuple[str, ...]


class Jail:
    """Runs commands with a new root, a network without other hosts, their own process ids, and limits.

    Args:
        tier: `"bubblewrap"`: the program `bwrap` isolates them; `"landlock"`: `jail_init.py` does.
        project: The real project, which stays hidden.
    """

    def __init__(self, tier: Tier, project: Path | None = None) -> None:
        self.tier = tier
        self._project = project

    def visible_path(self, cwd: Path) -> Path:
        """Return the path in the sandbox of `cwd`, which holds the copy of the project.

        It is the path of the real project, so that tracebacks show the project's usual paths. It is the real path of `cwd` if
        there is no project, or if the project lies in, or is, a folder that the sandbox uses for something else.
        """
        if self._project is None:
            return cwd.resolve()
        place = os.path.realpath(self._project)
        used = (*_SYSTEM, "/etc", "/dev", "/proc", "/tmp", _choose_home())  # noqa: S108
        is_used = any(_is_in(folder, place) for folder in used) or place in (sys.prefix, sys.base_prefix)
        return cwd.resolve() if is_used else Path(place)

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
            EditError: GBE331, the sandbox could not be set up; the command has not run.
            NotJudgedError: GBE332, the machine is too busy.
        """
        status_out, status_in = os.pipe()
        try:
            started = self._prepare(
                command, cwd, limits=limits, environment=environment, readable=readable, status=status_in
            )
            done = run_watched(
                started.command,
                cwd,
                started.variables,
                limits,
                measured=(cwd,),
                in_memory=started.in_memory,
                fds=(status_in,),
            )
        finally:
            os.close(status_in)
            with open(status_out, "rb") as pipe:
                status = pipe.read().split()  # `ready` before the command starts, then its exit status
        if status[:1] != [b"ready"] and not done.timed_out and done.returncode > 0:
            raise EditError(
                "GBE331", tier=self.tier, reason=done.stderr.strip().rpartition("\n")[2] or "no reason given"
            )
        return done._replace(returncode=int(status[1])) if len(status) > 1 else done

    def start(
        self,
        command: Sequence[str],
        cwd: Path,
        log: IO[bytes],
        *,
        limits: Limits,
        environment: Mapping[str, str],
        readable: Sequence[Path],
        has_network: bool,
    ) -> StartedProgram:
        """Start a program that answers on its standard output; see `Sandbox.start`."""
        with open(os.devnull, "wb") as status:
            started = self._prepare(
                command,
                cwd,
                limits=limits._replace(memory_mb=0),
                environment=environment,
                readable=readable,
                status=status.fileno(),
                has_network=has_network,
            )
            return start_program(
                started.command,
                cwd,
                started.variables,
                limits,
                log,
                measured=(cwd,),
                in_memory=started.in_memory,
                fds=(status.fileno(),),
            )

    def _prepare(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None,
        readable: Sequence[Path],
        status: int,
        has_network: bool = False,
    ) -> _PreparedCommand:
        """Return the command that sets up the sandbox; `status` is the descriptor on which it reports."""
        folder, place = str(cwd.resolve()), str(self.visible_path(cwd))
        network_files = tuple(path for path in _ETC_TO_CONNECT if has_network)
        paths = visible_paths(self._project, (_JAIL_INIT, *network_files, *map(str, readable)))
        for _, path in paths.reads:
            if _is_in(path, place):  # bubblewrap would make the folders above it, but for root only
                os.makedirs(os.path.join(folder, os.path.relpath(os.path.dirname(path), place)), exist_ok=True)
        user = _next_user_id() if _has_root_rights() else 0
        if user:
            _change_owner(folder, user)
        spec = _make_spec(folder, place, user, paths, limits)
        spec |= {"build": self.tier == "landlock", "status": status, "network": has_network}
        start = [] if self.tier == "landlock" else _bwrap_command(spec, paths)
        return _PreparedCommand(
            command=(*start, sys.executable, "-I", "-S", _JAIL_INIT, json.dumps(spec), *command),
            variables=environment_of(Path(spec["home"]), environment or {}),
            in_memory=(*spec["own"], "/dev/shm"),  # noqa: S108 - of the sandbox
        )


def _choose_home() -> str:
    """Return the path of the empty home in the sandbox: that of the user's home, unless it would hide other folders."""
    home = os.path.realpath(Path.home())
    shared = ("/", "/home", "/var", "/opt", "/srv", "/run", "/tmp", *_SYSTEM)  # noqa: S108
    would_hide = home in shared or any(_is_in(home, folder) for folder in (*_SYSTEM, "/etc", "/dev", "/proc"))
    return _DEFAULT_HOME if would_hide else home


def _is_in(path: str, folder: str) -> bool:
    """True for a path that is the folder or lies below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _make_spec(folder: str, place: str, user: int, paths: _VisiblePaths, limits: Limits) -> dict[str, Any]:
    """Return the description of a sandbox for `jail_init.py`, as JSON values.

    Args:
        folder: The copy of the project.
        place: The path of the copy in the sandbox.
        user: The user id for the command; 0 for the present user in a user namespace.
        paths: What the command can read.
        limits: What it may use.
    """
    bounds = {"CPU": cpu_seconds(limits), "FSIZE": limits.file_size_mb << 20, "NOFILE": _OPEN_FILES}
    if limits.memory_mb:
        bounds["AS"] = limits.memory_mb << 20
    if limits.processes:
        bounds["NPROC"] = limits.processes if user else limits.processes + process_count()
    home = _choose_home()
    return {
        "userns": not user,
        "users": (os.geteuid() or _NOBODY, os.getegid() or _NOBODY),
        "drop": user,
        "reads": paths.reads,
        "links": paths.links,
        "cwd": folder,
        "place": place,
        "home": home,
        "own": ["/tmp", home],  # noqa: S108
        "limits": bounds,
        "filter": call_filter(os.uname().machine).hex(),
        "disk_bytes": limits.disk_mb * 1_000_000,
        "shm_bytes": _SHM_BYTES,
    }


def _bwrap_command(spec: Mapping[str, Any], visible: _VisiblePaths) -> list[str]:
    """Return the command line of bubblewrap for a sandbox, up to the program to run."""
    options = ["--cap-drop", "ALL"]
    place = spec["place"]
    if spec["drop"]:
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        user, group = spec["users"]
        options += ["--unshare-user", "--disable-userns", "--uid", str(user), "--gid", str(group)]
    inner = [read for read in visible.reads if _is_in(read[1], place)]
    outer = [read for read in visible.reads if read not in inner]
    links = [word for target, path in visible.links for word in ("--symlink", target, path)]
    paths = [path for _, path in (*outer, *visible.links)]
    own = [
        word for path in spec["own"] for word in ("--perms", "1777", "--size", str(spec["disk_bytes"]), "--tmpfs", path)
    ]
    above = sorted({str(up) for path in (*paths, place) for up in Path(path).parents} - {"/", *spec["own"], *paths})
    folders = [word for parent in above for word in ("--perms", "0755", "--dir", parent)]
    return [
        *(shutil.which("bwrap") or "bwrap", *options),
        *(() if spec["network"] else ("--unshare-net",)),
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108
        *(*own, *folders, *_read_only_binds(outer), *links, "--bind", spec["cwd"], place, *_read_only_binds(inner)),
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"),
    ]


def _read_only_binds(reads: Sequence[tuple[str, str]]) -> list[str]:
    """Return the options of bubblewrap that show these paths (real path, path in the sandbox) read-only."""
    return [word for source, path in reads for word in ("--ro-bind", source, path)]


def _has_root_rights() -> bool:
    """True if this process is root with CAP_SYS_ADMIN. Then the command runs as another user, and needs no user namespace."""
    capabilities = re.search(r"^CapEff:\s+(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return os.geteuid() == 0 and capabilities is not None and bool(int(capabilities[1], 16) >> _CAP_SYS_ADMIN & 1)


def _next_user_id() -> int:
    """Return a user id for a command, another one each time: the limit on processes counts all processes of a user."""
    return _FIRST_USER + next(_runs) % _USERS


def _change_owner(folder: str, user: int) -> None:
    """Make a user the owner of a folder and of everything in it; links are changed themselves and not followed."""
    os.lchown(folder, user, user)
    for path, names, files in os.walk(folder):
        for name in (*names, *files):
            os.lchown(os.path.join(path, name), user, user)
