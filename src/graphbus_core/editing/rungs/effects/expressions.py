"""Follows expressions, and finds what names and attributes may be."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from graphbus_core.editing.rungs.capability.scopes import ImportedName, NameBinding
from graphbus_core.editing.rungs.capability.sources import BUILTINS, AnalyzedFile, name_of
from graphbus_core.editing.rungs.effects.annotations import excluded_types, item_of
from graphbus_core.editing.rungs.effects.calls import Calls
from graphbus_core.editing.rungs.effects.notes import FUNCTIONS, is_static, is_whole
from graphbus_core.editing.rungs.effects.values import (
    NAME_OF_TYPE,
    NOTHING,
    PLAIN,
    SCALARS,
    TYPE,
    UNKNOWN,
    Function,
    FunctionLike,
    Raised,
    Scope,
    Value,
    Work,
    are_equal,
    constant,
    fold,
    fold_operator,
    is_neutral,
    is_no_slice,
    is_void,
    join,
    type_of,
)


class Expressions(Calls):
    """Follows expressions."""

    def eval(self, node: ast.expr) -> Value:
        """Follow an expression, and return what is known of its value.

        Raises:
            Raised: It raises in every run.
        """
        self.step(node)
        follow_it = _EXPRESSIONS.get(type(node))
        if follow_it:
            value = follow_it(self, node)
            return self.at_place(node, value) if isinstance(node, _PLACES) else value
        children = [self.eval(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return Value(NOTHING.union(*(self.labels_of(each) for each in children)), is_foreign=False)

    def _at_constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _at_name(self, node: ast.Name) -> Value:
        home = self.scope.holder(node.id)
        return self.sure(home.names[node.id]) if home else self._global(self.scope.file, node.id)

    def _global(self, file: AnalyzedFile, name: str) -> Value:
        """Return the value of a name of a module, of another module of the project too, or of a builtin."""
        bound = file.scopes.module.bindings.get(name)
        if name == "__name__":
            return constant(file.module)  # no agent is run as a script
        if bound is None:
            return of_outside(f"builtins.{name}" if name in BUILTINS and not file.scopes.module.stars else "")
        return join(self._of_binding(file, each, is_only=len(bound) == 1) for each in bound)

    def _of_binding(self, file: AnalyzedFile, binding: NameBinding, *, is_only: bool) -> Value:
        source = binding.source
        if isinstance(source, ImportedName):
            return self._imported(file, source)
        scope = Scope(file)
        if isinstance(source, (*FUNCTIONS, ast.Lambda)):
            value = Value(functions=(Function(source, scope),), is_foreign=False)
            return self.decorate(value, source) if source not in self._active else value
        if isinstance(source, ast.ClassDef):
            return Value(kind=(file, source), name=f"class {source.name}")
        if is_only and isinstance(source, ast.Constant):
            return constant(source.value)
        if (
            isinstance(source, ast.Name | ast.Attribute | ast.Call | ast.Tuple)
            and source not in self._active
            and is_only
        ):
            return self._of_assigned(source, scope)
        return UNKNOWN

    def _of_assigned(self, source: ast.expr, scope: Scope) -> Value:
        """Return the value of a name of a module that another function is assigned to, or what a call returns."""
        with self.inside(source, scope), self.earlier(), suppress(Raised):
            found = self.eval(source)
            is_fixed = found.known and not found.sites
            return found if is_fixed else found._replace(is_foreign=not found.functions, sites=frozenset(), known=())
        return UNKNOWN

    def _imported(self, file: AnalyzedFile, source: ImportedName) -> Value:
        module = file.project.module(source.module)
        if module is None or module is file or not source.name:
            return of_outside(f"{source.module}.{source.name}".rstrip("."))
        return self._global(module, source.name) if source.name in module.scopes.module.bindings else UNKNOWN

    def _at_attribute(self, node: ast.Attribute) -> Value:
        self.may_raise = True
        owner = self.eval(node.value)
        if self.is_known(owner) and not hasattr(owner.known[0], node.attr):
            raise Raised
        return self.attribute(owner, node)

    def attribute(self, owner: Value, node: ast.Attribute) -> Value:
        """Return the value of an attribute, of a class of the project or of anything else."""
        set_here = self.scope.names.get(f".{node.attr}") if owner.kind else None
        if set_here:
            return self.sure(set_here)
        if node.attr == "__class__":
            return type_of(owner)
        if owner.name == TYPE:
            is_name = node.attr in ("__name__", "__qualname__")
            return owner._replace(name=NAME_OF_TYPE) if is_name else Value(owner.labels)
        if owner.name and not owner.kind:
            return of_outside(f"{owner.name}.{node.attr}")
        if owner.kind:
            member = self.member(owner, node.attr) or self.element(owner)._replace(known=(), truth=None)
            # a getter of a constant depends on its object
            return member._replace(labels=member.labels | owner.labels) if self.is_known(member) else member
        read = frozenset({f"[{node.attr}]"}) if owner.labels else NOTHING
        found = self.element(owner)
        return Value(found.labels | read, sites=found.sites, is_foreign=found.is_foreign)

    def member(self, owner: Value, name: str) -> Value | None:
        """Return a method or constant of a class of the project; None for any other attribute of its objects."""
        file, kind = owner.kind  # type: ignore[misc]
        for home, step, bound in file.bound(kind, name, skip_first=owner.is_super):
            methods = [each.source for each in bound if isinstance(each.source, (*FUNCTIONS, ast.Lambda))]
            written = [each for each in bound if not isinstance(each.source, (*FUNCTIONS, ast.Lambda))]
            if methods:
                several = [(home, step, each) for each in methods] + list(_overriding(home, step, name))
                made = [self._bound_method(owner, *each) for each in several]
                return join([*made, *([UNKNOWN] if written else [])])
            source = bound[0].source if len(bound) == 1 else None
            writes = [each for scope in home.scopes.of.values() for each in scope.writes if each.attribute == name]
            is_fixed = len(home.project.fields(name)) == 1 and all(each.value is source for each in writes)
            is_plain = all(each.kind != "outside" or each.name.endswith(".GraphBusNode") for each in home.bases(step))
            return constant(source.value) if isinstance(source, ast.Constant) and is_fixed and is_plain else None
        return None

    def _bound_method(self, owner: Value, home: AnalyzedFile, kind: ast.ClassDef, method: FunctionLike) -> Value:
        """Return a method of an object; for a property, what it returns."""
        names = {name_of(each) for each in getattr(method, "decorator_list", ())}
        value = Value(functions=(Function(method, Scope(home, kind)),), is_foreign=False)
        value = self.decorate(value, method) if method not in self._active else value
        is_bound = not is_static(method) and not owner.name
        if is_bound:
            owner = owner._replace(is_super=False, excluded=SCALARS)
            functions = tuple(each._replace(self_value=(owner,)) for each in value.functions)
            value = value._replace(functions=functions)
        if names & {"property", "cached_property"}:
            return join(self.invoke(each, [], {}, None) for each in value.functions)
        return value

    def _at_subscript(self, node: ast.Subscript) -> Value:
        self.may_raise = True
        owner = self.eval(node.value)
        key = self.sure(self.eval(node.slice))
        if is_no_slice(key):
            return Value(truth=False, is_foreign=False)
        if is_whole(node.slice) and not self.is_known(owner):
            return self.copy(node, owner)
        if self.is_known(owner) and key.known:
            return self.computed(node, lambda: owner.known[0][key.known[0]]) or PLAIN
        return self._only_item(owner) or self.item_by_key(owner, key)

    def _only_item(self, owner: Value) -> Value | None:
        """Return what all items of a known dict or list are; None if they differ."""
        items = owner.known[0] if self.is_known(owner) else None
        several = list(items.values() if isinstance(items, dict) else items if isinstance(items, list | tuple) else ())
        return constant(several[0]) if several and are_equal([constant(each) for each in several]) else None

    def item_by_key(self, owner: Value, key: Value) -> Value:
        """Return `owner[key]`; a constant key is one of the labels of the result."""
        found = self.element(owner)
        read = frozenset({f"[{key.known[0]}]"}) if key.known and owner.labels else NOTHING
        of = item_of(owner.declared, key.known[0] if key.known else None)
        found = found._replace(declared=of, excluded=excluded_types(of))
        return found._replace(labels=found.labels | key.labels | read)

    def _at_slice(self, node: ast.Slice) -> Value:
        parts = [self.sure(self.eval(each)) if each else constant(None) for each in (node.lower, node.upper, node.step)]
        labels = NOTHING.union(*(self.labels_of(each) for each in parts))
        return (
            constant(slice(*(each.known[0] for each in parts))) if all(each.known for each in parts) else Value(labels)
        )

    def _at_operation(self, node: ast.BinOp) -> Value:
        found = self.combine(node.op, self.sure(self.eval(node.left)), self.sure(self.eval(node.right)))
        self.may_raise = self.may_raise or not found.known
        return found

    def combine(self, kind: ast.operator, left: Value, right: Value) -> Value:
        """Return the result of an operator, which is computed if both values are known."""
        is_format = isinstance(kind, ast.Mod) and left.known and isinstance(left.known[0], str | bytes)
        found = None if is_format else fold_operator(kind, left, right)
        if found or is_void(kind, left, right):
            return found or Value(truth=False, is_foreign=False)
        if is_neutral(kind, right) or (
            isinstance(kind, ast.BitOr | ast.BitAnd) and left.place and left.place == right.place
        ):
            return left
        labels = self.labels_of(left) | self.labels_of(right)
        return Value(labels, is_foreign=left.is_foreign or right.is_foreign)

    def _at_not(self, node: ast.UnaryOp) -> Value:
        value = self.sure(self.eval(node.operand))
        if isinstance(node.op, ast.Not):
            truth = self.truth(value)
            return Value(self.labels_of(value), is_foreign=False) if truth is None else constant(not truth)
        minus = isinstance(node.op, ast.USub) and value.known
        return (fold(lambda: -value.known[0]) if minus else None) or Value(value.labels, is_foreign=False)

    def _at_logic(self, node: ast.BoolOp) -> Value:
        found: list[Value] = []
        decides = isinstance(node.op, ast.Or)
        with self.restoring(), self.assuming():
            for number, operand in enumerate(node.values):
                value = self.eval(operand) if not number else self._maybe(operand)
                if value is None:
                    break
                truth = self.truth(value)
                if truth is decides or number == len(node.values) - 1:
                    found.append(value)
                if truth is decides:
                    break
                if truth is None:
                    found.append(value)
                    self.conditions.append(self.labels_of(value))
                    self.assume(operand, truth=not decides)
        truths = {self.truth(each) for each in found}
        if len(found) == 1:
            return found[0]
        # an operand that decides gives the result its truth value, whatever the others are
        is_decided = bool(found) and self.truth(found[-1]) is decides
        if is_decided and not decides:
            return Value(truth=False, is_foreign=False)  # what decides it does not matter
        return join(found)._replace(
            known=(), truth=decides if is_decided else truths.pop() if len(truths) == 1 else None
        )

    def _maybe(self, node: ast.expr) -> Value | None:
        """Follow an expression that only some runs reach; None if it always raises."""
        try:
            return self.eval(node)
        except Raised:
            return None

    def _at_comparison(self, node: ast.Compare) -> Value:
        values = [self.sure(self.eval(each)) for each in (node.left, *node.comparators)]
        self.may_raise = self.may_raise or not all(each.known for each in values)
        sides = zip(node.ops, pairwise(values), node.comparators, strict=True)
        results = [self._compare(op, *pair, written) for op, pair, written in sides]
        if any(each is not None and not each.known[0] for each in results):
            return constant(False)
        if None not in results:
            return constant(True)
        return Value(NOTHING.union(*(self.labels_of(each) for each in values)), is_foreign=False)

    def _compare(self, op: ast.cmpop, left: Value, right: Value, written: ast.expr) -> Value | None:
        """Return the result of a comparison; None if it is not known."""
        if isinstance(op, ast.In | ast.NotIn) and isinstance(written, ast.Tuple | ast.List | ast.Set):
            found = [fold_operator(ast.Eq(), left, self.eval(each)) for each in written.elts]
            if all(each is not None and not each.known[0] for each in found):
                return constant(isinstance(op, ast.NotIn))
        return fold_operator(op, left, right)

    def _at_choice(self, node: ast.IfExp) -> Value:
        test = self.eval(node.test)
        truth = self.truth(test)
        if truth is not None:
            return self.eval(node.body if truth else node.orelse)
        with self.under(self.labels_of(test)):
            ways = [self._choose(node.test, node.body, truth=True), self._choose(node.test, node.orelse, truth=False)]
            found = [value for value in ways if value is not None]
        if not found:
            raise Raised
        joined = join(found)
        return joined if are_equal(found) else joined._replace(labels=joined.labels | self.labels_of(test))

    def _choose(self, test: ast.expr, node: ast.expr, *, truth: bool) -> Value | None:
        """Follow what is computed where a condition is true, or where it is not; None if it always raises."""
        with self.assuming():
            self.assume(test, truth=truth)
            return self._maybe(node)

    def _at_display(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        if len(node.elts) == 1 and isinstance(node.elts[0], ast.Starred):
            return self.copy(node, self.eval(node.elts[0].value))
        parts = [self.sure(self.eval(each)) for each in node.elts]
        truth = False if not parts else True if any(not isinstance(each, ast.Starred) for each in node.elts) else None
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        simple = all(each.known and not each.sites for each in parts) and truth is not None
        known = fold(kind, [each.known[0] for each in parts], is_new=True) if simple else None
        if isinstance(node, ast.Tuple) and known and all(not isinstance(each, ast.Starred) for each in node.elts):
            return known
        return self.made(node, join(parts), known=known.known if known else (), truth=truth)

    def _at_dict(self, node: ast.Dict) -> Value:
        keys = [self.sure(self.eval(each)) if each else None for each in node.keys]
        values = [self.sure(self.eval(each)) for each in node.values]
        if keys == [None]:
            return self.copy(node, values[0])
        given = list(zip(keys, values, strict=True))
        truth = False if not keys else True if any(keys) else None
        simple = all(key and key.known and value.known and not value.sites for key, value in given)
        known = (
            fold(dict, [(key.known[0], value.known[0]) for key, value in given if key], is_new=True) if simple else None
        )
        parts = [self.element(value) if key is None else value for key, value in given]
        labels = NOTHING.union(*(key.labels for key in keys if key))
        content = join(parts)
        return self.made(
            node, content._replace(labels=content.labels | labels), known=known.known if known else (), truth=truth
        )

    def _at_starred(self, node: ast.Starred) -> Value:
        return self.consume(self.eval(node.value))

    def _at_text(self, node: ast.JoinedStr) -> Value:
        parts = [self.eval(each) for each in node.values]
        labels = NOTHING.union(*(self.labels_of(each) for each in parts))
        has_text = any(isinstance(each, ast.Constant) and each.value for each in node.values)
        return Value(labels, truth=True if has_text else None, is_foreign=False)

    def _at_lambda(self, node: ast.Lambda) -> Value:
        return Value(functions=(Function(node, self.scope),), is_foreign=False)

    def _at_walrus(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.store(node.target, value)
        return value

    def _at_await(self, node: ast.Await) -> Value:
        value = self.eval(node.value)
        self.writes += 1
        if value.work:
            return join([work.run() for work in value.work])
        if value.is_foreign and not isinstance(node.value, ast.Call):
            self.unknown_call(node, [value])
        return Value(value.labels)

    def _at_yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        self.may_raise = True
        value = self.eval(node.value) if node.value else constant(None)
        self.writes += 1
        if isinstance(node, ast.YieldFrom):
            value = self.consume(value)
        self.note_result(value)
        return Value(self.labels_of(value))

    def _at_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> Value:
        first, loop = self.eval(node.generators[0].iter), node.generators[0]
        made = self._comprehend(node, node.generators, first)
        is_copy = not isinstance(node, ast.DictComp) and len(node.generators) == 1 and not loop.ifs
        is_copy = is_copy and ast.unparse(node.elt) == ast.unparse(loop.target)  # type: ignore[union-attr]
        return made._replace(place=first.place) if is_copy else made

    def _at_generator(self, node: ast.GeneratorExp) -> Value:
        first = self.eval(node.generators[0].iter)
        if not first.work and self.truth(first) is False:
            return constant(())
        run = partial(self._run_generator, node, first, self.scope)
        return Value(self.labels_of(first), work=(Work(node, run),), is_foreign=False, truth=True)

    def _run_generator(self, node: ast.GeneratorExp, first: Value, scope: Scope) -> Value:
        outer, self.scope = self.scope, scope
        try:
            return self.element(self._comprehend(node, node.generators, first))
        finally:
            self.scope = outer

    def _comprehend(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, generators: Sequence[ast.comprehension],
        first: Value,
    ) -> Value:  # fmt: skip
        """Follow a comprehension whose first iterable is known."""
        outer, self.scope = self.scope, Scope(self.scope.file, self.scope.owner, self.scope)
        items: Value | None = first
        with self.restoring():
            try:
                for number, generator in enumerate(generators):
                    items = self.eval(generator.iter) if number else first
                    if not items.work and self.truth(items) is False:
                        return self.made(node, PLAIN, known=([],), truth=False)
                    self.may_raise = self.may_raise or not self.is_known(items)
                    self.conditions.append(self.labels_of(items))
                    self.store(generator.target, self.item(items))
                    for test in generator.ifs:
                        value = self.eval(test)
                        if self.truth(value) is False:
                            return self.made(node, PLAIN, known=([],), truth=False)
                        self.conditions.append(self.labels_of(value))
                        self.assume(test, truth=True)
                parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                content = join(self.eval(each) for each in parts)
                return self.made(node, content._replace(labels=content.labels.union(*self.conditions)))
            finally:
                self.scope = outer


_PLACES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
_EXPRESSIONS: dict[type, Callable[[Expressions, Any], Value]] = {
    ast.Constant: Expressions._at_constant,
    ast.Name: Expressions._at_name,
    ast.Attribute: Expressions._at_attribute,
    ast.Subscript: Expressions._at_subscript,
    ast.Slice: Expressions._at_slice,
    ast.BinOp: Expressions._at_operation,
    ast.UnaryOp: Expressions._at_not,
    ast.BoolOp: Expressions._at_logic,
    ast.Compare: Expressions._at_comparison,
    ast.IfExp: Expressions._at_choice,
    ast.List: Expressions._at_display,
    ast.Tuple: Expressions._at_display,
    ast.Set: Expressions._at_display,
    ast.Dict: Expressions._at_dict,
    ast.Starred: Expressions._at_starred,
    ast.JoinedStr: Expressions._at_text,
    ast.Lambda: Expressions._at_lambda,
    ast.NamedExpr: Expressions._at_walrus,
    ast.Await: Expressions._at_await,
    ast.Yield: Expressions._at_yield,
    ast.YieldFrom: Expressions._at_yield,
    ast.ListComp: Expressions._at_comprehension,
    ast.SetComp: Expressions._at_comprehension,
    ast.DictComp: Expressions._at_comprehension,
    ast.GeneratorExp: Expressions._at_generator,
    ast.Call: Expressions._at_call,
}


def of_outside(name: str) -> Value:
    """Return something from outside of the project, by its dotted name."""
    if name in ("typing.TYPE_CHECKING", "builtins.__debug__"):
        return constant(name == "builtins.__debug__")
    return Value(name=name)


def _overriding(
    home: AnalyzedFile, kind: ast.ClassDef, name: str
) -> Iterator[tuple[AnalyzedFile, ast.ClassDef, FunctionLike]]:
    """Yield the methods of this name in the classes of the project that derive from a class."""
    for file, owner, method in home.project.fields(name):
        if owner and owner is not kind and isinstance(method, (*FUNCTIONS, ast.Lambda)):
            yield from ((file, owner, method) for _, step in file.lineage(owner) if step is kind)
