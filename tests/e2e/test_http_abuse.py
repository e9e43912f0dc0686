"""A served graph among those who mean it no good: it lives on, answers others, and its log has no traceback."""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from graphbus_core.hosting.metrics import resident_bytes
from tests.conftest import Figure
from tests.fakes.http_site import BEARER, JSON, TOKEN, LogKeeper, SiteClient, build_site, kept_log, read_all, served
from tests.fakes.pausing import comes_true

pytestmark = pytest.mark.slow

SERVE = """
max_body_bytes = 10000
max_connections = 100
allowed_origins = ["https://shop.example.org"]
allowed_hosts = ["shop.example.org"]
"""
AUTHORIZED = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
AS_JSON = AUTHORIZED + "Content-Type: application/json\r\n"
POST = "POST /call/Till/echo HTTP/1.1\r\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"), SERVE)


@pytest.fixture(scope="module")
def log() -> Iterator[LogKeeper]:
    with kept_log() as keeper:
        yield keeper


@pytest.fixture(scope="module")
def site(root: Path, log: LogKeeper) -> Iterator[SiteClient]:
    patch = pytest.MonkeyPatch()
    with patch.context() as environment:
        environment.setenv("GRAPHBUS_TOKEN", TOKEN)
        with served(root) as client:
            yield client


@pytest.fixture(autouse=True)
def _lives_on_without_a_traceback(site: SiteClient, log: LogKeeper) -> Iterator[None]:
    yield
    assert site.is_alive()
    assert "Traceback" not in log.text, log.text[-3000:]


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d+) ", answer)
    return int(found[1]) if found else 0


# --- who may ---

STRANGERS = [
    ({}, 401),
    ({"authorization": "Bearer wrong"}, 401),
    ({"authorization": f"Bearer {TOKEN}x"}, 401),
    ({"authorization": f"Basic {TOKEN}"}, 401),
    ({"authorization": "Bearer \xff\xfe"}, 401),
    (BEARER | {"host": "evil.example"}, 403),
    (BEARER | {"host": "127.0.0.1.evil.example"}, 403),
    (BEARER | {"host": "localhost.evil.example:80"}, 403),
    (BEARER | {"host": ""}, 403),
    (BEARER | {"host": "[::1]x"}, 403),
    (BEARER | {"origin": "https://evil.example"}, 403),
    (BEARER | {"origin": "https://shop.example.org.evil.example"}, 403),
    (BEARER | {"origin": ""}, 403),
    (BEARER | {"host": "127.0.0.1"}, 200),
    (BEARER | {"host": "[::1]:80"}, 200),
    (BEARER | {"host": "LOCALHOST:80"}, 200),
    (BEARER | {"host": "shop.example.org"}, 200),
    (BEARER | {"origin": "https://shop.example.org"}, 200),
    ({"authorization": f"bearer {TOKEN}"}, 200),
]


@pytest.mark.parametrize(("headers", "status"), STRANGERS)
def test_token_host_and_origin_decide(site: SiteClient, headers: dict[str, str], status: int) -> None:
    answer = site.request("POST", "/call/Till/echo", '{"value": 1}', JSON | headers)
    assert answer.status == status
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_rebound_name_reads_no_page_either(site: SiteClient) -> None:
    for path in ("/metrics", "/openapi.json", "/"):
        assert site.get(path, {"host": "evil.example"}).status == 403
        assert site.get(path).status == 200


def test_a_browser_is_told_which_pages_may_send_requests(site: SiteClient) -> None:
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    good = site.request("OPTIONS", "/call/Till/echo", headers=ask | {"origin": "https://shop.example.org"})
    evil = site.request("OPTIONS", "/call/Till/echo", headers=ask | {"origin": "https://evil.example"})
    assert good.headers["access-control-allow-origin"] == "https://shop.example.org"
    assert "access-control-allow-origin" not in evil.headers


# --- bodies ---


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"value": NaN}', 400),
        (b'{"value": "\\ud800"}', 400),
        (b'{"value": "\xff"}', 400),
        (b'{"value": {"a": 1, "b": {"a": 1, "\\u0061": 2}}}', 400),
        (b'{"value": ' + b"[" * 101 + b"]" * 101 + b"}", 400),
        (b'{"value": ' + b"[" * 4000, 400),
        (b'{"value": ' + b"[" * 50 + b"]" * 50 + b"}", 200),
        (b'{"value": 123456789012345678901234567890}', 200),
    ],
)
def test_json_that_two_readers_could_read_in_two_ways_is_refused(site: SiteClient, body: bytes, status: int) -> None:
    answer = site.request("POST", "/call/Till/echo", body, BEARER | JSON)
    assert answer.status == status, answer.body


