"""What an expression refers to at the place where it stands: function names hide class names hide module names hide builtins."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.reading.bodies import ANY_NAME
from graphbus_core.compiler.reading.modules import (
    External,
    Import,
    Library,
    Module,
    ModuleRef,
    Symbol,
    Target,
    external,
)
from graphbus_core.compiler.reading.syntax import type_parameters

_BUILTINS = {name: External(f"builtins.{name}") for name in dir(builtins)}
_MAX_BASES = 50
_MAX_ALIASES = 10
_NAMES = (ast.Name, ast.Attribute)


class ClassSite(msgspec.Struct, frozen=True):
    """A class of the project and the module that it is written in."""

    module: Module
    node: ast.ClassDef


class Scope(NamedTuple):
    """The surroundings of an expression.

    Attributes:
        chain: The class that is read and its bases of the project, nearest first; what `self.x` looks through.
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

    def within(self, module: Module) -> Scope:
        """Give the top level of another module."""
        return Scope(self.library, module)

    def in_signature(self, node: ast.AST) -> Scope:
        """Give the surroundings of the annotations of a function: its type parameters hide what its decorators see."""
        own = type_parameters(node)
        return self._replace(hidden=self.hidden | own) if own else self


def resolve(expression: ast.expr, scope: Scope) -> Target:
    """Say what a name or a dotted name stands for; None when it is not known."""
    if isinstance(expression, ast.Name):
        return _resolve_name(expression.id, scope)
    if isinstance(expression, ast.Attribute):
        return _resolve_attribute(expression, scope)
    return None


def resolve_through(expression: ast.expr, scope: Scope) -> Target:
    """Say what a name stands for, further names that are assigned to it followed: `Node = GraphBusNode`."""
    return follow_aliases(resolve(expression, scope), scope)


def follow_aliases(target: Target, scope: Scope) -> Target:
    """Say what a target stands for that may be one more name for something else."""
    for _ in range(_MAX_ALIASES):
        if not isinstance(target, Symbol) or not isinstance(target.node, _NAMES):
            break
        target = resolve(target.node, scope.within(target.module))
    return target


def _resolve_name(name: str, scope: Scope) -> Target:
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


def _class_member(site: ClassSite, name: str) -> Target:
    bindings = site.module.class_bindings(site.node)
    binding = bindings.first.get(name)
    if binding is None or name in bindings.rebound or isinstance(binding, Import):
        return None
    return Symbol(site.module, binding, site.node)


def _resolve_attribute(expression: ast.Attribute, scope: Scope) -> Target:
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
    if isinstance(base, Symbol) and isinstance(base.node, ast.ClassDef):
        return find_member(class_chain(scope.library, ClassSite(base.module, base.node)), expression.attr)
    return None


def find_member(chain: Sequence[ClassSite], name: str) -> Target:
    """Give a class attribute, the nearest first."""
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
        chain: The class and its bases of the project in the order of lookup (depth first, the last of equals kept).
        external: The dotted names of all bases outside of the project, those of the bases included.
    """

    chain: tuple[ClassSite, ...]
    external: frozenset[str]


def family_of(library: Library, site: ClassSite) -> Family:
    """Give a class and what it inherits from."""
    kept: dict[int, Family] = library.families.setdefault(site.module.path, {})
    family = kept.get(site.node.lineno)
    if family is None:
        asked = library.asked
        family = _find_family(library, site)
        if asked == library.asked:  # no other file has a say in it
            kept[site.node.lineno] = family
    return family


def _find_family(library: Library, site: ClassSite) -> Family:
    external: set[str] = set()
    found = list(_walk_bases(library, site, external, 0))
    last = {(entry.module.path, entry.node.lineno): position for position, entry in enumerate(found)}
    return Family(tuple(found[position] for position in sorted(last.values())), frozenset(external))


def class_chain(library: Library, site: ClassSite) -> tuple[ClassSite, ...]:
    """Give a class and its bases of the project in the order of lookup."""
    return family_of(library, site).chain


def _walk_bases(library: Library, site: ClassSite, external: set[str], depth: int) -> Iterator[ClassSite]:
    yield site
    if depth > _MAX_BASES:
        return
    for base in base_targets(library, site):
        if isinstance(base, External):
            external.add(base.dotted)
        elif isinstance(base, Symbol) and isinstance(base.node, ast.ClassDef) and base.node is not site.node:
            yield from _walk_bases(library, ClassSite(base.module, base.node), external, depth + 1)


def base_targets(library: Library, site: ClassSite) -> list[Target]:
    """Say what each base of a class stands for; `Generic[T]` counts as `Generic`."""
    scope = Scope(library, site.module)
    return [resolve_through(base.value if isinstance(base, ast.Subscript) else base, scope) for base in site.node.bases]
