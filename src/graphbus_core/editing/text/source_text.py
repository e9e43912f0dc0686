"""A Python file as bytes, text and syntax tree together, with conversion of positions in the tree to positions in the text.

bytes --decode--> text --parse--> tree: line and UTF-8 column --offset--> position in the text
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from graphbus_core.compiler.reading import syntax
from graphbus_core.errors import EditError, Place, did_you_mean

_NEWLINE = re.compile(r"\r\n|\r|\n")
_WHITESPACE = " \t\f"
_AS_UTF_8 = "Save the file as UTF-8 first."


class SourceText:
    """One version of a file. It is immutable; `with_text` returns another version.

    Attributes:
        data: The bytes of the file.
        encoding: The encoding as Python detects it: by byte order mark or coding line, else UTF-8.
        text: The decoded bytes without byte order mark, with the line ends as they are.

    Raises:
        EditError: GBE312, the bytes cannot be decoded, or would change when encoded again.
    """

    def __init__(self, data: bytes, path: str = "") -> None:
        self.path = path
        self.data = data
        self.encoding = ""
        try:
            self.encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            self.text = data.decode(self.encoding)
            is_faithful = self.text.encode(self.encoding) == data
        except (SyntaxError, UnicodeError, LookupError) as reason:  # LookupError: a codec that is not for text
            raise self._unusable_error(
                f"it is not text in {self.encoding or 'any encoding'}, {reason}", _AS_UTF_8
            ) from None
        if not is_faithful:
            raise self._unusable_error(
                f"decoded as {self.encoding} and encoded again, it would be different", _AS_UTF_8
            )

    def _unusable_error(self, reason: str, advice: str, line: int = 0) -> EditError:
        """Return GBE312 for this file; without a line, for the whole file."""
        return EditError("GBE312", where=self.place(line), reason=reason, advice=advice)

    def place(self, line: int = 0) -> Place | None:
        """Return the place of a line, for a message; None if the path is not known."""
        return Place(self.path, line) if self.path else None

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree.

        Raises:
            EditError: GBE312, the file does not parse.
        """
        try:
            return parse(self.text)
        except SyntaxError as reason:
            line = reason.lineno or 0
            raise self._unusable_error(
                f"it has a syntax error, {reason.msg}", "Correct this line first.", line
            ) from None

    @cached_property
    def line_starts(self) -> list[int]:
        """The position of each line in the text; Python ends lines at CR, LF and CRLF, not at form feeds."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @property
    def newline(self) -> str:
        """The first line end of the file; LF if there is none."""
        return self.newline_after(0)

    def newline_after(self, position: int) -> str:
        """Return the first line end after a position, else the first of the file, else LF."""
        match = _NEWLINE.search(self.text, position) or _NEWLINE.search(self.text)
        return match.group() if match else "\n"

    def line(self, number: int) -> str:
        """Return a line without its line end; lines count from 1."""
        return self.text[self.line_start(number) : self.line_end(number)]

    def line_start(self, number: int) -> int:
        """Return the position where a line begins; the end of the text for a line after the last."""
        return self.line_starts[number - 1] if number <= len(self.line_starts) else len(self.text)

    def line_end(self, number: int) -> int:
        """Return the position where a line ends, without its line end."""
        match = _NEWLINE.search(self.text, self.line_start(number))
        return match.start() if match else len(self.text)

    def line_at(self, position: int) -> int:
        """Return the number of the line that contains a position."""
        return bisect_right(self.line_starts, position)

    def _offset(self, line: int, column: int) -> int:
        """Return the position in the text of a place in the tree: its line (from 1) and its column in UTF-8 bytes (from 0)."""
        return self.line_start(line) + len(self.line(line).encode()[:column].decode())

    def start_of(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return the position where a node begins."""
        return self._offset(node.lineno, node.col_offset)

    def end_of(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return the position where a node ends."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def indentation_at(self, position: int) -> str | None:
        """Return the whitespace between the start of the line and a position; None if other characters stand there.

        A form feed and all before it are left out.
        """
        before = self.text[self.line_start(self.line_at(position)) : position]
        return before.rpartition("\f")[2] if not before.strip(_WHITESPACE) else None

    def with_text(self, text: str) -> SourceText:
        """Return the file with another text in the same encoding.

        Raises:
            EditError: GBE311, the encoding cannot express the text, or a coding line in the text names another one.
        """
        try:
            other = SourceText(text.encode(self.encoding), self.path)
        except UnicodeError as error:
            lacking = error.object[error.start : error.start + 1] if isinstance(error, UnicodeEncodeError) else ""
            reason = f"it does not have the character {lacking!r}" if lacking else str(error)
            advice = "Use other characters, or convert the file to UTF-8 first."
            raise EditError(
                "GBE311", where=self.place(), encoding=self.encoding, reason=reason, advice=advice
            ) from None
        if other.encoding != self.encoding:
            reason = f"a coding line in the new code would change the encoding to {other.encoding}"
            advice = "Leave the coding line out of the new code."
            raise EditError("GBE311", where=self.place(), encoding=self.encoding, reason=reason, advice=advice)
        return other


def parse(text: str) -> ast.Module:
    """Parse a text without compiler warnings; any failure, such as nesting that is too deep, is raised as SyntaxError."""
    try:
        return syntax.parse(text)
    except SyntaxError:
        raise
    except (ValueError, RecursionError, MemoryError) as reason:
        raise SyntaxError(str(reason) or "it is nested too deeply") from None


def tokenize_text(text: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a text whose line ends are LF.

    Raises:
        SyntaxError: The text cannot be split into tokens.
    """
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError as reason:
        raise SyntaxError(str(reason)) from None


def lines_inside_strings(text: str) -> set[int]:
    """Return the numbers (from 1) of the lines whose first character belongs to a string that began on an earlier line."""
    found: set[int] = set()
    opened: list[int] = []
    for token in tokenize_text(text):
        name = tokenize.tok_name[token.type]  # STRING, and from Python 3.12 on FSTRING_START ... FSTRING_END
        if name.endswith(("STRING", "STRING_START")):
            opened.append(token.start[0])
        if name.endswith(("STRING", "STRING_END")):
            found.update(range(opened.pop() + 1, token.end[0] + 1))
    return found


def with_lf(text: str) -> str:
    """Return the text with LF for every line end."""
    return _NEWLINE.sub("\n", text)


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_NEW_SCOPES = (
    *(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""Nodes inside which names are bound in a scope of their own."""


class DefinitionSite(NamedTuple):
    """A definition with its qualified name; its node stands at `body[at]`."""

    name: str
    node: Definition
    body: list[ast.stmt]
    at: int


def definitions(tree: ast.Module) -> Iterator[DefinitionSite]:
    """Yield every class, function and method that is not inside a function, in no particular order."""
    waiting: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    while waiting:
        prefix, body = waiting.pop()
        for index, node in enumerate(body):
            if isinstance(node, Definition):
                name = prefix + node.name
                yield DefinitionSite(name, node, body, index)
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{name}.", node.body))
            else:
                waiting.extend((prefix, block) for block in _statement_lists(node))


def _statement_lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the statement lists of a compound statement such as `if`, `try` or `match`; none for a simple statement."""
    for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from (
            block for field in ("body", "orelse", "finalbody") if isinstance(block := getattr(part, field, None), list)
        )


def find_definition(source: SourceText, target: str) -> DefinitionSite:
    """Return the only definition of a qualified name.

    Raises:
        EditError: GBE301, there is none; GBE302, there are several (overloads, property setters, definitions in if and else).
    """
    everything = sorted(definitions(source.tree), key=lambda symbol: symbol.node.lineno)
    found = [symbol for symbol in everything if symbol.name == target]
    if not found:
        names = list(dict.fromkeys(symbol.name for symbol in everything))
        known = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        advice = f"Use one of the names in this file: {known}." if known else "Add it with `add_symbol`."
        suggestion = did_you_mean(target, names)
        raise EditError("GBE301", where=source.place(), target=target, suggestion=suggestion, advice=advice)
    if len(found) > 1:
        lines = [symbol.node.lineno for symbol in found]
        shown = ", ".join(map(str, lines[:-1])) + f" and {lines[-1]}"
        raise EditError("GBE302", where=source.place(lines[0]), target=target, count=len(found), lines=shown)
    return found[0]


def start_of(source: SourceText, node: Definition) -> int:
    """Return the position at which a definition begins: the `@` of its first decorator, else its keyword."""
    if not node.decorator_list:
        return source.start_of(node)
    line = node.decorator_list[0].lineno
    while not source.line(line).lstrip().startswith("@"):  # the expression may stand in brackets below its @
        line -= 1
    return source.line_start(line) + source.line(line).index("@")


def bound_line(body: list[ast.stmt], name: str) -> int:
    """Return a line that binds a name in a scope, or 0 if none does. Statements inside functions and classes do not count.

    A definition, an import, an assignment, a loop, `with`, `except` and a pattern bind names.
    """
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)) and name in imported_names(node):
            return node.lineno
        is_stored = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if is_stored or getattr(node, "name", None) == name:  # of a definition, an except clause or a pattern
            return getattr(node, "lineno", 1)
        if not isinstance(node, _NEW_SCOPES):
            waiting.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.alias))
    return 0


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the names that an import binds: `os` for `import os.path`."""
    is_plain = isinstance(node, ast.Import)
    return [alias.asname or (alias.name.partition(".")[0] if is_plain else alias.name) for alias in node.names]


def first_difference(one: ast.AST, other: ast.AST) -> int | None:
    """Return the line of `other` near the first difference between two trees; None if they are equal but for positions."""
    waiting: list[tuple[object, object, int]] = [(one, other, 1)]
    while waiting:
        left, right, line = waiting.pop()
        if left is right:
            continue
        line = getattr(right, "lineno", line)
        if type(left) is not type(right):
            return line
        if isinstance(left, ast.AST):
            pairs = [(getattr(left, name, None), getattr(right, name, None)) for name in left._fields]
            waiting += [(was, now, line) for was, now in reversed(pairs)]
        elif isinstance(left, list) and isinstance(right, list):
            waiting += [(was, now, line) for was, now in reversed([*zip_longest(left, right)])]
        elif left != right or repr(left) != repr(right):  # 0.0 and -0.0 are equal, but not the same code
            return line
    return None
