"""`python -m graphbus_core.hosting.serving.health PORT [PATH]`: requests a probe of the graph in this container, for HEALTHCHECK.

The exit status is 0 for an answer with status 200, else 1. It runs every few seconds, so it imports as little as possible.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from time import monotonic

_TIMEOUT_S = 2.0
_MOST_BYTES = 65_536


def main(arguments: Sequence[str]) -> int:
    """Request the probe, print the answer, which `docker inspect` shows, and return the exit status."""
    port, path = (*arguments, "/livez")[:2] if arguments else ("", "")
    if not (port.isascii() and port.isdecimal()):
        sys.stderr.write("usage: python -m graphbus_core.hosting.serving.health PORT [PATH]\n")
        return 1
    try:
        answer = _request_probe(int(port), path)
    except (OSError, OverflowError) as error:
        sys.stderr.write(f"no answer at port {port}: {error}\n")
        return 1
    head, _, body = answer.partition("\r\n\r\n")
    sys.stdout.write(f"{body.strip() or head[:200]}\n")
    return 0 if head.split(" ", 2)[1:2] == ["200"] else 1


def _request_probe(port: int, path: str) -> str:
    """Request the path from this port of this machine, and return the response, head included; all within `_TIMEOUT_S`.

    Raises:
        OSError: There is no connection, or the time is up. OverflowError: there is no port with this number.
    """
    deadline = monotonic() + _TIMEOUT_S
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        received = b""
        while len(received) < _MOST_BYTES and (part := connection.recv(4096)):
            received += part
            connection.settimeout(max(deadline - monotonic(), 0.001))
        return received.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
