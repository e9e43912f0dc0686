"""Pages beside the routes of a graph, such as the live view: what the HTTP server asks of them, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

PREFIX = "/view/"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PUBLIC = f"{PREFIX}static/"


def is_of_pages(path: str) -> bool:
    """True for the path of a page, or of what belongs to one."""
    return path.startswith(PREFIX)


def is_public(path: str) -> bool:
    """True for a page itself and its static files, which hold nothing of the graph."""
    return path == PREFIX or path.startswith(_PUBLIC)


class Asked(NamedTuple):
    """A request that the server has accepted.

    Attributes:
        path: The rest of the path after `PREFIX`, decoded.
        is_trusted: The request carries the token.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""
    is_trusted: bool = False


class Answer(NamedTuple):
    """A response."""

    body: bytes
    media_type: str = "application/json"
    status: int = 200


Send = Callable[[bytes | None], object]
"""Takes one more part of a stream, or None at its end; any thread may call it, and it does not wait."""


class Pages(Protocol):
    """What answers below `PREFIX`."""

    def answer(self, asked: Asked) -> Answer:
        """Answer a request; runs on a thread of its own and may take its time.

        Raises:
            RunError: For a request that cannot be answered.
        """

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Begin a stream of server-sent events, and return a function that ends it.

        Args:
            asked: The request.
            last_id: The id of the last event that the client has received; empty at first.
            send: Gets each part.
        """

    def close(self) -> None:
        """End all streams: the server stops."""
