"""The first ten minutes with GraphBus: the shop is made, is red, negotiates, is green, runs, and everything can be taken back."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ORDER = json.dumps({"order_id": "1001", "items": [{"sku": "mug", "price": 12.5, "qty": 2}]})


class Shop:
    """A new shop, and the commands that its owner types in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_PLUGINS", "PYTEST_ADDOPTS", "COV_"))
        }
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )

    def graphbus(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("graphbus_core", *arguments)

    def tests(self) -> dict[str, str]:
        """Run the shop's own tests; give the outcome of each."""
        done = self.run("pytest", "-v", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly")
        return dict(re.findall(r"::(\w+) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout))

    def sources(self) -> dict[str, bytes]:
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in self.folder.rglob("*.py")}


def new_shop(folder: Path) -> Shop:
    done = Shop(folder).graphbus("init", "my-shop")
    assert done.returncode == 0, done.stderr
    return Shop(folder / "my-shop")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return new_shop(tmp_path)


class Negotiated(NamedTuple):
    """A shop after its first negotiation, the sources from before, and what was said."""

    shop: Shop
    before: dict[str, bytes]
    output: str


def negotiated(folder: Path) -> Negotiated:
    shop = new_shop(folder)
    before = shop.sources()
    built = shop.graphbus("build", "agents/", "--enable-agents")
    assert built.returncode == 0, built.stderr
    return Negotiated(shop, before, built.stdout)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Negotiated:
    """Negotiate once for all tests that only look."""
    return negotiated(tmp_path_factory.mktemp("first"))


def test_the_new_shop_is_red_for_reasons_of_its_own_and_check_finds_them(shop: Shop) -> None:
    assert Counter(shop.tests().values()) == {"FAILED": 4, "PASSED": 1}
    found = shop.graphbus("check", "agents/", "--json")
    assert found.returncode == 3
    codes = re.findall(r'"code": "(GB\d{3})"', found.stdout)
    assert len(set(codes)) == 6


def test_a_negotiation_accepts_a_fix_for_each_of_the_six_findings(first: Negotiated) -> None:
    assert "6 proposals, 6 commits." in first.output
    assert "[GATE]" not in first.output
    assert "Your tests" not in first.output


def test_a_negotiation_makes_the_shop_green_and_touches_no_test(first: Negotiated) -> None:
    assert set(first.shop.tests().values()) == {"PASSED"}
    assert first.shop.graphbus("check", "agents/").returncode == 0
    changed = {path for path, content in first.shop.sources().items() if first.before[path] != content}
    assert changed == {"agents/notification.py", "agents/order_processor.py"}


def test_a_negotiation_reads_as_in_seed_000(first: Negotiated) -> None:
    assert re.search(r"^\[AGENT\] OrderProcessor: \"I propose to .+\" \(P\d{3}\)$", first.output, re.MULTILINE)
    assert re.search(r"^\[AGENT\] InventoryService: +\"Accepted — .+\"$", first.output, re.MULTILINE)
    assert "\n[ARBITER] Consensus (2/2). Committing.\n" in first.output
    assert "\n  ✓ Modified: agents/order_processor.py (" in first.output
    assert "\n✓ Build complete — 2 files improved by agents\n✓ Artifacts written to: .graphbus/\n" in first.output


def test_a_negotiated_shop_processes_an_order(first: Negotiated) -> None:
    ran = first.shop.graphbus("run", ".graphbus/", "--publish", "/Order/Placed", ORDER)
    assert ran.returncode == 0, ran.stderr
    assert "[RUNTIME] Loaded 4 agents" in ran.stdout
    assert "Your order 1001 over 25.00 is confirmed." in ran.stdout + ran.stderr


def test_a_negotiation_can_be_taken_back_to_the_byte(first: Negotiated, tmp_path: Path) -> None:
    copy = Shop(Path(shutil.copytree(first.shop.folder, tmp_path / "my-shop")))
    undone = copy.graphbus("undo")
    assert undone.returncode == 0, undone.stderr
    assert copy.sources() == first.before


def test_two_negotiations_over_the_same_shop_come_to_the_same_bytes(first: Negotiated, tmp_path: Path) -> None:
    second = negotiated(tmp_path)
    assert second.shop.sources() == first.shop.sources()
    assert artifacts(second.shop) == artifacts(first.shop)
    assert second.output == first.output


def artifacts(shop: Shop) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (shop.folder / ".graphbus").glob("*.json")}


@pytest.mark.parametrize("template", ["hello", "news"])
def test_the_other_templates_are_healthy_from_the_start(template: str, tmp_path: Path) -> None:
    assert Shop(tmp_path).graphbus("init", "my-project", "--template", template).returncode == 0
    project = Shop(tmp_path / "my-project")
    assert set(project.tests().values()) == {"PASSED"}
    assert project.graphbus("check", ".").returncode == 0
    assert project.graphbus("build", ".").returncode == 0


def test_a_blank_project_grows_by_the_commands_of_its_readme(tmp_path: Path) -> None:
    assert Shop(tmp_path).graphbus("init", "my-bot", "--template", "blank").returncode == 0
    project = Shop(tmp_path / "my-bot")
    for line in commands_of((project.folder / "README.md").read_text()):
        done = project.run(*line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def commands_of(readme: str) -> Iterator[list[str]]:
    """The commands of a README; a server that would stay up is left out."""
    for command in re.findall(r"^\$ (.+)$", readme, re.MULTILINE):
        words = command.split()
        if words[:2] == ["graphbus", "run"]:
            continue
        yield ["graphbus_core", *words[1:]] if words[0] == "graphbus" else words[2:]
