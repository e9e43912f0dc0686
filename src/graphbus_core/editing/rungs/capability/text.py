"""Signs that are in the characters of a file and not in its structure: comments, addresses, keys, what hides text."""

from __future__ import annotations

import ast
import tokenize
import unicodedata
from collections.abc import Iterable, Iterator

from graphbus_core.editing.rungs.capability.acting import ADDRESS, INTERNAL, PRIVATE_PATH, SCHEME, SECRET, SUPPRESSION
from graphbus_core.editing.text.source_text import tokens, with_lf

_FOREIGN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
_HIDING = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
_LATIN_LOOKS = frozenset(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf\u0410\u0412\u0415\u041a\u041c\u041d"
    "\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405\u03bf\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)
"""Cyrillic and Greek letters that look like Latin ones."""
_MOST_MARKS = 3
"""So many marks may stand on one letter; more cover the lines around it."""

Found = tuple[str, str, int]


def signs_of_text(text: str, nodes: Iterable[ast.AST]) -> Iterator[Found]:
    """Give code, what it is, and line, for a text and the nodes of its tree."""
    text = with_lf(text)
    for token in tokens(text):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if SUPPRESSION.search(token.string):
                yield "G3.suppression", f"the comment {token.string!r}", line
            yield from _of_words(token.string, line)
        elif token.type == tokenize.NAME and not token.string.isascii() and _is_imitation(token.string):
            yield "G3.unicode", f"the name {token.string!r}, whose letters imitate others", line
    for node in nodes:
        yield from _of_node(node)
    if not (text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()):
        yield from _odd_characters(text)


def _of_node(node: ast.AST) -> Iterator[Found]:
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        words = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        yield from _of_words(words, node.lineno)
        if "\n" not in words and PRIVATE_PATH.search(words):
            yield "G3.files", f"the path {_shown(words)}", node.lineno
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (found for found in _of_sum(node) if found[0] == "G3.url")


def _of_sum(node: ast.BinOp) -> Iterator[Found]:
    """An address in two pieces; each sum looks at the ends of its two parts only."""
    left, right = _last_text(node.left), node.right
    if left and isinstance(right, ast.Constant) and isinstance(right.value, str):
        joined = left[-40:] + right.value[:200]
        if not ADDRESS.search(left[-40:]) and not ADDRESS.search(right.value[:200]):
            yield from _of_words(joined, node.lineno)


def _last_text(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp):
        node = node.right
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _of_words(words: str, line: int) -> Iterator[Found]:
    for match in ADDRESS.finditer(words):
        scheme = SCHEME.search(words, max(0, match.start() - 31), match.start())
        yield "G3.url", f"the address {_shown((scheme.group() if scheme else '') + match.group())}", line
    for match in INTERNAL.finditer(words):  # what `"{0.__globals__}".format(x)` reaches
        yield "G3.reflection", f"the text {match.group()!r}", line
    for match in SECRET.finditer(words):
        yield "G3.secret", f"a key that begins with {match.group()[:6]!r}", line


def _shown(words: str) -> str:
    return repr(words if len(words) <= 200 else f"{words[:200]}...")


def _odd_characters(text: str) -> Iterator[Found]:
    """Give what a terminal or an editor does not show as it is: control characters, marks without end, what has no width."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.isascii() and line.isprintable():
            continue
        marks, before = 0, ""
        for character in line:
            category = unicodedata.category(character)
            marks = marks + 1 if category in ("Mn", "Me") else 0
            is_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
            is_odd = category in _HIDING and character != "\t"
            if (
                is_odd
                or character in _BLANK_LETTERS
                or marks > _MOST_MARKS
                or (is_selector and not _is_picture(before))
            ):
                yield "G3.unicode", f"the character U+{ord(character):04X}", number
            before = character


def _is_picture(character: str) -> bool:
    """Tell whether a character has a second, coloured form, which U+FE0F asks for."""
    return bool(character) and (
        unicodedata.category(character) in ("So", "Sm", "Sk", "Po") or character in "0123456789#*"
    )


def _is_imitation(name: str) -> bool:
    """Letters of several alphabets in one word, letters that Python reads as others, or a word that only looks Latin."""
    if all(letter in _LATIN_LOOKS or not letter.isalpha() for letter in name):
        return True
    alphabets = {unicodedata.name(letter, "").partition(" ")[0] for letter in name if letter.isalpha()}
    return unicodedata.normalize("NFKC", name) != name or ("LATIN" in alphabets and bool(alphabets & _FOREIGN))
