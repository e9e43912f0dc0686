"""The log of a running graph: loaded with the first line, shown from the first line on, and gone afterwards."""

from __future__ import annotations

import logging
import subprocess
import sys
from io import StringIO

import pytest

from graphbus_core.hosting.logs import show_logs
from graphbus_core.log import Log
from tests.patience import PATIENCE_S

LATE = """
import sys
from graphbus_core import GraphBusNode, connect
from graphbus_core.hosting.logs import show_logs
from graphbus_core.log import set_up_if_loaded

class Shop(GraphBusNode):
    def on_start(self):
        {does}

with show_logs(sys.stdout), connect(Shop):
    assert ("logging" in sys.modules) is {is_loaded}
"""


def run(does: str, *, is_loaded: bool) -> str:
    code = LATE.format(does=does, is_loaded=is_loaded)
    finished = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_who_says_nothing_loads_no_logging() -> None:
    assert run("pass", is_loaded=False) == ""


def test_the_first_line_is_shown() -> None:
    assert run("self.log('open at %d', 9)", is_loaded=True) == "[Shop] open at 9\n"


def test_many_threads_may_write_the_first_line_at_once() -> None:
    does = (
        "from threading import Thread; "
        "all_of = [Thread(target=self.log, args=('here',)) for _ in range(20)]; "
        "[each.start() for each in all_of]; [each.join() for each in all_of]"
    )
    assert run(does, is_loaded=True) == "[Shop] here\n" * 20


def test_a_level_that_a_module_of_the_project_has_set_counts() -> None:
    does = "import logging; logging.getLogger('graphbus').setLevel('ERROR'); self.log('open')"
    assert run(does, is_loaded=True) == ""


def test_a_module_that_logs_under_our_names_is_shown_without_a_line_of_ours() -> None:
    does = "import logging; set_up_if_loaded(); logging.getLogger('graphbus.agent.Shop').info('open')"
    assert run(does, is_loaded=True) == "[Shop] open\n"


def test_logging_is_afterwards_as_it_was() -> None:
    logger, stream = logging.getLogger("graphbus"), StringIO()
    before = logger.level, logger.propagate, list(logger.handlers)
    with show_logs(stream):
        Log("graphbus.bus").warning("it %s", "rains")
    assert stream.getvalue() == "[WARNING] it rains\n"
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_line_bears_the_place_of_who_writes_it(caplog: pytest.LogCaptureFixture) -> None:
    Log("graphbus.bus").error("it snows", exc_info=ValueError("cold"))
    (record,) = caplog.records
    assert (record.filename, record.levelname) == ("test_logs.py", "ERROR")
    assert record.exc_info is not None
