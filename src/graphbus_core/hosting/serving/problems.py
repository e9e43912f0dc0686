"""Refusals as HTTP knows them: status and `application/problem+json` (RFC 9457), with nothing of the inside of the server."""

from __future__ import annotations

from typing import Any

import msgspec

from graphbus_core.errors import GraphBusError

MEDIA_TYPE = "application/problem+json"

_STATUSES = {
    400: "GBE610 GBE670",
    401: "GBE673",
    403: "GBE674 GBE675",
    404: "GBE619 GBE620 GBE621 GBE696",
    413: "GBE613 GBE676",
    415: "GBE677",
    422: "GBE612 GBE614 GBE622",
    503: "GBE615 GBE618 GBE636 GBE678",
    504: "GBE679",
}
"""What is the doing of the client, or will pass. Everything else is ours, and the client learns only that it happened."""
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
    """The body of a refusal.

    Attributes:
        title: The phrase of the status.
        status: The status of the response.
        detail: What is wrong, in a sentence.
        code: Ours, as docs/errors.md lists them.
        hint: What to do.
        errors: The values that do not fit, for 422: their `field`, what was `expected`, and what was `got`.
        request_id: By which the log knows the request, for 500.
    """

    title: str
    status: int
    detail: str
    code: str = ""
    hint: str = ""
    errors: tuple[dict[str, str], ...] = ()
    request_id: str = ""


def make_problem(status: int, detail: str, **more: Any) -> ProblemDetails:
    """Make a refusal; `more` are further fields."""
    return ProblemDetails(title=TITLES.get(status, "Error"), status=status, detail=detail, **more)


def problem_of(error: Exception) -> ProblemDetails | None:
    """Give what the client may know of an error; None when it is not the client's doing."""
    if not isinstance(error, GraphBusError) or error.code not in _STATUS_OF:
        return None
    wrong: Any = error.data.get("problems") or ()
    errors = tuple({"field": each.path, "expected": each.expected, "got": each.got} for each in wrong)
    return make_problem(_STATUS_OF[error.code], error.sentence, code=error.code, hint=error.hint, errors=errors)


def is_of_the_client(error: GraphBusError) -> bool:
    """True when a request that is answered with this error should not have been sent."""
    return 400 <= _STATUS_OF.get(error.code, 500) < 500
