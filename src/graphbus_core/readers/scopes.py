"""The scopes of a Python file: which name is bound where, and by what, so that a shadowed name is not taken for another one.

`read_module` gives the scopes of a text and the expressions in it, each with its point: the scope, the blocks around its
statement, and the order of the statement. `Scope.reaching` returns the bindings of a name that a point can see: the last one that
is always executed before it, and those after that one which may be.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from graphbus_core.compiler.reading.syntax import parse

BindingKind = Literal["import", "value", "item", "def", "class", "first", "parameter", "opaque"]
ScopeKind = Literal["module", "class", "function", "comprehension"]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_END = 1 << 60
"""The order of the point behind the last statement."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CHANGING = frozenset({"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"})
"""Methods that change a list or dictionary in place."""
_NEWER_SYNTAX = (
    (re.compile(rb"^([ \t]*except\*?[ \t]+)([^\s(:][^:(\n]*,[^:\n]*):", re.MULTILINE), rb"\1(\2):"),  # 3.14
    (
        re.compile(rb"^([ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+)\[(?:[^][\n]|\[[^][\n]*\])*\]", re.MULTILINE),
        rb"\1",
    ),  # 3.12, as the next one
    (re.compile(rb"^([ \t]*)type[ \t]+(\w+)(?:\[[^]\n]*\])?[ \t]*=", re.MULTILINE), rb"\1\2 ="),
)
"""Syntax that a newer Python than this one may have -> the same without it."""
_RECORDED = (ast.Call, ast.BinOp, ast.Dict, ast.Attribute)


class Block(NamedTuple):
    """A list of statements that is executed as a whole or not at all; a loop may execute it again."""

    number: int
    is_loop: bool


class Point(NamedTuple):
    """Where an expression stands: its scope, the blocks of that scope around it, outermost first, and its statement's order."""

    scope: Scope
    blocks: tuple[Block, ...]
    order: int


class Imported(NamedTuple):
    """What an import statement binds: `from MODULE import NAME`, or without a name the module; `level` counts the dots."""

    module: str
    name: str
    level: int


class Binding(NamedTuple):
    """A place that binds a name.

    Attributes:
        kind: `import`; `value`: the name gets the value of the expression `node`; `item`: of one of its elements;
            `def`, `class`: `node` is the definition; `first`: the first parameter of the function `node`;
            `parameter`: another one, `node`; `opaque`: anything else.
        node: See `kind`.
        point: Where it is bound.
    """

    kind: BindingKind
    node: ast.AST | Imported | None
    point: Point


