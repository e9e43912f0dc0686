"""The attributes that a handler reads of a payload object and that its class does not have, such as `order.totl`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from graphbus_core.compiler.reading.annotations import class_of_annotation, decorators_of_class
from graphbus_core.compiler.reading.below import COMPREHENSIONS
from graphbus_core.compiler.reading.bodies import ANY_NAME, Body, FunctionNode
from graphbus_core.compiler.reading.constants import evaluate_constant
from graphbus_core.compiler.reading.flow import comprehension_view, infer_type
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    DefinedName,
    External,
    NameScope,
    base_targets,
    family_of,
)
from graphbus_core.compiler.reading.syntax import children_of, span_of
from graphbus_core.compiler.reading.views import FunctionView, chain_of_record, is_name, without_none
from graphbus_core.model.agent import KeyRead
from graphbus_core.schema.types import Type

_DECORATORS = frozenset(
    {"dataclasses.dataclass", "pydantic.dataclasses.dataclass", "functools.total_ordering", "typing.final"}
)
_DICTS = frozenset({"typing.TypedDict", "typing_extensions.TypedDict"})
_PYDANTIC_METHODS = (
    *("model_computed_fields", "model_copy", "model_dump", "model_dump_json", "model_extra", "model_fields"),
    *("model_construct", "model_fields_set", "model_json_schema", "model_validate", "model_validate_json"),
)
_ATTRIBUTES_OF_BASES = {
    "builtins.object": frozenset(dir(object)),
    "typing.Generic": frozenset({"__orig_class__"}),
    "typing.Protocol": frozenset[str](),
    "msgspec.Struct": frozenset({"__struct_fields__", "__struct_config__"}),
    "pydantic.BaseModel": frozenset(
        {"construct", "copy", "dict", "from_orm", "json", "schema", "validate", *_PYDANTIC_METHODS}
    ),
    **dict.fromkeys(_DICTS, frozenset(dir(dict))),
}
"""Base class outside of the project -> the attributes that its objects have."""
_NARROWING = frozenset({"isinstance", "hasattr", "getattr", "issubclass", "type"})


def missing_attributes(name: str, function: FunctionNode, view: FunctionView) -> Iterator[KeyRead]:
    """Yield each read of an attribute or key that an object certainly does not have.

    The object is the value of a parameter, or a record inside of it; its class says which attributes it has. If the function uses
    `isinstance`, `hasattr` or `match`, the object may be of a subclass with more attributes: then its reads count as guarded.

    Args:
        name: The parameter. Nothing is found if the function assigns another value to it, or if its class is not known.
        function: A handler, or a function that a handler passes the payload to.
        view: The view of its body.
    """
    body = view.body
    site = class_of_annotation(body.parameters.get(name), view.scope) if body.attributes or body.accesses else None
    if site is None or name in body.bound or ANY_NAME in body.written:
        return
    names = {name, *(other for other, values in body.bound.items() if _holds_only_part(values, name))}
    aliases = {  # names of the whole payload; the others in `names` hold parts of it
        name,
        *(other for other in names if any(each and is_name(each, name) for each in body.bound.get(other, ()))),
    }
    is_guarded = not _NARROWING.isdisjoint(body.loads) or any(isinstance(each, ast.Match) for each in function.body)
    for node, inner in _find_reads_of_parts(function.body, names, view):
        is_whole = isinstance(node.value, ast.Name) and node.value.id in aliases
        chain = () if is_whole else chain_of_record(without_none(infer_type(node.value, inner)), view)
        if is_whole or chain:
            missing = _missing_part(node, site if is_whole else chain[0], view, is_whole=is_whole)
            if missing and missing not in body.written:
                key = missing if is_whole and isinstance(node, ast.Attribute) else ast.unparse(node)
                yield KeyRead(key, span_of(view.scope.module.path, node), is_guarded, is_guarded)


def _holds_only_part(values: Sequence[ast.expr | None], name: str) -> bool:
    """True if `values`, all that is assigned to a local name, is a single expression: `name`, a part of it, or an item of one."""
    return len(values) == 1 and values[0] is not None and _root_of(values[0]) == name


def _root_of(expression: ast.expr) -> str:
    """Return `order` for `order.lines[0].sku` and `*order.lines`; the empty text for any other kind of expression."""
    while isinstance(expression, ast.Attribute | ast.Subscript | ast.Starred):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _find_reads_of_parts(
    nodes: Sequence[ast.AST], names: Set[str], view: FunctionView
) -> Iterator[tuple[ast.Attribute | ast.Subscript, FunctionView]]:
    """Yield each expression that reads an attribute or key of these names or of their parts, with the view for its type."""
    for node in nodes:
        if (
            isinstance(node, ast.Attribute | ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and _root_of(node) in names
        ):
            yield node, view
        inner, known = view, names
        if isinstance(node, COMPREHENSIONS):  # its loop variables hold parts, too
            inner = comprehension_view(node.generators, view)
            items = (each.target for each in node.generators if _root_of(each.iter) in names)
            known = names | {each.id for each in items if isinstance(each, ast.Name)}
        yield from _find_reads_of_parts(children_of(node), known, inner)


def _missing_part(node: ast.Attribute | ast.Subscript, site: ClassSite, view: FunctionView, *, is_whole: bool) -> str:
    """Return the attribute or key that `node` reads if objects of the class certainly lack it; `""` if they may have it.

    `is_whole` is True if the object is the payload itself. Keys of a payload that is a TypedDict are checked elsewhere.
    """
    chain, bases = family_of(view.scope.library, site)
    known = _all_attributes(site, view.scope)
    is_dict = not bases.isdisjoint(_DICTS)
    fields = frozenset().union(*map(_defined_attributes, chain))
    if isinstance(node, ast.Attribute):
        # a key of a TypedDict that is read as an attribute is reported as the whole expression
        is_there = known is None or node.attr in known or node.attr[:2] == "__"
        return "" if is_there else node.attr if not is_dict or node.attr not in fields else ast.unparse(node)
    key = evaluate_constant(node.slice, view.scope)
    if known is None or not isinstance(key, str):
        return ""
    if is_dict:
        return "" if is_whole or key in fields else key
    return "" if "__getitem__" in known else key


def is_typed_dict(annotation: ast.expr | None, scope: NameScope) -> bool:
    """True for the annotation with a TypedDict of the project."""
    site = class_of_annotation(annotation, scope)
    return site is not None and not family_of(scope.library, site).external.isdisjoint(_DICTS)


def has_attribute(record: Type, name: str, view: FunctionView) -> bool:
    """True if objects of the class of a record may have an attribute; False for a TypedDict and an unknown class."""
    chain = chain_of_record(record, view)
    known = _all_attributes(chain[0], view.scope) if chain else frozenset[str]()
    return is_object(record, view, default=True) and (known is None or name in known)


def is_object(record: Type, view: FunctionView, *, default: bool) -> bool:
    """True if the values of a record are objects, not mappings of a TypedDict; the default if its class is not known here."""
    chain = chain_of_record(record, view)
    return family_of(view.scope.library, chain[0]).external.isdisjoint(_DICTS) if chain else default


def _all_attributes(site: ClassSite, scope: NameScope) -> frozenset[str] | None:
    """Return all attributes that objects of a class have; None if some of them are not known."""
    chain, bases = family_of(scope.library, site)
    own = [names for base, names in _ATTRIBUTES_OF_BASES.items() if base in bases or base == "builtins.object"]
    # the fields of a TypedDict are keys, not attributes
    fields = () if bases & _DICTS else map(_defined_attributes, chain)
    are_known = bases <= _ATTRIBUTES_OF_BASES.keys() and all(_has_known_attributes(each, scope) for each in chain)
    known = frozenset().union(*own, *fields) if are_known else frozenset({ANY_NAME})
    return None if ANY_NAME in known else known


def _has_known_attributes(site: ClassSite, scope: NameScope) -> bool:
    """True for a class whose bases and decorators are known, and that does not compute attributes."""
    names = site.module.class_bindings(site.node).first.keys()
    is_computed = not names.isdisjoint(("__getattr__", "__getattribute__", "model_config", "Config"))
    are_known = all(isinstance(base, External | DefinedName) for base in base_targets(scope.library, site))
    return are_known and not is_computed and decorators_of_class(site, scope) <= _DECORATORS


def _defined_attributes(site: ClassSite) -> frozenset[str]:
    """Return the names that a class body binds or annotates, and the attributes that its methods or its module assign.

    `ANY_NAME` is among them if a method assigns an attribute whose name is computed.
    """
    bindings = site.module.class_bindings(site.node)
    fields = {
        each.target.id
        for each in site.node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    functions = (each for each in site.node.body if isinstance(each, FUNCTIONS))
    bodies = [Body(each, "") for each in functions]
    assigned = {name for each in bodies for name in each.written}
    is_computed = any(each.attr == "__setattr__" for body in bodies for each in body.attributes)
    beside = site.module.bindings.written  # `Order.table = "orders"` below the class
    return frozenset({*bindings.first, *bindings.rebound, *fields, *assigned, *beside, *[ANY_NAME] * is_computed})
