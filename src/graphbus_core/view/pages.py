"""Answers the requests of the page: one table of paths, and for each of them a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Protocol

import msgspec

from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.errors.system import reason_of
from graphbus_core.hosting.serving.pages import Answer, Asked, Send
from graphbus_core.hosting.serving.problems import MEDIA_TYPE, ProblemDetails, make_problem, problem_of
from graphbus_core.view.messages import (
    Comparison,
    DeadLetterList,
    DeliveryPage,
    EventTree,
    GraphPicture,
    NegotiationPicture,
    ReplayOrder,
    ReplayReport,
    SourceText,
)
from graphbus_core.view.records import LONGEST_PAGE, Query

_MOST_DIGITS = 19
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Source(Protocol):
    """What the page shows: a running graph, a trace, artifacts, a ledger or a negotiation. Any thread may call its methods.

    Each method raises RunError for what does not exist here.
    """

    def graph(self, *, is_trusted: bool) -> GraphPicture:
        """Return the drawing of the graph."""

    def deliveries(self, query: Query) -> DeliveryPage:
        """Return deliveries of the past."""

    def tree(self, event_id: str, *, with_payload: bool) -> EventTree:
        """Return the causal tree of an event."""

    def source_text(self, name: str) -> SourceText:
        """Return the text of `Agent.method`."""

    def dead_letters(self, *, is_trusted: bool) -> DeadLetterList:
        """Return the dead letters."""

    def replay(self, order: ReplayOrder) -> ReplayReport:
        """Deliver dead letters again, and wait for what comes of it."""

    def negotiation(self, session: str) -> NegotiationPicture:
        """Return a negotiation; empty: the one that runs, or else the last one."""

    def compare(self, left: str, right: str) -> Comparison:
        """Return what is published differently on two sides."""

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Begin a stream; see `Pages.follow`."""

    def close(self) -> None:
        """End all streams."""


class ViewPages:
    """The page of a source, and its endpoints: an implementation of `hosting.serving.pages.Pages`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.follow, self.close = source.follow, source.close
        self._routes: Mapping[str, Callable[[Asked, str], msgspec.Struct]] = {
            "graph": lambda asked, _: source.graph(is_trusted=asked.is_trusted),
            "deliveries": lambda asked, _: source.deliveries(_parse_query(asked.query)),
            "event": self._tree,
            "source": lambda _, name: source.source_text(name),
            "dead-letters": self._letters,
            "negotiation": lambda asked, _: source.negotiation(asked.query.get("session", "")),
            "compare": lambda asked, _: source.compare(asked.query.get("left", ""), asked.query.get("right", "")),
        }

    def answer(self, asked: Asked) -> Answer:
        """Answer a request; an error of GraphBus becomes a problem with its sentence, code and hint."""
        first, _, rest = asked.path.partition("/")
        is_read = asked.method in ("GET", "HEAD")
        if is_read and first in ("", "static"):
            return _read_static(rest if first else "index.html")
        route = self._routes.get(first)
        if route is None or is_read == (asked.path == "dead-letters/replay"):
            return _answer_problem(make_problem(404, "The view has nothing at this address."))
        try:
            return Answer(msgspec.json.encode(route(asked, rest)))
        except GraphBusError as error:
            detail = make_problem(422, error.sentence, code=error.code, hint=error.hint)
            return _answer_problem(problem_of(error) or detail)
        except OSError as error:  # such as a trace that was deleted meanwhile
            return _answer_problem(make_problem(422, f"What is shown cannot be read any more: {reason_of(error)}."))

    def _tree(self, asked: Asked, event_id: str) -> EventTree:
        with_payload = asked.query.get("payload") == "1"
        if with_payload and not asked.is_trusted:
            raise RunError("GBE673")
        return self._source.tree(event_id, with_payload=with_payload)

    def _letters(self, asked: Asked, rest: str) -> DeadLetterList | ReplayReport:
        """Return the dead letters, or replay those that the body names."""
        if rest != "replay":
            return self._source.dead_letters(is_trusted=asked.is_trusted)
        if not asked.is_trusted:
            raise RunError("GBE673")
        try:
            order = msgspec.json.decode(asked.body, type=ReplayOrder)
        except msgspec.DecodeError as error:
            raise RunError("GBE670", reason=str(error), advice="Send a ReplayOrder as JSON.") from None
        if not order.confirmed or bool(order.ids) == order.every:
            reason = "it must name the letters or say `every`, and be confirmed"
            raise RunError("GBE670", reason=reason, advice='Send e.g. {"ids": ["…"], "confirmed": true}.')
        return self._source.replay(order)


def _answer_problem(problem: ProblemDetails) -> Answer:
    return Answer(msgspec.json.encode(problem), MEDIA_TYPE, problem.status)


def _read_static(name: str) -> Answer:
    """Return a file of the page, or the answer 404 if there is none of this name."""
    suffix = name[name.rfind(".") :]
    file = files("graphbus_core.view").joinpath("static", name)
    if "/" in name or "\\" in name or suffix not in _MEDIA_TYPES or not file.is_file():
        return _answer_problem(make_problem(404, "The page has no such file."))
    return Answer(file.read_bytes(), _MEDIA_TYPES[suffix])


def _parse_query(query: Mapping[str, str]) -> Query:
    """Return which deliveries a request wants; raise GBE670 for a number that is none."""

    def number(name: str, default: int) -> int:
        text = query.get(name) or str(default)
        if not (text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS):
            raise RunError("GBE670", reason=f"`{name}` is not a number", advice="Numbers have only digits.")
        return int(text)

    return Query(
        before=number("before", 0),
        after=number("after", 0),
        limit=max(1, min(number("limit", Query().limit), LONGEST_PAGE)),
        topic=query.get("topic", ""),
        agent=query.get("agent", ""),
        key=query.get("key", ""),
        is_failed=query.get("failed") == "1",
    )
