"""What code can do beyond computing: one function each, named after the power that it takes and the way that it goes.

Those that end with `_natively` pass by Python: only the kernel can refuse them. Places are below the folder of `places.py`.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import http.client
import mmap
import multiprocessing
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable

import places

OUTSIDE = pathlib.Path(places.OUTSIDE)
OPEN = OUTSIDE / "open"
"""A folder to write to; `read` and `write` name it."""
SHUT = OUTSIDE / "shut"
IN_EVERY_WAY = {
    "write_open_by_name",
    "read_secret_by_name",
    "read_secret_natively",
    "write_shut_natively",
    "network_connect",
    "network_socket_natively",
    "processes_subprocess",
    "processes_shell_natively",
}

libc = ctypes.CDLL(None, use_errno=True)


POWERS = ("write", "read", "network", "processes", "environment", "never", "always")
X86 = os.uname().machine == "x86_64"


def names() -> list[str]:
    """Sorted: who has looked `localhost` up may reach its address from then on."""
    return sorted([*DEEDS, *(name for name in globals() if name.partition("_")[0] in POWERS and "_" in name)])


def do(name: str) -> None:
    (DEEDS.get(name) or globals()[name])()


def attempt(name: str) -> str:
    """`done`, or `refused: ` and what was raised."""
    try:
        do(name)
    except Exception as error:  # noqa: BLE001 - that is what we want to know
        return f"refused: {type(error).__name__}: {error}"
    return "done"


def true(is_so: object) -> None:
    assert is_so


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *words))


def wait(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert status == 0, status


DEEDS: dict[str, Callable[[], object]] = {
    "always_read_the_project": lambda: true("deeds" in pathlib.Path("pyproject.toml").read_text()),
    "always_dev_null": lambda: open("/dev/null", "w").write("x"),
    "always_state_folder": lambda: open(places.STATE + "/kept.txt", "a").write("x"),
    "always_variable_of_python": lambda: true(os.environ["PATH"]),
    "always_variable_that_was_never_there": lambda: true(os.environ.get("NOBODY_HAS_SET_THIS") is None),
    "always_signal_to_oneself": lambda: os.kill(os.getpid(), 0),
    "write_open_by_name": lambda: open(OPEN / "a.txt", "w").write("x"),
    "write_open_by_number": lambda: os.close(os.open(OPEN / "b.txt", os.O_CREAT | os.O_WRONLY)),
    "write_open_text": lambda: (OPEN / "d.txt").write_text("x"),
    "write_open_copy": lambda: shutil.copy(__file__, OPEN / "e.txt"),
    "write_open_temporary": lambda: tempfile.NamedTemporaryFile(dir=OPEN).close(),
    "write_open_folder": lambda: (OPEN / "folder").mkdir(exist_ok=True),
    "write_open_truncate": lambda: os.truncate(OPEN / "movable.txt", 0),
    "write_open_mode": lambda: os.chmod(OPEN / "movable.txt", 0o600),
    "write_open_times": lambda: os.utime(OPEN / "movable.txt", (1, 1)),
    "write_open_pipe": lambda: os.mkfifo(OPEN / f"pipe{os.urandom(4).hex()}"),
    "write_open_natively": lambda: os.close(checked(libc.open(bytes(OPEN / "g.txt"), os.O_CREAT | os.O_WRONLY, 0o600))),
    "write_shut_by_name": lambda: open(SHUT / "a.txt", "w").write("x"),
    "write_shut_relative": lambda: open(os.path.relpath(SHUT / "a.txt"), "a").write("x"),
    "write_shut_through_a_link": lambda: open(OPEN / "way_out" / "a.txt", "w").write("x"),
    "write_shut_rename": lambda: os.rename(OPEN / "movable.txt", SHUT / "moved.txt"),
    "write_shut_natively": lambda: os.close(checked(libc.open(bytes(SHUT / "g.txt"), os.O_CREAT | os.O_WRONLY, 0o600))),
    "write_shut_project": lambda: open("agents/doer.py", "a").write("#"),
    "write_shut_project_natively": lambda: os.close(checked(libc.open(b"agents/doer.py", os.O_WRONLY | os.O_APPEND))),
    "write_shut_artifacts": lambda: pathlib.Path(".graphbus/agents.json").write_text("{}"),
    "write_shut_temporary": lambda: tempfile.NamedTemporaryFile(dir="/tmp").close(),
    "read_secret_by_number": lambda: os.close(os.open(OUTSIDE / "secret.txt", os.O_RDONLY)),
    "read_secret_text": lambda: true((OUTSIDE / "secret.txt").read_text() == "a secret"),
    "read_secret_natively": lambda: os.close(checked(libc.open(bytes(OUTSIDE / "secret.txt"), os.O_RDONLY))),
    "read_shut_by_name": lambda: (SHUT / "there.txt").read_text(),
    "read_shut_list": lambda: os.listdir(SHUT),
    "read_shut_scan": lambda: list(os.scandir(SHUT)),
    "read_shut_natively": lambda: os.close(checked(libc.open(bytes(SHUT / "there.txt"), os.O_RDONLY))),
    "read_shut_shadow": lambda: open("/etc/shadow").read(),
    "read_shut_parents_variables": lambda: open(f"/proc/{os.getppid()}/environ").read(),
    "read_shut_parents_memory": lambda: os.close(os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY)),
    "read_shut_own_memory_to_write": lambda: os.close(checked(libc.open(b"/proc/self/mem", os.O_RDWR))),
    "network_socket_natively": lambda: os.close(checked(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0))),
    "network_local_name_look_up": lambda: socket.getaddrinfo("localhost", places.PORT),
    "network_local_name_connect": lambda: socket.create_connection(("localhost", places.PORT), timeout=5).close(),
    "network_other_url": lambda: urllib.request.urlopen("http://127.0.0.2:1/", timeout=2).close(),
    "never_listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "never_machine_of_the_host": lambda: socket.socket(40, socket.SOCK_STREAM).close(),
    "processes_subprocess": lambda: subprocess.run(["true"], check=True),
    "processes_shell": lambda: true(os.system("true") == 0),
    "processes_spawn": lambda: wait(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})),
    "processes_shell_natively": lambda: true(checked(libc.system(b"exit 0")) == 0),
    "never_signal_to_the_parent": lambda: os.kill(os.getppid(), 0),
    "never_signal_to_the_parent_natively": lambda: checked(libc.kill(os.getppid(), signal.SIGCONT)),
    "environment_one": lambda: true(os.environ["SECRET_ONE"] == "one"),
    "environment_one_or_none": lambda: true(os.getenv("SECRET_ONE") == "one"),
    "environment_one_of_all": lambda: true(dict(os.environ)["SECRET_ONE"] == "one"),
    "environment_one_as_bytes": lambda: true(os.environb[b"SECRET_ONE"] == b"one"),
    "environment_three": lambda: true(os.environ["OTHER_SECRET"] == "three"),
    "never_raw_socket": lambda: os.close(checked(libc.socket(socket.AF_INET, socket.SOCK_RAW, 1))),
    "never_ptrace": lambda: call(101 if X86 else 117, 16, os.getppid(), 0, 0),
    "never_memory_of_others": lambda: call(310 if X86 else 270, os.getppid(), None, 0, None, 0, 0),
    "never_namespace": lambda: call(272 if X86 else 97, 0x10000000),
    "never_io_uring": lambda: call(425, 1, ctypes.create_string_buffer(120)),
    "never_secret_memory": lambda: os.close(call(447, 0)),
    "never_bpf": lambda: call(321 if X86 else 280, 0, ctypes.create_string_buffer(120), 120),
    "never_shared_memory": lambda: call(29 if X86 else 194, 0, 4096, 0o1600),
    "never_keys": lambda: call(250 if X86 else 219, 0, -3, 1),
    "never_mount": lambda: call(165 if X86 else 40, b"tmpfs", b"/mnt", b"tmpfs", 0, None),
    "never_clone3": lambda: call(435, ctypes.create_string_buffer(88), 88),
    "never_file_by_handle": lambda: call(304 if X86 else 265, -100, ctypes.create_string_buffer(128), 0),
}
"""Those that are one expression."""


# --- what is always allowed ---


def always_import_of_the_library() -> None:
    import colorsys  # noqa: F401
    import wave  # noqa: F401


def always_random() -> None:
    with open("/dev/urandom", "rb") as file:
        assert file.read(8)


def always_pair_of_sockets() -> None:
    one, other = socket.socketpair()
    one.send(b"x")
    assert other.recv(1) == b"x"
    one.close()
    other.close()


def always_message_over_a_pair() -> None:
    one, other = socket.socketpair()
    one.sendmsg([b"x"])
    assert other.recvmsg(1)[0] == b"x"
    one.close()
    other.close()


def always_event_loop() -> None:
    new = asyncio.new_event_loop()
    new.run_until_complete(new.run_in_executor(None, lambda: None))
    new.close()


def always_time_zone() -> None:
    from zoneinfo import ZoneInfo

    assert ZoneInfo("UTC")


def always_own_variable() -> None:
    os.environ["SECRET_TWO"] = "made here"
    assert os.environ["SECRET_TWO"] == "made here"


# --- writing ---


def write_open_below_a_folder() -> None:
    folder = os.open(OPEN, os.O_PATH)
    try:
        os.close(os.open("c.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    finally:
        os.close(folder)


def write_open_rename() -> None:
    os.rename(OPEN / "movable.txt", OPEN / "moved.txt")
    os.rename(OPEN / "moved.txt", OPEN / "movable.txt")


def write_open_remove() -> None:
    os.remove(OPEN / "removable.txt")
    (OPEN / "removable.txt").touch()


def write_open_link() -> None:
    (OPEN / "link").unlink(missing_ok=True)
    os.symlink("/etc/hosts", OPEN / "link")


def write_open_hard_link() -> None:
    os.link(OPEN / "movable.txt", OPEN / "second")
    os.remove(OPEN / "second")


def write_open_database() -> None:
    with sqlite3.connect(OPEN / "f.db") as connection:
        connection.execute("create table if not exists t (x)")


def write_open_mode_of_another_natively() -> None:
    """A limit that is admitted: where agents may write at all, no kernel says of which files they may change the mode."""
    checked(libc.chmod(bytes(SHUT / "there.txt"), 0o600))


# --- reading ---


def read_secret_by_name() -> None:
    with open(OUTSIDE / "secret.txt") as file:
        assert file.read() == "a secret"


def read_secret_below_a_folder() -> None:
    folder = os.open(OUTSIDE, os.O_PATH)
    try:
        os.close(os.open("secret.txt", os.O_RDONLY, dir_fd=folder))
    finally:
        os.close(folder)


def read_secret_in_memory() -> None:
    with open(OUTSIDE / "secret.txt", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
        assert memory[:8] == b"a secret"


def read_secret_through_a_link() -> None:
    with open("link_to_the_secret") as file:
        assert file.read() == "a secret"


# --- network ---


def network_connect() -> None:
    with socket.create_connection(("127.0.0.1", places.PORT), timeout=5) as connection:
        assert connection.recv(2) == b"hi"


def network_connect_by_number() -> None:
    with socket.socket() as connection:
        connection.settimeout(5)
        connection.connect(("127.0.0.1", places.PORT))


def network_connect_asynchronously() -> None:
    async def connect() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", places.PORT)
        writer.close()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(connect())
    finally:
        loop.close()


def network_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.sendto(b"x", ("127.0.0.1", 9))


def network_connect_natively() -> None:
    handle = checked(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
    try:
        address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(places.PORT), socket.inet_aton("127.0.0.1"))
        checked(libc.connect(handle, address, len(address)))
    finally:
        os.close(handle)


def network_local_name_http() -> None:
    connection = http.client.HTTPConnection("localhost", places.PORT, timeout=5)
    connection.connect()
    connection.close()


def network_other_look_up() -> None:
    try:
        socket.getaddrinfo("nowhere.invalid", 80)
    except socket.gaierror:
        pass


def network_other_connect() -> None:
    with socket.socket() as connection:
        connection.settimeout(2)
        connection.connect_ex(("127.0.0.2", 1))


def never_unix_socket() -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(places.OUTSIDE + "/socket")


# --- programs ---


def processes_popen() -> None:
    with os.popen("true") as pipe:
        pipe.read()


def processes_fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    wait(child)


def processes_exec() -> None:
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", ""])
    wait(child)


def processes_multiprocessing() -> None:
    process = multiprocessing.get_context("fork").Process(target=os.getpid)
    process.start()
    process.join()
    assert process.exitcode == 0


def processes_asynchronously() -> None:
    async def start() -> None:
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()

    asyncio.run(start())


def never_exec_natively_in_this_process() -> None:
    arguments = (ctypes.c_char_p * 2)(b"/proc/self/nothing", None)
    checked(libc.execv(b"/proc/self/nothing", arguments))


# --- environment ---


def environment_one_natively() -> None:
    libc.getenv.restype = ctypes.c_char_p
    assert libc.getenv(b"SECRET_ONE") == b"one"


def environment_one_in_memory() -> None:
    """Where the kernel has put the variables when the process began: around the first one that is left."""
    first = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")[0]
    assert b"SECRET_ONE=one" in ctypes.string_at(first - places.VARIABLES_SIZE, places.VARIABLES_SIZE + 15)


# --- what no power is for ---


def never_type_into_a_terminal() -> None:
    try:
        call(16 if X86 else 29, 0, 0x5412, ctypes.create_string_buffer(b"x"))
    except OSError as error:
        if error.errno == errno.EPERM:
            raise