def test_a_body_without_a_length_is_counted_while_it_comes(site: SiteClient) -> None:
    head = f"{POST}{AS_JSON}Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"3e8\r\n" + b" " * 1000 + b"\r\n"
    with site.connect() as connection:
        connection.sendall(head.encode())
        sent = 0
        try:
            for _ in range(10_000):
                connection.sendall(chunk)
                sent += 1
        except ConnectionError:
            pass
        answer = read_all(connection)
    assert sent < 10_000
    assert status_of(answer) in (413, 0)  # 0: it hung up while we were still sending


def test_a_large_body_after_a_refusal_does_not_cost_the_answer(site: SiteClient) -> None:
    body = b'"' + b"x" * 300_000 + b'"'
    for headers, status in ((JSON, 401), (BEARER | JSON, 413)):
        assert site.request("POST", "/call/Till/echo", body, headers).status == status


def test_who_hangs_up_early_leaves_nothing_behind(site: SiteClient) -> None:
    head = f"{POST}{AS_JSON}Content-Length: 20\r\n\r\n".encode()
    whole = head + b'{"value":        1 }'
    for data in (b"", b"POST", head, head + b"{", whole, whole + head):
        for how in ("close", "reset", "half"):
            with site.connect() as connection:
                connection.sendall(data)
                if how == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if how == "half":
                    connection.shutdown(socket.SHUT_WR)
                    read_all(connection)


# --- one request on a connection ---

