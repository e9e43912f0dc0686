"""One handler's failure is its own: what others get, what is remembered, and what goes up nevertheless."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.isolation import attempt, run_each
from graphbus_core.model.deliveries import DeliveryPolicy


def fail(event: Event) -> None:
    raise ValueError(f"bad {event['n']}")


def test_a_failing_handler_stops_neither_the_others_nor_the_publisher() -> None:
    bus = MessageBus()
    log: list[str] = []
    bus.subscribe("/A/B", lambda: log.append("before"))
    bus.subscribe("/A/B", fail)
    bus.subscribe("/A/B", lambda: log.append("after"))
    bus.publish("/A/B", {"n": 1})
    bus.publish("/A/B", {"n": 2})
    assert log == ["before", "after"] * 2


class BadNotes(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise ValueError("no notes")


class Liar(Exception):
    def __getattribute__(self, name: str) -> object:
        raise ValueError(name)


class Nameless(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__name__":
            raise ValueError(name)
        return type.__getattribute__(cls, name)


class Unnamed(Exception, metaclass=Nameless):
    """Its class does not say what it is called."""


@pytest.mark.parametrize("dispatcher", [False, True])
@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("kind", ["notes", "liar", "unnamed", "syntax"])
def test_an_exception_that_cannot_be_described_is_the_affair_of_its_handler(
    kind: str, retries: int, dispatcher: bool
) -> None:
    log: list[str] = []
    make: dict[str, Callable[[], Exception]] = {
        "notes": BadNotes,
        "liar": Liar,
        "unnamed": Unnamed,
        "syntax": lambda: SyntaxError("x", ("f", "a", "b", 3)),  # type: ignore[arg-type]
    }

    def fails(event: Event) -> None:
        raise make[kind]()

    with MessageBus(dispatcher=dispatcher) as bus:
        bus.subscribe("/A/B", fails, name="Agent.fails", policy=DeliveryPolicy(retries=retries, backoff_s=0))
        bus.subscribe("/A/B", lambda: log.append("after"))
        bus.publish("/A/B", {"n": 1})
        assert bus.settle(5)
        (letter,) = bus.dead_letters()
        assert (letter.subscription, letter.attempts) == ("Agent.fails", retries + 1)
        assert log == ["after"]


def test_a_failure_is_counted_and_dead_lettered_with_its_event_and_place() -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", fail, name="Agent.fail")
    bus.publish("/A/B", {"n": 1}, src="Other")
    (letter,) = bus.dead_letters()
    assert (letter.subscription, letter.reason, letter.error) == ("Agent.fail", "handler", "ValueError: bad 1")
    assert letter.event.payload == {"n": 1}
    assert letter.event.src == "Other"
    path, line = letter.place.rsplit(":", 1)
    assert path == __file__
    assert line == str(fail.__code__.co_firstlineno + 1)
    assert letter.timestamp >= letter.event.timestamp > 0
    counts = bus.statistics().subscriptions["Agent.fail <- /A/B"]
    assert (counts.delivered, counts.failed) == (1, 1)
    assert bus.statistics().failed == bus.statistics().dead_letters == 1


def test_a_failure_is_logged_with_topic_handler_event_and_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", fail, name="Agent.fail")
    with caplog.at_level(logging.ERROR):
        bus.publish("/A/B", {"n": 1})
    (record,) = caplog.records
    assert record.name == "graphbus.bus"
    for part in ("Agent.fail", "/A/B", bus.history()[0].event_id, "ValueError: bad 1"):
        assert part in record.getMessage()
    assert "Traceback" in caplog.text


def test_the_ring_of_dead_letters_forgets_the_oldest_but_counts_them() -> None:
    bus = MessageBus(dead_letters=3)
    bus.subscribe("/A/B", fail)
    for n in range(10):
        bus.publish("/A/B", {"n": n})
    assert [letter.event["n"] for letter in bus.dead_letters()] == [7, 8, 9]
    assert bus.statistics().dead_letters == 10


def test_every_one_of_many_failing_handlers_is_reported() -> None:
    bus = MessageBus()
    for number in range(100):
        bus.subscribe("/A/B", fail, name=str(number))
    bus.publish("/A/B", {"n": 1})
    assert [letter.subscription for letter in bus.dead_letters()] == [str(number) for number in range(100)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_what_is_no_exception_stops_the_delivery_keeps_the_queue_and_goes_up(kind: type[BaseException]) -> None:
    bus = MessageBus()
    log: list[str] = []

    def stop(event: Event) -> None:
        bus.publish("/A/Later")
        raise kind

    bus.subscribe("/A/B", lambda: log.append("first"))
    stopping = bus.subscribe("/A/B", stop)
    bus.subscribe("/A/B", lambda: log.append("third"))
    bus.subscribe("/A/Later", lambda: log.append("later"))
    bus.subscribe("/A/New", lambda: log.append("new"))
    with pytest.raises(kind):
        bus.publish("/A/B")
    assert log == ["first"]
    assert bus.statistics().queued == 1
    bus.unsubscribe(stopping)
    bus.publish("/A/New")
    assert log == ["first", "third", "later", "new"]
    assert bus.dead_letters() == ()


def test_an_interrupted_event_of_the_queue_goes_on_where_it_stopped() -> None:
    bus = MessageBus()
    log: list[str] = []

    def stop(event: Event) -> None:
        log.append("stop")
        raise KeyboardInterrupt

    bus.subscribe("/A/Start", lambda: [bus.publish("/A/B"), bus.publish("/A/C")])
    bus.subscribe("/A/B", stop)
    bus.subscribe("/A/B", lambda: log.append("b"))
    bus.subscribe("/A/C", lambda: log.append("c"))
    with pytest.raises(KeyboardInterrupt):
        bus.publish("/A/Start")
    bus.close()
    assert log == ["stop", "b", "c"]


def test_for_tests_the_first_exception_can_come_out_of_the_publish() -> None:
    bus = MessageBus(on_error="raise")
    bus.subscribe("/A/Start", lambda: bus.publish("/A/B", {"n": 1}))
    bus.subscribe("/A/B", fail)
    with pytest.raises(ValueError, match="bad 1"):
        bus.publish("/A/Start")
    assert len(bus.dead_letters()) == 1


def test_a_refusal_inside_a_handler_is_a_dead_letter_with_its_code() -> None:
    bus = MessageBus()
    bus.subscribe("/A/B", lambda: bus.publish("no topic"))
    bus.publish("/A/B")
    assert "[GBE610]" in bus.dead_letters()[0].error


def test_a_chain_of_events_ends_at_its_limit_with_a_trail() -> None:
    bus = MessageBus()
    seen: list[int] = []

    def loop(event: Event) -> None:
        seen.append(event.hops)
        bus.publish("/Round/Round")

    bus.subscribe("/Round/Round", loop, name="Agent.loop")
    bus.publish("/Round/Round")
    assert seen == list(range(65))
    (letter,) = bus.dead_letters()
    assert (letter.reason, letter.subscription, letter.event.hops) == ("hops", "", 65)
    assert "64" in letter.error
    assert letter.event.trail[-1] == ("/Round/Round", "Agent.loop")
    assert len(letter.event.trail) >= 50


def test_a_tree_of_events_ends_at_its_limit() -> None:
    bus = MessageBus(max_tree=100, max_hops=1000)
    seen = 0

    def double(event: Event) -> None:
        nonlocal seen
        seen += 1
        bus.publish("/Two/Each")
        bus.publish("/Two/Each")

    bus.subscribe("/Two/Each", double)
    bus.publish("/Two/Each")
    assert seen == 101
    assert {letter.reason for letter in bus.dead_letters()} == {"tree"}
    seen = 0
    bus.publish("/Two/Each")
    assert seen == 101, "each root event has a tree of its own"


def test_attempting_gives_the_result_or_the_exception() -> None:
    assert attempt(lambda: 3) == (3, None)
    assert attempt(lambda: None) == (None, None)
    result, error = attempt(lambda: 1 // 0)
    assert result is None
    assert isinstance(error, ZeroDivisionError)


def test_running_each_goes_on_after_every_failure() -> None:
    failures: list[Exception] = []
    run_each(iter([fail, print, fail]), {"n": 1}, failures.append)
    assert [str(error) for error in failures] == ["bad 1", "bad 1"]


def test_what_an_exception_says_can_be_written_to_any_log(tmp_path: Path) -> None:
    said = "half a pair \ud800, and \x1b[31mred"

    def fail_rudely() -> None:
        raise ValueError(said)

    bus = MessageBus()
    bus.subscribe("/A/B", fail_rudely, name="Agent.fail")
    log = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logging.getLogger("graphbus").addHandler(log)
    try:
        bus.publish("/A/B")
    finally:
        logging.getLogger("graphbus").removeHandler(log)
        log.close()
    (letter,) = bus.dead_letters()
    assert letter.error == r"ValueError: half a pair \ud800, and \x1b[31mred"
    written = (tmp_path / "log").read_text("utf-8")
    for text in (letter.traceback, written):
        text.encode()
        assert "\x1b" not in text
        assert "raise ValueError(said)\n" in text
        assert text.rstrip().endswith(letter.error)
