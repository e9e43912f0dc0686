"""The wheel of an image holds Runtime Mode and nothing else, and is the same bytes wherever it is made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import grimp
import pytest

import graphbus_core
from graphbus_core.cli.docker import DOORS, LEFT_BEHIND, WHEEL_NAME, make_wheel
from tests.patience import PATIENCE_S

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture(scope="module")
def wheel() -> bytes:
    return make_wheel()


def packed(wheel: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(BytesIO(wheel))


def modules(wheel: bytes) -> set[str]:
    paths = [name[: -len(".py")] for name in packed(wheel).namelist() if name.endswith(".py")]
    return {path.removesuffix("/__init__").replace("/", ".") for path in paths}


def test_it_holds_what_its_doors_import_and_nothing_that_builds(wheel: bytes) -> None:
    imports = grimp.build_graph("graphbus_core", exclude_type_checking_imports=True, cache_dir=None)
    names = {f"graphbus_core.{home}" for home in graphbus_core._HOME.values()} - {LEFT_BEHIND}
    entrances = {*DOORS, *names}
    needed = entrances.union(*(imports.find_upstream_modules(each) for each in entrances)) - {LEFT_BEHIND}
    assert needed <= modules(wheel)
    wings = ("build", "cli", "compiler", "contracts", "deploy", "editing", "llm", "negotiation", "testing")
    assert not [each for each in modules(wheel) if each.split(".")[1:2] and each.split(".")[1] in wings]
    assert {f"graphbus_core.{wing}" for wing in wings} <= imports.modules


def test_it_needs_what_pyproject_says_of_the_one_package_that_runs(wheel: bytes) -> None:
    [name] = [name for name in packed(wheel).namelist() if name.endswith("/METADATA")]
    needed = re.findall(r"Requires-Dist: (.*)", packed(wheel).read(name).decode())
    assert needed == re.findall(r'"(msgspec[^"]*)"', PYPROJECT.read_text("utf-8"))


def test_two_wheels_are_the_same_bytes_whatever_the_clock_and_the_modes_say(wheel: bytes, tmp_path: Path) -> None:
    code = (
        "import os, sys; os.umask(0o077); from hashlib import sha256; "
        "from graphbus_core.cli.docker import make_wheel; sys.stdout.write(sha256(make_wheel()).hexdigest())"
    )
    elsewhere = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    second = subprocess.run(
        command, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert second.stdout == sha256(wheel).hexdigest()
    assert {entry.date_time[0] for entry in packed(wheel).infolist()} == {1980}


@pytest.mark.slow
def test_pip_installs_it_by_its_hash_and_not_by_another(wheel: bytes, tmp_path: Path, figure: object) -> None:
    assert callable(figure)
    figure("wheel of the runtime, kB", len(wheel) // 1000)
    (tmp_path / WHEEL_NAME).write_bytes(wheel)

    def install(digest: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "requirements.txt").write_text(f"./{WHEEL_NAME} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--require-hashes", "--quiet"]
        command += ["--target", "site", "--requirement", "requirements.txt"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert "DO NOT MATCH" in install("0" * 64).stderr
    installed = install(sha256(wheel).hexdigest())
    assert installed.returncode == 0, installed.stderr
    assert (tmp_path / "site" / "graphbus_core" / "runtime.py").is_file()
    assert (tmp_path / "site" / "graphbus_core" / "py.typed").is_file()
