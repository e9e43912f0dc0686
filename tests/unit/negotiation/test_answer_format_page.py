"""The page about the answer format shows what the prompt shows and what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from graphbus_core.model.proposals import Operation
from graphbus_core.negotiation import answer_format, answers, edit_blocks

PAGE = (Path(__file__).parents[3] / "docs/answer-format.md").read_text(encoding="utf-8")


def test_the_page_shows_the_examples_of_the_prompt() -> None:
    for example in answer_format.EXAMPLES.values():
        assert f"````text\n{example}````\n" in PAGE


def test_the_page_and_the_prompt_name_every_operation() -> None:
    for operation in get_args(Operation):
        assert f"| `{operation}` |" in PAGE
        assert f"`### edit {operation} PATH" in answer_format.answer_format()


def test_the_page_names_every_key_and_limit() -> None:
    for key in answer_format.KEYS - {"responsibility", "dependency", "issue"}:
        assert f"`{key}`" in PAGE, key
    for limit in (answer_format.MAX_ANSWER_BYTES, answers.MAX_PROPOSALS, edit_blocks.MAX_EDITS, answer_format.MAX_TEXT):
        assert f"{limit:,}" in PAGE
    assert f"This is version {answer_format.PROTOCOL_VERSION};" in PAGE
