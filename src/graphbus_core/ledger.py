"""The ledger of a bus: which events were delivered last, and which could not be."""

from __future__ import annotations

import logging
from collections import deque
from os.path import dirname
from time import time

from graphbus_core.errors import GraphBusError
from graphbus_core.model.deliveries import DeadLetter, Reason
from graphbus_core.model.messages import Event

_log = logging.getLogger("graphbus.bus")
_OURS = dirname(__file__) + "/"


class Ledger:
    """Two rings that forget the oldest.

    Attributes:
        history: The last events, in the order of their delivery.
        dead: The last dead letters.
        dead_count: All dead letters, also those that are forgotten.
    """

    def __init__(self, history: int, dead_letters: int) -> None:
        self.history: deque[Event] = deque(maxlen=history)
        self.dead: deque[DeadLetter] = deque(maxlen=dead_letters)
        self.dead_count = 0

    def failed(self, event: Event, subscription: str, error: Exception) -> None:
        """A handler has raised: log it with its traceback, and keep the event."""
        refusal = error if isinstance(error, GraphBusError) else None
        reason = f"{refusal.sentence} [{refusal.code}]" if refusal else f"{type(error).__name__}: {error}"
        trace = None if refusal else error  # a refusal says where it is wrong; how we came there helps nobody
        _log.error("%s failed on %s (event %s): %s", subscription, event.topic, event.event_id, reason, exc_info=trace)
        self._keep(
            event, subscription, "handler", reason, place=str(refusal.where or "") if refusal else _place_of(error)
        )

    def stopped(self, event: Event, reason: Reason, why: str, subscription: str = "") -> None:
        """An event did not get to its handlers, or not to this one."""
        trail = " > ".join(f"{topic} > {handler}" for topic, handler in event.trail[-3:])
        _log.error("%s was not delivered: %s%s", event.topic, why, f"; it came from {trail}" if trail else "")
        self._keep(event, subscription, reason, why)

    def _keep(self, event: Event, subscription: str, reason: Reason, error: str, place: str = "") -> None:
        self.dead_count += 1
        letter = DeadLetter(
            event=event, subscription=subscription, reason=reason, error=error, timestamp=time(), place=place
        )
        self.dead.append(letter)


def _place_of(error: Exception) -> str:
    """Where it was raised, `file:line`: the innermost line that is not ours."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_OURS):
            place = f"{path}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
