"""On public indexes `graphbus` is somebody else's package: nothing that we say or write tells to install it by that name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphbus_core.errors.register import REGISTER

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = re.compile(
    r"(?:pip3?|pipx|uv|uvx|poetry|pdm|conda|hatch)\s[^\n`]*?(?:install|add|run|tool|--with)\s[^\n`]*?"
    r"(?<![\w./-])graphbus(?:-core|_core)?(?:\[[^]]*\])?(?=['\"\s`<>=~!]|$)(?!\s*@)"
)
TEXTS = [
    *(path for folder in ("src", "docs", "examples") for path in (ROOT / folder).rglob("*")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", "zensical.toml")),
]
KINDS = {".py", ".md", ".tmpl", ".toml", ".yml", ".yaml", ".sh", ".txt", ".json", ""}


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("pip install graphbus", True),
        ("python -m pip install 'graphbus[llm]'", True),
        ("uv add graphbus", True),
        ("pip install --upgrade pytest graphbus==0.1.0", True),
        ("pip install '.[llm]'", False),
        ("pip install './graphbus-0.1.0-py3-none-any.whl[llm]'", False),
        ("pip install 'graphbus @ https://wheels.example.org/graphbus.whl'", False),
        ("python -m pip install pytest .github/graphbus/graphbus-0.1.0-py3-none-any.whl", False),
    ],
)
def test_the_pattern_knows_a_name_from_a_path(text: str, is_meant: bool) -> None:
    assert bool(BY_NAME.search(text)) is is_meant


def test_no_text_of_ours_installs_it_by_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in TEXTS
        if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if BY_NAME.search(line)
    ]
    assert found == []


def test_hints_of_errors_say_how_an_extra_is_installed() -> None:
    named = {code: entry.hint for code, entry in REGISTER.items() if "pip install" in entry.hint}
    assert {"GBE163", "GBE441", "GBE671"} <= named.keys()
    for code in ("GBE163", "GBE441", "GBE671"):
        assert "pip install '.[" in named[code]
        assert ".whl[" in named[code]
