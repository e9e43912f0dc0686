"""What gets out of a jail: nothing. Each way out is tried for real, in each jail that there is here; many in one start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from graphbus_core.editing import sandboxes
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes import TIERS, choose_sandbox, describe_isolation, jails, why_unavailable
from graphbus_core.editing.sandboxes.jails import Jail, Tier, call_filter, visible_paths
from graphbus_core.editing.sandboxes.process import FinishedProcess, Limits, ProcessSandbox
from graphbus_core.errors import EditError
from graphbus_core.model.config import GateConfig
from tests.patience import PATIENCE_S
from tests.thoroughness import some
from tests.unit.editing.shop_project import Shop, code_of

pytestmark = pytest.mark.slow

PREPARED = """
import ctypes, mmap, os, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.shmat.restype = ctypes.c_void_p
clone, keyctl, bpf = (56, 250, 321) if os.uname().machine == "x86_64" else (220, 219, 280)
X86 = os.uname().machine == "x86_64"
MB = 1 << 20
def refused(result):
    if result in (-1, None, 2**64 - 1):
        raise OSError(ctypes.get_errno(), "refused")
    return result
def call(number, generic, *given):
    return refused(libc.syscall(ctypes.c_long(number if X86 else generic), *given))
def parts(count, work):
    # the same in many processes at a time
    made = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            work(number)
            time.sleep(20)
            os._exit(0)
        made.append(pid)
    time.sleep(4)
"""

TRIES = """
import json
said = {}
for name, line in json.loads(sys.argv[1]).items():
    heard, told = os.pipe()
    if os.fork() == 0:
        try:
            exec(line)
            word = "out"
        except (OSError, MemoryError, ValueError) as error:
            word = f"kept in: {error}"
        except BaseException as error:
            word = f"odd: {error!r}"
        os.write(told, word.encode())
        os._exit(0)
    os.close(told)
    said[name] = os.read(heard, 1000).decode()
    os.wait()
