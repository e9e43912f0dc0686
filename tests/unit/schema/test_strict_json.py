"""JSON that two readers could understand differently is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphbus_core.strict_json import loads


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"value": NaN}', "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b"1e999", "too large"),
        (b"9" * 5000, "5000 digits"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'"\xff"', "not UTF-8"),
        (b"\xef\xbb\xbf1", "line 1, column 1"),
        (b"1 2", "line 1, column 3: extra data"),
        (b'{"b": {"a": 1, "\\u0061": 2}}', "the name 'a' appears twice"),
        (b"[" * 101 + b"]" * 101, "nested more than 100 deep"),
        (b"[" * 100_000, "nested more than 100 deep"),
        (b'{"a":' * 1500 + b"1" + b"}" * 1500, "nested more than 100 deep"),
        ("", "line 1, column 1"),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": [1, 2.5, null, true], "b": "\xc3\xa9"}', {"a": [1, 2.5, None, True], "b": "é"}),
        ('"\\ud83d\\ude00"', "😀"),
        (b"123456789012345678901234567890", 123456789012345678901234567890),
        (b'"' + b"[{" * 200 + b'"', "[{" * 200),
        (b"[" + b"{}," * 500 + b"{}]", [{}] * 501),
        (b"[" * 100 + b"]" * 100, json.loads("[" * 100 + "]" * 100)),
    ],
)
def test_what_is_json_is_read(text: str | bytes, value: Any) -> None:
    assert loads(text) == value


def test_a_text_that_python_has_written_is_read_where_that_is_asked_for() -> None:
    assert loads('"\\ud800"', any_text=True) == "\ud800"
