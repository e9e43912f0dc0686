"""What is known of a value while a function is followed: what it depends on, and whether it is always the same."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple

from graphbus_core.editing.rungs.capability.sources import AnalyzedFile
from graphbus_core.editing.rungs.effects.annotations import Declared
from graphbus_core.editing.rungs.effects.facts import COMPARE, Fact, decide

FunctionLike = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Labels = frozenset[str]
NOTHING: Labels = frozenset()
SCALARS = frozenset({type(None), str, bytes, int, float, bool})
_EQUAL_TYPES = ({int, float, bool}, {set, frozenset})
"""Types whose values may be equal to each other."""
_LONGEST = 10_000
"""The largest number and the longest text or container that is computed."""


class Raised(Exception):  # noqa: N818 - how the end of a path is told
    """Execution cannot continue: the code raises in every run."""


class Scope:
    """The local names of one call, and where it runs.

    Attributes:
        names: Local name -> value; replaced where paths join. `.name` is an attribute of `self` that the call has set.
        owner: The class of a method.
        outer: The scope around an inner function.
        elsewhere: The names that `global` and `nonlocal` statements give to other scopes.
    """

    def __init__(self, file: AnalyzedFile, owner: ast.ClassDef | None = None, outer: Scope | None = None) -> None:
        self.file = file
        self.owner: ast.ClassDef | None = owner if owner or outer is None else outer.owner
        self.outer = outer
        self.names: dict[str, Value] = {}
        self.elsewhere: dict[str, type[ast.stmt]] = {}

    def holder(self, name: str) -> Scope | None:
        """Return the scope of a call that has a value for a name; None if it is a name of the module."""
        step: Scope | None = self
        while step is not None and (name not in step.names or step.elsewhere.get(name)):
            step = step.outer
        return step


class Function(NamedTuple):
    """A function of the project as a value: a method with its object, or a partial call with what is given already."""

    node: FunctionLike
    scope: Scope
    self_value: tuple[Value, ...] = ()
    given: tuple[Value, ...] = ()
    given_by_name: tuple[tuple[str, Value], ...] = ()

    def __hash__(self) -> int:
        return hash((self.node, self.scope))


class Work:
    """What runs when a generator is iterated or a coroutine awaited; equal if made at one place of the same constants."""

    def __init__(self, place: ast.AST, run: Callable[[], Value], given: str = "") -> None:
        self.place = place
        self.run = run
        self.given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and (self.place, self.given) == (other.place, other.given)

    def __hash__(self) -> int:
        return id(self.place)


class Value(NamedTuple):
    """What is known of a value.

    Attributes:
        labels: What it depends on: parameters, and the keys that are read of them.
        known: Its only possible value, as a tuple of one; empty if it is not known. It holds while no site is changed.
        truth: Its truth value, if only that is known.
        functions: The functions of the project that it may be.
        work: What runs when it is iterated or awaited.
        sites: The expressions that made the objects that it may be.
        is_foreign: It may be an object that was there before the call, so that to change it is an effect.
        kind: The class of the project that it is an object of, with its file.
        is_super: It is `super()`.
        name: The dotted name of something outside of the project.
        declared: The annotation that it has.
        excluded: The types that it cannot have.
        place: Where it was read, and when: two values of one place are equal.
        facts: What conditions say of it.
    """

    labels: Labels = NOTHING
    known: tuple[Any, ...] = ()
    truth: bool | None = None
    functions: tuple[Function, ...] = ()
    work: tuple[Work, ...] = ()
    sites: frozenset[ast.AST] = frozenset()
    is_foreign: bool = True
    kind: tuple[AnalyzedFile, ast.ClassDef] | None = None
    is_super: bool = False
    name: str = ""
    declared: Declared | None = None
    excluded: frozenset[type] = frozenset()
    place: tuple[object, ...] = ()
    facts: tuple[Fact, ...] = ()


UNKNOWN = Value()
TYPE, NAME_OF_TYPE = "type()", "type().__name__"
"""Names of values: the type of another one, and its name."""
PLAIN = Value(is_foreign=False)


def constant(value: object) -> Value:
    """Return the value of a constant."""
    return Value(known=(value,), is_foreign=False)


def type_of(value: Value) -> Value:
    """Return the type of a value, of which only is known which types it is not."""
    return Value(value.labels, name=TYPE, excluded=value.excluded)


def is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """True if two known values are the same and of the same type; 1 and True are not."""
    return repr(one) == repr(other)


def join(values: Iterable[Value]) -> Value:
    """Return what is known of a value that is one of these; of none, a plain value."""
    several = list(values)
    if not several:
        return PLAIN
    first, *others = several
    return Value(
        labels=NOTHING.union(*(each.labels for each in several)),
        known=first.known if all(is_same(first.known, each.known) for each in others) else (),
        truth=first.truth if all(each.truth is first.truth for each in others) else None,
        functions=tuple(dict.fromkeys(function for each in several for function in each.functions)),
        work=tuple(dict.fromkeys(work for each in several for work in each.work)),
        sites=frozenset().union(*(each.sites for each in several)),
        is_foreign=any(each.is_foreign for each in several),
        kind=first.kind if all(each.kind == first.kind for each in others) else None,
        is_super=first.is_super and not others,
        name=first.name if all(each.name == first.name for each in others) else "",
        declared=first.declared if all(each.declared == first.declared for each in others) else None,
        excluded=first.excluded.intersection(*(each.excluded for each in others)),
        place=first.place if all(each.place == first.place for each in others) else (),
    )


def are_equal(values: Sequence[Value]) -> bool:
    """True if several values are one, or known and the same."""
    first = values[0]
    return all(each is first or (first.known and is_same(first.known, each.known)) for each in values)


def join_names(several: list[dict[str, Value]], labels: Labels = NOTHING) -> dict[str, Value]:
    """Return the local names where several paths meet; what one of them does not bind counts as bound by the others.

    `labels` is what decides between the paths, and so between different values of a name.
    """
    joined: dict[str, Value] = {}
    for name in dict.fromkeys(name for each in several for name in each):
        values = [each[name] for each in several if name in each]
        if len(values) == len(several) or not name.startswith("."):
            value = join(values)
            joined[name] = value if are_equal(values) or not labels else value._replace(labels=value.labels | labels)
    return joined


_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    **COMPARE,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_COMPARING = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NEUTRAL: dict[type[ast.AST], tuple[object, ...]] = {
    ast.Add: (0, 0.0, "", [], ()),
    ast.Sub: (0, 0.0, set()),
    ast.Mult: (1,),
    ast.Div: (1,),
    ast.FloorDiv: (),
    ast.BitOr: (0, {}, set()),
    ast.BitXor: (0,),
}


def fold(function: Callable[..., Any], *given: Any, is_new: bool = False) -> Value | None:
    """Return the result of a call with constants; None if it is too large to be computed, or an object that may be changed.

    `is_new` returns such an object, too: the caller notes where it is made.

    Raises:
        Raised: The call raises.
    """
    if any(_is_large(each) for each in given):
        return None
    try:
        result = function(*given)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Raised from None
    is_changeable = isinstance(result, list | dict | set) and not is_new
    return None if is_changeable or _is_large(result) else constant(result)


def _is_large(value: Any) -> bool:
    if isinstance(value, int | float):
        return abs(value) > _LONGEST
    return hasattr(value, "__len__") and len(value) > _LONGEST // 10


def fold_operator(kind: ast.AST, left: Value, right: Value) -> Value | None:
    """Return the result of an operator on two known values; None if it is not known."""
    if isinstance(kind, ast.Is | ast.IsNot):
        result = _is_identical(left, right)
        return None if result is None else constant(result is isinstance(kind, ast.Is))
    if isinstance(kind, ast.Eq | ast.NotEq) and (_never_equal(left, right) or _never_equal(right, left)):
        return constant(isinstance(kind, ast.NotEq))
    decided = decide(left.facts, type(kind), right.known[0]) if right.known else None
    if decided is None and left.known:
        decided = decide(right.facts, type(kind), left.known[0], is_right=True)
    if decided is not None:
        return constant(decided)
    if left.place and left.place == right.place and float in left.excluded:  # a float may be unequal to itself
        return constant(isinstance(kind, ast.Eq | ast.LtE | ast.GtE)) if isinstance(kind, _COMPARING) else None
    compute = _BINARY.get(type(kind))
    return fold(compute, *left.known, *right.known) if compute and left.known and right.known else None


def _is_identical(left: Value, right: Value) -> bool | None:
    """Return the result of `is`, which is known for None, True and False only."""
    if left.place and left.place == right.place:
        return True
    singletons = (None, True, False)
    if left.known and right.known:
        both = (*left.known, *right.known)
        return both[0] is both[1] if any(each is one for each in both for one in singletons) else None
    is_never = _never_equal(left, right) or _never_equal(right, left)
    if is_never and any(each is one for each in (*left.known, *right.known) for one in singletons):
        return False
    return False if is_never and TYPE in (left.name, right.name) else None


def _never_equal(value: Value, other: Value) -> bool:
    """True if a value is not equal to a known one, whose type or truth it cannot have."""
    if value.name in (TYPE, NAME_OF_TYPE):
        name = str(other.known[0]) if other.known else other.name.removeprefix("builtins.")
        return name in {each.__name__ for each in value.excluded}
    if not other.known:
        return False
    kind = type(other.known[0])
    kinds = next((each for each in _EQUAL_TYPES if kind in each), {kind})
    return kinds <= value.excluded or value.truth is (not other.known[0])


def cannot_be(value: Value, names: Set[str]) -> bool:
    """True if a value has none of the types with these names; False if that is not known."""
    return names <= {each.__name__ for each in value.excluded}


def is_no_slice(key: Value) -> bool:
    """True for the key of `items[:0]`, which takes nothing of any list."""
    found = key.known[0] if key.known else None
    return isinstance(found, slice) and not any(range(*found.indices(length)) for length in (0, 1, 2, 1_000_000))


def is_void(kind: ast.operator, left: Value, right: Value) -> bool:
    """True if the result is zero or empty whatever the values are: `x * 0`, `x - x`."""
    if isinstance(kind, ast.Sub | ast.BitXor):
        return bool(left.place) and left.place == right.place
    known = [each.known[0] for each in (left, right) if each.known]
    return isinstance(kind, ast.Mult | ast.BitAnd) and any(each is not None and not each for each in known)


def is_neutral(kind: ast.operator, value: Value) -> bool:
    """True if `left + value`, or another operator, leaves the left side as it is."""
    return bool(value.known) and any(is_same(value.known, (each,)) for each in _NEUTRAL.get(type(kind), ()))
