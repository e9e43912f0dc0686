"""`graphbus inspect`: agents, topics and the graph as text, as mermaid and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.build import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project
from tests.reading import HEAD

SHOP = {
    "pyproject.toml": "[tool.graphbus]\nexternal_topics = ['/Order/Placed']\n",
    "agents/shop.py": HEAD
    + """
class Stock(GraphBusNode):
    @schema_method({"sku": str}, {"left": int})
    def reserve(self, sku: str) -> dict:
        self.publish("/Stock/Changed", {"sku": sku, "left": 1})
        return {"left": 1}

@depends_on("Stock")
class Order(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_placed(self, event):
        self.call("Stock", "reserve", sku=event["sku"])
        self.publish(self.topic(), {})
    @subscribe("/Stock/Changed")
    def on_changed(self, event):
        event.get("left")
    def topic(self):
        return "/Computed"

class Judge(GraphBusNode):
    IS_ARBITER = True
""",
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built project, entered."""
    monkeypatch.chdir(write_project(tmp_path, SHOP))
    build_graph("agents")
    return tmp_path


def _out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["inspect", *arguments]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return streams.out


def test_the_tree_shows_what_each_agent_needs_offers_hears_and_says(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _out(capsys).splitlines() == [
        "3 agents, 2 topics, 2 subscriptions",
        "",
        "Agents",
        "├── Stock  agents/shop.py:3",
        "│   ├── offers reserve",
        "│   └── says /Stock/Changed",
        "├── Order  agents/shop.py:9",
        "│   ├── needs Stock",
        "│   ├── hears /Order/Placed → on_placed",
        "│   ├── hears /Stock/Changed → on_changed",
        "│   ├── says ? (computed)",
        "│   └── calls Stock.reserve",
        "└── Judge  (arbiter)  agents/shop.py:21",
        "",
        "Topic           from       to     payload",
        "/Order/Placed   (outside)  Order",
        "/Stock/Changed  Stock      Order  {sku: str, left: int}",
    ]


def test_one_agent_is_shown_with_its_whole_contract(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, ".graphbus/", "--agent", "Stock").splitlines() == [
        "Stock  agents/shop.py:3",
        "├── offers reserve {sku: str} → {left: int}",
        "└── says /Stock/Changed {sku: str, left: int}",
    ]
    assert "hears /Stock/Changed → on_changed  reads left?" in _out(capsys, "--agent", "Order")


def test_mermaid_draws_every_edge_once(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _out(capsys, "--format", "mermaid").splitlines() == [
        "flowchart LR",
        '  a0{{"Judge"}}',
        '  a1["Order"]',
        '  a2["Stock"]',
        '  t0(["/Order/Placed"])',
        "  t0 -.-> a1",
        '  t1(["/Stock/Changed"])',
        "  a2 -.-> t1",
        "  t1 -.-> a1",
        '  a1 -->|"calls reserve"| a2',
        '  a2 -->|"is needed by"| a1',
    ]


def test_json_is_one_document_with_everything(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_out(capsys, "--json"))
    assert set(found) == {"agents", "topics", "edges", "activation_order", "topic_cycles", "manifest"}
    assert found["activation_order"] == ["Stock", "Order", "Judge"]
    assert [agent["name"] for agent in found["agents"]] == ["Stock", "Order", "Judge"]
    assert {edge["kind"] for edge in found["edges"]} == {"depends_on", "topic", "call"}
    one = json.loads(_out(capsys, "--json", "--agent", "Judge"))
    assert ([agent["name"] for agent in one["agents"]], one["edges"], one["topics"]) == (["Judge"], [], [])


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["nowhere"], "GBE501", 6),
        (["--agent", "Stok"], "GBE511", 6),
        (["--format", "picture"], "GBE110", 2),
    ],
)
def test_what_cannot_be_shown_is_refused(
    shop: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, status: int
) -> None:
    assert main(["inspect", *arguments]) == status
    streams = capsys.readouterr()
    assert streams.out == ""
    assert f"[{code}]" in streams.err
