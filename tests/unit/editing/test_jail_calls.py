"""Calls to the kernel that lead past the walls of a jail are refused in each jail; what programs need is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes import TIERS, obstacle
from graphbus_core.editing.sandboxes.jails import Jail, Tier, call_filter
from graphbus_core.editing.sandboxes.process import Limits

CALLS = {
    "a socket to the host of this machine": "socket.socket(40, socket.SOCK_STREAM)",
    "raw packets": "socket.socket(17, socket.SOCK_RAW)",
    "the kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "a user namespace by unshare": "call(libc.unshare(0x10000000))",
    "a network namespace by unshare": "call(libc.unshare(0x40000000))",
    "a user namespace by clone": "call(libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0))",
    "the keys of the session": "call(libc.syscall(keyctl, 0, -3, 0))",
    "a tracer of the process above": "call(libc.ptrace(16, os.getppid(), 0, 0))",
    "memory of the process above": "call(libc.process_vm_readv(os.getppid(), ctypes.create_string_buffer(16), 0, None, 0, 0))",
    "io_uring": "call(libc.syscall(425, 1, ctypes.create_string_buffer(200)))",
    "bpf": "call(libc.syscall(bpf, 0, ctypes.create_string_buffer(200), 72))",
    "a new mount": "call(libc.mount(b'a', b'/tmp', b'tmpfs', 0, None))",
    "a context of mounts": "call(libc.syscall(430, b'tmpfs', 0))",
}
PROGRAM = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
clone, keyctl, bpf = (56, 250, 321) if os.uname().machine == "x86_64" else (220, 219, 280)
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
for name, line in {calls!r}.items():
    try:
        exec(line)
        print(name, "reached")
    except OSError as error:
        if error.errno not in (1, 97):
            print(name, error)
"""
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


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_calls_that_lead_past_the_walls_are_refused(tier: Tier, tmp_path: Path) -> None:
    assert run(tier, tmp_path, PROGRAM.format(calls=CALLS)) == ""


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_what_programs_need_is_there(tier: Tier, tmp_path: Path) -> None:
    assert run(tier, tmp_path, PLAIN).split() == ["127.0.0.1", "lo", "thread", "child", "0", "hello"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_the_filter_ends_where_a_filter_may_and_leads_nowhere_else(machine: str) -> None:
    import struct

    steps = list(struct.iter_unpack("=HBBI", call_filter(machine)))

    for at, (kind, if_true, if_false, _) in enumerate(steps):
        assert at + 1 + max(if_true, if_false) < len(steps) or kind == 6
    assert steps[-1][0] == 6


def test_where_the_numbers_of_calls_are_not_known_there_is_no_filter() -> None:
    assert call_filter("mips") == b""


def run(tier: Tier, folder: Path, code: str) -> str:
    if obstacle(tier) and not os.environ.get("CI"):
        pytest.skip(f"no {tier} here")
    done = Jail(tier).run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=20))
    assert done.returncode == 0, done
    return done.stdout
