"""What a handler, and the functions that it calls, do with parts of the payload: `items[].sku` is read, `total` is added to 1."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial

import msgspec

from graphbus_core.compiler.reading.attributes import has_attribute, is_object
from graphbus_core.compiler.reading.below import MOST_HOPS, walk_with_views
from graphbus_core.compiler.reading.bodies import FunctionNode, container_root
from graphbus_core.compiler.reading.constants import evaluate_constant, is_rebound
from graphbus_core.compiler.reading.flow import infer_type
from graphbus_core.compiler.reading.guards import GuardedParts
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, resolve_through
from graphbus_core.compiler.reading.uses import Use, is_possible, may_hold_keys, refuse, use_of
from graphbus_core.compiler.reading.views import FunctionView, function_view
from graphbus_core.model.agent import BELOW_UNKNOWN, PartUse
from graphbus_core.schema.paths import container_of, has_path, is_flat, split_path, type_at
from graphbus_core.schema.shapes import JSON_SHAPES, OBJECT, may_use, shapes_of
from graphbus_core.schema.types import ITEM, UNKNOWN, Type, is_unspecific

_OF_PAYLOAD = "payload"
PAYLOAD = Type("result", name=_OF_PAYLOAD)


class Declared(msgspec.Struct, frozen=True, gc=False):
    """The type that a handler declares for its payload; `is_object` if that is an object of a class, not a mapping."""

    type: Type = UNKNOWN
    is_object: bool = False


class FoundUse(msgspec.Struct, frozen=True, gc=False):
    """One use of a part of a payload.

    Attributes:
        path: Leads to the part, such as `items[].sku`. A last step of `?` stands for a use that may read anything below; `?`
            alone for an object that is handed on as a whole.
        run: What is done with the value of the part; None if it is only read.
        is_guarded: Tells whether a condition on the part decides if it happens, and may exclude some of its values.
        attribute: The attribute or method that is read of the part above the last step; empty for a key.
    """

    path: str
    run: Use | None = None
    is_guarded: Callable[[], bool] = bool
    attribute: str = ""


class _PartReader:
    """Finds what one function does with the parts of a payload.

    Args:
        function: A handler, or a function that a handler passes a part to.
        values: Name of the payload, or of a parameter that holds a part of it -> `PAYLOAD` with the keys that lead to the value.
        view: The view of its body.
        declared: What the handler declares.
    """

    def __init__(
        self, function: FunctionNode, values: Mapping[str, Type], view: FunctionView, declared: Declared
    ) -> None:
        self._function = function
        self._view = view.replace(items={**view.items, **values})
        self._declared = declared
        self._names = _names_that_may_hold_parts(self._view)
        self._called = {id(each.func) for each in view.body.method_calls}
        self._sent = _displays_that_are_sent(view)

    @cached_property
    def _guards(self) -> GuardedParts:
        return GuardedParts(self._function, self._names)

    def uses(self) -> Iterator[FoundUse]:
        """Yield each use, also those in the functions that receive a part."""
        for node, at, (inner, children) in walk_with_views(self._function.body, self._view):
            if isinstance(node, ast.Attribute | ast.Subscript) and id(node) not in self._called:
                path = self._path_that_is_read(node, at)
                if path:
                    yield FoundUse(path, attribute=node.attr if isinstance(node, ast.Attribute) else "")
            followed: list[ast.expr] = []
            if isinstance(node, ast.Call):
                yield from self._uses_in_callee(node, inner, followed)
            # the value of a keyword is visited with its call
            for child in (
                () if isinstance(node, ast.keyword) else (*children, *_keyword_values(node), *_formatted(node))
            ):
                if isinstance(child, _OPERANDS) and child not in followed and _may_hold_part(child, inner, self._names):
                    yield from self._uses_in(node, child, inner)

    def _uses_in(self, node: ast.AST, child: ast.expr, view: FunctionView) -> Iterator[FoundUse]:
        """Yield what `node` does with its part `child`, if the value of that is a part of the payload."""
        is_method = isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute)
        value = child.value if is_method else child  # type: ignore[attr-defined]
        if _is_payload(value, view):
            if self._declared.is_object and not (is_method or self._reads_no_more(node, child, view)):
                yield FoundUse(BELOW_UNKNOWN)
            elif self._declared.is_object and is_method:
                yield from self._call_of_field((), child)
            return
        for keys in _all_keys_to(infer_type(value, view)):
            run = use_of(node, value, lambda each: self._type_of(each, view), view.scope)
            if run is not None:
                yield FoundUse(_path(keys), run, partial(self._is_guarded, value, keys, view))
            is_found = infer_type(node, view).kind == "result" if is_method else self._reads_no_more(node, child, view)  # type: ignore[arg-type]
            if not is_found and (run is None or run is refuse or may_hold_keys(run)):
                yield from self._call_of_field(keys, child) if is_method else ()
                yield FoundUse(_path((*keys, BELOW_UNKNOWN)), attribute=child.attr if is_method else "")  # type: ignore[attr-defined]

    def _call_of_field(self, keys: tuple[str, ...], function: ast.expr) -> list[FoundUse]:
        """Return the use of a declared field that is called like a method."""
        path = (*keys, function.attr)  # type: ignore[attr-defined]
        return [FoundUse(_path(path), refuse)] if type_at(self._declared.type, path).kind != "unknown" else []

    def _type_of(self, expression: ast.expr, view: FunctionView) -> Type:
        """Return the type of an expression; for a part of the payload the declared one, if there is one."""
        found = infer_type(expression, view)
        declared = type_at(self._declared.type, _keys_to(found)) if found.name == _OF_PAYLOAD else UNKNOWN
        return found if declared.kind == "unknown" else declared

    def _is_guarded(self, value: ast.expr, keys: tuple[str, ...], view: FunctionView) -> bool:
        """True if a condition on the same part decides whether this expression runs, or is a part of it."""
        if isinstance(value, ast.BoolOp | ast.IfExp):
            return True
        tested = (each for test in self._guards.tests_of(value) for each in ast.walk(test))
        return any(isinstance(each, _VALUES) and _keys_to(infer_type(each, view)) == keys for each in tested)

    def _path_that_is_read(self, node: ast.Attribute | ast.Subscript, view: FunctionView) -> str:
        """Return the path that an attribute or subscript reads below a key of the payload, such as `items[].sku`.

        `""` if it reads none, and for a key of the payload itself: these are found elsewhere, except for those of an object in
        a function that receives it.
        """
        is_elsewhere = _is_payload(node.value, view) and not (view.hops and self._declared.is_object)
        if not isinstance(node.ctx, ast.Load) or is_elsewhere or not _may_hold_part(node.value, view, self._names):
            return ""
        key = node.attr if isinstance(node, ast.Attribute) else evaluate_constant(node.slice, view.scope)
        of = infer_type(node.value, view) if isinstance(key, str) else UNKNOWN
        keys = (*_keys_to(of), str(key)) if of.name == _OF_PAYLOAD else ()
        return _path(keys) if len(keys) > 1 or self._declared.is_object else ""

    def _uses_in_callee(self, call: ast.Call, view: FunctionView, followed: list[ast.expr]) -> Iterator[FoundUse]:
        """Yield what a function of the project does with the parts that it receives; add these arguments to `followed`."""
        arguments: dict[int | str | None, ast.expr] = {**dict(enumerate(call.args))}
        arguments |= {each.arg: each.value for each in call.keywords}
        parts = {place: infer_type(each, view) for place, each in arguments.items() if self._is_part(each, view)}
        parts = {place: of for place, of in parts.items() if of.name == _OF_PAYLOAD}
        callee = resolve_through(call.func, view.scope) if parts and view.hops < MOST_HOPS else None
        if not isinstance(callee, DefinedName) or not isinstance(callee.node, FUNCTIONS) or is_rebound(callee):
            return
        inner = function_view(callee, view)
        given = [*callee.node.args.posonlyargs, *callee.node.args.args][bool(inner.body.self_name) :]
        names: dict[int | str | None, str] = {**dict(enumerate(each.arg for each in given))}
        names |= {name: name for name in inner.parameters}
        free = {place: name for place, name in names.items() if place in parts and name not in inner.body.bound}
        if free and not any(isinstance(each, ast.Starred) for each in call.args):
            followed += [arguments[place] for place in free]
            values = {name: parts[place] for place, name in free.items()}
            yield from _PartReader(callee.node, values, inner, self._declared).uses()

    def _is_part(self, value: ast.expr, view: FunctionView) -> bool:
        """True if a value may be a part, or an object that is the whole payload."""
        is_whole = _is_payload(value, view)
        return _may_hold_part(value, view, self._names) and (self._declared.is_object or not is_whole)

    def _reads_no_more(self, parent: ast.AST, value: ast.expr, view: FunctionView) -> bool:
        """True if all keys are found that `parent` reads of `value`, a part of the payload directly below it."""
        if isinstance(parent, ast.Subscript):  # a constant key is found; a computed one may be any
            return value is not parent.value or infer_type(parent, view).kind == "result"
        if isinstance(parent, ast.Call):  # as an argument the value may be read by the function
            is_known = _name_of_function(parent.func) in _WHOLE_READERS or _is_sending(parent, view)
            return is_known or infer_type(parent, view).name == _OF_PAYLOAD  # such as a copy, whose own uses are found
        if isinstance(parent, ast.comprehension):  # one loop variable has a known type; unpacking reads the items
            return value is not parent.iter or isinstance(parent.target, ast.Name)
        if isinstance(parent, ast.Assign | ast.NamedExpr | ast.For | ast.AsyncFor):
            targets = getattr(parent, "targets", None) or [parent.target]  # type: ignore[union-attr]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            # a name that is bound once has a known type, so that its own uses are found
            return len(names) == len(targets) and all(view.body.bound_once(name) is not None for name in names)
        is_answer = isinstance(parent, ast.Return) and view.hops == 0
        return is_answer or isinstance(parent, _WHOLE_READING_NODES) or id(parent) in self._sent


def _names_that_may_hold_parts(view: FunctionView) -> Set[str]:
    """Return the names in `view.items` and all local names that may hold a part of their values, directly or indirectly."""
    names = set(view.items)
    waiting = {name: [each for each in values if each] for name, values in view.body.bound.items() if name not in names}
    known = -1
    while known < len(names):
        known = len(names)
        names |= {name for name, values in waiting.items() if any(_may_hold_part(each, view, names) for each in values)}
    return names


def _displays_that_are_sent(view: FunctionView) -> Set[int]:
    """Return the `id()` of each display whose values are only sent: `self.publish(T, {"line": order["line"]})`, or returned."""
    waiting = [
        each for name, call in view.body.calls if name in _SENDING for each in (*call.args, *_keyword_values(call))
    ]
    waiting += [each.value for each in view.body.returns if each.value is not None and view.hops == 0]
    found: set[int] = set()
    while waiting:
        display = waiting.pop()
        if isinstance(display, ast.Dict | ast.List | ast.Tuple):
            found.add(id(display))
            waiting += display.values if isinstance(display, ast.Dict) else display.elts
    return found


def _is_payload(value: ast.expr, view: FunctionView) -> bool:
    """True for a name of the payload or of the event, and for `event.payload`."""
    root = container_root(value)
    return root is not None and view.items.get(root[0]) == PAYLOAD


def _keyword_values(node: ast.AST) -> list[ast.expr]:
    return [each.value for each in node.keywords] if isinstance(node, ast.Call) else []


def _formatted(node: ast.AST) -> list[ast.expr]:
    """Return the items that an operation such as `"%d of %s" % (done, name)` formats."""
    return node.right.elts if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Tuple) else []


def _may_hold_part(value: ast.AST, view: FunctionView, names: Set[str]) -> bool:
    """False for an expression whose value certainly is no part of the payload: `self.x`, `LIMIT`, `a < b`, `f(1)`.

    `names` are the local names that may hold a part.
    """
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Starred):
        value = value.value
    if isinstance(value, ast.Name):
        return value.id in names or value.id in view.items
    if isinstance(value, ast.Call):
        function = value.func
        if isinstance(function, ast.Attribute) and view.is_self(function.value):
            return False
        if isinstance(function, ast.Name) and function.id in view.body.bound:  # a lambda that may return a part
            return True
        parts = [function, *value.args, *(each.value for each in value.keywords)]
        return any(_may_hold_part(each, view, names) for each in parts)
    return not isinstance(value, _WITHOUT_PARTS)


_WITHOUT_PARTS = (ast.Constant, ast.JoinedStr, ast.Compare)
_VALUES = (ast.Subscript, ast.Call, ast.Name, ast.Attribute)
_OPERANDS = (*_VALUES, ast.BoolOp, ast.IfExp)
_WHOLE_READERS = frozenset({"print", "len", "str", "repr", "bool", "isinstance", "type", "int", "float", "log"})
_WHOLE_READING_NODES = (ast.Attribute, ast.FormattedValue, ast.Compare, ast.Expr, ast.If, ast.While)
_SENDING = frozenset({"call", "log", "publish", "request"})


def _is_sending(call: ast.Call, view: FunctionView) -> bool:
    function = call.func
    return isinstance(function, ast.Attribute) and function.attr in _SENDING and view.is_self(function.value)


def _keys_to(of: Type) -> tuple[str, ...]:
    """Return the keys that lead from the payload to a value of this type; none for the payload itself and for other values."""
    # the first key may be the attribute `payload` of an event
    is_wrapped = of.values[:1] == (_OF_PAYLOAD,)
    return tuple(map(str, of.values[is_wrapped:])) if of.kind == "result" and of.name == _OF_PAYLOAD else ()


def _all_keys_to(of: Type) -> list[tuple[str, ...]]:
    """Return the keys to each part of the payload that a value of this type may be."""
    return [keys for each in (of.args if of.kind == "union" else (of,)) if (keys := _keys_to(each))]


def _path(keys: Sequence[str]) -> str:
    return ".".join(keys).replace(f".{ITEM}", ITEM)


def _name_of_function(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


# --- what the types of parts allow -----------------------------------------------------------


class Parts(msgspec.Struct, frozen=True, gc=False):
    """What is done with the parts of a payload.

    Attributes:
        are_misused: The declared type may not allow something of it.
        unknown: Key of the payload whose declared type says nothing about its parts -> the paths below it that are read, and
            what is done with the values there.
    """

    are_misused: bool
    unknown: dict[str, tuple[tuple[str, ...], tuple[PartUse, ...]]]


def read_parts(
    function: FunctionNode, values: Mapping[str, Type], view: FunctionView, declared: Declared | None = None
) -> Parts:
    """Return what a function does with the parts of a payload; see `_PartReader` for the arguments."""
    of = declared or Declared()
    uses = [*_PartReader(function, values, view, of).uses()] if values else []
    are_known = [declared is not None and _is_known(each, of, view) for each in uses]
    are_allowed = all(_is_allowed(use, of, view) for use, is_known in zip(uses, are_known, strict=True) if is_known)
    return Parts(not are_allowed, _group(use for use, is_known in zip(uses, are_known, strict=True) if not is_known))


def _is_known(use: FoundUse, declared: Declared, view: FunctionView) -> bool:
    """True if the declared type says what the part is, so that publications need not be asked."""
    keys = split_path(use.path)
    return (
        not is_unspecific(type_at(declared.type, keys[:1]))
        or use.path == BELOW_UNKNOWN
        or _has_property(keys, declared, view)
    )


def _has_property(keys: Sequence[str], declared: Declared, view: FunctionView) -> bool:
    """True if one of these keys is a property of a class, whose own code says what it gives."""
    of = declared.type
    for key in keys:
        if of.kind == "record" and all(each.name != key for each in of.fields) and has_attribute(of, key, view):
            return True
        of = type_at(of, [key])
    return False


def _is_allowed(use: FoundUse, declared: Declared, view: FunctionView) -> bool:
    """True if the declared type of a part allows a use of it."""
    keys = split_path(use.path)
    if _has_property(keys, declared, view):
        return True
    if use.run is not None:
        of = type_at(declared.type, keys)
        shapes = shapes_of(of, record=_shape_of_records(of, declared, view))
        possible = {each for each in shapes if is_possible(use.run, each)}
        return may_use(shapes, possible, is_guarded=False) or may_use(shapes, possible, is_guarded=use.is_guarded())
    if use.path == BELOW_UNKNOWN:
        return False
    container, _ = container_of(declared.type, use.path)
    if use.attribute and container.kind == "record":
        return has_path(declared.type, use.path) or has_attribute(container, use.attribute, view)
    return has_path(declared.type, use.path) or (
        bool(use.attribute) and bool(shapes_of(container)) and is_flat(container)
    )


def _shape_of_records(of: Type, declared: Declared, view: FunctionView) -> str:
    """Return the shape of the records in a type: of a TypedDict or of objects."""
    while of.args:
        of = of.args[0]
    return "" if of.kind != "record" else OBJECT if is_object(of, view, default=declared.is_object) else "dict"


def _group(uses: Iterable[FoundUse]) -> dict[str, tuple[tuple[str, ...], tuple[PartUse, ...]]]:
    """Return, for each key of the payload, the paths below it that are read, and what is done with the values there."""
    below: dict[str, dict[str, None]] = {}
    done: dict[str, dict[PartUse, None]] = {}
    for use in uses:
        key = split_path(use.path)[0]
        below.setdefault(key, {})
        if use.run is None:
            below[key][use.path] = None
            continue
        shapes = tuple(each for each in JSON_SHAPES if is_possible(use.run, each))
        if shapes != JSON_SHAPES:
            done.setdefault(key, {})[PartUse(use.path, shapes, use.is_guarded())] = None
    found = {key: (tuple(paths), tuple(done.get(key, ()))) for key, paths in below.items()}
    return {key: each for key, each in found.items() if each != ((), ())}
