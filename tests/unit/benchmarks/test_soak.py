"""The soak: what it sends is counted, what it measures is the difference between the beginning and the end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from soak import FAIL_EVERY, Traffic, drift_bytes, soak


@pytest.mark.parametrize(
    ("samples", "drift"),
    [
        ([100], 0),
        ([100, 300], 200),
        ([300, 100], -200),
        ([10, 900, *[20] * 16, 900, 30], 10),
        ([100] * 10 + [900] + [100] * 10, 0),
    ],
)
def test_the_drift_is_between_the_first_and_the_last_tenth(samples: list[int], drift: float) -> None:
    assert drift_bytes(samples) == drift


def test_the_traffic_mixes_plain_async_nested_failing_and_repeated_events_and_loses_none() -> None:
    traffic = Traffic()
    with traffic.bus:
        traffic.send(2_000)
        assert traffic.bus.settle()
        assert traffic.heard == traffic.expected()
        assert traffic.heard["notes"] == 20
        assert traffic.heard["second attempts"] == 1
        assert traffic.bus.statistics().dead_letters == 2_000 // FAIL_EVERY


def test_a_short_soak_gives_a_rate_and_a_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak.SAMPLES", 3)  # each collects the garbage of all tests before
    rate, drift = soak(4_000)
    assert rate > 0
    assert abs(drift) < 50e6
