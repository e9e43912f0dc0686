"""Where requests begin and end, as RFC 9112 writes it and in no other way. Sans-IO: bytes in, bytes out.

A proxy in front may read the end of a request at another place than h11, which is lenient: it takes LF for CR LF, joins
folded headers, and lets Transfer-Encoding win over Content-Length. What could be read in two ways is refused here, before h11
gets it.

    HEAD --Content-Length--> BODY --> HEAD
    HEAD --chunked--> SIZE --> CHUNK --> SIZE ... --0--> TRAILERS --> HEAD
"""

from __future__ import annotations

import re
from enum import Enum

VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_ONCE = (b"host", b"content-length", b"transfer-encoding")
_MOST_IN_LINE = 4096
"""The size of a chunk with its extensions."""

Fields = list[tuple[bytes, bytes]]


class Part(Enum):
    """What comes next on a connection."""

    HEAD = "head"
    BODY = "body"
    SIZE = "size of a chunk"
    CHUNK = "chunk"
    TRAILERS = "trailers"
    REFUSED = "nothing any more"


class Ambiguous(Exception):  # noqa: N818 - it is raised and caught between two modules
    """These bytes are refused.

    Attributes:
        part: Where they stand.
        status: 400, or 431 for a head that is too large.
    """

    def __init__(self, part: Part, status: int = 400) -> None:
        super().__init__(part, status)
        self.part = part
        self.status = status


class Requests:
    """Follows the requests of one connection.

    Attributes:
        part: What comes next.
        passed: What may be read and was not taken yet.
    """

    def __init__(self, most_head_bytes: int) -> None:
        self.part = Part.HEAD
        self.passed = bytearray()
        self._waiting = bytearray()
        self._left = 0
        self._most_head_bytes = most_head_bytes

    @property
    def has_begun(self) -> bool:
        """A head has arrived in part."""
        return self.part is Part.HEAD and bool(self._waiting)

    def take(self) -> bytes:
        """Give what may be read, once."""
        passed = bytes(self.passed)
        self.passed.clear()
        return passed

    def receive(self, data: bytes) -> None:
        """Take more bytes; those that may be read are in `passed` then.

        Raises:
            Ambiguous: What comes next is refused. What came before it is in `passed`.
        """
        self._waiting += data
        step = {
            Part.HEAD: self._read_head,
            Part.BODY: self._read_body,
            Part.SIZE: self._read_size,
            Part.CHUNK: self._read_chunk,
            Part.TRAILERS: self._read_trailers,
            Part.REFUSED: self._waiting.clear,
        }
        while self._waiting and step[self.part]():
            pass

    def refuse(self, status: int = 400) -> Ambiguous:
        """Read nothing more on this connection."""
        part, self.part = self.part, Part.REFUSED
        self._waiting.clear()
        return Ambiguous(part, status)

    def _read_head(self) -> bool:
        head = self._lines()
        if not head:
            return False
        fields = _fields_of_head(head)
        if fields is None or not _is_framed_once(fields):
            raise self.refuse()
        self._pass(len(head))
        named = dict(fields)
        self._left = int(named.get(b"content-length", b"0"))
        self.part = Part.SIZE if b"transfer-encoding" in named else Part.BODY if self._left else Part.HEAD
        return True

    def _read_body(self) -> bool:
        self._left -= self._pass(self._left)
        if not self._left:
            self.part = Part.HEAD
        return not self._left

    def _read_size(self) -> bool:
        end = self._waiting.find(b"\n")
        if end < 0 and len(self._waiting) <= _MOST_IN_LINE:
            return False
        size = _CHUNK.fullmatch(bytes(self._waiting[: end + 1]))
        if size is None:
            raise self.refuse()
        self._pass(end + 1)
        self._left = int(size[1], 16)
        self.part = Part.CHUNK if self._left else Part.TRAILERS
        return True

    def _read_chunk(self) -> bool:
        self._left -= self._pass(self._left)
        if self._left or len(self._waiting) < 2:
            return False
        if self._waiting[:2] != b"\r\n":
            raise self.refuse()
        self._pass(2)
        self.part = Part.SIZE
        return True

    def _read_trailers(self) -> bool:
        if self._waiting[:2] == b"\r\n":
            self._pass(2)
        else:
            trailers = self._lines()
            if not trailers:
                return False
            fields = _fields(trailers.split(b"\r\n")[:-2])
            if fields is None or not _is_framed_once(fields):
                raise self.refuse()
            self._pass(len(trailers))
        self.part = Part.HEAD
        return True

    def _lines(self) -> bytes:
        """The lines up to an empty one; nothing while they are not all there."""
        end = self._waiting.find(b"\r\n\r\n") + 4
        lines = bytes(self._waiting[:end] if end >= 4 else self._waiting)
        if _BARE_LF.search(lines):
            raise self.refuse()
        if len(lines) > self._most_head_bytes:
            raise self.refuse(431)
        return lines if end >= 4 else b""

    def _pass(self, count: int) -> int:
        taken = self._waiting[:count]
        self.passed += taken
        del self._waiting[:count]
        return len(taken)


def _fields_of_head(head: bytes) -> Fields | None:
    """The headers; None if the request line or one of them can be read in two ways."""
    line, *lines = head.split(b"\r\n")[:-2]
    fields = _fields(lines)
    version = line.rpartition(b" ")[2]
    is_plain = not _CONTROL.search(line) and line.partition(b" ")[2].startswith(b"/") and version in VERSIONS
    if fields is None or not is_plain:
        return None
    is_chunked = any(name == b"transfer-encoding" for name, _ in fields)
    return None if is_chunked and version == b"HTTP/1.0" else fields


def _fields(lines: list[bytes]) -> Fields | None:
    """Names in lower case and values; None for a control character or a folded line."""
    if any(_CONTROL.search(line) or line[:1] in (b" ", b"\t") for line in lines):
        return None
    return [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]


def _is_framed_once(fields: Fields) -> bool:
    """True if exactly one header says where the request ends and whose it is, in the one way in which that is written."""
    names = [name for name, _ in fields]
    if any(names.count(name) > 1 for name in _ONCE) or {b"content-length", b"transfer-encoding"} <= set(names):
        return False
    return all(
        _LENGTH.fullmatch(value) if name == b"content-length" else value.lower() == b"chunked"
        for name, value in fields
        if name in (b"content-length", b"transfer-encoding")
    )
