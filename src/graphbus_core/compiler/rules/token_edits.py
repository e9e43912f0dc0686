"""The edits of one fix, in any number of files. They change single tokens; everything between them stays byte for byte.

place --TokenEdits.at--> innermost method or class --replace, insert--> its new text --> CodeChange(replace_symbol)
place at the top level --> its statement ---------------------------------------------> CodeChange(search_replace)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from graphbus_core.compiler.reading.modules import Bindings, ImportBinding
from graphbus_core.compiler.reading.syntax import ModuleSource, parse, type_parameters
from graphbus_core.compiler.rules.wiring import ProjectFacts, Wiring
from graphbus_core.model.agent import MethodSpec, SourceSpan
from graphbus_core.model.proposals import CodeChange

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | Function
_Edit = tuple[int, int, bytes]
"""Start and end, in bytes, of the text to replace in a file, and the new text."""
_Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias | ast.ExceptHandler


class Refused(Exception):  # noqa: N818 - not an error: the fixer gives up on this place
    """It is not certain that an edit would be right, so there is no fix. Every method here that edits may raise this."""


class TokenEdits:
    """The edits of one fix, grouped by the symbol (method, class or top-level statement) that contains them.

    Attributes:
        project: The project.
        is_narrow: True to change as few files as possible, even if other files have the same error.
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
        """Return the syntax tree of a file; for one path always the same object."""
        if path not in self._trees:
            self._trees[path] = parse(self.project.source(path).text)
        return self._trees[path]

    def at(self, span: SourceSpan) -> EditedSymbol:
        """Return the innermost method or class around a place, or at the top level the statement; the same object each time."""
        symbol = EditedSymbol(self.project.source(span.path), self.tree(span.path), span.line, span.column)
        return self._symbols.setdefault((span.path, symbol.target, symbol.node.lineno), symbol)

    def at_node(self, path: str, node: _Node) -> EditedSymbol:
        """Return the innermost method or class that contains a node of a file or is that node; at the top level the statement."""
        return self.at(SourceSpan(path, node.lineno, node.col_offset, node.lineno, node.col_offset))

    def of(self, method: MethodSpec) -> EditedSymbol:
        """Return the symbol of the method that a spec describes."""
        span = method.span  # its start may be that of a decorator, but its end is certainly inside the method
        return self.at(SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, 0))

    def add_import(self, symbol: EditedSymbol, module: str, name: str) -> None:
        """Import a name in the file of a symbol, unless it is imported; Refused if the name has another meaning there.

        An empty `module` means that `name` is a module itself.
        """
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
        """The end of a title, such as ` in Orders.place`; for several edited symbols, such as ` in 3 places`."""
        edited = [symbol for symbol in self._symbols.values() if symbol.has_edits]
        return f" in {edited[0].name}" if len(edited) == 1 else f" in {len(edited)} places"

    def files(self) -> dict[str, bytes]:
        """Return path -> the new bytes of each changed file; Refused if two edits overlap."""
        files = {symbol.path: symbol.source for symbol in self._symbols.values()}
        edits = {path: set[_Edit]() for path in files}
        for symbol in self._symbols.values():
            edits[symbol.path].update(symbol.edits)
        for added in self._imports:
            imports = [
                node for node in self.tree(added.file_path).body if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            line = imports[-1].end_lineno or 1  # new imports follow the last one
            offset = files[added.file_path].line_starts[line]
            edits[added.file_path].add((offset, offset, f"{added.new_code}\n".encode()))
        return {path: _apply_edits(source.utf8, edits[path]) for path, source in files.items() if edits[path]}

    def changes(self, *, in_any_file: bool = False) -> tuple[CodeChange, ...]:
        """Return one change for each edited symbol and added import; edits in methods of an edited class are part of its change.

        Args:
            in_any_file: Also allow changes of files that agents may not change.

        Raises:
            Refused: Nothing changes, or a file changes that may not.
        """
        edited = [symbol for symbol in self._symbols.values() if symbol.has_edits]
        outermost: list[EditedSymbol] = []
        for symbol in sorted(edited, key=lambda symbol: (symbol.path, symbol.target)):
            enclosing = next((outer for outer in outermost if outer.holds(symbol)), None)
            if enclosing:
                enclosing.add_edits_of(symbol)
            else:
                outermost.append(symbol)
        paths = {*(symbol.path for symbol in outermost), *(added.file_path for added in self._imports)}
        if not paths or not (in_any_file or paths <= self.project.editable.keys()):
            raise Refused("nothing changes, or a file that no agent may change")
        return (*(symbol.change() for symbol in outermost), *self._imports)


class EditedSymbol:
    """A method, a class or a statement at the top level, with the edits that were made to it so far.

    Each `replace_...`, `insert_...` and `remove` adds an edit; the source text changes only in `change`.

    Attributes:
        target: The qualified name of the symbol; empty for a statement.
        node: The definition or statement.
        owner: The class that contains the symbol, or None.
        edits: Start and end, in bytes, of each text of the file to replace, and the new text.
    """

    def __init__(self, source: ModuleSource, tree: ast.Module, line: int, column: int) -> None:
        self.source = source
        self.path = source.path
        self.tree = tree
        place = self._offset(line, column)
        found = list(_definitions(self.tree.body))
        enclosing = [path for path in found if self._start(path[-1]) <= place < self._end(path[-1])]
        path = max(enclosing, key=len) if enclosing else ()
        self.target = _qualified_name(path)
        if path and [_qualified_name(other) for other in found].count(self.target) > 1:
            raise Refused(f"{self.target} is defined twice")
        self.node = path[-1] if path else self._find_statement(place)
        self.owner = path[-2] if len(path) > 1 else None
        self.edits: set[tuple[int, int, bytes]] = set()

    def _find_statement(self, place: int) -> ast.stmt:
        """Return the statement at the top level that contains a byte offset; Refused if there is none."""
        enclosing = [node for node in self.tree.body if self._start(node) <= place < self._end(node)]
        if not enclosing:
            raise Refused("the place is in no statement")
        return enclosing[0]

    @property
    def span(self) -> SourceSpan:
        """The place of the symbol, without its decorators."""
        node = self.node
        return SourceSpan(self.path, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)

    @property
    def name(self) -> str:
        """The name of the symbol for a title: its qualified name, or for a statement the path of the file."""
        return self.target or self.path

    @property
    def has_edits(self) -> bool:
        """True if at least one edit was made."""
        return bool(self.edits)

    def holds(self, other: EditedSymbol) -> bool:
        """Return whether this symbol is a class that contains the other symbol."""
        return self.path == other.path and bool(self.target) and other.target.startswith(f"{self.target}.")

    def add_edits_of(self, other: EditedSymbol) -> None:
        """Add the edits of another symbol, which this one contains, to those of this one."""
        self.edits |= other.edits

    @property
    def function(self) -> Function:
        """The node, if it is a method; Refused otherwise."""
        if not isinstance(self.node, Function):
            raise Refused("the place is in no method")
        return self.node

    def text_of(self, node: _Node) -> str:
        """Return the source text of a node."""
        return self.source.utf8[self._start(node) : self._end(node)].decode()

    def nodes_at(self, span: SourceSpan) -> Iterator[ast.AST]:
        """Yield the nodes of the symbol that begin where a span begins, outer nodes before the ones within them."""
        for node in ast.walk(self.node):
            if (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)) == (span.line, span.column):
                yield node

    def expression_at(self, span: SourceSpan) -> ast.expr:
        """Return the expression that a span covers exactly; if a `return` begins there, the expression that it returns."""
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
        """Replace the text of a node; Refused if the place of a name is not certain."""
        # before Python 3.12, the positions of nodes in f-strings are wrong
        if isinstance(node, ast.Name) and self.text_of(node) != node.id:
            raise Refused("the place is not known")
        self.edits.add((self._start(node), self._end(node), new.encode()))

    def replace_text(self, node: ast.expr, old: str, new: str) -> None:
        """Replace the content `old` of a string literal; its quotes and prefix stay. Refused if either needs an escape."""
        written = self.text_of(node)
        body = written.lstrip("rRuUbB")
        quote = body[:3] if body[:3] in ('"""', "'''") else body[:1]
        if body != f"{quote}{old}{quote}" or "\\" in new or quote in new:
            raise Refused("it is no plain literal")
        self.replace(node, written[: len(written) - len(body)] + f"{quote}{new}{quote}")

    def replace_name(self, node: _Node, old: str, new: str) -> None:
        """Replace the name `old` with which a keyword argument, a parameter or an imported name begins."""
        start = self._start(node)
        if self.source.utf8[start : start + len(old.encode())] != old.encode():
            raise Refused("the name is not written there")
        self.edits.add((start, start + len(old.encode()), new.encode()))

    def replace_attribute(self, node: ast.Attribute, new: str) -> None:
        """Replace the name after the last dot of an attribute."""
        end = self._end(node)
        self.edits.add((end - len(node.attr.encode()), end, new.encode()))

    def insert_line_above(self, line: str) -> None:
        """Insert a line above the symbol and its decorators, indented like the symbol."""
        start = self._start(self.node)
        indentation = self._line(self.node.lineno)[: self.node.col_offset]
        code = line + self.source.newline + indentation
        self.edits.add((start, start, code.encode()))

    def insert_after(self, node: _Node, new: str, length: int | None = None) -> None:
        """Insert text after a node, or after its first `length` bytes."""
        position = self._end(node) if length is None else self._start(node) + length
        self.edits.add((position, position, new.encode()))

    def remove(self, node: _Node, previous: _Node) -> None:
        """Remove a node, and the text between it and the node `previous` before it, such as a comma."""
        self.edits.add((self._end(previous), self._end(node), b""))

    def insert_before_end(self, node: _Node, new: str) -> None:
        """Insert text before the last byte of a node, which is its closing bracket."""
        position = self._end(node) - 1
        self.edits.add((position, position, new.encode()))

    def annotate(self, parameter: ast.arg, kind: str, default: ast.expr | None) -> None:
        """Insert `: kind` after a parameter, with spaces around the `=` of its default if nothing else is between them."""
        end = self._end(parameter)
        behind = self._start(default) if default else end
        is_plain = self.source.utf8[end:behind].strip() == b"="
        self.edits.add((end, behind, f": {kind} = ".encode()) if is_plain else (end, end, f": {kind}".encode()))

    def insert_return_annotation(self, annotation: str) -> None:
        """Insert text such as ` -> int` after the bracket that closes the parameters; Refused if its place is not certain."""
        function = self.function
        parts = [node for node in ast.walk(function.args) if isinstance(node, ast.expr | ast.arg)]
        last = max(map(self._end, parts), default=self._offset(function.lineno, function.col_offset))
        end = self.source.utf8.find(b")", last) + 1
        if type_parameters(function) or b"#" in self.source.utf8[last:end]:
            raise Refused("the closing bracket cannot be found with certainty")
        self.edits.add((end, end, annotation.encode()))

    def insert_first(self, lines: list[str]) -> None:
        r"""Insert lines before the first statement of the body and the comments above it; `\t` is one step of indentation."""
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
        """Insert a line after the last statement of the body, indented like that one."""
        last = self.function.body[-1]
        indentation = self._line(last.lineno)[: last.col_offset]
        self.insert_after(last, self.source.newline + indentation + line)

    def change(self) -> CodeChange:
        """Return the edits as one change: of a method or class by its name, of a statement by its text."""
        utf8, start, end = self.source.utf8, self._start(self.node), self._end(self.node)
        if any(first < start or last > end for first, last, _ in self.edits):
            raise Refused("an edit leaves the symbol")
        whole = _apply_edits(utf8, self.edits)
        old, new = utf8[start:end], whole[start : len(whole) - len(utf8) + end]
        try:
            parse(whole.decode())
        except SyntaxError:
            raise Refused("the result does not parse") from None
        if new == old:
            raise Refused("nothing changes")
        change = CodeChange(
            file_path=self.path,
            target=self.target,
            change_type="modify",
            old_code=old.decode(),
            new_code=new.decode(),
            base_sha256=sha256(old).hexdigest(),
        )
        if self.target:
            return change
        if utf8.count(old) > 1:
            raise Refused("the statement is written twice")
        return replace(change, operation="search_replace", base_sha256="")

    def _offset(self, line: int, column: int) -> int:
        """Return the byte offset of a place; lines count from 1, and columns, in bytes, from 0."""
        return self.source.line_starts[line - 1] + column

    def _start(self, node: _Node) -> int:
        """Return the byte offset at which a node begins; for a decorated definition that of its first `@`."""
        decorators = getattr(node, "decorator_list", None)
        if decorators:  # a decorator node begins after its `@`
            return self.source.utf8.rindex(b"@", 0, self._start(decorators[0]) + 1)
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: _Node) -> int:
        """Return the byte offset after the end of a node."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _line(self, number: int) -> str:
        """Return the text of a line with its line break; the first line is 1."""
        start, end = self.source.line_starts[number - 1], self.source.line_starts[number]
        return self.source.utf8[start:end].decode()


def _apply_edits(utf8: bytes, edits: Iterable[_Edit]) -> bytes:
    """Return the bytes after the edits; Refused if two of them overlap."""
    parts, position = list[bytes](), 0
    for first, last, new in sorted(edits):
        if first < position:
            raise Refused("two edits overlap")
        parts += [utf8[position:first], new]
        position = last
    return b"".join([*parts, utf8[position:]])


def _definitions(body: Iterable[ast.AST], owners: tuple[_Definition, ...] = ()) -> Iterator[tuple[_Definition, ...]]:
    """Yield the path to every class and function outside of functions: the classes that contain it, then its definition."""
    for node in body:
        if isinstance(node, _Definition):
            yield (*owners, node)
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node.body, (*owners, node))
        else:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _definitions(getattr(node, field, ()), owners)


def _qualified_name(path: Iterable[_Definition]) -> str:
    """Return the names on a path with dots between them; empty for an empty path."""
    return ".".join(node.name for node in path)


_Item = TypeVar("_Item")


def take_single(found: list[_Item]) -> _Item:
    """Return the only item of a list.

    Raises:
        Refused: The list is empty, or has more than one item.
    """
    if len(found) != 1:
        raise Refused("it is not written once")
    return found[0]


class Remedy(NamedTuple):
    """What a fixer says about its edits: see `Fix`. `affected` are the agents that it affects besides those of the finding."""

    title: str
    intent: str
    affected: Iterable[str] = ()
    is_safe: bool = False
