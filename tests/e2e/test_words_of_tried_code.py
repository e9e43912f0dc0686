"""A whole session in which a proposal raises what it has read: the person hears it, and nothing else holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.cli import main
from graphbus_core.cli.live import TOPICS, NegotiationLines
from graphbus_core.llm.client import ModelPrompt
from graphbus_core.model.config import BuildConfig
from graphbus_core.negotiation.backend import Backend
from tests.fakes import model_texts as texts
from tests.project_files import write_project

CANARY = "CANARY_4711"
AGENT = """
from graphbus_core import GraphBusNode, schema_method

from lib import keys

RATE = 2


class {name}(GraphBusNode):
    SYSTEM_PROMPT = "I count."

    @schema_method(input_schema={{"count": int}}, output_schema={{"total": int}})
    def total(self, count: int) -> dict:
        return {{"total": count * RATE * keys.FACTOR}}
"""
FILES = {
    "pyproject.toml": "[project]\nname = 'x'\n",
    "lib/__init__.py": "",
    "lib/keys.py": f"KEY = '{CANARY}'\nFACTOR = 1\n",
    "agents/one.py": AGENT.format(name="One"),
    "agents/two.py": AGENT.format(name="Two"),
    "tests/test_one.py": """
        from agents.one import One


        def test_total():
            assert One().total(2) == {"total": 4}
        """,
}
RETURN = '        return {"total": count * RATE * keys.FACTOR}'
WAYS = {
    "G5": ("RATE = 2", "RATE = 2\nif keys.FACTOR:\n    raise ValueError(keys.KEY)", "agents/one.py"),
    "G6": (RETURN, RETURN.replace("count *", "({}[keys.KEY] if count == 2 else count) *"), "agents/one.py"),
    "G8": (RETURN, RETURN.replace("count *", "count * {}[keys.KEY] *"), "agents/two.py"),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rung", WAYS)
def test_what_a_proposal_raises_reaches_the_person_alone(
    tmp_path: Path, rung: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path, FILES)
    old, new, path = WAYS[rung]
    name = "One" if "one" in path else "Two"

    def speak(prompt: ModelPrompt) -> Any:
        asked = texts.asked_in(prompt)
        if asked.task in ("propose", "repair") and asked.agent == name:
            return texts.proposal("Count otherwise", texts.swap(path, old, new))
        return texts.agreeable(prompt)

    recorder = texts.Recorder(speak)
    bus, live, shown = MessageBus(history=0), NegotiationLines(), []
    bus.subscribe(TOPICS, lambda event: shown.extend(live.lines(event.topic, event.payload)))
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True)
    result = run_build_pipeline(request, bus=bus, backend=Backend(texts.clients_of(recorder)))

    assert result.negotiations is not None
    assert f'"code":"{rung}.' in (root / ".graphbus/negotiations.json").read_text().replace('": "', '":"')
    monkeypatch.chdir(root)
    main(["report"])
    written = {file for file in root.rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()}
    assert {file.relative_to(root).as_posix() for file in written} <= {"lib/keys.py"}
    assert len(recorder.of("repair")) > 0
    assert not [prompt for prompt in recorder.prompts if CANARY in str(prompt)]
    assert CANARY not in capsys.readouterr().out
    assert CANARY in "\n".join(shown)
