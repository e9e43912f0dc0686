"""Dead letters as the page shows them, from a bus, or from the file of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphbus_core.hosting.dead_letters import FILE, DeadLetterFile, StoredLetter
from graphbus_core.isolation import attempt
from graphbus_core.model.deliveries import DeadLetter as BusLetter
from graphbus_core.view.messages import DeadLetter, DeadLetterList
from graphbus_core.view.records import LONGEST_PAGE, Query, Records

MOST_LETTERS = 1000


def read_letters(state_dir: Path) -> list[StoredLetter]:
    """Return the last letters in the file of a graph; none if there is no such file, or if it cannot be read now."""
    path = state_dir / FILE

    def read() -> list[StoredLetter]:
        file = DeadLetterFile(str(path))
        try:
            return file.letters(limit=MOST_LETTERS)
        finally:
            file.close()

    return (attempt(read)[0] or []) if path.exists() else []


def find_places(handler: str, letters: Sequence[StoredLetter], records: Records) -> list[str]:
    """Return the places at which a handler has failed, `file:line`, as dead letters and the last deliveries tell."""
    failed, _ = attempt(lambda: records.page(Query(agent=handler, is_failed=True, limit=LONGEST_PAGE)).deliveries)
    places = [each.letter.place for each in letters if each.letter.subscription == handler]
    return [*places, *(each.place for each in failed or () if each.handler == handler)]


def list_letters(
    letters: Sequence[StoredLetter], *, root: str | Path, may_replay: bool, note: str = "", counted: int | None = None
) -> DeadLetterList:
    """Return these letters as the page lists them, the newest first; places are relative to the project at `root`.

    `counted` as in `DeadLetterList`; None: ticks count the letters themselves.
    """
    shown = sorted((show_letter(each.letter, root, each.replays) for each in letters), key=lambda each: -each.at)
    return DeadLetterList(
        letters=tuple(shown[:MOST_LETTERS]),
        total=len(shown),
        counted=len(shown) if counted is None else counted,
        may_replay=may_replay,
        note=note,
    )


def letter_id(letter: BusLetter) -> str:
    """Return what the page names a dead letter by."""
    return f"{letter.event.event_id}~{letter.subscription}"


def shorten_place(place: str, root: str | Path) -> str:
    """Return `file:line` relative to the project at `root` if it is in it, else unchanged; an empty root is not known."""
    return place.removeprefix(f"{root}/") if str(root) else place


def show_letter(letter: BusLetter, root: str | Path, replays: int = 0) -> DeadLetter:
    """Return a dead letter as the page shows it."""
    return DeadLetter(
        id=letter_id(letter),
        event_id=letter.event.event_id,
        correlation_id=letter.event.correlation_id,
        topic=letter.event.topic,
        handler=letter.subscription,
        reason=letter.reason,
        error=letter.error,
        place=shorten_place(letter.place, root),
        traceback=letter.traceback,
        attempts=letter.attempts,
        first_at=letter.first_timestamp or letter.timestamp,
        at=letter.timestamp,
        replays=replays,
    )
