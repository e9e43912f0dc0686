"""Each example is checked, negotiated over, built, run and tested as its README says, in a copy of its folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDER = '{"order_id": "1001", "items": [{"sku": "mug", "price": 12.5, "qty": 2}]}'


class Example(NamedTuple):
    """What is run in an example, and what must be seen when it is."""

    agents: str
    run: tuple[str, ...]
    seen: tuple[str, ...]


CASES = {
    "hello_graphbus": Example(
        agents="hello_graphbus",
        run=("--entrypoint", "hello_graphbus.main:run"),
        seen=("Hello, world!", "printed 'Hello, world!' (13 characters)"),
    ),
    "shop": Example(
        agents="agents/",
        run=("--publish", "/Order/Placed", ORDER),
        seen=("Your order 1001 over 25.00 is confirmed.", "Inventory changed: 10 x mug left"),
    ),
    "news": Example(
        agents="news",
        run=("--entrypoint", "news.main:run"),
        seen=("skipped 1 item(s)", "left out tw-8, a retelling of mp-101", "Digest of 5 articles"),
    ),
}

pytestmark = pytest.mark.slow


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """Copy the example, without what running it may have left there."""
    leftovers = shutil.ignore_patterns(".graphbus", "__pycache__", ".pytest_cache", "digest.md")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=leftovers))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m ...` in the folder, with stderr behind stdout."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def succeed(folder: Path, *arguments: str) -> str:
    finished = run(folder, *arguments)
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def sources(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.py")}


def test_every_folder_of_examples_is_a_case() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == set(CASES)


def test_check_finds_nothing_in_an_example(name: str, folder: Path) -> None:
    output = succeed(folder, "graphbus_core", "check", CASES[name].agents)
    assert not re.findall(r"GB\d{3}", output)


def test_an_example_is_built_and_run_as_its_readme_says(name: str, folder: Path) -> None:
    example = CASES[name]
    succeed(folder, "graphbus_core", "build", example.agents)
    output = succeed(folder, "graphbus_core", "run", ".graphbus/", *example.run)
    for text in ("[RUNTIME] Loaded", *example.seen):
        assert text in output


def test_the_tests_of_an_example_pass(folder: Path) -> None:
    output = succeed(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert re.search(r"\d+ passed", output)
    assert not re.search(r"skipped|xfailed|warning", output)


def test_a_negotiation_leaves_a_healthy_example_as_it_is(name: str, folder: Path) -> None:
    before = sources(folder)
    succeed(folder, "graphbus_core", "build", CASES[name].agents, "--enable-agents")
    assert sources(folder) == before


def test_the_two_doors_of_hello_graphbus_open_as_modules(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "hello_graphbus", tmp_path / "hello"))
    succeed(folder, "graphbus_core.build", "--root", "hello_graphbus.agents")
    output = succeed(folder, "graphbus_core.runtime", "--entrypoint", "hello_graphbus.main:run")
    assert "Hello, world!" in output