print(json.dumps(said))
"""
"""Each line in a process of its own, in one jail."""

FILES = {
    **{
        f"reading {path}": f"open({path!r}).read()"
        for path in ("{home}/.ssh/id_test", "{home}/.aws/test", "../secret.txt")
    },
    **{f"reading {path}": f"open({path!r}).read()" for path in ("{beside}/secret.txt", "link0", "link1", "link2")},
    **{f"reading {path}": f"open({path!r}).read()" for path in ("/etc/shadow", "/proc/1/environ")},
    **{f"listing {path}": f"os.listdir({path!r})" for path in ("/var/log", "/run", "/sys", "/boot", "/proc/1/fd")},
    **{
        f"writing {path}": f"open({path!r}, 'w')"
        for path in ("/usr/new", "/etc/new", "/new", "/dev/new", "/var/tmp/new")
    },
    "writing to the packages of this Python": "import graphbus_core; open(graphbus_core.__file__, 'a')",
    "a key in the environment": "'secret' in f'{{os.environ}}' + open('/proc/self/environ').read() or refused(-1)",
    "other processes": "sum(name.isdigit() for name in os.listdir('/proc')) > 3 or refused(-1)",
    "the first process killed": "os.kill(os.getppid() + 10, 9)",
    "a terminal": "open('/dev/tty', 'w')",
    "the user root": "os.getuid() == 0 or refused(-1)",
    "rights of root": "'CapEff:\\t0000000000000000' not in open('/proc/self/status').read() or refused(-1)",
}
NETWORK = {
    "a server on this machine": "socket.create_connection(('127.0.0.1', {port}), 2)",
    "a server far away": "socket.create_connection(('192.0.2.1', 80), 2)",
    "a socket in a folder": "socket.socket(1).connect('{beside}/socket')",
    "an abstract socket": "socket.socket(1).connect('\\0graphbus-{port}')",
}
CALLS = {
    "a socket to the host of this machine": "socket.socket(40, socket.SOCK_STREAM)",
    "raw packets": "socket.socket(17, socket.SOCK_RAW)",
    "the kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "a user namespace by unshare": "refused(libc.unshare(0x10000000))",
    "a network namespace by unshare": "refused(libc.unshare(0x40000000))",
    "a user namespace by clone": "refused(libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0))",
    "the keys of the session": "refused(libc.syscall(keyctl, 0, -3, 0))",
    "a tracer of the process above": "refused(libc.ptrace(16, os.getppid(), 0, 0))",
    "memory of the process above": "refused(libc.process_vm_readv(os.getppid(), ctypes.create_string_buffer(16), 0, None, 0, 0))",
    "io_uring": "refused(libc.syscall(425, 1, ctypes.create_string_buffer(200)))",
    "bpf": "refused(libc.syscall(bpf, 0, ctypes.create_string_buffer(200), 72))",
    "a new mount": "refused(libc.mount(b'a', b'/tmp', b'tmpfs', 0, None))",
    "a context of mounts": "refused(libc.syscall(430, b'tmpfs', 0))",
}
MEMORY_OF_OTHERS = {
    "the parent, through its memory file": "open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "the first process, through its memory file": "open('/proc/1/mem', 'rb')",
    "itself, through its memory file": "open('/proc/self/mem', 'r+b')",
    "a thread, through its memory file": "open(f'/proc/self/task/{os.getpid()}/mem', 'r+b')",
    "the parent, through another path to its memory file": "open(f'/proc/{os.getppid()}/task/{os.getppid()}/mem', 'r+b')",
    "the parent, through a root of its own": "open(f'/proc/self/root/proc/{os.getppid()}/mem', 'r+b')",
    "the parent, through a folder that is open": (
        "os.open('mem', os.O_RDWR, dir_fd=os.open(f'/proc/{os.getppid()}', os.O_RDONLY))"
    ),
    "the parent, through a link in the copy": "os.symlink(f'/proc/{os.getppid()}/mem', 'm') or open('m', 'r+b')",
    "the parent, reopened for writing": (
        "open('/proc/self/fd/%d' % os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY), 'r+b')"
    ),
    "the parent, by a path handle": "open('/proc/self/fd/%d' % os.open(f'/proc/{os.getppid()}/mem', os.O_PATH), 'r+b')",
    "the parent, traced": "refused(libc.ptrace(16, os.getppid(), 0, 0))",
    "a child, traced": "refused(libc.ptrace(0, 0, 0, 0))",
    "the parent, written by a call": (
        "refused(libc.process_vm_writev(os.getppid(), ctypes.create_string_buffer(16), 0, None, 0, 0))"
    ),
    "a file of the parent, taken": "call(438, 438, call(434, 434, os.getppid(), 0), 1, 0)",
    "advice on the memory of the parent": "call(440, 440, call(434, 434, os.getppid(), 0), 0, 0, 4, 0)",
    "soft-dirty bits of the parent": "open(f'/proc/{os.getppid()}/clear_refs', 'w').write('4')",
    "which process dies first": "open(f'/proc/{os.getppid()}/oom_score_adj', 'w').write('1000')",
    "the name of the parent": "open(f'/proc/{os.getppid()}/comm', 'w').write('x')",
    "a new process table": "refused(libc.mount(b'proc', b'/tmp', b'proc', 0, None))",
    "the process table made writable": "refused(libc.mount(None, b'/proc', None, 32, None))",
    "the process table, detached": "refused(libc.umount2(b'/proc', 2))",
    "the environment of the first process": "open('/proc/1/environ').read()",
    "the files of the first process": "os.listdir('/proc/1/fd')",
    "the root of the first process": "os.listdir('/proc/1/root')",
    "the maps of the first process": "open('/proc/1/maps').read() or refused(-1)",
    "settings of the kernel": "open('/proc/sys/kernel/ns_last_pid', 'w').write('7')",
    "a dump of the kernel": "open('/proc/kcore', 'rb').read(1)",
    "higher priority": "os.nice(-1)",
    "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
}
MEMORY_UNCOUNTED = {
    "a file in memory": "call(319, 279, b'x', 0)",
    "a secret file in memory": "call(447, 447, 0)",
    "System V shared memory": "refused(libc.shmget(0, 64 * MB, 0o1600))",
    "System V messages": "refused(libc.msgget(0, 0o1600))",
    "System V semaphores": "refused(libc.semget(0, 32000, 0o1600))",
    "nameless shared memory": "mmap.mmap(-1, 64 * MB)",
    "nameless shared memory, validated": "refused(libc.mmap(None, 64 * MB, 3, 0x23, -1, 0))",
    "nameless shared memory of large pages": "refused(libc.mmap(None, 64 * MB, 3, 0x40021, -1, 0))",
    "zeros that are shared": "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 64 * MB)",
    "pages given to a pipe": (
        "call(278, 75, os.pipe()[1], ctypes.byref((ctypes.c_size_t * 2)(ctypes.addressof("
        "ctypes.create_string_buffer(4096)), 4096)), 1, 8)"
    ),
    "one process": "bytearray(400 * MB)",
    "shared memory of the system": "open('/dev/shm/a', 'wb').write(bytes(80 * MB))",
}
MEMORY_TOGETHER = {
    "many processes": "parts(8, lambda number: bytearray(100 * MB))",
    "processes of processes": (
        "parts(4, lambda number: (globals().update(x=bytearray(60 * MB)), os.fork(), globals().update(y=bytearray(60 * MB))))"
    ),
    "daemons": "parts(6, lambda number: (os.setsid(), os.fork() and os._exit(0), globals().update(x=bytearray(100 * MB))))",
    "a process and a folder": (
        "x = bytearray(150 * MB); [open(f'/tmp/f{n}', 'wb').write(bytes(20 * MB)) for n in range(10)]; time.sleep(4)"
    ),
    "files without a name": (
        "import tempfile; kept = [tempfile.TemporaryFile(dir='/tmp') for _ in range(20)];"
        " [file.write(bytes(20 * MB)) for file in kept]; time.sleep(4)"
    ),
    "empty files": "[open(f'/tmp/{n}', 'w').close() for n in range(400_000)]; time.sleep(4)",
    "empty files in the home": (
        "h = os.path.expanduser('~'); [open(f'{h}/{n}', 'w').close() for n in range(400_000)]; time.sleep(4)"
    ),
    "buffers of sockets": "parts(12, lambda number: globals().update(x=[socket.socketpair() for _ in range(400)]))",
    "maps of a file in memory": (
        "f = open('/dev/shm/a', 'w+b'); f.truncate(60 * MB); parts(6, lambda n: (mmap.mmap(f.fileno(), 60 * MB).write("
        "bytes(60 * MB)), globals().update(x=bytearray(60 * MB))))"
    ),
    "a process that hides": (
        "parts(8, lambda number: (libc.prctl(4, 0, 0, 0, 0), globals().update(x=bytearray(100 * MB))))"
    ),
}
INNOCENT = {
    "a large process that has children": "x = bytearray(150 * MB); parts(6, lambda number: None)",
    "a pool": "import multiprocessing as m; m.get_context('fork').Pool(4).map(abs, range(10))",
    "shared values": "import multiprocessing as m; m.get_context('fork').Array('d', 100_000)[0]",
    "shared memory by name": "from multiprocessing import shared_memory as s; s.SharedMemory(create=True, size=MB).unlink()",
    "a map of a file": "open('f', 'wb').write(bytes(MB)); mmap.mmap(os.open('f', os.O_RDWR), MB)[0]",
    "a private map": "mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE)",
    "a terminal": "import pty; os.path.exists('/dev/ptmx') and pty.openpty()",
    "names of threads": "import threading; threading.Thread(target=print, name='n').start()",
    "its own facts": "open('/proc/self/status').read(); open('/proc/self/maps').read(); os.listdir('/proc/self/fd')",
}


PLAIN = """
import asyncio, multiprocessing, os, socket, subprocess, sys, threading
def work(pipe):
    pipe.send("hello")
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    socket.socket(family).close()
print(socket.getaddrinfo("127.0.0.1", 80)[0][4][0], socket.if_nameindex()[0][1])
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True).stdout.strip())
async def main():
    child = await asyncio.create_subprocess_exec("true")
    return await child.wait()
