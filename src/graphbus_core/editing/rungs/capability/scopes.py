"""Which statements bind a name: the scopes of a file, each with all bindings in it.

A name may be bound in several places. All of them count, in whatever order they run, so that a harmless value cannot hide a
harmful one: patterns, `except ... as`, walruses, parameters, loops, `with`, imports and `global` bind names as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from graphbus_core.compiler.reading.modules import absolute_name
from graphbus_core.editing.text.source_text import Definition

_Kind = Literal["module", "class", "function", "comprehension"]
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class ImportedName(NamedTuple):
    """A binding by an import: a module, or a name of a module."""

    module: str
    name: str = ""


class NameBinding(NamedTuple):
    """One binding of a name.

    Attributes:
        source: An import, a definition, a parameter, or the expression whose value or part the name gets; None if the value
            does not matter, as for `except ... as`.
        scope: The scope in which the expression is evaluated.
        has_value: False for `name: int` without a value and for `del name`, after which the name cannot be read.
        handler: The handler of `except ... as`, at whose end Python deletes the name.
    """

    source: ImportedName | ast.AST | None
    scope: NameScope
    has_value: bool = True
    handler: ast.ExceptHandler | None = None


class AttributeWrite(NamedTuple):
    """An assignment `base.attribute = value`, and its scope."""

    base: ast.expr
    attribute: str
    value: ast.expr | None
    scope: NameScope


class NameScope:
    """The scope of a module, class, function or comprehension.

    Attributes:
        bindings: Name -> all its bindings in this scope.
        outer: Name -> the scope that a `global` or `nonlocal` statement gives it.
        writes: The assignments to attributes in this scope, without inner functions.
        stars: The modules that are imported with `*`.
    """

    def __init__(self, kind: _Kind, node: ast.AST, parent: NameScope | None) -> None:
        self.kind = kind
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[NameBinding]] = {}
        self.outer: dict[str, NameScope] = {}
        self.writes: list[AttributeWrite] = []
        self.stars: list[str] = []

    def bind(
        self,
        name: str,
        source: ImportedName | ast.AST | None,
        read_in: NameScope | None = None,
        *,
        has_value: bool = True,
        handler: ast.ExceptHandler | None = None,
    ) -> None:
        """Add a binding here, or in the outer scope of a `global` or `nonlocal` name; `read_in` is the scope of `source`."""
        home = self.outer.get(name, self)
        home.bindings.setdefault(name, []).append(NameBinding(source, read_in or self, has_value, handler))

    def find(self, name: str) -> list[NameBinding] | None:
        """Return the bindings that a name may have when it is read here; None if nothing in this file binds it.

        In a class body the bindings of outer scopes count as well, because the name may not be bound there yet.
        """
        found: list[NameBinding] = []
        step: NameScope | None = self
        while step is not None:
            step = step.outer.get(name, step)
            if name in step.bindings and (step.kind != "class" or step is self):
                found += step.bindings[name]
                if step.kind != "class":
                    return found
            step = step.parent
        return found or None

    @property
    def function(self) -> NameScope | None:
        """The scope of the function around a place, comprehensions skipped; None in a module or class body."""
        return self.target if self.target.kind == "function" else None

    @property
    def target(self) -> NameScope:
        """The scope in which a walrus binds: not a comprehension, but the scope around it."""
        return self.parent.target if self.kind == "comprehension" and self.parent else self


class NameScopes:
    """All scopes of a file.

    Attributes:
        of: `id(node)` -> the scope of a module, class, function, lambda or comprehension.
        module: The scope of the module.
        loads: Each name that is read, with its node and the scope in which it is read.
    """

    def __init__(self, tree: ast.Module, package: str = "") -> None:
        self._package = package
        self._nonlocal: list[tuple[NameScope, str]] = []
        self.of: dict[int, NameScope] = {}
        self.loads: list[tuple[str, ast.Name, NameScope]] = []
        self.module = NameScope("module", tree, None)
        self.of[id(tree)] = self.module
        self._collect_all(tree.body, self.module)
        for inner, name in self._nonlocal:  # outer functions come before inner ones
            self._bind_outside(inner, name)

    def _collect_all(self, nodes: Sequence[ast.AST | None], scope: NameScope) -> None:
        """Collect the bindings in several nodes; None among them is skipped."""
        for node in nodes:
            if node is not None:
                self._collect(node, scope)

    def _collect(self, node: ast.AST, scope: NameScope) -> None:
        """Collect the bindings in a node and the nodes inside it; definitions, lambdas and comprehensions open scopes."""
        if isinstance(node, Definition):
            self._collect_definition(node, scope)
        elif isinstance(node, ast.Lambda):
            self._collect(node.args, scope)
            self._collect_inner("function", node, [node.body], scope)
        elif isinstance(node, _COMPREHENSIONS):
            self._collect_comprehension(node, scope)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.loads.append((node.id, node, scope))
        else:
            self._bind_names(node, scope)
            self._collect_all(list(ast.iter_child_nodes(node)), scope)

    def _collect_definition(self, node: Definition, scope: NameScope) -> None:
        """Collect a definition: decorators, bases, defaults and annotations belong to the scope around it."""
        scope.bind(node.name, node)
        self._collect_all([child for child in ast.iter_child_nodes(node) if child not in node.body], scope)
        self._collect_inner("class" if isinstance(node, ast.ClassDef) else "function", node, node.body, scope)

    def _collect_inner(self, kind: _Kind, node: ast.AST, body: Sequence[ast.AST], scope: NameScope) -> None:
        """Open the scope of a definition or lambda inside `scope`, bind its parameters, and collect its body."""
        inner = self.of[id(node)] = NameScope(kind, node, scope)
        for parameter in getattr(node, "type_params", ()):
            inner.bind(parameter.name, None)
        if isinstance(node, _FUNCTIONS):
            for parameter in _parameters_of(node.args):
                inner.bind(parameter.arg, parameter)
        for outside in _find_global_statements(body):
            if isinstance(outside, ast.Global):
                inner.outer.update(dict.fromkeys(outside.names, self.module))
            else:
                self._nonlocal += [(inner, name) for name in outside.names]
        self._collect_all(body, inner)

    @staticmethod
    def _bind_outside(inner: NameScope, name: str) -> None:
        """Move the bindings of a `nonlocal` name to the outer function, once all bindings there are collected."""
        step = inner.parent
        while step is not None:
            if step.kind == "function" and (name in step.bindings or name in step.outer):
                inner.outer[name] = home = step.outer.get(name, step)
                home.bindings.setdefault(name, []).extend(inner.bindings.pop(name, []))
                return
            step = step.parent

    def _collect_comprehension(self, node: ast.AST, scope: NameScope) -> None:
        """Open the scope of a comprehension; only its first iterable is evaluated in the scope around it."""
        inner = self.of[id(node)] = NameScope("comprehension", node, scope)
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        for number, generator in enumerate(generators):
            read_in = inner if number else scope
            self._collect(generator.iter, read_in)
            self._bind_target(generator.target, _make_part_of(generator.iter), inner, read_in)
            self._collect_all(generator.ifs, inner)
        self._collect_all([getattr(node, name, None) for name in ("elt", "key", "value")], inner)

    def _bind_names(self, node: ast.AST, scope: NameScope) -> None:  # noqa: C901, PLR0912 - one line for each kind of binding
        """Add the bindings that a statement or expression makes itself, without those of the nodes inside it."""
        match node:  # `ast.Await(x)` stands for a value that is derived from `x`
            case ast.Import() | ast.ImportFrom():
                self._bind_imports(node, scope)
            case ast.Assign():
                for target in node.targets:
                    self._bind_target(target, node.value, scope)
            case ast.AnnAssign():
                self._bind_target(node.target, node.value, scope)
            case ast.AugAssign():
                self._bind_target(node.target, ast.Await(node.value), scope)
            case ast.For() | ast.AsyncFor():
                self._bind_target(node.target, _make_part_of(node.iter), scope)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._bind_target(target, ast.Await(node.context_expr), scope)
            case ast.NamedExpr():
                scope.target.bind(node.target.id, node.value, scope)
            case ast.ExceptHandler(name=str() as name):
                scope.bind(name, None, handler=node)
            case ast.Match():
                for name in _find_captures(node):
                    scope.bind(name, _make_part_of(node.subject))
            case ast.Delete():
                for target in node.targets:
                    self._bind_target(target, None, scope)
            case _ if type(node).__name__ == "TypeAlias":
                scope.bind(node.name.id, None)  # type: ignore[attr-defined]

    def _bind_imports(self, node: ast.Import | ast.ImportFrom, scope: NameScope) -> None:
        """Bind the names of an import; `import a.b` binds `a`."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                scope.bind(alias.asname or top, ImportedName(alias.name if alias.asname else top))
            return
        module = absolute_name(node.module or "", node.level, self._package)
        for alias in node.names:
            if alias.name == "*":
                scope.stars.append(module)
            else:
                scope.bind(alias.asname or alias.name, ImportedName(module, alias.name))

    def _bind_target(
        self, target: ast.expr, value: ast.expr | None, scope: NameScope, read_in: NameScope | None = None
    ) -> None:
        """Bind the names in the target of an assignment; `read_in` is the scope of the value, by default `scope`.

        Without a value the names are only annotated, or deleted.

        A tuple or list is bound part by part, to the elements of a display of the same length, else to a part of the value.
        """
        read_in = read_in or scope
        if isinstance(target, ast.Name):
            scope.bind(target.id, value, read_in, has_value=value is not None)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, value, scope, read_in)
        elif isinstance(target, (ast.Tuple, ast.List)):
            part = None if value is None else _make_part_of(value)
            values = _split_display(value, len(target.elts)) or [part] * len(target.elts)
            for element, element_value in zip(target.elts, values, strict=True):
                self._bind_target(element, element_value, scope, read_in)
        elif isinstance(target, ast.Attribute):
            scope.writes.append(AttributeWrite(target.value, target.attr, value, read_in))


