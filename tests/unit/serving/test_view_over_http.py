"""The live view over HTTP: who may read what, what the stream carries, and what every wrong request is told."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.view.live import LiveView
from tests.fakes.http_site import BEARER, JSON, TOKEN, Answer, SiteClient, build_site, kept_log, served
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\u2028\x00'\"&"
AGENTS = '''
    from graphbus_core import GraphBusNode, subscribe

    class Till(GraphBusNode):
        """Sells <b>things</b>."""

        def on_start(self):
            self.is_broken = True

        @subscribe("/Sold", key="sku")
        def on_sold(self, event):
            if event["sku"] == "bad" and self.is_broken:
                raise ValueError("no " + event["sku"] + event.get("note", ""))
            self.publish("/Booked", {"sku": event["sku"]})

        @subscribe("/Booked")
        def on_booked(self, event):
            pass
    '''
SECRET = {"sku": "bad", "card": "4711", "note": HOSTILE}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SiteClient]:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root = build_site(tmp_path, agents=AGENTS)
    with served(root, view=LiveView(with_payloads=True, redacted=("card",))) as client:
        yield client


def read(site: SiteClient, path: str, **headers: str) -> Any:
    answer = site.get(f"/view/{path}", headers)
    assert answer.status == 200, answer.body
    return answer.document


def publish(site: SiteClient, payload: Any) -> str:
    """Publish on /Sold, wait until all is handled, and return the id of the event."""
    event_id = site.post("/publish/Sold?wait=20", payload).document["event_id"]
    assert comes_true(lambda: any(each["event_id"] == event_id for each in read(site, "deliveries")["deliveries"]))
    return str(event_id)


class Stream:
    """The stream of events, as a page gets it."""

    def __init__(self, site: SiteClient, last_id: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=PATIENCE_S)
        headers = {"last-event-id": last_id} if last_id else {}
        self._connection.request("GET", "/view/events", headers=headers)
        self.response = self._connection.getresponse()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.response.close()
        self._connection.close()

    def next(self, kind: str = "") -> dict[str, Any]:
        """The next message, or the next of a kind, with its `event` and `id`."""
        while True:
            found: dict[str, Any] = {}
            while line := self.response.readline().decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                found[name] = value
            assert found, "the stream has ended"
            if "data" in found and kind in ("", found["event"]):
                return json.loads(found["data"]) | {"event": found["event"], "id": found.get("id", "")}


# --- what is shown ---


def test_the_page_and_its_files_are_served_with_a_strict_policy(site: SiteClient) -> None:
    page = site.get("/view/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert site.get("/view").headers["location"] == "/view/"
    assert "GET /view/" in site.get("/").document["pages"]


@pytest.mark.parametrize(
    "path",
    [
        "static/",
        "static/nothing.js",
        "static/..%2fpages.py",
        "static/../pages.py",
        "static/pages.py",
        "nothing",
        "event/../graph",
    ],
)
def test_what_is_not_there_is_told_as_a_problem(site: SiteClient, path: str) -> None:
    answer = site.get(f"/view/{path}")
    assert answer.status == 404
    assert answer.document["status"] == 404


def test_a_failure_leads_to_its_line_in_three_requests(site: SiteClient) -> None:
    publish(site, {"sku": "mug"})
    event_id = publish(site, SECRET)
    (failed,) = read(site, "deliveries?failed=1")["deliveries"]
    assert (failed["event_id"], failed["handler"], failed["key"], failed["outcome"]) == (
        event_id,
        "Till.on_sold",
        "bad",
        "failed",
    )
    tree = read(site, f"event/{event_id}")
    assert [letter["handler"] for letter in tree["dead_letters"]] == ["Till.on_sold"]
    assert tree["events"][0]["payload"] is None
    source = read(site, "source/Till.on_sold")
    (line,) = source["failing"]
    assert "raise ValueError" in source["lines"][line - source["first"]]


def test_hostile_texts_come_as_json_and_nothing_else(site: SiteClient) -> None:
    event_id = publish(site, SECRET)
    answer = site.get(f"/view/event/{event_id}")
    assert answer.headers["content-type"] == "application/json"
    assert "<script>alert(1)" in answer.document["dead_letters"][0]["error"]
    assert read(site, "graph")["agents"][1]["doc"] == "Sells <b>things</b>."
    for path in (
        "deliveries?topic=<b>",
        "deliveries?key=%00%ff",
        "event/<script>",
        "source/<b>.x",
        "negotiation?session=<b>",
    ):
        assert site.get(f"/view/{path}").headers["content-type"] in ("application/json", "application/problem+json")


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "before=1e3", "after=99999999999999999999"])
def test_a_number_that_is_none_is_refused_in_words(site: SiteClient, query: str) -> None:
    answer = site.get(f"/view/deliveries?{query}")
    assert answer.status == 400
    assert "is not a number" in answer.document["detail"]


def test_payloads_need_the_token_and_are_redacted(site: SiteClient) -> None:
    event_id = publish(site, SECRET)
    assert site.get(f"/view/event/{event_id}?payload=1").status == 401
    tree = site.get(f"/view/event/{event_id}?payload=1", BEARER).document
    assert tree["events"][0]["payload"] == SECRET | {"card": "[redacted]"}
    assert read(site, "graph")["origin"]["has_payloads"] is False
    assert read(site, "graph", **BEARER)["origin"]["has_payloads"] is True


def test_without_the_switch_no_payload_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, agents=AGENTS), view=LiveView()) as site:
        event_id = publish(site, {"sku": "mug"})
        tree = site.get(f"/view/event/{event_id}?payload=1", BEARER).document
        assert tree["events"][0]["payload"] is None
        assert "not recorded" in tree["events"][0]["payload_note"]


def test_without_the_view_there_is_nothing_below_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, agents=AGENTS)) as site:
        assert site.get("/view/").status == site.get("/view/graph").status == 404


# --- the token ---


def cookie_of(answer: Answer) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_the_token_in_the_address_becomes_a_cookie_for_pages_only(site: SiteClient) -> None:
    answer = site.get(f"/view/?token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/view/")
    assert TOKEN not in answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/view/"} <= set(answer.headers["set-cookie"].split("; "))
    cookie = cookie_of(answer)
    assert read(site, "graph", **cookie)["origin"]["may_replay"] is True
    assert site.request("POST", "/publish/Sold", "{}", JSON | cookie | {"x-graphbus-view": "1"}).status == 401


def test_a_wrong_or_old_token_leads_to_the_page_that_says_so(site: SiteClient) -> None:
    answer = site.get("/view/?token=another-one")
    assert (answer.status, answer.headers["location"]) == (303, "/view/?refused=1")
    assert "set-cookie" not in answer.headers
    assert read(site, "graph", cookie="graphbus_1234=abcd")["origin"]["may_replay"] is False


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-graphbus-view": "1"}, 401),
        ({"cookie": ""}, 401),  # the right cookie without our header, which pages of others cannot set
        ({"cookie": "", "x-graphbus-view": "1", "origin": "http://evil.example"}, 403),
        ({"cookie": "", "x-graphbus-view": "1", "origin": "null"}, 403),
        ({"cookie": "", "x-graphbus-view": "1", "host": "evil.example"}, 403),
        ({"cookie": "", "x-graphbus-view": "1", "content-type": "text/plain"}, 415),
    ],
)
def test_a_replay_that_is_not_asked_for_by_the_page_is_refused(
    site: SiteClient, headers: dict[str, str], status: int
) -> None:
    publish(site, SECRET)
    cookie = cookie_of(site.get(f"/view/?token={TOKEN}"))
    sent = JSON | headers | (cookie if "cookie" in headers else {})
    order = json.dumps({"every": True, "confirmed": True})
    assert site.request("POST", "/view/dead-letters/replay", order, sent).status == status
    assert read(site, "dead-letters")["total"] == 1


@pytest.mark.parametrize(
    "order", ["", "[]", '{"every":true}', '{"confirmed":true}', '{"ids":["a"],"every":true,"confirmed":true}']
)
def test_a_replay_that_nobody_has_confirmed_is_refused(site: SiteClient, order: str) -> None:
    assert site.request("POST", "/view/dead-letters/replay", order, BEARER | JSON).status == 400


def test_another_method_than_post_replays_nothing(site: SiteClient) -> None:
    publish(site, SECRET)
    assert site.get("/view/dead-letters/replay", BEARER).status == 404
    assert site.request("PUT", "/view/dead-letters/replay", "{}", BEARER | JSON).status == 405
    assert read(site, "dead-letters")["total"] == 1


def test_a_server_that_others_can_reach_shows_only_the_empty_page_without_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, agents=AGENTS), view=LiveView(), host="0.0.0.0") as site:
        assert site.get("/view/").status == 200
        for path in (
            "graph",
            "events",
            "deliveries",
            "event/x",
            "source/Till.on_sold",
            "dead-letters",
            "negotiation",
            "compare",
        ):
            answer = site.get(f"/view/{path}")
            assert (answer.status, answer.document["code"]) == (401, "GBE673"), path
        assert site.get("/view/graph", cookie_of(site.get(f"/view/?token={TOKEN}"))).status == 200


# --- dead letters ---


def test_a_letter_is_replayed_before_and_after_the_mistake_is_mended(site: SiteClient) -> None:
    publish(site, {"sku": "bad"})
    (letter,) = read(site, "dead-letters")["letters"]
    origin = {"origin": f"http://127.0.0.1:{site.port}", "x-graphbus-view": "1"}
    headers = JSON | origin | cookie_of(site.get(f"/view/?token={TOKEN}"))
    order = json.dumps({"ids": [letter["id"], "unknown"], "confirmed": True})

    def replay() -> list[Any]:
        answer = site.request("POST", "/view/dead-letters/replay", order, headers)
        assert answer.status == 200, answer.body
        return list(answer.document["replayed"])

    first, gone = replay()
    assert (first["outcome"], first["before"], first["after"]) == (
        "failed_again",
        "ValueError: no bad",
        "ValueError: no bad",
    )
    assert gone["outcome"] == "gone"
    site.graph.node("Till").is_broken = False  # type: ignore[attr-defined]
    assert replay()[0]["outcome"] == "handled"
    assert read(site, "dead-letters")["letters"] == []


# --- the stream ---


def test_the_stream_begins_with_all_counts_and_goes_on_with_what_changes(site: SiteClient) -> None:
    with Stream(site) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        hello, first = stream.next(), stream.next()
        assert (hello["event"], first["event"]) == ("hello", "tick")
        assert set(first["handlers"]) == {"Till.on_sold <- /Sold", "Till.on_booked <- /Booked"}
        publish(site, {"sku": "mug"})
        counts: dict[str, Any] = {}
        seen: list[Any] = []
        while len(seen) < 2:
            tick = stream.next("tick")
            counts |= tick["handlers"]
            seen += tick["deliveries"]
        assert [each["handler"] for each in seen] == ["Till.on_sold", "Till.on_booked"]
        assert (seen[0]["key"], seen[0]["payload"], seen[0]["has_payload"]) == ("mug", "", True)
        assert counts["Till.on_sold <- /Sold"]["delivered"] == 1


def test_many_events_are_sampled_and_none_is_forgotten_in_the_counts(site: SiteClient) -> None:
    with Stream(site) as stream:
        stream.next("tick")
        site.graph.bus.run(lambda: [site.graph.publish("/Sold", {"sku": "mug"}) for _ in range(2000)])
        shown = left_out = 0
        while shown + left_out < 4000:
            tick = stream.next("tick")
            shown += len(tick["deliveries"])
            left_out += tick["left_out"]
            assert len(tick["deliveries"]) <= 50
        assert shown + left_out == 4000


def test_a_page_that_comes_back_gets_what_it_has_missed(site: SiteClient) -> None:
    with Stream(site) as watcher:
        with Stream(site) as stream:
            last = stream.next("tick")["id"]
        publish(site, {"sku": "mug"})
        while not watcher.next("tick")["deliveries"]:
            pass
        with Stream(site, last) as again:
            hello = again.next("hello")
            assert last.startswith(hello["origin"]["server"])
            assert again.next("tick")["deliveries"]
        with Stream(site, "another-server:7") as fresh:
            fresh.next("hello")
            assert set(fresh.next("tick")["handlers"]) == {"Till.on_sold <- /Sold", "Till.on_booked <- /Booked"}


def test_the_end_of_the_graph_is_the_end_of_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    root = build_site(tmp_path, agents=AGENTS)
    with served(root, view=LiveView()) as site:
        stream = Stream(site)
        before = stream.next("hello")["origin"]["server"]
    with stream:
        assert "stopped" in stream.next("bye")["reason"]
        assert stream.response.read() == b""
    with served(root, view=LiveView()) as site, Stream(site) as stream:
        assert stream.next("hello")["origin"]["server"] != before


def test_clients_that_hang_up_are_forgotten(site: SiteClient) -> None:
    import gc

    from graphbus_core.view.pulse import Pulse

    (pulse,) = (
        each for each in gc.get_objects() if isinstance(each, Pulse) and each._server in str(read(site, "graph"))
    )
    for _ in range(3):
        with Stream(site) as stream:
            stream.next("tick")
            assert pulse.is_watched
    publish(site, {"sku": "mug"})  # a tick that cannot be sent shows that the client is gone
    assert comes_true(lambda: not pulse.is_watched)


def test_nothing_that_was_asked_here_was_logged_as_an_error(site: SiteClient) -> None:
    with kept_log() as log:
        for path in (
            "graph",
            "deliveries",
            "dead-letters",
            "negotiation",
            "compare",
            "source/Nobody.x",
            "event/x",
            "compare?left=x",
        ):
            site.get(f"/view/{path}")
    assert "failed (request" not in log.text
