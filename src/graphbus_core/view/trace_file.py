"""Reads the trace of `graphbus run --trace` block by block, so that a file of any size takes the same memory.

The number of a delivery is the offset of its line in the file, plus 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.trace import FILE, PREVIOUS_FILE, TracedDelivery, check_version
from graphbus_core.isolation import attempt
from graphbus_core.view.letters import shorten_place
from graphbus_core.view.messages import Delivery, DeliveryPage
from graphbus_core.view.records import LARGEST_TREE, Found, Query, names_event

_BLOCK_BYTES = 1 << 20
_MOST_SEARCHED = 256 << 20
"""So many bytes are searched for one page at most."""
MOST_COMPARED = 64 << 20
"""So many bytes at the end of a trace are compared with another one: who tells events apart has to remember them."""
_AROUND_EVENT = 64 << 20
"""How far from the last delivery that was found the others of its tree are looked for."""
_LONGEST_LINE = 8 << 20
"""A longer line is left out: the largest payload makes a shorter one."""
_HEAD_BYTES = 200

_IS_CUT_OFF = "The trace ends in the middle of a delivery, which is not shown: it was cut off, or is being written."
_IS_EMPTY = "The trace has no deliveries yet."
_SEARCHED = "Nothing more was found in {size} MB of the trace; there may be more further away."

_decoder = msgspec.json.Decoder(TracedDelivery)


class _Placed(NamedTuple):
    """A line of the file and its offset."""

    offset: int
    line: bytes


class Extent(NamedTuple):
    """Which file has a name now, and how many bytes are in it; 0 and 0: there is none at the moment."""

    file: int = 0
    size: int = 0


class FileRecords:
    """The deliveries in a trace file. Each request opens the file anew, so that one that grows is read to its present end.

    Args:
        path: The file.
        root: The folder of the project, to which places are relative.
    """

    def __init__(self, path: Path, root: str = "") -> None:
        self._path = path
        self._root = root

    def is_readable(self) -> bool:
        """True if the file can be opened and is a trace of a version that this GraphBus knows."""
        return not self._fault()

    def _fault(self) -> str:
        """Return in a sentence why the file cannot be shown; empty if it can."""
        try:
            with self._path.open("rb") as file:
                check_version(file.read(_HEAD_BYTES), self._path)
            return ""
        except RunError as error:
            return f"{error.sentence} {error.hint}"
        except OSError as error:
            return f"The trace cannot be read: {(error.strerror or str(error)).lower()}."

    def is_long(self) -> bool:
        """True if the file has more than `MOST_COMPARED` bytes."""
        return self.extent().size > MOST_COMPARED

    def extent(self) -> Extent:
        """Return which file it is now, and its length."""
        found, _ = attempt(self._path.stat)
        return Extent(found.st_ino, found.st_size) if found else Extent()

    def problem(self) -> str:
        """Return in a sentence why the file cannot be shown, or what is missing in it; empty if nothing is."""
        if fault := self._fault():
            return fault
        with self._path.open("rb") as file:
            handle = file.fileno()
            is_whole = os.pread(handle, 1, _size(handle) - 1) == b"\n"
        return _IS_CUT_OFF if not is_whole else _IS_EMPTY if self.bounds() == (0, 0) else ""

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the oldest and the newest delivery; 0 and 0 if there is none."""
        with self._path.open("rb") as file:
            oldest = next((found.delivery.seq for found in _decode(_forward(file.fileno(), 0))), 0)
            newest = next((found.delivery.seq for found in _decode(_backward(file.fileno(), _size(file.fileno())))), 0)
        return oldest, newest

    def page(self, query: Query) -> DeliveryPage:
        """Return the deliveries that fit, oldest first; note if the search ended before all was searched."""
        oldest, newest = self.bounds()
        with self._path.open("rb") as file:
            handle = file.fileno()
            end = _size(handle) if not query.before else min(query.before - 1, _size(handle))
            lines = _forward(handle, query.after) if query.after else _backward(handle, end)
            found, is_whole = _take_fitting(lines, query)
        shown = found[: query.limit]
        has_more = len(found) > query.limit or not is_whole
        if not query.after:
            shown.reverse()
        first, last = (shown[0].seq, shown[-1].seq) if shown else (query.after or end + 1, query.after or end + 1)
        return DeliveryPage(
            deliveries=tuple(map(self._shorten, shown)),
            has_older=has_more if not query.after else first > oldest > 0,
            has_newer=has_more if query.after else last < newest,
            oldest=oldest,
            newest=newest,
            note="" if is_whole else _SEARCHED.format(size=_MOST_SEARCHED >> 20),
        )

    def tree(self, event_id: str) -> Sequence[Found]:
        """Return the deliveries that follow from the same event from outside as this event; empty if it is not in the file."""
        needle = event_id.encode("utf-8", "replace")
        with self._path.open("rb") as file:
            handle = file.fileno()
            start = next(self._find(_backward(handle, _size(handle), needle), event_id), None)
            if start is None:
                return []
            root = start.delivery.correlation_id
            before = list(_near(_backward(handle, start.delivery.seq - 1, root.encode()), root, start.delivery.seq))
            after = list(_near(_forward(handle, start.delivery.seq, root.encode()), root, start.delivery.seq))
        found = [*reversed(before), start, *after][:LARGEST_TREE]
        return [each._replace(delivery=self._shorten(each.delivery)) for each in found]

    def _shorten(self, delivery: Delivery) -> Delivery:
        """Return a delivery whose place is relative to the project."""
        place = shorten_place(delivery.place, self._root)
        return delivery if place == delivery.place else msgspec.structs.replace(delivery, place=place)

    @staticmethod
    def _find(lines: Iterator[_Placed], event_id: str) -> Iterator[Found]:
        return (found for found in _decode(lines) if names_event(found.delivery, event_id))

    def all(self) -> Iterator[TracedDelivery]:
        """Yield the deliveries, oldest first, with their payloads; of a long file only those at its end, see `is_long`."""
        with self._path.open("rb") as file:
            handle = file.fileno()
            for _, line in _forward(handle, max(0, _size(handle) - MOST_COMPARED)):
                delivery, _ = attempt(lambda line=line: _decoder.decode(line))  # type: ignore[misc]
                if delivery is not None:
                    yield delivery


