"""Errors as HTTP responses: a status and an `application/problem+json` body (RFC 9457) without internals of the server."""

from __future__ import annotations

from typing import Any

import msgspec

from graphbus_core.errors import GraphBusError

MEDIA_TYPE = "application/problem+json"

_STATUSES = {
    400: "GBE610 GBE670",
    401: "GBE673",
    403: "GBE674 GBE675",
    404: "GBE403 GBE404 GBE619 GBE620 GBE621 GBE685 GBE696",
    413: "GBE613 GBE676",
    415: "GBE677",
    422: "GBE612 GBE614 GBE622 GBE694",
    503: "GBE615 GBE618 GBE636 GBE678",
    504: "GBE679",
}
"""Status -> codes of errors that the client may know: its own mistakes, and temporary states. All other errors become 500."""
_STATUS_OF = {code: status for status, codes in _STATUSES.items() for code in codes.split()}

TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error response.

    Attributes:
        title: The standard phrase of the status.
        status: The HTTP status.
        detail: One sentence that says what is wrong.
        code: The error code of GraphBus, as in docs/errors.md.
        hint: What to do about it.
        errors: For 422, a mapping with the keys `field`, `expected` and `got` for each value that does not fit.
        request_id: For 500, the id under which the log of the server reports the error.
    """

    title: str
    status: int
    detail: str
    code: str = ""
    hint: str = ""
    errors: tuple[dict[str, str], ...] = ()
    request_id: str = ""


def make_problem(status: int, detail: str, **more: Any) -> ProblemDetails:
    """Make the body for a status; `more` are further fields of `ProblemDetails`."""
    return ProblemDetails(title=TITLES.get(status, "Error"), status=status, detail=detail, **more)


def problem_of(error: Exception) -> ProblemDetails | None:
    """Return the body for an error whose code is in `_STATUSES`; None for any other, which is an error of the server."""
    if not isinstance(error, GraphBusError) or error.code not in _STATUS_OF:
        return None
    problems: Any = error.data.get("problems") or ()
    errors = tuple({"field": each.path, "expected": each.expected, "got": each.got} for each in problems)
    return make_problem(_STATUS_OF[error.code], error.sentence, code=error.code, hint=error.hint, errors=errors)


def is_of_the_client(error: GraphBusError) -> bool:
    """True for an error with a 4xx status: the request itself was wrong."""
    return 400 <= _STATUS_OF.get(error.code, 500) < 500
