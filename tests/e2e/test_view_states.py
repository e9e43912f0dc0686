"""Every state of the view's page in a real browser: words, sizes, schemes, accessibility, hostile data, and what it costs.

`VIEW_SHOTS=folder` keeps a picture of each state, to be looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.view import messages as m
from tests.fakes import view_stories as stories
from tests.fakes.browsing import Visit, chromium, needs_browser, visiting
from tests.fakes.view_site import ViewSite, view_site

pytestmark = [pytest.mark.slow, needs_browser]
SIZES = (320, 768, 1440)
SCHEMES = ("light", "dark")
ORDERS = stories.orders(200)
DEAD = [each for each in ORDERS if each.attempt == 3 and each.outcome == "failed"]
LETTERS = tuple(stories.letter_of(each) for each in DEAD)
EVENT = f"#event?id={DEAD[0].event_id}"
Go = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def go(browser: Any) -> Iterator[Go]:
    with visiting(browser) as visit:
        yield visit


@pytest.fixture
def site() -> Iterator[ViewSite]:
    with view_site(stories.shop(), ORDERS) as started:
        started.answers |= {
            f"event/{DEAD[0].event_id}": stories.tree_of(ORDERS, DEAD[0].event_id),
            "source/Payments.on_accepted": stories.SOURCE,
            "dead-letters": m.DeadLetterList(
                letters=LETTERS, total=len(LETTERS), counted=len(LETTERS), may_replay=True
            ),
            "negotiation": stories.negotiation(),
            "compare": stories.COMPARISON,
        }
        yield started


def origin(**changes: Any) -> m.Origin:
    return msgspec.structs.replace(stories.ORIGIN, **changes)


def empty(note: str = "") -> m.GraphPicture:
    return msgspec.structs.replace(stories.picture(()), note=note)


def runs(site: ViewSite, went: Visit) -> None:
    """Ten seconds of orders go by."""
    before = {key: m.Counts() for key in stories.counts_after(ORDERS)}
    site.send(stories.tick(stories.NOW + 9, before, dead=len(LETTERS)))
    site.send(stories.tick(stories.NOW + 10, stories.counts_after(ORDERS, times=3), dead=len(LETTERS)))
    went.waits_for("#letter-count", str(len(LETTERS)))


def breaks_off(site: ViewSite, went: Visit) -> None:
    site.stop()
    went.waits_for("#condition", "disconnected")


def starts_again(site: ViewSite, went: Visit) -> None:
    site.restart_as(f"after {site.picture.origin.server}")
    went.waits_for("#notice", "restarted")


def shows_payloads(site: ViewSite, went: Visit) -> None:
    went.page.click("#payloads")
    went.waits_for(".payload", "(redacted)")


def asks(site: ViewSite, went: Visit) -> None:
    went.page.click("#replay-all")
    went.waits_for("#confirm", "may happen twice")


NO_STREAM = "delete window.EventSource"
NO_TOKEN = {
    "title": "Unauthorized",
    "detail": "This address needs the token.",
    "code": "GBE650",
    "hint": "Take the link.",
}
NO_EVENTS = m.DeliveryPage(deliveries=(), has_older=False, has_newer=False, oldest=0, newest=0)
NO_LETTERS = m.DeadLetterList(letters=(), total=0, may_replay=True)
NOT_NEGOTIATED = m.NegotiationPicture(session="", state="none")
CUT_OFF = {"title": "x", "detail": "graph.json is cut off.", "hint": "Build again."}
RECORD = stories.shop(origin(kind="trace", is_live=False, note="The last line is cut off."))
STATES: dict[str, tuple[Any, ...]] = {
    # name: address, what is waited for, the answers that differ, what happens then, and a script that runs before
    "graph": ("", ("#condition", "live"), {}, runs),
    "chosen": ("#graph?agent=Payments&failed=1", (".card", "agents/payments.py"), {}, runs),
    "paused": (f"#graph?at={stories.NOW + 5}", ("#condition", "paused"), {}, None),
    "event": (f"{EVENT}&source=Payments.on_accepted", (".failing", "failed here"), {}, runs),
    "payloads": (EVENT, (".causes", "dead letter"), {}, shows_payloads),
    "letters": ("#letters", (".letter", "BankRefused"), {}, None),
    "confirm": ("#letters", (".letter", "BankRefused"), {}, asks),
    "no letters": ("#letters", (".words", "No dead letters"), {"dead-letters": NO_LETTERS}, None),
    "negotiation": ("#negotiation", (".proposal", "P003"), {}, None),
    "negotiation over": (
        "#negotiation",
        (".activity", "Convergence"),
        {"negotiation": stories.negotiation("ended")},
        None,
    ),
    "no negotiation": ("#negotiation", (".words", "No negotiation"), {"negotiation": NOT_NEGOTIATED}, None),
    "compare": ("#compare", (".differences", "/Mail/Sent"), {}, None),
    "nothing to compare": ("#compare", (".words", "Nothing to compare"), {"compare": m.Comparison(choices=())}, None),
    "crowd": ("", (".node", "fleet.crane"), {"graph": stories.crowd()}, None),
    "crowd, one": ("#graph?focus=Crane03", (".node", "Crane03"), {"graph": stories.crowd()}, None),
    "crowd, all": ("#graph?drawing=agents", (".node", "Crane03"), {"graph": stories.crowd()}, None),
    "hostile": ("", (".node", "Victim"), {"graph": stories.hostile()}, None),
    "no events": ("", (".list", "No events yet"), {"deliveries": NO_EVENTS}, None),
    "nothing fits": ("#graph?key=nobody", (".list", "Nothing fits"), {}, None),
    "no agents": ("", (".canvas", "No agents"), {"graph": empty("This graph has no agents.")}, None),
    "no such event": ("#event?id=gone", (".tree", "This event is not here"), {}, None),
    "no such source": ("#event?source=Gone.on_it", (".source", "The source is not here"), {}, None),
    "broken": ("", ("#whole", "The graph cannot be shown"), {"graph": (500, CUT_OFF)}, None),
    "no token": ("", ("#whole", "This page needs its token"), {"graph": (401, NO_TOKEN)}, None),
    "old link": ("?refused=1", ("#notice", "wrong or old"), {}, None),
    "record": ("", ("#condition", "a record"), {"graph": RECORD}, None),
    "disconnected": ("", ("#condition", "live"), {}, breaks_off),
    "restarted": ("", ("#condition", "live"), {}, starts_again),
    "no stream": ("", ("#notice", "cannot receive"), {}, None, NO_STREAM),
}


def opens(site: ViewSite, go: Go, name: str, **options: Any) -> Visit:
    """Open the page in one of its states."""
    address, (selector, text), answers, happens, *before = STATES[name]
    site.answers |= answers
    is_record = isinstance(site.answers["graph"], m.GraphPicture) and not site.picture.origin.is_live
    site.ends = "All of it is here." if is_record else ""
    fails = name in {"broken", "no token", "no such event", "no such source", "disconnected", "restarted"}
    went = go(site.url + address, may_fail=fails, before=before[0] if before else "", **options)
    went.waits_for(selector, text)
    if happens:
        happens(site, went)
    return went


@pytest.mark.parametrize("name", STATES)
def test_a_state_fits_and_everybody_can_use_it(site: ViewSite, go: Go, name: str) -> None:
    for scheme in SCHEMES:
        went = opens(site, go, name, color_scheme=scheme, viewport={"width": SIZES[0], "height": 900})
        for width in SIZES:
            went.page.set_viewport_size({"width": width, "height": 900})
            _keep_picture(went, f"{name}-{width}-{scheme}")
            assert went.too_wide() == 0, f"{name} at {width} px"
        assert went.findings() == [], f"{name}, {scheme}"
        went.context.close()
        if site._server is None:
            site.start()


def _keep_picture(went: Visit, name: str) -> None:
    if folder := os.environ.get("VIEW_SHOTS"):
        went.page.wait_for_timeout(150)
        went.page.screenshot(path=Path(folder, f"{name.replace(' ', '-')}.png"), full_page=True)


def test_hostile_names_are_text(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "hostile")
    evil = stories.HOSTILE
    bad = msgspec.structs.replace(
        ORDERS[0], handler=f"Victim.{evil}", topic=evil, key=evil, error=evil, outcome="failed", seq=10_000
    )
    letter = msgspec.structs.replace(LETTERS[0], id=evil, topic=evil, handler=evil, error=evil, traceback=evil)
    site.answers["dead-letters"] = m.DeadLetterList(letters=(letter,), total=1, may_replay=True, note=evil)
    site.send(stories.tick(stories.NOW, {f"Victim.{evil} <- {evil}": m.Counts(delivered=1)}, [bad], dead=1))
    went.waits_for(".row", "onerror")
    went.page.goto(site.url + "#letters")
    shown = went.waits_for(".letter", "onerror").inner_text()
    assert "\\u{202e}" in shown
    assert "\u202e" not in shown
    assert went.page.evaluate("() => window.hacked") is None
    assert went.page.evaluate("() => document.querySelectorAll('main img, script:not([type=module])').length") == 0


def test_a_stream_that_does_not_begin_is_told_with_what_to_do(site: ViewSite, go: Go) -> None:
    """As if more tabs were open than a browser has connections."""
    went = go(site.url, before="window.EventSource = class extends EventTarget { close() {} }")
    went.waits_for("#notice", "close other tabs")
    assert went.text("#condition") == "connecting"
    went.waits_for(".row", "BankRefused")


def test_the_page_comes_back_by_itself(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "disconnected")
    assert "What you see is from before" in went.text("#notice")
    assert went.page.locator(".row").count() > 10  # what was there can still be looked at
    site.start()
    went.page.click("#notice button")
    went.waits_for("#condition", "live")
    assert went.page.locator("#notice").is_hidden()
    went.page.close()


def test_a_server_that_restarts_takes_the_past_with_it(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "restarted")
    site.deliveries = ()
    starts_again(site, went)
    went.waits_for(".list", "No events yet")
    assert went.page.locator("#letter-count").is_hidden()


def test_the_stream_moves_the_figures_and_colours_what_fails(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "graph")
    node = went.page.locator('.node[data-name="Payments"]')
    assert node.get_attribute("data-state") == "bad"
    before = sum(each.outcome == "failed" and each.started < stories.NOW + 9 for each in ORDERS)  # the first tick
    title = node.locator("title").text_content()
    assert re.fullmatch(rf"Payments: \d+/s · 4 waiting 1\.50\ss, {before + 30} failures", title)
    assert went.page.locator('.arrow .edge[data-state="bad"]').count() == 1
    legend = went.page.locator(".legend").first
    assert legend.locator("[data-verdict]").evaluate_all("(all) => all.map((each) => each.dataset.verdict)") == [
        "unknown",
        "broken",
    ]
    assert (
        went.page.locator('.arrow .edge[data-verdict="unknown"]').evaluate("(e) => getComputedStyle(e).strokeDasharray")
        != "none"
    )
    assert went.text("#trouble").endswith("failures")


def test_nothing_is_lost_between_the_list_and_the_stream(site: ViewSite, go: Go) -> None:
    site.late = (msgspec.structs.replace(ORDERS[-1], seq=9_999, started=stories.NOW + 30),)
    went = go(site.url)
    went.waits_for('.row[data-seq="9999"]')


def test_what_failed_before_the_page_was_opened_is_seen_at_once(site: ViewSite, go: Go) -> None:
    went = go(site.url)
    went.waits_for("#condition", "live")
    site.send(stories.tick(stories.NOW + 12, {}))
    failed = sum(each.outcome == "failed" for each in ORDERS)
    went.page.wait_for_function(f"() => document.querySelector('#trouble').textContent === '{failed} failures'")
    assert went.page.locator('.node[data-name="Payments"]').get_attribute("data-state") == "bad"


def test_a_line_carries_all_that_its_handler_gets_from_there(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "graph")
    rate = re.compile(r"([\d.]+)/s")
    titles = went.page.locator(".arrow title").all_text_contents()
    (outside,) = (each for each in titles if each.startswith("(outside) sends to Checkout"))
    checkout = went.page.locator('.node[data-name="Checkout"] title').text_content()
    assert rate.search(outside)[1] == rate.search(checkout)[1]


def test_a_record_that_grows_is_followed_to_its_end(site: ViewSite, go: Go) -> None:
    site.answers["graph"] = RECORD
    went = go(site.url)
    went.waits_for("#condition", "followed")
    new = tuple(msgspec.structs.replace(ORDERS[-1], seq=9_000 + number) for number in range(1500))
    site.deliveries += new
    site.send(msgspec.structs.replace(stories.tick(stories.NOW, {}), first=9_000, last=10_499))
    went.waits_for('.row[data-seq="10499"]')
    went.page.click("button:has-text('Pause')")
    went.waits_for("#condition", "paused")


def test_what_is_open_stays_open_when_a_letter_arrives(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "letters")
    went.page.locator(f'[data-letter="{LETTERS[0].id}"] summary').click()
    site.answers["dead-letters"] = m.DeadLetterList(
        letters=(msgspec.structs.replace(LETTERS[0], id="new"), *LETTERS), total=len(LETTERS) + 1, may_replay=True
    )
    site.send(stories.tick(stories.NOW, {}, dead=len(LETTERS) + 1))
    went.waits_for('[data-letter="new"]')
    opened = went.page.locator(f'[data-letter="{LETTERS[0].id}"] details')
    assert opened.get_attribute("open") is not None
    assert went.page.evaluate("() => document.activeElement.textContent") == "Traceback"


def test_a_negotiation_is_what_its_page_begins_with_and_its_end_is_the_end(site: ViewSite, go: Go) -> None:
    site.answers["graph"] = stories.shop(origin(kind="negotiation"))
    went = go(site.url)
    went.waits_for(".proposal", "P003")
    site.ends, site.may_return = "The command has ended.", False
    site.break_off()
    went.waits_for("#condition", "ended")
    assert "The command has ended." in went.text("#notice")


def test_what_waits_is_shown_as_long_as_it_waits(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "graph")
    stuck = {"Payments.on_accepted <- /Order/Accepted": m.Counts(waiting=7, lag_s=80)}
    site.send(stories.tick(stories.NOW + 20, stuck))
    for at in (30, 400):  # the counts of a handler that stands still do not change, so they are not sent again
        site.send(stories.tick(stories.NOW + at, {}))
    went.page.wait_for_function("() => document.querySelector('.figures').textContent.includes('Waiting7')")
    assert "7 waiting" in went.page.locator('.node[data-name="Payments"] title').text_content()


def test_one_pauses_goes_back_and_steps(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "graph")
    press = went.page.keyboard.press
    press("Space")
    went.waits_for("#condition", "paused")
    before = went.page.locator(".row").count()
    site.send(
        stories.tick(stories.NOW + 30, {}, [msgspec.structs.replace(ORDERS[-1], seq=9_999, started=stories.NOW + 30)])
    )
    press("ArrowLeft")
    last = went.page.locator('.row[aria-current="true"]').get_attribute("data-seq")
    press("ArrowLeft")
    earlier = went.page.locator(f'.row[aria-current="true"]:not([data-seq="{last}"])')
    earlier.wait_for()
    assert went.page.locator(".row").count() <= before
    place = went.text(".place")
    link = went.page.url
    press("ArrowRight")
    went.waits_for(f'.row[aria-current="true"][data-seq="{last}"]')
    press("Space")
    went.waits_for("#condition", "live")
    went.waits_for('.row[data-seq="9999"]')

    again = go(link)  # a link to the past
    again.waits_for("#condition", "paused")
    assert again.text(".place") == place


def test_dragging_along_the_strip_goes_back(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "record")
    assert "The last line is cut off." in went.text("#notice")
    rows = went.page.locator(".row").count()
    box = went.page.locator(".strip").bounding_box()
    went.page.mouse.click(box["x"] + box["width"] * 0.02, box["y"] + 10)
    went.page.wait_for_function(f"() => document.querySelectorAll('.row').length < {rows}")
    assert "at=" in went.page.url


@pytest.mark.parametrize(
    ("field", "value", "fits"),
    [
        ("topic", "/Order/Paid", lambda each: each.topic == "/Order/Paid"),
        ("agent", "Books", lambda each: each.handler.startswith("Books.")),
        ("key", "order-40", lambda each: each.key == "order-40"),
        ("failed", "", lambda each: each.outcome != "done" or each.attempt > 1),
    ],
)
def test_a_filter_leaves_what_fits(site: ViewSite, go: Go, field: str, value: str, fits: Any) -> None:
    went = opens(site, go, "no stream", viewport={"width": 1440, "height": 900})
    if field == "failed":
        went.page.keyboard.press("e")
    elif field == "key":
        went.page.locator("[name=key]").fill(value)
        went.page.keyboard.press("Enter")
    else:
        went.page.locator(f"[name={field}]").select_option(value)
    wanted = [str(each.seq) for each in reversed(ORDERS) if fits(each)][:80]
    went.page.wait_for_function(
        f"() => [...document.querySelectorAll('.row')].map((each) => each.dataset.seq).join() === '{','.join(wanted)}'"
    )
    went.page.click("#clear")
    went.page.wait_for_function("() => document.querySelectorAll('.row').length === 80")


def test_of_many_dead_letters_the_newest_are_listed_first(site: ViewSite, go: Go) -> None:
    many = tuple(msgspec.structs.replace(LETTERS[0], id=f"letter {number}") for number in range(300))
    site.answers["dead-letters"] = m.DeadLetterList(letters=many, total=len(many), may_replay=True)
    went = opens(site, go, "letters")
    assert went.page.locator(".letter").count() == 100
    assert "The newest 100 of 300" in went.text("#view-letters")


def test_a_dead_letter_is_replayed_after_a_question(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "letters")
    first, second = LETTERS[0], LETTERS[1]
    site.answers["POST dead-letters/replay"] = m.ReplayReport(
        replayed=(m.Replayed(id=first.id, outcome="handled", before=first.error),)
    )
    went.page.click(f'[data-letter="{first.id}"] button')
    went.page.click("#confirm button:has-text('Cancel')")
    assert site.orders == []
    went.page.click(f'[data-letter="{first.id}"] button')
    site.answers["dead-letters"] = m.DeadLetterList(letters=LETTERS[1:], total=len(LETTERS) - 1, may_replay=True)
    went.page.click("#confirm button:has-text('Replay')")
    turn = went.waits_for(f'[data-letter="{first.id}"] .turn')
    assert "BankRefused" in turn.inner_text()
    assert "handled" in turn.inner_text()
    newest = max(LETTERS, key=lambda each: each.at)
    assert went.page.locator(".letter").first.get_attribute("data-letter") == newest.id  # none has moved
    assert went.page.locator(".letter").count() == len(LETTERS)
    assert site.orders == [{"ids": [first.id], "every": False, "confirmed": True}]

    site.answers["POST dead-letters/replay"] = m.ReplayReport(
        replayed=tuple(
            m.Replayed(id=each.id, outcome="failed_again", before=each.error, after="Away") for each in LETTERS[1:]
        )
    )
    went.page.click("#replay-all")
    went.page.click("#confirm button:has-text('Replay')")
    assert "failed again: Away" in went.waits_for(f'[data-letter="{second.id}"] .turn').inner_text()
    assert site.orders[-1] == {"ids": [], "every": True, "confirmed": True}


def test_without_the_token_nothing_is_replayed_and_no_payload_is_shown(site: ViewSite, go: Go) -> None:
    site.answers |= {
        "graph": stories.shop(origin(may_replay=False, has_payloads=False)),
        "dead-letters": m.DeadLetterList(letters=LETTERS, total=2, counted=2, may_replay=False),
    }
    went = opens(site, go, "letters")
    assert went.page.locator("#replay-all").is_disabled()
    went.page.goto(site.url + EVENT)
    went.waits_for(".tree", "without its token")
    assert went.page.locator("#payloads").is_disabled()


def test_from_a_failure_to_the_line_and_the_decision_in_three_clicks(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "graph")
    went.page.click("#trouble")
    went.page.locator(f'.row[data-seq="{DEAD[0].seq}"]').click()
    went.page.locator('[data-handler="Payments.on_accepted"] button').click()
    went.waits_for("#place", "agents/payments.py:27")
    assert "raise BankRefused" in went.text(".failing")
    assert "P002" in went.text(".why")


def test_a_hundred_agents_stay_readable(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "crowd")
    assert went.page.locator(".node").count() == 10
    went.page.click('.node[data-name="fleet.crane"]')
    went.waits_for('.node[data-name="Crane03"]')
    went.page.keyboard.press("/")
    went.page.keyboard.type("crane03")
    went.page.keyboard.press("Enter")
    went.waits_for('.node[data-name="Crane03"][data-focus]')
    assert 2 <= went.page.locator(".node").count() <= 12
    sizes = went.page.locator(".node .name").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 10
    went.page.click("[aria-label='Show the whole graph']")
    went.page.click("button:has-text('Agents')")
    went.waits_for('.node[data-name="Radio09"]')
    assert went.page.locator(".node").count() == 100
    boxes = went.page.locator(".node .box").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect()).map((b) => [b.x, b.y, b.width, b.height])"
    )
    assert not any(_overlap(one, other) for place, one in enumerate(boxes) for other in boxes[:place])


def _overlap(one: list[float], other: list[float]) -> bool:
    return all(
        max(one[axis], other[axis]) < min(one[axis] + one[axis + 2], other[axis] + other[axis + 2]) for axis in (0, 1)
    )


def test_tab_reaches_everything_and_the_focus_shows(site: ViewSite, go: Go) -> None:
    went = opens(site, go, "chosen", viewport={"width": 1440, "height": 900})
    reached, hidden = set(), []
    for _ in range(300):
        went.page.keyboard.press("Tab")
        where, shows = went.page.evaluate(
            """() => {
              const at = document.activeElement, style = getComputedStyle(at.closest(".node")?.querySelector(".box") ?? at);
              const strip = at.closest(".strip");
              const shows = style.outlineStyle !== "none" || parseFloat(style.strokeWidth) >= 3
                || (strip && getComputedStyle(strip).outlineStyle !== "none");
              return [at === document.body ? "" : at.id || at.className?.baseVal || at.className || at.tagName, Boolean(shows)];
            }"""
        )
        if not where:
            break
        reached.add(where.split()[0])
        if not shows:
            hidden.append(where)
    assert hidden == []
    assert {"theme", "keys", "find", "node", "row", "trouble"} <= reached
    went.page.locator(".node").first.focus()
    went.page.keyboard.press("ArrowDown")
    assert went.page.evaluate("() => document.activeElement.dataset.name") != m.OUTSIDE


def test_who_wants_no_motion_gets_none(site: ViewSite, go: Go) -> None:
    for motion, name in (("reduce", "none"), ("no-preference", "flow")):
        went = opens(site, go, "graph", reduced_motion=motion)
        moving = went.page.locator('.moving[data-state="live"]').first
        assert moving.evaluate("(each) => getComputedStyle(each).animationName") == name


FRAMES = """
  window.frames_drawn = 0;
  const real = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => real((time) => { window.frames_drawn += 1; callback(time); });
