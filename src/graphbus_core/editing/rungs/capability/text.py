"""Signs of G3 in the characters of a file: comments that silence checks, addresses, keys, invisible or imitating characters."""

from __future__ import annotations

import ast
import re
import tokenize
import unicodedata
from collections.abc import Iterable, Iterator

from graphbus_core.editing.text.source_text import tokenize_text, with_lf

_PRIVATE_PATH = re.compile(
    r"^~|^/(?:proc|etc|dev|sys)/|(?:^|/)\.(?:ssh|aws|gnupg|kube|docker|netrc|pgpass|env|git|config)(?:$|[/.])"
    r"|\bid_(?:rsa|dsa|ecdsa|ed25519)\b"
)
"""Paths of keys, settings and system files."""

_SUPPRESSION = re.compile(
    r"#[\s#]{0,16}(?:graphbus\s*:|noqa|nosec|nosemgrep|nosonar|lgtm|codeql|gitleaks|trufflehog|skipcq|checkov|bandit|semgrep|type:\s*ignore"
    r"|(?:pragma|pyright|pyre|pytype|mypy|pylint|ruff|flake8|isort|fmt|black|yapf|autopep8|pyrefly|ty|sonar|deepsource|coverage)\b"
    r"\s*[:\[-])",
    re.IGNORECASE,
)
_INTERNAL = re.compile(r"[.\[]_{0,8}__(?:globals|builtins|subclasses|bases|base|mro|code|dict|class|init|import)__")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}\Z")
_ADDRESS = re.compile(
    r"://[^\s'\"]{0,200}|\b(?:\d{1,3}\.){3}\d{1,3}\b"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}\b|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){1,6}:[0-9A-Fa-f]"
)
_SECRET = re.compile(
    r"sk-[A-Za-z0-9_-]{16}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20}|github_pat_\w{20}|glpat-[\w-]{16}"
    r"|xox[abeoprs]-[\w-]{10}|AIza[\w-]{30}|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
    r"|eyJ[\w-]{8,400}\.eyJ[\w-]{8}|[sr]k_live_\w{16}"
)
_LOOKALIKE_SCRIPTS = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets with letters that look exactly like Latin ones."""
_LOOKALIKES = frozenset(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf\u0410\u0412\u0415\u041a\u041c\u041d"
    "\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405\u03bf\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)
"""Cyrillic and Greek letters that look like Latin ones."""
_EMPTY_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})
_MAX_MARKS = 3
"""More combining marks than this on one letter would cover the lines around it."""

_Sign = tuple[str, str, int]
"""The code of G3, what was found, and the line."""


def signs_of_text(text: str, nodes: Iterable[ast.AST]) -> Iterator[_Sign]:
    """Yield the code of G3, a description and the line of each sign in a text; `nodes` are those of its syntax tree."""
    text = with_lf(text)
    for token in tokenize_text(text):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if _SUPPRESSION.search(token.string):
                yield "G3.suppression", f"the comment {token.string!r}", line
            yield from _find_in_words(token.string, line)
        elif token.type == tokenize.NAME and not token.string.isascii() and _is_imitation(token.string):
            yield "G3.unicode", f"the name {token.string!r}, whose letters imitate others", line
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            yield from _find_in_constant(node.value, node.lineno)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from _find_in_sum(node)
    if not (text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()):
        yield from _find_invisible_characters(text)


def _find_in_constant(value: str | bytes, line: int) -> Iterator[_Sign]:
    """Yield the signs in a constant: those of its words, and a path of keys, settings or system files."""
    words = value if isinstance(value, str) else value.decode("latin-1")
    yield from _find_in_words(words, line)
    if "\n" not in words and _PRIVATE_PATH.search(words):
        yield "G3.files", f"the path {_quote(words)}", line


def _find_in_sum(node: ast.BinOp) -> Iterator[_Sign]:
    """Yield a sign for an address that `+` puts together from two constants that are no addresses themselves."""
    left = node.left.right if isinstance(node.left, ast.BinOp) else node.left
    if _is_text_constant(left) and _is_text_constant(node.right):
        ends = ast.literal_eval(left)[-40:], ast.literal_eval(node.right)[:200]
        if not any(map(_ADDRESS.search, ends)) and _ADDRESS.search("".join(ends)):
            yield "G3.url", f"the address {_quote(''.join(ends))}", node.lineno


def _is_text_constant(node: ast.expr) -> bool:
    """True for a `str` constant."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _find_in_words(words: str, line: int) -> Iterator[_Sign]:
    """Yield the signs in the text of a constant or comment: addresses, internal names and keys."""
    for match in _ADDRESS.finditer(words):
        scheme = _SCHEME.search(words, max(0, match.start() - 31), match.start())
        yield "G3.url", f"the address {_quote((scheme.group() if scheme else '') + match.group())}", line
    for match in _INTERNAL.finditer(words):  # `"{0.__globals__}".format(x)` would reach them
        yield "G3.reflection", f"the text {match.group()!r}", line
    for match in _SECRET.finditer(words):
        yield "G3.secret", f"a key that begins with {match.group()[:6]!r}", line


def _quote(words: str) -> str:
    """Return a text in quotes for a message, cut after 200 characters."""
    return repr(words if len(words) <= 200 else f"{words[:200]}...")


def _find_invisible_characters(text: str) -> Iterator[_Sign]:
    """Yield a sign for each character that may not be shown or may cover others: control characters, many marks."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.isascii() and line.isprintable():
            continue
        marks, before = 0, ""
        for character in line:
            category = unicodedata.category(character)
            marks = marks + 1 if category in ("Mn", "Me") else 0
            if (
                (category in _INVISIBLE_CATEGORIES and character != "\t")
                or character in _EMPTY_LETTERS
                or marks > _MAX_MARKS
                or (_is_selector(character) and before not in ("So", "Sm", "Sk", "Po"))
            ):
                yield "G3.unicode", f"the character U+{ord(character):04X}", number
            before = category


def _is_selector(character: str) -> bool:
    """True for a variation selector: an invisible character that changes the one before it, e.g. an emoji."""
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _is_imitation(name: str) -> bool:
    """True for a name that mixes alphabets, changes when Python normalises it, or consists of letters that look Latin."""
    if all(letter in _LOOKALIKES or not letter.isalpha() for letter in name):
        return True
    alphabets = {unicodedata.name(letter, "").partition(" ")[0] for letter in name if letter.isalpha()}
    is_mixed = "LATIN" in alphabets and bool(alphabets & _LOOKALIKE_SCRIPTS)
    return is_mixed or unicodedata.normalize("NFKC", name) != name
