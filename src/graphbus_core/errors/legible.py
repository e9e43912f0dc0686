"""Escapes untrusted text, e.g. of a payload, for terminals, logs and UTF-8 files."""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    """Return the text with its line breaks and tabs; escape everything else that is not printable, e.g. ESC."""
    return text if text.isprintable() else "\n".join(map(_escape_line, text.split("\n")))


def escape_to_one_line(text: str) -> str:
    """Return the text with everything escaped that is not printable, line breaks included."""
    return (
        text
        if text.isprintable()
        else "".join(each if each.isprintable() else _escape_character(each) for each in text)
    )


def _escape_line(line: str) -> str:
    """Escape what is not printable in one line, except tabs."""
    return line if line.isprintable() else "\t".join(map(escape_to_one_line, line.split("\t")))


def _escape_character(character: str) -> str:
    """Return the escape sequence of Python for a character, e.g. `\\x1b`."""
    return character.encode("unicode_escape").decode("ascii")
