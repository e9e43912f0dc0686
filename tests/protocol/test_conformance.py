"""`graphbus conform` is tested harder than what it tests: wrong programs fail for the right requirement, right ones pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.model.config import AgentProgram, ResolvedBuild
from graphbus_core.negotiation.gbnp.conformance import Conformance, Kit
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS
from graphbus_core.negotiation.sample_question import sample_question_for
from tests.protocol.agent import FAULTS

AGENT = Path(__file__).with_name("agent.py")
SILENT = {"hangs", "stays after bye", "stays without input"}


def conform(tmp_path: Path, *words: str, timeout_s: float = 20.0, end_s: float = 10.0) -> Conformance:
    """Run the kit against agent.py, in a plain process: the sandbox is tested elsewhere."""
    settings = AgentProgram(command=(sys.executable, str(AGENT), *words), timeout_s=timeout_s)
    with sample_question_for(ResolvedBuild(root=str(tmp_path), paths=(str(tmp_path),)), "Stock") as sample:
        kit = Kit(
            "Stock",
            "member",
            sample,
            lambda note: Program(settings, tmp_path, ProcessSandbox(), end_s, note_line=note),
        )
        return kit.run(seed=1, examples=6)


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
