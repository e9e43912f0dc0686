"""Breakpoints: where they stop, what the debugger says there, and what becomes of the delivery. Input comes from a text."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.breakpoints import Breakpoints, check_names

Typed = Callable[..., str]


class First(GraphBusNode):
    total = 0

    @subscribe("/Number/Said")
    def on_said(self, event) -> None:
        doubled = event["n"] * 2
        self.total += doubled
        self.publish("/Number/Doubled", {"n": doubled})

    @schema_method(input_schema={"n": int})
    def add(self, n: int) -> None:
        self.total += n


class Second(GraphBusNode):
    seen = 0

    @subscribe("/Number/Doubled")
    async def on_doubled(self, n) -> None:
        await asyncio.sleep(0)
        self.seen = n

    @subscribe("/Number/Said")
    def on_said(self) -> None:
        self.heard = True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run a graph, with these lines at the debugger; the result is what it has said, and the graph is kept."""

    def run(*lines: str, at: str = "First.on_said", work=None, **options) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        breakpoints = Breakpoints([at], **options)
        with connect(First, Second, middleware=[breakpoints], on_error="isolate") as graph:
            run.graph, run.breakpoints = graph, breakpoints
            (work or (lambda: graph.publish("/Number/Said", {"n": 3})))()
            run.letters = graph.bus.dead_letters()
            run.total, run.seen = graph.node("First").total, graph.node("Second").seen
        return capsys.readouterr().out

    return run


def test_it_stops_at_the_first_line_of_the_handler_and_says_where(typed: Typed) -> None:
    said = typed("p self.total", "n", "p doubled", "doubled = 50", "c")
    assert "Stopped before First.on_said" in said
    assert "/Number/Said" in said
    assert '{"n":3}' in said
    assert 'doubled = event["n"] * 2' in said
    assert "\n(graphbus) 6\n" in said
    assert (typed.total, typed.seen) == (50, 50)


def test_an_async_handler_is_stepped_through_and_says_what_has_caused_its_event(typed: Typed) -> None:
    said = typed("event", "n", "p self.seen", "c", at="Second.on_doubled")
    assert "Event('/Number/Doubled'" in said
    assert "causes   /Number/Said > First.on_said" in said
    assert "-> self.seen = n\n(graphbus) 0\n" in said
    assert typed.seen == 6


def test_skip_makes_a_dead_letter_and_the_others_still_get_the_event(typed: Typed) -> None:
    typed("skip")
    (letter,) = typed.letters
    assert letter.subscription == "First.on_said"
    assert "GBE681" in letter.error
    assert typed.total == 0
    assert typed.graph.node("Second").heard


@pytest.mark.parametrize("word", ["q", ""])
def test_quit_and_the_end_of_the_input_leave_as_ctrl_c_does_and_stop_nowhere_else(typed: Typed, word: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed(*[word] * bool(word))
    assert typed.breakpoints.names == set()


def test_a_method_that_is_called_stops_as_well_and_skipping_it_is_an_error_for_its_caller(typed: Typed) -> None:
    def call() -> None:
        typed.graph.call("First", "add", n=5)
        with pytest.raises(RunError) as refused:
            typed.graph.call("First", "add", n=5)
        assert refused.value.code == "GBE681"

    said = typed("p n", "c", "skip", at="First.add", work=call)
    assert 'arguments  {"n":5}' in said
    assert typed.total == 5


def test_a_graph_without_a_breakpoint_in_the_way_is_not_stopped(typed: Typed) -> None:
    assert typed(at="First.other") == ""
    assert sys.gettrace() is None or "Debugger" not in repr(sys.gettrace())


def test_a_name_that_nobody_has_is_refused_with_the_nearest() -> None:
    check_names(["A.b"], ["A.b", "A.c"])
    with pytest.raises(RunError, match=r"GBE682") as refused:
        check_names(["A.bb"], ["A.b", "A.c"])
    assert "Did you mean 'A.b'?" in str(refused.value)
