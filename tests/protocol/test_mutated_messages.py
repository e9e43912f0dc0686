"""10,000 answers of a program, damaged in bytes, values and structure: what is accepted is valid under the JSON Schema, too.

The schema is made from the same classes, but jsonschema reads it on its own; so each judges the other.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import graphbus_core
from graphbus_core import strict_json
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conversation import Conversation, Refusal
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS

FOLDER = Path(__file__).with_name("transcripts")
SCHEMA = json.loads(
    Path(graphbus_core.__file__).with_name("schemas").joinpath("negotiation-protocol.schema.json").read_text("utf-8")
)
STARTS = (
    "GBNP-021",
    "GBNP-030",
    "GBNP-041",
    "GBNP-047",
    "GBNP-048",
    "GBNP-051",
    "GBNP-060",
    "GBNP-065",
    "GBNP-067",
    "GBNP-071",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 80,
    "",
    "Stock",
    "Orders",
    "P001",
    "../x.py",
    [],
    {},
    [[]],
    {"a": 1},
)
ROUNDS = 1000


def validator_of(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name.replace('/', '~1')}", "$defs": SCHEMA["$defs"]})


def entries_of(number: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{number}.positive.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return each (container, key) in a JSON value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places_in(value[key])]


def mutate(line: bytes, source: random.Random) -> bytes:
    """Return a line with a damaged byte, a text written twice, or one value exchanged, removed or added."""
    if source.random() < 0.4:
        at, kind = source.randrange(len(line)), source.randrange(4)
        piece = bytes([source.randrange(256)])
        return (
            line[:at] + piece + line[at + 1 :],
            line[:at] + line[at:] * 2,
            line[:at],
            line[:at] + piece + line[at:],
        )[kind]
    message = json.loads(line)
    container, key = source.choice(places_in(message))
    kind = source.randrange(4)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[source.choice(("x_later", "src", "parent", "id", "method", "error", "evidence"))] = source.choice(
            VALUES
        )
    elif kind == 2 and isinstance(container, list):
        container.append(deepcopy(container[key]))
    else:
        container[key] = source.choice(VALUES)
    return json.dumps(message).encode() + b"\n"


@pytest.mark.parametrize("number", STARTS)
def test_a_damaged_answer_is_refused_with_a_number_or_valid(number):
    entries, source = entries_of(number), random.Random(number)
    last = max(
        at for at, entry in enumerate(entries) if "program" in entry and "agent/bye" not in entries[at - 1]["host"]
    )
    asked = json.loads(entries[last - 1]["host"])
    answer_schema, refusal_schema = validator_of(f"{asked['method']} answer"), validator_of("refusal")
    refused = 0
    for _ in range(ROUNDS):
        conversation = Conversation()
        for entry in entries[:last]:
            if "host" in entry:
                conversation.host_says(entry["host"].encode() + b"\n")
            else:
                conversation.take(entry["program"].encode() + b"\n")
        line = mutate(entries[last]["program"].encode() + b"\n", source)
        breach, answer = None, None
        try:
            answer = conversation.take(line)
        except BreachError as error:
            breach = error
        if breach:
            assert breach.number in REQUIREMENTS
            assert breach.reason
            refused += 1
        else:
            message = strict_json.loads(line)
            (refusal_schema if isinstance(answer, Refusal) else answer_schema).validate(message)
            assert message["id"] == asked["id"]
            assert_speaks_for("Stock", answer)
    assert refused > ROUNDS / 4


def assert_speaks_for(agent: str, answer: Any) -> None:
    """Assert that an answer, as it is read, is in nobody else's name and claims nothing that only the host can know."""
    votes = [*getattr(answer, "evaluations", ()), *filter(None, [getattr(answer, "evaluation", None)])]
    proposals = [*getattr(answer, "proposals", ()), getattr(answer, "proposal", None)]
    for vote in votes:
        assert vote.evaluator == agent
        assert not vote.is_arbiter
        assert not any(each.is_verified for each in vote.evidence)
        proposals.append(vote.counter_proposal)
    for proposal in filter(None, proposals):
        assert proposal.src == agent
