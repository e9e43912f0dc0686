"""Profile: middleware that measures how long each handler and method takes, in constant memory per handler.

Durations are counted in a histogram whose bounds grow by 4.4 %, so a percentile is off by at most 2.2 %.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import log2
from pathlib import Path
from time import perf_counter_ns, time
from typing import Literal

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.middleware import Handling, Kind
from graphbus_core.store.folders import read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import write_atomic

FILE = "profile.json"
VERSION = 1

_STEPS = 16  # steps of the histogram per doubling of the duration
_OCTAVES = 48  # 2**48 ns are three days

SortKey = Literal["total", "count", "mean", "p50", "p99", "max", "failed", "name"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one handler or method. Durations of `async def` include the time that it waited.

    Attributes:
        name: `Agent.method`.
        count: How many calls, failed ones included.
        failed: How many calls raised an exception.
        share: Its part of the total time of all handlers and methods, from 0 to 1.
    """

    name: str
    kind: Kind
    count: int
    failed: int
    total_s: float
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    share: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `profile.json`: the measurements of one run.

    Attributes:
        began: When the run began, in seconds since the epoch.
        wall_s: How long the run took.
        handlers: One row for each handler and method, longest total time first.
    """

    schema_version: int = VERSION
    began: float
    wall_s: float
    handlers: tuple[Row, ...]


class _HandlerCounters:
    """The counters of one handler or method; durations in nanoseconds."""

    __slots__ = ("count", "failed", "histogram", "kind", "max_ns", "name", "total_ns")

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.count = self.failed = self.total_ns = self.max_ns = 0
        self.histogram = [0] * (_STEPS * _OCTAVES)

    def add(self, duration_ns: int) -> None:
        """Count one call; one that took longer than the histogram covers counts in its last step."""
        self.count += 1
        self.total_ns += duration_ns
        self.max_ns = max(duration_ns, self.max_ns)
        self.histogram[min(int(log2(duration_ns or 1) * _STEPS), _STEPS * _OCTAVES - 1)] += 1

    def quantile_ns(self, fraction: float) -> float:
        """Return the duration that this fraction of the calls did not exceed: the middle of its step in the histogram.

        It is never longer than the longest call.
        """
        rank = max(1, -(-self.count * fraction // 1))  # rounded up
        seen = 0
        for step, count in enumerate(self.histogram):
            seen += count
            if seen >= rank:
                return min(2 ** ((step + 0.5) / _STEPS), float(self.max_ns))
        return float(self.max_ns)

    def row(self, all_ns: int) -> Row:
        """Return the row of the profile; `all_ns` is the total time of all handlers and methods."""
        return Row(
            name=self.name,
            kind=self.kind,
            count=self.count,
            failed=self.failed,
            total_s=self.total_ns / 1e9,
            mean_s=self.total_ns / self.count / 1e9,
            p50_s=self.quantile_ns(0.5) / 1e9,
            p99_s=self.quantile_ns(0.99) / 1e9,
            max_s=self.max_ns / 1e9,
            share=self.total_ns / all_ns if all_ns else 0.0,
        )


class Profiler:
    """Middleware that collects a profile. It uses 6 KiB for each handler and method that was called."""

    def __init__(self) -> None:
        self._measured: dict[str, _HandlerCounters] = {}
        self._began = time()
        self._began_ns = perf_counter_ns()

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Measure one handler or call."""
        measured = self._measured.get(handling.name)
        if measured is None:
            measured = self._measured.setdefault(handling.name, _HandlerCounters(handling.name, handling.kind))
        began, failures = perf_counter_ns(), 1
        try:
            yield
            failures = 0
        finally:
            measured.add(perf_counter_ns() - began)
            measured.failed += failures

    def profile(self) -> Profile:
        """Return the measurements so far."""
        measured = [each for each in list(self._measured.values()) if each.count]
        all_ns = sum(each.total_ns for each in measured)
        rows = (each.row(all_ns) for each in sorted(measured, key=lambda each: -each.total_ns))
        return Profile(began=self._began, wall_s=(perf_counter_ns() - self._began_ns) / 1e9, handlers=tuple(rows))


def save_profile(profile: Profile, folder: Path) -> None:
    """Write `profile.json` into the folder, the project's `state_dir`, atomically.

    Raises:
        RunError: GBE683 when it cannot be written.
    """
    try:
        write_atomic(folder / FILE, msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    except OSError as error:
        where, advice = Place(str(folder / FILE)), advise_on(error, folder / FILE)
        raise RunError("GBE683", where=where, what="The profile", reason=reason_of(error), advice=advice) from None


def load_profile(folder: Path) -> Profile:
    """Read the last profile from the folder, the project's `state_dir`.

    Raises:
        RunError: GBE687 when there is none, or it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise RunError("GBE687", reason=f"there is no {os.path.relpath(path)}")
    try:
        return decode_versioned(read_plain(path), Profile, VERSION)
    except (OSError, msgspec.DecodeError) as error:
        raise RunError("GBE687", reason=f"{os.path.relpath(path)} cannot be read ({error})") from None


def sort_rows(profile: Profile, key: SortKey) -> list[Row]:
    """Return the rows sorted by a column: names alphabetically, numbers from the largest."""
    if key == "name":
        return sorted(profile.handlers, key=lambda row: row.name)
    field = key if key in ("count", "failed") else f"{key}_s"
    return sorted(profile.handlers, key=lambda row: (-float(getattr(row, field)), row.name))
