"""Whatever the data, PyYAML (YAML 1.1) and ruamel.yaml (YAML 1.2) read it back as it was."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from graphbus_core.deploy.yaml import Noted, render

CHARACTERS = st.characters(exclude_categories=("Cs",))
TRAPS = [
    "on", "Yes", "NO", "~", "null", "1_000", "0o7", "010", "1e3", ".5", "-.inf", "0x1F", "12:30",
    "1:30", "a:b", "a:", ":a", "a :b", "a: b", "--", "---", "--- a", "--a=:b", "a:b:c", "x::y", "190:20:30", "+1:30",
    "12e03", "1m", "1e3m", "0m", "1_0Gi", "1.5Gi", "2001-01-01", "=", "<<",
    "-", "- a", "a: b", "a #b", "#x", "!!int", "&a", "*a", "%x", "@a", "`a", "? a", "| a", "> a", "{a}", "[a]", "a,b", "'",
    '"', "\\", "", " a", "a ", "\t", "\n", "\n\n", "a\n", "a\n\n", " a\nb", "\n a\nb", "a\r\nb", "a\n \nb",
    "\ufeff", "\x00", "\u2028", "\U0001f600 \x07",
]  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(CHARACTERS),
    st.text("ab \n#:-'\"{}[],&*!|>%@`?~\t"),
    st.text("a1e0:.-_+=xX/ MGim"),
    st.sampled_from(TRAPS),
)
KEYS = st.one_of(st.text(CHARACTERS, max_size=8), st.sampled_from([trap for trap in TRAPS if "\n" not in trap]))
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


def noted(node: Any) -> Any:
    """The same with a comment at everything."""
    if isinstance(node, dict):
        return Noted({key: noted(value) for key, value in node.items()}, "a mapping: of 2\nlines" if node else "")
    if isinstance(node, list):
        return Noted([noted(value) for value in node], "- a list" if node else "")
    return Noted(node, "# a scalar: 'x'")


def without_line_notes(node: Any) -> Any:
    """A comment of two lines stands only where there are lines of its own: not behind a key."""
    if isinstance(node, Noted):
        return Noted(without_line_notes(node.value), node.note.replace("\n", " "))
    if isinstance(node, dict):
        return {key: without_line_notes(value) for key, value in node.items()}
    return [without_line_notes(value) for value in node] if isinstance(node, list) else node


def assert_both_read(text: str, document: object) -> None:
    assert yaml.safe_load(text) == document
    assert YAML(typ="safe", pure=True).load(text) == document


@given(DOCUMENTS)
@example({"on": {"yes": "no"}})
def test_what_is_rendered_is_read_as_it_was_by_both(document: object) -> None:
    assert_both_read(render(document), document)


@given(DOCUMENTS)
def test_comments_change_nothing(document: object) -> None:
    assert_both_read(render(without_line_notes(noted(document)), head="Made by a test.\n\n- x: y"), document)


@pytest.mark.parametrize("text", TRAPS)
def test_traps(text: str) -> None:
    assert_both_read(render({"a": text, "b": [text]}), {"a": text, "b": [text]})
    if "\n" not in text:
        assert_both_read(render({text: 1}), {text: 1})


@pytest.mark.parametrize(
    "text",
    ["256Mi", "100m", "1Gi", "2G", "ghcr.io/acme/shop:1.4.2", f"localhost:5000/a@sha256:{'0' * 64}", "https://a.example/b",
     "--health=0.0.0.0:8080", "pip install a==1"],
)  # fmt: skip
def test_what_people_write_plain_is_plain(text: str) -> None:
    assert render({"a": text}) == f"a: {text}\n"
    assert_both_read(render({"a": text}), {"a": text})


@pytest.mark.parametrize(
    "text", ["1:30", "190:20:30", "12e03", "0x1F", "1_000", ".5", "1.10", "2001-01-01", "010", "0o7"]
)
def test_what_some_parser_takes_for_a_number_or_a_day_is_quoted(text: str) -> None:
    assert render({"a": text}) == f'a: "{text}"\n'


def test_keys_keep_their_order() -> None:
    assert list(yaml.safe_load(render({"b": 1, "a": 2, "c": 3}))) == ["b", "a", "c"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        render({"a": number})


def test_a_comment_of_two_lines_behind_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="one line"):
        render({"a": Noted(1, "one\ntwo")})
