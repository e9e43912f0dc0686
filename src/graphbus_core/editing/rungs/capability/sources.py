"""Finds which values each name and expression in the files of a project may have. Kinds of values:

    data       plain data: parameters, results, literals
    shared     data that belongs to another module or class: it may be read, not changed
    outside    a module from outside of the project, or a member of one, by its dotted name; builtins as `builtins.open`
    module     a module of the project
    symbol     a function or class of the project
    object     an object that a call of a class has made: a class of the project (`node`) or of elsewhere (`name`)
    self       the object of a method; `super` is the same, seen as its base classes
    class      the class of an object: `cls`, `type(x)`

An expression may have several values; a container has all values of its elements.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.modules import Library
from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.scopes import (
    AttributeWrite,
    ImportedName,
    NameBinding,
    NameScope,
    NameScopes,
    defaults_of,
)
from graphbus_core.editing.text.source_text import Definition


class AllowedPackages(NamedTuple):
    """The packages that may be imported besides the standard library."""

    packages: frozenset[str]
    is_everything: bool = False

    def has(self, package: str) -> bool:
        """True if a package may be imported."""
        return self.is_everything or package in self.packages or package in sys.stdlib_module_names


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
BUILTINS = frozenset(dir(builtins)) | {"__file__", "__builtins__", "__class__", "__dict__", "exit", "quit"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_PLAIN_CLASS_DECORATORS = frozenset({"dataclass", "total_ordering", "final", "runtime_checkable", "define", "frozen"})
"""Decorators after which calling the class still makes a new object."""
_NOT_METHODS = frozenset({"classmethod", "staticmethod", "property", "cached_property"})
"""Decorators after which a function is not called with an object as its first argument."""
_CLASS_METHODS = frozenset({"classmethod", "__init_subclass__", "__new__", "__class_getitem__"})
"""Decorators and methods whose first parameter is a class."""


_MAX_STEPS = 100_000
"""The most expressions of a file that are evaluated: ten times what 100 kB of ordinary code need, about a second."""

_ValueKind = Literal["data", "shared", "outside", "module", "symbol", "object", "self", "super", "class"]


class TooMuchToJudge(Exception):  # noqa: N818 - becomes a refusal
    """Finding the values of the names in a file takes too many steps."""


class Value(NamedTuple):
    """One value that an expression may have.

    Attributes:
        kind: See the head of this module.
        name: The dotted name of something outside of the project.
        home: The file of the project that defines it.
        node: The function or class; for `self`, `super`, `class` and `object` the class.
    """

    kind: _ValueKind
    name: str = ""
    home: AnalyzedFile | None = None
    node: ast.AST | None = None


Values = tuple[Value, ...]
DATA = Value("data")


def _merge_values(*several: Values) -> Values:
    """Return all values, each once; plain data if there are none."""
    return tuple(dict.fromkeys(value for values in several for value in values)) or (DATA,)


_Field = tuple["AnalyzedFile", "ast.ClassDef | None", "ast.AST | None"]
"""Where an attribute is defined: the file, the class (None for `namedtuple` and the like), the method if it is one."""


class AnalyzedFile:
    """A file of the project with its scopes; finds the values of its expressions on demand.

    Attributes:
        package: The package from which relative imports start.
    """

    def __init__(self, path: str, module: str, tree: ast.Module, project: AnalyzedFiles) -> None:
        self.path = path
        self.module = module
        self.tree = tree
        self.project = project
        self.package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        self.scopes = NameScopes(tree, self.package)
        self._values: dict[tuple[int, int], tuple[ast.expr, Values]] = {}  # a node that is kept keeps its id
        self._busy: set[tuple[int, int]] = set()
        self._steps = 0

    def _count_step(self) -> None:
        """Count one step of the evaluation.

        Raises:
            TooMuchToJudge: There were too many. A limit in seconds would depend on the machine.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise TooMuchToJudge

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the syntax tree, outer ones before inner ones."""
        return list(ast.walk(self.tree))

    @cached_property
    def fields(self) -> dict[str, list[tuple[ast.ClassDef | None, ast.AST | None]]]:
        """Name of an attribute -> (class, method) for each class of this file that defines it.

        The method is None for an attribute that is none; the class is None for a field of a `namedtuple` and the like.
        """
        found: dict[str, list[tuple[ast.ClassDef | None, ast.AST | None]]] = {}
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                for name, bound in self.scopes.of[id(node)].bindings.items():
                    methods = [one.source for one in bound if isinstance(one.source, FUNCTIONS)]
                    found.setdefault(name, []).append((node, methods[0] if methods else None))
                for write in self.own_writes(node):
                    found.setdefault(write.attribute, []).append((node, None))
            elif isinstance(node, ast.Call):
                for name in _find_fields_made_by(node):
                    found.setdefault(name, []).append((None, None))
        return found

    # --- values of expressions ----------------------------------------------------------------

    def values(self, node: ast.expr, scope: NameScope) -> Values:
        """Return all values that an expression may have; a circular definition adds plain data. Raises TooMuchToJudge."""
        key = (id(node), id(scope))
        if key not in self._values:
            if key in self._busy:
                return (DATA,)
            self._count_step()
            self._busy.add(key)
            try:
                self._values[key] = node, self._evaluate(node, scope)
            finally:
                self._busy.discard(key)
        return self._values[key][1]

    def _evaluate(self, node: ast.expr, scope: NameScope) -> Values:
        """Return all values of an expression, for `values`, which caches them."""
        if isinstance(node, ast.Name):
            return self.values_of_name(node.id, scope)
        if isinstance(node, ast.Attribute):
            return _merge_values(*(self.attribute(value, node.attr) for value in self.values(node.value, scope)))
        if isinstance(node, ast.Call):
            return self._values_of_call(node, scope)
        if isinstance(node, _COMPREHENSIONS):
            inner = self.scopes.of[id(node)]
            return self.values(node.value if isinstance(node, ast.DictComp) else node.elt, inner)
        found = _merge_values(*(self.values(part, scope) for part in _parts_with_values(node)))
        return _merge_values(found, (DATA,)) if any(_may_be_unrelated(node, value) for value in found) else found

    def values_of_name(self, name: str, scope: NameScope) -> Values:
        """Return all values that a name may have when it is read in a scope."""
        bound = scope.find(name)
        if bound is None:
            return self._find_in_star_imports(name)
        found = _merge_values(*(self.values_of_binding(one) for one in bound))
        # after `del` or `except ... as`, a name of the module stands for the builtin again
        is_of_module = any(one.source is None for one in bound) and name in self.scopes.module.bindings
        return (
            _merge_values(found, (Value("outside", f"builtins.{name}"),))
            if is_of_module and name in BUILTINS
            else found
        )

    def _find_in_star_imports(self, name: str) -> Values:
        """Return the values of a name that only a star import, or Python itself, can define."""
        for module in self.scopes.module.stars:
            other = self.project.module(module)
            if other is not None and name in other.scopes.module.bindings:
                return other.exported(name)
            if other is None and name not in BUILTINS:
                return (Value("outside", f"{module}.{name}"),)
        return (Value("outside", f"builtins.{name}"),)

    def exported(self, name: str) -> Values:
        """Return the values that another module gets for a name of this module; data and objects become `shared`."""
        if name not in self.scopes.module.bindings and not self.scopes.module.stars:
            inner = self.project.module(f"{self.module}.{name}")
            return (Value("module", home=inner),) if inner else (Value("shared"),)
        found = self.values_of_name(name, self.scopes.module)
        return tuple(Value("shared") if value.kind in ("data", "object") else value for value in found)

    def values_of_binding(self, bound: NameBinding) -> Values:
        """Return all values that one binding may give to a name."""
        source = bound.source
        if source is None:
            return (DATA,)
        if isinstance(source, ImportedName):
            return self.imported(source)
        if isinstance(source, Definition):
            return (Value("symbol", home=self, node=source),)
        if isinstance(source, ast.arg):
            return self._values_of_parameter(source, bound.scope)
        return self.values(source, bound.scope) if isinstance(source, ast.expr) else (DATA,)

    def imported(self, source: ImportedName) -> Values:
        """Return the values of an imported module or name: those of the project, else one from outside."""
        module = self.project.module(source.module)
        is_own = module is self and bool(source.name)  # a package imports a module of its own: `from . import x`
        if module is not None and not is_own:
            return module.exported(source.name) if source.name else (Value("module", home=module),)
        if source.name:
            inner = self.project.module(f"{source.module}.{source.name}")
            if inner is not None:
                return (Value("module", home=inner),)
        return (Value("outside", f"{source.module}.{source.name}".rstrip(".")),)

    def _values_of_parameter(self, parameter: ast.arg, scope: NameScope) -> Values:
        """Return the values of a parameter: the object or class for `self` and `cls`, else plain data and its default."""
        function = scope.node
        if not isinstance(function, FUNCTIONS):
            return (DATA,)
        owner = scope.parent
        if isinstance(function, Definition) and owner is not None and owner.kind == "class":
            kinds = {function.name, *(name_of(decorator) for decorator in function.decorator_list)}
            first = [*function.args.posonlyargs, *function.args.args][:1]
            if first == [parameter] and "staticmethod" not in kinds:
                return (Value("class" if kinds & _CLASS_METHODS else "self", home=self, node=owner.node),)
        default = defaults_of(function.args).get(parameter.arg)
        return _merge_values((DATA,), self.values(default, scope.parent or scope)) if default is not None else (DATA,)

    def _values_of_call(self, node: ast.Call, scope: NameScope) -> Values:
        """Return the values of a call, over all functions that it may call."""
        return _merge_values(*(self._values_of_result(value, node, scope) for value in self.values(node.func, scope)))

    def _values_of_result(self, function: Value, node: ast.Call, scope: NameScope) -> Values:
        """Return the values of a call of one function or class; for one from outside, an object with its dotted name.

        A call of a class of the project gives an object, `super()` and `type(x)` what they stand for, any other call plain data.
        """
        if isinstance(function.node, ast.ClassDef) and function.kind in ("symbol", "class"):
            return (function._replace(kind="object"),)
        if function.name == "builtins.super":
            return (Value("super", home=self, node=_find_enclosing_class(scope)),)
        if function.name == "builtins.type":
            of = self.values(node.args[0], scope) if node.args else (DATA,)
            return tuple(Value("class", home=one.home, node=one.node) for one in of)
        if function.kind != "outside":
            return (DATA,)
        passed = [self.values(argument, scope) for argument in node.args] if function.name in table.MADE_BY else []
        return _merge_values((Value("object", function.name),), *passed)

    def attribute(self, value: Value, name: str) -> Values:
        """Return the values of an attribute of a value. Data of agent classes, and of classes in other files, is `shared`."""
        if value.kind == "outside":
            return (value._replace(name=f"{value.name}.{name}"),)
        if value.kind == "module" and value.home is not None:
            return value.home.exported(name)
        if not isinstance(value.node, ast.ClassDef) or value.home is None:
            return (DATA,)
        if name == "__class__":
            return (value._replace(kind="class"),)
        found = value.home.member(value, name)
        is_of_other = value.kind in ("symbol", "class") and (value.home is not self or self.is_agent(value.node))
        if is_of_other and not value.home._is_enum(value.node):
            return tuple(Value("shared") if one.kind == "data" else one for one in found)
        return found

    def member(self, value: Value, name: str) -> Values:
        """Return the values of an attribute of a class of this file, bases included, or of one of its objects."""
        if name == "state" and value.kind == "self":
            return (Value("object", "graphbus_core.State"),)
        bound = self.bound(value.node, name, skip_first=value.kind == "super")
        return _merge_values(*(home.values_of_binding(one) for home, _, found in bound for one in found))

    def bound(
        self, node: ast.AST | None, name: str, *, skip_first: bool = False
    ) -> Iterator[tuple[AnalyzedFile, ast.ClassDef, list[NameBinding]]]:
        """Yield (file, class, bindings) for a class and each of its bases in the project that defines an attribute.

        The bindings are those in the class body and those on `self`. `skip_first` leaves the class itself out.
        """
        for home, step in self.lineage(node, skip_first=skip_first):
            writes = (write for write in home.own_writes(step) if write.attribute == name)
            found = [
                *home.scopes.of[id(step)].bindings.get(name, ()),
                *(NameBinding(each.value, each.scope) for each in writes),
            ]
            if found:
                yield home, step, found

    def lineage(self, node: ast.AST | None, *, skip_first: bool = False) -> list[tuple[AnalyzedFile, ast.ClassDef]]:
        """Return (file, class) for a class and, recursively, its bases in the project; `skip_first` leaves the class out."""
        found: list[tuple[AnalyzedFile, ast.ClassDef]] = []
        waiting: list[tuple[AnalyzedFile, ast.AST | None]] = [(self, node)]
        while waiting:
            home, step = waiting.pop(0)
            if not isinstance(step, ast.ClassDef) or any(step is known for _, known in found):
                continue
            found.append((home, step))
            waiting += [(one.home, one.node) for one in home.bases(step) if one.kind == "symbol" and one.home]
        return found[1:] if skip_first else found

    def bases(self, node: ast.ClassDef) -> Values:
        """Return the values of the expressions that a class names as its bases."""
        scope = self.scopes.of[id(node)].parent or self.scopes.module
        return tuple(value for base in node.bases for value in self.values(base, scope))

    def is_agent(self, node: ast.AST | None) -> bool:
        """True if a class is an agent, i.e. inherits from GraphBusNode."""
        return any(
            value.kind == "outside" and value.name.startswith("graphbus_core.") and value.name.endswith(".GraphBusNode")
            for home, step in self.lineage(node)
            for value in home.bases(step)
        )

    def _is_enum(self, node: ast.AST | None) -> bool:
        """True if a class derives from an Enum."""
        return any(value.name in table.MADE_BY_CALL for home, step in self.lineage(node) for value in home.bases(step))

    def makes_objects(self, node: ast.AST | None) -> bool:
        """True if calling a class makes a new object, unlike an Enum or a class with a caching decorator."""
        decorators = {name_of(one) for _, step in self.lineage(node) for one in step.decorator_list}
        return not self._is_enum(node) and decorators <= _PLAIN_CLASS_DECORATORS

    def has_member(self, value: Value, name: str) -> bool:
        """True if a class of the project, or one of its bases, defines an attribute."""
        return any(self.bound(value.node, name, skip_first=value.kind == "super"))

    def is_method(self, node: ast.AST | None, name: str) -> bool:
        """True if a class has a method of this name with `self` as its first parameter."""
        return any(
            isinstance(one.source, (ast.FunctionDef, ast.AsyncFunctionDef))
            and not {name_of(decorator) for decorator in one.source.decorator_list} & _NOT_METHODS
            for _, _, found in self.bound(node, name)
            for one in found
        )

    def own_writes(self, node: ast.ClassDef) -> list[AttributeWrite]:
        """Return the assignments to attributes of `self` in the methods of a class."""
        return self._own_writes.get(id(node), [])

    @cached_property
    def _own_writes(self) -> dict[int, list[AttributeWrite]]:
        """`id(class node)` -> the assignments to attributes of `self` in its methods."""
        found: dict[int, list[AttributeWrite]] = {}
        for scope in self.scopes.of.values():
            for write in scope.writes:
                bound = (scope.find(write.base.id) if isinstance(write.base, ast.Name) else None) or ()
                owners = [self.values_of_binding(one)[0] for one in bound if isinstance(one.source, ast.arg)]
                for owner in owners:
                    if owner.kind == "self":
                        found.setdefault(id(owner.node), []).append(write)
        return found

    def constants(self, node: ast.expr, scope: NameScope) -> tuple[str, ...] | None:
        """Return the texts that an expression can have, if it can have no other value; else None.

        Looking a key up in a constant dict, by `d[key]` or `d.get(key)`, may give any of its values.
        """
        if isinstance(node, ast.Constant):
            return (node.value,) if isinstance(node.value, str) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.constants(node.left, scope), self.constants(node.right, scope)
            return tuple(one + other for one in left for other in right) if left and right else None
        if isinstance(node, ast.Subscript):
            source = self._sole_source(node.value, scope) if name_of(node.value) not in self._passed_names else None
            parts = [self.constants(value, scope) for value in source.values] if isinstance(source, ast.Dict) else []
            return tuple(text for part in parts for text in part or ()) if parts and all(parts) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            found = ast.Subscript(node.func.value, ast.Constant(0), ast.Load())
            parts = [self.constants(part, scope) for part in (found, *node.args[1:])]
            return tuple(text for part in parts for text in part or ()) if all(parts) else None
        source = self._sole_source(node, scope)
        return self.constants(source, scope) if isinstance(source, ast.Constant) else None

    def sources(self, node: ast.AST, scope: NameScope, seen: set[int]) -> Iterator[ast.AST]:
        """Yield the nodes of an expression and, recursively, of all expressions that its names and attributes are bound to.

        `seen` holds the ids of the expressions visited so far. Raises TooMuchToJudge if there are too many nodes.
        """
        if id(node) in seen:
            return
        seen.add(id(node))
        for step in ast.walk(node):
            self._count_step()
            yield step
            bound = scope.find(step.id) or () if isinstance(step, ast.Name) else ()
            origins = [(one.source, one.scope) for one in bound if isinstance(one.source, ast.expr)]
            if isinstance(step, ast.Attribute):
                origins += self._find_origins_of_attribute(step, scope)
            for source, read_in in origins:
                yield from self.sources(source, read_in, seen)
            for one in bound:
                if isinstance(one.source, ImportedName):
                    yield from self._find_sources_elsewhere(one.source, seen)

    def _find_sources_elsewhere(self, source: ImportedName, seen: set[int]) -> Iterator[ast.AST]:
        """Yield the `sources` of a name that is imported from another module of the project."""
        other = self.project.module(source.module)
        for one in other.scopes.module.bindings.get(source.name, ()) if other else ():
            if other and isinstance(one.source, ast.expr):
                yield from other.sources(one.source, one.scope, seen)

    def _find_origins_of_attribute(self, node: ast.Attribute, scope: NameScope) -> Iterator[tuple[ast.expr, NameScope]]:
        """Yield the expressions to which a class of this file binds an attribute, each with its scope."""
        for value in self.values(node.value, scope):
            if value.home is self and isinstance(value.node, ast.ClassDef):
                found = [
                    one for _, step, each in self.bound(value.node, node.attr) if step is value.node for one in each
                ]
                yield from ((one.source, one.scope) for one in found if isinstance(one.source, ast.expr))

    @cached_property
    def _passed_names(self) -> frozenset[str]:
        """The names that this file uses in any other way than `name[key]` and `name.get(key)`: their content may change."""
        read_by_key = {
            id(step.value)
            for step in self.nodes
            if (isinstance(step, ast.Subscript) and isinstance(step.ctx, ast.Load))
            or (isinstance(step, ast.Attribute) and step.attr == "get")
        }
        return frozenset(
            name_of(step)
            for step in self.nodes
            if isinstance(step, (ast.Name, ast.Attribute))
            and isinstance(step.ctx, ast.Load)
            and id(step) not in read_by_key
        )

    def _sole_source(self, node: ast.expr, scope: NameScope) -> ast.AST | None:
        """Return the only node that a name, or an attribute of a class of this file, is bound to; None if there are several.

        None is also returned for an import, and for a name that this file does not bind.
        """
        bound: list[NameBinding] | None = None
        if isinstance(node, ast.Name):
            bound = scope.find(node.id)
        elif isinstance(node, ast.Attribute):
            owners = [value for value in self.values(node.value, scope) if value.kind in ("self", "class", "symbol")]
            if len(owners) == 1 and isinstance(owners[0].node, ast.ClassDef) and owners[0].home is self:
                if len(self.project.fields(node.attr)) != 1:  # a subclass or method may give it another value
                    return None
                bound = self.scopes.of[id(owners[0].node)].bindings.get(node.attr)
        if bound is None or len(bound) != 1 or isinstance(bound[0].source, ImportedName):
            return None
        return bound[0].source


class AnalyzedFiles:
    """The files of a project, each read and parsed on first use.

    Args:
        read: Returns the bytes of a relative path.
        allowed: The packages that may be imported.
    """

    def __init__(self, index: ModuleIndex, read: Callable[[str], bytes | None], allowed: AllowedPackages) -> None:
        self.allowed = allowed
        self._index = index
        self._library = Library(index, read)
        self._files: dict[str, AnalyzedFile] = {}
        self._fields: dict[str, list[_Field]] | None = None

    def module(self, name: str) -> AnalyzedFile | None:
        """Return a module of the project by its dotted name; None if there is none."""
        path = self._library.path_of(name) if name else ""
        return self.file(path, name) if path else None

    def file(self, path: str, name: str = "", tree: ast.Module | None = None) -> AnalyzedFile | None:
        """Return the file of the project at a path; None if it cannot be read.

        `name` is the dotted name of its module, and `tree` its syntax tree; they are found out if the caller does not pass them.
        """
        if path not in self._files:
            if tree is None:
                module = self._library.parsed(path)
                if module is None:
                    return None
                tree, name = module.tree, name or module.name
            self._files[path] = AnalyzedFile(path, name or self._library.module_name(path), tree, self)
        return self._files[path]

    def fields(self, name: str) -> list[_Field]:
        """Return (file, class, method) for each class of the project that has an attribute of this name."""
        if self._fields is None:
            found: dict[str, list[_Field]] = {}
            paths = dict.fromkeys([*self._files, *(file.path for file in self._index.files)])
            for path in list(paths):
                file = self.file(path)
                for field, owners in file.fields.items() if file else ():
                    found.setdefault(field, []).extend((file, owner, method) for owner, method in owners if file)
            self._fields = found
        return self._fields.get(name, [])

    def defines(self, name: str) -> bool:
        """True if a class of the project has an attribute of this name."""
        return bool(self.fields(name))

    def is_below_agents(self, file: AnalyzedFile, node: ast.ClassDef) -> bool:
        """True if a class of a file is an agent, or a base of an agent in the same file."""
        if file.is_agent(node):
            return True
        agents = [step for step in file.nodes if isinstance(step, ast.ClassDef) and file.is_agent(step)]
        return any(known is node for agent in agents for _, known in file.lineage(agent))


def is_internal(name: str) -> bool:
    """True for a name with two underscores on both sides, which Python itself looks up."""
    return name.startswith("__") and name.endswith("__") and len(name) > 4


def name_of(node: ast.AST) -> str:
    """Return the last name of `a.b.c` or `a.b.c(...)`; empty for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _parts_with_values(node: ast.expr) -> list[ast.expr]:
    """Return the sub-expressions whose values an expression may have: elements, operands, alternatives."""
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return node.elts
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [node.value] if isinstance(node, (ast.NamedExpr, ast.Await, ast.Starred, ast.Subscript)) else []


def _may_be_unrelated(node: ast.expr, value: Value) -> bool:
    """True if an expression with a sub-expression of this value may also have another value, which is plain data.

    That is so for an item of an object or class, and for the result of `await` or an operator on one of the project.
    """
    if value.kind not in ("object", "self", "super", "class"):
        return False
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return True
    return isinstance(node, (ast.Await, ast.BinOp)) and value.node is not None


def _find_fields_made_by(node: ast.Call) -> Iterator[str]:
    """Yield the fields that a call such as `namedtuple("P", "x y")` or `SimpleNamespace(x=1)` makes; none for other calls."""
    name = name_of(node)
    if name in ("namedtuple", "NamedTuple"):
        for step in ast.walk(node):
            if isinstance(step, ast.Constant) and isinstance(step.value, str):
                yield from step.value.replace(",", " ").split()
    elif name == "SimpleNamespace":
        yield from (keyword.arg for keyword in node.keywords if keyword.arg)


def _find_enclosing_class(scope: NameScope) -> ast.AST | None:
    """Return the innermost class around a scope; None outside of classes."""
    step: NameScope | None = scope
    while step is not None and step.kind != "class":
        step = step.parent
    return step.node if step is not None else None
