"""The JSON Schema of the protocol: made from the classes, and true of everything that is said in the golden transcripts."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest

import graphbus_core
from graphbus_core.model.config import AgentProgram
from graphbus_core.model.messages import Event
from graphbus_core.negotiation.gbnp import messages
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS
from tests.protocol.test_sessions import PERL, failures_of, negotiate, shop

__all__ = ["shop"]  # a fixture

TRANSCRIPTS = Path(__file__).with_name("transcripts")
FILE = Path(graphbus_core.__file__).with_name("schemas") / "negotiation-protocol.schema.json"
SCHEMA = json.loads(FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
BEYOND_SCHEMA = {"GBNP-002", "GBNP-003"}
"""Requirements whose positive transcripts are not read here, as they are about bytes."""


def test_the_schema_is_made_from_the_classes():
    made = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "schemas.py"))["all_schemas"]()
    assert made[FILE.name] == FILE.read_bytes()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("number", sorted(REQUIREMENTS.keys() - BEYOND_SCHEMA))
def test_every_message_of_a_positive_transcript_is_valid(number):
    for line in (TRANSCRIPTS / f"{number}.positive.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        said = entry.get("host") or entry.get("program")
        message = json.loads(said) if said else None
        if message and not str(message.get("method")).endswith("x_later"):
            VALIDATOR.validate(message)


@pytest.mark.parametrize("method", messages.METHODS)
def test_what_is_valid_can_be_read_into_the_class_and_written_again(method):
    """From the transcripts: text -> class -> text gives the same values for all members that the class has."""
    kind = messages.METHODS[method].params
    for path in TRANSCRIPTS.glob("*.positive.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            message = json.loads(json.loads(line).get("host", "null"))
            if message and message["method"] == method:
                again = msgspec.json.decode(msgspec.json.encode(msgspec.convert(message["params"], kind)))
                known = {name: again[name] for name in message["params"] if name in kind.__struct_fields__}
                assert {*known} >= {*message["params"]} - {"x_later"}
                jsonschema.validate(again, {"$ref": f"#/$defs/{kind.__name__}", "$defs": SCHEMA["$defs"]})


def test_every_message_of_our_own_sessions_is_valid(shop):
    """Each program is between two `tee`, without the sandbox, which would not let them write."""
    said = shop / "said"
    said.mkdir()
    for agent in ("Orders", "Stock", "Referee"):
        script = f'tee {said}/{agent}.host | "$@" | tee {said}/{agent}.program'
        (shop / "programs" / f"{agent}.sh").write_text(script)
    commands = {
        "Orders": ("sh", "programs/Orders.sh", *PERL.command),
        "Stock": ("sh", "programs/Stock.sh", sys.executable, "programs/agent.py"),
        "Referee": ("sh", "programs/Referee.sh", sys.executable, "programs/agent.py"),
    }
    programs = {agent: AgentProgram(command=command) for agent, command in commands.items()}
    heard: list[Event] = []
    negotiate(shop, heard, isolation="process", **programs)
    assert [reason for agent in programs for reason in failures_of(heard, agent)] == []
    methods = set()
    for path in said.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            VALIDATOR.validate(message)
            methods.add(message.get("method"))
    assert methods >= {"agent/hello", "agent/analyze", "agent/propose", "agent/evaluate", "session/event", "agent/bye"}
