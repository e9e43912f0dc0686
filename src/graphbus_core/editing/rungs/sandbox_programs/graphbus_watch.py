"""Runs a command and collects the reports of GraphBus code in it, so that project code in the same process cannot forge them.

    sandbox -> this program -> the command, in which project code runs
                      ^----------- reports over a socket, each line authenticated with a key that is sent once, at the start

Run by `python -I -S`; it imports nothing of the project. It alone writes to standard output: one line of JSON at the end. The
command's own output goes to standard error. The process is not dumpable, so that no other process can write into its memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

_DUMPABLE = 4
_GRACE_S = 0.5
_MAX_LINE_BYTES = 1_000_000


def main() -> int:
    """Run the command, then write one line of JSON: whether all reports are authentic, the reports, and the exit status."""
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "verdict")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    listener.set_inheritable(False)
    try:
        environment = {**os.environ, "GRAPHBUS_VERDICT": path}
        command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2, env=environment)
    except OSError as reason:
        os.write(2, f"{sys.argv[1]}: {reason.strerror}\n".encode())
        return _write_record(127 if isinstance(reason, FileNotFoundError) else 126, [], is_sound=True)
    key = os.urandom(32)
    lines: list[object] = []
    is_sound = True
    for number, line in enumerate(_receive_lines(listener, command, key)):
        mark, _, body = line.partition(b" ")
        if mark != hashlib.blake2b(b"%d " % number + body, key=key).hexdigest().encode():
            is_sound = False
            break
        lines.append(json.loads(body))
    status = command.wait()
    shutil.rmtree(folder, ignore_errors=True)
    return _write_record(status, lines, is_sound=is_sound)


def _write_record(status: int, lines: list[object], *, is_sound: bool) -> int:
    """Write the line of JSON, and return the exit status: that of the command, or 128 plus the signal that ended it."""
    json.dump({"is_sound": is_sound, "reports": lines, "returncode": status}, sys.stdout)
    sys.stdout.flush()
    return status if status >= 0 else 128 - status


def _receive_lines(listener: socket.socket, command: subprocess.Popen[bytes], key: bytes) -> Iterator[bytes]:
    """Send the key to the first process that connects, and yield the lines that it sends; none if nothing connects.

    The lines end when the connection closes, a line is too long, or nothing comes for `_GRACE_S` after the end of the command.
    """
    while not select.select([listener], [], [], 0.02)[0]:
        if command.poll() is not None:
            return
    connection, _ = listener.accept()
    listener.close()
    connection.sendall(key)
    partial = b""
    while True:
        timeout_s = None if command.poll() is None else _GRACE_S
        if not select.select([connection], [], [], timeout_s or 0.2)[0]:
            if timeout_s:
                return
            continue
        piece = connection.recv(65536)
        if not piece or len(partial) > _MAX_LINE_BYTES:
            return
        *complete, partial = (partial + piece).split(b"\n")
        yield from complete


if __name__ == "__main__":
    sys.exit(main())
