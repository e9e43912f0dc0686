"""The edges of a graph: which there are, and whether both of their ends fit. One truth with `graphbus check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import CODES, Validation, validate
from graphbus_core.model.findings import Finding
from tests.checking import Files, read

RULES = Path(__file__).parents[1] / "rules"


def validated(project: Project) -> Validation:
    return validate(Wiring(project), rules.check(project))


def projects_of_the_rules() -> Iterator[tuple[str, Files]]:
    """Every project that the tests of the rules hold in a table."""
    for path in sorted(RULES.glob("test_gb*.py")):
        module = import_module(f"tests.unit.rules.{path.stem}")
        for table, content in vars(module).items():
            if table.isupper() and isinstance(content, Mapping):
                for name, files in content.items():
                    given = files[0] if isinstance(files, tuple) else files
                    texts = given.values() if isinstance(given, Mapping) else [given]
                    if any("GraphBusNode" in str(text) for text in texts):
                        yield f"{path.stem[5:10]} {table} {name}", given


PROJECTS = [*projects_of_the_rules()]


def test_the_tables_of_the_rules_are_found() -> None:
    assert len(PROJECTS) > 100
    assert len({name[:5] for name, _ in PROJECTS}) >= 6


def test_an_edge_is_broken_exactly_when_a_check_finds_something_at_it(tmp_path: Path) -> None:
    for number, (name, files) in enumerate(PROJECTS):
        project = read(tmp_path / str(number), files)
        found = {placed(each) for each in rules.check(project) if each.code in CODES and each.severity != "info"}
        validation = validated(project)
        of_edges = [each for edge in validation.edges for each in edge.findings]
        told = {placed(each) for each in (*of_edges, *validation.others) if each.severity != "info"}
        assert found == told, name
        assert validation.holds == (not found), name
        for edge in validation.edges:
            assert (edge.verdict == "broken") == any(placed(each) in found for each in edge.findings), name


def placed(finding: Finding) -> tuple[object, ...]:
    return finding.span, *finding.key