class Scope:
    """A module, class, function or comprehension, and the names that are bound in it.

    Attributes:
        kind: What it is; a lambda is a function.
        node: Its node.
        at: The point of the scope around it at which it is made; None for a module.
        path: The path of its file.
        bindings: Name -> the places that bind it, in the order of the text.
        attributes: For a class: name -> the places that bind `self.NAME`.
        outer: The names that `global` (True) or `nonlocal` (False) take from another scope.
        stars: The modules whose names are all imported.
        changed: The names whose values are changed in place, here or in a scope inside, such as by `append`.
        returns: For a function: the expressions that it returns, with their points.
    """

    def __init__(self, kind: ScopeKind, node: ast.AST, at: Point | None, path: str) -> None:
        self.kind = kind
        self.node = node
        self.at = at
        self.path = path
        self.bindings: dict[str, list[Binding]] = {}
        self.attributes: dict[str, list[Binding]] = {}
        self.outer: dict[str, bool] = {}
        self.stars: list[Imported] = []
        self.changed: set[str] = set()
        self.returns: list[tuple[ast.expr, Point]] = []

    @property
    def parent(self) -> Scope | None:
        """The scope around it."""
        return self.at.scope if self.at else None

    @property
    def module(self) -> Scope:
        """The scope of its module."""
        return self.at.scope.module if self.at else self

    @property
    def end(self) -> Point:
        """The point behind its last statement."""
        return Point(self, (), _END)

    def owner(self, name: str) -> Scope | None:
        """Return the scope in which code of this one finds a name, by the rules of Python; None for a name that none binds."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or scope.kind != "class":
                if name in scope.outer:
                    scope = scope.module if scope.outer[name] else scope.parent
                    continue
                if name in scope.bindings or (scope.stars and scope.at is None):
                    return scope
            scope = scope.parent
        return None

    def reaching(self, name: str, use: Point) -> list[Binding]:
        """Return the bindings of a name of this scope that a use can see; a later use, in a function inside, sees its end."""
        use = use if use.scope is self else self._seen_from(use.scope)
        found, bindings = [], self.bindings.get(name, [])
        for binding in reversed([each for each in bindings if each.point.order < use.order]):
            found.append(binding)
            blocks = binding.point.blocks
            if blocks == use.blocks[: len(blocks)]:
                break
        loops = {block for block in use.blocks if block.is_loop}
        return found + [each for each in bindings if each.point.order >= use.order and loops & {*each.point.blocks}]

    def _seen_from(self, inner: Scope) -> Point:
        """Return the point of this scope that code in a scope inside sees: a comprehension runs at once, a function later."""
        while inner.kind == "comprehension" and inner.at is not None:
            if inner.at.scope is self:
                return inner.at
            inner = inner.at.scope
        return self.end


class Module(NamedTuple):
    """A file that was read.

    Attributes:
        scope: The scope of the module.
        scopes: Node -> the scope that it makes: functions, lambdas, classes and comprehensions.
        sites: The calls, operations, dictionaries and attributes in it with their points.
    """

    scope: Scope
    scopes: dict[ast.AST, Scope]
    sites: list[tuple[ast.expr, Point]]


def read_module(text: bytes, path: str) -> Module:
    """Read a file.

    Raises:
        SyntaxError, ValueError: It is no Python.
        RecursionError: It is nested too deeply.
    """
    tree = _parse(text, path)
    module = Module(Scope("module", tree, None, path), {}, [])
    _Reader(module).read(tree.body, module.scope, ())
    return module


def defaults_of(of: ast.arguments) -> dict[ast.arg, ast.expr]:
    """Return parameter -> its default, for those that have one."""
    pairs = [*zip(reversed((*of.posonlyargs, *of.args)), reversed(of.defaults), strict=False)]
    return dict(pairs) | {each: value for each, value in zip(of.kwonlyargs, of.kw_defaults, strict=True) if value}


def _parse(text: bytes, path: str) -> ast.Module:
    """Parse a file; one that this Python cannot parse once more without the syntax of newer versions, line by line the same."""
    try:
        return parse(text, path)
    except SyntaxError:
        older = text
        for pattern, instead in _NEWER_SYNTAX:
            older = pattern.sub(instead, older)
        if older == text:
            raise
        return parse(older, path)


class _Reader:
    """Fills a module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._order = 0
        self._blocks = 0

    def read(self, body: Iterable[ast.stmt], scope: Scope, blocks: tuple[Block, ...]) -> None:
        """Read statements that are executed one after the other."""
        for statement in body:
            self._order += 1
            point = Point(scope, blocks, self._order)
            method = getattr(self, f"_read_{type(statement).__name__.lower()}", None)
            if method is not None:
                method(statement, point)
            else:
                self._read_children(statement, point)

    def _read_block(self, body: Sequence[ast.stmt], point: Point, *, is_loop: bool = False) -> None:
        """Read statements that may not be executed."""
        self._blocks += 1
        self.read(body, point.scope, (*point.blocks, Block(self._blocks, is_loop)))

    def _read_children(self, node: ast.AST, point: Point) -> None:
        for child in ast.iter_child_nodes(node):
            self._read_expression(child, point)

    # --- statements ---

    def _read_import(self, node: ast.Import, point: Point) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            module = alias.name if alias.asname else name
            self._bind(name, "import", Imported(module, "", 0), point)

    def _read_importfrom(self, node: ast.ImportFrom, point: Point) -> None:
        for alias in node.names:
            imported = Imported(node.module or "", alias.name, node.level)
            if alias.name == "*":
                point.scope.stars.append(imported)
            else:
                self._bind(alias.asname or alias.name, "import", imported, point)

    def _read_functiondef(self, node: FunctionNode, point: Point) -> None:
        for each in (*node.decorator_list, node.args):
            self._read_expression(each, point)
        self._bind(node.name, "def", node, point)
        self.read(node.body, self._function_scope(node, point), ())

    _read_asyncfunctiondef = _read_functiondef

    def _read_classdef(self, node: ast.ClassDef, point: Point) -> None:
        for each in (*node.decorator_list, *node.bases, *node.keywords):
            self._read_expression(each, point)
        self._bind(node.name, "class", node, point)
        self.read(node.body, self._new_scope("class", node, point), ())

    def _read_return(self, node: ast.Return, point: Point) -> None:
        self._read_children(node, point)
        if node.value is not None:
            point.scope.returns.append((node.value, point))

    def _read_assign(self, node: ast.Assign, point: Point) -> None:
        self._read_expression(node.value, point)
        for target in node.targets:
            self._assign(target, node.value, point)

    def _read_annassign(self, node: ast.AnnAssign, point: Point) -> None:
        if node.value is not None:
            self._read_expression(node.value, point)
            self._assign(node.target, node.value, point)

    def _read_augassign(self, node: ast.AugAssign, point: Point) -> None:
        value: ast.expr | None = None
        if isinstance(node.op, ast.BitOr) and isinstance(node.target, ast.Name):  # `canvas |= task.s()`
            value = ast.copy_location(ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value), node.value)
        self._read_expression(value or node.value, point)
        self._assign(node.target, value, point)

    def _read_for(self, node: ast.For | ast.AsyncFor, point: Point) -> None:
        self._read_expression(node.iter, point)
        self._blocks += 1
        inside = (*point.blocks, Block(self._blocks, is_loop=True))
        self._assign(node.target, node.iter, point._replace(blocks=inside), kind="item")
        self.read(node.body, point.scope, inside)
        self._read_block(node.orelse, point)

    _read_asyncfor = _read_for

    def _read_while(self, node: ast.While, point: Point) -> None:
        self._read_expression(node.test, point)
        self._read_block(node.body, point, is_loop=True)
        self._read_block(node.orelse, point)

    def _read_if(self, node: ast.If, point: Point) -> None:
        self._read_expression(node.test, point)
        self._read_block(node.body, point)
        self._read_block(node.orelse, point)

    def _read_with(self, node: ast.With | ast.AsyncWith, point: Point) -> None:
        for item in node.items:
            self._read_expression(item.context_expr, point)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, None, point)
        self.read(node.body, point.scope, point.blocks)

    _read_asyncwith = _read_with

    def _read_try(self, node: ast.Try, point: Point) -> None:
        self._read_block(node.body, point)
        for each in node.handlers:
            if each.name:
                self._bind(each.name, "opaque", None, point)
            self._read_block(each.body, point)
        self._read_block(node.orelse, point)
        self.read(node.finalbody, point.scope, point.blocks)

    _read_trystar = _read_try

    def _read_match(self, node: ast.Match, point: Point) -> None:
        self._read_expression(node.subject, point)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if name:
                    self._bind(name, "opaque", None, point)
            if case.guard is not None:
                self._read_expression(case.guard, point)
            self._read_block(case.body, point)

    def _read_global(self, node: ast.Global, point: Point) -> None:
        point.scope.outer.update(dict.fromkeys(node.names, True))

    def _read_nonlocal(self, node: ast.Nonlocal, point: Point) -> None:
        point.scope.outer.update(dict.fromkeys(node.names, False))

    def _read_delete(self, node: ast.Delete, point: Point) -> None:
        for target in node.targets:
            self._assign(target, None, point)

    # --- names ---

    def _bind(self, name: str, kind: BindingKind, node: ast.AST | Imported | None, point: Point) -> None:
        """Bind a name in the scope of a point, or where `global` and `nonlocal` say."""
        scope = point.scope
        if name in scope.outer:
            scope = scope.module if scope.outer[name] else scope.parent or scope
            point = Point(
                scope, (Block(0, is_loop=False),), point.order
            )  # executed when the function is called, if ever
        scope.bindings.setdefault(name, []).append(Binding(kind, node, point))

    def _assign(self, target: ast.expr, value: ast.expr | None, point: Point, kind: BindingKind = "value") -> None:
        """Bind the names in a target; without a value, to something that is not known."""
        if isinstance(target, ast.Name):
            self._bind(target.id, kind if value is not None else "opaque", value, point)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None, point)
        elif isinstance(target, ast.Tuple | ast.List):
            for part, its_value in zip(target.elts, _parts_of(target, value, kind), strict=True):
                self._assign(part, its_value, point)
        else:
            self._read_children(target, point)
            if isinstance(target, ast.Attribute):
                self._assign_attribute(target, value, point)
            elif isinstance(target, ast.Subscript):
                _note_change(target.value, point.scope)

    def _assign_attribute(self, target: ast.Attribute, value: ast.expr | None, point: Point) -> None:
        """Note an assignment to `self.NAME` with the class of the method; `self` is its first parameter."""
        method = point.scope
        around = method.parent
        if around is None or around.kind != "class" or not isinstance(target.value, ast.Name):
            return
        if any(each.kind == "first" for each in method.bindings.get(target.value.id, [])):
            binding = Binding("value" if value is not None else "opaque", value, point)
            around.attributes.setdefault(target.attr, []).append(binding)

    def _new_scope(self, kind: ScopeKind, node: ast.AST, at: Point) -> Scope:
        scope = self._module.scopes[node] = Scope(kind, node, at, at.scope.path)
        return scope

    def _function_scope(self, node: FunctionNode | ast.Lambda, at: Point) -> Scope:
        """Return a new scope with the parameters of a function."""
        scope = self._new_scope("function", node, at)
        start = Point(scope, (), 0)
        named = [*node.args.posonlyargs, *node.args.args]
        others = [*node.args.kwonlyargs, *filter(None, (node.args.vararg, node.args.kwarg))]
        for number, each in enumerate([*named, *others]):
            is_first = number == 0 and bool(named) and not isinstance(node, ast.Lambda)
            self._bind(each.arg, "first" if is_first else "parameter", node if is_first else each, start)
        return scope

    # --- expressions ---

    def _read_expression(self, node: ast.AST, point: Point) -> None:
        if isinstance(node, ast.Lambda):
            self._read_expression(node.args, point)
            scope = self._function_scope(node, point)
            inside = Point(scope, (), 1)
            scope.returns.append((node.body, inside))
            self._read_expression(node.body, inside)
        elif isinstance(node, _COMPREHENSIONS):
            self._read_comprehension(node, point)
        else:
            if isinstance(node, _RECORDED):
                self._module.sites.append((node, point))
                if isinstance(node, ast.Attribute) and node.attr in _CHANGING:
                    _note_change(node.value, point.scope)
            elif isinstance(node, ast.NamedExpr):
                self._assign_outside(node, point)
            for child in ast.iter_child_nodes(node):
                self._read_expression(child, point)

    def _assign_outside(self, node: ast.NamedExpr, point: Point) -> None:
        """Bind the name of `:=` in the scope around comprehensions; uses in the same statement see it as well."""
        while point.scope.kind == "comprehension" and point.scope.at is not None:
            point = point.scope.at
        self._assign(node.target, node.value, point._replace(order=point.order - 1) if point.order else point)

    def _read_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, point: Point
    ) -> None:
        """Read a comprehension; its first iterable belongs to the scope around it."""
        scope = self._new_scope("comprehension", node, point)
        start, inside = Point(scope, (), 0), Point(scope, (), 1)
        for number, each in enumerate(node.generators):
            self._read_expression(each.iter, inside if number else point)
            self._assign(each.target, each.iter, start, kind="item")
            for condition in each.ifs:
                self._read_expression(condition, inside)
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for part in parts:
            self._read_expression(part, inside)


def _parts_of(target: ast.Tuple | ast.List, value: ast.expr | None, kind: BindingKind) -> Sequence[ast.expr | None]:
    """Return the values that the parts of a target get: those of a tuple, `value[0]` of another expression, or nothing known."""
    names = target.elts
    if value is None or kind != "value" or any(isinstance(each, ast.Starred) for each in names):
        return [None] * len(names)
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    if len(values) == len(names) and not any(isinstance(each, ast.Starred) for each in values):
        return values
    return [ast.Subscript(value, ast.Constant(number), ast.Load()) for number in range(len(names))]


def _note_change(node: ast.expr, scope: Scope) -> None:
    """Note that the value of a variable is changed, for the scope and those around it."""
    if isinstance(node, ast.Name):
        around: Scope | None = scope
        while around is not None:
            around.changed.add(node.id)
            around = around.parent
