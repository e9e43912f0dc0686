"""The lines of a request as RFC 9112 writes them and in no other way, before h11, which is lenient, gives them a meaning.

What a proxy before this server could read in another way ends where one request ends and the next begins: it is refused.
"""

from __future__ import annotations

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}")
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,16}(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_ONCE = (b"host", b"content-length", b"transfer-encoding")


class StrictLines(ReceiveBuffer):
    """What h11 reads lines from: a head, a chunk's size or trailers that are not exactly as they should be are refused."""

    def __init__(self) -> None:
        super().__init__()
        self._is_head = True

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Give the lines of a head or of trailers, when all of them are there.

        Raises:
            LocalProtocolError: What `refusal_of` gives.
        """
        data = bytes(self._data)
        lines = super().maybe_extract_lines()
        if lines is not None:
            refusal = refusal_of(data[: len(data) - len(self)], has_request_line=self._is_head)
            if refusal:
                raise h11.LocalProtocolError(refusal)
            self._is_head = True
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        """Give the line with the size of a chunk.

        Raises:
            LocalProtocolError: It is written in another way than chunks are.
        """
        line = super().maybe_extract_next_line()
        if line is not None:
            if not _CHUNK.fullmatch(line):
                raise h11.LocalProtocolError("the size of a chunk is malformed")
            self._is_head = False
        return line


def read_strictly(connection: h11.Connection) -> None:
    """Have a connection, on which nothing has been received, read its lines strictly."""
    connection._receive_buffer = StrictLines()


def refusal_of(head: bytes, *, has_request_line: bool = True) -> str:
    """Give why a head or trailers, with the empty line at the end, are refused; empty if they are not."""
    lines = head.split(b"\r\n")
    if lines[-2:] != [b"", b""] and head != b"\r\n":
        return "a line does not end with CR LF"
    lines = lines[:-2]
    if any(map(_CONTROL.search, lines)):
        return "there is a control character, or a line that does not end with CR LF"
    fields = lines[1:] if has_request_line else lines
    if any(line[:1] in (b" ", b"\t") for line in fields):
        return "a header is folded"
    named = [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in fields)]
    return (_of_request_line(lines[0], named) if has_request_line and lines else "") or _of_framing(named)


def _of_request_line(line: bytes, named: list[tuple[bytes, bytes]]) -> str:
    version = line.rpartition(b" ")[2]
    if version not in _VERSIONS:
        return "the version of HTTP is not spoken here"
    if not line.partition(b" ")[2].startswith(b"/"):
        return "the address does not begin with a slash"
    if version == b"HTTP/1.0" and any(name == b"transfer-encoding" for name, _ in named):
        return "there is no Transfer-Encoding in HTTP/1.0"
    return ""


def _of_framing(named: list[tuple[bytes, bytes]]) -> str:
    names = [name for name, _ in named]
    if any(names.count(name) > 1 for name in _ONCE):
        return "a header that decides where the request ends, or whose it is, stands there twice"
    if b"content-length" in names and b"transfer-encoding" in names:
        return "Content-Length and Transfer-Encoding contradict each other"
    for name, value in named:
        if name == b"content-length" and not _LENGTH.fullmatch(value):
            return "Content-Length is not a plain number"
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            return "Transfer-Encoding is not `chunked`"
    return ""
