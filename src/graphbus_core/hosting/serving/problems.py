"""Refusals as HTTP knows them: status and `application/problem+json` (RFC 9457), with nothing of the inside of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from graphbus_core.errors import GraphBusError

MEDIA_TYPE = "application/problem+json"

MAX_HEAD_BYTES = 16_384
"""The first line and the headers of a request."""

REFUSED = "graphbus-refused"
"""The header of a request that `server` makes in the place of one that it refuses; its value is the status of the answer."""

REFUSED_HEADS = {
    400: "This is not an HTTP request, or it could be read in two ways.",
    431: f"The head of a request may have {MAX_HEAD_BYTES} bytes.",
    503: "There are too many connections.",
}

_STATUS = {
    "GBE610": 400,
    "GBE612": 422,
    "GBE613": 413,
    "GBE614": 422,
    "GBE615": 503,
    "GBE618": 503,
    "GBE619": 404,
    "GBE620": 404,
    "GBE621": 404,
    "GBE622": 422,
    "GBE636": 503,
    "GBE670": 400,
    "GBE673": 401,
    "GBE674": 403,
    "GBE675": 403,
    "GBE676": 413,
    "GBE677": 415,
    "GBE678": 503,
    "GBE679": 504,
    "GBE696": 404,
}
"""What is the doing of the client, or will pass. Everything else is ours, and the client learns only that it happened."""

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

_HEADERS = {
    401: {"www-authenticate": 'Bearer realm="graphbus"'},
    408: {"connection": "close"},
    503: {"retry-after": "1"},
}


class FieldProblem(msgspec.Struct, frozen=True):
    """One value that does not fit its schema."""

    field: str
    expected: str
    got: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a refusal.

    Attributes:
        title: The phrase of the status.
        status: The status of the response.
        detail: What is wrong, in a sentence.
        code: Ours, as docs/errors.md lists them.
        hint: What to do.
        errors: The values that do not fit, for 422.
        request_id: By which the log knows the request, for 500.
    """

    title: str
    status: int
    detail: str
    code: str = ""
    hint: str = ""
    errors: tuple[FieldProblem, ...] = ()
    request_id: str = ""

    def encode(self) -> bytes:
        """The body as JSON."""
        return msgspec.json.encode(self)

    @property
    def headers(self) -> Mapping[str, str]:
        """What the response says besides."""
        return _HEADERS.get(self.status, {})


def problem(status: int, detail: str) -> Problem:
    """A refusal without a code of ours: HTTP itself says what is wrong."""
    return Problem(title=TITLES.get(status, "Error"), status=status, detail=detail)


def problem_of(error: Exception) -> Problem | None:
    """What the client may know of an error; None when it is not the client's doing."""
    if not isinstance(error, GraphBusError) or error.code not in _STATUS:
        return None
    status = _STATUS[error.code]
    return Problem(
        title=TITLES[status],
        status=status,
        detail=error.sentence,
        code=error.code,
        hint=error.hint,
        errors=tuple(_field_problems(error.data.get("problems"))),
    )


def is_of_the_client(error: GraphBusError) -> bool:
    """True when a request that is answered with this error should not have been sent."""
    return 400 <= _STATUS.get(error.code, 500) < 500


def internal(what: str, request_id: str) -> Problem:
    """The answer to a failure of ours or of the agents: the log says more."""
    return Problem(
        title=TITLES[500],
        status=500,
        detail=f"{what} failed.",
        hint="The log of the server says more about this request.",
        request_id=request_id,
    )


def _field_problems(problems: Any) -> Iterable[FieldProblem]:
    for each in problems or ():
        yield FieldProblem(each.path, each.expected, each.got)
