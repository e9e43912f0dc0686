"""Records what a running graph does for the view: quickly on the thread of the handler, completely on a thread of its own.

handler -> inbox (a bounded deque) -> every tick: TracedDelivery -> MemoryRecords, and a sample for those who look
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from time import monotonic, time
from typing import TypeVar, cast

from graphbus_core.hosting.instruments.trace import HandlerEnd, TracedDelivery, describe_delivery, describe_end
from graphbus_core.hosting.metrics import HandlerRun
from graphbus_core.model.messages import Event
from graphbus_core.view.letters import shorten_place
from graphbus_core.view.messages import Delivery
from graphbus_core.view.records import MemoryRecords

INBOX = 512
"""How many runs wait for the next tick at most, and as many that failed; of more, the oldest are dropped."""
SAMPLE = 50
"""How many deliveries of one tick are shown at most."""
_LARGEST_PAYLOAD = 65_536


T = TypeVar("T")
_Ended = tuple[HandlerRun, HandlerEnd]


class Recorder:
    """Takes the runs of handlers from `HandlerMetrics`, and turns them into deliveries.

    Args:
        records: Where they are kept.
        with_payloads: Keep payloads, too, up to 64 KiB each.
        redacted: The keys of payloads whose values are not shown.

    Attributes:
        note: Takes a run that has ended without an exception. It is quick, and safe from any thread.
        root: The folder of the project, to which places are relative.
    """

    def __init__(self, records: MemoryRecords, *, with_payloads: bool = False, redacted: Collection[str] = ()) -> None:
        self._records = records
        self._redacted = redacted
        self._with_payloads = with_payloads
        self._done: deque[HandlerRun] = deque(maxlen=INBOX)
        self._failed: deque[_Ended] = deque(maxlen=INBOX)
        self.note = self._done.append
        self.root = ""

    def note_failure(self, run: HandlerRun, error: BaseException | None) -> None:
        """Take a run that has ended with an exception, of which only the text is kept: its frames may hold much."""
        self._failed.append((run, describe_end(error)))

    def take(self) -> list[Delivery]:
        """Move what has come since the last call into the records, and return it in the order in which the handlers ended."""
        done = HandlerEnd()
        runs = [*((run, done) for run in _drain(self._done)), *_drain(self._failed)]
        runs.sort(key=lambda each: each[0].until)
        epoch = time() - monotonic()
        return [self._records.add(self._describe(*each, epoch)) for each in runs if each[0].handling.event is not None]

    def _describe(self, run: HandlerRun, ended: HandlerEnd, epoch: float) -> TracedDelivery:
        """Return the delivery for a run; `epoch` is the time at which the monotonic clock was 0."""
        event = cast(Event, run.handling.event)
        facts = describe_delivery(run.handling, event, ended, self._redacted, with_payload=self._with_payloads)
        if len(facts["payload"]) > _LARGEST_PAYLOAD:
            facts["payload"] = ""
        facts["place"] = shorten_place(ended.place, self.root)
        return TracedDelivery(**facts, started=epoch + run.since, duration_s=run.until - run.since)


def _drain(inbox: deque[T]) -> list[T]:
    """Remove and return what is in an inbox now; other threads may go on to append, but only this one removes."""
    return [inbox.popleft() for _ in range(len(inbox))]


def choose_sample(deliveries: Sequence[Delivery], most: int = SAMPLE) -> tuple[Delivery, ...]:
    """Return at most `most` deliveries in their order: failures and repeated attempts first, then some of each handler."""
    if len(deliveries) <= most:
        return tuple(deliveries)
    chosen = [each for each in deliveries if each.outcome != "done" or each.attempt > 1][-most:]
    by_handler: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
    known = {each.seq for each in chosen}
    for each in deliveries:
        if each.seq not in known:
            by_handler[each.handler, each.topic].append(each)
    queues = list(by_handler.values())
    while len(chosen) < most and queues:
        for queue in queues[: most - len(chosen)]:
            chosen.append(queue.pop())
        queues = [queue for queue in queues if queue]
    return tuple(sorted(chosen, key=lambda each: each.seq))
