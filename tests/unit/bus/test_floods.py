"""A handler that always fails does not flood the log, and the place of a failure is a line of the user's."""

from __future__ import annotations

import json
import logging
import urllib.request
from pathlib import Path

import pytest

from graphbus_core import Event
from graphbus_core.bus import MessageBus, dead_letters
from graphbus_core.model.deliveries import DeliveryPolicy


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(dead_letters, "monotonic", lambda: time[0])
    return time


def fail(event: Event) -> None:
    raise ValueError(f"bad {event['n']}")


def test_the_first_failures_are_logged_whole_and_then_one_line_an_interval(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with MessageBus(dead_letters=5_000) as bus:
        bus.subscribe("/A/B", fail, name="Agent.fail")
        for n in range(1_000):
            bus.publish("/A/B", {"n": n})
        whole = [each for each in caplog.records if each.exc_info]
        assert len(whole) == len(caplog.records) == 10
        now[0] += 10
        bus.publish("/A/B", {"n": 1_000})
        line = caplog.records[-1]
        assert line.getMessage().endswith("ValueError: bad 1000; 991 times since the last such line")
        assert line.exc_info is None
        assert bus.statistics().failed == bus.statistics().dead_letters == len(bus.dead_letters()) == 1_001
        assert all(letter.traceback for letter in bus.dead_letters())
        bus.publish("/A/B", {"n": 1_001})
    assert caplog.records[-1].getMessage().endswith("ValueError: 1 more failures that were not logged")


def test_another_failure_and_the_same_one_at_another_time_are_logged_whole(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with MessageBus() as bus:
        bus.subscribe("/A/B", fail, name="Agent.fail")
        for n in range(10):
            bus.publish("/A/B", {"n": n})
        bus.publish("/A/B", {})
        assert [each.exc_info is not None for each in caplog.records] == [True] * 11
        now[0] += 60
        bus.publish("/A/B", {"n": 0})
        assert caplog.records[-1].exc_info


def test_attempts_and_what_goes_no_further_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with MessageBus(max_hops=0) as bus:
        bus.subscribe("/A/B", fail, name="Agent.fail", policy=DeliveryPolicy(retries=1, backoff_s=3600))
        bus.subscribe("/A/Loop", lambda: bus.publish("/A/Child"), name="Agent.loop")
        for n in range(100):
            bus.publish("/A/B", {"n": n})
            bus.publish("/A/Loop")
        assert len(caplog.records) == 20
        bus.close(grace_s=0)


def test_the_kinds_of_failures_that_are_remembered_are_bounded() -> None:
    floods = dead_letters._LogLimiter()
    for number in range(3_000):
        floods.count(str(number))
    assert len(floods._kinds) == 1_000


def test_the_place_of_a_failure_is_the_innermost_line_of_the_user() -> None:
    def reads(event: Event) -> None:
        json.loads("{")  # raises inside of the standard library

    def opens(event: Event) -> None:
        urllib.request.urlopen("nonsense:nothing")

    with MessageBus() as bus:
        bus.subscribe("/A/B", reads, name="reads")
        bus.subscribe("/A/B", opens, name="opens")
        bus.publish("/A/B")
        places = {each.subscription: each.place for each in bus.dead_letters()}
    assert places == {
        "reads": f"{__file__}:{reads.__code__.co_firstlineno + 1}",
        "opens": f"{__file__}:{opens.__code__.co_firstlineno + 1}",
    }


def test_where_no_line_is_the_users_the_innermost_that_is_not_ours_counts(tmp_path: Path) -> None:
    with MessageBus() as bus:
        bus.subscribe("/A/B", json.JSONDecoder().decode, name="borrowed", shape="payload")
        bus.publish("/A/B", {"s": "{"})
        (letter,) = bus.dead_letters()
    assert "/json/decoder.py:" in letter.place


def test_the_lines_are_errors_and_warnings_of_the_log_of_the_bus(caplog: pytest.LogCaptureFixture) -> None:
    with MessageBus() as bus, caplog.at_level(logging.WARNING):
        bus.subscribe("/A/B", fail, name="Agent.fail", policy=DeliveryPolicy(retries=1, backoff_s=0))
        bus.publish("/A/B", {"n": 1})
        assert bus.settle(60)
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR"]
