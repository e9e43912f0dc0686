"""Durations and times of day as people read them."""

from __future__ import annotations

from time import localtime, strftime


def duration(seconds: float) -> str:
    """Three digits and a unit: `12.3 ms`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def clock(timestamp: float) -> str:
    """The local time of day, with milliseconds."""
    return f"{strftime('%H:%M:%S', localtime(timestamp))}.{int(timestamp % 1 * 1000):03}"