print(asyncio.run(main()))
there, here = multiprocessing.get_context("fork").Pipe()
process = multiprocessing.get_context("fork").Process(target=work, args=(here,)); process.start()
print(there.recv()); process.join()
"""


@pytest.fixture(params=TIERS, scope="module")
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    why = why_unavailable(found)
    if why and not os.environ.get("CI"):
        pytest.skip(f"no {found} here: {why}")
    assert not why, f"CI must have every jail; {found}: {why}"
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A copy in which something may be tried; outside of it lies what must not be seen."""
    with tempfile.TemporaryDirectory(prefix="graphbus-test-") as home:
        inner = Path(home, "project", "copy")
        inner.mkdir(parents=True)
        Path(home, "project", "secret.txt").write_text("a secret")
        Path(home, "outside.txt").write_text("a secret")
        yield inner


def run(tier: Tier, folder: Path, code: str, *arguments: str, **limits: int | float) -> FinishedProcess:
    wanted = Limits(**{"timeout_s": 20.0, **limits})  # type: ignore[arg-type]
    return Jail(tier).run([sys.executable, "-c", code, *arguments], folder, limits=wanted)


def tried(tier: Tier, folder: Path, lines: Mapping[str, str]) -> dict[str, str]:
    """Try each line in the same jail, and give what came of it."""
    done = run(tier, folder, PREPARED + TRIES, json.dumps(lines), timeout_s=60.0, memory_mb=256)
    assert done.stdout, done
    said: dict[str, str] = json.loads(done.stdout)
    return said


