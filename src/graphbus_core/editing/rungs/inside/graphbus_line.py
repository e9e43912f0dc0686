"""The line from our code in the project's process to the one that watches it."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any


def take_work() -> Any:
    """Take what is to be done from the command line, and leave one as a running graph has it."""
    work = json.loads(sys.argv.pop())
    sys.argv[:] = [os.path.join(os.path.dirname(sys.executable), "graphbus"), "run"]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    sys.modules["__main__"].__dict__["__file__"] = sys.argv[0]
    return work


def connect() -> Callable[[object], None]:
    """Call the watcher, take the key, and give the function that says things; afterwards nobody can call again.

    A process that was forked since stays silent.
    """
    speaker = socket.socket(socket.AF_UNIX)
    speaker.connect(os.environ.pop("GRAPHBUS_VERDICT"))
    key = b""
    while len(key) < 32:
        piece = speaker.recv(32 - len(key))
        if not piece:
            raise OSError("nobody listens")
        key += piece
    number, owner = 0, os.getpid()
    blake2b, dumps, getpid, send = hashlib.blake2b, json.dumps, os.getpid, speaker.sendall

    def say(what: object) -> None:
        nonlocal number
        if getpid() == owner:
            body = dumps(what).encode()
            mark = blake2b(b"%d " % number + body, key=key).hexdigest().encode()
            send(mark + b" " + body + b"\n")
            number += 1

    return say
