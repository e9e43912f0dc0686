"""What a failed assertion says: which events there were, and in what the nearest differ from what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from graphbus_core.errors import did_you_mean
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event

_MOST = 20
_WIDEST = 160


def differences(payload: object, fields: Mapping[str, object]) -> list[str]:
    """One sentence for each field that is not as expected; none when the payload fits."""
    if not fields:
        return []
    if not isinstance(payload, dict):
        return [f"the payload is {payload!r} and has no fields"]
    found = []
    for name, expected in fields.items():
        if name not in payload:
            found.append(f"{name}: missing, not {expected!r}{did_you_mean(name, payload)}")
        elif payload[name] != expected:
            found.append(f"{name}: {payload[name]!r}, not {expected!r}")
    return found


def expectation(fields: Mapping[str, object]) -> str:
    """The expected fields as they were written: ` with total=12, status='open'`."""
    return f" with {', '.join(f'{name}={value!r}' for name, value in fields.items())}" if fields else ""


def near_misses(events: Sequence[Event], fields: Mapping[str, object]) -> list[str]:
    """Each event, and below it in what it differs."""
    lines = []
    for event in events[:_MOST]:
        lines.append(f"  {one_line(event)}")
        lines += [f"      {difference}" for difference in differences(event.payload, fields)]
    return [*lines, *_more(events)]


def listing(events: Sequence[Event]) -> list[str]:
    """Each event on one line."""
    return [*(f"  {one_line(event)}" for event in events[:_MOST]), *_more(events)]


def called(calls: Sequence[tuple[str, Mapping[str, object]]], arguments: Mapping[str, object]) -> list[str]:
    """Each call as it was written, and below it in what it differs."""
    lines = []
    for name, given in calls[:_MOST]:
        lines.append(_short(f"  {name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"))
        lines += [f"      {difference}" for difference in differences(dict(given), arguments)]
    return [*lines, *_more(calls)]


def buried(letters: Sequence[DeadLetter]) -> list[str]:
    """Each dead letter with what has become of it."""
    lines = []
    for letter in letters[:_MOST]:
        to = f" to {letter.subscription}" if letter.subscription else ""
        tries = f" ({letter.attempts} attempts)" if letter.attempts > 1 else ""
        lines += [f"  {one_line(letter.event)}", f"      {letter.reason}{to}{tries}: {letter.error}"]
    return [*lines, *_more(letters)]


def one_line(event: Event) -> str:
    """Topic and payload."""
    text = event.topic if event.payload is None else f"{event.topic} {_as_json(event.payload)}"
    return _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def suggestion(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?`, unless the word is known."""
    names = set(known)
    return "" if word in names else did_you_mean(word, names)


def _as_json(payload: object) -> str:
    return msgspec.json.encode(payload).decode()


def _more(events: Sequence[object]) -> list[str]:
    return [f"  … and {len(events) - _MOST} more"] if len(events) > _MOST else []
