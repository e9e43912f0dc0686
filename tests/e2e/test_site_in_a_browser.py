"""The documentation as people meet it: built, in a real browser, both schemes, from a small phone to a wide screen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import docs
from tests.e2e.test_report_in_a_browser import CONTRAST

ROOT = Path(__file__).parents[2]
ORIGIN = "https://docs.test/"
CHROMIUM = shutil.which("chromium")
SEEN = ("index.html", "tutorial.html", "contracts.html", "gate.html", "cli.html", "adr/index.html", "gone.html")
BROKEN_WORDS = """
() => Array.from(document.querySelectorAll("td, th")).flatMap((cell) => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
  for (let node; (node = walker.nextNode()); ) {
    const pattern = node.parentElement.closest("code") ? /\\S+/g : /[^\\s-]+/g;
    for (const word of node.data.matchAll(pattern)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = new Set(Array.from(range.getClientRects(), (box) => Math.round(box.top)));
      if (tops.size > 1) broken.push(word[0]);
    }
  }
  return broken;
})
"""
TORN_CODE = """
() => Array.from(document.querySelectorAll("pre > code")).filter((code) => {
  const style = getComputedStyle(code);
  const height = code.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  const lines = code.textContent.replace(/\\n$/, "").split("\\n").length;
  return Math.abs(height / parseFloat(style.lineHeight) - lines) > 0.5;
}).map((code) => code.textContent)
"""
ANSWERS = {
    "depends_on": "writing-agents.html#call",
    "subscribe": "writing-agents.html#subscribe",
    "topic": "writing-agents.html#topics-and-types",
    "schema_method": "writing-agents.html#methods-with-a-contract",
    "async": "writing-agents.html#async-def",
    "retry": "state-and-dead-letters.html#further-attempts",
    "dead letter": "state-and-dead-letters.html#dead-letters",
    "ledger": "ledgers.html",
    "nats": "ledgers.html#nats-jetstream",
    "test": "testing.html",
    "simulate": "simulate.html",
    "debugger": "running-interactively.html",
    "trace": "tracing-and-profiling.html#what-caused-what",
    "lock": "lock-and-replay.html",
    "budget": "budget-and-plan.html",
    "gate": "gate.html",
    "mcp": "mcp.html",
    "hook": "hooks.html",
    "k8s": "kubernetes.html",
    "docker": "containers.html",
    "metrics": "metrics-and-tracing.html#metrics",
    "GBE622": "errors.html#gbe622",
    "graphbus check": "cli.html#graphbus-check",
    "GateReport": "api/proposals.html#GateReport",
}
"""What people search for -> the place among the first three that explains it."""
FOUND = """
() => Array.from(document.querySelectorAll("div")).filter((each) => each.shadowRoot)
  .flatMap((each) => Array.from(each.shadowRoot.querySelectorAll("a[href]"), (link) => link.href))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="there is no chromium on this machine"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages of this checkout in another folder."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "theme"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "zensical.toml", root)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks", "examples"):
        (root / name).symlink_to(ROOT / name)
    assert docs.make(root) == []
    return root / "site"


