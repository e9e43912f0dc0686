"""Walks through a file and passes each expression with its use to the judge, which records signs and references.

Harmless things leave no trace. Any other use from outside of the project is a `Sign`. Each use of a function or class of the
project is a `Reference`; `ProjectPowers` follows it to the signs of that code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from graphbus_core.compiler.reading.modules import absolute_name
from graphbus_core.compiler.reading.syntax import parse_expression
from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.judge import CallJudge, UseJudge
from graphbus_core.editing.rungs.capability.scopes import ImportedName, NameScope, annotations_of
from graphbus_core.editing.rungs.capability.signs import (
    GLOBAL,
    UNKNOWN_ATTRIBUTE,
    ExpressionUse,
    Notes,
    Reference,
    Sign,
    Use,
)
from graphbus_core.editing.rungs.capability.sources import (
    BUILTINS,
    FUNCTIONS,
    AnalyzedFile,
    AnalyzedFiles,
    Value,
    is_internal,
    name_of,
)
from graphbus_core.editing.text.source_text import Definition

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TYPE_MAKERS = ("typing.TypedDict", "typing.NamedTuple", "typing_extensions.TypedDict", "typing_extensions.NamedTuple")
_COMPUTING = (ast.Lambda, *_COMPREHENSIONS, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def notes_of(file: AnalyzedFile) -> Notes:
    """Return the signs and references of a file."""
    notes = Notes(file)
    _FileReader(notes).read()
    return notes


class _FileReader:
    """Walks through the syntax tree of a file and passes each use to the judges.

    There is one method for each kind of node. Its parameters: the node, its scope, its use, and the call whose function it is
    (None if it is not called). Most methods need only some of these.
    """

    def __init__(self, notes: Notes) -> None:
        self._file = notes.file
        self._notes = notes
        self._judge = UseJudge(notes)
        self._calls = CallJudge(self._judge)
        self._kinds: dict[type[ast.AST], Callable[..., None]] = {
            ast.Name: self._read_name,
            ast.Attribute: self._read_attribute,
            ast.Subscript: self._read_subscript,
            ast.Call: self._read_call,
            ast.Lambda: self._read_lambda,
            ast.ExceptHandler: self._read_except,
            ast.Constant: self._read_constant,
            ast.BinOp: self._read_parts,
            ast.Tuple: self._read_parts,
            ast.List: self._read_parts,
            ast.AnnAssign: self._read_annotated,
            ast.AugAssign: self._read_augmented,
            ast.MatchClass: self._read_class_pattern,
            ast.Global: self._read_global,
            ast.Import: self._read_import,
            ast.ImportFrom: self._read_import_from,
            **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), self._read_definition),
            **dict.fromkeys(_COMPREHENSIONS, self._read_comprehension),
        }

    def read(self) -> None:
        """Read the whole file."""
        self._check_rebound_names(self._file.scopes.module)
        for scope in self._file.scopes.of.values():
            self._check_internal_names(scope)
        self._read_all(self._file.tree.body, self._file.scopes.module)
        self._calls.finish()

    def _read_all(self, nodes: Iterable[ast.AST | None], scope: NameScope, use: Use = "value") -> None:
        """Read several nodes with the same use; None among them is skipped."""
        for node in nodes:
            if node is not None:
                self._read_node(node, scope, use)

    def _read_node(self, node: ast.AST, scope: NameScope, use: Use = "value", call: ast.Call | None = None) -> None:
        """Read a node with the method for its kind. Without such a method, read the nodes inside it, as values."""
        kind = self._kinds.get(type(node))
        if kind is not None:
            kind(node, scope, use, call)
            return
        self._read_all(ast.iter_child_nodes(node), scope)
        if use == "call" and isinstance(node, ast.expr):
            self._judge.judge_values(ExpressionUse(node, scope, use, call))

    # --- expressions --------------------------------------------------------------------------

    def _read_name(self, node: ast.Name, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Judge a name that is read; one that is bound or deleted is harmless here."""
        if isinstance(node.ctx, ast.Load):
            self._judge.judge_values(ExpressionUse(node, scope, use, call))
            self._check_method_in_class(node, scope)

    def _check_method_in_class(self, node: ast.Name, scope: NameScope) -> None:
        """Record a sign for a method used in its class body: there it is a plain function and accepts any object as `self`."""
        is_of_class = scope.kind == "class" and node.id in scope.bindings
        values = self._file.values(node, scope) if is_of_class else ()
        if any(isinstance(value.node, FUNCTIONS) for value in values) and node not in self._allowed_method_positions:
            self._notes.sign("G3.patch", f"the method {node.id} without its object", node, scope)

    @cached_property
    def _allowed_method_positions(self) -> frozenset[ast.expr]:
        """The expressions in which a method may stand in its class body: right sides of assignments, arguments of `property`."""
        found: list[ast.expr] = []
        for node in ast.walk(self._file.tree):
            if isinstance(node, ast.Assign):
                found.append(node.value)
            elif isinstance(node, ast.Call) and name_of(node) == "property":
                found += [*node.args, *(keyword.value for keyword in node.keywords)]
        return frozenset(found)

    def _read_attribute(self, node: ast.Attribute, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Judge an attribute that is read, set or deleted, and the expression before the dot as its base."""
        self._read_node(node.value, scope, "base")
        if not isinstance(node.ctx, ast.Load):
            self._judge.judge_write(node, scope)
            return
        place = ExpressionUse(node, scope, use, call)
        self._judge.judge_values(place)
        self._judge.judge_attributes(node, place)
        if node.attr in ("format", "format_map") and call is None:
            self._notes.sign("G3.reflection", f"the use of {node.attr} as a value", node, scope)

    def _read_subscript(self, node: ast.Subscript, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Judge `a[b]` as an item that is read or changed, as a type such as `list[int]`, or as an environment variable."""
        if any(value.name in table.VARIABLES for value in self._file.values(node.value, scope)):
            self._notes.sign("G3.environment", "the use of the environment", node, scope, way=node)
            return
        is_type = use == "type" or name_of(node.value) == "type"
        if isinstance(node.ctx, ast.Load):
            self._read_node(node.value, scope, "type" if is_type or use == "call" else "value")
        else:
            self._read_node(node.value, scope)
            self._judge.judge_change(node.value, node, scope)
        self._read_index(node, scope, "type" if use == "type" else "value")
        if use == "call":
            self._judge.judge_values(ExpressionUse(node, scope, use, call))

    def _read_index(self, node: ast.Subscript, scope: NameScope, use: Use) -> None:
        """Read the part in brackets: types inside a type, except for the values of `Literal` and the extras of `Annotated`."""
        form = name_of(node.value) if use == "type" else ""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if form == "Annotated":
            self._read_all(parts[:1], scope, "type")
            self._read_all(parts[1:], scope)
        else:
            self._read_all(
                parts, scope, use if form != "Literal" and self._has_only_types(node.value, scope) else "value"
            )

    def _read_call(self, node: ast.Call, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Judge a call, its function and its arguments; with `use` "call", also the result, which is called."""
        functions = self._file.values(node.func, scope)
        if not all(self._calls.judges_calls_of(value) for value in functions):
            self._read_node(node.func, scope, "call", node)
        elif isinstance(node.func, ast.Attribute):
            self._read_node(node.func.value, scope, "base")
        self._calls.judge_call(node, scope)
        if any(value.name in _TYPE_MAKERS for value in functions):
            for argument in (*node.args[1:], *(keyword.value for keyword in node.keywords)):
                self._check_evaluated(argument, scope, set())
        tests_type = all(value.name in ("builtins.isinstance", "builtins.issubclass") for value in functions)
        self._read_all(node.args[:1], scope)
        self._read_all(node.args[1:], scope, "type" if tests_type else "value")
        self._read_all((one.value for one in node.keywords if not self._calls.is_console(functions, one, scope)), scope)
        if use == "call":
            self._judge.judge_values(ExpressionUse(node, scope, use, call))

    def _read_lambda(self, node: ast.Lambda, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read the defaults of a lambda in the scope around it, and its body in its own."""
        self._read_all([*node.args.defaults, *node.args.kw_defaults], scope)
        self._read_node(node.body, self._file.scopes.of[id(node)])

    def _read_comprehension(self, node: _Comprehension, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read a comprehension in its own scope, except for its first iterable."""
        inner = self._file.scopes.of[id(node)]
        for number, generator in enumerate(node.generators):
            self._read_node(generator.iter, inner if number else scope)
            self._read_all([generator.target, *generator.ifs], inner)
        self._read_all([getattr(node, name, None) for name in ("elt", "key", "value")], inner)

    def _read_parts(self, node: ast.expr, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read the parts of an operator, tuple or list: as types if the whole is used as a type."""
        is_type = use == "type" and (not isinstance(node, ast.BinOp) or self._has_only_types(node, scope))
        self._read_all(ast.iter_child_nodes(node), scope, "type" if is_type else "value")
        if use == "call":
            self._judge.judge_values(ExpressionUse(node, scope, use, call))

    def _has_only_types(self, node: ast.expr, scope: NameScope) -> bool:
        """True if an expression consists of types and None, so that `|` and brackets only make another type."""
        if isinstance(node, ast.BinOp):
            return self._has_only_types(node.left, scope) and self._has_only_types(node.right, scope)
        if isinstance(node, ast.Constant):
            return node.value is None or isinstance(node.value, str)
        return all(value.kind in ("outside", "symbol", "class") for value in self._file.values(node, scope))

    def _read_constant(self, node: ast.Constant, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read the text of an annotation as the expression in it; other constants are harmless here."""
        inner = _parse_type_text(node) if use == "type" else None
        if inner is None:
            return
        if any(isinstance(step, _COMPUTING) for step in ast.walk(inner)):
            self._notes.sign("G3.exec", "an annotation that is a program", node, scope)
        else:
            self._read_node(inner, scope, "type")

    # --- statements ---------------------------------------------------------------------------

    def _read_except(self, node: ast.ExceptHandler, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read an `except` clause: the exception as a type, then its body."""
        self._read_all([node.type], scope, "type")
        self._read_all(node.body, scope)

    def _read_annotated(self, node: ast.AnnAssign, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read an assignment with an annotation."""
        self._read_annotations([node.annotation], scope)
        self._read_all([node.target, node.value], scope)

    def _read_augmented(self, node: ast.AugAssign, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read an assignment such as `a += b`, and judge it as a change of `a` if that is a name."""
        self._read_all([node.target, node.value], scope)
        if isinstance(node.target, ast.Name):
            self._judge.judge_change(node.target, node, scope)

    def _read_class_pattern(self, node: ast.MatchClass, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read a pattern such as `Order(total=0)`, and judge the attributes that it reads."""
        self._read_node(node.cls, scope, "type")
        for name in node.kwd_attrs:
            self._judge.judge_named_attribute(name, node, scope)
        self._read_all([*node.patterns, *node.kwd_patterns], scope)

    def _read_global(self, node: ast.Global, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Record a sign for each name of a `global` statement."""
        for name in node.names:
            self._notes.sign("G3.patch", f"{GLOBAL}{name}", node, scope, is_counted=False)

    def _read_import(self, node: ast.Import, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Record a reference to an imported module of the project; judge any other import."""
        project = self._file.project
        for alias in node.names:
            inside = project.module(alias.name)
            if inside is not None:
                self._notes.refer(inside, None, alias.name, node, scope)
            elif project.module(alias.name.partition(".")[0]) is None:
                self._judge.judge_import(alias.name, node, scope)

    def _read_import_from(self, node: ast.ImportFrom, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Record a reference to a module of the project, then read each imported name; `*` is a sign."""
        module = absolute_name(node.module or "", node.level, self._file.package)
        inside = self._file.project.module(module)
        if inside is not None:
            self._notes.refer(inside, None, module, node, scope)
        for alias in node.names:
            if alias.name == "*":
                self._notes.sign("G3.import", f"the import of {module}.*", node, scope)
            else:
                self._read_imported_name(module, alias.name, node, scope)

    def _read_imported_name(self, module: str, name: str, node: ast.ImportFrom, scope: NameScope) -> None:
        """Record a reference to an imported name of the project; judge one from outside."""
        for value in self._file.imported(ImportedName(module, name)):
            if value.kind in ("symbol", "module") and value.home is not None:
                self._notes.refer(value.home, value.node, name, node, scope)
            elif value.name in table.BY_NAME:
                self._calls.remember_import(value.name, node, scope)
            elif value.kind == "outside":
                self._judge.judge_import(value.name, node, scope)

    # --- annotations --------------------------------------------------------------------------

    def _read_annotations(self, nodes: Iterable[ast.expr | None], scope: NameScope) -> None:
        """Read annotations as types, and check that resolving them runs no code; None among them is skipped."""
        for node in nodes:
            if node is not None:
                self._read_node(node, scope, "type")
                self._check_evaluated(node, scope, set())

    def _check_evaluated(self, node: ast.expr, scope: NameScope, seen: set[int]) -> None:
        """Record a sign if resolving an annotation would run code.

        Python evaluates the texts in it, and those that its names stand for. `seen` holds the ids of the visited expressions.
        """
        for step in self._file.sources(node, scope, seen):
            if isinstance(step, ast.Constant) and isinstance(step.value, str):
                inner = _parse_type_text(step)
                if any(isinstance(part, (ast.Call, *_COMPUTING)) for part in ast.walk(inner or step)):
                    self._notes.sign("G3.exec", "a text that is evaluated as a type", node, scope)
                elif isinstance(inner, ast.Name):
                    self._check_evaluated(inner, self._file.scopes.module, seen)
            elif not self._makes_type(step, scope):
                self._notes.sign("G3.exec", "an annotation that is computed", node, scope)

    def _makes_type(self, step: ast.AST, scope: NameScope) -> bool:
        """True if a part of an annotation only makes a type, or has no effect: `int | str`, or a call of a class."""
        if isinstance(step, ast.BinOp):
            return isinstance(step.op, ast.BitOr)
        if isinstance(step, ast.Call):
            values = self._file.values(step.func, scope)
            return all(
                (value.kind == "symbol" and isinstance(value.node, ast.ClassDef))
                or (value.kind == "outside" and value.name.rpartition(".")[2][:1].isupper())
                or value.name.endswith(".namedtuple")
                for value in values
            )
        return not isinstance(step, (ast.JoinedStr, *_COMPUTING))

    # --- definitions --------------------------------------------------------------------------

    def _read_definition(self, node: Definition, scope: NameScope, use: Use, call: ast.Call | None) -> None:
        """Read the decorators of a definition; then the class, or the defaults, annotations and body of the function."""
        self._read_all(getattr(node, "type_params", ()), scope)
        for decorator in node.decorator_list:
            self._read_decorator(decorator, node, scope)
        if isinstance(node, ast.ClassDef):
            self._read_class(node, scope)
            return
        if is_internal(node.name) and node.name not in table.DEFINED_FREELY:
            self._notes.sign("G3.reflection", f"the method {node.name}", node, scope)
        self._read_all([*node.args.defaults, *node.args.kw_defaults], scope)
        self._read_annotations([*annotations_of(node.args), node.returns], scope)
        self._read_all(node.body, self._file.scopes.of[id(node)])

    def _read_decorator(self, decorator: ast.expr, node: Definition, scope: NameScope) -> None:
        """Record a sign for a decorator that is not known to be harmless, and read its arguments.

        A function of the project that decorates a function is read as a call of it.
        """
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        values = self._file.values(function, scope)
        is_known = self._is_accessor(function, node) or self._is_registration(function, scope)
        if not is_known and not isinstance(node, ast.ClassDef) and all(value.kind == "symbol" for value in values):
            self._read_node(function, scope, "call")  # for an old function `_find_declaration_signs` yields a sign
        elif not is_known and not all(value.name in table.DECORATORS for value in values):
            shown = next((value.name for value in values if value.name), ast.unparse(function))
            self._notes.sign("G3.decorator", f"@{shown} on {node.name}", decorator, scope)
            if not any(value.name in table.ONLY_DECORATORS for value in values):
                self._read_node(function, scope, "call")
        if isinstance(decorator, ast.Call):
            if decorator.keywords and any(value.name == "functools.wraps" for value in values):
                self._notes.sign("G3.patch", "functools.wraps with keyword arguments", decorator, scope)
            if any(value.name.startswith("graphbus_core.") for value in values):
                for argument in (*decorator.args[1:], *(keyword.value for keyword in decorator.keywords)):
                    self._check_evaluated(argument, scope, set())
            self._read_all([*decorator.args, *(keyword.value for keyword in decorator.keywords)], scope)

    @staticmethod
    def _is_accessor(function: ast.expr, node: Definition) -> bool:
        """True for the decorator of a property accessor: `@total.setter` on `total`."""
        return (
            isinstance(function, ast.Attribute)
            and function.attr in ("setter", "getter", "deleter")
            and isinstance(function.value, ast.Name)
            and function.value.id == node.name
        )

    def _is_registration(self, function: ast.expr, scope: NameScope) -> bool:
        """True for `@show.register` where `show` is a `@singledispatch` function of this file."""
        return (
            isinstance(function, ast.Attribute)
            and function.attr == "register"
            and all(self._is_generic(value) for value in self._file.values(function.value, scope))
        )

    def _is_generic(self, value: Value) -> bool:
        """True for a function of this file with `@singledispatch` or the like."""
        decorators = (
            value.node.decorator_list if isinstance(value.node, Definition) and value.home is self._file else []
        )
        of = [
            found.name for one in decorators for found in self._file.values(one, self._file.scopes.of[id(value.node)])
        ]
        return bool(set(of) & table.GENERIC)

    def _read_class(self, node: ast.ClassDef, scope: NameScope) -> None:
        """Read a class; names that replace parts of a node are signs, overridden attributes of bases are references."""
        self._read_all(node.bases, scope, "type")
        self._read_all((keyword.value for keyword in node.keywords), scope)
        inner = self._file.scopes.of[id(node)]
        if self._file.project.is_below_agents(self._file, node):
            for name in sorted(inner.bindings.keys() & table.NOT_TO_REPLACE):
                self._notes.sign("G3.node", f"{name} of {node.name}, which replaces that of GraphBus", node, scope)
        for name in sorted(inner.bindings.keys() - table.NODE):
            if not is_internal(name):
                self._judge.record_overridden(self._file, node, name, node, scope)
        self._read_all(node.body, inner)

    # --- names that are bound again --------------------------------------------------------------

    def _check_rebound_names(self, module: NameScope) -> None:
        """Record a sign for each module-level name that is imported, defined or built in, and also bound in another way."""
        for name, bound in module.bindings.items():
            sources = [one.source for one in bound]
            imports = {source for source in sources if isinstance(source, ImportedName)}
            defined = [source for source in sources if isinstance(source, Definition)]
            others = [
                source
                for source in sources
                if not isinstance(source, (ImportedName, Definition)) and not _is_none(source)
            ]
            is_mixed = len(imports) > 1 or (bool(imports or defined) and bool(others or (imports and defined)))
            if is_mixed or (name in BUILTINS and not is_internal(name)):
                last = max(sources, key=lambda source: getattr(source, "lineno", 0))
                at = last if isinstance(last, ast.AST) else self._file.tree.body[0]
                self._notes.sign("G3.patch", f"another binding of {name}", at, module)

    def _check_internal_names(self, scope: NameScope) -> None:
        """Record a sign for each dunder name that anything but a definition binds, except harmless ones."""
        for name, bound in scope.bindings.items():
            if is_internal(name) and name not in table.BOUND_FREELY:
                for one in bound:
                    if not isinstance(one.source, Definition):
                        node = one.source if isinstance(one.source, ast.AST) else scope.node
                        self._notes.sign("G3.reflection", f"binding {name}", node, scope)


def _parse_type_text(text: ast.Constant) -> ast.expr | None:
    """Return the expression in a text that is used as a type, with the position of the text; None if it does not parse."""
    try:
        inner = parse_expression(text.value.strip()) if isinstance(text.value, str) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for step in ast.walk(inner) if inner else ():
        ast.copy_location(step, text)
    return inner


def _is_none(source: object) -> bool:
    """True for the constant None."""
    return isinstance(source, ast.Constant) and source.value is None


POWERS = frozenset(
    {
        *("G3.exec", "G3.reflection", "G3.process", "G3.network", "G3.native", "G3.files", "G3.read", "G3.environment"),
        *("G3.patch", "G3.unknown", "G3.node"),
    }
)
"""The codes of G3 that are powers: they say what code can do, not what its text contains."""


class Power(NamedTuple):
    """A power of code of the project: the sign that shows it, and the file of that sign."""

    sign: Sign
    path: str


class ProjectPowers:
    """Finds the powers of code of the project by following references through its files.

    Args:
        loaded: The files that agents import without the change; what importing them does is no new power.
    """

    def __init__(self, files: AnalyzedFiles, loaded: frozenset[str] = frozenset()) -> None:
        self.files = files
        self._loaded = loaded
        self._notes: dict[str, Notes] = {}

    def notes(self, file: AnalyzedFile) -> Notes:
        """Return the signs and references of a file; cached."""
        if file.path not in self._notes:
            self._notes[file.path] = notes_of(file)
        return self._notes[file.path]

    def powers_of(self, reference: Reference) -> dict[str, Power]:
        """Return the powers of referenced code and of all code that it uses: code of G3 -> the first place."""
        found: dict[str, Power] = {}
        for power in self._find_powers(reference, set()):
            found.setdefault(power.sign.code, power)
        return found

    def _find_powers(self, reference: Reference, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """Yield the powers of referenced code; `seen` holds the files and nodes that were visited already.

        If only the name of an attribute is known, these are the powers of all methods of the project with this name.
        """
        if reference.home is None:
            for home, _, method in self.files.fields(reference.name):
                if method is not None:
                    yield from self._powers_within(home, method, seen)
        elif reference.node is None:
            yield from self._powers_at_import(reference.home, seen)
        else:
            yield from self._powers_within(reference.home, reference.node, seen)

    def _powers_at_import(self, home: AnalyzedFile, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """Yield the powers that importing a module uses, unless agents import it without the change."""
        key = (home.path, 0)
        if key in seen or home.path in self._loaded:
            return
        seen.add(key)
        for sign in self.notes(home).signs:
            if sign.runs_at_import and _is_power(sign) and not sign.what.startswith("the import of"):
                yield Power(sign, home.path)
        for inner in self.notes(home).references:
            if inner.runs_at_import:
                yield from self._find_powers(inner, seen)

    def _powers_within(self, home: AnalyzedFile, node: ast.AST, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """Yield the powers of a function or class, of everything that it uses, and of the bases of the class."""
        key = (home.path, id(node))
        if key in seen:
            return
        seen.add(key)
        first, last = _line_range(node)
        for sign in self.notes(home).signs:
            if first <= sign.line <= last and _is_power(sign):
                yield Power(sign, home.path)
        for inner in self.notes(home).references:
            if first <= inner.line <= last:
                yield from self._find_powers(inner, seen)
        if isinstance(node, ast.ClassDef):
            for step_home, step in home.lineage(node, skip_first=True):
                yield from self._powers_within(step_home, step, seen)


def _is_power(sign: Sign) -> bool:
    """True for a sign of a power; an unknown attribute of an unknown object is not enough."""
    return sign.code in POWERS and not sign.what.endswith(UNKNOWN_ATTRIBUTE)


def _line_range(node: ast.AST) -> tuple[int, int]:
    """Return the first and last line of a definition, decorators included."""
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])  # type: ignore[attr-defined]
    return first, node.end_lineno or node.lineno  # type: ignore[attr-defined]
