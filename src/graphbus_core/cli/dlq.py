"""`graphbus dlq`: list, replay or drop the dead letters that running graphs have stored on disk."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from json import dumps
from typing import Any

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import Verbatim, pluralize, sanitize, style
from graphbus_core.cli.state import (
    AS_JSON,
    OF_ARTIFACTS,
    YES,
    as_cell,
    confirm_or_refuse,
    format_age,
    open_kept_file,
    runtime_settings,
)
from graphbus_core.errors import UsageError
from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile, StoredLetter

_HINT = "To store dead letters from the next run on, set `keep_dead_letters = true` in [tool.graphbus.runtime]."
_NUMBER = click.IntRange(min=1, max=(1 << 63) - 1)  # the largest integer of SQLite
_NUMBERS = click.argument("numbers", nargs=-1, type=_NUMBER, metavar="[ID]...")
_ALL = click.option("--all", "is_all", is_flag=True, help="Select all dead letters.")


@click.group("dlq", short_help="List, replay or drop dead letters (failed events).")
def dlq() -> None:
    """List, replay or drop dead letters.

    An event becomes a dead letter when a handler has failed on it in all its attempts. A running graph stores dead letters
    in its `state_dir` if its agents use `self.state`, or if `keep_dead_letters = true` is set in [tool.graphbus.runtime].
    They stay there until you replay or drop them.

    \b
    Examples:
      graphbus dlq ls
      graphbus dlq show 3
      graphbus dlq replay 3
    """


@dlq.command("ls", short_help="List the dead letters, the latest last.")
@click.option("--topic", default="", metavar="TOPIC", help="Show only letters of this topic.")
@click.option(
    "--limit", default=50, type=click.IntRange(0, 10**6), metavar="N", help="Show at most N of them (50); 0 means all."
)
@OF_ARTIFACTS
@AS_JSON
def ls(*, topic: str, limit: int, artifacts: str, as_json: bool) -> None:
    """List the dead letters of the project, the latest last.

    Exit status: 0 done, also when there are none; 7 the file with them cannot be read.

    \b
    Examples:
      graphbus dlq ls
      graphbus dlq ls --topic /Order/Placed --limit 10 --json
    """
    with open_kept_file(artifacts, FILE, DeadLetterFile) as file:
        letters = [] if file is None else file.letters(topic=topic, limit=limit)
        count = 0 if file is None else len(file.numbers(topic=topic))
        dropped = 0 if file is None else file.dropped
    if as_json:
        facts = [_letter_as_document(each) for each in letters]
        console.emit_json({"dead_letters": facts, "count": count, "dropped": dropped})
        return
    if letters:
        headers = ("ID", "AGE", "TOPIC", "HANDLER", "ATTEMPTS", "ERROR")
        console.print_table(headers, map(_letter_row, letters), right=("ID", "ATTEMPTS"))
    else:
        console.print_note(f"No dead letters{f' of {topic}' if topic else ''} are kept here.")
        if runtime_settings(artifacts).keep_dead_letters is not True:
            console.print_note(_HINT)
    if count > len(letters):
        console.print_note(f"{count - len(letters)} older ones are not shown; `--limit 0` shows all.")
    if dropped:
        console.print_note(f"{dropped} older ones were dropped, because the file was full.")


@dlq.command("show", short_help="Show one dead letter in full.")
@click.argument("number", type=_NUMBER, metavar="ID")
@OF_ARTIFACTS
@AS_JSON
def show(*, number: int, artifacts: str, as_json: bool) -> None:
    """Show a dead letter in full: IDs, times, causes, traceback and payload.

    Exit status: 0 done; 2 there is no such dead letter.

    \b
    Examples:
      graphbus dlq show 3
      graphbus dlq show 3 --json
    """
    with open_kept_file(artifacts, FILE, DeadLetterFile) as file:
        kept = _find_letter(file, number)
    letter, event = kept.letter, kept.letter.event
    if as_json:
        more = {name: getattr(event, name) for name in ("causation_id", "correlation_id", "src", "hops", "trail")}
        more |= {"has_payload": kept.has_payload, "traceback": letter.traceback, "published": event.timestamp}
        console.emit_json(_letter_as_document(kept) | more | {"payload": event.payload})
        return
    for label, text in _letter_fields(kept):
        console.print_line(f"{style(f'{label:<12}', 'dim')} {sanitize(text)}")
    if letter.traceback:
        console.print_line(Verbatim(f"\n{sanitize(letter.traceback.rstrip())}"))
    payload = sanitize(dumps(event.payload, indent=2, ensure_ascii=False))
    console.print_line(Verbatim(f"\n{payload if kept.has_payload else 'The payload was not JSON.'}"))


@dlq.command("drop", short_help="Delete dead letters.")
@_NUMBERS
@_ALL
@YES
@OF_ARTIFACTS
@AS_JSON
def drop(*, numbers: tuple[int, ...], is_all: bool, is_sure: bool, artifacts: str, as_json: bool) -> None:
    """Delete dead letters: those with the given IDs, or all. The command asks first.

    Exit status: 0 done; 2 there is no such dead letter, or no terminal to ask on; 130 the answer was no.

    \b
    Examples:
      graphbus dlq drop 3 4
      graphbus dlq drop --all --yes
    """
    with open_kept_file(artifacts, FILE, DeadLetterFile) as file:
        chosen = _select_letters(file, numbers, is_all=is_all)
        if chosen and not is_sure:
            confirm_or_refuse(f"Drop {pluralize(len(chosen), 'dead letter')}?", UsageError("GBE153"))
        removed = file.remove(chosen) if file is not None else 0
    console.print_result({"dropped": chosen}, [f"Dropped {pluralize(removed, 'dead letter')}."], as_json=as_json)


@dlq.command("replay", short_help="Deliver dead letters again.")
@_NUMBERS
@_ALL
@click.option("--allow-drift", is_flag=True, help="Start even if source files have changed since the build.")
@OF_ARTIFACTS
@AS_JSON
def replay(*, numbers: tuple[int, ...], is_all: bool, allow_drift: bool, artifacts: str, as_json: bool) -> int:
    """Deliver dead letters again: those with the given IDs, or all, the oldest first.

    The command starts the graph that was built and stops it afterwards. Each event keeps its IDs and goes to the handler
    that failed, or to all handlers if it had reached none. A letter is removed once it has been handled; if it fails again,
    it stays. If the process is killed between handling and removing, the letter is delivered again the next time.

    `graphbus replay` is something else: it repeats a negotiation from its record.

    Exit status: 0 all were handled; 7 some failed again; 6 and 7 also as for `graphbus run`.

    \b
    Examples:
      graphbus dlq replay 3 4
      graphbus dlq replay --all
    """
    with open_kept_file(artifacts, FILE, DeadLetterFile) as file:
        chosen = _select_letters(file, numbers, is_all=is_all)
        if file is None or not chosen:
            console.print_note("No dead letters are kept here.")
            return 0
        from graphbus_core.cli.running.dlq_replay import DeadLetterReplay  # imported late: it loads the whole runtime

        with file.replaying():
            return DeadLetterReplay(file, chosen, as_json=as_json).run(artifacts, allow_drift=allow_drift)


def _select_letters(file: DeadLetterFile | None, numbers: Sequence[int], *, is_all: bool) -> list[int]:
    """Return the IDs of the selected letters, the oldest first; raise a UsageError if none are selected or one does not exist."""
    if is_all and numbers:
        raise UsageError("GBE132", option="--all", other="ID", reason="--all selects every dead letter")
    if is_all:
        return [] if file is None else file.numbers()
    if not numbers:
        raise UsageError("GBE152")
    return [_find_letter(file, number).id for number in sorted(set(numbers))]


def _find_letter(file: DeadLetterFile | None, number: int) -> StoredLetter:
    """Return the dead letter with this ID, or raise GBE151."""
    kept = None if file is None else file.find(number)
    if kept is None:
        raise UsageError("GBE151", number=number)
    return kept


def _letter_row(kept: StoredLetter) -> tuple[str, ...]:
    """Return the cells of a dead letter in the table of `dlq ls`."""
    letter = kept.letter
    cells = (letter.event.topic, letter.subscription or "(none reached)", str(letter.attempts), letter.error)
    return str(kept.id), format_age(letter.timestamp), *map(as_cell, cells)


def _format_time(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(timestamp))


def _letter_fields(kept: StoredLetter) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact that `dlq show` prints above the traceback and the payload."""
    letter, event = kept.letter, kept.letter.event
    yield "dead letter", str(kept.id)
    yield "topic", event.topic
    yield "handler", letter.subscription or "it had reached none"
    yield "error", letter.error
    if letter.place:
        yield "place", letter.place
    yield "attempts", f"{letter.attempts}, replayed {kept.replays} times" if kept.replays else str(letter.attempts)
    yield "first", _format_time(letter.first_timestamp)
    yield "last", _format_time(letter.timestamp)
    yield "published", f"{_format_time(event.timestamp)}{f' by {event.src}' if event.src else ''}"
    yield "event", event.event_id
    if event.causation_id:
        yield "caused by", event.causation_id
        yield "root", event.correlation_id
    if event.trail:
        yield "came from", " > ".join(f"{topic} > {handler}" for topic, handler in event.trail)


def _letter_as_document(kept: StoredLetter) -> dict[str, Any]:
    """Return the facts of a letter that a list shows, as JSON data."""
    letter, event = kept.letter, kept.letter.event
    facts: dict[str, Any] = {"id": kept.id, "replays": kept.replays, "topic": event.topic, "event_id": event.event_id}
    names = ("subscription", "reason", "error", "place", "attempts", "first_timestamp", "timestamp")
    return facts | {name: getattr(letter, name) for name in names}
