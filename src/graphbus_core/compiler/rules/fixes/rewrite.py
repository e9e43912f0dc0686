"""Edits of single tokens within a symbol: everything between them stays byte for byte.

source --place--> innermost method or class --replace, insert--> its new text --> CodeChange(replace_symbol)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from graphbus_core.compiler.reading.syntax import SourceFile, parse, type_parameters
from graphbus_core.compiler.rules.wiring import Evidence
from graphbus_core.model.agent import MethodSpec, SourceSpan
from graphbus_core.model.proposals import CodeChange

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = ast.expr | ast.stmt | ast.arg | ast.keyword


class Refused(Exception):  # noqa: N818 - not an error: the mender gives up on this place
    """The place cannot be edited with certainty."""


class _Found(NamedTuple):
    target: str
    node: Function | ast.ClassDef
    owners: tuple[ast.ClassDef, ...]


class Text:
    """A file under the hands of a mender."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.tree = parse(source.text)
        self.utf8 = source.utf8
        self._starts = source.line_starts

    def offset(self, line: int, column: int) -> int:
        """Turn a position of the tree into one in the bytes."""
        return self._starts[line - 1] + column

    def start(self, node: Node) -> int:
        """Where a node begins."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        """Where a node ends."""
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def of(self, node: Node) -> str:
        """Give the text of a node."""
        return self.utf8[self.start(node) : self.end(node)].decode()

    def symbols(self) -> Iterator[_Found]:
        """Give every class and method outside of functions."""
        waiting: list[tuple[tuple[ast.ClassDef, ...], ast.stmt]] = [((), node) for node in self.tree.body]
        while waiting:
            owners, node = waiting.pop()
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield _Found(".".join([*(owner.name for owner in owners), node.name]), node, owners)
            if isinstance(node, ast.ClassDef):
                waiting.extend(((*owners, node), child) for child in node.body)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting.extend((owners, child) for child in _statements(node))


class Symbol:
    """One method or class and the edits that were asked for in it.

    Attributes:
        target: Its qualified name.
        node: Its node in `text.tree`.
        owner: The class that a method stands in.
    """

    def __init__(self, text: Text, found: _Found) -> None:
        if sum(symbol.target == found.target for symbol in text.symbols()) > 1:
            raise Refused(f"{found.target} is defined twice")
        self.text = text
        self.target = found.target
        self.node = found.node
        self.owner = found.owners[-1] if found.owners else None
        self.start = _start(text, found.node)
        self.end = text.end(found.node)
        self._edits: list[tuple[int, int, bytes]] = []

    @classmethod
    def at(cls, evidence: Evidence, span: SourceSpan, *, of_class: bool = False) -> Symbol:
        """Give the innermost method around a place, or the innermost class.

        Raises:
            Refused: There is none, or its name is not unique in the file.
        """
        text = Text(evidence.source(span.path))
        place = text.offset(span.line, span.column)
        around = [
            found
            for found in text.symbols()
            if _start(text, found.node) <= place < text.end(found.node)
            and isinstance(
                found.node, ast.ClassDef if of_class else (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            )
        ]
        if not around:
            raise Refused("the place is in no class")
        return cls(text, min(around, key=lambda found: text.end(found.node) - _start(text, found.node)))

    @classmethod
    def of_method(cls, evidence: Evidence, method: MethodSpec) -> Symbol:
        """Give a method by what is known of it.

        Raises:
            Refused: Its name is not unique in the file.
        """
        span = method.span  # its start may be that of a decorator: its end is surely in it
        inside = SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, span.end_column)
        return cls.at(evidence, inside)

    @property
    def function(self) -> Function:
        """The method's node.

        Raises:
            Refused: It is a class.
        """
        if isinstance(self.node, ast.ClassDef):
            raise Refused("the place is in no method")
        return self.node

    @property
    def type_parameters(self) -> frozenset[str]:
        """The names that the signature has for types of its own: those of the method and of its class."""
        return type_parameters(self.node) | (type_parameters(self.owner) if self.owner else frozenset())

    def replace(self, start: int, end: int, new: str) -> None:
        """Put other text in the place of `utf8[start:end]`."""
        if not self.start <= start <= end <= self.end:
            raise Refused("the edit leaves the symbol")
        self._edits.append((start, end, new.encode()))

    def replace_node(self, node: Node, new: str) -> None:
        """Put other text in the place of a node."""
        self.replace(self.text.start(node), self.text.end(node), new)

    def replace_text(self, node: ast.expr, old: str, new: str) -> None:
        """Change what a string literal says; its quotes and prefix stay.

        Raises:
            Refused: It is not one plain literal of `old`.
        """
        written = self.text.of(node)
        body = written.lstrip("rRuUbB")
        quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
        if body != f"{quote}{old}{quote}" or "\\" in new or quote in new:
            raise Refused("it is no plain literal")
        self.replace_node(node, written[: len(written) - len(body)] + f"{quote}{new}{quote}")

    def insert(self, position: int, new: str) -> None:
        """Put text before a position."""
        self.replace(position, position, new)

    def insert_first(self, lines: list[str]) -> None:
        """Put lines, indented like the body, before its first statement and the comments right above that.

        Raises:
            Refused: The body stands on the line of the `def`, or is a docstring only.
        """
        body = self.function.body
        rest = body[1:] if ast.get_docstring(self.function, clean=False) is not None else body
        if not rest:
            raise Refused("the body is empty")
        line = min([rest[0].lineno, *(item.lineno for item in getattr(rest[0], "decorator_list", ()))])
        written = self._line(line)
        indentation = written[: len(written) - len(written.lstrip(" \t"))]
        if line == rest[0].lineno and self.text.start(rest[0]) != self.text.offset(line, len(indentation)):
            raise Refused("the body stands on the line of the def")
        while self._line(line - 1).lstrip().startswith("#"):
            line -= 1
        margin = self._line(self.function.lineno)
        margin = margin[: len(margin) - len(margin.lstrip(" \t"))]
        step = indentation.removeprefix(margin) or "    "
        code = "".join(indentation + item.replace("\t", step) + self.newline for item in lines)
        self.insert(self.text.offset(line, 0), code)

    def _line(self, number: int) -> str:
        start = self.text.offset(number, 0)
        end = self.text.offset(number + 1, 0) if number < len(self.text.source.line_starts) else len(self.text.utf8)
        return self.text.utf8[start:end].decode()

    @property
    def newline(self) -> str:
        """The line end of the file."""
        return self.text.source.newline

    def change(self) -> CodeChange:
        """Give the edits as one change.

        Raises:
            Refused: They change nothing or overlap, or the result does not parse.
        """
        old = self.text.utf8[self.start : self.end]
        new = _edited(self.text.utf8, self.start, self.end, self._edits)
        if new == old:
            raise Refused("nothing changes")
        whole = self.text.utf8[: self.start] + new + self.text.utf8[self.end :]
        try:
            parse(whole.decode())
        except SyntaxError:
            raise Refused("the result does not parse") from None
        return CodeChange(
            file_path=self.text.source.path,
            target=self.target,
            change_type="modify",
            old_code=old.decode(),
            new_code=new.decode(),
            base_sha256=sha256(old).hexdigest(),
        )


def entries(display: ast.Dict) -> dict[str, tuple[ast.expr, ast.expr]]:
    """Give the entries of a dict display whose key is written as a text: key -> the nodes of key and value."""
    pairs = zip(display.keys, display.values, strict=True)
    return {
        key.value: (key, value) for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def stored_names(*nodes: ast.AST) -> set[str]:
    """Give the names that are assigned or deleted in these nodes and below."""
    below = (each for node in nodes for each in ast.walk(node))
    return {each.id for each in below if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}


def _edited(utf8: bytes, start: int, end: int, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[bytes] = []
    position = start
    for first, last, new in sorted(set(edits), key=lambda edit: edit[:2]):
        if first < position:
            raise Refused("two edits overlap")
        parts += [utf8[position:first], new]
        position = last
    return b"".join([*parts, utf8[position:end]])


def _start(text: Text, node: Function | ast.ClassDef) -> int:
    """At the `@` of the first decorator, else at the keyword."""
    if node.decorator_list:
        return text.utf8.rindex(b"@", 0, text.start(node.decorator_list[0]) + 1)
    return text.start(node)


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body
