"""What the view is made of: samples, trees, redaction, the drawing, negotiations and comparisons, each on its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.instruments.trace import REDACTED
from graphbus_core.hosting.metrics import HandlerMetrics
from graphbus_core.model.agent import TopicDefinition
from graphbus_core.model.artifacts import TopicsArtifact
from graphbus_core.view.comparing import Side, compare_sides
from graphbus_core.view.drawing import draw_graph
from graphbus_core.view.messages import OUTSIDE, Origin
from graphbus_core.view.negotiation import Board
from graphbus_core.view.project import EMPTY
from graphbus_core.view.recorder import INBOX, Recorder, choose_sample
from graphbus_core.view.records import MemoryRecords
from graphbus_core.view.trees import Known, Reveal, build_tree, redact
from tests.unit.view.test_view_records import traced

ORIGIN = Origin(kind="run", name="shop", server="s", is_live=True)


def recorded(
    *, with_payloads: bool = False, redacted: tuple[str, ...] = ()
) -> tuple[MessageBus, Recorder, MemoryRecords]:
    """A bus whose handlers are recorded: `Till.sell` of /Sold fails for a quantity of 0."""
    records = MemoryRecords()
    recorder = Recorder(records, with_payloads=with_payloads, redacted=redacted)
    bus = MessageBus(middleware=(HandlerMetrics(recorder.note, recorder.note_failure),))

    def sell(event: Mapping[str, Any]) -> None:
        if not event["quantity"]:
            raise ValueError("nothing\nto sell")

    bus.subscribe("/Sold", sell, name="Till.sell", owner="Till")
    return bus, recorder, records


def test_what_handlers_do_becomes_deliveries_with_their_errors() -> None:
    bus, recorder, _ = recorded()
    with bus:
        bus.publish("/Sold", {"quantity": 1})
        bus.publish("/Sold", {"quantity": 0})
    done, failed = recorder.take()
    assert (done.handler, done.topic, done.outcome, done.seq) == ("Till.sell", "/Sold", "done", 1)
    assert (failed.outcome, failed.error, failed.seq) == ("failed", "ValueError: nothing", 2)
    assert failed.place.startswith(__file__)
    assert failed.started >= failed.published
    assert failed.duration_s >= 0
    assert recorder.take() == []


def test_an_inbox_that_nobody_empties_keeps_the_last_runs_and_every_failure_among_them() -> None:
    bus, recorder, _ = recorded()
    with bus:
        bus.publish("/Sold", {"quantity": 0})
        for _ in range(INBOX + 100):
            bus.publish("/Sold", {"quantity": 1})
    taken = recorder.take()
    assert len(taken) == INBOX + 1
    assert taken[0].outcome == "failed"


def test_payloads_are_kept_only_if_that_was_asked_for() -> None:
    for is_asked in (True, False):
        bus, recorder, records = recorded(with_payloads=is_asked)
        with bus:
            bus.publish("/Sold", {"quantity": 1, "note": "x" * 70_000})
            bus.publish("/Sold", {"quantity": 2})
        large, small = recorder.take()
        assert (large.has_payload, small.has_payload) == (False, is_asked)
        assert [each.payload for each in records.tree(small.event_id)] == ['{"quantity":2}' if is_asked else ""]


def test_a_sample_has_the_failures_and_something_of_each_handler() -> None:
    records = MemoryRecords()
    many = [records.add(traced(number, handler=f"Shop.h{number % 3}")) for number in range(1, 500)]
    rare = records.add(traced(500, handler="Rare.one"))
    bad = records.add(traced(501, outcome="failed"))
    again = records.add(traced(502, attempt=2))
    sample = choose_sample([*many, rare, bad, again], 20)
    assert len(sample) == 20
    assert {rare, bad, again} <= set(sample)
    assert {each.handler for each in sample} >= {"Shop.h0", "Shop.h1", "Shop.h2"}
    assert list(sample) == sorted(sample, key=lambda each: each.seq)
    assert choose_sample(many[:3], 20) == tuple(many[:3])


# --- trees ---


def test_a_tree_knows_causes_that_are_no_longer_in_the_records() -> None:
    records = MemoryRecords()
    records.add(traced(3, causation_id=f"{2:032x}"))
    tree = build_tree(f"{3:032x}", records.tree(f"{3:032x}"), Known(), Reveal())
    assert {(each.event_id[-1], each.topic) for each in tree.events} == {("2", ""), ("3", "/Order/Placed")}
    assert tree.root == f"{1:032x}"


def test_an_event_of_which_nothing_is_known_is_refused_in_words() -> None:
    with pytest.raises(GraphBusError, match="no event") as refusal:
        build_tree("e" * 32, (), Known(), Reveal())
    assert refusal.value.code == "GBE685"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"Card_Number": "4711", "sku": "mug"}, {"Card_Number": REDACTED, "sku": "mug"}),
        ([{"api_token": {"deep": 1}}], [{"api_token": REDACTED}]),
        ({"order": {"card": [1, 2]}, "n": None}, {"order": {"card": REDACTED}, "n": None}),
        ("card", "card"),
    ],
)
def test_the_values_of_redacted_keys_are_never_shown(value: Any, shown: Any) -> None:
    assert redact(value, ("card", "TOKEN")) == shown


@pytest.mark.parametrize(
    ("text", "payload", "words"),
    [
        ('{"a":1}', {"a": 1}, ""),
        ("", None, "not kept"),
        ("{torn", None, "not kept"),
        ("[" * 5000 + "]" * 5000, None, "not kept"),
    ],
    ids=["json", "none", "torn", "deep"],
)
def test_payloads_that_cannot_be_shown_are_told_of(text: str, payload: Any, words: str) -> None:
    records = MemoryRecords()
    records.add(traced(1, payload=text))
    tree = build_tree(f"{1:032x}", records.tree(f"{1:032x}"), Known(), Reveal(is_asked=True, is_recorded=True))
    assert tree.events[0].payload == payload
    assert words in tree.events[0].payload_note


# --- the drawing ---


def test_a_graph_without_agents_says_so() -> None:
    picture = draw_graph(EMPTY, ORIGIN, {})
    assert (picture.agents, picture.lines) == ((), ())
    assert "no agents" in picture.note


@pytest.fixture(scope="module")
def orders() -> Any:
    from graphbus_core.compiler.project import Project
    from graphbus_core.compiler.stages import History, describe_project
    from graphbus_core.model.config import BuildConfig
    from graphbus_core.settings import resolve_build

    folder = Path(__file__).resolve().parents[3] / "examples" / "orders"
    config = resolve_build(BuildConfig(paths=(str(folder / "orders"),), dry_run=True))
    return describe_project(Project.read(config), History()), folder / ".graphbus"


def test_the_drawing_has_every_agent_the_outside_and_verdicts(orders: Any) -> None:
    from graphbus_core.view.drawing import read_verdicts

    artifacts, folder = orders
    picture = draw_graph(artifacts, ORIGIN, read_verdicts(artifacts, folder), {"Books": "It was left out."})
    assert {box.name for box in picture.agents} == {OUTSIDE, "Checkout", "Pricing", "Payments", "Books"}
    assert {(line.source, line.target, line.topic, line.verdict) for line in picture.lines} == {
        (OUTSIDE, "Checkout", "/Order/Placed", "proven"),
        ("Checkout", "Pricing", "/Price/Asked", "proven"),
        ("Checkout", "Payments", "/Order/Accepted", "proven"),
        ("Payments", "Books", "/Order/Paid", "proven"),
    }
    books = next(box for box in picture.agents if box.name == "Books")
    assert (books.note, books.file, books.handlers[0].name) == (
        "It was left out.",
        "orders/agents/books.py",
        "Books.on_order_paid",
    )
    assert all(line.curve.startswith("M") for line in picture.lines)


def test_without_sources_every_edge_is_unknown_with_a_reason(orders: Any) -> None:
    picture = draw_graph(orders[0], ORIGIN, {})
    assert {(line.verdict, bool(line.doubt)) for line in picture.lines} == {("unknown", True)}


# --- negotiations ---


def statuses(board: Board) -> list[str]:
    """Those of the rungs in the last check of the only proposal."""
    (proposal,) = board.picture().proposals
    return [rung.status for rung in proposal.checks[-1]]


def test_a_corrected_proposal_climbs_from_the_first_rung_again() -> None:
    board = Board()
    proposal = {"proposal_id": "P001", "round": 1, "src": "Shop", "intent": "fix it"}
    failed = {"rung": "G0", "status": "failed", "message": "too large"}
    for _ in range(2):
        board.add("/Negotiation/Proposed", {"proposal": proposal})
        assert statuses(board) == ["running", *["waiting"] * 8]
        board.add("/Negotiation/Checked", {"proposal_id": "P001", "result": failed})
        report = {"proposal_id": "P001", "passed": False, "rungs": [failed]}
        board.add("/Negotiation/Gated", {"proposal_id": "P001", "report": report})
    assert len(board.picture().proposals[0].checks) == 2


def test_a_board_follows_a_proposal_to_its_end() -> None:
    board = Board(cap_usd=2.0)
    proposal = {"proposal_id": "P001", "round": 1, "src": "Shop", "intent": "fix <it>", "affects": ["Till"]}
    board.add(
        "/Negotiation/Started",
        {"session": "S001", "intent": "", "backend": "rules", "agents": ["Shop", "Till"], "arbiters": []},
    )
    board.add("/Negotiation/Proposed", {"proposal": proposal})
    assert board.picture().proposals[0].stage == "gate"
    assert statuses(board) == ["running", *["waiting"] * 8]
    for rung, status in (("G0", "passed"), ("G1", "not_run")):
        board.add("/Negotiation/Checked", {"proposal_id": "P001", "result": {"rung": rung, "status": status}})
    assert statuses(board) == ["passed", "not_run", "running", *["waiting"] * 6]
    report = {"proposal_id": "P001", "passed": True, "rungs": [{"rung": "G0", "status": "passed"}]}
    board.add("/Negotiation/Gated", {"proposal_id": "P001", "report": report})
    assert statuses(board) == ["passed"]
    vote = {"proposal_id": "P001", "evaluator": "Till", "round": 1, "decision": "reject", "reasoning": "no"}
    board.add("/Negotiation/Evaluated", {"evaluation": vote})
    board.add(
        "/Negotiation/Spent",
        {"calls": 2, "requests": 2, "cached": 0, "tokens": 9, "cost_usd": 0.5, "unpriced": 0, "of_usd": 2.0},
    )
    board.add(
        "/Negotiation/Rejected",
        {
            "proposal_id": "P001",
            "status": "rejected",
            "reason": "1 of 1 against it",
            "accepts": 0,
            "rejects": 1,
            "abstains": 0,
        },
    )
    picture = board.picture()
    case = picture.proposals[0]
    assert (case.status, case.stage, case.outcome) == ("rejected", "decided", "1 of 1 against it")
    assert [(each.evaluator, each.decision, each.reason) for each in case.votes] == [("Till", "reject", "no")]
    assert (picture.cost.spent_usd, picture.cost.cap_usd, picture.state) == (0.5, 2.0, "running")
    assert case.title == "fix <it>"


# --- what is gone ---


def test_a_trace_that_is_deleted_while_it_is_shown_is_told_in_words(tmp_path: Path) -> None:
    from graphbus_core.hosting.serving.pages import Asked
    from graphbus_core.view.pages import ViewPages
    from graphbus_core.view.still import StillSource
    from graphbus_core.view.trace_file import FileRecords

    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"trace_version":1}\n' + msgspec.json.encode(traced(1)) + b"\n")
    pages = ViewPages(StillSource("trace", "trace.jsonl", EMPTY, tmp_path, records=FileRecords(path)))
    assert pages.answer(Asked("GET", "deliveries", {})).status == 200
    path.unlink()
    answer = pages.answer(Asked("GET", "deliveries", {}))
    assert answer.status == 422
    assert b"cannot be read any more" in answer.body
    parts: list[bytes | None] = []
    end = pages.follow(Asked("GET", "events", {}), "", parts.append)
    assert [part.partition(b"event: ")[2].split()[0] for part in parts if part] == [b"hello", b"tick"]
    end()
    pages.close()


def test_the_line_at_which_a_handler_failed_is_known_from_a_trace(tmp_path: Path) -> None:
    from graphbus_core.view.letters import find_places
    from graphbus_core.view.trace_file import FileRecords

    failed = traced(1, outcome="failed", error="ValueError: no", place="shop/till.py:7", handler="Till.sell")
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"trace_version":1}\n' + msgspec.json.encode(failed) + b"\n" + msgspec.json.encode(traced(2)))
    assert find_places("Till.sell", [], FileRecords(path)) == ["shop/till.py:7"]
    assert find_places("Shop.on_order", [], FileRecords(path)) == []


# --- comparisons ---


def side(*deliveries: Any) -> MemoryRecords:
    records = MemoryRecords()
    for each in deliveries:
        records.add(each)
    return records


def test_what_is_published_differently_is_told_topic_by_topic() -> None:
    left = side(
        traced(1, payload='{"sku":"mug"}'),
        traced(2, topic="/Gone"),
        *(traced(number, topic="/Often") for number in range(10, 14)),
        traced(3, topic="/Same"),
    )
    right = side(
        traced(1, payload='{"article":"mug"}', handler="Other.on_order"),
        traced(2, topic="/New"),
        *(traced(number, topic="/Often", outcome="failed") for number in range(10, 30)),
        traced(3, topic="/Same"),
    )
    found = compare_sides({"before": left, "after": right}, "", "")
    assert (found.left, found.right, found.same) == ("before", "after", ("/Same",))
    assert {(each.kind, each.topic) for each in found.differences} == {
        ("removed", "/Gone"),
        ("added", "/New"),
        ("count", "/Often"),
        ("failures", "/Often"),
        ("fields", "/Order/Placed"),
        ("handlers", "/Order/Placed"),
    }


def test_two_builds_are_compared_by_topics_and_handlers() -> None:
    def build(*topics: TopicDefinition) -> Side:
        return msgspec.structs.replace(EMPTY, topics=TopicsArtifact(topics))

    found = compare_sides(
        {
            "a": build(TopicDefinition(name="/A", subscribers=("X",)), TopicDefinition(name="/B")),
            "b": build(TopicDefinition(name="/A", subscribers=("Y",))),
        },
        "a",
        "b",
    )
    assert [(each.kind, each.topic) for each in found.differences] == [("handlers", "/A"), ("removed", "/B")]


def test_one_side_alone_is_told_in_words_and_an_unknown_one_refused() -> None:
    assert "Only one" in compare_sides({"now": side()}, "", "").note
    with pytest.raises(GraphBusError, match="no trace 'nowhere'"):
        compare_sides({"now": side(), "then": side()}, "nowhere", "now")
