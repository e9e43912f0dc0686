"""Where requests begin and end: the same for any pieces in which they arrive. `test_http_smuggling` has the hostile ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.hosting.serving.server import Ambiguous, Part, Requests
from tests.e2e.test_http_smuggling import PLAIN, SECOND, SMUGGLED

MOST = 2000
TEXTS = [text + SECOND for text in (*PLAIN.values(), *SMUGGLED.values())]


def read(pieces: list[bytes]) -> tuple[bytes, tuple[Part, int] | None]:
    """What passes, and where the first refusal was."""
    requests, passed = Requests(MOST), b""
    for piece in pieces:
        try:
            requests.receive(piece)
        except Ambiguous as refusal:
            return passed + requests.take(), (refusal.part, refusal.status)
        passed += requests.take()
    return passed, None


@given(st.sampled_from(TEXTS), st.lists(st.integers(1, 300)))
def test_it_does_not_matter_in_which_pieces_requests_arrive(text: str, cuts: list[int]) -> None:
    data = text.encode("latin-1", "replace")
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[begin:end] for begin, end in pairwise(places)]
    assert read(pieces) == read([data])


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_plain_requests_pass_byte_for_byte(text: str) -> None:
    data = (text + SECOND).encode("latin-1")
    assert read([data]) == (data, None)


def test_a_body_may_hold_any_bytes() -> None:
    body = bytes(range(256)) + b"\n\r\n\r\nGET / HTTP/0.9\r\n"
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
    chunked = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    for data in (head + body, chunked):
        assert read([data * 2]) == (data * 2, None)


def test_what_was_read_before_a_refusal_passes_and_nothing_after_it() -> None:
    first = PLAIN["cl"].encode()
    requests = Requests(MOST)
    with pytest.raises(Ambiguous):
        requests.receive(first + b"x\r\n\r\n" + first)
    requests.receive(first)
    assert requests.take() == first
    assert requests.part is Part.REFUSED


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * MOST, 431),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * MOST + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"x" * 5000, 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"x" * MOST, 431),
    ],
)
def test_lines_without_an_end_are_not_kept(data: bytes, status: int) -> None:
    _, refusal = read([data])
    assert refusal is not None
    assert refusal[1] == status
