"""Resolves names where they are written: through scopes, imports, re-exports and classes.

A name of a function hides one of the class body, that one of the module, and that a builtin. The result is a `DefinedName`
(defined in a file of the project), a `ModuleRef`, an `External` (its dotted name is all that is known) or None.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.bodies import ANY_NAME, CHANGING_METHODS
from graphbus_core.compiler.reading.syntax import ModuleSource, TypeAlias, type_parameters
from graphbus_core.errors import BuildError

NODE = "graphbus_core.GraphBusNode"
_PUBLIC_NAMES = frozenset({"GraphBusNode", "schema_method", "subscribe", "publishes", "depends_on", "Event", "Topic"})
_PUBLIC_HOMES = frozenset(
    {"graphbus_core", *(f"graphbus_core.{name}" for name in ("node", "decorators", "model.messages", "model.topics"))}
)
_STARS = {
    **dict.fromkeys(_PUBLIC_HOMES, _PUBLIC_NAMES),
    **dict.fromkeys(("typing", "typing_extensions"), frozenset(typing.__all__)),
}
"""Module outside of the project -> the names that `from x import *` binds, if they matter here."""
_MAX_STEPS = 30
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = frozenset(
    {ast.If, ast.Try, ast.TryStar, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match}
)


class ImportBinding(msgspec.Struct, frozen=True):
    """What an import statement binds: a module (`name` empty), or a name in a module."""

    module: str
    name: str


class External(msgspec.Struct, frozen=True):
    """Something outside of the project, by its dotted name; the builtin `str` is `builtins.str`."""

    dotted: str


class DefinedName(msgspec.Struct, frozen=True):
    """A class, a function or an assigned expression, and the module and class that it is written in."""

    module: Module
    node: ast.AST
    owner: ast.ClassDef | None = None


class ModuleRef(msgspec.Struct, frozen=True):
    """A module of the project."""

    module: Module


ResolvedName = External | DefinedName | ModuleRef | None
_WRITTEN_HERE = (DefinedName, ModuleRef)
Binding = ImportBinding | ast.AST


class Bindings:
    """The names that a module or class body binds, conditional blocks included.

    Attributes:
        first: Name -> its first binding: an import, a class, a function, or the expression assigned.
        rebound: Names that are bound more than once or in a way that is not followed; their value is not known.
        stars: Modules that are imported with `*`.
        unsure: Names that only some runs bind, as they are assigned in a conditional block.
        written: Attributes that are assigned, of any object: `Agent.TOPIC = "/T"`.
        classes: The class statements, and whether each is in a conditional block.
    """

    __slots__ = ("classes", "first", "rebound", "stars", "unsure", "written")

    def __init__(self, body: Iterable[ast.stmt], package: str = "") -> None:
        self.first: dict[str, Binding] = {}
        self.rebound: set[str] = set()
        self.stars: list[str] = []
        self.classes: list[tuple[ast.ClassDef, bool]] = []
        self.unsure: set[str] = set()
        self.written: set[str] = set()
        self._collect_names(body, package, is_conditional=False)

    def rebinds(self, value: ast.AST) -> bool:
        """True if the name whose first binding is this value is bound again, or changes in a way that is not followed."""
        return any(binding is value and name in self.rebound for name, binding in self.first.items())

    def _collect_names(self, body: Iterable[ast.stmt], package: str, *, is_conditional: bool) -> None:
        """Note the names that statements bind, those in conditional blocks included."""
        for statement in body:
            if statement.__class__ in _BLOCKS:
                self._collect_in_block(statement, package)
            elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self._bind_name(statement.name, statement)
                if isinstance(statement, ast.ClassDef):
                    self.classes.append((statement, is_conditional))
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                self._collect_imported(statement, package)
            elif isinstance(statement, TypeAlias):
                self._bind_name(statement.name.id, statement)  # not its value: the name stands for an object of its own
            else:
                self._collect_assigned(statement, is_conditional=is_conditional)

    def _collect_assigned(self, statement: ast.stmt, *, is_conditional: bool) -> None:
        """Note the names that an assignment binds; a name that is deleted or changed by `+=` is marked as rebound."""
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.NamedExpr):
            self._bind_target(statement.value.target, statement.value.value)
        elif isinstance(statement, ast.AugAssign):
            self._bind_target(statement.target, None)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                self._bind_target(target, None)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                self._bind_target(target, statement.value)
                if is_conditional and isinstance(target, ast.Name):
                    self.unsure.add(target.id)

    def _collect_in_block(self, statement: ast.stmt, package: str) -> None:
        """Note the names that a compound statement binds: its loop variable, those after `as`, and those in its blocks."""
        for bound in (statement, *getattr(statement, "items", ())):
            target = getattr(bound, "target", None) or getattr(bound, "optional_vars", None)
            if target is not None:
                self._bind_target(target, None)
        for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for field in ("body", "orelse", "finalbody"):
                self._collect_names(getattr(part, field, ()), package, is_conditional=True)

    def _bind_name(self, name: str, binding: Binding) -> None:
        if name in self.first:
            self.rebound.add(name)
        else:
            self.first[name] = binding

    def _bind_target(self, target: ast.expr, value: ast.expr | None) -> None:
        """Note the names in the target of an assignment; if the value is None (not known), only mark them as rebound."""
        if isinstance(target, ast.Name):
            if value is None:
                self.rebound.add(target.id)
            else:
                self._bind_name(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            is_plain = value is not None and not any(isinstance(part, ast.Starred) for part in target.elts)
            for number, part in enumerate(target.elts):
                self._bind_target(part, _make_subscript(value, number) if is_plain else None)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, None)
        elif isinstance(target, ast.Attribute):
            self.written.add(target.attr)

    def _collect_imported(self, statement: ast.Import | ast.ImportFrom, package: str) -> None:
        """Note the names that an import statement binds; `import a.b` binds `a`."""
        home = ""
        if isinstance(statement, ast.ImportFrom):
            home = absolute_name(statement.module or "", statement.level, package)
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            if alias.name == "*":
                self.stars.append(home)
            elif home:
                self._bind_name(alias.asname or alias.name, ImportBinding(home, alias.name))
            elif alias.asname:
                self._bind_name(alias.asname, ImportBinding(alias.name, ""))
            elif self.first.get(top) != ImportBinding(top, ""):
                self._bind_name(top, ImportBinding(top, ""))


def _make_subscript(value: ast.expr | None, number: int) -> ast.expr | None:
    """Return the expression `value[number]`, which `a, b = value` assigns to the name at this position; None for no value."""
    return ast.copy_location(ast.Subscript(value, ast.Constant(number), ast.Load()), value) if value else None


def absolute_name(name: str, dots: int, package: str) -> str:
    """Return the full dotted name of an import in a module of `package`; `dots` is the number of dots before `name`."""
    if not dots:
        return name
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - (dots - 1)]
    return ".".join([*parts, name] if name else parts)


class Module:
    """A parsed file and the names that it binds at its top level.

    Attributes:
        known: Name -> what it stands for, if that does not depend on another file.
        given: Cache of the types that functions return, if these do not depend on another file.
    """

    __slots__ = ("_changed", "_class_bindings", "bindings", "given", "known", "name", "path", "source", "tree")

    def __init__(self, source: ModuleSource, tree: ast.Module) -> None:
        self.source = source
        self.path = source.path
        self.name = source.module
        self.tree = tree
        is_package = source.path.endswith("__init__.py")
        package = source.module if is_package else source.module.rpartition(".")[0]
        self.bindings = Bindings(tree.body, package)
        if b"global " in source.data:
            statements = (node for node in ast.walk(tree) if isinstance(node, ast.Global))
            self.bindings.rebound.update(name for node in statements for name in node.names)
        self._class_bindings: dict[int, Bindings] = {}
        self.known: dict[str, External | None] = {}
        self.given: dict[tuple[object, ...], Any] = {}
        self._changed: frozenset[str] | None = None

    def changes(self, name: str) -> bool:
        """True if the file changes the content of a container that a variable or attribute of this name holds."""
        if self._changed is None:
            self._changed = frozenset(filter(None, map(_changed_name, ast.walk(self.tree))))
        return name in self._changed

    def class_bindings(self, node: ast.ClassDef) -> Bindings:
        """Return the names that a class body binds."""
        found = self._class_bindings.get(id(node))
        if found is None:
            found = self._class_bindings[id(node)] = Bindings(node.body)
        return found


def _changed_name(node: ast.AST) -> str:
    """Return `rates` for `self.rates["x"] = 1` and `rates.clear()`, which change a container in place; else `""`."""
    owner: ast.expr | None = None
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        owner = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_METHODS:
        owner = node.func.value
    return getattr(owner, "attr", "") or getattr(owner, "id", "")


Read = Callable[[str], bytes | None]


class Library:
    """The modules of a project, each parsed when it is first needed.

    Attributes:
        used: The modules that were looked up since this set was replaced, also missing ones; not the standard library.
        asked: How often a module was looked up.
        families: Path -> line of a class -> its `Family`.
        errors: Path -> why a file could not be parsed.
    """

    def __init__(self, index: ModuleIndex, read: Read) -> None:
        self._read = read
        self._index = index
        self._paths: dict[str, str] = {file.module: file.path for file in index.files}
        self._names: dict[str, str] = {file.path: file.module for file in index.files}
        self._modules: dict[str, Module | None] = {}
        self._listings: dict[str, frozenset[str]] = {}
        self._shared: set[str] = set()
        self._namespaces: dict[str, bool] = {}
        self.used: set[str] = set()
        self.asked = 0
        self.families: dict[str, dict[int, Any]] = {}
        self.errors: dict[str, BuildError] = {}

    def module(self, name: str) -> Module | None:
        """Return the module of a dotted name; None when it is not a readable file of the project."""
        path = self.path_of(name)
        if path or name.partition(".")[0] not in sys.stdlib_module_names:
            self.used.add(name)
            self.asked += 1
        if not path:
            return None
        self._shared.add(path)
        return self.parsed(path)

    def path_of(self, name: str) -> str:
        """Return the relative path of a module, `""` when the project has no such module."""
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = self._find_path(name)
        return path

    def is_outside(self, name: str) -> bool:
        """True for a module of the project that is not part of the index, and for a folder that is no regular package."""
        path = self.path_of(name)
        return path not in self._names if path else self._is_project_folder(name)

    def _find_path(self, name: str) -> str:
        """Return the relative path of a module, `""` when no import root has it."""
        top = name.partition(".")[0]
        if not name or top == "graphbus_core":
            return ""
        for import_root in self._index.import_roots:
            if not {top, f"{top}.py"} & self._list_folder(import_root):
                continue
            prefix = "" if import_root == "." else f"{import_root}/"
            base = prefix + name.replace(".", "/")
            for path in (f"{base}/__init__.py", f"{base}.py"):  # in the order of Python
                if os.path.isfile(os.path.join(self._index.root, path)):
                    return path
        return ""

    def _list_folder(self, folder: str) -> frozenset[str]:
        """Return the names of the entries of a folder, cached; none if the folder cannot be listed."""
        found = self._listings.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(os.path.join(self._index.root, folder)))
            except OSError:
                found = frozenset()
            self._listings[folder] = found
        return found

    def parsed(self, path: str, data: bytes | None = None) -> Module | None:
        """Return a module, parsed once; None if it cannot be, see `errors`. `data` are its bytes, if they were read before."""
        if path not in self._modules:
            self._modules[path] = self._parse(path, data)
        return self._modules[path]

    def _parse(self, path: str, data: bytes | None) -> Module | None:
        """Parse a file; None if it cannot be read, or if it cannot be parsed, which is noted in `errors`."""
        try:
            data = self._read(path) if data is None else data
            if data is None:
                return None
            source = ModuleSource(path, self.module_name(path), data)
            return Module(source, source.parse())
        except BuildError as error:
            self.errors[path] = error
            return None

    def forget(self, path: str) -> None:
        """Release the syntax tree of a file to save memory, unless another file has looked this module up."""
        if path not in self._shared:
            self._modules.pop(path, None)
            self.families.pop(path, None)

    def module_name(self, path: str) -> str:
        """Return the dotted name of the module at a relative path; `""` if it is not known."""
        name = self._names.get(path)
        if name is None:
            name = next((name for name, known in self._paths.items() if known == path), "")
        return name

    def lookup(self, module: Module, name: str, steps: int = 0) -> ResolvedName:
        """Return what a name at the top level of a module stands for; imports are followed."""
        if name in module.known:
            return module.known[name]
        lookups_before = self.asked
        found = self._lookup_uncached(module, name, steps)
        if lookups_before == self.asked and not isinstance(found, _WRITTEN_HERE):
            module.known[name] = found
        return found

    def _lookup_uncached(self, module: Module, name: str, steps: int) -> ResolvedName:
        binding = module.bindings.first.get(name)
        if binding is None:
            return self._lookup_in_star_imports(module, name, steps)
        if isinstance(binding, ImportBinding):
            return self.follow(binding, steps + 1)
        return DefinedName(module, binding)

    def _lookup_in_star_imports(self, module: Module, name: str, steps: int) -> ResolvedName:
        """Look a name up in the modules that are imported with `*`; the first one that has it wins."""
        if steps > _MAX_STEPS:
            return None
        for star in module.bindings.stars:
            if name in _STARS.get(star, ()):
                return external(f"{star}.{name}")
            other = self.module(star)
            found = self.lookup(other, name, steps + 1) if other else None
            if found is not None:
                return found
        return None

    def follow(self, binding: ImportBinding, steps: int = 0) -> ResolvedName:
        """Return what an import binds."""
        if steps > _MAX_STEPS:
            return None
        if not binding.name:
            module = self.module(binding.module)
            return ModuleRef(module) if module else external(binding.module)
        if binding.module in _PUBLIC_HOMES:
            return external(f"{binding.module}.{binding.name}")
        return self.member(binding.module, binding.name, steps)

    def member(self, module_name: str, name: str, steps: int = 0) -> ResolvedName:
        """Return what `name` in the module `module_name` stands for: something that is bound there, or a submodule."""
        module = self.module(module_name)
        found = self.lookup(module, name, steps + 1) if module else None
        if found is not None:
            return found
        if module is None and not self._is_project_folder(module_name):
            return external(f"{module_name}.{name}")
        submodule = self.module(f"{module_name}.{name}")
        return ModuleRef(submodule) if submodule else external(f"{module_name}.{name}")

    def _is_project_folder(self, name: str) -> bool:
        """True if an import root has a folder for this dotted name."""
        found = self._namespaces.get(name)
        if found is None:
            top = name.partition(".")[0]
            roots = [root for root in self._index.import_roots if top in self._list_folder(root)]
            found = any(os.path.isdir(os.path.join(self._index.root, root, *name.split("."))) for root in roots)
            self._namespaces[name] = found
        return found


def external(dotted: str) -> External:
    """Return the `External` of a dotted name; for public names of GraphBus the same one, whichever module they come from."""
    home, _, name = dotted.rpartition(".")
    return External(f"graphbus_core.{name}" if home in _PUBLIC_HOMES and name in _PUBLIC_NAMES else dotted)


_BUILTINS = {name: External(f"builtins.{name}") for name in dir(builtins)}
_MAX_BASES = 50
_MAX_ALIASES = 10
_NAMES = (ast.Name, ast.Attribute)


class ClassSite(msgspec.Struct, frozen=True):
    """A class of the project and the module that it is written in."""

    module: Module
    node: ast.ClassDef


class NameScope(NamedTuple):
    """The place of an expression, from which its names are resolved.

    Attributes:
        chain: The class that is read and its bases of the project, nearest first; `self.x` is looked up in them.
        in_class_body: True for decorators and class attributes of `chain[0]`: they see the names of the class body.
        self_name: The first parameter of the method; empty outside of one.
        hidden: Names that the function binds itself.
        instance_names: Attributes that are assigned outside of the class bodies, `ANY_NAME` for those with a computed name.
    """

    library: Library
    module: Module
    chain: Sequence[ClassSite] = ()
    in_class_body: bool = False
    self_name: str = ""
    hidden: frozenset[str] = frozenset()
    instance_names: frozenset[str] = frozenset()

    def within(self, module: Module) -> NameScope:
        """Return the scope of the top level of another module."""
        return NameScope(self.library, module)

    def in_signature(self, node: ast.AST) -> NameScope:
        """Return the scope of the annotations of a function, in which its type parameters hide other names."""
        own = type_parameters(node)
        return self._replace(hidden=self.hidden | own) if own else self


def resolve(expression: ast.expr, scope: NameScope) -> ResolvedName:
    """Return what a name or a dotted name stands for; None when it is not known."""
    if isinstance(expression, ast.Name):
        return _resolve_name(expression.id, scope)
    return _resolve_attribute(expression, scope) if isinstance(expression, ast.Attribute) else None


def resolve_through(expression: ast.expr, scope: NameScope) -> ResolvedName:
    """Return what a name stands for; aliases such as `Node = GraphBusNode` are followed."""
    return follow_aliases(resolve(expression, scope), scope)


def follow_aliases(target: ResolvedName, scope: NameScope) -> ResolvedName:
    """Return what a target finally stands for: if it is an alias such as `Node = GraphBusNode`, what that name stands for."""
    for _ in range(_MAX_ALIASES):
        if not isinstance(target, DefinedName) or not isinstance(target.node, _NAMES):
            break
        target = resolve(target.node, scope.within(target.module))
    return target


def _resolve_name(name: str, scope: NameScope) -> ResolvedName:
    """Return what a name stands for in the class body, the module or the builtins; None if the function binds it itself."""
    if name in scope.hidden:
        return None
    if scope.in_class_body and scope.chain:
        site = scope.chain[0]
        bindings = site.module.class_bindings(site.node)
        if name in bindings.first:
            return _class_member(site, name)
    found = scope.library.lookup(scope.module, name)
    if found is None and name in _BUILTINS and name not in scope.module.bindings.first:
        return _BUILTINS[name]
    return found


def _class_member(site: ClassSite, name: str) -> ResolvedName:
    """Return what a class body binds to a name; None if it is imported there, bound more than once, or not bound."""
    bindings = site.module.class_bindings(site.node)
    binding = bindings.first.get(name)
    if binding is None or name in bindings.rebound or isinstance(binding, ImportBinding):
        return None
    return DefinedName(site.module, binding, site.node)


def _resolve_attribute(expression: ast.Attribute, scope: NameScope) -> ResolvedName:
    """Return what `x.name` stands for, where `x` is `self`, a module, a class or a module-level object; None if not known."""
    value = expression.value
    if isinstance(value, ast.Name) and value.id == scope.self_name and scope.self_name:
        if expression.attr in scope.instance_names or ANY_NAME in scope.instance_names:
            return None
        return find_member(scope.chain, expression.attr)
    base = resolve(value, scope)
    if isinstance(base, External):
        dotted = f"{base.dotted}.{expression.attr}"
        module = scope.library.module(dotted) if not base.dotted.startswith("builtins.") else None
        return ModuleRef(module) if module else external(dotted)
    if isinstance(base, ModuleRef):
        return scope.library.member(base.module.name, expression.attr)
    if isinstance(base, DefinedName) and isinstance(base.node, ast.ClassDef):
        return find_member(class_chain(scope.library, ClassSite(base.module, base.node)), expression.attr)
    return _resolve_object_attribute(base, expression.attr, scope) if isinstance(base, DefinedName) else None


def _resolve_object_attribute(base: DefinedName, name: str, scope: NameScope) -> ResolvedName:
    """Return what `name` stands for in an object that a module makes by `SimpleNamespace(a=...)` or `Class(...)`; else None."""
    call = base.node
    if not isinstance(call, ast.Call) or call.args or base.module.bindings.rebinds(call):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    made = resolve_through(call.func, scope.within(base.module))
    is_class = isinstance(made, DefinedName) and isinstance(made.node, ast.ClassDef)
    if name in given and (is_class or made == External("types.SimpleNamespace")):
        return DefinedName(base.module, given[name])
    if isinstance(made, DefinedName) and isinstance(made.node, ast.ClassDef):
        return find_member(class_chain(scope.library, ClassSite(made.module, made.node)), name)
    return None


def find_member(chain: Sequence[ClassSite], name: str) -> ResolvedName:
    """Return what the nearest class in the chain with this attribute binds to it; None if there is none or it is uncertain."""
    for site in chain:
        bindings = site.module.class_bindings(site.node)
        if name in bindings.unsure:
            return None
        if name in bindings.first or name in bindings.rebound:
            return _class_member(site, name)
    return None


class Family(NamedTuple):
    """A class and what it inherits from.

    Attributes:
        chain: The class and its bases of the project in the order of lookup: depth first, a repeated one at its last place.
        external: The dotted names of all bases outside of the project, those of the bases included.
    """

    chain: tuple[ClassSite, ...]
    external: frozenset[str]


def family_of(library: Library, site: ClassSite) -> Family:
    """Return the family of a class. It is cached if no other module was needed to find it."""
    kept: dict[int, Family] = library.families.setdefault(site.module.path, {})
    family = kept.get(site.node.lineno)
    if family is None:
        lookups_before = library.asked
        external: set[str] = set()
        found = list(_walk_bases(library, site, external, 0))
        last = {(entry.module.path, entry.node.lineno): position for position, entry in enumerate(found)}
        family = Family(tuple(found[position] for position in sorted(last.values())), frozenset(external))
        if lookups_before == library.asked:  # no other module was looked up, so this file alone decides
            kept[site.node.lineno] = family
    return family


def class_chain(library: Library, site: ClassSite) -> tuple[ClassSite, ...]:
    """Return a class and its bases of the project in the order of lookup."""
    return family_of(library, site).chain


def _walk_bases(library: Library, site: ClassSite, external: set[str], depth: int) -> Iterator[ClassSite]:
    """Yield a class and its bases of the project, depth first; add the dotted names of other bases to `external`."""
    yield site
    if depth > _MAX_BASES:
        return
    for base in base_targets(library, site):
        if isinstance(base, External):
            external.add(base.dotted)
        elif isinstance(base, DefinedName) and isinstance(base.node, ast.ClassDef) and base.node is not site.node:
            yield from _walk_bases(library, ClassSite(base.module, base.node), external, depth + 1)


def base_targets(library: Library, site: ClassSite) -> list[ResolvedName]:
    """Return what each base of a class stands for; `Generic[T]` counts as `Generic`."""
    scope = NameScope(library, site.module)
    return [resolve_through(base.value if isinstance(base, ast.Subscript) else base, scope) for base in site.node.bases]
