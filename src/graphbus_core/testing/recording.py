"""What happened on a bus, in order, and assertions about it that say what there was instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import Delivery
from graphbus_core.bus.dead_letters import tell
from graphbus_core.bus.message_bus import OnError
from graphbus_core.bus.routes import Admit
from graphbus_core.clock import Clock
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.middleware import Handling, Middleware
from graphbus_core.model.config import RuntimeSettings
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import is_topic_or_pattern, matches
from graphbus_core.schema.json import Json
from graphbus_core.testing.clock import BusClock, FakeClock

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


_EVERYTHING = "/**"
_HISTORY = 100_000
_DEFAULTS = RuntimeSettings()


class Delivered(msgspec.Struct, kw_only=True):
    """One attempt to hand an event to a handler.

    Attributes:
        handler: `Agent.method`.
        attempt: 1 for the first one.
        error: What the handler raised; None when it has returned, or has not ended yet.
    """

    event: Event
    handler: str
    attempt: int
    error: BaseException | None = None

    def __enter__(self) -> None:
        """The attempt begins."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.error = error


class Recorder:
    """Middleware that writes down what goes to handlers and methods."""

    def __init__(self) -> None:
        self.deliveries: list[Delivered] = []
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Write down one attempt or call."""
        if handling.event is None:
            self.calls.append((handling.name, handling.arguments))
            yield
            return
        delivery = Delivered(event=handling.event, handler=handling.name, attempt=handling.attempt)
        self.deliveries.append(delivery)
        with delivery:
            yield

    def note_timeout(self, event: Event, handler: str, attempt: int, error: TimeoutError) -> None:
        """A time limit goes around the middleware, which hears of a cancellation only: say what the handler has failed with."""
        for each in reversed(self.deliveries):
            if each.event is event and each.handler == handler and each.attempt == attempt:
                each.error = error
                return


class Recorded:
    """What a bus or a graph that records can be asked. Topics may be patterns; all is in the order in which it happened."""

    _recorder: Recorder
    _recorded_bus: MessageBus

    def events(self, topic: str = _EVERYTHING, /) -> list[Event]:
        """The events whose delivery has begun."""
        if not is_topic_or_pattern(topic):
            raise RunError("GBE610", topic=topic, reason="it is no topic and no pattern")
        return [event for event in self._recorded_bus.history() if matches(topic, event.topic)]

    def published(self, topic: str = _EVERYTHING, /) -> list[Json]:
        """The payloads of these events."""
        return [event.payload for event in self.events(topic)]

    def deliveries(self, handler: str = "", /) -> list[Delivered]:
        """The attempts to hand events to a handler, `Agent.method`, or to those of an agent, `Agent`; to all by default."""
        return [each for each in self._recorder.deliveries if _is_of(each.handler, handler)]

    def failures(self, handler: str = "", /) -> list[Delivered]:
        """The attempts that failed, also those that were made good by a later one."""
        return [each for each in self.deliveries(handler) if each.error is not None]

    def calls(self, method: str, /) -> list[dict[str, Any]]:
        """The arguments of each call of `Agent.method`, or of the methods of `Agent`."""
        return [dict(arguments) for name, arguments in self._recorder.calls if _is_of(name, method)]

    def assert_published(self, topic: str, /, **fields: object) -> Event:
        """Give the first event of the topic whose payload has these fields.

        Raises:
            AssertionError: There is none; it says what there was.
        """
        __tracebackhide__ = True
        events = self.events(topic)
        for event in events:
            if not differences(event.payload, fields):
                return event
        if events:
            text = [f"no event on {topic}{expectation(fields)}; there were:", *near_misses(events, fields)]
        else:
            every = self.events()
            hint = suggestion(topic, {event.topic for event in every})
            text = [f"nothing was published on {topic}.{hint}", *_instead(every)]
        raise AssertionError("\n".join([*text, *_failed(self.failures())]))

    def assert_not_published(self, topic: str, /, **fields: object) -> None:
        """Prove that no event of the topic has these fields.

        Raises:
            AssertionError: There is one; it says which.
        """
        __tracebackhide__ = True
        found = [event for event in self.events(topic) if not differences(event.payload, fields)]
        if found:
            head = f"{len(found)} event{'s' * (len(found) > 1)} on {topic}{expectation(fields)}:"
            raise AssertionError("\n".join([head, *listing(found)]))

    def assert_delivered_to(self, handler: str, topic: str = _EVERYTHING, /, **fields: object) -> Delivered:
        """Give the first delivery of such an event to the handler, `Agent.method` or `Agent`, that did not fail.

        Raises:
            AssertionError: There is none; it says what the handler got instead.
        """
        __tracebackhide__ = True
        got = self.deliveries(handler)
        on_topic = [each for each in got if matches(topic, each.event.topic)]
        for each in on_topic:
            if each.error is None and not differences(each.event.payload, fields):
                return each
        wanted = f"{handler} handled no event{'' if topic == _EVERYTHING else f' on {topic}'}{expectation(fields)}"
        if on_topic:
            text = [f"{wanted}; it got:", *near_misses([each.event for each in on_topic], fields)]
        elif got:
            text = [f"{wanted}; it got:", *listing([each.event for each in got])]
        else:
            handlers = {each.handler for each in self._recorder.deliveries}
            names = handlers | {name.partition(".")[0] for name in handlers}
            text = [f"{wanted}: it got nothing.{suggestion(handler, names)}", *_instead(self.events())]
        raise AssertionError("\n".join([*text, *_failed(self.failures())]))

    def assert_called(self, method: str, /, **arguments: object) -> dict[str, Any]:
        """Give the arguments of the first call of `Agent.method`, or of a method of `Agent`, that was made with these.

        Raises:
            AssertionError: There is none; it says which calls there were.
        """
        __tracebackhide__ = True
        calls = self.calls(method)
        for each in calls:
            if not differences(each, arguments):
                return each
        every = [(name, each) for name, each in self._recorder.calls if not calls or _is_of(name, method)]
        names = {name for name, _ in every}
        hint = "" if calls else suggestion(method, names | {name.partition(".")[0] for name in names})
        head = f"nobody called {method}{expectation(arguments)}"
        text = [
            f"{head}.{hint} Calls were:" if every else f"{head}. Nothing was called at all.",
            *called(every, arguments),
        ]
        raise AssertionError("\n".join([*text, *_failed(self.failures())]))

    def assert_no_dead_letters(self) -> None:
        """Prove that every event was handled by all who hear it, if not at the first attempt.

        Raises:
            AssertionError: It says which were not, and why.
        """
        __tracebackhide__ = True
        letters = self._recorded_bus.dead_letters()
        if letters:
            head = f"{len(letters)} dead letter{'s' * (len(letters) > 1)}:"
            raise AssertionError("\n".join([head, *buried(letters)]))


class RecordingBus(Recorded, MessageBus):
    """A message bus that remembers what happened on it.

    Args:
        on_error: `raise`: the first exception of a handler comes out of the publish that caused it.
        clock: Where the bus has its time from, e.g. a `FakeClock`.
        admit: See `MessageBus`.
        middleware: What goes around every handler, outermost first.
        settings: The limits of `[tool.graphbus.runtime]`.
    """

    def __init__(
        self,
        *,
        on_error: OnError = "raise",
        clock: Clock | None = None,
        admit: Admit | None = None,
        middleware: Sequence[Middleware] = (),
        settings: RuntimeSettings = _DEFAULTS,
    ) -> None:
        self._recorder = Recorder()
        self._recorded_bus = self
        if isinstance(clock, FakeClock):
            clock = BusClock(clock, self.run)
        super().__init__(
            history=_HISTORY,
            dead_letters=_HISTORY,
            max_hops=settings.max_hops,
            max_tree=settings.max_tree,
            queue=settings.queue,
            mailbox=settings.mailbox,
            on_error=on_error,
            clock=clock,
            admit=admit,
            middleware=(self._recorder, *middleware),
        )
        self._sync.on_failure = self._note_timeout

    def _note_timeout(self, delivery: Delivery) -> None:
        if isinstance(delivery.error, TimeoutError):
            self._recorder.note_timeout(delivery.event, delivery.subscription.name, delivery.attempt, delivery.error)


def _instead(events: Sequence[Event]) -> list[str]:
    return ["Published were:", *listing(events)] if events else ["Nothing was published at all."]


def _failed(failures: Sequence[Delivered]) -> list[str]:
    """More often than not a failure is why an event is missing."""
    lines = [f"  {each.handler} on {each.event.topic}: {tell(each.error)}" for each in failures if each.error]
    return ["These handlers have failed:", *lines] if lines else []


def _is_of(name: str, wanted: str) -> bool:
    return not wanted or name == wanted or name.partition(".")[0] == wanted
