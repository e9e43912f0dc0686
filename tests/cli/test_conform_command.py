"""`graphbus conform` as a user types it: text, JSON, JUnit, transcripts, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphbus_core.cli import main

AGENT = Path(__file__).parents[1] / "protocol" / "agent.py"
QUICK = ("--examples", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and without a project."""
    shutil.copy(AGENT, tmp_path / "agent.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def conform(*words: str, fault: str = "") -> int:
    return main(["conform", *QUICK, *words, "--", sys.executable, "agent.py", fault])


def test_a_right_program_passes_and_says_so(here, capsys):
    assert conform() == 0
    said = capsys.readouterr().out
    assert "GBNP-001  pass " in said
    assert "✓ complete 1.0 for Stock: " in said
    assert "It joins in " in said


def test_a_wrong_program_is_shown_with_question_and_answer(here, capsys):
    assert conform(fault="evaluates for another agent") == 3
    said = capsys.readouterr().out
    assert "GBNP-063  fail " in said
    assert "GBNP-063 in `a session` (and in " in said
    assert '  answered: {"jsonrpc": "2.0"' in said
    assert "✗ complete 1.0 for Stock: " in said


def test_as_json_each_requirement_has_its_verdict(here, capsys):
    assert conform("--json", "--agent", "Printer", fault="is too confident") == 3
    document = json.loads(capsys.readouterr().out)
    verdicts = {each["requirement"]: each["verdict"] for each in document["verdicts"]}
    assert (document["agent"], document["is_conforming"], verdicts["GBNP-066"]) == ("Printer", False, "fail")
    assert document["failures"][0]["requirement"] == "GBNP-066"


def test_as_junit_each_requirement_is_a_test_case(here, capsys):
    assert conform("--format", "junit", fault="hangs on purpose") == 0
    suite = ElementTree.fromstring(capsys.readouterr().out)
    assert (suite.get("tests"), suite.get("failures")) == ("49", "0")
    assert conform("--format", "junit", fault="nests 100 deep") == 3
    suite = ElementTree.fromstring(capsys.readouterr().out)
    failures = [case for case in suite if case.find("failure") is not None]
    assert [case.get("name", "").split()[0] for case in failures] == ["GBNP-006"]
    assert suite.find("testcase/skipped") is not None


def test_the_conversations_can_be_kept(here, capsys):
    assert conform("--transcripts", "kept") == 0
    lines = [json.loads(line) for line in (here / "kept" / "a-session.jsonl").read_text().splitlines()]
    assert json.loads(lines[0]["host"])["method"] == "agent/hello"
    assert json.loads(lines[1]["program"])["result"]["agent"] == "Stock"


def test_bytes_that_are_no_text_are_kept_in_base64(here, capsys):
    assert conform("--transcripts", "kept", fault="answers in Latin-1") == 3
    (line,) = [
        line for line in (here / "kept" / "hello-and-bye.jsonl").read_text().splitlines() if "program_base64" in line
    ]
    assert b"Gr\xf6\xdfe" in b64decode(json.loads(line)["program_base64"])


FICKLE = """
import json, os, sys
able = [[], ["evaluate"], ["propose", "repair"], ["analyze", "events"], ["arbitrate"]][len(os.listdir("%s")) %% 5]
open("%s/" + str(os.getpid()), "w").close()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        told = {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
        if asked["method"] == "agent/hello":
            told["result"] = {"protocol": 1, "agent": "Stock", "capabilities": able, "program": "x\\n" * 99}
        print(json.dumps(told), flush=True)
        if asked["method"] == "agent/bye":
            break
"""


def test_a_program_that_can_do_something_else_at_each_start_is_judged_by_what_it_says(here, capsys):
    """Without the sandbox it can count how often it was started."""
    (here / "starts").mkdir()
    (here / "fickle.py").write_text(FICKLE % (here / "starts", here / "starts"))
    (here / "pyproject.toml").write_text('[tool.graphbus.gate]\nisolation = "process"\n')
    assert main(["conform", *QUICK, "--", sys.executable, "fickle.py"]) == 3
    said = capsys.readouterr().out
    assert "GBNP-060" in said
    assert "GBNP-024" not in said


def test_the_error_of_a_program_is_told_and_not_what_its_interpreter_prints_after_it(here, capsys):
    (here / "like_node.py").write_text(
        "import sys\nsys.exit('Error: Cannot find module x\\n    at load (a.js)\\n\\nNode.js v20.1.0')\n"
    )
    assert main(["conform", *QUICK, "--", sys.executable, "like_node.py"]) == 3
    assert "it ended with exit status 1 (Error: Cannot find module x)" in capsys.readouterr().out


def test_the_agent_and_the_program_are_those_of_the_project(here, capsys):
    (here / "agents.py").write_text(
        "from graphbus_core import GraphBusNode\n\n\n"
        "class Judge(GraphBusNode):\n    IS_ARBITER = True\n\n\nclass Clerk(GraphBusNode):\n    pass\n"
    )
    command = json.dumps([sys.executable, "agent.py"])
    (here / "pyproject.toml").write_text(
        f'[project]\nname = "court"\nversion = "1"\n[tool.graphbus.agents]\nJudge = {{ command = {command} }}\n'
    )
    assert main(["conform", *QUICK, "--agent", "Judge", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["agent"], document["role"]) == ("Judge", "arbiter")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--agent", "Nobody"], 2, "[tool.graphbus.agents] has no program for Nobody."),
        (["--agent", "a-b", "--", "x"], 2, "--agent a-b cannot be the name of a class."),
        (["--timeout", "nan", "--", "sh"], 2, "--timeout nan is no number of seconds above 0."),
        (["--timeout", "-1", "--", "sh"], 2, "--timeout -1 is no number of seconds above 0."),
        (["--examples", "-1", "--", "sh"], 2, "-1"),
        (["--", "no-such-program"], 5, "The program `no-such-program` cannot be started: no such file or directory."),
    ],
)
def test_what_cannot_be_tested_is_refused(here, capsys, words, status, said):
    assert main(["conform", *words]) == status
    assert said in capsys.readouterr().err