"""
MINUTE = 240
"""Ticks in a minute."""


def test_a_minute_of_five_thousand_events_a_second_leaves_nothing_behind(site: ViewSite, go: Go) -> None:
    site.answers["graph"] = stories.shop()
    went = go(site.url, before=FRAMES)
    went.waits_for("#condition", "live")
    session = went.context.new_cdp_session(went.page)

    def passes(first: int, count: int) -> tuple[float, float]:
        """Let time pass; the bytes and the nodes that are left after it."""
        for number in range(first, first + count):
            own = ORDERS[number % 500 : number % 500 + 50]
            at = stories.NOW + 20 + number / 4
            sample = [
                msgspec.structs.replace(each, seq=50_000 + number * 50 + place, started=at)
                for place, each in enumerate(own)
            ]
            counts = {key: m.Counts(delivered=number * 312, failed=number) for key in stories.counts_after(ORDERS)}
            site.send(stories.tick(at, counts, sample, left_out=1_200))
        went.page.wait_for_function(
            f"() => document.querySelector('#trouble')?.textContent && window.ticks_seen !== {first}"
        )
        went.waits_for(".list", "")
        went.page.wait_for_function(
            "(last) => [...document.querySelectorAll('.row')].some((each) => Number(each.dataset.seq) >= last)",
            arg=50_000 + (first + count - 1) * 50,
        )
        session.send("HeapProfiler.collectGarbage")
        session.send("HeapProfiler.collectGarbage")
        used = session.send("Runtime.getHeapUsage")["usedSize"]
        return used, went.page.evaluate("() => document.querySelectorAll('*').length")

    passes(1, MINUTE)  # everything that has a bound reaches it
    started = went.page.evaluate("() => [performance.now(), window.frames_drawn]")
    warm = passes(1 + MINUTE, MINUTE)
    ended = went.page.evaluate("() => [performance.now(), window.frames_drawn]")
    later = passes(1 + 2 * MINUTE, MINUTE)
    assert later[0] - warm[0] < 1_000_000  # bytes
    assert abs(later[1] - warm[1]) < 50  # elements
    assert (ended[1] - started[1]) / ((ended[0] - started[0]) / 1000) <= 61
    assert went.page.evaluate("() => document.querySelectorAll('.row').length") <= 80
