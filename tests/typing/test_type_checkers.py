"""What type checkers say of projects that use `Topic`: of a correct one nothing, of a broken one what is wrong, at its line.

pyright's engine is used as basedpyright packages it, in pyright's own mode `standard`: the package `pyright` would download node.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORRECT = sorted((HERE / "correct").glob("*.py"))
BROKEN = HERE / "broken" / "shop.py"
Said = Mapping[Path, Mapping[int, str]]


def _mypy(cache: Path) -> Said:
    command = [
        "mypy",
        "--strict",
        "--no-error-summary",
        "--hide-error-context",
        f"--cache-dir={cache}",
        "--config-file=",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", *command, "--explicit-package-bases", *map(str, [*CORRECT, BROKEN])],
        cwd=ROOT,
        env={"MYPYPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.stderr, ran.stderr
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", ran.stdout, re.MULTILINE)
    return _by_line((ROOT / path, int(line), message) for path, line, message in found)


def _pyright(folder: Path) -> Said:
    settings = {
        "typeCheckingMode": "standard",
        "include": [str(HERE)],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    return _by_line((Path(each["file"]), each["range"]["start"]["line"] + 1, each["message"]) for each in errors)


def _by_line(found: object) -> Said:
    said: dict[Path, dict[int, str]] = defaultdict(lambda: defaultdict(str))
    for path, line, message in found:  # type: ignore[attr-defined]
        said[path.resolve()][line] += f"{message}\n"
    return said


CHECKERS: dict[str, Callable[[Path], Said]] = {"mypy": _mypy, "pyright": _pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Said]:
    return request.param, CHECKERS[request.param](tmp_path_factory.mktemp("checker"))


def _expected(name: str) -> dict[int, str]:
    """Line -> a part of what the checker says there."""
    lines = enumerate(BROKEN.read_text().splitlines(), 1)
    marked = {number: line.partition("# expect: ")[2] for number, line in lines if "# expect: " in line}
    parts = {number: re.split(r" ;; " if " ;; " in said else r" \| ", said) for number, said in marked.items()}
    return {number: said[0 if name == "mypy" else -1] for number, said in parts.items()}


@pytest.mark.slow
def test_a_correct_project_has_no_error(checked: tuple[str, Said]) -> None:
    _, said = checked
    assert {str(path): dict(said[path]) for path in CORRECT if said.get(path)} == {}


@pytest.mark.slow
def test_each_mistake_is_found_at_its_line_and_nothing_else(checked: tuple[str, Said]) -> None:
    name, said = checked
    expected, found = _expected(name), said[BROKEN]
    assert len(expected) >= 30
    assert sorted(found) == sorted(expected)
    assert {line: found[line] for line, part in expected.items() if part not in found[line]} == {}
