"""YAML from data, with comments. The text means the same in YAML 1.1 and 1.2 and keeps the order of the data.

    render({"on": Noted("push", "every branch"), "run": "make test\\nmake demo\\n"})

A text is written plain if no parser can take it for anything else; otherwise in double quotes, with the escapes of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from math import isfinite
from typing import NamedTuple, TypeGuard

Scalar = str | int | float | bool | None

_SIGN = "[A-Za-z0-9_./@+=-]"
_INSIDE = "[A-Za-z0-9_./@+=(),-]"
_PLAIN = re.compile(
    rf"(?:\.?/|--)?[A-Za-z_](?:{_SIGN}|:(?={_SIGN}))*(?: (?:{_INSIDE}|(?<=[A-Za-z0-9]):(?={_SIGN}))+)*"
    r"|[1-9][0-9]*(?:[KMGT]i|[mMGT])"
)
"""Begins like a word, a path or an option, and has no sign with a meaning; a colon only inside of a word. A text that begins
with a digit may be a time or a number of some base, unless it is a quantity."""
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])
_BLOCK = re.compile(r"(?![ \n])[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]+")
_LOST_IN_A_BLOCK = re.compile(r"^ +$|\n\n\Z", re.MULTILINE)
_INDENT = "  "


class Noted(NamedTuple):
    """A value with a comment: at the end of the line of a scalar or a key, above a mapping or a list in a list."""

    value: Scalar | Mapping[str, Node] | Sequence[Node]
    note: str


Node = Scalar | Noted | Mapping[str, "Node"] | Sequence["Node"]
Object = dict[str, Node]


def render(document: Node, *, head: str = "") -> str:
    """Return one YAML document as text, with a final newline.

    Args:
        document: Mappings with string keys, lists, scalars; each may be `Noted`.
        head: Comment lines at the top, without their `#`.

    Raises:
        ValueError: A number that is not finite, or a comment of several lines at the end of a line.
    """
    return "".join(f"{line}\n" for line in (*_comment(head), *_lines(document, "")))


def _lines(node: Node, indent: str) -> Iterator[str]:
    """Yield the lines of a document, or of what stands below a key or behind a dash."""
    value, note = node if isinstance(node, Noted) else (node, "")
    if not _is_nested(value):
        yield f"{_inline(value)}{_tail(note)}"
        return
    yield from _comment(note)
    if isinstance(value, Mapping):
        entries = [(f"{indent}{_inline(key)}:", each) for key, each in value.items()]
    else:
        entries = [(f"{indent}-", each) for each in value]
    for begin, each in entries:
        yield from _entry(begin, each, indent)


def _entry(begin: str, node: Node, indent: str) -> Iterator[str]:
    """Yield `key: value` or `- value`; a mapping or a list stands below its key, or begins on the line of its dash."""
    value, note = node if isinstance(node, Noted) else (node, "")
    if isinstance(value, str) and _is_block(value):
        chomped = "" if value.endswith("\n") else "-"
        yield f"{begin} |{chomped}{_tail(note)}"
        lines = value.removesuffix("\n").split("\n")
        yield from (f"{indent}{_INDENT}{line}" if line else "" for line in lines)
    elif not _is_nested(value):
        yield f"{begin} {_inline(value)}{_tail(note)}"
    elif begin.endswith(":"):
        yield f"{begin}{_tail(note)}"
        yield from _lines(value, indent + _INDENT)
    else:
        yield from (f"{indent}{line}" for line in _comment(note))
        first, *rest = _lines(value, indent + _INDENT)
        yield f"{begin} {first.lstrip()}"
        yield from rest


def _is_block(text: str) -> bool:
    return "\n" in text and bool(_BLOCK.fullmatch(text)) and not _LOST_IN_A_BLOCK.search(text)


def _is_nested(value: object) -> TypeGuard[Mapping[str, Node] | Sequence[Node]]:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)


def _inline(value: object) -> str:
    """Return a scalar or an empty collection as one word."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no finite number")
    text = dumps(value)
    return text if "." in text else text.replace("e-", ".0e-").replace("e+", ".0e+")  # YAML 1.1 reads 1e-05 as a text


def _quoted(text: str) -> str:
    """Quote as JSON does; what is left that nobody can see, and YAML may not contain, is written by its number."""
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in dumps(text, ensure_ascii=False))


def _tail(note: str) -> str:
    if "\n" in note:
        raise ValueError("a comment at the end of a line has one line")
    return f"  # {note}" if note else ""


def _comment(note: str) -> Iterator[str]:
    return (f"# {line}".rstrip() for line in note.splitlines())
