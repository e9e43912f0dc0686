"""Profile: an instrument that measures how long each handler and method takes, in a bounded amount of memory.

Durations go into a histogram whose steps grow by 4.4 %: a percentile is at most 2.2 % from the duration that it stands for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import log2
from pathlib import Path
from time import perf_counter_ns, time
from typing import Literal

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.middleware import Handling, Kind
from graphbus_core.store.folders import read_plain
from graphbus_core.store.reading import decode_versioned
from graphbus_core.store.writing import write_atomic

FILE = "profile.json"
VERSION = 1

_STEPS = 16  # of an octave
_OCTAVES = 48  # three days of nanoseconds

SortKey = Literal["total", "count", "mean", "p50", "p99", "max", "failed", "name"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one handler or method. Durations of `async def` include the time in which it waited.

    Attributes:
        name: `Agent.method`.
        failed: How many raised; they are counted and measured as the others.
        share: Its part of the time of all of them, 0 to 1.
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
    """`profile.json`: one run.

    Attributes:
        began: Seconds since the epoch.
        wall_s: From the first look at the clock to the last.
        handlers: By total time, longest first.
    """

    schema_version: int = VERSION
    began: float
    wall_s: float
    handlers: tuple[Row, ...]


class _Measured:
    __slots__ = ("count", "failed", "histogram", "kind", "max_ns", "name", "total_ns")

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.count = self.failed = self.total_ns = self.max_ns = 0
        self.histogram = [0] * (_STEPS * _OCTAVES)

    def add(self, duration_ns: int) -> None:
        self.count += 1
        self.total_ns += duration_ns
        self.max_ns = max(duration_ns, self.max_ns)
        self.histogram[min(int(log2(duration_ns or 1) * _STEPS), _STEPS * _OCTAVES - 1)] += 1

    def quantile_ns(self, fraction: float) -> float:
        """Give the middle of the step that holds this one of the sorted durations; never more than the longest."""
        rank = max(1, -(-self.count * fraction // 1))
        seen = 0
        for step, count in enumerate(self.histogram):
            seen += count
            if seen >= rank:
                return min(2 ** ((step + 0.5) / _STEPS), float(self.max_ns))
        return float(self.max_ns)

    def row(self, all_ns: int) -> Row:
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
    """Middleware that measures. It holds 6 KiB for each handler and method that was ever called, however often that was."""

    def __init__(self) -> None:
        self._measured: dict[str, _Measured] = {}
        self._began = time()
        self._began_ns = perf_counter_ns()

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Measure what is handled."""
        measured = self._measured.get(handling.name)
        if measured is None:
            measured = self._measured.setdefault(handling.name, _Measured(handling.name, handling.kind))
        began, failed = perf_counter_ns(), 1
        try:
            yield
            failed = 0
        finally:
            measured.add(perf_counter_ns() - began)
            measured.failed += failed

    def profile(self) -> Profile:
        """Give what was measured so far."""
        measured = [each for each in list(self._measured.values()) if each.count]
        all_ns = sum(each.total_ns for each in measured)
        rows = (each.row(all_ns) for each in sorted(measured, key=lambda each: -each.total_ns))
        return Profile(began=self._began, wall_s=(perf_counter_ns() - self._began_ns) / 1e9, handlers=tuple(rows))


def save_profile(profile: Profile, folder: Path) -> None:
    """Write `profile.json` into the `state_dir`, all or nothing.

    Raises:
        RunError: GBE683 when it cannot be written.
    """
    try:
        write_atomic(folder / FILE, msgspec.json.format(msgspec.json.encode(profile), indent=2) + b"\n")
    except OSError as error:
        raise RunError("GBE683", what="The profile", reason=error.strerror or str(error)) from None


def load_profile(folder: Path) -> Profile:
    """Read the profile of the last run that made one.

    Raises:
        RunError: GBE687 when there is none, or when it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise RunError("GBE687", reason=f"there is no {os.path.relpath(path)}")
    try:
        return decode_versioned(read_plain(path), Profile, VERSION)
    except (OSError, msgspec.DecodeError) as error:
        raise RunError("GBE687", reason=f"{os.path.relpath(path)} cannot be read ({error})") from None


def sort_rows(profile: Profile, key: SortKey) -> list[Row]:
    """Sort by one of the columns: names from A, all else from the largest."""
    if key == "name":
        return sorted(profile.handlers, key=lambda row: row.name)
    field = key if key in ("count", "failed") else f"{key}_s"
    return sorted(profile.handlers, key=lambda row: (-float(getattr(row, field)), row.name))
