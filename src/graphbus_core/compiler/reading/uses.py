"""What code does with a value, such as `x + 1`, `x.upper()` or `for y in x`: it is tried with a value of a shape.

Nothing of the project runs: only operators, built-in functions and methods of built-in types are tried.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from graphbus_core.compiler.reading.constants import NOT_CONSTANT, evaluate_constant
from graphbus_core.compiler.reading.modules import External, NameScope, resolve
from graphbus_core.schema.shapes import sample_of, shapes_of
from graphbus_core.schema.types import Type

Use = Callable[[Any], object]
"""Does with a value what the code does; raises an exception if that is not possible."""
TypeOf = Callable[[ast.expr], Type]
"""Expression -> its type; unknown for what is computed from the payload in a way that is not followed."""

_OPERATORS: dict[type, Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type, Use] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_FUNCTIONS = frozenset(
    {
        *(
            "abs",
            "all",
            "any",
            "divmod",
            "enumerate",
            "float",
            "format",
            "frozenset",
            "int",
            "iter",
            "len",
            "list",
            "max",
        ),
        *("min", "ord", "range", "reversed", "round", "set", "sorted", "sum", "tuple"),
    }
)
_PARSERS = frozenset(
    {
        *("datetime.date.fromisoformat", "datetime.datetime.fromisoformat", "datetime.time.fromisoformat"),
        *("decimal.Decimal", "json.loads", "uuid.UUID"),
    }
)
_MANY = 3  # samples that are tried of another operand


def is_possible(use: Use, shape: str) -> bool:
    """True if the code can do what it does with a value of this shape."""
    try:
        use(sample_of(shape))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def may_hold_keys(use: Use) -> bool:
    """True if the use is possible with a value that has keys below it."""
    return any(is_possible(use, shape) for shape in ("dict", "list[dict]", "record"))


def use_of(parent: ast.AST, value: ast.expr, type_of: TypeOf, scope: NameScope) -> Use | None:
    """Return what `parent` does with `value`, which is one of its parts; None for what is possible with all values.

    The function of a call, `value.upper()`, stands for the value itself.
    """
    reader = _READERS.get(parent.__class__)
    return reader(parent, value, type_of, scope) if reader else None


def refuse(_value: object) -> None:
    """The use of what is possible with no value, or not known to be."""
    raise TypeError


def _with_samples(use: Callable[[Any, Any], object], other: ast.expr, type_of: TypeOf) -> Use:
    """Return `use(value, sample)` for each shape of the other operand; if it is not known, it is taken for a number."""
    of = type_of(other)
    if of.kind == "str" and len(of.values) == 1 and not of.name and not _is_wide(str(of.values[0])):
        return lambda value: use(value, of.values[0])
    samples = [sample_of(shape) for shape in sorted(shapes_of(of))[:_MANY]]

    def run(value: object) -> None:
        for sample in samples or [1.5]:
            use(value, sample)

    return run


def _is_wide(form: str) -> bool:
    """True if a number in a format could make a very long text."""
    return any(len(each) > 3 for each in "".join(each if each.isdigit() else " " for each in form).split())


def _swap(use: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    return lambda value, other: use(other, value)


def _read_operation(node: ast.BinOp, value: ast.expr, type_of: TypeOf, _scope: NameScope) -> Use | None:
    use = _OPERATORS[node.op.__class__]
    if isinstance(node.right, ast.Tuple) and isinstance(node.op, ast.Mod) and value is not node.left:
        return _format_with(node.left, node.right, value, type_of)
    if value is node.left:
        return _with_samples(use, node.right, type_of)
    return _with_samples(_swap(use), node.left, type_of)


def _format_with(text: ast.expr, items: ast.Tuple, value: ast.expr, type_of: TypeOf) -> Use:
    """Return the use of an item in `"%d of %s" % (done, name)`; another one that is not known is taken for a number."""
    form = _sample(text, type_of)
    samples = [_sample(each, type_of) or 1.5 for each in items.elts]

    def run(given: object) -> object:
        return operator.mod(form, tuple(given if e is value else s for e, s in zip(items.elts, samples, strict=True)))

    return run


def _read_added(node: ast.AugAssign, value: ast.expr, type_of: TypeOf, _scope: NameScope) -> Use | None:
    use = _OPERATORS[node.op.__class__]
    return _with_samples(_swap(use), node.target, type_of) if value is node.value else None


def _read_unary(node: ast.UnaryOp, _value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use | None:
    return _UNARY.get(node.op.__class__)


def _read_comparison(node: ast.Compare, value: ast.expr, type_of: TypeOf, _scope: NameScope) -> Use | None:
    sides = [node.left, *node.comparators]
    uses = []
    for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
        use = _OPERATORS.get(op.__class__)
        if use and value is left:
            uses.append(_with_samples(use, right, type_of))
        elif use and value is right:
            uses.append(_with_samples(_swap(use), left, type_of))
        elif isinstance(op, ast.In | ast.NotIn) and value is right:
            is_known = bool(shapes_of(type_of(left)))
            uses.append(_with_samples(operator.contains, left, type_of) if is_known else iter)
        elif isinstance(op, ast.In | ast.NotIn) and value is left and shapes_of(type_of(right)):
            uses.append(_with_samples(_swap(operator.contains), right, type_of))
    return _all_of(uses)


def _all_of(uses: Sequence[Use]) -> Use | None:
    return (lambda value: [use(value) for use in uses]) if uses else None


def _read_subscript(node: ast.Subscript, value: ast.expr, type_of: TypeOf, scope: NameScope) -> Use | None:
    """Return the use of a container, except for the keys of mappings, which are paths; or that of a key."""
    if value is node.slice:
        return operator.index if type_of(node.value).kind in ("list", "tuple", "str") else hash
    if isinstance(node.slice, ast.Slice):
        return lambda each: each[:1]
    key = evaluate_constant(node.slice, scope)
    if key is NOT_CONSTANT:
        return operator.attrgetter("__getitem__")
    return _refuse_all_but_tuples if isinstance(key, int) else operator.attrgetter("__getitem__")


def _read_call(node: ast.Call, value: ast.expr, type_of: TypeOf, scope: NameScope) -> Use | None:
    function = node.func
    is_local = isinstance(function, ast.Lambda) or (isinstance(function, ast.Name) and function.id in scope.hidden)
    if value is function or is_local:  # what a local function does is not followed
        return refuse
    if isinstance(function, ast.Attribute) and value is function.value:
        return partial(_call_method, name=function.attr, arguments=_samples_of(node, type_of))
    if node.keywords or not any(value is each for each in node.args):
        return None
    run = _function_of(function, type_of, scope)
    samples = [None if each is value else _sample(each, type_of) for each in node.args]
    if run is None or any(
        sample is None and each is not value for sample, each in zip(samples, node.args, strict=True)
    ):
        return None
    return lambda given: run(
        *(given if each is value else sample for each, sample in zip(node.args, samples, strict=True))
    )


def _function_of(function: ast.expr, type_of: TypeOf, scope: NameScope) -> Callable[..., object] | None:
    """Return the function that a call runs, if it is one without effects of Python itself, or a method of a text."""
    found = resolve(function, scope)
    if isinstance(found, External):
        home, _, name = found.dotted.rpartition(".")
        if (home == "builtins" and name in _FUNCTIONS) or home == "math" or found.dotted in _PARSERS:
            module, _, rest = found.dotted.partition(".")
            return operator.attrgetter(rest)(import_module(module))  # type: ignore[no-any-return]
        return None
    owner = type_of(function.value) if isinstance(function, ast.Attribute) else None
    if owner is not None and owner.kind == "result":
        return refuse
    if owner is None or owner.kind != "str" or owner.name:
        return None
    text = str(owner.values[0]) if len(owner.values) == 1 and not _is_wide(str(owner.values[0])) else "a"
    return getattr(text, function.attr, refuse)  # type: ignore[attr-defined]


def _sample(expression: ast.expr, type_of: TypeOf) -> object:
    """Return a value such as the expression has; None if it is not known."""
    of = type_of(expression)
    if of.kind == "str" and len(of.values) == 1 and not of.name and not _is_wide(str(of.values[0])):
        return of.values[0]
    shapes = sorted(shapes_of(of))
    return sample_of(shapes[0]) if len(shapes) == 1 else None


def _samples_of(call: ast.Call, type_of: TypeOf) -> list[object] | None:
    """Return the arguments of a call; None if they are not known."""
    samples = [_sample(each, type_of) for each in call.args]
    return None if call.keywords or None in samples else samples


def _call_method(value: object, name: str, arguments: list[object] | None) -> None:
    if type(value) is object:  # the class of an object says which methods it has
        return
    method = getattr(value, name)
    if arguments is not None and isinstance(value, str):
        method(*arguments)


def _refuse_all_but_tuples(value: object) -> None:
    """Whether a list or text has an item is not known from its type."""
    if not isinstance(value, tuple):
        raise TypeError


def _read_attribute(node: ast.Attribute, _value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use:
    """Return the use of an attribute. Which attributes an object has is known from its class."""
    return lambda value: None if type(value) is object else getattr(value, node.attr)


def _read_format(node: ast.FormattedValue, _value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use | None:
    parts: Iterable[ast.expr] = node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else ()
    spec = "".join(str(each.value) if isinstance(each, ast.Constant) else "" for each in parts)
    return None if not spec or _is_wide(spec) or node.conversion != -1 else lambda value: format(value, spec)


def _read_assignment(node: ast.Assign, _value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use | None:
    unpacked = [len(each.elts) for each in node.targets if isinstance(each, ast.Tuple | ast.List)]
    return partial(_unpack, counts=unpacked) if unpacked else None


def _unpack(value: object, counts: Sequence[int]) -> None:
    """Only a tuple has a certain number of items."""
    if not isinstance(value, tuple) or any(len(value) != count for count in counts):
        raise TypeError


def _iterate(_node: ast.AST, _value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use:
    return iter


def _iterate_over(
    node: ast.For | ast.AsyncFor | ast.comprehension, value: ast.expr, _t: TypeOf, _s: NameScope
) -> Use | None:
    return iter if value is node.iter else None


def _hash_key(node: ast.Dict, value: ast.expr, _type_of: TypeOf, _scope: NameScope) -> Use | None:
    return hash if any(value is each for each in node.keys) else None


_READERS: dict[type, Callable[[Any, ast.expr, TypeOf, NameScope], Use | None]] = {
    ast.Assign: _read_assignment,
    ast.AsyncFor: _iterate_over,
    ast.Attribute: _read_attribute,
    ast.AugAssign: _read_added,
    ast.Await: lambda *_: refuse,
    ast.BinOp: _read_operation,
    ast.Call: _read_call,
    ast.Compare: _read_comparison,
    ast.Dict: _hash_key,
    ast.For: _iterate_over,
    ast.FormattedValue: _read_format,
    ast.Raise: lambda *_: refuse,
    ast.Set: lambda *_: hash,
    ast.Starred: _iterate,
    ast.Subscript: _read_subscript,
    ast.UnaryOp: _read_unary,
    ast.YieldFrom: _iterate,
    ast.comprehension: _iterate_over,
    ast.withitem: lambda *_: refuse,
}
