"""What code in a jail tries to get at, in both jails: the memory of other processes, and more memory than it may have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes import TIERS, obstacle
from graphbus_core.editing.sandboxes.jails import Jail, Tier
from graphbus_core.editing.sandboxes.process import Finished, Limits

pytestmark = pytest.mark.slow

LIMIT_MB = 256

PREPARED = """
import ctypes, mmap, os, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.shmat.restype = ctypes.c_void_p
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

TRY = """
{prepared}
try:
    {line}
except (OSError, MemoryError, ValueError) as error:
    print("refused", error)
else:
    print("through")
"""

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


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    if obstacle(found) and not os.environ.get("CI"):
        pytest.skip(f"no {found} here: {obstacle(found)}")
    return found


def run(tier: Tier, folder: Path, line: str) -> Finished:
    code = TRY.format(prepared=PREPARED, line=line)
    return Jail(tier).run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=60, memory_mb=LIMIT_MB))


def kept_in(tier: Tier, folder: Path, probes: dict[str, str]) -> dict[str, Finished]:
    """Try each, and give those that got through."""
    through = {}
    for name, line in probes.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        done = run(tier, place, line)
        if "refused" not in done.stdout and "ended: it held" not in done.stderr:
            through[name] = done
    print(f"jail probes: {len(probes)} tried in {tier}, {len(through)} got through")
    return through


@pytest.mark.parametrize(
    "probes", [MEMORY_OF_OTHERS, MEMORY_UNCOUNTED, MEMORY_TOGETHER], ids=["others", "uncounted", "together"]
)
def test_no_probe_gets_through(tier: Tier, tmp_path: Path, probes: dict[str, str]) -> None:
    assert kept_in(tier, tmp_path, probes) == {}


def test_a_child_cannot_rewrite_its_parent(tier: Tier, tmp_path: Path) -> None:
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
    assert Jail(tier).run([sys.executable, "-c", code], tmp_path, limits=Limits(timeout_s=20)).stdout == "red\n"


@pytest.mark.parametrize("name", INNOCENT)
def test_what_programs_do_with_memory_is_no_reason_to_end_them(tier: Tier, tmp_path: Path, name: str) -> None:
    done = run(tier, tmp_path, INNOCENT[name])

    assert (done.returncode, "through" in done.stdout) == (0, True), done


def test_the_command_and_what_it_starts_let_all_else_go_first(tier: Tier, tmp_path: Path) -> None:
    code = "import os; print(os.nice(0) >= 5, os.sched_getscheduler(0) == os.SCHED_BATCH)"

    assert Jail(tier).run([sys.executable, "-c", code], tmp_path, limits=Limits(timeout_s=20)).stdout == "True True\n"