def got_out(tier: Tier, folder: Path, lines: Mapping[str, str]) -> dict[str, str]:
    return {name: word for name, word in tried(tier, folder, lines).items() if word and not word.startswith("kept in")}


# --- ways out --------------------------------------------------------------------------------------


def test_no_file_of_others_can_be_read_or_written_and_no_server_reached(
    tier: Tier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder.parents[1] / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    for secret in (".ssh/id_test", ".aws/test"):
        (home / secret).parent.mkdir(parents=True)
        (home / secret).write_text("a secret")
    for number, aim in enumerate(("/etc/hostname", "../../secret.txt", "../../../outside.txt")):
        (folder / f"link{number}").symlink_to(aim)
    beside = folder.parent
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = server.getsockname()[1]
        for one, name in ((unix, str(beside / "socket")), (abstract, f"\0graphbus-{port}")):
            one.bind(name)
            one.listen()
        ways = {name: line.format(home=home, beside=beside, port=port) for name, line in {**FILES, **NETWORK}.items()}
        assert got_out(tier, folder, ways) == {}


def test_what_is_beside_the_copy_cannot_be_changed(tier: Tier, folder: Path) -> None:
    ways = {path: f"open({path!r}, 'w').write('spoilt')" for path in ("../secret.txt", "../../new.txt")}
    left = f"graphbus-left-{os.getpid()}"

    tried(
        tier, folder, {**ways, "left": f"open('/tmp/{left}', 'w').write('x')"}
    )  # the jail has such folders of its own

    assert (folder.parent / "secret.txt").read_text() == "a secret"
    assert not (folder.parent.parent / "new.txt").exists()
    assert not Path("/tmp", left).exists()


@pytest.mark.parametrize("ways", [CALLS, MEMORY_OF_OTHERS, MEMORY_UNCOUNTED], ids=["calls", "others", "uncounted"])
def test_no_call_leads_past_the_walls_or_to_the_memory_of_others(
    tier: Tier, folder: Path, ways: Mapping[str, str]
) -> None:
    assert got_out(tier, folder, ways) == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", some(list(MEMORY_TOGETHER), 3))
def test_memory_counts_for_all_processes_together(tier: Tier, folder: Path, name: str) -> None:
    done = run(tier, folder, f"{PREPARED}\n{MEMORY_TOGETHER[name]}\nprint('through')", timeout_s=60.0, memory_mb=256)

    assert "through" not in done.stdout or "ended: it held" in done.stderr, done
    assert done.returncode != 0


def test_a_child_cannot_rewrite_its_parent(tier: Tier, folder: Path) -> None:
    code = """
import ctypes, os
kept = ctypes.create_string_buffer(b"red", 8)
at = ctypes.addressof(kept)
if os.fork() == 0:
    for path in (f"/proc/{os.getppid()}/mem", f"/proc/{os.getppid()}/task/{os.getppid()}/mem"):
        try:
            with open(path, "r+b", buffering=0) as memory:
                memory.seek(at)
                memory.write(b"green")
        except OSError:
            pass
    os._exit(0)
os.wait()
print(kept.value.decode())
"""
    assert run(tier, folder, code).stdout == "red\n"


# --- what it may do ------------------------------------------------------------------------------


def test_what_programs_do_is_no_reason_to_end_them(tier: Tier, folder: Path) -> None:
    assert {name: word for name, word in tried(tier, folder, INNOCENT).items() if word != "out"} == {}


def test_what_programs_need_is_there(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, PLAIN)

    assert done.stdout.split() == ["127.0.0.1", "lo", "thread", "child", "0", "hello"], done


def test_it_runs_in_its_copy_with_a_home_and_the_packages_of_this_python_and_lets_all_else_go_first(
    tier: Tier, folder: Path
) -> None:
    code = """
import os, ssl, tempfile, socket, threading, multiprocessing, msgspec, graphbus_core
from pathlib import Path
Path("made").write_text("x")
Path.home().joinpath("y").write_text("y")
tempfile.NamedTemporaryFile().write(b"z")
multiprocessing.Lock()
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname()).sendall(b"hello")
print(os.getcwd(), listener.accept()[0].recv(5), os.listdir(), os.path.exists(os.devnull))
print(os.nice(0) >= 5, os.sched_getscheduler(0) == os.SCHED_BATCH)
"""
    done = run(tier, folder, code)

    assert done.stdout == f"{folder} b'hello' ['made'] True\nTrue True\n", done
    assert (folder / "made").read_text() == "x"


@pytest.mark.parametrize("home", ["home", "project"])
def test_it_has_a_home_wherever_that_lies(tier: Tier, folder: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder.parents[1] / home
    monkeypatch.setenv("HOME", str(place))

    done = run(tier, folder, "from pathlib import Path; h = Path.home(); print(h, h.joinpath('y').write_text('y'))")

    assert done.stdout == f"{place.resolve()} 1\n", done
    assert not (place / "y").exists()


def test_a_jail_that_cannot_be_entered_is_no_verdict_on_the_command(
    tier: Tier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jails, "call_filter", lambda _machine: b"no filter")

    with pytest.raises(EditError) as caught:
        run(tier, folder, "print('out')")
    assert caught.value.code == "GBE331"


def test_output_errors_and_exit_status_come_back(tier: Tier, folder: Path) -> None:
    (folder / "plain").write_text("x")
    done = run(
        tier, folder, "import sys; print('out' * 1000); print('err', file=sys.stderr); sys.exit(3)", output_bytes=9
    )

    assert done[:4] == FinishedProcess(3, "out" * 3, "err\n", False)[:4]
    assert run(tier, folder, "import os; os.kill(os.getpid(), 11)").returncode == -11
    for program, status in (("no-such-program", 127), ("./plain", 126)):
        assert Jail(tier).run([program], folder, limits=Limits(timeout_s=20)).returncode == status


def test_more_can_be_made_readable(tier: Tier, folder: Path) -> None:
    shown = folder.parent / "secret.txt"
    command = [sys.executable, "-c", f"print(open({str(shown)!r}).read())"]

    done = Jail(tier).run(command, folder, limits=Limits(timeout_s=20), readable=[shown])

    assert done.stdout == "a secret\n"


# --- limits ------------------------------------------------------------------------------------------


def test_a_fork_bomb_is_bounded(tier: Tier, folder: Path) -> None:
    code = """
import os, time
made = 0
try:
    while made < 600:
        if os.fork() == 0:
            time.sleep(30)
        made += 1
except OSError:
    pass
print(made, flush=True)
os._exit(0)
"""
    done = run(tier, folder, code, processes=40)

    assert 0 < int(done.stdout) < (60 if os.geteuid() == 0 else 600)


def test_a_memory_hog_is_stopped(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, "x = bytearray(900_000_000); print('had it')", memory_mb=400)

    assert "MemoryError" in done.stderr


@pytest.mark.parametrize("place", [".", "/tmp"])
def test_a_disk_filler_is_stopped(tier: Tier, folder: Path, place: str) -> None:
    code = """
import sys, time
block = b"x" * 1_000_000
for number in range(3000):
    with open(f"{sys.argv[1]}/f{number % 2000}", "wb") as file:
        for _ in range(4): file.write(block)
    time.sleep(0.001)
print("filled it")
"""
    done = run(tier, folder, code, place, disk_mb=20)

    assert done.returncode != 0
    assert "filled it" not in done.stdout
    assert ("it wrote more than 20 MB" if place == "." else "No space left") in done.stderr


@pytest.mark.parametrize("timeout_s", [1.0, 20.0], ids=["hangs", "ends"])
def test_a_daemon_does_not_outlive_it(tier: Tier, folder: Path, timeout_s: float) -> None:
    mark = f"graphbus-daemon-{os.getpid()}-{timeout_s:g}-{tier}"
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvpe(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]], {})
    os._exit(0)
