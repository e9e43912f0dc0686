"""What annotations say of a value: the types that it cannot have, and what its items are."""

from __future__ import annotations

import ast
from typing import NamedTuple

from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.rungs.capability.scopes import ImportedName
from graphbus_core.editing.rungs.capability.sources import AnalyzedFile, name_of

_TYPES = frozenset({type(None), str, bytes, int, float, bool, dict, list, tuple, set, frozenset})
_NUMBERS = frozenset({int, float, bool})
_NAMED = {each.__name__: _TYPES - {each} for each in _TYPES}
_NAMED |= {
    "int": _TYPES - {int, bool},
    "float": _TYPES - _NUMBERS,
    "Event": _TYPES - {dict},
    "None": _NAMED["NoneType"],
}
_WRAPPERS = frozenset({"NotRequired", "Required", "ReadOnly", "Final"})
_SEQUENCES = frozenset({"list", "set", "frozenset", "Sequence", "Iterable", "Collection"})
_MAPPINGS = frozenset({"dict", "Mapping", "MutableMapping"})


class Declared(NamedTuple):
    """An annotation of a file of the project."""

    file: AnalyzedFile
    annotation: ast.expr


def declared(file: AnalyzedFile, annotation: ast.expr | None) -> Declared | None:
    """Return an annotation, of a text what it says; None if it says nothing."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = syntax.parse_expression(annotation.value.strip())
        except SyntaxError:
            return None
    if isinstance(annotation, ast.Subscript) and name_of(annotation.value) in _WRAPPERS:
        return declared(file, annotation.slice)
    return Declared(file, annotation) if annotation else None


def excluded_types(of: Declared | None) -> frozenset[type]:
    """Return the builtin types that a value with an annotation cannot have; none for an annotation that is not well known."""
    if of is None:
        return frozenset()
    parts = _parts_of_union(of.annotation)
    if len(parts) > 1:
        return _TYPES.intersection(*(excluded_types(declared(of.file, each)) for each in parts))
    name = name_of(_base_of(of.annotation)) or ast.unparse(of.annotation)
    return _excluded_by_class(*found) if (found := _class_of(of)) else _NAMED.get(name, frozenset())


def is_data(of: Declared | None) -> bool:
    """True for an annotation of plain data, such as texts, numbers, containers and events."""
    excluded = excluded_types(of)
    return bool(excluded) and excluded not in (_TYPES, _NAMED["NoneType"], {type(None)})


def element_of(of: Declared | None) -> Declared | None:
    """Return what a loop over a value with an annotation gives; None if that is not known."""
    given = getattr(of.annotation, "slice", None) if of else None
    return declared(of.file, given) if of and name_of(_base_of(of.annotation)) in _SEQUENCES else None


def item_of(of: Declared | None, key: object) -> Declared | None:
    """Return what `value[key]` or the field `key` of a value with an annotation is; None if that is not known."""
    found = _class_of(of) if of else None
    for home, step in found[0].lineage(found[1]) if found else ():
        for each in step.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == key:
                return declared(home, each.annotation)
    given = getattr(of.annotation, "slice", None) if of else None
    if of and isinstance(given, ast.Tuple) and name_of(_base_of(of.annotation)) in _MAPPINGS:
        return declared(of.file, given.elts[-1])
    return element_of(of)


def _base_of(annotation: ast.expr) -> ast.expr:
    """Return `list` of `list[int]`."""
    return annotation.value if isinstance(annotation, ast.Subscript) else annotation


def _parts_of_union(annotation: ast.expr) -> list[ast.expr]:
    """Return the types of which a value may have any one."""
    if isinstance(annotation, ast.BinOp):
        return [*_parts_of_union(annotation.left), *_parts_of_union(annotation.right)]
    name, given = name_of(_base_of(annotation)), getattr(annotation, "slice", None)
    if name == "Optional" and given:
        return [given, ast.Constant(None)]
    return given.elts if name == "Union" and isinstance(given, ast.Tuple) else [annotation]


def _class_of(of: Declared) -> tuple[AnalyzedFile, ast.ClassDef] | None:
    """Return the class of the project that an annotation names."""
    file: AnalyzedFile | None = of.file
    name = getattr(of.annotation, "id", "")
    for _ in range(3):  # imports of what is imported
        bound = file.scopes.module.bindings.get(name, []) if file else []
        source = bound[0].source if len(bound) == 1 else None
        if file and isinstance(source, ast.ClassDef):
            return file, source
        if not file or not isinstance(source, ImportedName):
            return None
        file, name = file.project.module(source.module), source.name
    return None


def _excluded_by_class(file: AnalyzedFile, node: ast.ClassDef) -> frozenset[type]:
    """Return the types that objects of a class of the project cannot have."""
    bases = {name_of(base) for _, step in file.lineage(node) for base in step.bases}
    known = {step.name for _, step in file.lineage(node)} | {"object", "ABC", "Generic"}
    if "Protocol" in bases:
        return frozenset()
    if bases <= known | {"TypedDict"}:
        return _TYPES - {dict} if "TypedDict" in bases else _TYPES
    return frozenset({type(None)})
