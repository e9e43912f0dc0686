"""The edits of one fix: of single tokens, in any number of files; everything between them stays byte for byte.

place --TokenEdits.at--> innermost method or class --replace, insert--> its new text --> CodeChange(replace_symbol)
place at the top level --> its statement ---------------------------------------------> CodeChange(search_replace)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, TypeVar

from graphbus_core.compiler.reading.modules import Bindings, ImportBinding
from graphbus_core.compiler.reading.syntax import ModuleSource, parse, type_parameters
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring
from graphbus_core.model.agent import MethodSpec, SourceSpan
from graphbus_core.model.proposals import CodeChange

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | Function
_Edit = tuple[int, int, bytes]
"""From where to where the bytes of a file are replaced, and by what."""
_Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.ExceptHandler


class Refused(Exception):  # noqa: N818 - not an error: the mender gives up on this place
    """The place cannot be edited with certainty."""


class TokenEdits:
    """The edits of one fix, by the symbol that they are in.

    Attributes:
        project: The project.
        is_narrow: True when as few files as possible shall change, although the same is wrong in others.
    """

    def __init__(self, project: ProjectFacts, *, is_narrow: bool = False) -> None:
        self.project = project
        self.is_narrow = is_narrow
        self._trees: dict[str, ast.Module] = {}
        self._symbols: dict[tuple[str, str, int], EditedSymbol] = {}
        self._imports: dict[CodeChange, None] = {}

    @cached_property
    def wiring(self) -> Wiring:
        """The edges of the project."""
        return self.project.wiring

    def tree(self, path: str) -> ast.Module:
        """Give the syntax tree of a file."""
        if path not in self._trees:
            self._trees[path] = parse(self.project.source(path).text)
        return self._trees[path]

    def at(self, span: SourceSpan) -> EditedSymbol:
        """Give the innermost method or class around a place, at the top level of a file the statement."""
        symbol = EditedSymbol(self.project.source(span.path), self.tree(span.path), span.line, span.column)
        return self._symbols.setdefault((span.path, symbol.target, symbol.node.lineno), symbol)

    def at_node(self, path: str, node: _Node) -> EditedSymbol:
        """Give the innermost method or class around a node of a file, or that it is."""
        return self.at(SourceSpan(path, node.lineno, node.col_offset, node.lineno, node.col_offset))

    def of(self, method: MethodSpec) -> EditedSymbol:
        """Give a method by what is known of it: its start may be that of a decorator, its end is surely in it."""
        span = method.span
        return self.at(SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, 0))

    def add_import(self, symbol: EditedSymbol, module: str, name: str) -> None:
        """Import a name at the head of a file where it is not."""
        bindings = Bindings(symbol.tree.body)
        imported = ImportBinding(module, name) if module else ImportBinding(name, "")
        if bindings.first.get(name) == imported and name not in bindings.rebound:
            return
        if name in bindings.first or name in bindings.rebound or bindings.stars:
            raise Refused(f"{name} means something else here")
        line = f"from {module} import {name}" if module else f"import {name}"
        path = symbol.path
        added = CodeChange(file_path=path, target="", change_type="add", operation="add_import", new_code=line)
        self._imports[added] = None

    @property
    def where(self) -> str:
        """Name the one method or class that is edited, for a title; the number of places where there are more."""
        edited = [symbol for symbol in self._symbols.values() if symbol.has_edits]
        return f" in {edited[0].name}" if len(edited) == 1 else f" in {len(edited)} places"

    def files(self) -> dict[str, bytes]:
        """Give the bytes of each file that is changed."""
        files = {symbol.path: symbol.source for symbol in self._symbols.values()}
        edits = {path: set[_Edit]() for path in files}
        for symbol in self._symbols.values():
            edits[symbol.path].update(symbol.edits)
        for added in self._imports:
            imports = [
                node for node in self.tree(added.file_path).body if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            line = imports[-1].end_lineno or 1
            at = files[added.file_path].line_starts[line]
            edits[added.file_path].add((at, at, f"{added.new_code}\n".encode()))
        return {path: _edited(source.utf8, edits[path]) for path, source in files.items() if edits[path]}

    def changes(self) -> tuple[CodeChange, ...]:
        """Give the edits as changes, one for each symbol; a class that is edited takes the edits in its methods along."""
        edited = [symbol for symbol in self._symbols.values() if symbol.has_edits]
        outermost: list[EditedSymbol] = []
        for symbol in sorted(edited, key=lambda symbol: (symbol.path, symbol.target)):
            around = next((outer for outer in outermost if outer.holds(symbol)), None)
            if around:
                around.take(symbol)
            else:
                outermost.append(symbol)
        paths = {*(symbol.path for symbol in outermost), *(added.file_path for added in self._imports)}
        if not paths or not paths <= self.project.editable.keys():
            raise Refused("nothing changes, or a file that no agent may change")
        return (*(symbol.change() for symbol in outermost), *self._imports)


class EditedSymbol:
    """A method, a class or a statement at the top level, and the edits that were asked for in it.

    Attributes:
        target: Its qualified name, empty for a statement.
        owner: The class or function that it stands in.
    """

    def __init__(self, source: ModuleSource, tree: ast.Module, line: int, column: int) -> None:
        self.source = source
        self.path = source.path
        self.tree = tree
        place = self._offset(line, column)
        found = list(_definitions(self.tree.body))
        around = [path for path in found if self._start(path[-1]) <= place < self._end(path[-1])]
        path = max(around, key=len) if around else ()
        self.target = _qualified(path)
        if path and [_qualified(other) for other in found].count(self.target) > 1:
            raise Refused(f"{self.target} is defined twice")
        self.node = path[-1] if path else self._statement(place)
        self.owner = path[-2] if len(path) > 1 else None
        self.edits: set[tuple[int, int, bytes]] = set()

    def _statement(self, place: int) -> ast.stmt:
        around = [node for node in self.tree.body if self._start(node) <= place < self._end(node)]
        if not around:
            raise Refused("the place is in no statement")
        return around[0]

    @property
    def span(self) -> SourceSpan:
        """Where it stands, its decorators left out."""
        node = self.node
        return SourceSpan(self.path, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)

    @property
    def name(self) -> str:
        """What it is called in a title."""
        return self.target or self.path

    @property
    def has_edits(self) -> bool:
        """True when something was asked for."""
        return bool(self.edits)

    def holds(self, other: EditedSymbol) -> bool:
        """Tell whether another symbol is a member of this one."""
        return self.path == other.path and bool(self.target) and other.target.startswith(f"{self.target}.")

    def take(self, other: EditedSymbol) -> None:
        """Make the edits of a member here."""
        self.edits |= other.edits

    @property
    def function(self) -> Function:
        """The method."""
        if not isinstance(self.node, Function):
            raise Refused("the place is in no method")
        return self.node

    def text_of(self, node: _Node) -> str:
        """Give a node as it is written."""
        return self.source.utf8[self._start(node) : self._end(node)].decode()

    def nodes_at(self, span: SourceSpan) -> Iterator[ast.AST]:
        """Give the nodes that begin where a span does."""
        for node in ast.walk(self.node):
            if (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) == (span.line, span.column):
                yield node

    def expression_at(self, span: SourceSpan) -> ast.expr:
        """Give the expression that a span covers, or that is returned there."""
        for node in self.nodes_at(span):
            if isinstance(node, ast.Return) and node.value:
                return node.value
            if isinstance(node, ast.expr) and (node.end_lineno, node.end_col_offset) == (
                span.end_line,
                span.end_column,
            ):
                return node
        raise Refused("the span is no expression")

    def replace(self, node: _Node, new: str) -> None:
        """Put other text in the place of a node; before Python 3.12 the tree does not tell where one in an f-string is."""
        if isinstance(node, ast.Name) and self.text_of(node) != node.id:
            raise Refused("the place is not known")
        self.edits.add((self._start(node), self._end(node), new.encode()))

    def replace_text(self, node: ast.expr, old: str, new: str) -> None:
        """Change what a string literal says; its quotes and prefix stay."""
        written = self.text_of(node)
        body = written.lstrip("rRuUbB")
        quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
        if body != f"{quote}{old}{quote}" or "\\" in new or quote in new:
            raise Refused("it is no plain literal")
        self.replace(node, written[: len(written) - len(body)] + f"{quote}{new}{quote}")

    def replace_name(self, node: _Node, old: str, new: str) -> None:
        """Put another name at the start of a keyword or parameter."""
        start = self._start(node)
        if self.source.utf8[start : start + len(old.encode())] != old.encode():
            raise Refused("the name is not written there")
        self.edits.add((start, start + len(old.encode()), new.encode()))

    def replace_attribute(self, node: ast.Attribute, new: str) -> None:
        """Put another name behind the last dot."""
        end = self._end(node)
        self.edits.add((end - len(node.attr.encode()), end, new.encode()))

    def insert_line_above(self, line: str) -> None:
        """Put a line above the symbol and its decorators."""
        start = self._start(self.node)
        indentation = self._line(self.node.lineno)[: self.node.col_offset]
        code = line + self.source.newline + indentation
        self.edits.add((start, start, code.encode()))

    def insert_behind(self, node: _Node, new: str, length: int | None = None) -> None:
        """Put text behind a node, or behind its first `length` bytes."""
        position = self._end(node) if length is None else self._start(node) + length
        self.edits.add((position, position, new.encode()))

    def remove(self, node: _Node, behind: _Node) -> None:
        """Take a node away, with all that stands between it and the node before it."""
        self.edits.add((self._end(behind), self._end(node), b""))

    def insert_before_end(self, node: _Node, new: str) -> None:
        """Put text before the bracket that a node ends with."""
        position = self._end(node) - 1
        self.edits.add((position, position, new.encode()))

    def annotate(self, parameter: ast.arg, kind: str, default: ast.expr | None) -> None:
        """Put a type behind a parameter, with blanks around the `=` of its default."""
        end = self._end(parameter)
        behind = self._start(default) if default else end
        is_plain = self.source.utf8[end:behind].strip() == b"="
        self.edits.add((end, behind, f": {kind} = ".encode()) if is_plain else (end, end, f": {kind}".encode()))

    def insert_result(self, annotation: str) -> None:
        """Put an annotation behind the bracket that closes the parameters."""
        function = self.function
        parts = [node for node in ast.walk(function.args) if isinstance(node, ast.expr | ast.arg)]
        last = max(map(self._end, parts), default=self._offset(function.lineno, function.col_offset))
        end = self.source.utf8.find(b")", last) + 1
        if type_parameters(function) or b"#" in self.source.utf8[last:end]:
            raise Refused("the bracket is not surely found")
        self.edits.add((end, end, annotation.encode()))

    def insert_first(self, lines: list[str]) -> None:
        r"""Put lines before the first statement and the comments right above it; `\t` stands for one step of indentation."""
        function = self.function
        body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
        if not body or getattr(body[0], "decorator_list", None):
            raise Refused("the body does not begin with a plain statement")
        line, width = body[0].lineno, body[0].col_offset
        indentation = self._line(line)[:width]
        if indentation.strip() or line == function.lineno:
            raise Refused("the body stands on the line of the def")
        while self._line(line - 1).lstrip().startswith("#"):
            line -= 1
        step = indentation.removeprefix(self._line(function.lineno)[: function.col_offset])
        code = "".join(indentation + each.replace("\t", step) + self.source.newline for each in lines)
        self.edits.add((self._offset(line, 0),) * 2 + (code.encode(),))

    def insert_last(self, line: str) -> None:
        """Put a line behind the last statement of the body."""
        last = self.function.body[-1]
        indentation = self._line(last.lineno)[: last.col_offset]
        self.insert_behind(last, self.source.newline + indentation + line)

    def change(self) -> CodeChange:
        """Give the edits as one change that can be parsed."""
        utf8, start, end = self.source.utf8, self._start(self.node), self._end(self.node)
        if any(first < start or last > end for first, last, _ in self.edits):
            raise Refused("an edit leaves the symbol")
        whole = _edited(utf8, self.edits)
        old, new = utf8[start:end], whole[start : len(whole) - len(utf8) + end]
        try:
            parse(whole.decode())
        except SyntaxError:
            raise Refused("the result does not parse") from None
        if new == old:
            raise Refused("nothing changes")
        if not self.target:
            return self._statement_change(old.decode(), new.decode())
        return CodeChange(
            file_path=self.path,
            target=self.target,
            change_type="modify",
            old_code=old.decode(),
            new_code=new.decode(),
            base_sha256=sha256(old).hexdigest(),
        )

    def _statement_change(self, old: str, new: str) -> CodeChange:
        if self.source.text.count(old) > 1:
            raise Refused("the statement is written twice")
        return CodeChange(
            file_path=self.path,
            target="",
            change_type="modify",
            operation="search_replace",
            old_code=old,
            new_code=new,
        )

    def _offset(self, line: int, column: int) -> int:
        return self.source.line_starts[line - 1] + column

    def _start(self, node: _Node) -> int:
        """Where a node begins; a definition with decorators at the `@` of the first one."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            return self.source.utf8.rindex(b"@", 0, self._start(decorators[0]) + 1)
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: _Node) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _line(self, number: int) -> str:
        start, end = self.source.line_starts[number - 1], self.source.line_starts[number]
        return self.source.utf8[start:end].decode()


