"""The report as people meet it: a real browser, both schemes, from a small phone to a wide screen, by keyboard, on paper."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.cli.report.page import render_page
from tests.fakes.told_sessions import eventful, large

CHROMIUM = shutil.which("chromium")
SCHEMES = ("light", "dark")
WIDTHS = (320, 375, 768, 1440)
SUMMARIES = "details.proposal > summary"
EVENTFUL = 9

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="there is no chromium on this machine"),
]

CONTRAST = """
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *:not(script, style, option, svg *)")) {
    const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".unseen")) continue;
    seen += 1;
    const [one, other] = [light(channels(getComputedStyle(element).color).slice(0, 3)), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const what = `${element.tagName}.${element.className}: ${element.textContent.trim().slice(0, 30)}`;
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${what}`);
  }
  return [seen, poor];
}
"""


class Visit:
    """One page in the browser, and everything that went wrong in it."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.context.route("**/*", self._answer)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)

    def _answer(self, route: Any) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            self.asked.append(route.request.url)
            route.abort()

    def focused(self) -> str:
        """The id of the proposal whose summary has the focus."""
        found: str = self.page.evaluate(
            "() => document.activeElement.matches('summary') && document.activeElement.parentElement.dataset.case || ''"
        )
        return found

    def shown(self) -> int:
        return int(self.page.locator("details.proposal:visible").count())

    def close(self) -> None:
        self.context.close()
        assert self.asked == []
        assert self.complaints == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM, "the browser tests need chromium"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("reports")
    for name, story in (("eventful", eventful()), ("large", large())):
        (folder / name).with_suffix(".html").write_bytes(render_page(story))
    return {name: (folder / f"{name}.html").as_uri() for name in ("eventful", "large")}


@pytest.fixture
def visit(browser: Any, addresses: dict[str, str]) -> Iterator[Any]:
    visits: list[Visit] = []

    def go(name: str = "eventful", anchor: str = "", **context: Any) -> Visit:
        visits.append(Visit(browser, addresses[name] + anchor, **context))
        return visits[-1]

    yield go
    for each in visits:
        each.close()


@pytest.mark.parametrize("name", ["eventful", "large"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_never_scrolls_sideways(visit: Any, name: str, scheme: str) -> None:
    met = visit(name, color_scheme=scheme).page
    met.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in WIDTHS:
        met.set_viewport_size({"width": width, "height": 800})
        assert met.evaluate("() => document.documentElement.scrollWidth") <= width
        assert met.evaluate("() => { scrollTo(500, 0); return scrollX; }") == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("chosen", ["by the system", "by hand"])
def test_every_text_stands_out_from_its_ground(visit: Any, scheme: str, chosen: str) -> None:
    system = scheme if chosen == "by the system" else next(each for each in SCHEMES if each != scheme)
    met = visit(color_scheme=system).page
    if chosen == "by hand":
        met.keyboard.press("t")
    met.keyboard.press("o")
    ground = met.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(19, 20, 23)") == (scheme == "dark")
    seen, poor = met.evaluate(CONTRAST)
    assert seen > 300
    assert poor == []


def test_tab_reaches_every_proposal_and_the_focus_shows(visit: Any) -> None:
    went = visit()
    reached, hidden = [], []
    while True:
        went.page.keyboard.press("Tab")
        if went.page.evaluate("() => document.activeElement === document.body"):
            break  # through the page
        if went.focused():
            reached.append(went.focused())
        if went.page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "none":
            hidden.append(went.page.evaluate("() => document.activeElement.outerHTML.slice(0, 80)"))
    assert [*dict.fromkeys(reached)] == [f"P{number:03}" for number in range(1, EVENTFUL + 1)]
    assert hidden == []


def test_j_and_k_walk_and_enter_and_space_open(visit: Any) -> None:
    went = visit()
    for key, focused in (("j", "P001"), ("j", "P002"), ("k", "P001"), ("k", "P001"), ("j", "P002")):
        went.page.keyboard.press(key)
        assert went.focused() == focused
    assert went.page.evaluate("() => document.activeElement.getBoundingClientRect().top") >= 40  # below the bar
    for key, is_open in (("Enter", True), ("Space", False)):
        went.page.keyboard.press(key)
        assert went.page.evaluate("() => document.activeElement.parentElement.open") is is_open


@pytest.mark.parametrize(
    ("choice", "value", "left"),
    [
        ("Agent", "Audit", ["P004", "P006", "P008"]),
        ("File", "agents/mail.py", ["P003", "P006"]),
        ("Status", "Accepted", ["P001", "P003", "P006"]),
        ("Round", "3", ["P007", "P008", "P009"]),
    ],
)
def test_the_filter_leaves_what_was_asked_for(visit: Any, choice: str, value: str, left: list[str]) -> None:
    went = visit()
    went.page.keyboard.press("/")
    went.page.get_by_label(choice, exact=True).select_option(label=value)
    shown = went.page.locator("details.proposal:visible").evaluate_all("(all) => all.map((each) => each.dataset.case)")
    assert shown == left
    assert went.page.locator("#count").inner_text() == f"{len(left)} of {EVENTFUL} proposals"
    assert went.page.locator(".steps > li:visible").count() == len(left)
    went.page.locator("body").click(position={"x": 2, "y": 2})
    went.page.keyboard.press("j")
    assert went.focused() == left[0]
    went.page.get_by_role("button", name="Clear").click()
    went.page.wait_for_function(f"() => document.querySelector('#count').textContent === '{EVENTFUL} proposals'")
    assert went.shown() == EVENTFUL


def test_a_link_opens_its_proposal_even_if_the_filter_hid_it(visit: Any) -> None:
    went = visit(anchor="#P005")
    went.page.wait_for_function("() => document.activeElement.closest('[data-case=P005][open]')")
    assert went.focused() == "P005"
    assert went.page.locator("details.proposal[open]").count() == 1
    went.page.get_by_label("Status", exact=True).select_option(label="Pending")
    went.page.locator("#votes a", has_text="P004").click()
    went.page.wait_for_function("() => document.querySelector('[data-case=P004][open]')")
    assert went.shown() == EVENTFUL
    assert went.page.locator("#P004").is_visible()


def test_the_graph_shows_whom_a_proposal_concerns(visit: Any) -> None:
    went = visit(anchor="#P001")
    went.page.get_by_role("link", name="Show in the graph").first.click()
    names = "(all) => all.map((each) => each.querySelector('text').textContent)"
    assert went.page.locator(".node.proposer").evaluate_all(names) == ["Orders"]
    assert sorted(went.page.locator(".node.affected").evaluate_all(names)) == ["Mail", "Stock"]
    assert went.page.locator("[data-edge].between").count() == 4
    assert went.page.locator("svg.graph").evaluate(
        "(svg) => { const box = svg.getBoundingClientRect(); return box.top < innerHeight && box.bottom > 0; }"
    )
    went.page.get_by_label("Show the agents of").select_option(label="all proposals")
    assert went.page.locator("svg.graph.choosing").count() == 0


def test_without_the_script_everything_can_be_read(visit: Any) -> None:
    went = visit(anchor="#P005", java_script_enabled=False)
    assert went.page.locator("#P005").is_visible()  # the browser opens what a link leads into
    went.page.locator(SUMMARIES).first.click()
    assert went.page.get_by_text("It fixes GB003 on my side.").is_visible()
    assert not went.page.locator("[data-script]:visible").count()
    assert went.shown() == EVENTFUL


@pytest.mark.parametrize("has_script", [True, False])
def test_on_paper_everything_is_open_on_white_and_without_buttons(visit: Any, has_script: bool) -> None:
    went = visit(java_script_enabled=has_script, color_scheme="dark")
    went.page.emulate_media(media="print", color_scheme="dark")
    assert not went.page.locator("nav:visible, button:visible, .filter:visible").count()
    for number in range(1, EVENTFUL + 1):
        assert went.page.locator(f"#P{number:03}").bounding_box()["height"] > 100
    if has_script:
        assert went.page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(went.page.pdf()) > 50_000


def test_differences_stand_side_by_side_where_there_is_room_and_in_one_column_else(visit: Any) -> None:
    met = visit(anchor="#P001").page
    sides = "() => ['.old:not(.same)', '.new:not(.same)'].map((name) => { const box = document.querySelector('#P001 ' + name).getBoundingClientRect(); return [box.left, box.top]; })"  # noqa: E501
    met.set_viewport_size({"width": 1440, "height": 900})
    (old, new) = met.evaluate(sides)
    assert new[0] > old[0]
    assert new[1] == old[1]
    met.set_viewport_size({"width": 375, "height": 900})
    (old, new) = met.evaluate(sides)
    assert new[0] == old[0]
    assert new[1] > old[1]
    assert met.locator("#P001 .diff .new.same").first.is_hidden()
