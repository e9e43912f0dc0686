"""A process on the same machine is known to have ended; of any other, nothing is claimed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphbus_core.ledger.processes import has_ended, own_identity

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="identities are known on Linux only"),
    pytest.mark.measures_children,
]


def test_a_process_has_ended_when_it_was_killed_even_if_nobody_has_waited_for_it() -> None:
    code = "from graphbus_core.ledger.processes import own_identity; print(own_identity(), flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        identity = process.stdout.readline().strip()
        assert not has_ended(identity)
        process.kill()
        while process.stdout.read():
            pass
        process_is_gone = has_ended(identity) or process.wait() or has_ended(identity)
        assert process_is_gone
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert has_ended(identity)


def test_this_process_runs() -> None:
    assert own_identity()
    assert not has_ended(own_identity())


def test_a_number_that_is_used_again_is_another_process() -> None:
    assert has_ended(own_identity() + "1")


@pytest.mark.parametrize("identity", ["", "other-boot pid:[1] 1 2"])
def test_nothing_is_claimed_of_other_machines(identity: str) -> None:
    assert not has_ended(identity)
