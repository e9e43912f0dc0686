"""The code of the view's page: typed against the messages of the server, in one style, and small.

By hand: npm ci --prefix tests/browser --ignore-scripts
A new version: in tests/browser, `npm install --package-lock-only --save-exact NAME@VERSION`; then take every `funding` out of the
lock, which names no address.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.browsing import PROGRAMS, needs_browser
from tests.fakes.view_site import STATIC
from tests.patience import PATIENCE_S

FOLDER = PROGRAMS.parent
ROOT = FOLDER.parents[1]
REPORT = ROOT / "src" / "graphbus_core" / "cli" / "report"
MOST_LINES = 2_500
"""Of code: without blank lines and comments."""


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_browser
def test_the_types_fit_the_messages_of_the_server() -> None:
    run(sys.executable, "-m", "scripts.view_types", "--check")
    run("node", PROGRAMS / "typescript" / "bin" / "tsc", "--project", FOLDER)


@needs_browser
def test_a_field_that_no_message_has_is_found(tmp_path: Path) -> None:
    wrong = (
        "/** @import { Tick } from 'contract' */\n/** @param {Tick} tick */\nexport const of = (tick) => tick.att;\n"
    )
    (tmp_path / "wrong.js").write_text(wrong, encoding="utf-8")
    settings = json.loads((FOLDER / "tsconfig.json").read_text(encoding="utf-8"))
    settings["compilerOptions"]["paths"] = {"contract": [str(FOLDER / "contract.d.ts")]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings | {"include": ["wrong.js"]}), encoding="utf-8")
    with pytest.raises(AssertionError, match="Property 'att' does not exist on type 'Tick'"):
        run("node", PROGRAMS / "typescript" / "bin" / "tsc", "--project", tmp_path)


@needs_browser
def test_the_linter_finds_nothing() -> None:
    run(
        "node",
        PROGRAMS / "@biomejs" / "biome" / "bin" / "biome",
        "ci",
        "--error-on-warnings",
        f"--config-path={FOLDER}",
        STATIC,
    )


def test_it_makes_no_markup_from_text_and_names_no_other_host() -> None:
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\bstyle=|//(?!www\.w3\.org)\w+\.\w+", text
        )
        assert found == [], path.name


@pytest.mark.parametrize("style", [STATIC / "view.css", REPORT / "style.css"], ids=["view", "report"])
def test_only_the_face_names_colours(style: Path) -> None:
    text = style.read_text(encoding="utf-8")
    assert re.findall(r"#[0-9a-f]{3,8}\b(?=[;, )])|light-dark\(", text) == []


def test_it_stays_small() -> None:
    lines = [line.strip() for path in STATIC.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    code = [line for line in lines if line and not line.startswith(("/*", "*", "//", "<!--"))]
    assert len(code) <= MOST_LINES


def test_the_lock_names_no_address() -> None:
    lock = (FOLDER / "package-lock.json").read_text(encoding="utf-8")
    assert "://" not in lock
    assert all("integrity" in each for name, each in json.loads(lock)["packages"].items() if name)
