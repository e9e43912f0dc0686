"""The wheel of an image holds Runtime Mode and nothing else, and is the same bytes wherever it is made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import grimp
import pytest

import graphbus_core
from graphbus_core.cli.shipping.wheel import FLOORS, REQUIRES, Wheel, make_wheel
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
BUILD_WINGS = {"build", "cli", "compiler", "contracts", "deploy", "editing", "llm", "negotiation", "testing"}
DOORS = {"runtime", "hosting.serving.health", *graphbus_core._HOME.values()} - {"build"}
"""Where a container comes in: its two commands, and the names that agents import."""


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    return make_wheel()


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("graphbus_core", exclude_type_checking_imports=True, cache_dir=None)


def packed(wheel: Wheel) -> zipfile.ZipFile:
    return zipfile.ZipFile(BytesIO(wheel.data))


def test_its_floors_are_all_that_the_runtime_imports(imports: grimp.ImportGraph) -> None:
    doors = {f"graphbus_core.{door}" for door in DOORS}
    reached = doors.union(*(imports.find_upstream_modules(door) for door in doors)) - {"graphbus_core"}
    assert {name.split(".")[1] for name in reached} | {"__init__"} == set(FLOORS)


def test_nothing_in_it_imports_what_is_not_in_it(wheel: Wheel, imports: grimp.ImportGraph) -> None:
    paths = [
        name.removesuffix(".py").removesuffix("/__init__") for name in packed(wheel).namelist() if ".py" in name[-3:]
    ]
    inside = {path.replace("/", ".") for path in paths}
    assert {each for module in inside for each in imports.find_modules_directly_imported_by(module)} <= inside | {
        "graphbus_core.build"  # the face gives `build_graph` to those who have it
    }


def test_no_build_wing_is_in_it(wheel: Wheel) -> None:
    tops = {re.split(r"[/.]", name)[1] for name in packed(wheel).namelist() if name.startswith("graphbus_core/")}
    assert tops - {"py"} == set(FLOORS)
    assert tops & BUILD_WINGS == set()
    assert {name.split(".")[0] for name in os.listdir(ROOT / "src" / "graphbus_core")} >= BUILD_WINGS


def test_it_needs_what_pyproject_says_of_the_one_package_that_runs() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert tuple(re.findall(r'"(msgspec[^"]*)"', text)) == REQUIRES


def test_two_wheels_are_the_same_bytes_whatever_the_clock_and_the_modes_say(wheel: Wheel, tmp_path: Path) -> None:
    code = (
        "import os, sys; os.umask(0o077); from graphbus_core.cli.shipping.wheel import make_wheel; "
        "sys.stdout.write(make_wheel().sha256)"
    )
    elsewhere = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    second = subprocess.run(
        command, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert second.stdout == wheel.sha256
    assert {entry.date_time[0] for entry in packed(wheel).infolist()} == {1980}


@pytest.mark.slow
def test_pip_installs_it_by_its_hash_and_not_by_another(wheel: Wheel, tmp_path: Path, figure: object) -> None:
    assert callable(figure)
    figure("wheel of the runtime, kB", len(wheel.data) // 1000)
    (tmp_path / wheel.name).write_bytes(wheel.data)

    def install(sha256: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "requirements.txt").write_text(f"./{wheel.name} --hash=sha256:{sha256}\n")
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--require-hashes", "--quiet"]
        command += ["--target", "site", "--requirement", "requirements.txt"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert "DO NOT MATCH" in install("0" * 64).stderr
    installed = install(wheel.sha256)
    assert installed.returncode == 0, installed.stderr
    assert (tmp_path / "site" / "graphbus_core" / "runtime.py").is_file()
    assert (tmp_path / "site" / "graphbus_core" / "py.typed").is_file()
