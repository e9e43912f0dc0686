"""What the code of a file uses beyond computing: every name resolved in its scope, every use held against the table.

The file is read from top to bottom, each expression with the use that is made of it (called, passed on as a value, asked for an
attribute, ...). What is on the table of harmless things leaves no trace; everything else is a `Sign`, and every use of a function
or class of the project is a `Reference`, whose powers `project.py` follows.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.project import ProjectFiles
from graphbus_core.editing.rungs.capability.scopes import (
    Bound,
    Import,
    Scope,
    Scopes,
    Write,
    annotations_of,
    defaults_of,
    parameters_of,
)
from graphbus_core.editing.rungs.capability.values import DATA, Value, Values, union
from graphbus_core.editing.text.symbols import Definition

Use = Literal["value", "call", "base", "type", "import"]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__builtins__", "__class__", "__dict__", "exit", "quit"}
_OF_MODULES = frozenset({"__name__", "__debug__", "__doc__"})
_SCALARS = frozenset({"str", "int", "float", "len", "round", "bool", "repr", "abs", "format", "hex", "ord", "sum", "min", "max"})
_MANNERS = frozenset({"r", "rb", "rt", "utf-8", "utf8", "utf-8-sig", "ascii", "latin-1", "strict", "replace", "ignore"})
GLOBAL = "another value from inside a function for "


class Sign(NamedTuple):
    """One use of something that is not known to be harmless.

    Attributes:
        way: How it is used, with the names of local data left out. The same sign in another way is another one.
        is_counted: Twice is more than once; else what was used before may be used again.
        runs_at_import: It stands outside of functions.
    """

    code: str
    what: str
    line: int
    way: str = ""
    is_counted: bool = True
    runs_at_import: bool = False
    texts: frozenset[str] = frozenset()


class Reference(NamedTuple):
    """One use of something that the project defines.

    Attributes:
        home: Its file; None when only the name of an attribute is known.
        node: The function or class; None: the module itself, as it is imported.
        name: How the code calls it.
    """

    home: FileUses | None
    node: ast.AST | None
    name: str
    line: int
    way: str
    texts: frozenset[str]
    runs_at_import: bool


class FileUses:
    """One file, read once."""

    def __init__(self, path: str, module: str, tree: ast.Module, project: ProjectFiles) -> None:
        self.path = path
        self.module = module
        self.tree = tree
        self.project = project
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        self.scopes = Scopes(tree, package)
        self._values: dict[tuple[int, int], Values] = {}
        self._busy: set[tuple[int, int]] = set()
        self._classes: dict[int, dict[str, Values]] = {}

    @cached_property
    def _read(self) -> _Reader:
        reader = _Reader(self)
        reader.read()
        return reader

    @property
    def signs(self) -> list[Sign]:
        """Every use of something that is not known to be harmless, wherever it stands."""
        return self._read.signs

    @property
    def references(self) -> list[Reference]:
        """Every use of a function, class or module of the project."""
        return self._read.references

    @cached_property
    def fields(self) -> dict[str, list[tuple[ast.ClassDef, ast.AST | None]]]:
        """Name -> the classes of this file that have an attribute of this name, with the method if it is one."""
        found: dict[str, list[tuple[ast.ClassDef, ast.AST | None]]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef):
                scope = self.scopes.of[id(node)]
                for name, bound in scope.bindings.items():
                    methods = [one.source for one in bound if isinstance(one.source, FUNCTIONS)]
                    found.setdefault(name, []).append((node, methods[0] if methods else None))
                for write in self.own_writes(node):
                    found.setdefault(write.attribute, []).append((node, None))
            elif isinstance(node, ast.Call) and _name_of(node.func) in ("namedtuple", "NamedTuple"):
                for text in _texts(node):
                    for name in text.replace(",", " ").split():
                        found.setdefault(name, []).append((ast.ClassDef(name="", body=[]), None))
        return found

    # --- what expressions stand for ---------------------------------------------------------

    def values(self, node: ast.expr, scope: Scope) -> Values:
        """Give everything that an expression may stand for; what is asked for in a circle is data."""
        key = (id(node), id(scope))
        if key not in self._values:
            if key in self._busy:
                return (DATA,)
            self._busy.add(key)
            try:
                self._values[key] = self._values_of(node, scope)
            finally:
                self._busy.discard(key)
        return self._values[key]

    def _values_of(self, node: ast.expr, scope: Scope) -> Values:  # noqa: C901, PLR0911 - one line for each kind
        if isinstance(node, ast.Name):
            return self.values_of_name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return union(*(self.attribute(value, node.attr) for value in self.values(node.value, scope)))
        if isinstance(node, ast.Call):
            return self._values_of_call(node, scope)
        if isinstance(node, ast.Dict):
            return union(*(self.values(value, scope) for value in node.values))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return union(*(self.values(value, scope) for value in node.elts))
        if isinstance(node, ast.BoolOp):
            return union(*(self.values(value, scope) for value in node.values))
        if isinstance(node, ast.IfExp):
            return union(self.values(node.body, scope), self.values(node.orelse, scope))
        if isinstance(node, ast.BinOp):
            return union(self.values(node.left, scope), self.values(node.right, scope))
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Starred, ast.Subscript)):
            return self.values(node.value, scope)
        if isinstance(node, _COMPREHENSIONS):
            inner = self.scopes.of[id(node)]
            return self.values(node.value if isinstance(node, ast.DictComp) else node.elt, inner)
        return (DATA,)

    def values_of_name(self, name: str, scope: Scope) -> Values:
        """Give everything that a name may stand for."""
        bound = scope.find(name)
        if bound is None:
            return self._from_stars(name)
        found = union(*(self._values_of_binding(one, scope) for one in bound))
        is_of_module = any(one.source is None for one in bound) and name in self.scopes.module.bindings
        return union(found, (Value("outside", f"builtins.{name}"),)) if is_of_module and name in _BUILTINS else found

    def _from_stars(self, name: str) -> Values:
        for module in self.scopes.module.stars:
            other = self.project.module(module)
            if other is not None and name in other.scopes.module.bindings:
                return other.exported(name)
            if other is None and name not in _BUILTINS:
                return (Value("outside", f"{module}.{name}"),)
        return (Value("outside", f"builtins.{name}"),)

    def exported(self, name: str) -> Values:
        """Give what another module gets when it imports a name of this one."""
        if name not in self.scopes.module.bindings and not self.scopes.module.stars:
            inner = self.project.module(f"{self.module}.{name}")
            return (Value("module", home=inner),) if inner else (Value("shared"),)
        found = self.values_of_name(name, self.scopes.module)
        return tuple(Value("shared") if value.kind in ("data", "object") else value for value in found)

    def _values_of_binding(self, bound: Bound, scope: Scope) -> Values:
        source = bound.source
        if source is None:
            return (DATA,)
        if isinstance(source, Import):
            return self._imported(source)
        if isinstance(source, Definition):
            return (Value("symbol", home=self, node=source),)
        if isinstance(source, ast.arg):
            return self._values_of_parameter(source, bound.scope)
        return self.values(source, bound.scope) if isinstance(source, ast.expr) else (DATA,)

    def _imported(self, source: Import) -> Values:
        module = self.project.module(source.module)
        if module is not None:
            return module.exported(source.name) if source.name else (Value("module", home=module),)
        if source.name:
            inner = self.project.module(f"{source.module}.{source.name}")
            if inner is not None:
                return (Value("module", home=inner),)
        return (Value("outside", f"{source.module}.{source.name}".rstrip(".")),)

    def _values_of_parameter(self, parameter: ast.arg, scope: Scope) -> Values:
        function = scope.node
        if not isinstance(function, FUNCTIONS):
            return (DATA,)
        owner = scope.parent
        while owner is not None and owner.kind == "types":
            owner = owner.parent
        first = parameters_of(function.args)[:1]
        if owner is not None and owner.kind == "class" and first == [parameter] and not isinstance(function, ast.Lambda):
            kinds = {_name_of(decorator) for decorator in function.decorator_list}
            is_of_class = "classmethod" in kinds or function.name in ("__init_subclass__", "__new__", "__class_getitem__")
            if "staticmethod" not in kinds:
                return (Value("class" if is_of_class else "self", home=self, node=owner.node),)
        default = defaults_of(function.args).get(parameter.arg)
        outer = scope.parent or scope
        return union((DATA,), self.values(default, outer)) if default is not None else (DATA,)

    def _values_of_call(self, node: ast.Call, scope: Scope) -> Values:
        found: list[Values] = []
        for value in self.values(node.func, scope):
            if value.kind == "symbol" and isinstance(value.node, ast.ClassDef):
                found.append((value._replace(kind="object"),))
            elif value.kind == "class" and value.node is not None:
                found.append((value._replace(kind="object"),))
            elif value.name == "builtins.super":
                found.append((Value("super", home=self, node=_class_around(scope)),))
            elif value.name == "builtins.type":
                of = self.values(node.args[0], scope) if node.args else (DATA,)
                found.append(tuple(Value("class", home=one.home, node=one.node) for one in of))
            elif value.kind == "outside":
                found.append((Value("object", value.name),))
                if value.name in table.MADE_BY:
                    found += [self.values(argument, scope) for argument in node.args]
            else:
                found.append((DATA,))
        return union(*found)

    def attribute(self, value: Value, name: str) -> Values:
        """Give what an attribute of something may stand for."""
        if value.kind == "outside":
            return (value._replace(name=f"{value.name}.{name}"),)
        if value.kind == "module" and value.home is not None:
            return value.home.exported(name)
        if value.kind in ("self", "object") and value.node is None:
            return (DATA,)
        if name == "__class__":
            return (Value("class", home=value.home, node=value.node),)
        if isinstance(value.node, ast.ClassDef) and value.home is not None:
            return value.home.member(value, name)
        return (DATA,)

    def member(self, value: Value, name: str) -> Values:
        """Give what an attribute of a class of this file, or of an object made of it, may stand for."""
        if name == "state" and value.kind == "self":
            return (Value("object", "graphbus_core.State"),)
        found: list[Values] = []
        for home, node in self.lineage(value.node, skip_first=value.kind == "super"):
            scope = home.scopes.of[id(node)]
            if name in scope.bindings:
                found.append(union(*(home._values_of_binding(one, scope) for one in scope.bindings[name])))
            for write in home.own_writes(node):
                if write.attribute == name and write.value is not None:
                    found.append(home.values(write.value, write.scope))
        values = union(*found)
        if value.kind in ("symbol", "class") and not self._is_enum(value.node):
            return tuple(Value("shared") if one.kind == "data" else one for one in values)
        return values

    def lineage(self, node: ast.AST | None, *, skip_first: bool = False) -> list[tuple[FileUses, ast.ClassDef]]:
        """Give a class and its bases in the project, the class first."""
        found: list[tuple[FileUses, ast.ClassDef]] = []
        waiting: list[tuple[FileUses, ast.AST | None]] = [(self, node)]
        while waiting:
            home, step = waiting.pop(0)
            if not isinstance(step, ast.ClassDef) or any(step is known for _, known in found):
                continue
            found.append((home, step))
            waiting += [(one.home, one.node) for one in home.bases(step) if one.kind == "symbol" and one.home]
        return found[1:] if skip_first else found

    def bases(self, node: ast.ClassDef) -> Values:
        """Give what the bases of a class stand for."""
        scope = self.scopes.of[id(node)].parent or self.scopes.module
        return tuple(value for base in node.bases for value in self.values(base, scope))

    def is_agent(self, node: ast.AST | None) -> bool:
        """Tell whether a class is a node of GraphBus."""
        return any(
            value.kind == "outside" and value.name.startswith("graphbus_core.") and value.name.endswith(".GraphBusNode")
            for home, step in self.lineage(node)
            for value in home.bases(step)
        )

    def _is_enum(self, node: ast.AST | None) -> bool:
        return any(value.name in table.MADE_BY_CALL for home, step in self.lineage(node) for value in home.bases(step))

    def has_member(self, value: Value, name: str) -> bool:
        """Tell whether a class, or an object of it, defines an attribute."""
        return any(
            name in home.scopes.of[id(node)].bindings or any(write.attribute == name for write in home.own_writes(node))
            for home, node in self.lineage(value.node, skip_first=value.kind == "super")
        )

    def own_writes(self, node: ast.ClassDef) -> list[Write]:
        """Give the assignments to attributes of `self` in the methods of a class."""
        return self._own_writes.get(id(node), [])

    @cached_property
    def _own_writes(self) -> dict[int, list[Write]]:
        found: dict[int, list[Write]] = {}
        for scope in self.scopes.of.values():
            for write in scope.writes:
                if isinstance(write.base, ast.Name):
                    step: Scope | None = scope
                    while step is not None and write.base.id not in step.bindings:
                        step = step.parent
                    if step is not None and step.kind == "function" and step.parent is not None:
                        first = parameters_of(step.node.args)[:1]  # type: ignore[attr-defined]
                        owner = step.parent.parent if step.parent.kind == "types" else step.parent
                        if owner and owner.kind == "class" and first and first[0].arg == write.base.id:
                            found.setdefault(id(owner.node), []).append(write)
        return found

    def constants(self, node: ast.expr, scope: Scope) -> tuple[str, ...] | None:
        """Give the texts of which an expression surely is one; None when it could be another."""
        if isinstance(node, ast.Constant):
            return (node.value,) if isinstance(node.value, str) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.constants(node.left, scope), self.constants(node.right, scope)
            return None if left is None or right is None else tuple(one + other for one in left for other in right)
        if isinstance(node, ast.IfExp):
            left, right = self.constants(node.body, scope), self.constants(node.orelse, scope)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Subscript):
            source = self._only_source(node.value, scope)
            parts = [self.constants(value, scope) for value in source.values] if isinstance(source, ast.Dict) else [None]
            return None if None in parts else tuple(text for part in parts for text in part or ())
        source = self._only_source(node, scope)
        return self.constants(source, scope) if isinstance(source, ast.Constant) else None

    def _only_source(self, node: ast.expr, scope: Scope) -> ast.AST | None:
        """Give the one expression that a name, or an attribute of a class of this file, is bound to."""
        bound: list[Bound] | None = None
        if isinstance(node, ast.Name):
            bound = scope.find(node.id)
        elif isinstance(node, ast.Attribute):
            owners = [value for value in self.values(node.value, scope) if value.kind in ("self", "class", "symbol")]
            if len(owners) == 1 and isinstance(owners[0].node, ast.ClassDef) and owners[0].home is self:
                if any(write.attribute == node.attr for write in self.own_writes(owners[0].node)):
                    return None
                bound = self.scopes.of[id(owners[0].node)].bindings.get(node.attr)
        if bound is None or len(bound) != 1 or isinstance(bound[0].source, Import):
            return None
        return bound[0].source


class _Reader:
    """Goes through a file and writes down its signs and references."""

    def __init__(self, file: FileUses) -> None:
        self.file = file
        self.signs: list[Sign] = []
        self.references: list[Reference] = []
        self._special: dict[str, Callable[[ast.Call, Scope], None]] = {
            "builtins.getattr": self._getattr,
            "builtins.hasattr": self._getattr,
            "builtins.type": self._type,
            "builtins.super": self._pass_over,
            "builtins.open": self._open,
            "builtins.print": self._print,
            "operator.attrgetter": self._attrgetter,
            "operator.methodcaller": self._attrgetter,
        }
        self._called_by_name: set[str] = set()
        self._imported_by_name: list[tuple[str, ast.AST, Scope]] = []

    def read(self) -> None:
        """Go through the whole file."""
        self._rebound_names(self.file.scopes.module)
        for scope in self.file.scopes.of.values():
            self._internal_names(scope)
        self._see_all(self.file.tree.body, self.file.scopes.module)
        for name, node, scope in self._imported_by_name:
            if name not in self._called_by_name:
                self._sign("G3.reflection", f"the import of {name}", node, scope)

    # --- writing down -------------------------------------------------------------------------

    def _sign(
        self, code: str, what: str, node: ast.AST, scope: Scope, *, way: ast.AST | None = None, is_counted: bool = True
    ) -> None:
        line = getattr(node, "lineno", 0)
        text = self._way(way, scope) if way is not None else ""
        texts = frozenset(_texts(way)) if way is not None else frozenset()
        self.signs.append(Sign(code, what, line, text, is_counted, scope.function is None, texts))

    def _refer(
        self, home: FileUses | None, node: ast.AST | None, name: str, at: ast.AST, scope: Scope, way: ast.AST | None = None
    ) -> None:
        shown = way if way is not None else at
        text = "import" if isinstance(shown, (ast.Import, ast.ImportFrom)) else self._way(shown, scope)
        self.references.append(
            Reference(home, node, name, getattr(at, "lineno", 0), text, frozenset(_texts(shown)), scope.function is None)
        )

    def _way(self, node: ast.AST, scope: Scope) -> str:
        """Show how something is used; names of data are left out, so that they may be renamed."""
        return ast.unparse(_Anonymous(self.file, scope).visit(_copied(node)))

    # --- statements and expressions --------------------------------------------------------------

    def _see_all(self, nodes: Iterable[ast.AST | None], scope: Scope, use: Use = "value") -> None:
        for node in nodes:
            if node is not None:
                self._see(node, scope, use)

    def _see(self, node: ast.AST, scope: Scope, use: Use = "value", call: ast.Call | None = None) -> None:
        name = type(node).__name__
        method = getattr(self, f"_see_{name}", None)
        if method is not None:
            method(node, scope, use, call)
        elif isinstance(node, Definition):
            self._see_definition(node, scope)
        elif isinstance(node, _COMPREHENSIONS):
            self._see_comprehension(node, scope)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._see_import(node, scope)
        else:
            self._see_all(ast.iter_child_nodes(node), scope)
            if use == "call" and isinstance(node, ast.expr):
                self._judge(node, scope, use, call)

    def _see_Name(self, node: ast.Name, scope: Scope, use: Use, call: ast.Call | None) -> None:
        if isinstance(node.ctx, ast.Load):
            self._judge(node, scope, use, call)

    def _see_Attribute(self, node: ast.Attribute, scope: Scope, use: Use, call: ast.Call | None) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._see_write(node, scope)
            return
        self._see(node.value, scope, "base")
        self._judge(node, scope, use, call)
        for value in self.file.values(node.value, scope):
            self._judge_attribute(value, node, scope, use, call)

    def _see_Subscript(self, node: ast.Subscript, scope: Scope, use: Use, call: ast.Call | None) -> None:
        if isinstance(node.ctx, ast.Load):
            self._see(node.value, scope, "type" if use in ("type", "call") or _is_type_form(node) else "value")
        else:
            self._see(node.value, scope)
            self._see_change(node.value, node, scope)
        if use == "type" and _name_of(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            self._see_all(node.slice.elts[:1], scope, "type")
            self._see_all(node.slice.elts[1:], scope)
        else:
            self._see(node.slice, scope, "type" if use == "type" and _name_of(node.value) != "Literal" else "value")
        if use == "call":
            self._judge(node, scope, use, call)

    def _see_Call(self, node: ast.Call, scope: Scope, use: Use, call: ast.Call | None) -> None:
        special = False
        for value in self.file.values(node.func, scope):
            handler = self._special.get(value.name) if value.kind == "outside" else None
            if handler is not None:
                handler(node, scope)
                special = True
        if not special or len(self.file.values(node.func, scope)) > 1:
            self._see(node.func, scope, "call", node)
        is_check = any(value.name in ("builtins.isinstance", "builtins.issubclass") for value in self.file.values(node.func, scope))
        for number, argument in enumerate(node.args):
            self._see(argument, scope, "type" if is_check and number else "value")
        self._see_all((keyword.value for keyword in node.keywords), scope)
        if use == "call":
            self._judge(node, scope, use, call)

    def _see_Lambda(self, node: ast.Lambda, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all([*node.args.defaults, *node.args.kw_defaults], scope)
        self._see(node.body, self.file.scopes.of[id(node)])

    def _see_ExceptHandler(self, node: ast.ExceptHandler, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all([node.type], scope, "type")
        self._see_all(node.body, scope)

    def _see_Tuple(self, node: ast.Tuple, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all(node.elts, scope, "type" if use == "type" else "value")

    def _see_AnnAssign(self, node: ast.AnnAssign, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_annotation(node.annotation, scope)
        self._see_all([node.target, node.value], scope)

    def _see_MatchClass(self, node: ast.MatchClass, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see(node.cls, scope, "type")
        for name in node.kwd_attrs:
            asked = ast.copy_location(ast.Attribute(ast.Name("_", ast.Load()), name, ast.Load()), node)
            self._judge_attribute(DATA, asked, scope, "value", None)
        self._see_all([*node.patterns, *node.kwd_patterns], scope)

    def _see_AugAssign(self, node: ast.AugAssign, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all([node.target, node.value], scope)
        if isinstance(node.target, ast.Name) and any(
            value.kind == "shared" for value in self.file.values_of_name(node.target.id, scope)
        ):
            self._sign("G3.patch", f"changing {node.target.id} of another module", node, scope)

    def _see_Global(self, node: ast.Global, scope: Scope, use: Use, call: ast.Call | None) -> None:
        for name in node.names:
            self._sign("G3.patch", f"{GLOBAL}{name}", node, scope, is_counted=False)

    def _see_annotation(self, node: ast.expr | None, scope: Scope) -> None:
        """An annotation, which may be evaluated: by Python, or later by whoever asks for its type."""
        if node is not None:
            self._see(node, scope, "type")

    def _see_Constant(self, node: ast.Constant, scope: Scope, use: Use, call: ast.Call | None) -> None:
        """A text where a type is expected is read as the expression that it will be."""
        if use != "type" or not isinstance(node.value, str):
            return
        try:
            inner = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for step in ast.walk(inner):
            ast.copy_location(step, node)
        if any(isinstance(step, (ast.Lambda, *_COMPREHENSIONS, ast.NamedExpr)) for step in ast.walk(inner)):
            self._sign("G3.exec", "an annotation that is a program", node, scope)
        else:
            self._see(inner, scope, "type")

    def _see_BinOp(self, node: ast.BinOp, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all([node.left, node.right], scope, "type" if use == "type" else "value")

    def _see_List(self, node: ast.List, scope: Scope, use: Use, call: ast.Call | None) -> None:
        self._see_all(node.elts, scope, "type" if use == "type" else "value")

    # --- definitions -------------------------------------------------------------------------------

    def _see_definition(self, node: Definition, scope: Scope) -> None:
        around = self.file.scopes.of.get(-id(node), scope)
        self._see_all(getattr(node, "type_params", ()), around)
        self._see_decorators(node, scope)
        if isinstance(node, ast.ClassDef):
            self._see_class(node, around)
            return
        if _is_internal(node.name) and node.name not in table.DEFINED_FREELY:
            self._sign("G3.reflection", f"the method {node.name}", node, scope)
        self._see_all([*node.args.defaults, *node.args.kw_defaults], scope)
        for annotation in (*annotations_of(node.args), node.returns):
            self._see_annotation(annotation, around)
        self._see_all(node.body, self.file.scopes.of[id(node)])

    def _see_decorators(self, node: Definition, scope: Scope) -> None:
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            values = self.file.values(function, scope)
            is_known = all(value.kind == "outside" and value.name in table.DECORATORS for value in values)
            is_accessor = isinstance(function, ast.Attribute) and function.attr in ("setter", "getter", "deleter", "register")
            if is_accessor and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                is_known = function.attr != "register" and function.value.id == node.name
            if not is_known:
                names = [value.name for value in values if value.kind == "outside"]
                self._sign("G3.decorator", f"@{names[0] if names else ast.unparse(function)} on {node.name}", decorator, scope)
            if isinstance(decorator, ast.Call):
                self._see_all([*decorator.args, *(keyword.value for keyword in decorator.keywords)], scope)
            if not is_known:
                self._see(function, scope, "call")

    def _see_class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._see_all(node.bases, scope, "type")
        self._see_all((keyword.value for keyword in node.keywords), scope)
        inner = self.file.scopes.of[id(node)]
        if self.file.project.is_below_agents(self.file, node):
            for name in inner.bindings.keys() & table.NOT_TO_REPLACE:
                self._sign("G3.node", f"{name} of {node.name}, which replaces that of GraphBus", node, scope)
        for name in inner.bindings.keys() - table.NODE:
            if not _is_internal(name):
                self._refer_to_overridden(self.file, node, name, node, scope)
        self._see_all(node.body, inner)

    def _refer_to_overridden(self, home: FileUses, node: ast.AST | None, name: str, at: ast.AST, scope: Scope) -> None:
        """What a base uses and a class replaces decides what the base does."""
        for above, step in home.lineage(node, skip_first=True):
            if name in above.scopes.of[id(step)].bindings or any(write.attribute == name for write in above.own_writes(step)):
                self._refer(above, step, f"{name} of {step.name}, replaced", at, scope, ast.Constant(name))

    def _see_comprehension(self, node: ast.AST, scope: Scope) -> None:
        inner = self.file.scopes.of[id(node)]
        generators: list[ast.comprehension] = node.generators  # type: ignore[attr-defined]
        for number, generator in enumerate(generators):
            self._see(generator.iter, inner if number else scope)
            self._see_all([generator.target, *generator.ifs], inner)
        self._see_all([getattr(node, name, None) for name in ("elt", "key", "value")], inner)

    # --- imports ---------------------------------------------------------------------------------

    def _see_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._see_import_of(alias.name, node, scope)
            return
        from graphbus_core.compiler.reading.modules import absolute_name

        package = self.file.module if self.file.path.endswith("__init__.py") else self.file.module.rpartition(".")[0]
        module = absolute_name(node.module or "", node.level, package)
        for alias in node.names:
            if alias.name == "*":
                self._sign("G3.import", f"the import of {module}.*", node, scope)
                continue
            for value in self.file._imported(Import(module, alias.name)):
                if value.kind == "symbol" or (value.kind == "module" and value.home):
                    self._refer(value.home, value.node, alias.name, node, scope)
                elif value.kind == "outside":
                    self._judge_import(value.name, node, scope)
            inside = self.file.project.module(module)
            if inside is not None:
                self._refer(inside, None, module, node, scope)

    def _see_import_of(self, name: str, node: ast.AST, scope: Scope) -> None:
        inside = self.file.project.module(name)
        if inside is not None:
            self._refer(inside, None, name, node, scope)
        elif self.file.project.module(name.partition(".")[0]) is None:
            self._judge_import(name, node, scope)

    def _judge_import(self, name: str, node: ast.AST, scope: Scope) -> None:
        if name in table.BY_NAME:
            self._imported_by_name.append((name, node, scope))
            return
        if name in table.MODULES or table.is_harmless(name):
            package = name.partition(".")[0]
            if not self.file.project.allowed.has(package):
                self._sign("G3.import", f"the import of {name}", node, scope)
            return
        package = name.partition(".")[0]
        code = "G3.native" if package.startswith("_") else table.code_of(name)
        if not code and self.file.project.allowed.is_everything:
            return
        if not code:
            is_known = self.file.project.allowed.has(package)
            code = "G3.unknown" if is_known else "G3.import"
        self._sign(code, f"the import of {name}", node, scope)

    # --- names ----------------------------------------------------------------------------------

    def _judge(self, node: ast.expr, scope: Scope, use: Use, call: ast.Call | None) -> None:
        """Hold what an expression may stand for against the table, for the use that is made of it."""
        for value in self.file.values(node, scope):
            if value.kind == "outside":
                self._judge_outside(value.name, node, scope, use, call)
            elif value.kind == "module" and use != "base":
                self._sign("G3.reflection", f"the module {ast.unparse(node)} as a value", node, scope)
            elif value.kind == "super" and use == "value":
                self._sign("G3.reflection", "super() as a value", node, scope)
            elif value.kind == "symbol" and use not in ("base", "type") and value.home is not None:
                self._refer(value.home, value.node, ast.unparse(node), node, scope, call)

    def _judge_outside(self, name: str, node: ast.expr, scope: Scope, use: Use, call: ast.Call | None) -> None:
        first, _, rest = name.partition(".")
        if name in table.MODULES or (first != "builtins" and not rest):
            if use != "base":
                self._sign("G3.reflection", f"the module {name} as a value", node, scope)
            return
        if name in table.ONLY_DECORATORS and use != "type":
            code = "G3.node" if first == "graphbus_core" else "G3.patch"
            self._sign(code, f"{name} other than as a decorator", node, scope)
            return
        if name in table.MADE_BY_CALL and use == "call":
            self._sign("G3.base", f"a class made by a call of {name}", node, scope)
            return
        if use == "base" or table.is_harmless(name):
            self._judge_mutation(name, node, scope, use)
            return
        last = name.rpartition(".")[2]
        if first == "builtins":
            if rest in table.CALLED_ONLY:
                if use != "type" and (use != "call" or rest in ("getattr", "hasattr")):
                    self._sign("G3.reflection", f"{rest} as a value", node, scope)
                return
            if rest.partition(".")[0] in _OF_MODULES:
                return
        elif use == "type" and last[:1].isupper():
            return
        shown = rest if first == "builtins" else name
        code = table.code_of(name)
        if not code and self.file.project.allowed.is_everything and first != "builtins":
            return
        if first == "builtins" and rest.partition(".")[0] not in _BUILTINS:
            self._sign("G3.unknown", f"the name {shown}, which nothing here binds", node, scope, is_counted=False)
            return
        way = call if call is not None else node
        self._sign(code or "G3.unknown", f"the use of {shown}", node, scope, way=way, is_counted=bool(code))

    def _judge_mutation(self, name: str, node: ast.expr, scope: Scope, use: Use) -> None:
        """`string.ascii_letters.clear()`, if it could: a container of a module outside."""
        stem, _, last = name.rpartition(".")
        if use == "call" and last in table.MUTATORS and stem.count(".") >= 1 and not stem.startswith("builtins."):
            if not table.makes_objects(stem):
                self._sign("G3.patch", f"changing {stem}", node, scope)

    # --- attributes -----------------------------------------------------------------------------

    def _judge_attribute(
        self, value: Value, node: ast.Attribute, scope: Scope, use: Use, call: ast.Call | None
    ) -> None:
        name = node.attr
        if value.kind == "outside":
            return
        if value.kind == "module":
            if _is_internal(name) and name not in table.OF_MODULES:
                self._sign("G3.reflection", f"the attribute {name}", node, scope)
            return
        if isinstance(node.value, ast.Attribute) and node.value.attr == "__class__" and name not in table.OF_CLASSES:
            self._sign("G3.reflection", f"{name} of a class by its hidden attribute", node, scope)
            return
        if self._is_internal_attribute(value, node, scope, use):
            return
        if name in table.FRAMES:
            self._sign("G3.reflection", f"the attribute {name}", node, scope)
        elif name in ("_connection", "_connected"):
            self._sign("G3.node", f"the attribute {name}", node, scope)
        elif value.kind == "shared" and name in table.MUTATORS and use == "call":
            self._sign("G3.patch", f"changing {ast.unparse(node.value)} of another module or class", node, scope)
        elif value.kind in ("self", "super", "class", "symbol", "object") and value.node is not None:
            self._judge_member(value, node, scope, use, call)
        elif value.kind == "symbol":
            self._judge_data(node, scope, use, call)
        elif not self._is_of_instance(value, name):
            self._judge_data(node, scope, use, call)

    def _is_internal_attribute(self, value: Value, node: ast.Attribute, scope: Scope, use: Use) -> bool:
        """Handle names with two underscores on both sides; only those of the table lead nowhere."""
        name = node.attr
        if not _is_internal(name):
            return False
        if name == "__class__" and use == "base":
            return True
        if name not in table.DUNDERS or (name == "__init__" and value.kind not in ("super", "symbol")):
            self._sign("G3.reflection", f"the attribute {name}", node, scope)
        return True

    def _is_of_instance(self, value: Value, name: str) -> bool:
        return value.kind == "object" and name in table.OF_INSTANCES.get(value.name, ())

    def _judge_member(
        self, value: Value, node: ast.Attribute, scope: Scope, use: Use, call: ast.Call | None
    ) -> None:
        """An attribute of an object or class of the project."""
        name, home = node.attr, value.home
        if home is None:
            return
        is_node = home.is_agent(value.node)
        if is_node and name in table.NODE:
            if value.kind not in ("self", "super"):
                self._sign("G3.node", f"{name} of a class or of another agent", node, scope)
            elif name in ("publish", "request") and call is not None and _says_more(call, 2 + (name == "request")):
                self._sign("G3.node", f"{name} with more than a topic and a payload", node, scope)
            elif name in ("publish", "request", "call") and call is None:
                self._sign("G3.node", f"{name} as a value", node, scope)
            elif name in ("publish", "request", "call") and value.kind == "super":
                self._sign("G3.node", f"{name} of the base class", node, scope)
        elif value.kind == "class" and name in table.OF_CLASSES:
            return
        elif not home.has_member(value, name):
            self._judge_data(node, scope, use, call)
        elif name.startswith("_") and home is not self.file and value.kind not in ("self", "super", "class"):
            self._sign("G3.unknown", f"the private attribute {name} of something else", node, scope, is_counted=False)

    def _judge_data(self, node: ast.Attribute, scope: Scope, use: Use, call: ast.Call | None) -> None:
        """An attribute of something of which nothing is known."""
        name = node.attr
        way: ast.AST = call if call is not None else node
        if name in ("format", "format_map"):
            self._judge_format(node, scope, call)
        elif name == "replace":
            if call is None or _could_rename(call):
                self._sign("G3.files", "a call of replace" if call else "replace as a value", node, scope, way=way)
        elif name in table.ATTRIBUTES or (name in table.STREAMS and call is not None and _reads_on(call)):
            return
        elif self._is_defined(name):
            if use in ("call", "value"):
                self._refer(None, None, name, node, scope, way)
        elif name in table.ACTING:
            verb = "a call of" if call is not None else "the attribute"
            self._sign(table.ACTING[name], f"{verb} {name}", node, scope, way=way)
        elif name.lstrip("_") in table.MODULES_INSIDE:
            self._sign("G3.reflection", f"the attribute {name}, which is the name of a module", node, scope)
        elif not self.file.project.allowed.is_everything or name.startswith("_"):
            shown = "the private attribute" if name.startswith("_") else "the attribute"
            self._sign("G3.unknown", f"{shown} {name} of something unknown", node, scope, is_counted=False)

    def _is_defined(self, name: str) -> bool:
        """Tell whether a class of the project has an attribute of this name: private ones count in their own file only."""
        return name in self.file.fields or (not name.startswith("_") and self.file.project.defines(name))

    def _judge_format(self, node: ast.Attribute, scope: Scope, call: ast.Call | None) -> None:
        """`text.format(...)`: the text may ask for attributes of what it is given."""
        texts = self.file.constants(node.value, scope)
        if call is None:
            self._sign("G3.reflection", f"{node.attr} as a value", node, scope)
        elif texts is not None:
            for text in texts:
                self._judge_fields(text, node, scope)
        elif not all(_is_scalar(part) for part in (*call.args, *(keyword.value for keyword in call.keywords))):
            self._sign("G3.reflection", "a format that is not constant", node, scope, way=call)

    def _judge_fields(self, text: str, node: ast.Attribute, scope: Scope) -> None:
        try:
            fields = list(_fields_of(text))
        except ValueError:
            return
        for field in fields:
            for part in re.findall(r"\.([^.\[\]]+)", field):
                asked = ast.copy_location(ast.Attribute(ast.Name("_", ast.Load()), part, ast.Load()), node)
                self._judge_attribute(DATA, asked, scope, "value", None)

    # --- changes of what is not one's own ------------------------------------------------------------

    def _see_write(self, node: ast.Attribute, scope: Scope) -> None:
        self._see(node.value, scope, "base")
        if node.attr in table.GUARDED:  # declarations.py gives a sign of its own for it
            return
        if not all(self._may_write(value, node, scope) for value in self.file.values(node.value, scope)):
            is_of_node = node.attr in table.NOT_TO_REPLACE
            self._sign("G3.node" if is_of_node else "G3.patch", f"setting {ast.unparse(node)}", node, scope)

    def _may_write(self, value: Value, node: ast.Attribute, scope: Scope) -> bool:
        name = node.attr
        if _is_internal(name) or name in table.FRAMES:
            return False
        if value.kind == "self" and value.home is not None:
            if value.home.is_agent(value.node) and name in table.NODE | table.NOT_TO_REPLACE:
                return False
            self._refer_to_overridden(value.home, value.node, name, node, scope)
            return not any(
                isinstance(bound.source, Definition) and not _is_property(bound.source)
                for home, step in value.home.lineage(value.node)
                for bound in home.scopes.of[id(step)].bindings.get(name, ())
            )
        if value.kind == "object" and self._is_made_here(node.value, scope):
            return not (value.home is not None and value.home.is_agent(value.node))
        return value.kind in ("data", "object") and self._is_plain_field(name)

    def _is_made_here(self, node: ast.expr, scope: Scope) -> bool:
        """Tell whether a name stands only for objects that this function has made."""
        function = scope.function
        if not isinstance(node, ast.Name) or function is None or node.id not in function.bindings:
            return False
        return all(
            value.kind == "object" and (value.node is not None or table.makes_objects(value.name))
            for bound in function.bindings[node.id]
            for value in self.file._values_of_binding(bound, scope)
        )

    def _is_plain_field(self, name: str) -> bool:
        """Tell whether an attribute is a field of a class of the project that is no agent, and a method of none."""
        owners = self.file.project.fields(name)
        own = [(self.file, owner, method) for owner, method in self.file.fields.get(name, ())]
        found = [*owners, *own]
        return bool(found) and not any(method is not None or home.is_agent(owner) for home, owner, method in found)

    def _see_change(self, base: ast.expr, node: ast.AST, scope: Scope) -> None:
        """`base[...] = ...` and `del base[...]`."""
        kinds = {value.kind for value in self.file.values(base, scope)}
        if kinds & {"shared", "outside", "module", "class", "symbol"}:
            self._sign("G3.patch", f"changing {ast.unparse(base)} of another module or class", node, scope)

    def _rebound_names(self, module: Scope) -> None:
        """Another meaning for what is imported, defined or built in, for all of the file."""
        for name, bound in module.bindings.items():
            sources = [one.source for one in bound]
            imports = {source for source in sources if isinstance(source, Import)}
            others = [source for source in sources if not isinstance(source, (Import, Definition))]
            defined = [source for source in sources if isinstance(source, Definition)]
            others = [source for source in others if not (isinstance(source, ast.Constant) and source.value is None)]
            is_mixed = len(imports) > 1 or (bool(imports or defined) and bool(others or (imports and defined)))
            if is_mixed or (name in _BUILTINS and not _is_internal(name)):
                line = max((getattr(source, "lineno", 0) for source in sources), default=0)
                self.signs.append(Sign("G3.patch", f"another meaning for {name}", line or 1, runs_at_import=True))

    def _internal_names(self, scope: Scope) -> None:
        for name, bound in scope.bindings.items():
            if _is_internal(name) and name not in table.BOUND_FREELY:
                for one in bound:
                    if not isinstance(one.source, Definition):
                        node = one.source if isinstance(one.source, ast.AST) else scope.node
                        self._sign("G3.reflection", f"binding {name}", node, scope)

    # --- calls that are looked at one by one ---------------------------------------------------------

    def _getattr(self, node: ast.Call, scope: Scope) -> None:
        name = _literal(node.args[1]) if len(node.args) > 1 and not node.keywords else None
        if name is None or any(isinstance(argument, ast.Starred) for argument in node.args):
            self._sign("G3.reflection", "getattr with a computed name", node, scope, way=node)
            return
        asked = ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node)
        for value in self.file.values(node.args[0], scope):
            if value.kind == "outside":
                self._judge_outside(f"{value.name}.{name}", asked, scope, "value", None)
            elif value.kind == "module":
                self._sign("G3.reflection", f"getattr of a module with the name {name}", node, scope)
            else:
                self._judge_attribute(value, asked, scope, "value", None)

    def _attrgetter(self, node: ast.Call, scope: Scope) -> None:
        called = {value.name for value in self.file.values(node.func, scope)} & table.BY_NAME
        self._called_by_name |= called
        names = [_literal(argument) for argument in node.args]
        names = names[:1] if "operator.methodcaller" in called else names
        if not names or any(name is None for name in names):
            self._sign("G3.reflection", "an attribute of a computed name", node, scope)
        for name in names:
            for part in (name or "").split("."):
                asked = ast.copy_location(ast.Attribute(ast.Name("_", ast.Load()), part or "_", ast.Load()), node)
                if part in table.ACTING:
                    self._sign("G3.reflection", f"{part} by its name", node, scope)
                else:
                    self._judge_attribute(DATA, asked, scope, "value", None)

    def _type(self, node: ast.Call, scope: Scope) -> None:
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._sign("G3.base", "a class made by a call of type", node, scope)

    def _open(self, node: ast.Call, scope: Scope) -> None:
        code = "G3.files" if _writes(node) else "G3.read"
        self._sign(code, "opening a file to write" if code == "G3.files" else "opening a file", node, scope, way=node)

    def _print(self, node: ast.Call, scope: Scope) -> None:
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg == "file":
                values = self.file.values(keyword.value, scope)
                names = {value.name for value in values}
                if not names <= {"sys.stdout", "sys.stderr", "io.StringIO"} or "" in names:
                    self._sign("G3.files", "print into a file", node, scope, way=node)

    def _pass_over(self, node: ast.Call, scope: Scope) -> None:
        pass


class _Anonymous(ast.NodeTransformer):
    """Leaves out the names of local data and of methods of one's own."""

    def __init__(self, file: FileUses, scope: Scope) -> None:
        self.file = file
        self.scope = scope

    def visit_Name(self, node: ast.Name) -> ast.AST:
        values = self.file.values_of_name(node.id, self.scope)
        return node if any(value.kind == "outside" for value in values) else ast.Name("_", ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        inner = self.visit(node.value)
        is_plain = node.attr not in table.ACTING and node.attr not in table.FRAMES
        return ast.Name("_", ast.Load()) if _is_blank(inner) and is_plain else ast.Attribute(inner, node.attr, ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        found = ast.Call(
            self.visit(node.func),
            [self.visit(argument) for argument in node.args],
            [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords],
        )
        is_blank = all(_is_blank(part) for part in (found.func, *found.args)) and not found.keywords
        return ast.Name("_", ast.Load()) if is_blank else found

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        inner = self.visit(node.value)
        return inner if _is_blank(inner) else ast.Subscript(inner, self.visit(node.slice), ast.Load())


def _is_blank(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "_"


def _copied(node: ast.AST) -> ast.AST:
    from copy import deepcopy

    return deepcopy(node)


def _texts(node: ast.AST) -> Iterator[str]:
    """Give the constants of a use, as text; how a file is opened and read says nothing about which one it is."""
    for step in ast.walk(node):
        if isinstance(step, ast.Constant) and not isinstance(step.value, (bool, type(None))) and step.value not in _MANNERS:
            yield step.value if isinstance(step.value, str) else repr(step.value)


def _fields_of(text: str) -> Iterator[str]:
    """Give the fields of a format text, also those inside of format specifications."""
    for _, field, specification, _ in string.Formatter().parse(text):
        if field is not None:
            yield field
            yield from _fields_of(specification or "")


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _class_around(scope: Scope) -> ast.AST | None:
    step: Scope | None = scope
    while step is not None and step.kind != "class":
        step = step.parent
    return step.node if step is not None else None


def _is_internal(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and len(name) > 4


def _is_type_form(node: ast.Subscript) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "type"


def _is_property(node: ast.AST) -> bool:
    return any(
        _name_of(decorator) in ("property", "cached_property", "setter") for decorator in getattr(node, "decorator_list", ())
    )


def _is_scalar(node: ast.expr) -> bool:
    """Tell whether an expression is surely a text or a number, which have no attributes of interest."""
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, ast.BinOp):
        return _is_scalar(node.left) and _is_scalar(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SCALARS


def _says_more(call: ast.Call, most: int) -> bool:
    """Tell whether a call passes more than the public parameters of a method."""
    named = {keyword.arg for keyword in call.keywords}
    is_open = None in named or any(isinstance(argument, ast.Starred) for argument in call.args)
    return is_open or "src" in named or len(call.args) > most


def _could_rename(call: ast.Call) -> bool:
    """`x.replace(y)` could be that of a path; texts take two texts, dates take names."""
    named = {keyword.arg for keyword in call.keywords}
    if None in named or "target" in named or any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    return len(call.args) == 1 and not named


def _reads_on(call: ast.Call) -> bool:
    """`file.read()`, `file.read(4096)`: of what is open already; a path or name would be another file."""
    return not call.keywords and all(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in call.args)


def _writes(call: ast.Call) -> bool:
    """Tell whether a file is opened to write, or nobody can know."""
    named = [keyword.value for keyword in call.keywords if keyword.arg in ("mode", None)]
    mode = named[0] if named else call.args[1] if len(call.args) > 1 else None
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return True
    if mode is None:
        return False
    is_read = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rbtU")
    return not is_read
