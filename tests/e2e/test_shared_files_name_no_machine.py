"""What a session leaves in `.graphbus/` to be committed or shared names no folder, no user and no host of this machine."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.errors import BuildError
from graphbus_core.negotiation.lock import unpack_bytes
from tests.fakes.zoo_project import FILES
from tests.project_files import write_project

SCRIPTED_MODEL = """
    import re, sys
    prompt = sys.stdin.read()
    task, rest = re.findall(r"^# Your task: (\\w+) ?(.*)$", prompt, re.M)[-1]
    agent = re.findall(r"^You speak for the class (\\w+)", prompt, re.M)[-1]

    def propose(title, target, code):
        head = f"## proposal\\ntitle: {title}\\nintent: refactor\\nreason: It is better so.\\n"
        print(head + f"### edit replace_symbol agents/orders.py {target}\\n```python\\n{code}```\\n")

    if task == "analyze" and agent == "StockService":
        sys.exit("cannot open " + __file__)
    elif task == "analyze":
        print("## analysis\\nresponsibility: works")
    elif task == "propose" and agent == "OrderService" and "You proposed" not in prompt:
        total = "def total(self, prices: list) -> float:\\n    "
        propose("Sum", "OrderService.total", total + "return float(sum(prices))\\n")
        broken = "if len(prices) > 1:\\n        raise ValueError(__file__)\\n    return float(len(prices))\\n"
        propose("Break", "OrderService.total", total + broken)
    elif task == "propose" and agent == "OrderService" and "sum(prices)" in prompt:
        total = "def total(self, prices: list) -> float:\\n    odd = sum(prices)\\n    return float(odd)\\n"
        propose("Odd", "OrderService.total", total)
    elif task == "evaluate":
        for name in re.findall(r"P\\d{3}", rest):
            print(f"## evaluation {name}\\ndecision: accept\\nconfidence: 0.9\\nreasoning: Nothing breaks.\\n")
    elif task == "arbitrate":
        print(f"## decision {rest.split()[0]}\\ndecision: accept\\nreasoning: It is right.")
    else:
        print("## nothing")
"""
SETTINGS = """
    [project]
    name = "zoo"
    version = "1"
    requires-python = ">=3.11"
    [tool.graphbus.safety]
    max_proposals_per_round = 4
    max_repairs = 0
"""
PRIVATE_SETTINGS = """
    [llm]
    model = {model}
    [gate]
    checks = [["{folder}/check.sh"]]
    test_command = ["{folder}/run_tests.sh"]
    [runtime]
    state_dir = "{folder}/state"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a telling name, with a project and a scripted model in it."""
    home = tmp_path / "home-of-zyxwv"
    write_project(home / "secret-merger", {**FILES, "pyproject.toml": SETTINGS})
    check = '#!/bin/sh\nif grep -q odd agents/orders.py; then echo "$PWD/agents/orders.py:3: odd"; exit 1; fi\n'
    write_project(home, {"speak.py": SCRIPTED_MODEL, "check.sh": check})
    (home / "run_tests.sh").write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pytest -q\n")
    for name in ("check.sh", "run_tests.sh"):
        (home / name).chmod(0o755)
    command = f"command:{shlex.quote(sys.executable)} {shlex.quote(str(home / 'speak.py'))} --cwd={home}"
    write_project(home, {"mine.toml": PRIVATE_SETTINGS.format(model=json.dumps(command), folder=home)})
    return home


def shared_texts(kept: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the lock, of what is packed in it, of the artifacts, and of the record of each session."""
    for path in [*kept.glob("*.*"), *kept.glob("sessions/*/record.json"), *kept.glob("sessions/*/transcript.jsonl")]:
        text = path.read_text(encoding="utf-8")
        yield path.name, text
        for packed in re.findall(r'"([A-Za-z0-9+/=]{24,})"', text):
            try:
                yield f"{path.name}, packed", unpack_bytes(packed).decode()
            except (BuildError, UnicodeDecodeError):  # a digest
                continue


@pytest.mark.slow
def test_no_shared_file_names_a_folder_or_a_user(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = home / "secret-merger"
    monkeypatch.chdir(root)
    monkeypatch.setenv("GRAPHBUS_CONFIG", str(home / "mine.toml"))
    monkeypatch.setenv("USER", "zyxwv")
    assert main(["build", "agents", "--enable-agents", "--rounds", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    texts = list(shared_texts(root / ".graphbus"))
    names = {name for name, _ in texts}
    assert {"negotiation.lock", "negotiation.lock, packed", "record.json", "transcript.jsonl", "agents.json"} <= names
    everything = "\n".join(text for _, text in texts)
    for said in ("speak.py", "cannot open speak.py", "G6.tests", "G7.checks", "sum(prices)"):
        assert said in everything, "the session had the failures and the change that this test is about"
    assert document["modified"]
    for name, text in texts:
        for word in ("zyxwv", "secret-merger", str(home.parent), sys.prefix):
            at = text.find(word)
            assert at < 0, f"{name}: {text[max(at - 200, 0) : at + 100]}"
    assert main(["build", "agents", "--frozen"]) in (0, 3)
    assert "the model has changed" not in capsys.readouterr().err
    assert main(["replay", "--verify"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("program", ["no-such-program", "fails.sh"])
def test_a_program_that_cannot_answer_is_named_without_its_folder(
    program: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = home / "secret-merger"
    monkeypatch.chdir(root)
    write_project(home, {"fails.sh": "#!/bin/sh\necho cannot read $0/$HOME >&2\nexit 3\n"})
    (home / "fails.sh").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    assert main(["negotiate", "agents", "--rounds", "1", "--model", f"command:{home / program}"]) == 5
    assert ("cannot be started" in capsys.readouterr().err) == (program == "no-such-program")
    texts = dict(shared_texts(root / ".graphbus"))
    assert "record.json" in texts
    assert "zyxwv" not in "".join(texts.values())