def _make_part_of(value: ast.expr) -> ast.expr:
    """Return an expression that stands for a part of the value of another one, such as an item."""
    return ast.Starred(value, ast.Load())


def _split_display(value: ast.expr | None, count: int) -> list[ast.expr | None] | None:
    """Return the elements of a tuple or list display if there are `count` and none is starred; else None."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != count:
        return None
    return None if any(isinstance(part, ast.Starred) for part in value.elts) else [*value.elts]


def _parameters_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters of a function, `*args` and `**kwargs` last."""
    stars = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]


def annotations_of(arguments: ast.arguments) -> list[ast.expr | None]:
    """Return the annotations of all parameters."""
    return [parameter.annotation for parameter in _parameters_of(arguments)]


def defaults_of(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Return the default of each parameter that has one, by name."""
    places = [*arguments.posonlyargs, *arguments.args]
    found = {
        one.arg: value
        for one, value in zip(places[len(places) - len(arguments.defaults) :], arguments.defaults, strict=True)
    }
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {one.arg: value for one, value in named if value is not None}


def _find_captures(match: ast.Match) -> Iterator[str]:
    """Yield the names that the patterns of a match statement bind."""
    for node in (node for case in match.cases for node in ast.walk(case.pattern)):
        name = node.rest if isinstance(node, ast.MatchMapping) else getattr(node, "name", None)
        if name:
            yield name


def _find_global_statements(body: Sequence[ast.AST]) -> Iterator[ast.Global | ast.Nonlocal]:
    """Yield the `global` and `nonlocal` statements of a body; those in inner functions and classes are left out."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield node
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
