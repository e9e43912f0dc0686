"""Where the servers listen and with which token: settled before the graph is started, and refused when it is not safe."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from graphbus_core.errors import RunError, UsageError
from graphbus_core.hosting.serving.address import find_token, is_loopback, parse_address
from graphbus_core.hosting.serving.companion import ServerOptions, Servers
from graphbus_core.hosting.serving.probes import ProbeServer
from graphbus_core.model.config import ServeConfig
from tests.fakes.http_site import TOKEN, build_site, served


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHBUS_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8766", ("127.0.0.1", 8766)),
        ("0.0.0.0:8766", ("0.0.0.0", 8766)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "127.0.0.1") == address


@pytest.mark.parametrize("text", ["", "x", "65536", ":80", "host:", "٣"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text, "127.0.0.1")
    assert refused.value.code == "GBE157"


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0o600, []),
        (0o440, []),  # a Secret that Kubernetes mounts for the group of the pod
        (0o644, ["every user of this machine can read secret, which holds the token: chmod 600 secret"]),
        (0o622, ["every user of this machine can write secret, which holds the token: chmod 600 secret"]),
    ],
)
def test_a_token_file_that_is_open_to_others_is_told_of(
    mode: int, told: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret").write_text(f"{TOKEN}\n")
    (tmp_path / "secret").chmod(mode)
    assert find_token(ServeConfig(token_file="secret"), tmp_path, tmp_path) == (TOKEN, "")
    assert caplog.messages == told


@pytest.mark.parametrize("text", ["x" * 15, "with a space in it all", "\N{SNOWMAN}" * 20, "tab\there-and-more-of-it"])
def test_a_token_that_is_guessed_or_cannot_be_sent_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", text)
    with pytest.raises(UsageError) as refused:
        find_token(ServeConfig(), tmp_path, tmp_path)
    assert refused.value.code == "GBE156"
    assert text not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file"), (b"\xff\xfe", "it is not UTF-8 text"), (b"", "0 characters")]
)
def test_a_token_file_that_is_none_is_refused(content: bytes | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        find_token(ServeConfig(token_file="secret"), tmp_path, tmp_path)


def test_without_one_a_token_is_made_and_kept_in_a_file_of_its_owner(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = find_token(ServeConfig(), tmp_path, state)
    second = find_token(ServeConfig(), tmp_path, state)
    path = state / "http_token"
    assert path.read_text().strip() == second.text != first.text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert second.text not in second.notice
    assert len(second.text) >= 32


def test_on_a_terminal_a_made_token_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        token = find_token(ServeConfig(host="0.0.0.0"), tmp_path, tmp_path)
    os.close(master)
    assert token.text in token.notice
    assert not (tmp_path / "http_token").exists()


def test_other_machines_are_not_served_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        find_token(ServeConfig(host="0.0.0.0"), tmp_path, tmp_path)
    assert refused.value.code == "GBE155"
    assert "GRAPHBUS_TOKEN" in refused.value.hint


def test_a_port_that_is_taken_is_refused_before_the_graph_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root = build_site(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for asked in (ServerOptions(is_serving=True, port=port), ServerOptions(health=("127.0.0.1", port))):
            with pytest.raises(RunError) as refused:
                Servers(asked, str(root / ".graphbus"), lambda _line: None)
            assert refused.value.code == "GBE672"
            assert f"127.0.0.1:{port}" in refused.value.sentence


def test_on_other_addresses_pages_need_the_token_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path), host="0.0.0.0") as site:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        for path in ("/metrics", "/openapi.json", "/", "/nothing"):
            assert site.get(path).status == 401
            assert site.get(path, bearer).status in (200, 404)
        assert site.get("/livez").status == 200


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("127.evil.example", False),
        ("0.0.0.0", False),
    ],
)
def test_which_addresses_only_this_machine_can_reach(host: str, is_it: bool) -> None:
    assert is_loopback(host) == is_it


def test_a_start_that_fails_leaves_the_token_of_the_one_that_runs_alone(tmp_path: Path) -> None:
    root = build_site(tmp_path)
    token = root / ".graphbus" / "state" / "http_token"
    running = Servers(ServerOptions(is_serving=True, port=0), str(root / ".graphbus"), lambda _line: None)
    known = token.read_text()
    with pytest.raises(RunError) as refused:
        Servers(
            ServerOptions(is_serving=True, port=running.ports["serve"]), str(root / ".graphbus"), lambda _line: None
        )
    assert refused.value.sentence.endswith(": address already in use.")
    assert token.read_text() == known
    running.close()


def test_nobody_is_asked_for_the_name_of_the_address_of_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container without a name server that would take many seconds."""

    def ask(_host: str = "") -> str:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr("socket.getfqdn", ask)
    ProbeServer("0.0.0.0", 0).close()


def test_a_made_token_that_cannot_be_kept_is_refused_with_what_to_do(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "http_token").mkdir(parents=True)
    with pytest.raises(UsageError) as refused:
        find_token(ServeConfig(), tmp_path, state)
    assert refused.value.code == "GBE156"
    assert "http_token cannot be used: it cannot be written (" in refused.value.sentence
    assert refused.value.hint.endswith(" Or put a token into the variable GRAPHBUS_TOKEN.")