class Appended(NamedTuple):
    """What a trace has got: the numbers of the first and the last new delivery, 0 and 0 if none.

    `is_other_file`: the file was begun anew under the same name, as a full one is, and all its deliveries are new.
    """

    first: int = 0
    last: int = 0
    is_other_file: bool = False


class Growth:
    """How a trace grows from now on."""

    def __init__(self, records: FileRecords) -> None:
        self._records = records
        self._extent = records.extent()
        self._last = records.bounds()[1]

    def look(self) -> Appended:
        """Return what was appended since the last call; nothing while the file is gone."""
        before, now = self._extent, self._records.extent()
        if now in (before, Extent()):
            return Appended()
        is_other = now.file != before.file or now.size < before.size
        page, _ = attempt(lambda: self._records.page(Query(after=0 if is_other else self._last, limit=1)))
        if page is None:  # it has gone since
            return Appended()
        self._extent, self._last = now, page.newest
        first = page.deliveries[0].seq if page.deliveries else 0
        return Appended(first, page.newest if first else 0, is_other)


def find_traces(state_dir: Path, root: str | Path = "") -> dict[str, FileRecords]:
    """Return file name -> the traces of a graph, the older one first; `root` is the folder of the project."""
    return {
        name: FileRecords(state_dir / name, str(root)) for name in (PREVIOUS_FILE, FILE) if (state_dir / name).is_file()
    }


def _size(handle: int) -> int:
    return os.fstat(handle).st_size


def _take_fitting(lines: Iterator[_Placed], query: Query) -> tuple[list[Delivery], bool]:
    """Return up to one more than `limit` deliveries that fit, and whether the search went as far as it had to."""
    found: list[Delivery] = []
    begun: int | None = None
    for each in _decode(lines):
        begun = each.delivery.seq if begun is None else begun
        if query.fits(each.delivery):
            found.append(each.delivery)
        if len(found) > query.limit:
            break
        if abs(each.delivery.seq - begun) > _MOST_SEARCHED:
            return found, False
    return found, True


def _near(lines: Iterator[_Placed], root: str, start: int) -> Iterator[Found]:
    """Yield the deliveries of a tree until none was found for `_AROUND_EVENT` bytes."""
    last = start
    for found in _decode(lines):
        if found.delivery.correlation_id == root:
            last = found.delivery.seq
            yield found
        elif abs(found.delivery.seq - last) > _AROUND_EVENT:
            return


def _decode(lines: Iterator[_Placed]) -> Iterator[Found]:
    """Yield the delivery of each line with its payload; lines that are no deliveries are left out."""
    for offset, line in lines:
        traced, _ = attempt(lambda line=line: _decoder.decode(line))  # type: ignore[misc]
        if traced is not None:
            facts = msgspec.structs.asdict(traced) | {"payload": ""}
            yield Found(Delivery(**facts, seq=offset + 1, has_payload=bool(traced.payload)), traced.payload)


def _backward(handle: int, end: int, needle: bytes = b"") -> Iterator[_Placed]:
    """Yield the whole lines that end before `end`, the last first; with a needle only those that contain it."""
    rest, is_too_long = b"", False
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        block = os.pread(handle, end - start, start)
        if is_too_long:
            block = block[: block.rfind(b"\n") + 1]
        is_too_long = is_too_long and not block
        data = block + rest
        lines = data.split(b"\n")
        # The first piece may be the end of a line that begins in the block before; the last has no line end.
        rest = lines[0] if start and not is_too_long else b""
        if not needle or needle in data:
            offset = start + len(data)
            for line in reversed(lines[1:] if start else lines):
                offset -= len(line)
                if line and (not needle or needle in line):
                    yield _Placed(offset, line)
                offset -= 1
        if len(rest) > _LONGEST_LINE:
            rest, is_too_long = b"", True
        end = start


def _forward(handle: int, start: int, needle: bytes = b"") -> Iterator[_Placed]:
    """Yield the whole lines that begin after `start` (at it, if it is 0), the first first; with a needle only those with it."""
    offset, rest, is_inside = start, b"", start > 0
    while block := os.pread(handle, _BLOCK_BYTES, offset + len(rest)):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            if line and not is_inside and (not needle or needle in line):
                yield _Placed(offset, line)
            is_inside = False
            offset += len(line) + 1
        if len(rest) > _LONGEST_LINE or (is_inside and not lines):
            offset, rest, is_inside = offset + len(rest), b"", True
