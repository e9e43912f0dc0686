"""The log of a running graph: shown while it runs, and gone afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable
from io import StringIO

from graphbus_core import GraphBusNode, connect
from graphbus_core.hosting.logs import show_logs
from graphbus_core.log import Log


def written(work: Callable[[GraphBusNode], object]) -> str:
    """What is written while an agent that does this starts."""

    class Shop(GraphBusNode):
        def on_start(self) -> None:
            work(self)

    stream = StringIO()
    with show_logs(stream), connect(Shop):
        return stream.getvalue()


def test_a_line_of_an_agent_bears_its_name() -> None:
    assert written(lambda shop: shop.log("open at %d", 9)) == "[Shop] open at 9\n"


def test_a_level_that_a_module_of_the_project_has_set_counts() -> None:
    def work(shop: GraphBusNode) -> None:
        logging.getLogger("graphbus").setLevel("ERROR")
        shop.log("open")

    assert written(work) == ""


def test_logging_is_afterwards_as_it_was() -> None:
    logger, stream = logging.getLogger("graphbus"), StringIO()
    before = logger.level, logger.propagate, list(logger.handlers)
    with show_logs(stream):
        Log("graphbus.bus").warning("it %s", "rains")
    assert stream.getvalue() == "[WARNING] it rains\n"
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
