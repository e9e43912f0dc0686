"""A source file, its syntax tree or the reason why there is none, and a fast walk over a tree.

Trees are made one at a time, and without the warnings of the compiler: Python 3.11 counts the depth of all trees under
construction together, so that two threads that parse at once can end in a SystemError (cpython issue 106905), and what `warnings`
leaves out is a setting of the whole process.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from threading import RLock
from typing import TypeVar

from graphbus_core.errors import BuildError, Place
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.digests import sha256_hex

FIELDS: dict[type, tuple[str, str]] = {
    ast.Assert: ("test msg", ""),
    ast.Assign: ("value", "targets"),
    ast.Attribute: ("value", ""),
    ast.AugAssign: ("target value", ""),
    ast.Await: ("value", ""),
    ast.BinOp: ("left right", ""),
    ast.BoolOp: ("", "values"),
    ast.Call: ("func", "args keywords"),
    ast.Compare: ("left", "comparators"),
    ast.Constant: ("", ""),
    ast.Expr: ("value", ""),
    ast.For: ("target iter", "body orelse"),
    ast.FormattedValue: ("value format_spec", ""),
    ast.GeneratorExp: ("elt", "generators"),
    ast.If: ("test", "body orelse"),
    ast.IfExp: ("test body orelse", ""),
    ast.JoinedStr: ("", "values"),
    ast.List: ("", "elts"),
    ast.ListComp: ("elt", "generators"),
    ast.Name: ("", ""),
    ast.Pass: ("", ""),
    ast.Raise: ("exc cause", ""),
    ast.Return: ("value", ""),
    ast.Starred: ("value", ""),
    ast.Subscript: ("value slice", ""),
    ast.Tuple: ("", "elts"),
    ast.UnaryOp: ("operand", ""),
    ast.comprehension: ("target iter", "ifs"),
    ast.keyword: ("value", ""),
    type(None): ("", ""),
}
"""The common kinds; the children of the others are looked for."""


_FIELDS = {kind: (tuple(singles.split()), tuple(lists.split())) for kind, (singles, lists) in FIELDS.items()}
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, type(None)})


def nodes_below(root: ast.AST) -> list[ast.AST]:
    """Give a node and all below it in no particular order; names and constants, most of a tree, are left out."""
    found = [root]
    for node in found:
        fields = _FIELDS.get(node.__class__)
        if fields is None:
            found += [child for child in children_of(node) if child.__class__ not in _LEAVES]
            continue
        for field in fields[0]:
            child = getattr(node, field)
            if child.__class__ not in _LEAVES:
                found.append(child)
        for field in fields[1]:
            found += [child for child in getattr(node, field) if child.__class__ not in _LEAVES]
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """Give the nodes right below a node."""
    found: list[ast.AST] = []
    for value in node.__dict__.values():
        if value.__class__ is list:
            for item in value:
                if isinstance(item, ast.AST):
                    found.append(item)  # noqa: PERF401 - most lists are short: a comprehension costs a call
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


if sys.version_info >= (3, 12):
    from ast import TypeAlias
else:

    class TypeAlias(ast.stmt):
        """`type Orders = list[Order]`, which is a syntax error for Python 3.11: no tree of it has one."""

        name: ast.Name
        type_params: list[ast.AST]
        value: ast.expr


_one_at_a_time = RLock()
_NEWER = (
    (12, re.compile(r"^\s*type\s+\w+\s*[\[=]"), "`type` statements"),
    (12, re.compile(r"^\s*(?:class|(?:async\s+)?def)\s+\w+\s*\["), "type parameters"),
    (12, re.compile(r"f-string:"), "its own quotes and backslashes inside the braces of an f-string"),
    (13, re.compile(r"^\s*(?:class|type|(?:async\s+)?def)\s+\w+\s*\[[^]]*="), "defaults of type parameters"),
)
"""What a line or a message looks like when this Python is too old for it: the minor version that can read it, and its name."""
_HALF_PAIR = re.compile(rb"\\(?:u|U0000)[dD][89a-fA-F]")
T = TypeVar("T", bound=ast.AST)


@contextmanager
def alone() -> Iterator[None]:
    """Keep other threads from parsing, and the compiler from warning, in a `with` block."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(text: str | bytes, path: str = "<unknown>", minor: int | None = None) -> ast.Module:
    """Give the tree of a module; raises what `ast.parse` raises.

    Args:
        minor: The oldest Python 3 that must understand it; None: this one.
    """
    version = None if minor is None else (3, minor)
    with alone():
        return ast.parse(text, path, feature_version=version)


def reason_of(error: SyntaxError | ValueError, minor: int = sys.version_info.minor) -> str:
    """Say what is wrong, and when it is right for a newer Python 3 than this one, for which."""
    message, line = getattr(error, "msg", str(error)), getattr(error, "text", None) or ""
    newer = [
        f"{message}; {what} need Python 3.{since}, and this is 3.{minor}"
        for since, pattern, what in _NEWER
        if since > minor and (pattern.search(line) or pattern.match(message))
    ]
    return newer[-1] if newer else message


def parse_expression(text: str) -> ast.expr:
    """Give the tree of an expression; raises what `ast.parse` raises."""
    with alone():
        tree = ast.parse(text, mode="eval")
    return _with_whole_characters(tree).body if _may_have_half_characters(text.encode()) else tree.body


