"""Whatever the value, PyYAML (YAML 1.1) and ruamel.yaml (YAML 1.2) read it from a template as it was."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from graphbus_core.deploy import render
from graphbus_core.deploy import yaml as own
from graphbus_core.deploy.yaml import format_scalar

CHARACTERS = st.characters(exclude_categories=("Cs",))
TRAPS = [
    "on", "Yes", "NO", "~", "null", "1_000", "0o7", "010", "1e3", ".5", "-.inf", "0x1F", "12:30",
    "1:30", "a:b", "a:", ":a", "a :b", "a: b", "--", "---", "--- a", "--a=:b", "a:b:c", "x::y", "190:20:30", "+1:30",
    "12e03", "1m", "1e3m", "0m", "1_0Gi", "1.5Gi", "2001-01-01", "=", "<<",
    "-", "- a", "a: b", "a #b", "#x", "!!int", "&a", "*a", "%x", "@a", "`a", "? a", "| a", "> a", "{a}", "[a]", "a,b", "'",
    '"', "\\", "", " a", "a ", "\t", "\n", "\n\n", "a\n", "a\n\n", " a\nb", "\n a\nb", "a\r\nb", "a\n \nb",
    "\ufeff", "\x00", "\u2028", "\U0001f600 \x07",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(CHARACTERS), st.text("ab \n#:-'\"{}[],&*!|>%@`?~\t"), st.text("a1e0:.-_+=xX/ MGim"), st.sampled_from(TRAPS)
)

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_what_is_rendered_is_read_as_it_was_by_both(document: object) -> None:
    text = own.render_yaml(document)
    assert yaml.safe_load(text) == document
    assert YAML(typ="safe", pure=True).load(text) == document


def assert_both_read(value: object) -> None:
    text = f"a: {format_scalar(value)}  # a note: 'x'\nb:\n  - {format_scalar(value)}\n"
    assert yaml.safe_load(text) == {"a": value, "b": [value]}
    assert YAML(typ="safe", pure=True).load(text) == {"a": value, "b": [value]}


@given(st.one_of(st.booleans(), st.integers(), TEXTS))
def test_what_is_filled_in_is_read_as_it_was_by_both(value: object) -> None:
    assert_both_read(value)


@pytest.mark.parametrize(
    ("line", "values", "filled"),
    [
        ("  - name: @a@  # of @b@", {"a": "no", "b": "x"}, ['  - name: "no"  # of x']),
        ("  - @a@", {"a": ("x", "1")}, ["  - x", '  - "1"']),
        ("  - @a@", {"a": ()}, []),
        ("  @a@", {"a": "x\n\ny\n"}, ["  x", "", "  y"]),
        ("  @a@", {"a": ""}, []),
        ("  run --x=@a@", {"a": "1: #"}, ["  run --x=1: #"]),
    ],
)
def test_a_line_of_a_template(line: str, values: dict[str, object], filled: list[str]) -> None:
    assert render._fill_line(line, values) == filled


@pytest.mark.parametrize("line", ["# @a@", "run @a@", '"@a@":'])
def test_no_value_leaves_its_line(line: str) -> None:
    with pytest.raises(ValueError, match="several lines"):
        render._fill_line(line, {"a": "x\ny: z"})


PLAIN = (
    *("256Mi", "100m", "1Gi", "2G", "ghcr.io/acme/shop:1.4.2", f"localhost:5000/a@sha256:{'0' * 64}"),
    *("https://a.example/b", "--health=0.0.0.0:8080", "pip install a==1"),
)
MISTAKEN = ("1:30", "190:20:30", "12e03", "0x1F", "1_000", ".5", "1.10", "2001-01-01", "010", "0o7")


def test_images_quantities_and_options_are_plain_and_what_may_be_a_number_or_a_day_is_quoted() -> None:
    assert [format_scalar(text) for text in PLAIN] == [*PLAIN]
    assert [format_scalar(text) for text in MISTAKEN] == [f'"{text}"' for text in MISTAKEN]
    for text in PLAIN:
        assert_both_read(text)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        own.render_yaml({"a": number})
