"""What sources name and an image would not have is told before it is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.cli.shipping.image import LeftOut, _find_left_out
from graphbus_core.deploy.image import ImagePlan
from tests.project_files import write_project

PLAN = ImagePlan(
    command="",
    base="",
    folder="docker",
    wheel="",
    artifacts="build",
    artifact_files=(),
    sources=("src/shop/orders.py", "src/shop/prices.py", "pyproject.toml"),
    includes=("given/", "lone.py"),
)
FILES: dict[str, str | bytes] = {
    "pyproject.toml": "",
    "src/shop/orders.py": "",
    "src/shop/prices.py": "",
    "src/shop/later.py": "",
    "src/shop/rates.json": "{}",
    "src/shop/mails/hello.txt": "hello",
    "src/plugins/__init__.py": "",
    "src/plugins/tax.py": "",
    "data/list.csv": "",
    "other/part.py": "",
    "given/known.txt": "",
    "given/code.py": "",
    "lone.py": "",
    "alone.py": "",
    "docker/wheel.whl": "",
    "build/graph.json": "{}",
    ".env": "SECRET=1",
    "tests/test_orders.py": "",
}


def left_out(root: Path, text: str, source: str = "src/shop/orders.py") -> list[LeftOut]:
    write_project(root, {**FILES, source: text})
    return _find_left_out(root, PLAN, (".", "src"))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('OPEN = Path(__file__).with_name("rates.json")', "src/shop/rates.json"),
        ('OPEN = Path(__file__).parent / "mails" / "hello.txt"', "src/shop/mails"),
        ('OPEN = open("data/list.csv")', "data/list.csv"),
        ('OPEN = open("./data/list.csv")', "data/list.csv"),
        ('OPEN = open(f"data/{NAME}.csv")', "data"),
        ('LOADED = import_module("plugins.tax")', "src/plugins/tax.py"),
        ('LOADED = load("plugins.tax:Tax")', "src/plugins/tax.py"),
    ],
)
def test_a_file_that_a_text_names_is_found(tmp_path: Path, text: str, path: str) -> None:
    assert left_out(tmp_path, f"FIRST = 1\n{text}\n") == [LeftOut(path, "src/shop/orders.py", 2)]


@pytest.mark.parametrize(
    "text",
    [
        'A = ("shop.prices", "prices.py", "later.py", "shop.later")',
        'A = ("given", "given/known.txt", "lone.py", "pyproject.toml")',
        'A = ("docker/wheel.whl", "build/graph.json", "docker", "build")',
        'A = (".env", ".", "..", "../..", "/etc/hostname", "", "plugins", "shop", "tests", "alone")',
        'A = ("no.such.module", "no/such/file", "nul\\0", "a" * 9, "two\\nlines")',
        "not python at all (",
    ],
)
def test_what_is_there_or_is_no_file_is_not_told(tmp_path: Path, text: str) -> None:
    assert left_out(tmp_path, text) == []
