"""A signal ends what waits for it, also when it comes at a moment at which Python lets no exception through."""

from __future__ import annotations

import os
import signal

import pytest

from graphbus_core.hosting.signals import Stopped, stop_on_signals, wait_for_signal


class Finalised:
    """Gets the signal while it is taken down: what is raised there is only reported, and goes nowhere."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))  # the handler of the signal runs between two instructions of this method


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_finaliser_is_heard_all_the_same() -> None:
    with stop_on_signals() as patience:
        patience.is_busy = lambda: False
        doomed = Finalised()
        del doomed
        with pytest.raises(Stopped) as stopped:
            wait_for_signal()
    assert stopped.value.number == signal.SIGTERM


def wait_and_get(number: int) -> None:
    signal.raise_signal(number)
    wait_for_signal()


@pytest.mark.parametrize("before", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_of_before_ends_nobody_who_waits_later(before: signal.Signals) -> None:
    for number in (before, signal.SIGINT):
        with stop_on_signals() as patience:
            patience.is_busy = lambda: False
            with pytest.raises(Stopped) as stopped:
                wait_and_get(number)
        assert stopped.value.number == number