def _edited(utf8: bytes, edits: Iterable[_Edit]) -> bytes:
    parts, position = list[bytes](), 0
    for first, last, new in sorted(edits):
        if first < position:
            raise Refused("two edits overlap")
        parts += [utf8[position:first], new]
        position = last
    return b"".join([*parts, utf8[position:]])


def _definitions(body: Iterable[ast.AST], owners: tuple[_Definition, ...] = ()) -> Iterator[tuple[_Definition, ...]]:
    """Give every class and method outside of functions, behind the classes that it stands in."""
    for node in body:
        if isinstance(node, _Definition):
            yield (*owners, node)
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, (*owners, node))
        else:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _definitions(getattr(node, field, ()), owners)


def _qualified(path: Iterable[_Definition]) -> str:
    return ".".join(node.name for node in path)


_Found = TypeVar("_Found")


def take_single(found: list[_Found]) -> _Found:
    """Give the one thing that was looked for.

    Raises:
        Refused: There is none, or more than one.
    """
    if len(found) != 1:
        raise Refused("it is not written once")
    return found[0]


class Remedy(NamedTuple):
    """What the edits for a finding come to, in the terms of a `Fix`; `affected` adds to the ends of the finding."""

    title: str
    intent: str
    affected: Iterable[str] = ()
    is_safe: bool = False
