"""Dead letters on disk: whole, bounded, and never in the way of deliveries. And once more, from Python."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core import Event, GraphBusNode, connect, subscribe
from graphbus_core.bus import MessageBus
from graphbus_core.errors import RunError
from graphbus_core.hosting import dead_letters
from graphbus_core.hosting.dead_letters import DeadLetterFile, DeadLetterKeeper
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.messages import child_of


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "dead_letters.sqlite3")


@pytest.fixture
def file(path: str) -> Iterator[DeadLetterFile]:
    with closing(DeadLetterFile(path, kept=5)) as file:
        yield file


def letter(topic: str = "/A/B", payload: Any = None, *, subscription: str = "Agent.on_b", **more: Any) -> DeadLetter:
    event = more.pop("event", None) or Event(topic, payload)
    facts: dict[str, Any] = {"reason": "handler", "error": "ValueError: x", "timestamp": 7.0, "attempts": 1} | more
    return DeadLetter(event=event, subscription=subscription, **facts)


# --- the file -------------------------------------------------------------------------------


def test_a_letter_comes_back_whole(file: DeadLetterFile) -> None:
    root = Event("/A/Root", None, "Web")
    middle = child_of(root, "/A/Middle", {"x": 1}, "One", by="One.on_root", ordinal=0)
    event = child_of(middle, "/A/B", {"items": [1, None, "ä\ud800"]}, "Two", by="Two.on_middle", ordinal=3)
    written = letter(event=event, place="agents/a.py:3", traceback="Traceback ...", first_timestamp=3.5, attempts=4)
    file.add([written])
    (kept,) = file.letters()
    assert (kept.id, kept.replays, kept.has_payload) == (1, 0, True)
    back = kept.letter
    for name in ("subscription", "reason", "error", "place", "traceback", "attempts", "first_timestamp", "timestamp"):
        assert getattr(back, name) == getattr(written, name), name
    names = ("topic", "payload", "src", "timestamp", "hops", "event_id", "causation_id", "correlation_id", "trail")
    for name in names:
        assert getattr(back.event, name) == getattr(event, name), name
    again = child_of(back.event, "/A/C", None, "", by="x", ordinal=0)
    assert again.event_id == child_of(event, "/A/C", None, "", by="x", ordinal=0).event_id
    assert again.correlation_id == root.event_id
    found = file.find(1)
    assert found is not None
    assert (found.id, found.letter.event.event_id) == (1, event.event_id)
    assert file.find(2) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_every_payload_comes_back_as_it_was(tmp_path: Path) -> None:
    with closing(DeadLetterFile(str(tmp_path / "d.sqlite3"))) as file:

        @given(JSON)
        def check(payload: Any) -> None:
            file.add([letter(payload=payload)])
            (kept,) = file.letters(limit=1)
            assert kept.letter.event.payload == payload
            assert kept.has_payload

        check()


def test_text_that_utf_8_does_not_have_is_written_escaped(file: DeadLetterFile) -> None:
    odd = "\ud800 \0 \x1b ä"
    names = ("error", "place", "traceback", "subscription")
    file.add([letter(event=Event("/A/B", {"n": odd}, odd), **dict.fromkeys(names, odd))])
    (kept,) = file.letters()
    assert kept.letter.event["n"] == odd
    assert kept.letter.event.src == "\\ud800 \0 \x1b ä"
    assert {getattr(kept.letter, name) for name in names} == {"\\ud800 \0 \x1b ä"}


def test_the_oldest_are_dropped_and_counted(file: DeadLetterFile) -> None:
    for number in range(7):
        file.add([letter(payload={"n": number})])
    assert [each.letter.event["n"] for each in file.letters()] == [2, 3, 4, 5, 6]
    assert file.dropped == 2
    assert file.remove([6, 7, 99]) == 2
    file.add([letter()])
    assert [each.id for each in file.letters()] == [3, 4, 5, 8], "no number is used twice"


def test_a_letter_that_is_handled_goes_and_one_that_fails_again_is_counted(file: DeadLetterFile) -> None:
    file.add([letter(attempts=3), letter(attempts=1)])
    first, second = file.letters()
    for each in (first, second):
        file.begin_replay(each.id)
    file.end_replay(first, [])
    file.end_replay(second, [letter(error="KeyError: 'y'", timestamp=9.0, attempts=2, traceback="new")])
    (left,) = file.letters()
    assert (left.id, left.replays) == (2, 1)
    assert (left.letter.error, left.letter.attempts, left.letter.timestamp) == ("KeyError: 'y'", 3, 9.0)
    assert left.letter.traceback == "new"


# --- while a graph runs ---------------------------------------------------------------------


def test_what_dies_in_a_graph_is_in_the_file(path: str) -> None:
    def fails(event: Event) -> None:
        raise ValueError("broken")

    keeper = DeadLetterKeeper(path)
    with MessageBus() as bus:
        bus.hosting.letters.keeper = keeper
        assert bus.hosting.letters.keeper is keeper
        bus.subscribe("/A/B", fails, name="Agent.fails")
        assert not Path(path).exists(), "the file is made for the first letter"
        bus.publish("/A/B", {"n": 1})
    keeper.close()
    with closing(DeadLetterFile(path)) as file:
        (kept,) = file.letters()
    assert kept.letter.subscription == "Agent.fails"
    assert 'raise ValueError("broken")' in kept.letter.traceback


def test_a_file_that_is_held_costs_deliveries_a_moment_and_loses_nothing(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = DeadLetterKeeper(path)
    keeper(letter(payload={"n": 0}))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    for number in range(1, 200):
        keeper(letter(payload={"n": number}))
    assert time.monotonic() - began < 3, "it is not tried again for each letter"
    assert "not saved" in caplog.text
    holder.execute("ROLLBACK")
    holder.close()
    keeper.close()
    with closing(DeadLetterFile(path)) as file:
        assert [each.letter.event["n"] for each in file.letters()] == list(range(200))


def test_a_file_that_cannot_be_made_is_told_and_stops_nothing(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(path).parent.write_text("in the way")
    monkeypatch.setattr(dead_letters, "_MOST_PENDING", 3)
    keeper = DeadLetterKeeper(path)
    with caplog.at_level(logging.ERROR, "graphbus.dead_letters"):
        for _ in range(5):
            keeper(letter())
        keeper.close()
        keeper(letter())
    told = caplog.text
    assert "1 dead letter is not saved to" in told
    assert told.count("too many wait") == 2
    assert "3 dead letters are not saved; " in told
    assert "came after the graph had stopped" in told


def test_a_disk_that_is_full_is_told_and_tried_again(path: str, caplog: pytest.LogCaptureFixture) -> None:
    keeper = DeadLetterKeeper(path)
    keeper(letter())
    assert keeper._file is not None
    with keeper._file._database.connection() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    keeper(letter(payload="x" * 100_000))
    assert "full" in caplog.text
    with keeper._file._database.connection() as connection:
        connection.execute("PRAGMA max_page_count = 100000")
    keeper.close()
    with closing(DeadLetterFile(path)) as file:
        assert len(file.numbers()) == 2


# --- once more, from Python -------------------------------------------------------------------


class Shop(GraphBusNode):
    is_down = True
    heard: list[tuple[str, str]]

    def on_start(self) -> None:
        self.heard = []

    @subscribe("/Order/Placed", retries=1, backoff=0)
    def book(self, event: Event) -> None:
        self.heard.append(("book", event.event_id))
        if self.is_down:
            raise ConnectionError("down")
        self.publish("/Parcel/Booked", {"n": 1})

    @subscribe("/Order/Placed")
    def count(self, event: Event) -> None:
        self.heard.append(("count", event.event_id))

    @subscribe("/Parcel/Booked")
    def on_booked(self, event: Event) -> None:
        self.heard.append(("booked", event.causation_id))


def test_a_dead_letter_goes_again_to_the_handler_that_failed_with_the_same_ids() -> None:
    shop = Shop()
    with connect(shop, on_error="isolate") as graph:
        graph.publish("/Order/Placed", {"order_id": "1"})
        assert graph.settle(5)
        (dead,) = graph.bus.dead_letters()
        (still,) = graph.replay_dead_letters()
        assert (still.attempts, still.event.event_id) == (2, dead.event.event_id)
        shop.is_down = False
        shop.heard.clear()
        assert graph.replay_dead_letters([dead]) == ()
        assert shop.heard == [("book", dead.event.event_id), ("booked", dead.event.event_id)]


def test_a_letter_whose_handler_is_gone_is_refused_before_anything_is_delivered() -> None:
    shop = Shop()
    with connect(shop, on_error="isolate") as graph:
        there = letter("/Order/Placed", subscription="Shop.book")
        for gone in (letter("/Order/Placed", subscription="Shop.gone"), letter("/Other/T", subscription="Shop.book")):
            with pytest.raises(RunError, match="GBE649"):
                graph.replay_dead_letters([there, gone])
        assert shop.heard == []


def test_policy_of_a_member_is_refused_at_the_start_with_its_line() -> None:
    class Wrong(GraphBusNode):
        @subscribe("/A/B", timeout=3)
        def on_b(self) -> None: ...

    class Negative(GraphBusNode):
        @subscribe("/A/B", retries=-1)
        def on_b(self) -> None: ...

    for kind in (Wrong, Negative):
        with pytest.raises(RunError) as refusal:
            connect(kind)
        assert refusal.value.code == "GBE640"
        assert str(refusal.value.where).startswith(__file__)
