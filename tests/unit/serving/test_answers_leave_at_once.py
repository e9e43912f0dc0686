"""An answer is not held back until the client has acknowledged its first part."""

from __future__ import annotations

import socket

from graphbus_core.hosting.serving.server import listen


def test_connections_send_each_part_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