class Visitor:
    """A browser whose requests are answered from the site's folder; others are refused and kept."""

    def __init__(self, browser: Any, site: Path, **context: Any) -> None:
        self.site = site
        self.elsewhere: list[str] = []
        self.complaints: list[str] = []
        self.context = browser.new_context(**context)
        self.context.route("**/*", self._answer)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _answer(self, route: Any) -> None:
        path = self.site / route.request.url.removeprefix(ORIGIN).partition("?")[0]
        if not route.request.url.startswith(ORIGIN):
            self.elsewhere.append(route.request.url)
            route.abort()
        elif path.is_file():
            route.fulfill(path=path)
        else:
            route.fulfill(path=self.site / "404.html")

    def open(self, name: str) -> Any:
        self.page.goto(f"{ORIGIN}{name}")
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM, "the browser tests need chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Any]:
    """A function that opens the site with options of a browser; in the end nothing was asked elsewhere or complained of."""
    visitors: list[Visitor] = []

    def start(**context: Any) -> Visitor:
        visitors.append(Visitor(browser, site, **context))
        return visitors[-1]

    yield start
    for visitor in visitors:
        visitor.context.close()
        assert visitor.elsewhere == []
        assert visitor.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_in_both_schemes_and_nothing_is_asked_elsewhere(visit: Any, scheme: str) -> None:
    visitor = visit(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    for name in SEEN:
        seen, poor = visitor.open(name).evaluate(CONTRAST)
        assert seen > 10
        assert poor == [], name


def test_no_page_scrolls_sideways_on_a_phone_and_no_word_of_a_table_is_broken(visit: Any, site: Path) -> None:
    visitor = visit(viewport={"width": 320, "height": 640})
    samples = [site / name for name in ("adr/index.html", "api/agents.html", "rules/checking.html", "rules/GB004.html")]
    pages = [*sorted(site.glob("*.html")), *site.glob("protocol/*.html"), *samples]
    assert len(pages) > 50
    wrong = []
    for path in pages:
        page = visitor.open(path.relative_to(site).as_posix())
        page.wait_for_function(
            "!document.querySelector('table:not([class])') || document.querySelector('.md-typeset__table')"
        )
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append(f"{path.name} scrolls sideways")
        wrong += [f"{path.name} breaks {word}" for word in page.evaluate(BROKEN_WORDS)]
    assert wrong == []


def test_a_line_of_code_is_shown_as_one_line(visit: Any) -> None:
    visitor = visit(viewport={"width": 1440, "height": 900})
    for name in ("index.html", "tutorial.html", "api/agents.html"):
        page = visitor.open(name)
        page.wait_for_function("document.querySelector('.md-code__button, .no-copy')")
        assert page.locator("pre > code").count() > 2
        assert page.evaluate(TORN_CODE) == [], name


def test_the_search_finds_a_term_where_it_is_explained(visit: Any) -> None:
    visitor = visit()
    page = visitor.open("index.html")
    page.get_by_role("button", name="Search").click()
    page.wait_for_function("document.activeElement.shadowRoot?.activeElement?.matches('input')")
    wrong = {}
    for term, place in ANSWERS.items():
        page.keyboard.press("Control+a")
        page.keyboard.press("Delete")
        page.wait_for_function(f"({FOUND})().length === 0")
        page.keyboard.insert_text(term)
        page.wait_for_function(f"({FOUND})().length > 0")
        found = [re.sub(r"\?h=[^#]*", "", link.removeprefix(ORIGIN)) for link in page.evaluate(FOUND)]
        if place not in found[:3]:
            wrong[term] = found[:3]
    assert wrong == {}


def test_the_copy_button_of_a_session_gives_the_commands_alone(visit: Any) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    page = visitor.open("tutorial.html")
    page.locator("[data-copy] .md-code__button[data-md-type=copy]").nth(1).click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()) === 'graphbus check agents/'")


def test_every_page_has_its_own_title_and_description(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted(site.glob("*.html"))]
    titles = [re.findall("<title>(.*?)</title>", page)[0] for page in pages]
    descriptions = [re.findall('<meta name="description" content="(.*?)">', page)[0] for page in pages]
    assert len({*titles}) == len(titles)
    assert len({*descriptions}) == len(descriptions)
    assert all(40 <= len(text) <= docs.MAX_DESCRIPTION for text in descriptions), descriptions


def test_an_address_that_does_not_exist_says_so_and_leads_on(visit: Any) -> None:
    page = visit().open("adr/9999-gone.html")
    assert page.title() == "Page not found - GraphBus"
    page.get_by_role("link", name="Tutorial").last.click()
    page.wait_for_url(f"{ORIGIN}tutorial.html")
