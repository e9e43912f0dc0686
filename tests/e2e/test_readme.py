"""What README.md and the pages show was really printed, by the commands that they show."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from scripts.terminal import retype
from scripts.transcript import BLOCK, NOTE, rerun

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PROGRAMS = ("curl",)
"""What pages use beside Python and what every system has. A machine without it skips the page; CI must have it."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        "docs/index.md",
        "docs/tutorial.md",
        "docs/writing-agents.md",
        "docs/what-to-commit.md",
        "docs/runtime.md",
        "docs/contracts-at-run-time.md",
        "docs/contracts.md",
        "docs/celery.md",
        "docs/state-and-dead-letters.md",
        "docs/middleware.md",
        "docs/testing.md",
        "docs/running-interactively.md",
        "docs/tracing-and-profiling.md",
        "docs/http.md",
        "docs/powers.md",
        "docs/command-line.md",
        "docs/export.md",
        "docs/kubernetes.md",
        "docs/pipelines.md",
        "docs/metrics-and-tracing.md",
        "docs/how-a-negotiation-works.md",
        "docs/containers.md",
        "docs/artifacts.md",
        "docs/many-processes.md",
        "docs/simulate.md",
    ],
)
def test_the_terminal_sessions_of_a_page_are_what_a_terminal_shows(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    missing = [program for program in PROGRAMS if f"{program} " in text and not shutil.which(program)]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"there is no {missing[0]} on this machine")
    assert not missing, "CI must have every program that a page uses"
    assert rerun(text).splitlines() == text.splitlines(), f"refresh it: python scripts/transcript.py {page}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_line_of_the_readme_can_be_typed_in_a_fresh_clone() -> None:
    text = README.read_text(encoding="utf-8")
    assert retype(text).splitlines() == text.splitlines(), "refresh it: python scripts/transcript.py README.md"


def test_the_readme_has_no_hidden_step() -> None:
    blocks = list(BLOCK.finditer(README.read_text(encoding="utf-8")))
    notes = [note for block in blocks for note in NOTE.findall(block["notes"])]
    assert {block["language"] for block in blocks} == {"sh", "console", "python"}
    assert [note for note in notes if not note.startswith(("exit status ", "from: "))] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_code_of_a_first_page_stands_in_the_file_that_it_names(page: str) -> None:
    blocks = [block for block in BLOCK.finditer((ROOT / page).read_text("utf-8")) if block["language"] == "python"]
    for block in blocks:
        [name] = [note.removeprefix("from: ") for note in NOTE.findall(block["notes"]) if note.startswith("from: ")]
        parts = re.split(r"^ *\.\.\.\n", block["body"], flags=re.MULTILINE)
        assert [part for part in parts if part not in (ROOT / name).read_text(encoding="utf-8")] == []
    assert blocks


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_pages_for_newcomers_have_terminal_sessions_that_are_run(page: str) -> None:
    blocks = list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))
    run = [block for block in blocks if block["language"] == "console" and "<!-- not run -->" not in block["notes"]]
    assert any("--enable-agents" in block["body"] for block in run)
    assert any("graphbus run" in block["body"] for block in run)


def test_ci_installs_every_program_that_a_page_uses() -> None:
    installed = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [program for program in PROGRAMS if f"wanted+=({program})" not in installed] == []


def test_the_make_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", README.read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
