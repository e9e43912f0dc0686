"""Signs of a capability that are in the text and not in its structure: comments, addresses, keys, odd characters."""

from __future__ import annotations

import ast
import tokenize
import unicodedata
from collections.abc import Iterator

from graphbus_core.editing.rungs.capability_table import ADDRESS, INTERNAL, PRIVATE_PATH, SECRET, SUPPRESSION
from graphbus_core.editing.text.source_text import SourceText, tokens, with_lf

_FOREIGN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")

Found = tuple[str, str, int]


def signs_of_text(source: SourceText) -> Iterator[Found]:
    """Give code, what it is, and line."""
    text = with_lf(source.text)
    for token in tokens(text):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if SUPPRESSION.search(token.string):
                yield "G3.suppression", f"the comment {token.string!r}", line
            yield from _of_words(token.string, line)
        elif token.type == tokenize.NAME and not token.string.isascii() and _is_imitation(token.string):
            yield "G3.unicode", f"the name {token.string!r}, whose letters imitate others", line
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            words = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield from _of_words(words, node.lineno)
            if PRIVATE_PATH.search(words) and "\n" not in words:
                yield "G3.files", f"the path {words!r}", node.lineno
    if not text.isascii():
        yield from _odd_characters(text)


def _of_words(words: str, line: int) -> Iterator[Found]:
    for match in ADDRESS.finditer(words):
        yield "G3.url", f"the address {match.group()!r}", line
    for match in INTERNAL.finditer(words):  # what `"{0.__globals__}".format(x)` reaches
        yield "G3.reflection", f"the text {match.group()!r}", line
    for match in SECRET.finditer(words):
        yield "G3.secret", f"a key that begins with {match.group()[:6]!r}", line


def _odd_characters(text: str) -> Iterator[Found]:
    for number, line in enumerate(text.split("\n"), 1):
        for character in line:
            if unicodedata.category(character) in ("Cf", "Zl", "Zp", "Co") or character in _BLANK_LETTERS:
                yield "G3.unicode", f"the character U+{ord(character):04X}", number


def _is_imitation(name: str) -> bool:
    """Letters of several alphabets in one word, or letters that Python reads as others."""
    alphabets = {unicodedata.name(letter, "").partition(" ")[0] for letter in name if letter.isalpha()}
    return unicodedata.normalize("NFKC", name) != name or ("LATIN" in alphabets and bool(alphabets & _FOREIGN))
