"""Calls, events and pages over HTTP, as a client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.http_site import BEARER, JSON, TOKEN, SiteClient, build_site, kept_log, served
from tests.fakes.pausing import comes_true


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteClient]:
    root = build_site(tmp_path_factory.mktemp("site"), "call_timeout_s = 60\nmax_body_bytes = 2000")
    patch = pytest.MonkeyPatch()
    patch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with patch.context(), served(root) as client:
        yield client
    patch.undo()


# --- calls ---


def test_a_call_gives_the_result_of_the_method(site: SiteClient) -> None:
    total = site.post("/call/Till/read", {}).document["total"]
    answer = site.post("/call/Till/add", {"amount": 5})
    assert (answer.status, answer.document) == (200, {"total": total + 5})
    assert answer.headers["content-type"] == "application/json"


def test_a_method_of_an_async_agent_is_called_like_any_other(site: SiteClient) -> None:
    assert site.post("/call/Clock/ask", {}).document == {"late": False}


REFUSED = [
    # path, body, status, code, part of the sentence
    ("/call/Tilll/add", '{"amount": 1}', 404, "GBE620", "Did you mean 'Till'?"),
    ("/call/Till/ad", '{"amount": 1}', 404, "GBE621", "Did you mean 'add'?"),
    ("/call/Till/on_order", "{}", 404, "GBE621", "no method on_order that can be called"),
    ("/call/Till/add", '{"amount": "one"}', 422, "GBE622", "amount: expected int, got str 'one'"),
    ("/call/Till/add", '{"amount": 1, "more": 2}', 422, "GBE622", "more"),
    ("/call/Till/add", "[1]", 400, "GBE670", "it is not an object"),
    ("/call/Till/add", '{"amount": 1,}', 400, "GBE670", "line 1, column 14"),
    ("/call/Till/add", '{"amount": 1, "amount": 2}', 400, "GBE670", "the name 'amount' appears twice"),
    ("/call/Till/add", '{"amount": NaN}', 400, "GBE670", "NaN is not a number"),
    ("/publish/Order/Place", "{}", 404, "GBE619", "Did you mean '/Order/Placed'?"),
    ("/publish/Order/*", "{}", 400, "GBE610", "'/Order/*' cannot be used here"),
    ("/publish/Order/Placed", '{"order_id": 7, "quantity": 1}', 422, "GBE614", "order_id: expected str, got int 7"),
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: f"{refused[0]} {refused[1]}")
def test_a_refusal_says_what_is_wrong_as_a_problem_document(
    site: SiteClient, refused: tuple[str, str, int, str, str]
) -> None:
    path, body, status, code, sentence = refused
    answer = site.request("POST", path, body, BEARER | JSON)
    problem = answer.document
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert sentence in problem["detail"]
    assert problem["title"]
    assert problem["hint"]


def test_what_does_not_fit_is_listed_field_by_field(site: SiteClient) -> None:
    problem = site.post("/publish/Order/Placed", {"order_id": 7, "quantity": "x"}).document
    assert problem["errors"] == [
        {"field": "order_id", "expected": "str", "got": "int 7"},
        {"field": "quantity", "expected": "int", "got": "str 'x'"},
    ]


@pytest.mark.parametrize("method", ["fail", "lie"])
def test_a_failure_inside_is_in_the_log_and_not_in_the_answer(site: SiteClient, method: str) -> None:
    with kept_log() as log:
        answer = site.post(f"/call/Till/{method}", {})
    assert answer.status == 500
    assert set(answer.document) == {"title", "status", "detail", "hint", "request_id"}
    assert not [word for word in ("secret", "Traceback", ".py", "plenty") if word in answer.body.decode()]
    assert answer.document["request_id"] in log.text
    assert "secret of the house" in log.text or "returned a wrong result" in log.text


def test_a_call_that_takes_too_long_is_answered_and_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHBUS_TOKEN", TOKEN)
    with served(build_site(tmp_path, "call_timeout_s = 0.1")) as site:
        answer = site.post("/call/Till/sleep", {"seconds": 2.0})
        assert (answer.status, answer.document["code"]) == (504, "GBE679")
        assert comes_true(lambda: site.post("/call/Till/add", {"amount": 0}).status == 200)


# --- events ---

ORDER = {"order_id": "1", "quantity": 1}


def test_who_waits_hears_what_became_of_the_event(site: SiteClient) -> None:
    answer = site.post("/publish/Order/Placed?wait=60", ORDER)
    assert (answer.status, answer.document["status"]) == (200, "delivered")
    failed = site.post("/publish/Order/Placed?wait=60", {"order_id": "1", "quantity": -1})
    assert (failed.status, failed.document["status"]) == (200, "failed")
    assert failed.document["failed"] == ["Till.on_order"]
    assert "secret" not in failed.body.decode()


def test_who_waits_too_short_a_time_is_told_that_it_is_on_its_way(site: SiteClient) -> None:
    answer = site.post("/publish/Order/Placed?wait=0.05", {"order_id": "slow", "quantity": 3000})
    assert (answer.status, answer.document["status"]) == (202, "accepted")


@pytest.mark.parametrize("text", ["long", "-1", "nan", "inf", "60.5", "1e9"])
def test_a_wait_that_is_no_time_or_too_long_is_refused_before_anything_is_published(
    site: SiteClient, text: str
) -> None:
    published = site.graph.bus.statistics().published
    answer = site.post(f"/publish/Order/Placed?wait={text}", ORDER)
    assert answer.status == 400
    assert answer.document == {
        "title": "Bad Request",
        "status": 400,
        "detail": "`wait` must be a number of seconds from 0 to 60.",
    }
    assert site.graph.bus.statistics().published == published


def test_a_topic_that_is_only_heard_outside_takes_any_payload(site: SiteClient) -> None:
    for body in ("", "null", "[1]", '"text"', "{}"):
        assert site.request("POST", "/publish/Order/Cancelled?wait=60", body, BEARER | JSON).status == 200


# --- what surrounds a body ---


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"content-type": "text/plain"}, "{}", 415, "GBE677"),
        ({}, "{}", 415, "GBE677"),
        (JSON | {"content-encoding": "gzip"}, "{}", 415, "GBE677"),
        ({"content-type": "application/JSON; charset=utf-8"}, '{"amount": 0}', 200, ""),
        (JSON, " " * 2001, 413, "GBE676"),
    ],
)
def test_the_headers_of_a_body_are_believed_or_refused(
    site: SiteClient, headers: dict[str, str], body: str, status: int, code: str
) -> None:
    answer = site.request("POST", "/call/Till/add", body, BEARER | headers)
    assert answer.status == status
    assert answer.document.get("code", "") == code


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/call/Till/add", 405, "POST"),
        ("POST", "/metrics", 405, "GET, HEAD"),
        ("GET", "/nothing", 404, ""),
        ("GET", "/../../etc/passwd", 404, ""),
    ],
)
def test_an_address_or_method_that_does_not_exist(
    site: SiteClient, method: str, path: str, status: int, allow: str
) -> None:
    answer = site.request(method, path, headers=BEARER)
    assert (answer.status, answer.document["status"]) == (status, status)
    assert sorted(answer.headers.get("allow", "").replace(" ", "").split(",")) == sorted(
        allow.replace(" ", "").split(",")
    )


# --- pages ---


def test_the_first_page_lists_what_can_be_requested(site: SiteClient) -> None:
    listed = site.get("/").document
    assert "POST /call/Till/add" in listed["call"]
    assert "POST /publish/Order/Placed" in listed["publish"]
    assert "GET /metrics" in listed["pages"]


def test_no_page_is_kept_by_caches_or_guessed_at_by_browsers(site: SiteClient) -> None:
    for answer in (site.get("/livez"), site.get("/nothing"), site.post("/call/Till/add", {"amount": 0})):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


def test_each_request_to_the_graph_is_one_line_of_the_log(site: SiteClient) -> None:
    with kept_log() as log:
        site.get("/livez")
        site.get("/metrics")
        site.request("POST", "/call/Till/only_here")  # without a token
        site.post("/call/Till/add", {"amount": 0})
        site.post("/call/Till/only_here", {})
        site.post("/call/Till/add", {"amount": 0})  # its line comes after that of the one before
    lines = [line for line in log.lines if any(path in line for path in ("/livez", "/metrics", "/only_here"))]
    assert len(lines) == 1  # requests of other tests may still be written down
    assert lines[0].startswith("POST /call/Till/only_here 404 in ")
    assert any(line.startswith("POST /call/Till/add 200 in ") for line in log.lines)
