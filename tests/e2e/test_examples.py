"""Each example is checked, negotiated over, built, run and tested as its README says, in a copy of its folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.transcript import BLOCK, commands, environment
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"

SEEN = {
    "hello_graphbus": ("Hello, world!", "printed 'Hello, world!' (13 characters)"),
    "shop": (
        "Your order 1001 over 25.00 is confirmed.",
        "Inventory changed: 10 x mug left",
        '{"earned":0.0,"waiting":0.0}',
    ),
    "own_model": (
        '[AGENT] OrderProcessor: "I propose to add input validation for negative prices" (P001)',
        "[ARBITER] Consensus (2/2). Committing.",
        "consensus:  unanimous (InventoryService, NotificationService)",
        '{"status":"confirmed","total":25.0}',
    ),
    "orders": (
        '{"revenue":25.0}',
        "500 orders in",
        "revenue 13275.00",
        "Books.on_order_paid: 500 attempts, 0 failed",
    ),
    "news": ("skipped 1 item(s)", "left out tw-8, a retelling of mp-101", "Digest of 5 articles", "## Culture"),
}
"""What must be seen when the commands of an example's README are run."""

pytestmark = pytest.mark.slow


@pytest.fixture(params=SEEN)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """Copy the example, without what running it may have left there."""
    leftovers = shutil.ignore_patterns(".graphbus", "__pycache__", ".pytest_cache", "digest.md")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=leftovers))


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in the folder, with stderr behind stdout."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def succeed(folder: Path, command: str) -> str:
    finished = shell(folder, command)
    assert finished.returncode == 0, f"$ {command}\n{finished.stdout}"
    return finished.stdout


def commands_of_the_readme(folder: Path) -> list[str]:
    text = (folder / "README.md").read_text(encoding="utf-8")
    blocks = [block["body"] for block in BLOCK.finditer(text) if block["language"] == "console"]
    return [command.text for body in blocks for command in commands(body)]


def agents_of(folder: Path) -> str:
    """Give what the README builds or checks."""
    return next(
        command.split()[-1] for command in commands_of_the_readme(folder) if command.startswith("graphbus check")
    )


def sources(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.py")}


def test_every_folder_of_examples_is_tried() -> None:
    """That with programs in other languages is negotiated in tests/protocol/test_sessions.py."""
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == {*SEEN, "other_languages", "celery"}


def test_the_commands_of_an_examples_readme_work(name: str, folder: Path) -> None:
    output = "".join(succeed(folder, command) for command in commands_of_the_readme(folder))
    for text in ("[RUNTIME] Loaded", *SEEN[name]):
        assert text in output
    assert re.search(r"\d+ passed", output)
    assert not re.search(r"\d+ (skipped|xfailed|warnings?)|GB\d{3}", output)


def test_a_negotiation_leaves_a_healthy_example_as_it_is(folder: Path) -> None:
    before = sources(folder)
    succeed(folder, f"graphbus build {agents_of(folder)} --enable-agents --model rules")
    assert sources(folder) == before


def test_the_two_doors_open_as_modules_for_the_seeds_hello_world(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES / "hello_graphbus", tmp_path / "hello"))
    for command in (
        "python -m graphbus_core.build --root hello_graphbus.agents",
        "python -m graphbus_core.runtime --entrypoint hello_graphbus.main:run",
    ):
        assert command in commands_of_the_readme(folder)
        output = succeed(folder, command)
    assert "Hello, world!" in output
