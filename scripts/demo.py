"""Shows GraphBus at work: a shop with defects is made, checked, negotiated, tested and run, by the commands a user would type.

    python scripts/demo.py [--keep]

Every step states what must come of it and the demo fails, with exit status 1, if it does not.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

IS_TTY = sys.stdout.isatty()
HAS_COLOURS = IS_TTY and not os.environ.get("NO_COLOR")
PAUSE_S = 1.0 if IS_TTY else 0.0
STEP_TIMEOUT_S = 600
"""For a step that never ends. On a machine that has much else to do, the longest one takes more than a minute."""
ORDER = '{"order_id": "1001", "items": [{"sku": "mug", "price": 12.5, "qty": 2}]}'


class DemoError(Exception):
    """A step did not do what it says."""


class Finished(NamedTuple):
    """A command that ended: its exit status, all that it said, and whether its time was over."""

    status: int
    output: str
    is_late: bool = False


class Step(NamedTuple):
    """A command, what it is there for, and the judge of what came of it: it gives the complaint, or the empty string."""

    title: str
    command: tuple[str, ...]
    judge: Callable[[Finished], str]


def main() -> int:
    arguments = parse_arguments()
    sys.stdout.reconfigure(errors="replace")  # a terminal that knows no check marks gets question marks
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="graphbus-demo-"))
    try:
        show_everything(folder)
    except DemoError as failure:
        print(paint(f"\n✗ {failure}", "31"))
        return 1
    finally:
        if arguments.keep:
            print(f"\nKept: {folder / 'my-shop'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(paint(f"\n✓ Everything did what it says, in {time.monotonic() - started:.0f} seconds.", "32;1"))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A shop is made, checked, negotiated, tested and run.")
    parser.add_argument("--keep", action="store_true", help="keep the shop and say where it is")
    return parser.parse_args()


def show_everything(folder: Path) -> None:
    shop = folder / "my-shop"
    perform(Step("Make a shop", ("graphbus", "init", "my-shop"), succeeds), folder)
    print(paint("$ cd my-shop", "1"))
    before = sources(shop)
    for step in BEFORE_THE_NEGOTIATION:
        perform(step, shop)
    perform(NEGOTIATION, shop)
    show_diff(before, sources(shop))
    for step in AFTER_THE_NEGOTIATION:
        perform(step, shop)


def perform(step: Step, cwd: Path) -> None:
    """Echo the command, run it with its output passed through, and hold it to what it should do.

    Raises:
        DemoError: The judge of the step complains.
    """
    heading(step.title)
    print(paint(f"$ {shown(step.command)}", "1"), flush=True)
    finished = run(step.command, cwd)
    complaint = f"it has not ended after {STEP_TIMEOUT_S:g} seconds" if finished.is_late else step.judge(finished)
    if complaint:
        raise DemoError(f"{step.title}: {complaint}")
    time.sleep(PAUSE_S)


def run(command: tuple[str, ...], cwd: Path) -> Finished:
    """Run a command of this virtual environment, show its output line by line as it comes, and keep it."""
    executables = Path(sys.executable).parent
    path = f"{executables}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = os.environ | {"PATH": path, "PYTHONUTF8": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if HAS_COLOURS:
        environment["FORCE_COLOR"] = "1"
    with (
        subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        ) as process,
        watchdog(process) as is_over,
    ):
        output = "".join(passed_through(process))
    return Finished(process.returncode, without_colours(output), is_over.is_set())


def passed_through(process: subprocess.Popen[str]) -> Iterator[str]:
    """Give the lines of the process, each shown as soon as it is printed."""
    assert process.stdout is not None
    for line in process.stdout:
        print(f"  {line}", end="", flush=True)
        yield line


@contextmanager
def watchdog(process: subprocess.Popen[str]) -> Iterator[threading.Event]:
    """Kill the process when the time of a step is over, which the event then says, or when the demo is interrupted."""
    is_over = threading.Event()

    def end() -> None:
        is_over.set()
        process.kill()

    timer = threading.Timer(STEP_TIMEOUT_S, end)
    timer.start()
    try:
        yield is_over
    except BaseException:
        process.kill()
        raise
    finally:
        timer.cancel()


def succeeds(finished: Finished) -> str:
    return f"exit status {finished.status}" if finished.status else ""


def finds_defects(finished: Finished) -> str:
    codes = sorted(set(re.findall(r"\bGB\d{3}\b", finished.output)))
    if finished.status != 3:
        return f"exit status {finished.status} instead of 3 for findings"
    return "" if len(codes) >= 3 else f"only {codes} were found"


def finds_nothing(finished: Finished) -> str:
    return succeeds(finished) or (f"found {code[0]}" if (code := re.search(r"\bGB\d{3}\b", finished.output)) else "")


def is_red(finished: Finished) -> str:
    """Tests must fail because the shop is wrong, not because pytest could not run them."""
    if finished.status != 1 or not re.search(r"\d+ failed", finished.output):
        return f"the tests should fail before the negotiation, exit status {finished.status}"
    return "tests ended in errors, not in failures" if re.search(r"\d+ errors?\b", finished.output) else ""


def is_green(finished: Finished) -> str:
    if finished.status or not re.search(r"\d+ passed", finished.output):
        return f"the tests should pass after the negotiation, exit status {finished.status}"
    return "not all tests were run" if re.search(r"\d+ (skipped|xfailed|deselected)", finished.output) else ""


def negotiates(finished: Finished) -> str:
    return succeeds(finished) or shows(finished, "[AGENT]", "Committing", "Modified:")


def processes_the_order(finished: Finished) -> str:
    return succeeds(finished) or shows(finished, "[RUNTIME]", *TRACES_OF_THE_ORDER)


def shows(finished: Finished, *expected: str) -> str:
    return next((f"it does not show {text!r}" for text in expected if text not in finished.output), "")


def sources(shop: Path) -> dict[str, str]:
    return {path.relative_to(shop).as_posix(): path.read_text(encoding="utf-8") for path in sorted(shop.rglob("*.py"))}


def show_diff(before: dict[str, str], after: dict[str, str]) -> None:
    """Show what the negotiation did to the source files, read from the files themselves.

    Raises:
        DemoError: Nothing was changed, or a test was.
    """
    heading("What the agents agreed on, in the source files")
    changed = [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
    for path in changed:
        old, new = (version.get(path, "").splitlines() for version in (before, after))
        for line in difflib.unified_diff(old, new, f"before/{path}", f"after/{path}", n=2, lineterm=""):
            print(f"  {paint(line, DIFF_COLOURS.get(line[:1], ''))}")
    if not changed:
        raise DemoError("the negotiation changed no file")
    if touched := [path for path in changed if path.startswith("tests/")]:
        raise DemoError(f"the negotiation changed tests: {touched}")
    time.sleep(PAUSE_S)


def heading(title: str) -> None:
    print(f"\n{paint(f'── {title} '.ljust(78, '─'), '36;1')}")


def shown(command: tuple[str, ...]) -> str:
    return shlex.join("python" if word == sys.executable else word for word in command)


def paint(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if HAS_COLOURS and colour else text


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


DIFF_COLOURS = {"+": "32", "-": "31", "@": "36"}
TRACES_OF_THE_ORDER = ("Your order 1001 over 25.00 is confirmed.", "Inventory changed: 10 x mug left")
TESTS = (sys.executable, "-m", "pytest", "-q", "--tb=no")
RUN = ("graphbus", "run", ".graphbus/")
BEFORE_THE_NEGOTIATION = (
    Step("Check it: the rules read the code and never import it", ("graphbus", "check", "agents/"), finds_defects),
    Step("Its own tests are red", TESTS, is_red),
)
NEGOTIATION = Step("Let its agents negotiate", ("graphbus", "build", "agents/", "--enable-agents"), negotiates)
AFTER_THE_NEGOTIATION = (
    Step("Its own tests are green", TESTS, is_green),
    Step("And there is nothing left to find", ("graphbus", "check", "agents/"), finds_nothing),
    Step(
        "Run it and publish an order",
        ("graphbus", "run", ".graphbus/", "--publish", "/Order/Placed", ORDER),
        processes_the_order,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
