"""The command of a HEALTHCHECK: 0 for a good answer, 1 for a bad one, a strange one or none."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from graphbus_core.hosting.serving import health
from graphbus_core.hosting.serving.probes import ProbeServer
from tests.conftest import Figure
from tests.patience import PATIENCE_S


class Mood:
    """Stands where the status of a graph would: what it answers is told to it."""

    def __init__(self, body: bytes, number: int) -> None:
        self._answer = body, number

    def encode_answer(self, path: str) -> tuple[bytes, int]:
        return self._answer if path == "/livez" else (b'{"status":"other"}', 404)


@pytest.mark.parametrize(
    ("body", "number", "path", "status"),
    [
        (b'{"status":"alive"}', 200, [], 0),
        (b'{"status":"stuck"}', 503, [], 1),
        (b'{"status":"alive"}', 200, ["/readyz"], 1),
    ],
)
def test_the_status_is_what_the_graph_answers(
    capsys: pytest.CaptureFixture[str], body: bytes, number: int, path: list[str], status: int
) -> None:
    server = ProbeServer("127.0.0.1", 0)
    server.start(Mood(body, number), lambda: b"")  # type: ignore[arg-type]
    try:
        assert health.main([str(server.port), *path]) == status
    finally:
        server.stop()
    assert '{"status":' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda connection: connection.close(), ""),
        (lambda connection: connection.sendall(b"SSH-2.0-hello\r\n"), "SSH-2.0-hello"),
        (lambda connection: connection.sendall(b"HTTP/1.1 2000 OK\r\n\r\n"), "HTTP/1.1 2000 OK"),
        (lambda connection: connection.sendall(b"x" * 200_000), "x" * 200),
    ],
)
def test_what_is_no_answer_is_bad(
    capsys: pytest.CaptureFixture[str], answer: Callable[[socket.socket], None], told: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                try:
                    answer(connection)
                except OSError:
                    return

        thread = threading.Thread(target=speak)
        thread.start()
        assert health.main([str(listener.getsockname()[1])]) == 1
        thread.join()
    said = capsys.readouterr()
    assert told in said.out + said.err


@pytest.mark.parametrize("word", [b"", b"x"])
def test_who_never_ends_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: bytes
) -> None:
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.2)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                for _ in range(40):
                    try:
                        connection.sendall(word)
                    except OSError:
                        return
                    if is_over.wait(0.05):
                        return

        thread = threading.Thread(target=speak)
        thread.start()
        assert health.main([str(listener.getsockname()[1])]) == 1
        has_spoken_on = thread.is_alive()
        is_over.set()
        thread.join()
    assert has_spoken_on
    assert "timed out" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["١"]])
def test_it_must_be_given_a_port(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert health.main(arguments) == 1
    assert "usage:" in capsys.readouterr().err


@pytest.mark.slow
def test_it_loads_next_to_nothing(figure: Figure) -> None:
    code = "import sys; from graphbus_core.hosting.serving import health; health.main(['1']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    loaded = set(done.stdout.split())
    figure("modules that the health command loads", len(loaded))
    assert {name for name in loaded if name.startswith("graphbus_core")} == {
        "graphbus_core",
        "graphbus_core.hosting",
        "graphbus_core.hosting.serving",
        "graphbus_core.hosting.serving.health",
    }
    assert not loaded & {"http", "http.client", "email", "asyncio", "msgspec", "logging", "ssl"}
