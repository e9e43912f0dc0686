"""The comparison of docs/compare.md: its programs, its figures that follow from them, and its scripted model."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from order_flow import ASKING, FLOWS, LATENCY_S, OURS, THEIRS, lines_of_code, scripted_model
from stopwatch import ROOT

from tests.patience import PATIENCE_S

PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "status"), [({}, "confirmed"), ({"qty": 0}, "invalid"), ({"sku": "vase"}, "sold out")]
)
def test_the_flow_in_graphbus_does_what_the_page_says(changed: dict[str, object], status: str) -> None:
    spec = importlib.util.spec_from_file_location("graphbus_flow", FLOWS / f"{OURS}.py")
    assert spec is not None
    assert spec.loader is not None
    flow = importlib.util.module_from_spec(spec)
    sys.modules["graphbus_flow"] = flow
    spec.loader.exec_module(flow)
    with flow.graph:
        assert flow.handle({"order_id": "1", "sku": "mug", "qty": 1} | changed) == status


def test_the_page_shows_all_three_programs_and_counts_their_lines() -> None:
    flows = [OURS, THEIRS, ASKING]
    assert re.findall(r'^--8<-- "benchmarks/flows/(\w+)\.py"$', PAGE, re.MULTILINE) == flows
    counted = " | ".join(str(lines_of_code(FLOWS / f"{flow}.py")) for flow in flows)
    assert f"| lines of code | {counted} |" in PAGE


def test_docstrings_comments_and_empty_lines_are_no_code(tmp_path: Path) -> None:
    path = tmp_path / "flow.py"
    path.write_text('"""Says\n\nwhat."""\n\n# why\ndef step():\n    """Do."""\n    return 1\n', encoding="utf-8")
    assert lines_of_code(path) == 2


def test_the_price_on_the_page_is_its_arithmetic() -> None:
    price = 500 * 3 / 1e6 + 20 * 15 / 1e6
    assert f"{price:.4f} USD" in PAGE
    assert f"{price * 1000:.2f} USD" in PAGE


def test_the_version_on_the_page_is_the_one_that_is_measured() -> None:
    pinned = (ROOT / "requirements" / "peer-langgraph.txt").read_text(encoding="utf-8")
    assert re.search(r"^langgraph==(\S+)", pinned, re.MULTILINE)[1] in PAGE  # type: ignore[index]


def test_the_scripted_model_says_yes_after_its_latency() -> None:
    with scripted_model() as url:
        started = time.perf_counter()
        with urlopen(Request(url, b"{}", {"Content-Type": "application/json"}), timeout=PATIENCE_S) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == "yes"
        assert time.perf_counter() - started >= LATENCY_S
