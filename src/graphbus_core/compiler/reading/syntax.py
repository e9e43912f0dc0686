"""A source file, its syntax tree or the reason why it cannot be parsed, and fast walks over a tree.

One thread parses at a time, and without the warnings of the compiler: Python 3.11 counts the depth of all trees under
construction together, so that two threads that parse at once can cause a SystemError (cpython issue 106905), and the filters of
`warnings` are settings of the whole process.
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

_Fields = tuple[tuple[str, ...], tuple[str, ...]]
_fields: dict[type, _Fields] = {}
_FIELD = re.compile(r"(\w+)([*?]?) (\w+)")
_PLAIN_FIELD_TYPES = frozenset(
    {"identifier", "int", "string", "constant", "expr_context", "boolop", "operator", "unaryop", "cmpop"}
)
"""Types of fields, in the grammar of `ast`, that hold no nodes to visit."""
LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, type(None)})


def fields_of(kind: type) -> _Fields:
    """Return the fields of a class of nodes, by name: those that hold one node, and those that hold a list of nodes.

    They are read from the grammar in the docstring of the class, once for each class, which halves the time of a walk.
    """
    known = _fields.get(kind)
    if known is None:
        text = (kind.__doc__ or "").partition("(")[2]
        found = [(mark == "*", name) for what, mark, name in _FIELD.findall(text) if what not in _PLAIN_FIELD_TYPES]
        known = tuple(name for many, name in found if not many), tuple(name for many, name in found if many)
        _fields[kind] = known
    return known


def nodes_below(root: ast.AST) -> list[ast.AST]:
    """Return a node and all below it in no particular order; names and constants, most of a tree, are left out."""
    found = [root]
    for node in found:
        singles, lists = _fields.get(node.__class__) or fields_of(node.__class__)
        for field in singles:
            child = getattr(node, field)
            if child.__class__ not in LEAVES:
                found.append(child)
        for field in lists:
            for child in getattr(node, field):
                if child.__class__ not in LEAVES:
                    found.append(child)  # noqa: PERF401 - most lists are short: a comprehension costs a call
    return found


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below a node; operators and contexts (`ast.Load`) are left out."""
    singles, lists = _fields.get(node.__class__) or fields_of(node.__class__)
    found = [child for field in singles if (child := getattr(node, field)) is not None]
    for field in lists:
        found += getattr(node, field)
    return [child for child in found if child is not None] if None in found else found


def own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function body, except those inside of nested functions, lambdas and classes."""
    waiting: list[ast.AST] = list(function.body)
    for node in waiting:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += children_of(node)


if sys.version_info >= (3, 12):
    from ast import TypeAlias
else:

    class TypeAlias(ast.stmt):
        """`type Orders = list[Order]`, which is a syntax error for Python 3.11: no tree of it has one."""

        name: ast.Name
        type_params: list[ast.AST]
        value: ast.expr


_parse_lock = RLock()
_HALF_PAIR = re.compile(rb"\\(?:u|U0000)[dD][89a-fA-F]")
_Tree = TypeVar("_Tree", bound=ast.AST)


@contextmanager
def alone() -> Iterator[None]:
    """In a `with` block, let no other thread parse, and ignore all warnings."""
    with _parse_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parse(text: str | bytes, path: str = "<unknown>", minor: int | None = None) -> ast.Module:
    """Return the tree of a module; raises what `ast.parse` raises.

    Args:
        minor: The minor version of Python 3 whose syntax is allowed; None: that of the running Python.
    """
    version = None if minor is None else (3, minor)
    with alone():
        return ast.parse(text, path, feature_version=version)


def parse_expression(text: str) -> ast.expr:
    """Return the tree of an expression; raises what `ast.parse` raises."""
    with alone():
        return _replace_half_pairs(ast.parse(text, mode="eval"), text.encode()).body


def type_parameters(node: ast.AST) -> frozenset[str]:
    """Return the names of the type parameters of `class Box[T]`, `def take[T]` or `type Many[T]`; Python 3.11 has none."""
    parameters = getattr(node, "type_params", None)
    return frozenset(parameter.name for parameter in parameters) if parameters else frozenset()


def _replace_half_pairs(tree: _Tree, source: bytes) -> _Tree:
    """Replace each lone half of a surrogate pair in the texts of a tree by U+FFFD, as it cannot be encoded; return the tree."""
    for node in ast.walk(tree) if _HALF_PAIR.search(source) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return tree


BOM = b"\xef\xbb\xbf"
Ignores = tuple[tuple[int, tuple[str, ...]], ...]

_COOKIE = re.compile(rb"(?:[ \t\f]*(?:#.*)?\n)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""In the first line, or in the second one if the first is blank or a comment (PEP 263)."""
_LINE_END = re.compile(rb"\r\n|\r|\n")
_IGNORE = re.compile(r"#\s*graphbus:\s*ignore(-file)?(?:\[([^\]]*)\])?")