BODY = '{"value": 1}'
CHUNKS = f"c\r\n{BODY}\r\n0\r\n\r\n"
TE = "Transfer-Encoding: chunked\r\n"
CL = "Content-Length: 12\r\n"
AMBIGUOUS = {
    "te folded": f"{POST}{AS_JSON}Transfer-Encoding:\r\n chunked\r\n\r\n{CHUNKS}",
    "te in HTTP/1.0": f"{POST}{AS_JSON}{TE}\r\n{CHUNKS}".replace("HTTP/1.1", "HTTP/1.0"),
    "lf for every line": f"{POST}{AS_JSON}{CL}\r\n".replace("\r\n", "\n") + BODY,
    "cr in a value": f"{POST}{AS_JSON}X: a\r{TE}{CL}\r\n{BODY}",
    "an absolute address of others": f"{POST}{AS_JSON}{CL}\r\n{BODY}".replace(" /", " http://evil.example/", 1),
    "an upgrade": f"GET /livez HTTP/1.1\r\n{AUTHORIZED}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a chunk's size with lf": f"{POST}{AS_JSON}{TE}\r\nc\n{BODY}\r\n0\r\n\r\n",
    "a chunk without its end": f"{POST}{AS_JSON}{TE}\r\nc\r\n{BODY}0\r\n\r\n",
    "trailers with te": f"{POST}{AS_JSON}{TE}\r\nc\r\n{BODY}\r\n0\r\n{TE}{CL}\r\n",
    "a plain request": f"{POST}{AS_JSON}{CL}\r\n{BODY}",
    "one that asks to stay": f"{POST}{AS_JSON}Connection: keep-alive\r\n{CL}\r\n{BODY}",
}
REFUSED = {
    "te and cl": f"{POST}{AS_JSON}{CL}{TE}\r\n{CHUNKS}",
    "two te": f"{POST}{AS_JSON}{TE}{TE}\r\n{CHUNKS}",
    "te with a list": f"{POST}{AS_JSON}Transfer-Encoding: gzip, chunked\r\n\r\n{CHUNKS}",
    "te with a space before the colon": f"{POST}{AS_JSON}Transfer-Encoding : chunked\r\n\r\n{CHUNKS}",
    "cl twice": f"{POST}{AS_JSON}{CL}Content-Length: 0\r\n\r\n{BODY}",
    "a value with a nul": f"{POST}{AS_JSON}X: a\x00b\r\n{CL}\r\n{BODY}",
    "two hosts": f"{POST}{AS_JSON}Host: evil.example\r\n{CL}\r\n{BODY}",
    "no host": "POST /call/Till/echo HTTP/1.1\r\n\r\n",
    "two tokens": f"{POST}{AS_JSON}Authorization: Bearer other\r\n\r\n",
    "a chunk's size that is none": f"{POST}{AS_JSON}{TE}\r\nzz\r\n\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}
SECOND = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("name", AMBIGUOUS | REFUSED)
def test_nothing_that_follows_a_request_on_its_connection_is_answered(site: SiteClient, name: str) -> None:
    answer = site.raw((AMBIGUOUS | REFUSED)[name].encode("latin-1") + SECOND * 2)
    assert answer.count(b"HTTP/1.1 ") <= 1, answer
    assert b"ready" not in answer
    assert not answer or b"connection: close" in answer.lower()
    if name in REFUSED:
        assert status_of(answer) in (400, 0)  # 0: it hung up while we were still sending


def test_a_head_that_grows_without_end_is_refused(site: SiteClient) -> None:
    with site.connect() as connection:
        connection.sendall(f"{POST}{AS_JSON}X: ".encode())
        sent = 0
        with suppress(ConnectionError):
            for _ in range(1000):
                connection.sendall(b"x" * 10_000)
                sent += 1
        assert sent < 1000
        assert status_of(read_all(connection)) in (400, 0)


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/metrics"])
def test_a_page_of_others_reads_nothing(site: SiteClient, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert site.request(method, path, headers={"origin": "https://evil.example"}).status == 403
        assert site.request(method, path, headers=BEARER | {"origin": "null"}).status == 403
        assert site.request(method, path).status == 200


# --- many ---


def mangled(chance: random.Random) -> bytes:
    """A request, or something that once was one."""
    headers = [AUTHORIZED, AS_JSON, "Host: localhost\r\n", "Content-Length: 12\r\n", "Transfer-Encoding: chunked\r\n"]
    head = chance.choice([POST, "GET /metrics HTTP/1.1\r\n", "POST /publish/Order/Placed?wait=1 HTTP/1.1\r\n"])
    text = head + "".join(chance.sample(headers, chance.randint(0, 4))) + "\r\n"
    data = bytearray(
        text.encode() + chance.choice([b"", b'{"value": 1}', b"c\r\n" + b'{"value": 1}' + b"\r\n0\r\n\r\n"])
    )
    for _ in range(chance.randint(0, 6)):
        place = chance.randrange(len(data))
        what = chance.randint(0, 3)
        if what == 0:
            data[place] = chance.randrange(256)
        elif what == 1:
            del data[place : place + chance.randint(1, 20)]
        elif what == 2:
            data[place:place] = chance.randbytes(chance.randint(1, 20))
        else:
            data[place:place] = data[: chance.randint(1, 60)]
        data = data or bytearray(b"x")
    return bytes(data)


def test_two_thousand_mangled_requests(site: SiteClient, figure: Figure) -> None:
    chance = random.Random(20261121)
    before = resident_bytes() or 0
    answers: dict[int, int] = {}
    for _ in range(2000):
        with site.connect() as connection:
            try:
                connection.sendall(mangled(chance))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            status = status_of(read_all(connection))
            answers[status] = answers.get(status, 0) + 1
    grown_mb = ((resident_bytes() or 0) - before) / 1e6
    figure("2,000 mangled requests, memory grown by", f"{grown_mb:.1f} MB")
    assert not [status for status in answers if status >= 500], answers
    assert grown_mb < 20


def test_more_connections_than_may_be_are_refused_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogKeeper
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, "max_connections = 100")) as site:
        files = open_files(site)
        with ExitStack() as stack:
            connections = [stack.enter_context(site.connect()) for _ in range(100)]
            connections[0].sendall(SECOND)
            assert status_of(read_all(connections[0])) == 200
            connections += [stack.enter_context(site.connect()) for _ in range(200)]
            for connection in connections[1:]:
                connection.sendall(SECOND)
            statuses = [status_of(read_all(connection)) for connection in connections[1:]]
        assert comes_true(lambda: open_files(site) - files < 10)
    assert {503} <= set(statuses) <= {503, 200}
    assert "Traceback" not in log.text


def open_files(site: SiteClient) -> int:
    found = re.search(rb"process_open_fds (\d+)", site.get("/metrics").body)
    return int(found[1]) if found else 0


def test_more_calls_than_may_wait_are_told_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root = build_site(tmp_path, "concurrency = 2\nbacklog = 3")
    statuses: list[tuple[int, str]] = []

    def work() -> None:
        answer = site.post("/call/Till/sleep", {"seconds": 1})
        statuses.append((answer.status, answer.headers.get("retry-after", "")))

    with served(root) as site:
        threads = [threading.Thread(target=work) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert site.is_alive()
    assert statuses.count((503, "1")) == 7
    assert statuses.count((200, "")) == 5
