"""Judges a conversation line by line: what each side may say now, and whether it says it rightly. It does no I/O.

What the host sends is handed over to `host_says`, what it receives to `take`.

    state       the host may send                         the program may send
    new         agent/hello                               nothing
    open        a request, a notification, agent/bye      nothing
    asked       a notification                            the answer
    leaving     nothing                                   the answer to agent/bye
    left        nothing                                   nothing: it ends, with exit status 0
    closed      nothing, its input has ended              nothing: it ends
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core import strict_json
from graphbus_core.negotiation.gbnp.answers import BreachError, Note, read_result, require, show
from graphbus_core.negotiation.gbnp.messages import (
    BYE,
    EVENT,
    HELLO,
    MAX_DEPTH,
    MAX_LINE_BYTES,
    METHODS,
    SessionEvent,
    View,
    Welcome,
)

State = Literal["new", "open", "asked", "leaving", "left", "closed"]
UNKNOWN_METHOD, INVALID_PARAMS = -32601, -32602
_REASONS = (
    (re.compile(r"it is not UTF-8|.* half of a surrogate pair|line \d+, column \d+: .*BOM.*"), "GBNP-003"),
    (re.compile(r"\S+ is not a number in JSON|a number .*"), "GBNP-004"),
    (re.compile(r"the name .* appears twice in one object", re.DOTALL), "GBNP-005"),
    (re.compile(r"it is nested more than .*"), "GBNP-006"),
)
"""A reason of `strict_json` -> the requirement that is broken; any other: the line is no JSON at all."""


_LONG_NUMBER = re.compile(rb"\d{19}")


class Refusal(NamedTuple):
    """An answer with "error": the program does not answer this question."""

    code: int
    message: str


class Asked(NamedTuple):
    """The request that waits for its answer.

    Attributes:
        is_first: Nothing but `agent/hello` was asked before.
        is_wider: Its parameters have members that the protocol does not know.
    """

    id: int
    method: str
    params: Mapping[str, Any]
    is_first: bool
    is_wider: bool


class Conversation:
    """The state of a conversation, and the judge of its next line.

    Attributes:
        state: What may be said next.
        welcome: What the program has said about itself; None before.
        exercised: The numbers of the requirements that the program was put to the test of so far.
        exercised_by_host: The same for the host.
        asked: The request that waits for its answer; None if there is none.
    """

    def __init__(self) -> None:
        self.state: State = "new"
        self.welcome: Welcome | None = None
        self.exercised: set[str] = set()
        self.exercised_by_host: set[str] = set()
        self.asked: Asked | None = None
        self._last_id = self._questions = 0
        self._was_notified = False

    @property
    def capabilities(self) -> frozenset[str]:
        """What the program says that it can do."""
        return frozenset(self.welcome.capabilities if self.welcome else ())

    # --- the host ---

    def request(self, method: str, params: object) -> bytes:
        """Return the line of a request with the next id."""
        return _line_of(id=self._last_id + 1, method=method, params=params)

    def notification(self, method: str, params: object) -> bytes:
        """Return the line of a notification."""
        return _line_of(method=method, params=params)

    def host_says(self, line: bytes) -> None:
        """Take a line of the host; raise BreachError if it must not be said, or not now."""
        try:
            self._take_from_host(read_message(line, self.exercised_by_host.add))
        except BreachError as breach:
            raise BreachError(breach.number, breach.reason, "host") from None

    def _take_from_host(self, message: Mapping[str, Any]) -> None:
        note, method, params = self.exercised_by_host.add, message.get("method"), message.get("params")
        require(note, "GBNP-082", self.state in ("new", "open", "asked"), f"it sends {show(method)}")
        require(note, "GBNP-020", (method == HELLO) == (self.state == "new"), f"{show(method)} comes here")
        if "id" in message:
            number = message["id"]
            is_new = type(number) is int and number > self._last_id
            require(note, "GBNP-010", is_new, f"{show(number)} comes after {self._last_id}")
            require(note, "GBNP-011", self.asked is None, f"{show(method)} comes before the last answer")
        known = METHODS.get(str(method))
        needed = "events" if method == EVENT else known.capability if known else ""
        require(note, "GBNP-024", not needed or needed in self.capabilities, f"{show(method)} needs {show(needed)}")
        kind = SessionEvent if method == EVENT else known.params if known else None
        if kind:
            _check_params(kind, params, note)
        if "id" not in message:
            self._was_notified = True
            return
        wider = kind is not None and _has_more_members(kind, params or {})
        self.asked = Asked(message["id"], str(method), params or {}, self._questions == 1, wider)
        self._last_id, self._questions = message["id"], self._questions + 1
        self.state = "leaving" if method == BYE else "asked"

    # --- the program ---

    def take(self, line: bytes) -> Any:
        """Return the answer in a line of the program: the result as an instance of its class, or a `Refusal`.

        Raises:
            BreachError: It breaks a requirement.
        """
        note, asked = self.exercised.add, self.asked
        message = read_message(line, note)
        require(note, "GBNP-008", "method" not in message, f"it sends the method {show(message.get('method'))}")
        number = message.get("id")
        is_repeated = type(number) is int and 0 < number <= self._last_id and (asked is None or number < asked.id)
        require(note, "GBNP-013", not is_repeated, f"it answers {show(number)} again")
        is_stray = asked is None or (number is None and self._was_notified)
        require(note, "GBNP-080" if self._was_notified else "GBNP-013", not is_stray, f"it sends {show(message)}")
        if asked is None:
            raise AssertionError("a stray answer is refused above")
        require(note, "GBNP-014", type(number) is int and number == asked.id, f"{show(number)} answers {asked.id}")
        found = sorted({*message} & {"result", "error"})
        require(note, "GBNP-015", len(found) == 1, f"it has {' and '.join(found) or 'neither'}")
        for proven in ("GBNP-012", "GBNP-013", "GBNP-017"):
            note(proven)
        answer = self._read_answer(asked, message)
        self.asked, self._was_notified = None, False
        self.state = "left" if self.state == "leaving" else "open"
        return answer

    def _read_answer(self, asked: Asked, message: Mapping[str, Any]) -> Any:
        """Return the result or the refusal in an answer; raise BreachError if it does not fit the question."""
        note, is_known = self.exercised.add, asked.method in METHODS
        refusal = _read_error(message["error"], note) if "error" in message else None
        if not is_known:
            is_right = refusal is not None and refusal.code == UNKNOWN_METHOD
            require(note, "GBNP-018", is_right, f"{show(asked.method)} is answered with {show(dict(message))}")
        if asked.is_wider:
            is_too_strict = refusal is not None and refusal.code == INVALID_PARAMS
            require(note, "GBNP-019", not is_too_strict, f"it answers: {refusal.message if refusal else ''}")
        if refusal and asked.method in (HELLO, BYE):
            number = "GBNP-021" if asked.method == HELLO else "GBNP-084"
            raise BreachError(number, f"it answers with an error: {refusal.message}")
        if asked.is_first and is_known:
            require(note, "GBNP-025", refusal is None, f"it answers: {refusal.message if refusal else ''}")
        if refusal is None and is_known:
            answer = read_result(asked.method, asked.params, message["result"], note)
            if isinstance(answer, Welcome):
                self.welcome = answer
            return answer
        return refusal

    # --- time and the end ---

    def close_input(self) -> None:
        """Note that the host has closed the input of the program, without a farewell if there was none before."""
        if self.state in ("new", "open"):
            self.state = "closed"

    def time_is_up(self) -> BreachError:
        """Return what the program has broken, as it has not answered, read or ended in time."""
        if self.asked:
            return BreachError("GBNP-017", f"{self.asked.method} is not answered")
        if self.state == "open":
            return BreachError("GBNP-017", "it does not read its input")
        return BreachError("GBNP-081" if self.state == "left" else "GBNP-083", "it still runs")

    def take_end(self, status: int | None, log: str = "") -> None:
        """Take the end of the program.

        Args:
            status: Its exit status, negative for a signal; None if only its output has ended.
            log: Why it was ended, or the last line of its standard error.

        Raises:
            BreachError: It ended too soon, or after a farewell with another status than 0.
        """
        how = "it closed its output" if status is None else f"it ended with exit status {status}"
        note, how = self.exercised.add, f"{how} ({log})" if log else how
        require(note, "GBNP-012", self.state in ("left", "closed"), how)
        if self.state == "left":
            require(note, "GBNP-081", status == 0, how)
        else:
            note("GBNP-083")


def _line_of(**members: object) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", **members}) + b"\n"


def read_message(line: bytes, note: Note) -> Mapping[str, Any]:
    """Return the message in a line, its line end included; raise BreachError if it is no message.

    The number of each requirement that is put to the test is passed to `note`.
    """
    require(note, "GBNP-002", len(line) <= MAX_LINE_BYTES, f"it has {len(line)} bytes")
    is_line = line.endswith(b"\n") and line.count(b"\n") == 1
    require(note, "GBNP-001", is_line, "it is not one line" if line.endswith(b"\n") else "its end is missing")
    reason, message = "", None
    try:
        message = strict_json.loads(line[:-1], max_depth=MAX_DEPTH)
    except ValueError as error:
        reason = str(error)
    broken = next((number for pattern, number in _REASONS if pattern.fullmatch(reason)), "GBNP-001")
    if reason:
        raise BreachError(broken, f"{reason} ({show(line[:-1].decode(errors='replace'))})")
    is_huge = _LONG_NUMBER.search(line) is not None and _has_huge_integer(message)
    require(note, "GBNP-004", not is_huge, "it has an integer of more than 64 bits")
    for number in ("GBNP-003", "GBNP-005", "GBNP-006"):
        note(number)
    if not isinstance(message, dict):
        raise BreachError("GBNP-001", f"it is {show(message)}")
    require(note, "GBNP-007", message.get("jsonrpc") == "2.0", f"it has {show(message.get('jsonrpc'))}")
    return message


def _has_huge_integer(value: Any) -> bool:
    """Return whether a JSON value contains an integer of more than 64 bits."""
    if isinstance(value, dict | list):
        return any(map(_has_huge_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 64


def _read_error(error: Any, note: Note) -> Refusal:
    """Return the refusal in an answer; raise BreachError if it is none."""
    found = error if isinstance(error, dict) else {}
    code, message = found.get("code"), found.get("message")
    is_right = type(code) is int and isinstance(message, str)
    require(note, "GBNP-016", is_right, f"it is {show(error)}")
    return Refusal(int(code or 0), str(message))


def _check_params(kind: type[msgspec.Struct], params: Any, note: Note) -> None:
    """Raise BreachError if parameters are not an instance of their class."""
    note("GBNP-026")
    try:
        msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise BreachError("GBNP-026", str(error)) from None


def _has_more_members(kind: type[msgspec.Struct], params: Mapping[str, Any]) -> bool:
    """Return whether parameters, or the view in them, have members that the protocol does not know."""
    view = params.get("view")
    return bool({*params} - {*kind.__struct_fields__}) or (
        isinstance(view, dict) and bool({*view} - {*View.__struct_fields__})
    )