time.sleep(0.4 if sys.argv[2] == "ends" else 60)
"""
    run(tier, folder, code, mark, "ends" if timeout_s > 2 else "hangs", timeout_s=timeout_s)

    assert not running(mark)


def running(mark: str) -> bool:
    found = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return any(mark in line and "time.sleep(60)" in line for line in found.splitlines())


def test_it_ends_when_we_are_killed(tier: Tier, folder: Path) -> None:
    mark = f"graphbus-orphan-{os.getpid()}-{tier}"
    ours = f"""
import sys
from pathlib import Path
from graphbus_core.editing.sandboxes.jails import Jail
from graphbus_core.editing.sandboxes.process import Limits
Jail({tier!r}).run([sys.executable, "-c", "import time; time.sleep(60)", {mark!r}], Path({str(folder)!r}), limits=Limits())
"""
    parent = subprocess.Popen([sys.executable, "-c", ours])
    deadline = time.monotonic() + PATIENCE_S
    while not running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(mark)
    parent.kill()
    parent.wait()
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not running(mark)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_filter_ends_where_a_filter_may_and_leads_nowhere_else(machine: str) -> None:
    import struct

    steps = list(struct.iter_unpack("=HBBI", call_filter(machine)))

    for at, (kind, if_true, if_false, _) in enumerate(steps):
        assert at + 1 + max(if_true, if_false) < len(steps) or kind == 6
    assert steps[-1][0] == 6


def test_where_the_numbers_of_calls_are_not_known_there_is_no_filter() -> None:
    assert call_filter("mips") == b""


def test_the_real_project_stays_hidden_even_where_it_is_installed_from_its_sources(tmp_path: Path) -> None:
    shown = [place for _, place in visible_paths(Path(__file__).parents[3], ()).reads]

    assert str(Path(__file__).parents[3]) not in shown
    assert not any(str(Path.home()) == place or place == "/" for place in shown)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without jails."""
    monkeypatch.setattr(sandboxes, "why_unavailable", lambda tier: f"no {tier}")


