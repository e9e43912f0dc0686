"""Metrics of a running graph in the text format of Prometheus (0.0.4).

Names follow OpenTelemetry's conventions for messaging. Labels are handlers, subscribed topics, routes and statuses, so the
number of time series depends on the code of the project, not on requests or payloads.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from time import monotonic, process_time, time

import msgspec

from graphbus_core.middleware import Handling
from graphbus_core.model.deliveries import Metric, Statistics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)

Labels = Mapping[str, str]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_STATM = "/proc/self/statm"
_FILES = "/proc/self/fd"

_started = time()


class Histogram:
    """A Prometheus histogram of seconds with the buckets `BUCKETS_S`, one series for each set of labels. Thread-safe.

    Args:
        name: The name of the metric.
        meaning: Its description, for the HELP line.
    """

    def __init__(self, name: str, meaning: str) -> None:
        self.name = name
        self.meaning = meaning
        # Labels -> a count for each bucket, one for longer durations, and the sum in seconds.
        self._series: dict[tuple[tuple[str, str], ...], list[float]] = {}
        self._lock = Lock()

    def record(self, seconds: float, **labels: str) -> None:
        """Add one measurement to the series with these labels."""
        key = tuple(labels.items())
        bucket = bisect_left(BUCKETS_S, seconds)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = [0.0] * (len(BUCKETS_S) + 2)
            series[bucket] += 1
            series[-1] += seconds

    def lines(self) -> Iterator[str]:
        """Yield the lines of the histogram; none while nothing was measured."""
        with self._lock:
            copies = {key: list(series) for key, series in sorted(self._series.items())}
        if copies:
            yield from _header_lines(self.name, "histogram", self.meaning)
        for key, series in copies.items():
            labels = dict(key)
            count = 0.0  # cumulative, as Prometheus expects; `zip` leaves out the sum at the end of the series
            for bound, number in zip([*map(str, BUCKETS_S), "+Inf"], series, strict=False):
                count += number
                yield _sample_line(f"{self.name}_bucket", {**labels, "le": bound}, count)
            yield _sample_line(f"{self.name}_sum", labels, series[-1])
            yield _sample_line(f"{self.name}_count", labels, count)


class HandlerRun(msgspec.Struct, gc=False):
    """One run of a handler or method.

    Attributes:
        handling: What runs.
        since: Its start on the monotonic clock.
        until: Its end; 0 while it runs.
    """

    handling: Handling
    since: float
    until: float = 0.0


class HandlerMetrics:
    """Middleware that measures the durations of handlers and calls, and tracks which of them are running.

    Args:
        note: Called with each run that has ended without an exception, on the thread of the handler; it must be quick.
        note_failure: Called with each other run, and its exception.

    Attributes:
        begun: About how many have begun so far. Threads may overwrite each other's increments, but each start changes the number.
    """

    def __init__(
        self,
        note: Callable[[HandlerRun], object] | None = None,
        note_failure: Callable[[HandlerRun, BaseException | None], object] = lambda *_: None,
    ) -> None:
        self.begun = 0
        self._note, self._note_failure = note, note_failure
        self._process = Histogram("messaging_process_duration_seconds", "Duration of handlers.")
        self._call = Histogram("graphbus_call_duration_seconds", "Duration of called methods.")
        self._http = Histogram("http_server_request_duration_seconds", "Duration of HTTP requests.")
        self._request_counts: Counter[tuple[str, int]] = Counter()
        self._running: dict[int, HandlerRun] = {}

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Measure one handler or call, whether it succeeds or fails."""
        key, run = id(handling), HandlerRun(handling, monotonic())
        self.begun += 1
        self._running[key] = run
        has_returned = False
        try:
            yield
            has_returned = True
        finally:
            run.until = now = monotonic()
            self._running.pop(key, None)
            if handling.kind == "call":
                self._call.record(now - run.since, graphbus_method=handling.name)
            else:
                self._process.record(now - run.since, messaging_system="graphbus", graphbus_handler=handling.name)
            if not has_returned:
                self._note_failure(run, sys.exception())
            elif self._note is not None:
                self._note(run)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request and its duration. Not thread-safe: only the thread of the server may call it."""
        self._http.record(seconds, http_route=route)
        self._request_counts[route, status] += 1

    @property
    def running(self) -> int:
        """How many handlers and methods are running."""
        return len(self._running)

    def runs(self) -> list[HandlerRun]:
        """Return the handlers and methods that are running, those that began first first."""
        return sorted(self._running.copy().values(), key=lambda each: each.since)

    def lines(self) -> Iterator[str]:
        """Yield the lines of all metrics of this object."""
        yield from _family_lines(
            "graphbus_running_handlers", "gauge", "Handlers and methods that are running.", [({}, self.running)]
        )
        for histogram in (self._process, self._call, self._http):
            yield from histogram.lines()
        counts = sorted(self._request_counts.copy().items())  # a copy, because the server may add to it meanwhile
        answers = [
            ({"http_route": route, "http_response_status_code": str(status)}, number)
            for (route, status), number in counts
        ]
        yield from _family_lines(
            "graphbus_http_responses_total", "counter", "HTTP requests by route and status.", answers
        )


def render_metrics(statistics: Statistics, meter: HandlerMetrics, more: Iterable[Metric] = ()) -> bytes:
    """Return the page that `/metrics` answers with: counts of the bus, durations, figures of the process, and `more`."""
    others = (
        line for metric in more for line in _family_lines(metric.name, metric.kind, metric.meaning, metric.samples)
    )
    lines = [*_bus_lines(statistics), *others, *meter.lines(), *_process_lines()]
    return "".join(f"{line}\n" for line in lines).encode()


def _bus_lines(statistics: Statistics) -> Iterator[str]:
    """Yield the lines of the metrics of the bus."""
    system = {"messaging_system": "graphbus"}
    consumed: list[tuple[Labels, int]] = []
    failed: list[tuple[Labels, int]] = []
    for name, counts in statistics.subscriptions.items():
        handler, _, topic = name.partition(" <- ")  # the keys look like `Agent.method <- /Topic`
        labels = {**system, "messaging_destination_name": topic, "graphbus_handler": handler}
        consumed.append((labels, counts.delivered))
        failed.append((labels, counts.failed))
    families: tuple[tuple[str, str, str, list[tuple[Labels, int]]], ...] = (
        ("messaging_client_sent_messages_total", "counter", "Events published.", [(system, statistics.published)]),
        (
            "messaging_client_consumed_messages_total",
            "counter",
            "Events delivered to handlers, failures included.",
            consumed,
        ),
        ("graphbus_failed_messages_total", "counter", "Events that a handler failed on.", failed),
        ("graphbus_dead_letters_total", "counter", "Events that became dead letters.", [({}, statistics.dead_letters)]),
        ("graphbus_queued_messages", "gauge", "Events that wait.", [({}, statistics.queued)]),
    )
    for name, kind, meaning, samples in families:
        yield from _family_lines(name, kind, meaning, samples)


def _process_lines() -> Iterator[str]:
    """Yield the lines of the metrics of the process; figures that the system does not provide are left out."""
    figures = (
        ("process_start_time_seconds", "gauge", "Start of the process since the epoch.", _started),
        ("process_cpu_seconds_total", "counter", "Processor time used.", process_time()),
        ("process_resident_memory_bytes", "gauge", "Memory in use.", resident_bytes()),
        ("process_open_fds", "gauge", "Open files and connections.", _count_open_files()),
    )
    for name, kind, meaning, value in figures:
        yield from _family_lines(name, kind, meaning, [] if value is None else [({}, value)])


def resident_bytes() -> float | None:
    """Return the resident memory of this process; None where there is no /proc."""
    try:
        with open(_STATM, "rb") as statm:
            return float(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, IndexError, ValueError):
        return None


def _count_open_files() -> float | None:
    """Return the number of open files and connections of this process; None where there is no /proc."""
    try:
        return float(len(os.listdir(_FILES)))
    except OSError:
        return None


def _family_lines(name: str, kind: str, meaning: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    """Return the lines of a metric, HELP and TYPE included, from its samples (labels, value); none without samples."""
    found = [_sample_line(name, labels, value) for labels, value in samples]
    return iter([*_header_lines(name, kind, meaning), *found] if found else [])


def _header_lines(name: str, kind: str, meaning: str) -> tuple[str, str]:
    """Return the HELP and TYPE lines of a metric."""
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _sample_line(name: str, labels: Labels, value: float) -> str:
    """Return the line `name{label="text",...} value`; a whole number is written without a fraction."""
    pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    number = str(int(value)) if float(value).is_integer() and abs(value) < sys.maxsize else repr(float(value))
    return f"{name}{{{pairs}}} {number}" if pairs else f"{name} {number}"
