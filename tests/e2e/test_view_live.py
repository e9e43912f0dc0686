"""The view of graphs that really run, in a real browser: from a fault to its line and to the decision behind it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.fakes.browsing import Visit, chromium, needs_browser, visiting
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, needs_browser, pytest.mark.measures_children]
ROOT = Path(__file__).resolve().parents[2]
ORDERS = ROOT / "examples" / "orders"
TILL = """
from pathlib import Path

from graphbus_core import GraphBusNode, subscribe


class Till(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_order(self, order: dict) -> None:
        if not Path("open").exists():
            raise RuntimeError("the till is closed")
"""
Go = Callable[..., Visit]


class Served(NamedTuple):
    """A graph that is served with its view."""

    address: str
    token: str
    process: subprocess.Popen[str]

    @property
    def link(self) -> str:
        return f"{self.address}?token={self.token}"

    def publish(self, topic: str, payload: object) -> None:
        request = urllib.request.Request(
            f"{self.address.removesuffix('/view/')}/publish{topic}",
            msgspec.json.encode(payload),
            {"authorization": f"Bearer {self.token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answer.read()


def graphbus(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "graphbus_core", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def served(folder: Path, *command: str) -> Iterator[Served]:
    started = subprocess.Popen(
        [sys.executable, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert started.stdout
        address = next(found[1] for line in started.stdout if (found := re.search(r"View at (\S+)", line)))
        token = (folder / ".graphbus" / "state" / "http_token").read_text(encoding="utf-8").strip()
        yield Served(address, token, started)
    finally:
        started.kill()
        started.communicate()


def serving(port: str = "0") -> tuple[str, ...]:
    return ("-m", "graphbus_core", "run", ".graphbus", "--serve", "--port", port, "--view", "--view-payloads")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def go(browser: Any) -> Iterator[Go]:
    with visiting(browser) as visit:
        yield visit


@pytest.fixture
def till(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").touch()
    (tmp_path / "agents" / "till.py").write_text(TILL, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.graphbus]\nexternal_topics = ["/Order/Placed"]\n', encoding="utf-8")
    graphbus(tmp_path, "build", "agents/")
    return tmp_path


def test_three_clicks_lead_from_one_failure_in_a_thousand_to_its_line(tmp_path: Path, go: Go) -> None:
    folder = shutil.copytree(ORDERS, tmp_path / "orders", ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    with served(folder, "-m", "orders", "--chaos", "--port", "0", "--view-payloads") as graph:
        went = go(graph.link, may_fail=True)
        went.waits_for('.node[data-name="Pricing"][data-state="bad"]')
        went.page.click("#trouble")
        went.waits_for(".row", "KeyError").click()
        went.page.locator('[data-handler="Pricing.on_price_asked"] button').click()
        assert "PRICES" in went.waits_for(".failing").inner_text()
        assert went.text("#place") == "orders/agents/pricing.py:23"

        went.page.click("#payloads")
        payload = went.waits_for(".payload", "card").inner_text()
        assert '"card": "***"' in payload or "redacted" in payload
        link = went.page.url
        again = go(link, may_fail=True)  # the same event, the same line
        again.waits_for(".failing")


def test_the_line_says_which_decision_wrote_it(tmp_path: Path, go: Go) -> None:
    graphbus(tmp_path, "init", "shop")
    shop = tmp_path / "shop"
    graphbus(shop, "build", "agents/", "--enable-agents")
    with served(shop, *serving()) as graph:
        went = go(graph.link, may_fail=True)
        went.page.click('.node[data-name="NotificationService"]')
        went.page.locator(".handlers button").first.click()
        assert re.search(
            r"P00\d.*NotificationService in session S001.*accept",
            went.waits_for(".why", "S001").inner_text(),
            re.DOTALL,
        )
        went.page.click("nav a[data-view=negotiation]")
        went.waits_for('.proposal[data-status="accepted"] .ladder [data-status="passed"]')
        assert went.page.locator('.proposal[data-status="accepted"]').count() == 6


def test_a_dead_letter_is_replayed_until_it_is_handled(till: Path, go: Go) -> None:
    with served(till, *serving()) as graph:
        went = go(graph.link, may_fail=True)
        went.waits_for("#condition", "live")
        graph.publish("/Order/Placed", {"order_id": "1"})
        went.waits_for("#letter-count", "1")
        went.page.click("nav a[data-view=letters]")
        for comes in ("failed again: RuntimeError: the till is closed", "handled"):
            went.page.locator(".letter button").first.click()
            went.page.click("#confirm button:has-text('Replay')")
            after = went.waits_for(".turn", comes).inner_text()
            assert "the till is closed" in after.partition("After")[0]
            (till / "open").touch()
        went.page.wait_for_function("() => document.querySelector('#letter-count').hidden")


@pytest.mark.parametrize("way", ["terminate", "kill"])
def test_the_page_survives_the_graph(till: Path, go: Go, way: str) -> None:
    with served(till, *serving()) as graph:
        went = go(graph.link, may_fail=True)
        graph.publish("/Order/Placed", {"order_id": "1"})
        went.waits_for(".row", "the till is closed")
        port = re.search(r":(\d+)/", graph.address)
        assert port
        getattr(graph.process, way)()
    went.waits_for("#condition", "disconnected")
    assert "the till is closed" in went.text(".row")
    with served(till, *serving(port[1])):
        went.waits_for("#notice", "restarted")
        went.waits_for("#condition", "live")


def test_a_wrong_token_shows_the_graph_of_this_machine_and_changes_nothing(till: Path, go: Go) -> None:
    with served(till, *serving()) as graph:
        went = go(f"{graph.address}?token=guessed", may_fail=True)
        went.waits_for("#notice", "wrong or old")
        graph.publish("/Order/Placed", {"order_id": "1"})
        went.waits_for("#letter-count", "1")
        went.page.click("nav a[data-view=letters]")
        went.waits_for(".letter", "the till is closed")
        assert went.page.locator(".letter button").first.is_disabled()
        assert "guessed" not in went.page.url