@pytest.mark.usefixtures("nowhere")
def test_where_there_is_no_jail_nothing_runs_and_nothing_passes(tmp_path: Path) -> None:
    assert choose_sandbox("jail") is None
    assert "bubblewrap: no bubblewrap; landlock: no landlock" in describe_isolation()
    for settings, passed in ((GateConfig(), False), (GateConfig(allow_unverified=True), True)):
        shop = Shop(tmp_path / str(passed), with_tests=True, gate=settings)
        marker = tmp_path / "ran"
        shop.gate = Gate(shop.project, shop.config, choose_sandbox("jail"))
        report = shop.replace("2.5 * count", "count * 2.5")
        assert report.passed == passed
        assert "G5.unverified" in [rung.code for rung in report.rungs]
        assert "Install bubblewrap" in str(report)
        assert not marker.exists()
    assert code_of(report) == ""


def test_a_jail_that_cannot_be_built_runs_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    why_unavailable.cache_clear()
    with monkeypatch.context() as here:
        here.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert "no room" in why_unavailable("bubblewrap")
        with pytest.raises(EditError, match="could not be set up: no room") as caught:
            Jail("bubblewrap").run(["true"], tmp_path, limits=Limits())
    why_unavailable.cache_clear()
    assert caught.value.code == "GBE331"


def test_the_best_jail_is_taken_or_what_the_settings_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "why_unavailable", lambda tier: "" if tier == "landlock" else "not installed")

    assert getattr(choose_sandbox("jail"), "tier", "") == "landlock"
    assert isinstance(choose_sandbox("process"), ProcessSandbox)
    assert describe_isolation() == "changed code runs in an isolated sandbox (landlock)"
