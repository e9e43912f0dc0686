"""What one walk through a function notes: effects, what decides about them, and the objects that the code makes."""

from __future__ import annotations

import ast
import builtins
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphbus_core.compiler.reading.syntax import own_nodes
from graphbus_core.editing.rungs.capability.sources import name_of
from graphbus_core.editing.rungs.effects.annotations import Declared, element_of, excluded_types
from graphbus_core.editing.rungs.effects.facts import Fact, Scalar, comparison, decide
from graphbus_core.editing.rungs.effects.values import (
    NOTHING,
    PLAIN,
    UNKNOWN,
    Labels,
    Scope,
    Value,
    constant,
    fold,
    join,
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLACE = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
_MOST_STEPS = 5_000


class TooLong(Exception):  # noqa: N818 - ends the walk
    """There is too much to follow."""


class Loop:
    """The names at each `break` and `continue` of a loop."""

    def __init__(self) -> None:
        self.breaks: list[dict[str, Value]] = []
        self.continues: list[dict[str, Value]] = []


class Call:
    """What one call has returned so far; `depends_on` is what decides between its results."""

    def __init__(self) -> None:
        self.results: list[Value] = []
        self.depends_on: Labels = NOTHING
        self.loops: list[Loop] = []
        self.is_split = False
        self.split_on: Labels = NOTHING


class Catching(NamedTuple):
    """A block that catches exceptions.

    Attributes:
        scope: The call that the block belongs to.
        types: What it catches: names of exceptions; empty for all.
        names: The local names at each place where the block may be left.
    """

    scope: Scope
    types: tuple[str, ...]
    names: list[dict[str, Value]]

    def catches(self, name: str) -> bool:
        """True if an exception of this name is caught, as far as Python itself defines it."""
        kind = getattr(builtins, name, None)
        known = [getattr(builtins, each, None) for each in self.types]
        return not self.types or name in self.types or any(
            each is BaseException or each is Exception or (kind and each and issubclass(kind, each)) for each in known
        )  # fmt: skip


class Notes:
    """The notes of a walk; the classes that derive from it follow the parts of the code."""

    def __init__(self) -> None:
        self.live: dict[ast.AST, str] = {}
        self.effective: set[ast.AST] = set()
        self.used: Labels = NOTHING
        self.acts = self.refuses = False
        self.holds: dict[ast.AST, Value] = {}  # what the objects made at a site hold
        self.changed: Counter[ast.AST] = Counter()  # how often the objects made at a site were changed
        self.writes = 0  # how often anything else was changed
        self.bound: Counter[str] = Counter()  # how often a local name was bound
        self.conditions: list[Labels] = []
        self.may_raise = False
        self._steps = 0
        self._active: list[ast.AST] = []
        self.scope: Scope
        self.call = self.result = Call()
        self.catching: list[Catching] = []

    @contextmanager
    def earlier(self) -> Iterator[None]:
        """Follow what has run before the call, whose effects are none of the call."""
        state = self.acts, self.refuses, set(self.effective), self.used
        try:
            yield
        finally:
            self.acts, self.refuses, self.effective, self.used = state

    def act(self, node: ast.AST, labels: Labels) -> None:
        """Note that a node takes effect, under the present conditions."""
        self.acts = True
        self.writes += 1
        self._note_effect(node, labels)

    def _note_effect(self, node: ast.AST, labels: Labels) -> None:
        self.effective.add(node)
        self.live[node] = self.scope.file.path
        self.used = self.used.union(labels, self.call.split_on, *self.conditions)

    def note_raise(self, node: ast.AST, labels: Labels, name: str = "") -> None:
        """Note that a node raises; what always does, or is caught, does not count."""
        is_caught = any(each.catches(name) for each in self.catching)
        if not is_caught and (self.conditions or self.call.is_split):
            self.refuses = True
            self._note_effect(node, labels)

    def note_result(self, value: Value) -> None:
        """Note a result of the present call, and what decides that it is this one."""
        self.call.results.append(value)
        self.call.depends_on = self.call.depends_on.union(self.call.split_on, *self.conditions)

    def forget_attributes(self) -> None:
        """Forget what the attributes of `self` hold, which other code may have changed."""
        self.scope.names = {name: value for name, value in self.scope.names.items() if not name.startswith(".")}

    def made(self, site: ast.AST, content: Value, *, known: tuple[Any, ...] = (), truth: bool | None = None) -> Value:
        """Return a new object that is made at a site."""
        self.holds[site] = join([self.holds[site], content]) if site in self.holds else content
        if site in self.changed:
            known, truth = (), None
        return Value(known=known, truth=truth, sites=frozenset({site}), is_foreign=False)

    def computed(self, node: ast.AST, compute: Callable[[], Any]) -> Value | None:
        """Return the result of a computation with constants; None if it is too large."""
        found = fold(compute, is_new=True)
        is_object = found is not None and isinstance(found.known[0], list | dict | set)
        return self.made(node, PLAIN, known=found.known) if found and is_object else found

    def put(self, value: Value, content: Value) -> None:
        """Note that an object holds something more."""
        for site in value.sites:
            held = self.holds.get(site)
            self.holds[site] = join([held, content]) if held else content
        self.note_change(value)

    def note_change(self, value: Value) -> None:
        """Note that an object is changed, or may be."""
        self.changed.update(value.sites)
        if value.is_foreign or not value.sites:
            self.writes += 1

    def place_of(self, node: ast.expr, value: Value = UNKNOWN) -> tuple[object, ...]:
        """Return where a value is read: equal for the same names, attributes and items as long as nothing changes them."""
        if isinstance(node, ast.Subscript) and is_whole(node.slice):
            node = node.value
        if isinstance(node, ast.Call) and name_of(node) == "len" and len(node.args) == 1:
            place = self.place_of(node.args[0], value)
            return ("len", *place) if place else ()
        parts = list(ast.walk(node))
        if not all(isinstance(each, _PLACE) for each in parts):
            return ()
        homes = [(each.id, self.scope.holder(each.id)) for each in parts if isinstance(each, ast.Name)]
        bound = [(home, self.bound[name]) for name, home in homes]
        is_own = value.sites and not value.is_foreign
        changes = tuple(self.changed[each] for each in value.sites) if is_own else self.writes
        return (ast.unparse(node), *bound, changes)

    def at_place(self, node: ast.expr, value: Value) -> Value:
        """Return a value with where it is read, and whether everything was removed there."""
        place = () if value.known else self.place_of(node, value)
        lasting = tuple(each for each in value.facts if each.kind is not bool)
        return value._replace(place=value.place or place, facts=lasting + self._facts_at(place))

    def _facts_at(self, place: tuple[object, ...]) -> tuple[Fact, ...]:
        found = self.scope.names.get(_key(place)) if place else None
        return found.known[0] if found and found.known else ()

    def note_fact(self, node: ast.expr, value: Value, fact: Fact) -> None:
        """Note what holds for what an expression names, as long as nothing changes it."""
        place = self.place_of(node, value)
        if place:
            self.scope.names[_key(place)] = constant((*self._facts_at(place), fact))

    def note_emptied(self, node: ast.expr, value: Value) -> None:
        """Note that everything is removed from what an expression names."""
        self.note_fact(node, value, Fact(bool, False))

    def assume(self, test: ast.expr, *, truth: bool) -> None:
        """Note what holds where a condition is true, or where it is not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.assume(test.operand, truth=not truth)
        elif isinstance(test, ast.BoolOp):
            for each in test.values if isinstance(test.op, ast.And) is truth else ():
                self.assume(each, truth=truth)
        elif isinstance(test, ast.Compare):
            found = comparison(test, truth=truth)
            other = self.eval(found[2]).known if found and isinstance(found[2], ast.Name | ast.Constant) else ()
            if found and other and isinstance(other[0], Scalar):
                self._assume_fact(found[0], Fact(found[1], other[0]))
        else:
            self._assume_fact(test, Fact(bool, truth))

    def _assume_fact(self, node: ast.expr, fact: Fact) -> None:
        if self.place_of(node):
            self.note_fact(node, self.eval(node), fact)

    @contextmanager
    def assuming(self) -> Iterator[None]:
        """Keep what is assumed inside to the inside."""
        before = {name: value for name, value in self.scope.names.items() if name.startswith(_key(()))}
        try:
            yield
        finally:
            self.forget_facts()
            self.scope.names |= before

    def forget_facts(self) -> None:
        """Forget what conditions have said."""
        self.scope.names = {name: value for name, value in self.scope.names.items() if not name.startswith(_key(()))}

    def bind(self, name: str, value: Value) -> None:
        """Give a local name a value."""
        self.scope.names[name] = value
        self.bound[name] += 1

    def of_declared(self, value: Value, of: Declared | None) -> Value:
        """Return a value with what its annotation says."""
        return value._replace(declared=of, excluded=value.excluded | excluded_types(of)) if of else value

    def element(self, value: Value) -> Value:
        """Return what an item or attribute of a value may be."""
        held = [self.holds[site] for site in value.sites if site in self.holds]
        if value.is_foreign or not value.sites:
            held.append(self.of_declared(Value(value.labels, is_foreign=value.is_foreign), element_of(value.declared)))
        return join(held)._replace(labels=join(held).labels | value.labels)

    def labels_of(self, value: Value) -> Labels:
        """Return what a value depends on, what it holds included. Each object is looked at once: many may hold the same one."""
        labels, waiting = [value.labels], [value]
        seen: set[ast.AST | int] = set()
        while waiting:
            each = waiting.pop()
            labels.append(each.labels)
            waiting += [self.holds[site] for site in each.sites - seen if site in self.holds]
            seen |= each.sites
            for function in each.functions:
                if id(function) not in seen:
                    seen.add(id(function))
                    names = {node.id for node in ast.walk(function.node) if isinstance(node, ast.Name)}
                    homes = ((name, function.scope.holder(name)) for name in names)
                    waiting += [home.names[name] for name, home in homes if home]
                    waiting += [*function.given, *function.self_value]
        return NOTHING.union(*labels)

    def is_known(self, value: Value) -> bool:
        """True if a value is always the same here."""
        return bool(value.known) and not self._is_changed(value)

    def _is_changed(self, value: Value) -> bool:
        return any(each in self.changed for each in value.sites)

    def sure(self, value: Value) -> Value:
        """Return a value without what is no longer sure about it."""
        return value._replace(known=(), truth=None) if self._is_changed(value) else value

    def _kept_truth(self, value: Value) -> bool | None:
        return None if self._is_changed(value) else value.truth

    def truth(self, value: Value) -> bool | None:
        """Return the truth value of a value; None if it is not always the same."""
        if self.is_known(value):
            return bool(value.known[0])
        decided = decide(value.facts, bool, True)
        if decided is not None:
            return decided
        only_function = value.functions and not value.is_foreign and not value.sites
        return True if only_function else self._kept_truth(value)

    def step(self, node: ast.AST) -> None:
        """Note that a node can run; raises TooLong if there are too many."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise TooLong
        self.live.setdefault(node, self.scope.file.path)

    def decided_by(self, call: Call) -> Labels:
        """Return what decides between the results of a call, if it has several."""
        kinds = {repr(each.known) if self.is_known(each) else id(each) for each in call.results}
        return call.depends_on if len(kinds) > 1 else NOTHING

    def depends_on(self) -> Labels:
        """Return what decides whether the present place is reached."""
        return self.call.split_on.union(*self.conditions)

    @contextmanager
    def under(self, labels: Labels) -> Iterator[None]:
        """Follow what runs only under a condition that depends on `labels`."""
        self.conditions.append(labels)
        try:
            yield
        finally:
            self.conditions.pop()

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Keep the conditions that are added inside to the inside."""
        count = len(self.conditions)
        try:
            yield
        finally:
            del self.conditions[count:]

    # --- what later parts of the walk do, and earlier ones need -----------------------------------

    @abstractmethod
    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Follow statements; True if execution can continue after them."""

    @abstractmethod
    def store(self, target: ast.expr, value: Value) -> None:
        """Store a value in a name, attribute, item, or each of several."""

    @abstractmethod
    def item(self, items: Value) -> Value:
        """Iterate a value, and return what its items may be."""

    @abstractmethod
    def eval(self, node: ast.expr) -> Value:
        """Follow an expression, and return what is known of its value.

        Raises:
            Raised: It raises in every run.
        """

    @abstractmethod
    def attribute(self, owner: Value, node: ast.Attribute) -> Value:
        """Return the value of an attribute."""

    @abstractmethod
    def member(self, owner: Value, name: str) -> Value | None:
        """Return a method or constant of a class of the project; None for any other attribute of its objects."""

    @abstractmethod
    def item_by_key(self, owner: Value, key: Value) -> Value:
        """Return `owner[key]`; a constant key is one of the labels of the result."""


def _key(place: tuple[object, ...]) -> str:
    """Return under which name the facts of a place are kept; for no place, how these names begin."""
    return "..".join(("", "", *map(repr, place)))


def is_whole(key: ast.expr) -> bool:
    """True for the slice of `items[:]`."""
    return isinstance(key, ast.Slice) and not (key.lower or key.upper or key.step)


def is_generator(node: ast.AST) -> bool:
    """True for a function with a `yield` of its own."""
    own = own_nodes(node) if isinstance(node, FUNCTIONS) else ()
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own)


def is_static(node: ast.AST) -> bool:
    """True for a `@staticmethod`."""
    return any(name_of(each) == "staticmethod" for each in getattr(node, "decorator_list", ()))
