"""The first ten minutes with GraphBus: the shop is made, is red, negotiates, is green, runs, and everything can be taken back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ORDER = json.dumps({"order_id": "1001", "items": [{"sku": "mug", "price": 12.5, "qty": 2}]})


class Shop:
    """A new shop, and the commands that its owner types in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV_"))}
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
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


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    done = Shop(tmp_path).graphbus("init", "my-shop")
    assert done.returncode == 0, done.stderr
    return Shop(tmp_path / "my-shop")


def test_the_new_shop_is_red_for_reasons_of_its_own_and_check_finds_them(shop: Shop) -> None:
    outcomes = shop.tests()
    assert len(outcomes) >= 5
    assert set(outcomes.values()) == {"FAILED"}
    found = shop.graphbus("check", "agents/", "--json")
    assert found.returncode == 3
    codes = re.findall(r'"code": "(GB\d{3})"', found.stdout)
    assert len(codes) >= 5
    assert len(set(codes)) >= 5


def test_a_negotiation_makes_the_shop_green_and_touches_no_test(shop: Shop) -> None:
    before = shop.sources()
    built = shop.graphbus("build", "agents/", "--enable-agents")
    assert built.returncode == 0, built.stderr
    assert set(shop.tests().values()) == {"PASSED"}
    assert shop.graphbus("check", "agents/").returncode == 0
    changed = {path for path, content in shop.sources().items() if before[path] != content}
    assert changed == {"agents/inventory.py", "agents/notification.py", "agents/order_processor.py"}


def test_a_negotiated_shop_processes_an_order(shop: Shop) -> None:
    assert shop.graphbus("build", "agents/", "--enable-agents").returncode == 0
    ran = shop.graphbus("run", ".graphbus/", "--publish", "/Order/Placed", ORDER)
    assert ran.returncode == 0, ran.stderr
    assert "[RUNTIME] Loaded 4 agents" in ran.stdout
    assert "Your order 1001 over 25.00 is confirmed." in ran.stdout + ran.stderr


def test_a_negotiation_can_be_taken_back_to_the_byte(shop: Shop) -> None:
    before = shop.sources()
    assert shop.graphbus("build", "agents/", "--enable-agents").returncode == 0
    assert shop.sources() != before
    undone = shop.graphbus("undo")
    assert undone.returncode == 0, undone.stderr
    assert shop.sources() == before


def test_two_negotiations_over_the_same_shop_come_to_the_same_bytes(tmp_path: Path) -> None:
    def negotiated(folder: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        (tmp_path / folder).mkdir()
        assert Shop(tmp_path / folder).graphbus("init", "my-shop").returncode == 0
        shop = Shop(tmp_path / folder / "my-shop")
        assert shop.graphbus("build", "agents/", "--enable-agents").returncode == 0
        return shop.sources(), {path.name: path.read_bytes() for path in (shop.folder / ".graphbus").glob("*.json")}

    assert negotiated("one") == negotiated("two")


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
