"""Natural code: a mistake in it is found, correct code is left in peace, and no edge that is broken is called proven.

`pytest tests/natural -s` prints the figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import NamedTuple

import pytest

from graphbus_core import settings
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import ContractEdge, validate_contracts
from graphbus_core.model.config import BuildConfig
from tests.natural.collection import Defect, correct_projects, defects
from tests.project_files import write_project

NOT_YET = Path(__file__).parent / "not_yet.txt"
"""What is missed, called proven though broken, reported though correct, and not drawn; it must only become less.

`GRAPHBUS_RENEW=1 pytest tests/natural` writes it again; read the difference.
"""

CACHE = Path(__file__).parents[2] / ".mypy_cache" / "natural"
CORRECT, DEFECTS = correct_projects(), defects()
_TO_BE_FOUND = [each.key for each in DEFECTS if each.expected != ("unknown",)]
BY_MYPY = [each for each in DEFECTS if "mypy" in each.expected]


class Said(NamedTuple):
    """What the tool says of a project.

    Attributes:
        alarms: Errors and warnings: what tells one from another, whatever its line, and its code.
    """

    alarms: Mapping[tuple[str, ...], str]
    edges: tuple[ContractEdge, ...]

    def about(self, words: Collection[str]) -> list[ContractEdge]:
        """Give the edges that are known by these words."""
        return [each for each in self.edges if set(words) <= {each.source, each.topic, each.target}]


class Figures(NamedTuple):
    """What was found.

    Attributes:
        codes: Defect -> the codes of what a check finds beyond what it finds in the correct project.
        by_mypy: Defects that the type checker finds.
        mypy_of_correct: What it says of correct projects.
        proven: Defects all of whose edges of one kind are called proven.
        unknown_edges: Edges that a defect names and that exist neither before nor afterwards.
    """

    correct: Mapping[str, Said]
    codes: Mapping[str, frozenset[str]]
    by_mypy: frozenset[str]
    mypy_of_correct: frozenset[str]
    proven: frozenset[str]
    unknown_edges: frozenset[str]

    @property
    def missed(self) -> Set[str]:
        """Defects that nothing finds."""
        return frozenset(key for key in _TO_BE_FOUND if not self.codes[key]) - self.by_mypy

    @property
    def alarms(self) -> Set[str]:
        """What is reported in correct code."""
        said = {f"{name}: {' '.join(alarm)}" for name, said in self.correct.items() for alarm in said.alarms}
        return said | self.mypy_of_correct


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    root = tmp_path_factory.mktemp("natural")
    correct = {each.name: _said(root / each.name, each.files) for each in CORRECT}
    codes, proven, unknown_edges = {}, set(), []
    for number, defect in enumerate(DEFECTS):
        before, after = correct[defect.project], _said(root / f"defect{number}", defect.files)
        codes[defect.key] = frozenset(code for key, code in after.alarms.items() if key not in before.alarms)
        for words in defect.edges:
            edges = after.about(words)
            if edges and all(edge.verdict in ("proven", "fits") for edge in edges):
                proven.add(defect.key)
            if not edges and not before.about(words):
                unknown_edges.append(f"{defect.key}: {' '.join(sorted(words))}")
    by_mypy = _mypy(root / "mypy")
    found = {each.key for n, each in enumerate(BY_MYPY) if by_mypy[f"defect{n}"] - by_mypy[each.project]}
    of_correct = {f"{each.name}: mypy {text}" for each in CORRECT for text in by_mypy[each.name]}
    return Figures(correct, codes, frozenset(found), frozenset(of_correct), frozenset(proven), frozenset(unknown_edges))


def _said(root: Path, files: Mapping[str, str]) -> Said:
    write_project(root, {"pyproject.toml": "", **files})
    project = Project.read(settings.resolve_build(BuildConfig(paths=(str(root),))), cache=False)
    findings = rules.check(project)
    alarms = {(each.code, each.agent, each.message): each.code for each in findings if each.severity != "info"}
    errors = {(each.code, str(each)): each.code for each in project.errors if each.code not in rules.COVERED_ERRORS}
    return Said({**alarms, **errors}, validate_contracts(Wiring(project), findings).edges)


def _mypy(root: Path) -> dict[str, set[str]]:
    """Give what the type checker says of each project and defect; one run over all, each in a folder of its own."""
    variants = {each.name: each.files for each in CORRECT}
    variants |= {f"defect{number}": each.files for number, each in enumerate(BY_MYPY)}
    for name, files in variants.items():
        write_project(root, {f"{name}/{path}": _moved(text, name, files) for path, text in files.items()})
    options = f"mypy_path = {root}\nnamespace_packages = true\nexplicit_package_bases = true\ncache_dir = {CACHE}"
    settings_file = write_project(root.parent, {"mypy.ini": f"[mypy]\n{options}\n"}) / "mypy.ini"
    # in a process of its own: mypy raises the recursion limit of the one that it runs in
    command = [sys.executable, "-m", "mypy", f"--config-file={settings_file}", "--no-error-summary", str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not ran.stderr, ran.stderr
    found: dict[str, set[str]] = {name: set() for name in variants}
    for line in ran.stdout.splitlines():
        if match := re.match(rf".*{re.escape(root.name)}/([a-z_]+[0-9]*)/(\S+?):\d+: error: (.*)", line):
            found[match[1]].add(f"{match[2]} {match[3]}".replace(match[1], ""))
    return found


def _moved(text: str, package: str, files: Mapping[str, str]) -> str:
    """Imports of the package itself begin with the folder that it is moved to."""
    tops = "|".join({path.partition("/")[0] for path in files if "/" in path})
    return re.sub(rf"^(\s*from )({tops})\b", rf"\1{package}.\2", text, flags=re.MULTILINE)


def test_the_collection_is_as_large_as_it_should_be(figures: Figures) -> None:
    assert len(DEFECTS) >= 100
    assert sum(len(each.constructs) for each in CORRECT) >= 300
    for kind in (CORRECT, DEFECTS):
        names = [getattr(each, "key", each.name) for each in kind]
        assert sorted(set(names)) == sorted(names)
    for project in CORRECT:
        assert sorted(set(project.constructs)) == sorted(project.constructs), project.name


def test_a_defect_is_found(figures: Figures, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{_summary(figures)}")
    _assert_listed("not found", figures.missed)


def test_no_broken_edge_is_called_proven(figures: Figures) -> None:
    _assert_listed("called proven", figures.proven)


def test_correct_code_gives_no_alarm(figures: Figures) -> None:
    _assert_listed("false alarm", figures.alarms)


def test_the_edges_of_defects_are_drawn(figures: Figures) -> None:
    _assert_listed("no such edge", figures.unknown_edges)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.key)
def test_a_defect_is_found_by_its_rule(defect: Defect, figures: Figures) -> None:
    wanted, found = set(defect.expected), figures.codes[defect.key]
    assert not found or wanted & {"check", "mypy", "unknown"} or wanted & found, found


def _assert_listed(what: str, keys: Set[str]) -> None:
    """Nothing comes that is not on the list."""
    listed = NOT_YET.read_text(encoding="utf-8").splitlines()
    if os.environ.get("GRAPHBUS_RENEW"):
        listed = sorted([*(line for line in listed if not line.startswith(what)), *(f"{what}: {key}" for key in keys)])
        NOT_YET.write_text("".join(f"{line}\n" for line in listed), encoding="utf-8")
    assert sorted({f"{what}: {key}" for key in keys}.difference(listed)) == []


def _summary(figures: Figures) -> str:
    edges = [edge.verdict in ("proven", "fits") for said in figures.correct.values() for edge in said.edges]
    by_check = sum(bool(figures.codes[key]) for key in _TO_BE_FOUND)
    return (
        f"{len(_TO_BE_FOUND)} of {len(DEFECTS)} defects are to be found: {by_check} are by check alone, "
        f"{len(figures.missed)} are not; of {len(figures.proven)} a broken edge is called proven\n"
        f"{sum(len(each.constructs) for each in CORRECT)} correct constructs: {len(figures.alarms)} false alarms; "
        f"{len(edges)} edges, {sum(edges)} of them proven"
    )
