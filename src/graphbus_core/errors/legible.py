"""Text from anywhere, e.g. from a payload, made fit for a terminal, a log and a file in UTF-8."""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    """The text in its lines; what else a terminal obeys or UTF-8 does not have is escaped, e.g. ESC or half a surrogate pair."""
    return text if text.isprintable() else "\n".join(map(_legible_line, text.split("\n")))


def escape_to_one_line(text: str) -> str:
    """The same, with the ends of lines escaped, too."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _legible_line(line: str) -> str:
    return line if line.isprintable() else "\t".join(map(escape_to_one_line, line.split("\t")))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