def type_parameters(node: ast.AST) -> frozenset[str]:
    """Name what `class Box[T]`, `def take[T]` and `type Many[T]` bind for themselves; Python 3.11 knows none."""
    given = getattr(node, "type_params", None)
    return frozenset(parameter.name for parameter in given) if given else frozenset()


def _may_have_half_characters(data: bytes) -> bool:
    """True for source text with an escape for half a surrogate pair, which is no character in UTF-8."""
    return _HALF_PAIR.search(data) is not None


def _with_whole_characters(tree: T) -> T:
    """The same tree; what is read out of its texts can be written down: half a surrogate pair becomes U+FFFD."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tree


BOM = b"\xef\xbb\xbf"
Ignores = tuple[tuple[int, tuple[str, ...]], ...]

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_IGNORE = re.compile(r"#\s*graphbus:\s*ignore(-file)?(?:\[([^\]]*)\])?")


class SourceFile:
    """A file as it was read.

    Attributes:
        path: Relative posix path below the project root.
        module: Dotted name.
        data: The bytes; they are the truth.
    """

    def __init__(self, path: str, module: str, data: bytes) -> None:
        self.path = path
        self.module = module
        self.data = data

    @cached_property
    def sha256(self) -> str:
        """Digest of the bytes."""
        return sha256_hex(self.data)

    @cached_property
    def encoding(self) -> str:
        """The declared encoding, `utf-8` without a declaration."""
        if b"coding" not in self.data:
            return "utf-8"
        head = self.data.removeprefix(BOM).split(b"\n", 2)
        for position, line in enumerate(head[:2]):
            cookie = _COOKIE.match(line)
            if cookie:
                return cookie.group(1).decode("ascii", "replace").lower()
            if position == 0 and not _BLANK.match(line.rstrip(b"\r")):
                break
        return "utf-8"

    @cached_property
    def newline(self) -> str:
        r"""The first line end in the file, `"\n"` if there is none."""
        found = _LINE_END.search(self.data)
        return found.group().decode() if found else "\n"

    @cached_property
    def text(self) -> str:
        """The decoded text without byte order mark, line ends untouched."""
        return self.data.removeprefix(BOM).decode(self.encoding)

    @cached_property
    def utf8(self) -> bytes:
        """The text in UTF-8 without byte order mark: what the columns of spans count in."""
        return self.text.encode() if self.encoding not in ("utf-8", "utf8") else self.data.removeprefix(BOM)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """The offset in `utf8` at which each line begins."""
        return (0, *accumulate(map(len, self.utf8.splitlines(keepends=True))))

    def span_bytes(self, span: SourceSpan) -> bytes:
        """Give the part of `utf8` that a span covers."""
        starts = self.line_starts
        return self.utf8[starts[span.line - 1] + span.column : starts[span.end_line - 1] + span.end_column]

    def parse(self) -> ast.Module:
        """Give the syntax tree.

        Raises:
            BuildError: GBE201 for a syntax error, GBE202 for bytes that are no text, GBE206 for nesting beyond Python's limits.
        """
        try:
            tree = parse(self.data, self.path)
            return _with_whole_characters(tree) if _may_have_half_characters(self.data) else tree
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in some versions of Python
            raise self._null_byte() or self._encoding_error() or self._syntax_error(error) from None
        except (RecursionError, MemoryError):
            raise BuildError("GBE206", where=Place(self.path)) from None

    def _syntax_error(self, error: SyntaxError | ValueError) -> BuildError:
        line, column = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
        return BuildError("GBE201", where=Place(self.path, line, column), reason=reason_of(error))

    def _null_byte(self) -> BuildError | None:
        position = self.data.find(b"\0")
        if position < 0:
            return None
        line = self.data.count(b"\n", 0, position) + 1
        return BuildError("GBE201", where=Place(self.path, line), reason="it contains a null byte")

    def _encoding_error(self) -> BuildError | None:
        try:
            self.data.removeprefix(BOM).decode(self.encoding)
        except LookupError:
            reason = "this encoding is not known"
            return BuildError("GBE202", where=Place(self.path, 1), encoding=self.encoding, reason=reason)
        except UnicodeDecodeError as error:
            line = self.data[: error.start].count(b"\n") + 1
            return BuildError("GBE202", where=Place(self.path, line), encoding=self.encoding, reason=error.reason)
        return None

    def ignores(self) -> Ignores:
        """Give the `# graphbus: ignore[...]` comments: line (0: the whole file) and codes (none: all)."""
        if b"graphbus:" not in self.data:
            return ()
        found: list[tuple[int, tuple[str, ...]]] = []
        for line, comment in self._comments():
            match = _IGNORE.match(comment)
            if match:
                codes = tuple(code.strip() for code in (match.group(2) or "").split(",") if code.strip())
                found.append((0 if match.group(1) else line, codes))
        return tuple(found)

    def _comments(self) -> list[tuple[int, str]]:
        import io
        import tokenize

        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        try:
            return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
        except (tokenize.TokenError, SyntaxError):  # pragma: no cover - only files that parse come here
            return []


def span_of(path: str, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> SourceSpan:
    """Give the span of a node, decorators left out."""
    return SourceSpan(path, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
