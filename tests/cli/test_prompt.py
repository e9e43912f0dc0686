"""`graphbus run -i`: at a real pseudo terminal, and fed from a pipe."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.cli.running.prompt import read_data
from graphbus_core.schema.types import INT, STR, Field, Schema
from tests.fakes.typing_person import CTRL_C, CTRL_D, TAB, UP, Person
from tests.patience import PATIENCE_S
from tests.project_files import write_project

SHOP = """
    import pathlib, signal, threading, time
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class Shop(GraphBusNode):
        def on_start(self):
            self.sold = 0
            self.ended = threading.Event()

        def on_stop(self):
            self.ended.set()
            self.log("closed")

        @schema_method(input_schema={"sku": str, "count": int}, output_schema={"sold": int})
        def sell(self, sku: str, count: int) -> dict:
            if count < 0:
                raise ValueError("less than nothing")
            self.sold += count
            self.publish("/Shop/Sold", {"sku": sku, "count": count})
            return {"sold": self.sold}

        @schema_method(input_schema={})
        def dream(self) -> None:
            self.log("dreams")
            time.sleep(600)

        @schema_method(input_schema={})
        def murmur(self) -> None:
            threading.Thread(target=self._murmur, daemon=True).start()

        def _murmur(self):
            while not self.ended.wait(0.2):
                self.log("hm")

        @schema_method(input_schema={"flag": str})
        def sell_later(self, flag: str) -> None:
            def sell():
                while not pathlib.Path(flag).exists() and not self.ended.wait(0.01):
                    pass
                self.publish("/Shop/Sold", {"sku": "later", "count": 1})
            threading.Thread(target=sell, daemon=True).start()

        @schema_method(input_schema={})
        def end_unnoticed(self) -> None:
            threading.Thread(target=self._end_unnoticed, daemon=True).start()

        def _end_unnoticed(self):
            time.sleep(0.5)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # noted, but no call of the main thread is interrupted

        @schema_method(input_schema={})
        def leave(self) -> None:
            raise SystemExit(3)
    """
CLOCK = """
    import asyncio
    from graphbus_core import GraphBusNode, schema_method

    class Clock(GraphBusNode):
        @schema_method(input_schema={}, output_schema={})
        async def dream(self):
            self.log("dreams")
            await asyncio.sleep(600)
    """
STOCK = """
    from graphbus_core import GraphBusNode, subscribe

    class Stock(GraphBusNode):
        @subscribe("/Shop/Sold")
        def on_sold(self, sku: str, count: int) -> None:
            if sku == "ghost":
                raise KeyError(sku)
            if sku == "last":
                raise SystemExit(3)
            self.log(f"{count} x {sku} gone")

        @subscribe("/Price/Asked")
        def on_asked(self, sku: str) -> dict:
            if sku == "ghost":
                raise KeyError(sku)
            return {"price": 3}
    """
FILES = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/__init__.py": "",
    "agents/shop.py": SHOP,
    "agents/stock.py": STOCK,
    "agents/clock.py": CLOCK,
}
READY = "graphbus> "
STOPPED = "(graphbus) "
pytestmark = [pytest.mark.slow, pytest.mark.measures_children]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_project(tmp_path_factory.mktemp("shop"), FILES)
    build_graph(root / "agents")
    return root


def piped(shop: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphbus_core", "run", "-i", *options]
    return subprocess.run(
        command, cwd=shop, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_lines_of_a_pipe_are_done_one_after_the_other(shop: Path) -> None:
    done = piped(
        shop, '# a remark\n\ncall Shop.sell sku=mug count=2\ncall Shop.sell {"sku": "mug", "count": 1}\nstats\n'
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2:4] == ['{"sold": 2}', '{"sold": 3}']
    assert "2 events published" in done.stdout
    assert "graphbus>" not in done.stdout
    assert done.stderr.splitlines() == ["[Stock] 2 x mug gone", "[Stock] 1 x mug gone", "[Shop] closed"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("calll Shop.sell", "There is no command 'calll'. Did you mean 'call'?"),
        ("call Shop", "Agent.method"),
        ("call Shop.sel", "Did you mean 'sell'?"),
        ("call Shop.sell sku=mug", "count: expected int, got nothing"),
        ("call Shop.sell [1]", "the arguments must be a JSON object"),
        ('call Shop.sell {"sku": ', "is neither JSON nor key=value"),
        ("call Shop.sell sku='mug", "No closing quotation"),
        ("call Shop.sell sku=mug count", "'count' has no ="),
        ("call Shop.sell sku=mug count=-1", "Shop.sell failed: ValueError: less than nothing"),
        ("publish", "it needs a topic"),
        ("publish /Shop/Solt {}", "Did you mean '/Shop/Sold'?"),
        ("request /Price/Asked sku=ghost", "The request of /Price/Asked failed: KeyError: 'ghost'"),
        ("history many", "is not a number"),
        ("trace 12345", "The trace contains no event 12345"),
        ("log loud", "the levels are"),
        ("break Shop.sell", "there is no terminal"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_message_without_a_traceback(
    shop: Path, line: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "stdin", StringIO(f"{line}\ncall Shop.sell sku=mug count=1\n"))
    status = main(["run", "-i"])
    written = capsys.readouterr()
    assert '{"sold": 1}' in written.out
    assert message in written.err
    assert "Traceback" not in written.err
    assert (status, "GraphBus refused 1 of 2 input lines" in written.err) == (7, True)


def test_a_handler_that_fails_after_a_pipe_is_an_exit_status(shop: Path) -> None:
    done = piped(shop, "publish /Shop/Sold sku=ghost count=1\ndead\n")
    assert done.returncode == 7
    assert "1 event, 1 delivery, 1 failed: see `dead`" in done.stdout
    assert "KeyError: 'ghost'" in done.stdout
    assert "GBE630" in done.stderr
    assert "Traceback" not in done.stderr


def test_everything_can_be_looked_at(shop: Path) -> None:
    lines = (
        "call Shop.sell sku='big mug' count=2",
        "nodes",
        "topics",
        "history",
        "dead",
        "trace",
        "trace last",
        "log debug",
        "help",
        "request /Price/Asked sku=mug",
        "publish /Shop/Sold sku=ghost count=1",
        "dead replay",
        "quit",
        "foo",
    )
    done = piped(shop, "\n".join(lines))
    for text in (
        "sell(sku: str, count: int)",
        '{"sku": "big mug", "count": 2}',
        "No dead letters.",
        "└─ Stock.on_sold",
        "Log level: debug",
        "Stop the graph and leave.",
        '{"price": 3}',
        "1 dead letter delivered once more, 1 failed again",
    ):
        assert text in done.stdout
    assert "foo" not in done.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("3", 3),
        ('{"a": 1}', {"a": 1}),
        ("order_id=1001 count=3 paid=true", {"order_id": "1001", "count": 3, "paid": True}),
        ("order_id='10 01' count=many", {"order_id": "10 01", "count": "many"}),
        ('order_id= lines=\'[{"sku": "a b"}]\'', {"order_id": "", "lines": [{"sku": "a b"}]}),
    ],
)
def test_data_is_json_or_pairs_and_text_where_the_schema_wants_text(text: str, value: object) -> None:
    assert read_data(text, Schema((Field("order_id", STR), Field("count", INT)))) == value


@pytest.mark.parametrize("options", [["--entrypoint", "a:b"], ["--json"]])
def test_options_that_contradict_the_prompt_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-i", *options]) == 2
    assert "GBE132" in capsys.readouterr().err


def test_a_person_completes_words_and_arguments(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.keys("ca\tShop.se\t")
        person.sees("call Shop.sell")
        person.presses(CTRL_C, READY)
        person.keys("call Shop.sell sk\t")
        person.sees("sku=")
        person.types("mug count=1")
        person.sees('{"sold": 1}')
        person.keys("publish /Sh\t")
        person.sees("/Shop/Sold ")
        person.types("sku=a count=1")
        person.sees("1 event, 1 delivery")
        for line, offered in (("break Stock.on_s", "Stock.on_sold"), ("log de", "debug"), ("nodes Sh", "Shop")):
            person.keys(line)
            person.presses(TAB, offered)
            person.presses(CTRL_C, READY)
        assert person.leaves(CTRL_D) == 0


def test_what_was_typed_is_kept_for_the_next_time_and_for_nobody_else(shop: Path) -> None:
    history = shop / ".graphbus/state/prompt_history"
    for _ in range(2):
        with Person(["run", "-i"], shop) as person:
            person.sees(READY)
            person.types("call Shop.sell sku=cup count=1")
            person.sees("sold")
            person.types("quit")
            assert person.leaves() == 0
        assert "call Shop.sell sku=cup count=1\nquit\n" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.keys(UP)
        person.keys(UP)
        person.sees("sku=cup")
        person.types("")
        person.sees("sold")


def test_a_history_that_cannot_be_read_is_said_and_left_alone(shop: Path) -> None:
    history = shop / ".graphbus/state/prompt_history"
    history.unlink(missing_ok=True)
    history.mkdir(parents=True)  # permissions are none to an administrator
    try:
        with Person(["run", "-i"], shop) as person:
            person.sees(READY)
            assert person.leaves(CTRL_D) == 0
        assert "The history could not be stored: " in person.seen
    finally:
        history.rmdir()


def test_an_event_is_not_waited_for_longer_than_what_comes_of_it(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.types("call Clock.dream")
        person.sees("[Clock] dreams")
        person.presses(CTRL_C, "Interrupted.")
        person.types("publish /Shop/Sold sku=cup count=1")
        person.sees("1 event, 1 delivery\n", timeout_s=PATIENCE_S)


def test_a_signal_that_interrupts_no_reading_is_noticed_all_the_same(shop: Path) -> None:
    """As one that comes in the instant in which the prompt appears: Python has noted it before the reading began."""
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.types("call Shop.end_unnoticed")
        person.sees(READY)
        person.sees("[Shop] closed")
        assert person.leaves() == 0


def test_a_signal_that_interrupts_no_reading_from_a_pipe_is_noticed_all_the_same(shop: Path) -> None:
    command = [sys.executable, "-m", "graphbus_core", "run", "-i"]
    with subprocess.Popen(
        command, cwd=shop, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("call Shop.end_unnoticed\n")
        process.stdin.flush()
        try:
            assert process.wait(timeout=PATIENCE_S) == 0
            assert "[Shop] closed" in process.stderr.read()
        finally:
            process.kill()


def test_ctrl_c_interrupts_a_handler_and_the_prompt_comes_back(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.types("call Shop.dream")
        person.sees("[Shop] dreams")
        person.presses(CTRL_C, "Interrupted.")
        person.sees(READY)
        person.types("call Shop.sell sku=mug count=4")
        person.sees('{"sold": 4}')
        assert person.leaves(CTRL_D) == 0
        assert "[Shop] closed" in person.seen
        assert "Traceback" not in person.seen


def test_a_log_line_of_another_thread_goes_above_the_line_that_is_typed(shop: Path) -> None:
    with Person(["run", "-i", "--break", "Shop.sell"], shop) as person:
        person.sees(READY)
        person.types("call Shop.murmur")
        person.sees("null")
        person.sees(READY)
        person.keys("call Shop.se")
        person.sees("[Shop] hm\n")
        person.sees("graphbus> call Shop.se")
        person.types("ll sku=mug count=4")
        person.sees(STOPPED)
        person.keys("p cou")
        person.sees("[Shop] hm\n(graphbus) p cou")
        person.types("nt + 38")
        person.sees("42")
        assert "(graphbus) [Shop]" not in person.seen
        person.types("c")
        person.sees('{"sold": ')


@pytest.mark.parametrize(
    ("line", "options"),
    [("call Shop.leave", []), ("publish /Shop/Sold sku=last count=1", ["--serve", "--port", "0"])],
)
def test_a_handler_that_ends_the_process_ends_it_in_good_order(shop: Path, line: str, options: list[str]) -> None:
    with Person(["run", "-i", *options], shop) as person:
        person.sees(READY)
        person.types(line)
        assert person.leaves() == 3
        assert "[Shop] closed" in person.seen
        assert "Traceback" not in person.seen


def test_a_breakpoint_of_another_thread_waits_for_the_line_that_is_typed(shop: Path, tmp_path: Path) -> None:
    flag = tmp_path / "sell"
    with Person(["run", "-i", "--break", "Stock.on_sold"], shop) as person:
        person.sees(READY)
        person.types(f"call Shop.sell_later flag={flag}")
        person.sees("null")
        person.sees(READY)
        person.keys("help")
        person.sees("help")
        flag.touch()
        person.sees("Stopped before Stock.on_sold. Press Enter to go there.\ngraphbus> help")
        person.types("")
        person.sees(STOPPED)
        person.types("p sku")
        person.sees("'later'")
        person.types("c")
        person.sees("[Stock] 1 x later gone")
        person.types("call Shop.sell sku=mug count=4")
        person.sees(STOPPED)
        person.types("q")
        person.sees(READY)
        person.types("break off")
        person.sees("Stops before: nothing")
        assert person.leaves(CTRL_D) == 0


def test_a_breakpoint_without_a_prompt_stops_a_run_with_an_end(shop: Path) -> None:
    publish = ["--publish", "/Shop/Sold", '{"sku": "mug", "count": 1}']
    with Person(["run", "--break", "Stock.on_sold", *publish], shop) as person:
        person.sees("Stopped before Stock.on_sold")
        person.sees(STOPPED)
        person.presses(CTRL_C, "--KeyboardInterrupt--")
        person.types("c")
        person.sees("1 x mug gone")
        assert person.leaves() == 0
    with Person(["run", "--break", "Stock.on_sold", *publish], shop) as person:
        person.sees(STOPPED)
        person.types("q")
        assert person.leaves() == 130
        assert "[Shop] closed" in person.seen


@pytest.mark.parametrize("options", [[], ["-i", "--publish", "/Shop/Sold", '{"sku": "ghost", "count": 1}']])
def test_who_leaves_the_debugger_alone_gets_the_terminal_back_as_it_was(shop: Path, options: list[str]) -> None:
    main = "def run(graph):\n    graph.call('Shop', 'sell_later', flag='.')\n    graph.node('Shop').ended.wait(60)\n"
    (shop / "main.py").write_text(main)
    (shop / "pyproject.toml").write_text("[tool.graphbus.runtime]\ngrace_s = 0.3\n")
    entry = [] if options else ["--entrypoint", "main:run"]
    with Person(["run", "--break", "Stock.on_sold", *options, *entry], shop) as person:
        person.sees(STOPPED)
        person.kill(signal.SIGTERM)
        assert person.leaves() in (0, 143)
        assert person.has_echo


def test_a_breakpoint_needs_a_terminal_and_a_handler(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--break", "Stock.on_sold"]) == 2
    assert "GBE158" in capsys.readouterr().err
    with Person(["run", "--break", "Stock.on_sol"], shop) as person:
        assert person.leaves() == 7
        assert "Did you mean 'Stock.on_sold'?" in " ".join(person.seen.split())
