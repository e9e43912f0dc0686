"""`graphbus run -i`: at a real pseudo terminal, and fed from a pipe."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from tests.fakes.typing_person import CTRL_C, CTRL_D, TAB, UP, Person
from tests.patience import PATIENCE_S
from tests.project_files import write_project

SHOP = """
    import pathlib, threading, time
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
        ("celebrate", "There is no command 'celebrate'."),
        ("calll Shop.sell", "Did you mean 'call'?"),
        ("call Shop", "Agent.method"),
        ("call Shp.sell", "Did you mean 'Shop'?"),
        ("call Shop.sel", "Did you mean 'sell'?"),
        ("call Shop.sell sku=mug", "count: expected int, got nothing"),
        ("call Shop.sell [1]", "arguments have names"),
        ('call Shop.sell {"sku": ', "it is not JSON"),
        ("call Shop.sell sku='mug", "is not closed"),
        ("call Shop.sell sku=mug count", "is no `key=value`"),
        ("call Shop.sell sku=mug count=-1", "Shop.sell failed: ValueError: less than nothing"),
        ("publish", "it needs a topic"),
        ("publish /Shop/Solt {}", "Did you mean '/Shop/Sold'?"),
        ("request", "it needs a topic"),
        ("request /Price/Asked sku=ghost", "The request of /Price/Asked failed: KeyError: 'ghost'"),
        ("request /Price/Asket sku=ghost", "Did you mean '/Price/Asked'?"),
        ("nodes Shap", "Did you mean 'Shop'?"),
        ("history many", "is no number"),
        ("trace 12345", "The trace knows no event 12345"),
        ("log loud", "the levels are"),
        ("break Shop.sell", "there is nobody to ask"),
        ("help calll", "Did you mean 'call'?"),
        ("h", "Did you mean 'history' or 'help'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_message_without_a_traceback(
    shop: Path, line: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import StringIO

    from graphbus_core.cli import main

    monkeypatch.chdir(shop)
    monkeypatch.setattr(sys, "stdin", StringIO(f"{line}\ncall Shop.sell sku=mug count=1\n"))
    status = main(["run", "-i"])
    written = capsys.readouterr()
    assert '{"sold": 1}' in written.out
    assert message in written.err
    assert "Traceback" not in written.err
    assert (status, "1 of 2 lines were refused" in written.err) == (7, True)


def test_a_handler_that_fails_after_a_pipe_is_an_exit_status(shop: Path) -> None:
    done = piped(shop, "publish /Shop/Sold sku=ghost count=1\ndead\n")
    assert done.returncode == 7
    assert "1 event, 1 delivery, 1 failed: see `dead`" in done.stdout
    assert "KeyError: 'ghost'" in done.stdout
    assert "GBE630" in done.stderr
    assert "Traceback" not in done.stderr


def test_everything_can_be_looked_at(shop: Path) -> None:
    lines = (
        "ca Shop.sell sku=mug count=2",
        "nodes",
        "topics",
        "history",
        "dead",
        "trace",
        "profile",
        "log debug",
        "help",
    )
    done = piped(shop, "\n".join((*lines, "help call", "quit", "foo")))
    for text in (
        "sell(sku: str, count: int)",
        "/Shop/Sold",
        '{"sku": "mug", "count": 2}',
        "No dead letters.",
        "Log level: debug",
    ):
        assert text in done.stdout
    assert "Stock.on_sold" in done.stdout
    assert "Example: call Stock.take" in done.stdout
    assert "foo" not in done.stderr


def test_a_request_is_answered_and_dead_letters_are_delivered_once_more(shop: Path) -> None:
    done = piped(shop, "request /Price/Asked sku=mug\npublish /Shop/Sold sku=ghost count=1\ndead replay\n")
    assert '{"price": 3}' in done.stdout
    assert "1 dead letter delivered once more, 1 failed again" in done.stdout


def test_the_tree_of_an_event_is_shown_by_the_beginning_of_its_id(shop: Path) -> None:
    lines = "".join(f"trace {digit}\n" for digit in "0123456789abcdef")
    done = piped(
        shop, f"publish /Shop/Sold sku=mug count=1\ntrace on\npublish /Shop/Sold sku=cup count=1\ntrace off\n{lines}"
    )
    assert done.stdout.count("└─ Stock.on_sold") in (0, 2)  # 0: both ids begin alike
    assert done.stderr.count("/Shop/Sold > Stock.on_sold") == 1
    assert done.stderr.count("GBE685") in (14, 15)


def test_work_of_the_command_line_comes_before_the_first_line(shop: Path) -> None:
    done = piped(shop, "stats\n", "--call", "Shop.sell", '{"sku": "mug", "count": 2}')
    assert done.stdout.index('{"sold":2}') < done.stdout.index("1 event published")


@pytest.mark.parametrize("options", [["--entrypoint", "a:b"], ["--json"]])
def test_options_that_contradict_the_prompt_are_refused(shop: Path, options: list[str]) -> None:
    done = piped(shop, "", *options)
    assert done.returncode == 2
    assert "GBE132" in done.stderr


def test_a_person_completes_words_and_arguments(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.keys("ca\tSh\t")
        person.sees("call Shop.")
        person.keys("sell \t")
        person.sees('{"sku": "", "count": 0}')
        person.presses(CTRL_C, READY)
        person.keys("call Shop.sell sk\t")
        person.sees("sku=")
        person.types("mug count=1")
        person.sees('{"sold": 1}')
        person.keys("publish /Sh\t")
        person.sees("/Shop/Sold ")
        person.types("sku=a count=1")
        person.sees("1 event, 1 delivery")
        person.keys("st\t")
        person.sees("stats ")
        person.types("")
        person.sees("2 events published")
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


def test_a_prompt_adds_to_what_another_one_has_kept_meanwhile(shop: Path) -> None:
    history = shop / ".graphbus/state/prompt_history"
    with Person(["run", "-i"], shop) as person, Person(["run", "-i"], shop) as other:
        for each, line in ((person, "log info"), (other, "log debug")):
            each.sees(READY)
            each.types(line)
            each.sees("Log level")
            assert each.leaves(CTRL_D) == 0
    assert history.read_text().endswith("log info\nlog debug\n")


def test_a_history_that_cannot_be_read_is_said_and_left_alone(shop: Path) -> None:
    history = shop / ".graphbus/state/prompt_history"
    history.unlink(missing_ok=True)
    history.mkdir(parents=True)  # permissions are none to an administrator
    try:
        with Person(["run", "-i"], shop) as person:
            person.sees("What was typed before cannot be read: it is no plain file. What is typed now is not kept.")
            person.sees(READY)
            assert person.leaves(CTRL_D) == 0
        assert "cannot be kept" not in person.seen
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


def test_the_last_tree_is_shown_by_that_name(shop: Path) -> None:
    done = piped(shop, "trace last\npublish /Shop/Sold sku=cup count=1\ntrace last\n")
    assert "The trace knows no event last" in done.stderr
    assert "Stock.on_sold" in done.stdout.partition("1 event, 1 delivery\n")[2]


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
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.types("call Shop.murmur")
        person.sees("null")
        person.sees(READY)
        person.keys("call Shop.se")
        person.sees("[Shop] hm\n")
        person.sees("graphbus> call Shop.se")
        person.types("ll sku=mug count=4")
        person.sees('{"sold": 4}')


def test_a_log_line_of_another_thread_goes_above_the_line_that_is_typed_to_the_debugger(shop: Path) -> None:
    with Person(["run", "-i", "--break", "Shop.sell"], shop) as person:
        person.sees(READY)
        person.types("call Shop.murmur")
        person.sees("null")
        person.types("call Shop.sell sku=mug count=4")
        person.sees(STOPPED)
        person.keys("p cou")
        person.sees("[Shop] hm\n(graphbus) p cou")
        person.types("nt + 38")
        person.sees("42")
        assert "(graphbus) [Shop]" not in person.seen
        person.types("c")
        person.sees('{"sold": ')


def test_sigterm_ends_a_prompt_in_good_order(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        person.kill(signal.SIGTERM)
        assert person.leaves() == 0
        assert "[Shop] closed" in person.seen


@pytest.mark.parametrize("options", [[], ["--serve", "--port", "0"]])
@pytest.mark.parametrize("line", ["call Shop.leave", "publish /Shop/Sold sku=last count=1"])
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
        person.keys("help qu")
        person.sees("help qu")
        flag.touch()
        person.sees("Stopped before Stock.on_sold. Press Enter to look at it.\ngraphbus> help qu")
        person.types("it")
        person.sees(STOPPED)
        person.types("p sku")
        person.sees("'later'")
        person.types("c")
        person.sees("[Stock] 1 x later gone")
        person.sees(READY)
        person.types("call Shop.sell sku=mug count=4")
        person.sees(STOPPED)
        person.types("q")
        person.sees(READY)
        person.types("break off")
        person.sees("Stops before: nothing")
        assert person.leaves(CTRL_D) == 0
        assert "Stop the graph in good order." in person.seen


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


def test_a_breakpoint_needs_a_terminal_and_a_handler(shop: Path) -> None:
    command = [sys.executable, "-m", "graphbus_core", "run", "--break", "Stock.on_sold"]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, "GBE158" in done.stderr) == (2, True)
    with Person(["run", "--break", "Stock.on_sol"], shop) as person:
        assert person.leaves() == 7
        assert "Did you mean 'Stock.on_sold'?" in person.seen


def test_tab_offers_what_there_is(shop: Path) -> None:
    with Person(["run", "-i"], shop) as person:
        person.sees(READY)
        for line, offered in (
            ("break Stock.on_s", "Stock.on_sold"),
            ("log de", "debug"),
            ("help hist", "history"),
            ("nodes Sh", "Shop"),
        ):
            person.keys(line)
            person.presses(TAB, offered)
            person.presses(CTRL_C, READY)
