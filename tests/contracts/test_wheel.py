"""What an installation gives: the built wheel, in an environment that holds nothing but its declared dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path

import pytest

import graphbus_core
from graphbus_core.cli.ci import own_wheel
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "graphbus_core"

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without the settings of this test run and give its stdout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV", "PIP_"))}
    finished = subprocess.run(
        command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def needed(name: str, seen: set[str]) -> Iterator[str]:
    """The distributions that `name` needs without extras, itself left out."""
    for requirement in distribution(name).requires or []:
        other = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if ";" not in requirement and other not in seen:
            seen.add(other)
            yield other
            yield from needed(other, seen)


def copy_dependencies(packages: Path) -> None:
    """Install what the wheel declares that it needs, and nothing else of this environment; copies, which a jail shows."""
    for name in needed("graphbus", set()):
        copy_distribution(name, packages)


def copy_distribution(name: str, packages: Path) -> None:
    """Copy a distribution of this environment into the packages of another one."""
    files = distribution(name).files or []
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        place = Path(str(distribution(name).locate_file(top)))
        copy = shutil.copytree if place.is_dir() else shutil.copy
        copy(place, packages / top)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=ROOT)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel in it."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=home)
    python = home / "env" / "bin" / "python"
    install = ("install", "--quiet", "--no-index", "--no-deps", "--no-warn-script-location")
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel, cwd=home)
    (packages,) = (home / "env" / "lib").glob("python*/site-packages")
    copy_dependencies(packages)
    return python


def test_the_wheel_that_a_pipeline_brings_along_holds_the_same(wheel: Path) -> None:
    def read(source: Path | BytesIO) -> dict[str, bytes]:
        with zipfile.ZipFile(source) as archive:
            names = [
                name for name in archive.namelist() if ".dist-info/" not in name or name.endswith("entry_points.txt")
            ]
            return {name: archive.read(name) for name in names}

    assert read(BytesIO(own_wheel())) == read(wheel)


def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "-z", "src/graphbus_core", cwd=ROOT).split("\0")
    assert {name.removeprefix("src/") for name in tracked if name} <= packed
    assert all(name.startswith("graphbus_core/") for name in packed)
    assert "graphbus_core/py.typed" in packed


def test_the_package_comes_from_the_wheel_and_sees_only_what_it_declares(python: Path, tmp_path: Path) -> None:
    code = "import graphbus_core, importlib.util as u; print(graphbus_core.__file__, u.find_spec('pytest'))"
    file, spec = run(python, "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(python.parents[1])
    assert spec == "None"


def test_the_public_names_can_be_imported(python: Path, tmp_path: Path) -> None:
    names = ", ".join(graphbus_core.__all__)
    assert run(python, "-c", f"from graphbus_core import {names}; print('imported')", cwd=tmp_path) == "imported\n"


def test_the_command_shows_its_help(python: Path, tmp_path: Path) -> None:
    assert "negotiate" in run(python.parent / "graphbus", "--help", cwd=tmp_path)


def test_a_new_project_is_made_and_built_and_a_change_of_it_is_judged(python: Path, tmp_path: Path) -> None:
    graphbus = python.parent / "graphbus"
    run(graphbus, "init", "my-shop", cwd=tmp_path)
    shop = tmp_path / "my-shop"
    run(graphbus, "build", "agents/", cwd=shop)
    assert {path.name for path in (shop / ".graphbus").glob("*.json")} >= {"graph.json", "agents.json", "topics.json"}
    shutil.rmtree(shop / "tests")  # there is no pytest
    agent = shop / "agents" / "inventory.py"
    (tmp_path / "new.py").write_text(agent.read_text() + "# A remark.\n")
    assert "G5 import" in run(graphbus, "gate", agent, "--new", tmp_path / "new.py", cwd=shop)
    assert "graphbus" in run(python, "-m", "graphbus_core", "--version", cwd=shop)