class ModuleSource:
    """A source file and its content.

    Attributes:
        path: Relative posix path below the project root.
        module: Dotted name.
        data: The bytes of the file.
    """

    def __init__(self, path: str, module: str, data: bytes) -> None:
        self.path = path
        self.module = module
        self.data = data

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 digest of the bytes."""
        return sha256_hex(self.data)

    @cached_property
    def encoding(self) -> str:
        """The declared encoding in lower case, even if Python does not know it; `utf-8` without a declaration."""
        head = b"\n".join(self.data.removeprefix(BOM).splitlines()[:2]) if b"coding" in self.data else b""
        cookie = _COOKIE.match(head)
        return cookie.group(1).decode("ascii", "replace").lower() if cookie else "utf-8"

    @cached_property
    def newline(self) -> str:
        r"""The first line end in the file, `"\n"` if there is none."""
        found = _LINE_END.search(self.data)
        return found.group().decode() if found else "\n"

    @cached_property
    def text(self) -> str:
        """The decoded text without byte order mark, with its original line ends."""
        return self.data.removeprefix(BOM).decode(self.encoding)

    @cached_property
    def utf8(self) -> bytes:
        """The text in UTF-8 without byte order mark; the columns of spans are offsets in its lines."""
        return self.text.encode() if self.encoding not in ("utf-8", "utf8") else self.data.removeprefix(BOM)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """The offset in `utf8` at which each line begins."""
        return (0, *accumulate(map(len, self.utf8.splitlines(keepends=True))))

    def span_bytes(self, span: SourceSpan) -> bytes:
        """Return the part of `utf8` that a span covers."""
        starts = self.line_starts
        return self.utf8[starts[span.line - 1] + span.column : starts[span.end_line - 1] + span.end_column]

    def parse(self) -> ast.Module:
        """Return the syntax tree.

        Raises:
            BuildError: GBE201 for a syntax error, GBE202 for undecodable bytes, GBE206 for nesting beyond Python's limits.
        """
        try:
            return _replace_half_pairs(parse(self.data, self.path), self.data)
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in some versions of Python
            raise self._describe_error(error) from None
        except (RecursionError, MemoryError):
            raise BuildError("GBE206", where=Place(self.path)) from None

    def _describe_error(self, error: SyntaxError | ValueError) -> BuildError:
        """Return the error for a file that cannot be parsed: a null byte, its encoding, or else the message of the compiler."""
        code, reason, data = "GBE202", "this encoding is not known", {"encoding": self.encoding}
        line, column = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
        try:
            self.data.removeprefix(BOM).decode(self.encoding)
        except LookupError:
            line, column = 1, 0
        except UnicodeDecodeError as wrong:
            line, column, reason = self.data[: wrong.start].count(b"\n") + 1, 0, wrong.reason
        else:  # the text can be decoded, so that its syntax is wrong
            code, reason, data = "GBE201", getattr(error, "msg", str(error)), {}
        if b"\0" in self.data:
            code, reason, data = "GBE201", "it contains a null byte", {}
            line, column = self.data.partition(b"\0")[0].count(b"\n") + 1, 0
        return BuildError(code, where=Place(self.path, line, column), reason=reason, **data)

    def ignores(self) -> Ignores:
        """Return `(line, codes)` for each comment `# graphbus: ignore[...]`; line 0 is the whole file, no codes are all codes."""
        if b"graphbus:" not in self.data:
            return ()
        import io
        import tokenize

        found: list[tuple[int, tuple[str, ...]]] = []
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            match = _IGNORE.match(token.string) if token.type == tokenize.COMMENT else None
            if match:
                codes = tuple(code.strip() for code in (match.group(2) or "").split(",") if code.strip())
                found.append((0 if match.group(1) else token.start[0], codes))
        return tuple(found)


def span_of(path: str, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> SourceSpan:
    """Return the span of a node in the file at `path`; decorators are not part of it."""
    return SourceSpan(path, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)


def call_argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return the argument of a call with this position or name; None if it is missing, or may be inside of `*arguments`."""
    given = call.args[: position + 1]
    if len(given) > position and ast.Starred not in [argument.__class__ for argument in given]:
        return given[position]
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None
