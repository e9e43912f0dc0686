"""`graphbus diff`: two artifact folders, and what a person or a script learns about them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.model.artifacts import SCHEMA_VERSION
from tests.fakes.frozen_artifacts import FROZEN, contents, thaw
from tests.project_files import write_project

CART = """
from graphbus_core import GraphBusNode, schema_method, subscribe

class Cart(GraphBusNode):
    @schema_method({"sku": str}, {"total": int})
    def add(self, sku: str) -> dict:
        self.publish("/Cart/Changed", {"sku": sku})
        return {"total": 1}
"""
WATCHER = """
from graphbus_core import GraphBusNode, subscribe

class Watcher(GraphBusNode):
    @subscribe("/Cart/Changed")
    def on_changed(self, event):
        self.log(event["sku"])
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A built shop; `released` holds its artifacts."""
    write_project(tmp_path, {"pyproject.toml": "", "agents/cart.py": CART, "agents/watcher.py": WATCHER})
    monkeypatch.chdir(tmp_path)
    assert main(["build", "agents"]) == 0
    shutil.copytree(".graphbus", "released")
    capsys.readouterr()
    return tmp_path


def _change(shop: Path) -> None:
    cart = CART.replace('{"total": int}', '{"total": float, "vat": float}').replace("import", "import", 1)
    stock = "import numpy\n" + WATCHER.replace("Watcher", "Stock")
    write_project(shop, {"agents/cart.py": f"# one line more\n{cart}", "agents/stock.py": stock})
    (shop / "agents" / "watcher.py").unlink()
    assert main(["build", "agents"]) == 0


def test_equal_artifacts_have_no_difference(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "released", "--exit-code"]) == 0
    assert capsys.readouterr().out == "✓ No difference between released and .graphbus.\n"


def test_changes_are_told_by_artifacts(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _change(shop)
    capsys.readouterr()
    assert main(["diff", "released"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["Agents", "Graph", "Manifest", "Topics"]
    assert "  ~ Cart methods add output_schema: {total: int} → {total: float, vat: float}" in lines
    assert "  ~ /Cart/Changed subscribers: Watcher → Stock" in lines
    assert {"  + Stock", "  - Watcher", "  > 3 parts only moved to other lines"} <= {*lines}
    assert {"  + edges Cart Stock topic /Cart/Changed", "  - edges Cart Watcher topic /Cart/Changed"} <= {*lines}
    assert {"  + third_party", "  - sources agents/watcher.py", "  + sources agents/stock.py"} <= {*lines}


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--exit-code"], 3), (["--exit-code", "--json"], 3)])
def test_the_status_tells_of_a_difference_when_asked(shop: Path, options: list[str], status: int) -> None:
    _change(shop)
    assert main(["diff", "released", ".graphbus", *options]) == status


def test_json_holds_every_change_with_its_values(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _change(shop)
    capsys.readouterr()
    assert main(["diff", "released", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["is_different"], told["not_compared"]) == (True, [])
    moved = [each["path"] for each in told["changes"] if each["sign"] == "moved"]
    assert moved == [
        ["agents", "Cart"],
        ["agents", "Cart", "methods", "add"],
        ["agents", "Cart", "publications", "/Cart/Changed add"],
    ]
    order = next(each for each in told["changes"] if each["path"] == ["graph", "activation_order"])
    assert (order["sign"], order["old"], order["new"]) == ("changed", ["Cart", "Watcher"], ["Cart", "Stock"])


def test_an_old_format_is_compared_as_it_would_be_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = FROZEN / "format_1/orders/built"
    before = contents(old)
    thaw("format_1/orders", tmp_path)
    assert main(["migrate"]) == 0
    capsys.readouterr()
    assert main(["diff", str(old), ".", "--exit-code"]) == 0
    streams = capsys.readouterr()
    assert streams.out == f"✓ No difference between {old} and ..\n"
    assert streams.err == "Not compared, because the old format does not contain it: imports, third_party.\n"
    assert main(["diff", str(old), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["old"]["format"], told["new"]["format"]) == (1, SCHEMA_VERSION)
    assert contents(old) == before


def test_a_negotiation_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    first, last = (str(FROZEN / "format_1" / name / "built") for name in ("every_shape", "negotiated"))
    assert main(["diff", first, last]) == 0
    out = capsys.readouterr().out
    assert "Negotiations\n  + last\n" in out
    assert "Modified files\n  + files\n  ~ session:  → S001\n" in out


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["released", "nowhere"], 2, "GBE150"),
        (["HEAD~1"], 2, "GBE150"),
        (["agents"], 2, "GBE191"),
        (["broken"], 6, "GBE506"),
        (["newer"], 6, "GBE504"),
    ],
)
def test_what_is_no_artifact_folder_is_refused(
    shop: Path, arguments: list[str], status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broken", "newer"):
        shutil.copytree("released", name)
    Path("broken/graph.json").write_text("{}")
    Path("newer/manifest.json").write_text('{"schema_version": 99}')
    assert main(["diff", *arguments]) == status
    assert code in capsys.readouterr().err
