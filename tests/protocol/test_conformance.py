"""`graphbus conform` is tested harder than what it tests: wrong programs fail for the right requirement, right ones pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.model.config import AgentProgram, ResolvedBuild
from graphbus_core.negotiation.gbnp.conformance import Conformance, Kit, NoteLine
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS
from graphbus_core.negotiation.sample_question import sample_question_for
from tests.protocol.agent import FAULTS

EXAMPLE = Path(__file__).parents[2] / "examples" / "other_languages"
AGENT = Path(__file__).with_name("agent.py")
SILENT = {"hangs", "stays after bye", "stays without input"}


def conform(tmp_path: Path, *words: str, timeout_s: float = 20.0, end_s: float = 10.0) -> Conformance:
    """Run the kit against agent.py, in a plain process: the sandbox is tested elsewhere."""
    settings = AgentProgram(command=(sys.executable, str(AGENT), *words), timeout_s=timeout_s)
    return run_kit(tmp_path, "Stock", lambda note: Program(settings, tmp_path, ProcessSandbox(), end_s, note))


def run_kit(root: Path, agent: str, start: Callable[[NoteLine], Program]) -> Conformance:
    with sample_question_for(ResolvedBuild(root=str(root), paths=(str(root),)), agent) as sample:
        return Kit(agent, "arbiter" if agent == "Referee" else "member", (sample.view, sample.trial), start).run(
            seed=1, examples=6
        )


def test_a_complete_program_passes_every_requirement(tmp_path):
    found = conform(tmp_path)
    assert found.failures == ()
    assert {*found.verdicts.values()} == {"pass"}
    assert [*found.verdicts] == [number for number, each in REQUIREMENTS.items() if each.side != "host"]


@pytest.mark.parametrize("fault", [name for name in FAULTS if name not in SILENT])
def test_a_wrong_program_fails_for_the_requirement_that_it_breaks(tmp_path, fault):
    found = conform(tmp_path, fault)
    assert {each.requirement for each in found.failures} == {FAULTS[fault]}
    assert found.verdicts[FAULTS[fault]] == "fail"
    assert not found.is_conforming


@pytest.mark.parametrize("fault", sorted(SILENT))
def test_a_program_that_does_not_answer_or_end_fails_and_is_given_up(tmp_path, fault):
    found = conform(tmp_path, fault, timeout_s=0.5, end_s=0.5)
    assert FAULTS[fault] in {each.requirement for each in found.failures}
    assert found.scenarios < 35


def needed(program: str) -> str:
    """Return where a program is; skip the test where it is not, except in CI."""
    found = shutil.which(program)
    if found is None:
        assert not os.environ.get("CI"), f"{program} is not installed"
        pytest.skip(f"{program} is not installed")
    return found


@pytest.mark.parametrize(
    ("agent", "command", "tested"),
    [
        ("Orders", ("perl", "programs/amounts.pl"), {"GBNP-041", "GBNP-048", "GBNP-063"}),
        ("Stock", ("node", "programs/event_ids.mjs"), {"GBNP-060", "GBNP-065"}),
        ("Referee", ("programs/small_changes",), {"GBNP-070", "GBNP-071"}),
    ],
)
def test_the_example_programs_pass(tmp_path, agent, command, tested):
    """Perl, JavaScript and Go, in the sandbox in which a negotiation starts them."""
    shutil.copytree(EXAMPLE, tmp_path / "shop")
    if "/" in command[0]:
        build = [needed("go"), "build", "-o", command[0], "programs/small_changes.go"]
        environment = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "GO111MODULE": "off", "CGO_ENABLED": "0"}
        subprocess.run(build, cwd=tmp_path / "shop", env=environment, check=True, timeout=300)
    else:
        needed(command[0])
    sandbox = choose_sandbox("jail", tmp_path / "shop")
    assert sandbox
    settings = AgentProgram(command=command)
    found = run_kit(tmp_path / "shop", agent, lambda note: Program(settings, tmp_path / "shop", sandbox, 10.0, note))
    assert found.failures == ()
    assert {number for number, verdict in found.verdicts.items() if verdict == "pass"} >= tested
    lines = (EXAMPLE / "programs").glob("*")
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 100 for path in lines)
