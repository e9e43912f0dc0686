"""Takes the pictures of the live view for README and documentation, from a real run of `examples/orders --chaos`.

    python -m scripts.view_pictures      writes docs/images/view-*.webp; needs chromium

What is seen is what happened: a bank that is slow and sometimes away, and a dead letter with the line that raised it.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 760}
LOW = {"width": 1280, "height": 620}
QUALITY = 82
WATCHED_S = 45
"""How long the graph runs before it is looked at: long enough for a strip with a past."""


@contextmanager
def running_orders() -> Iterator[str]:
    """The example in trouble; gives the address of its view, token included."""
    with tempfile.TemporaryDirectory() as folder:
        project = shutil.copytree(ROOT / "examples" / "orders", Path(folder, "orders"))
        command = [sys.executable, "-m", "orders", "--chaos", "--port", "0", "--view-payloads"]
        started = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert started.stdout
            address = next(found[1] for line in started.stdout if (found := re.search(r"View at (\S+)", line)))
            token = (project / ".graphbus" / "state" / "http_token").read_text(encoding="utf-8").strip()
            yield f"{address}?token={token}"
        finally:
            started.terminate()
            started.communicate()


def keep(page: Any, name: str) -> None:
    """Write what the page shows as a small WebP."""
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    (IMAGES / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
    session.detach()


def take(browser: Any, address: str, scheme: str) -> None:
    """The graph as it runs, and the tree of an event that became a dead letter with the line at fault."""
    page = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce").new_page()
    page.goto(address)
    page.wait_for_selector("#letter-count:visible")
    page.wait_for_timeout(WATCHED_S * 1000)
    keep(page, f"view-graph-{scheme}")
    page.locator("nav a[data-view=letters]").click()
    page.locator(".letter", has_text="KeyError").get_by_text("Its event").first.click()
    page.locator('[data-handler="Pricing.on_price_asked"] button').click()
    page.locator(".failing").wait_for()
    page.set_viewport_size(LOW)
    keep(page, f"view-event-{scheme}")
    page.context.close()


def main() -> int:
    """Take all pictures."""
    with running_orders() as address, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            take(browser, address, scheme)
        browser.close()
    for picture in sorted(IMAGES.glob("view-*.webp")):
        print(f"{picture.relative_to(ROOT)}  {picture.stat().st_size // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
