"""Golden transcripts: for each requirement a conversation that meets it and one that breaks it, judged line by line.

A line of a transcript is what one side says (`host`, `program`, or `program_base64` for bytes that are no text; `padded_to` bytes
with spaces), or what happens: the program's `end` with its status, its `silence`, or that the host's `input_ends`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conversation import Conversation
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS

FOLDER = Path(__file__).with_name("transcripts")


def read_transcript(number: str, kind: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{number}.{kind}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def line_of(entry: dict[str, Any], side: str) -> bytes:
    if f"{side}_base64" in entry:
        return b64decode(entry[f"{side}_base64"])
    line: bytes = entry[side].encode()
    return line.ljust(entry.get("padded_to", 0) - 1) + b"\n"


def judge(entries: list[dict[str, Any]]) -> Conversation:
    """Let a conversation take a transcript; raise BreachError for the first line that is wrong."""
    conversation = Conversation()
    for entry in entries:
        if "host" in entry:
            conversation.host_says(line_of(entry, "host"))
        elif "input_ends" in entry:
            conversation.close_input()
        elif "silence" in entry:
            raise conversation.time_is_up()
        elif "end" in entry:
            conversation.take_end(entry["end"])
        else:
            conversation.take(line_of(entry, "program"))
    return conversation


@pytest.mark.parametrize("number", REQUIREMENTS)
def test_a_positive_transcript_puts_its_requirement_to_the_test_and_breaks_none(number):
    conversation = judge(read_transcript(number, "positive"))
    assert number in conversation.exercised | conversation.exercised_by_host


@pytest.mark.parametrize("number", REQUIREMENTS)
def test_a_negative_transcript_breaks_its_requirement_with_its_last_line(number):
    entries = read_transcript(number, "negative")
    with pytest.raises(BreachError) as caught:
        judge(entries)
    assert caught.value.number == number
    assert caught.value.side == ("host" if REQUIREMENTS[number].side == "host" else "program")
    if "silence" not in entries[-1]:
        judge(entries[:-1])  # everything before it is right


def test_there_is_no_other_transcript():
    wanted = {f"{number}.{kind}.jsonl" for number in REQUIREMENTS for kind in ("positive", "negative")}
    assert {path.name for path in FOLDER.iterdir()} == wanted
