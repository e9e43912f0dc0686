"""What a person sees while a program answers as a model: who is asked, for how long, and each unusable answer when it comes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import console, main
from tests.fakes.model_sessions import write_zoo
from tests.project_files import write_project

SCRIPTED_MODEL = """
    import sys, time
    prompt = sys.stdin.read()
    time.sleep(0.3)
    if "# Your task: analyze" in prompt:
        print("## analysis\\nresponsibility: works")
    elif "You speak for the class StockService" in prompt and "cannot be used" not in prompt:
        print("Sure! I would change nothing.")
    elif "You speak for the class MailService" in prompt:
        print("No.")
    else:
        print("## nothing")
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_waiting_for_a_program_and_its_unusable_answers_are_told(
    is_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_zoo(tmp_path / "zoo"))
    write_project(tmp_path, {"speak.py": SCRIPTED_MODEL})
    monkeypatch.setattr(console, "QUIET_S", 0.2)
    command = f"command:{shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / 'speak.py'))}"
    options = ["--rounds", "1", *(["--json"] if is_json else [])]
    assert main(["negotiate", "agents", "--model", command, *options]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^\w+Service: analyze, \d+ s, (.*, )?2 more to answer", err, re.MULTILINE)
    told = (err if is_json else out).splitlines()
    (first,) = (
        line for line in told if line.startswith("[AGENT] StockService: unusable answer, asked again (propose): ")
    )
    assert "section" in first
    assert sum("[AGENT] MailService: unusable answer, asked again (propose): " in line for line in told) == 1
    assert sum("[AGENT] MailService: second unusable answer (propose): " in line for line in told) == 1
    assert not any("MailService gave no usable answer" in line for line in told), "it was told when it came"
    (total,) = (line for line in told if "could not be used" in line)
    assert total.startswith("3 of 9 answers could not be used: ")
    assert "MailService 2" in total
    if is_json:
        assert json.loads(out)["spent"]["unusable"] == 3
    assert main(["inspect-negotiation"]) == 0
    assert "; 9 requests (3 unusable answers), " in capsys.readouterr().out
    assert main(["replay", "--verify"]) == 0
