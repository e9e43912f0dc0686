"""Chromium for tests of the view, and a visit that notes whatever goes wrong in a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

CHROMIUM = shutil.which("chromium")
PROGRAMS = Path(__file__).resolve().parents[1] / "browser" / "node_modules"
"""What `npm ci --prefix tests/browser --ignore-scripts` installs: axe-core, biome and tsc."""
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and PROGRAMS.is_dir()) and not os.environ.get("CI"),
    reason="chromium or what tests/browser/package-lock.json names is not installed",
)
_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
)
_AXE = """
async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 120)).slice(0, 3).join(" | ")}`)
"""


class Visit:
    """A page in the browser; at its end nothing may have been asked of another host, and nothing may have failed.

    Args:
        may_fail: The server may refuse or be away; anything else that goes wrong still counts.
        before: A script that runs before those of the page.
    """

    def __init__(self, browser: Any, address: str, *, may_fail: bool = False, before: str = "", **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self._may_fail = may_fail
        origin = address.partition("/view/")[0]
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: request.url.startswith(origin) or self.strangers.append(request.url))
        if before:
            self.page.add_init_script(before)
        self.page.goto(address)

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).inner_text()
        return found

    def waits_for(self, selector: str, text: str = "") -> Any:
        """Wait until such an element is visible, with this text in it."""
        found = self.page.locator(selector).filter(has_text=text, visible=True).first
        found.wait_for()
        return found

    def findings(self) -> list[str]:
        """The serious and critical findings of axe."""
        self.page.evaluate((PROGRAMS / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
        found: list[str] = self.page.evaluate(_AXE)
        return found

    def too_wide(self) -> int:
        """By how many pixels the page scrolls sideways."""
        found: int = self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        return max(0, found)

    def close(self) -> None:
        self.context.close()
        assert self.strangers == []
        asked = [
            each for each in self.complaints if not (self._may_fail and each.startswith("Failed to load resource"))
        ]
        assert asked == []


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that keeps to itself."""
    assert CHROMIUM, "the tests of the view need chromium"
    assert PROGRAMS.is_dir(), "run `npm ci --prefix tests/browser --ignore-scripts`"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=_ARGUMENTS.split())
        yield started
        started.close()


@contextmanager
def visiting(browser: Any) -> Iterator[Callable[..., Visit]]:
    """A function that opens pages, all of which are closed and judged at the end."""
    visits: list[Visit] = []

    def go(address: str, **options: Any) -> Visit:
        visits.append(Visit(browser, address, **options))
        return visits[-1]

    yield go
    for each in visits:
        each.close()
