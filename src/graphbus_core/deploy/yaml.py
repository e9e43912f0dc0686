"""YAML from data: the one emitter. What it writes means the same in YAML 1.1 and 1.2, and keeps the order of the data.

    render({"on": Noted("push", "every branch"), "run": "make test\\nmake demo\\n"})

Plain style only where no parser could take a text for anything else; else double quotes, whose escapes are those of JSON.
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
_SAFE = re.compile(
    rf"(?:\.?/|--)?[A-Za-z_](?:{_SIGN}|:(?={_SIGN}))*(?: (?:{_INSIDE}|(?<=[A-Za-z0-9]):(?={_SIGN}))+)*"
    r"|[1-9][0-9]*(?:[KMGT]i|[mMGT])"
)
"""Text that is plain in any parser: it begins like a word, a path or an option, and has no sign with a meaning; a
colon only inside of a word, where it has none. What begins with a digit may be a time or a number of some base, unless it is a
quantity."""
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])
_BLOCK = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]+")
_ASTRAL = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
_INDENT = "  "


class Noted(NamedTuple):
    """A value with a comment for people: at the end of the line of a scalar, above a mapping or a list."""

    value: Node
    note: str


Node = Scalar | Noted | Mapping[str, "Node"] | Sequence["Node"]


def render(document: Node, *, head: str = "") -> str:
    """Give one YAML document as text, with a final newline.

    Args:
        document: Mappings with string keys, lists, scalars; each may be `Noted`.
        head: Comment lines at the top, without their `#`.

    Raises:
        ValueError: A number that is not finite, or a comment of more than one line.
    """
    lines = [*_comment(head), *_lines(document, "")]
    return "\n".join(lines) + "\n"


def _lines(node: Node, indent: str) -> Iterator[str]:
    """The lines of a node that stands alone, at this depth."""
    value, note = _parted(node)
    if isinstance(value, Mapping) and value:
        yield from (f"{indent}{line}" for line in _comment(note))
        for key, each in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", each, indent)
    elif value and _is_list(value):
        yield from (f"{indent}{line}" for line in _comment(note))
        for each in value:
            yield from _item(each, indent)
    else:
        yield f"{indent}{_inline(value)}{_tail(note)}"


def _entry(key: str, node: Node, indent: str) -> Iterator[str]:
    """`key: value`, or the key and the value below it."""
    value, note = _parted(node)
    if isinstance(value, str) and _is_block(value):
        yield from _block(f"{key} ", value, note, indent)
    elif value and (isinstance(value, Mapping) or _is_list(value)):
        yield f"{key}{_tail(note)}"
        yield from _lines(value, indent + _INDENT)
    else:
        yield f"{key} {_inline(value)}{_tail(note)}"


def _item(node: Node, indent: str) -> Iterator[str]:
    """`- value`; what is a mapping or a list begins on the line of its dash."""
    value, note = _parted(node)
    if isinstance(value, str) and _is_block(value):
        yield from _block(f"{indent}- ", value, note, indent)
        return
    if isinstance(value, Mapping) or _is_list(value):
        yield from (f"{indent}{line}" for line in _comment(note))
        note = ""
    first, *rest = _lines(Noted(value, note) if note else value, indent + _INDENT)
    yield f"{indent}- {first[len(indent) + len(_INDENT) :]}"
    yield from rest


def _block(begin: str, text: str, note: str, indent: str) -> Iterator[str]:
    """Lines as they are. The number says how deep they stand where the first of them begins with a space."""
    depth = str(len(_INDENT)) if text.lstrip("\n").startswith(" ") or text.startswith("\n") else ""
    body = text.removesuffix("\n")
    chomp = "-" if body == text else "+" if body.endswith("\n") or not body else ""
    yield f"{begin}|{depth}{chomp}{_tail(note)}"
    yield from (f"{indent}{_INDENT}{line}" if line else "" for line in body.split("\n"))


def _parted(node: Node) -> tuple[Scalar | Mapping[str, Node] | Sequence[Node], str]:
    return (_parted(node.value)[0], node.note) if isinstance(node, Noted) else (node, "")


def _is_list(value: object) -> TypeGuard[Sequence[Node]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if _is_list(value):
        return "[]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _SAFE.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, float):
        return _float(value)
    text = dumps(value, ensure_ascii=not (isinstance(value, str) and value.isprintable()))
    return _ASTRAL.sub(_joined, text) if isinstance(value, str) else text


def _joined(pair: re.Match[str]) -> str:
    """JSON writes a character beyond the first plane as two halves; YAML has an escape of eight digits."""
    high, low = int(pair[1], 16), int(pair[2], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _float(value: float) -> str:
    if not isfinite(value):
        raise ValueError(f"{value} is no finite number")
    text = repr(value)
    mantissa, sign, exponent = text.partition("e")
    if not sign:
        return text
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"  # without a point, YAML 1.1 reads a text
    return f"{mantissa}e{exponent if exponent[0] in '+-' else f'+{exponent}'}"


def _is_block(text: str) -> bool:
    return (
        "\n" in text and bool(_BLOCK.fullmatch(text)) and all(line.strip(" ") or not line for line in text.split("\n"))
    )


def _tail(note: str) -> str:
    if "\n" in note:
        raise ValueError("a comment at the end of a line has one line")
    return f"  # {note}" if note else ""


def _comment(note: str) -> Iterator[str]:
    return (f"# {line}".rstrip() for line in note.splitlines())
