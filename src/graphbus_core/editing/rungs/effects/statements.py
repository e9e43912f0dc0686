"""Follows statements: which ways a run can take, and what each local name may be where they meet."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from typing import Any

from graphbus_core.compiler.reading.endings import NO_RETURN
from graphbus_core.editing.rungs.capability.sources import name_of
from graphbus_core.editing.rungs.effects.expressions import Expressions
from graphbus_core.editing.rungs.effects.notes import Catching, Loop, is_whole
from graphbus_core.editing.rungs.effects.values import (
    NOTHING,
    PLAIN,
    UNKNOWN,
    Function,
    Labels,
    Raised,
    Value,
    cannot_be,
    constant,
    fold_operator,
    is_no_slice,
    join,
    join_names,
)

_MOST_PASSES = 8
"""How often a loop is followed until nothing more becomes known."""


class Statements(Expressions):
    """Follows statements; each method for a statement returns whether execution can continue after it."""

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Follow statements; True if execution can continue after them."""
        for statement in statements:
            self.step(statement)
            self._may_leave()
            try:
                if not self._statement(statement):
                    return False
            except Raised:
                self.may_raise = True
                self._may_leave()
                return False
        return True

    def _may_leave(self) -> None:
        """Note the local names for the block around that catches exceptions."""
        if self.catching and self.catching[-1].scope is self.scope:
            self.catching[-1].names.append(dict(self.scope.names))

    def _statement(self, statement: ast.stmt) -> bool:
        follow_it = _STATEMENTS.get(type(statement))
        if follow_it:
            return follow_it(self, statement)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.may_raise = True
            for alias in statement.names:
                dotted = alias.name if isinstance(statement, ast.Import) else f"{statement.module}.{alias.name}"
                self.bind(alias.asname or alias.name.partition(".")[0], Value(name=dotted))
        return True

    def _do_expression(self, statement: ast.Expr) -> bool:
        value = statement.value
        self.eval(value)
        call = value.value if isinstance(value, ast.Await) else value
        if isinstance(call, ast.Call) and name_of(call) in NO_RETURN:
            raise Raised
        return True

    def _do_assignment(self, statement: ast.Assign | ast.AnnAssign) -> bool:
        if statement.value is None:
            return True
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        pairs = _pairs(targets[0], statement.value) if len(targets) == 1 else None
        if pairs:
            values = [(target, self.eval(each)) for target, each in pairs]
            for target, value in values:
                self.store(target, value)
            return True
        value = self.eval(statement.value)
        for target in targets:
            self.store(target, value)
        return True

    def _do_augmented(self, statement: ast.AugAssign) -> bool:
        value = self.sure(self.eval(statement.value))
        old = self.sure(self.eval(_as_load(statement.target)))
        result = self.combine(statement.op, old, value)
        if result is old:
            return True
        is_empty = result.truth is False
        if old.sites:  # `+=` may change a list in place
            self.put(old, self.consume(value))
            result = result._replace(sites=old.sites, known=(), truth=None)
        self.store(statement.target, result)
        if is_empty:
            self.note_emptied(statement.target, result)
        return True

    def _do_delete(self, statement: ast.Delete) -> bool:
        for target in statement.targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                owner = self.eval(target.value)
                self._store_item(target, owner, Value(truth=False, is_foreign=False))
        return True

    def store(self, target: ast.expr, value: Value) -> None:
        """Store a value in a name, attribute, item, or each of several."""
        self.live.setdefault(target, self.scope.file.path)
        if isinstance(target, ast.Name):
            self._store_name(target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            item = self.consume(value)
            for each in target.elts:
                self.store(each, item)
        elif isinstance(target, ast.Starred):
            self.store(target.value, self.made(target, value))
        elif isinstance(target, ast.Attribute | ast.Subscript):
            owner = self.eval(target.value)
            if not value.place or value.place != self.place_of(target, owner):
                self._store_item(target, owner, value)
            if isinstance(target, ast.Attribute) and owner.kind:
                self.scope.names[f".{target.attr}"] = value

    def _store_item(self, target: ast.Attribute | ast.Subscript, owner: Value, value: Value) -> None:
        """Store a value in an attribute or item; to delete it, an empty one."""
        key = self.eval(target.slice) if isinstance(target, ast.Subscript) else PLAIN
        if is_no_slice(key) and self.truth(value) is False:
            return
        self.put(owner, value._replace(labels=value.labels | key.labels | self.depends_on()))
        if owner.is_foreign:
            self.act(target, owner.labels | key.labels | self.labels_of(value))
            self.hand_over(value)
        if isinstance(target, ast.Subscript) and is_whole(target.slice) and self.truth(value) is False:
            self.note_emptied(target, owner)

    def _store_name(self, target: ast.Name, value: Value) -> None:
        kind = self.scope.elsewhere.get(target.id)
        if kind is ast.Global:
            self.act(target, self.labels_of(value))
            return
        home = self.scope.holder(target.id) if kind is ast.Nonlocal else None
        if home:
            home.names[target.id] = join([home.names[target.id], value])
            self.bound[target.id] += 1
        else:
            self.bind(target.id, value)

    def _do_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        value = Value(functions=(Function(node, self.scope),), is_foreign=False)
        self.bind(node.name, self.decorate(value, node))
        return True

    def _do_class(self, node: ast.ClassDef) -> bool:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        self.bind(node.name, Value(self._labels_of_names(names)))
        return True

    def _do_return(self, statement: ast.Return) -> bool:
        self.note_result(self.eval(statement.value) if statement.value else constant(None))
        return False

    def _do_raise(self, statement: ast.Raise) -> bool:
        labels = NOTHING
        if isinstance(statement.exc, ast.Call):
            given = [*statement.exc.args, *(each.value for each in statement.exc.keywords)]
            labels = labels.union(*(self.eval(each).labels for each in given))
        elif statement.exc:
            labels = self.eval(statement.exc).labels
        self.note_raise(statement, labels, name_of(statement.exc) if statement.exc else "")
        raise Raised

    def _do_assert(self, statement: ast.Assert) -> bool:
        test = self.eval(statement.test)
        truth = self.truth(test)
        if truth is False:
            raise Raised
        if truth is None:
            self.may_raise = True
            with self.under(self.labels_of(test)):
                self.note_raise(statement, test.labels, "AssertionError")
            self.assume(statement.test, truth=True)
        return True

    def _do_break(self, statement: ast.Break | ast.Continue) -> bool:
        if self.call.loops:
            loop = self.call.loops[-1]
            (loop.breaks if isinstance(statement, ast.Break) else loop.continues).append(dict(self.scope.names))
        return False

    def _ways(self, ways: Sequence[Callable[[], bool]], labels: Labels) -> bool:
        """Follow several ways, of which each run takes one, and join the names of those that continue."""
        before, after, ends = self.scope.names, [], []
        for way in ways:
            self.scope.names = dict(before)
            with self.under(labels):
                ends.append(way())
            if ends[-1]:
                after.append(self.scope.names)
        self.scope.names = join_names(after, labels) if after else before
        if len(set(ends)) > 1:
            self.call.is_split = True
            self.call.split_on |= labels
        return bool(after)

    def _do_if(self, statement: ast.If) -> bool:
        test = self.eval(statement.test)
        truth = self.truth(test)
        blocks = [statement.body, statement.orelse]
        if truth is not None:
            return self.block(blocks[not truth])
        ways = [partial(self._branch, statement.test, block, truth=block is blocks[0]) for block in blocks]
        return self._ways(ways, self.labels_of(test))

    def _branch(self, test: ast.expr, block: Sequence[ast.stmt], *, truth: bool) -> bool:
        """Follow what runs where a condition is true, or where it is not."""
        self.assume(test, truth=truth)
        return self.block(block)

    def _do_match(self, statement: ast.Match) -> bool:
        subject = self.sure(self.eval(statement.subject))
        ways: list[Callable[[], bool]] = []
        for case in statement.cases:
            fits = _fits(case.pattern, subject)
            if fits is not False:
                ways.append(partial(self._case, case, subject))
            if fits and case.guard is None:
                break
        else:
            ways.append(lambda: True)
        return ways[0]() if len(ways) == 1 else self._ways(ways, self.labels_of(subject))

    def _case(self, case: ast.match_case, subject: Value) -> bool:
        for node in ast.walk(case.pattern):
            name = getattr(node, "rest", None) or getattr(node, "name", None)
            if name:
                whole = node is case.pattern
                self.bind(name, subject if whole else Value(subject.labels))
        if case.guard is None:
            return self.block(case.body)
        guard = self.eval(case.guard)
        truth = self.truth(guard)
        if truth is False:
            return True
        if truth:
            return self.block(case.body)
        return self._ways([partial(self.block, case.body), lambda: True], self.labels_of(guard))

    def _do_for(self, statement: ast.For | ast.AsyncFor) -> bool:
        items = self.eval(statement.iter)
        self.may_raise = self.may_raise or not self.is_known(items)
        truth = self.truth(items) if not items.work else None
        if truth is False:
            return self.block(statement.orelse)
        item = self.item(items)

        def enter() -> bool:
            self.store(statement.target, item)
            return self.block(statement.body)

        return self._loop(statement, enter, self.labels_of(items), is_entered=truth is True, may_end=lambda: True)

    def item(self, items: Value) -> Value:
        """Return what the loop variable of a loop over a value may be."""
        if self.is_known(items) and not items.sites and hasattr(items.known[0], "__iter__"):
            several = list(zip(range(_MOST_PASSES), items.known[0], strict=False))
            return join(constant(each) for _, each in several) if len(several) < _MOST_PASSES else PLAIN
        return self.consume(items)

    def _do_while(self, statement: ast.While) -> bool:
        test = self.eval(statement.test)
        truth = self.truth(test)
        if truth is False:
            return self.block(statement.orelse)

        def may_end() -> bool:
            return self.truth(self.eval(statement.test)) is not True

        labels = self.labels_of(test)
        enter = partial(self._branch, statement.test, statement.body, truth=True)
        return self._loop(statement, enter, labels, is_entered=truth is True, may_end=may_end)

    def _loop(
        self,
        statement: ast.For | ast.AsyncFor | ast.While,
        enter: Callable[[], bool],
        labels: Labels,
        *,
        is_entered: bool,
        may_end: Callable[[], bool],
    ) -> bool:
        """Follow a loop until nothing more becomes known; `is_entered` if its body runs at least once."""
        self.forget_facts()  # a later pass may change what holds in the first one
        loop, ends = Loop(), [] if is_entered else [dict(self.scope.names)]
        can_end, continues = not is_entered, False
        for _ in range(_MOST_PASSES):
            before = self.scope.names
            self.scope.names = dict(before)
            self.call.loops.append(loop)
            try:
                with self.under(labels):
                    continues = enter()
            finally:
                self.call.loops.pop()
            again = [*([self.scope.names] if continues else []), *loop.continues]
            if not again:
                break
            self.scope.names = join_names(again)
            if may_end():
                can_end = True
                ends += again
            self.scope.names = join_names([before, *again], labels)
            if self.scope.names == before:
                break
        after = list(loop.breaks)
        if can_end and ends:
            self.scope.names = join_names(ends, labels)
            if self.block(statement.orelse):
                after.append(self.scope.names)
        if not after:
            return False
        self.scope.names = join_names(after, labels)
        if not is_entered and not loop.continues and not continues:
            self.call.is_split, self.call.split_on = True, self.call.split_on | labels
        return True

    def _do_with(self, statement: ast.With | ast.AsyncWith) -> bool:
        may_swallow, types = False, list[str]()
        for item in statement.items:
            value = self.eval(item.context_expr)
            self.writes += 1  # it may wait for others
            if name_of(item.context_expr) == "suppress" and isinstance(item.context_expr, ast.Call):
                types += map(name_of, item.context_expr.args)
            else:
                types.append("no exception")
            entered = self.consume(value) if value.work else Value(value.labels, is_foreign=True)
            may_swallow |= not value.work
            if item.optional_vars:
                self.store(item.optional_vars, value._replace(is_foreign=True) if value.sites else entered)
        catching = Catching(self.scope, tuple(types) if may_swallow else ("no exception",), [dict(self.scope.names)])
        self.catching.append(catching)
        self.may_raise, before = False, self.may_raise
        try:
            continues = self.block(statement.body)
        finally:
            self.catching.pop()
        may_swallow &= self.may_raise
        self.may_raise |= before
        if may_swallow:
            self.scope.names = join_names([*catching.names, *([self.scope.names] if continues else [])])
        return continues or may_swallow

    def _do_try(self, statement: ast.Try) -> bool:
        before, labels = self.may_raise, self._labels_in(statement.body)
        self.may_raise = False
        self.catching.append(Catching(self.scope, tuple(_caught_types(statement)), []))
        try:
            ends = self.block(statement.body)
        finally:
            raised = self.catching.pop().names
        after, may_raise = self.scope.names, self.may_raise
        self.may_raise = before or may_raise
        ways: list[Callable[[], bool]] = [] if not ends else [partial(self._after_try, after, statement.orelse)]
        if may_raise:
            names = join_names(raised)
            ways += [partial(self._handle, names, each) for each in statement.handlers]
        if not ways:
            continues = False
        elif len(ways) == 1:
            continues = ways[0]()
        else:
            continues = self._ways(ways, labels)
        if statement.finalbody and (may_raise or not continues):
            normal = self.scope.names
            self.scope.names = join_names([*raised, normal])
            self.block(statement.finalbody)
            self.scope.names = normal
        return self.block(statement.finalbody) and continues

    def _labels_in(self, statements: Sequence[ast.stmt]) -> Labels:
        """Return what the names in some statements depend on."""
        return self._labels_of_names(
            {node.id for each in statements for node in ast.walk(each) if isinstance(node, ast.Name)}
        )

    def _labels_of_names(self, names: Set[str]) -> Labels:
        return NOTHING.union(*(self.labels_of(value) for name, value in self.scope.names.items() if name in names))

    def _after_try(self, names: dict[str, Value], statements: Sequence[ast.stmt]) -> bool:
        self.scope.names = dict(names)
        return self.block(statements)

    def _handle(self, names: dict[str, Value], handler: ast.ExceptHandler) -> bool:
        self.scope.names = dict(names)
        if handler.name:
            self.bind(handler.name, UNKNOWN)
        return self.block(handler.body)


_PATTERN_TYPES = {ast.MatchSequence: {"list", "tuple"}, ast.MatchMapping: {"dict"}}
_STATEMENTS: dict[type, Callable[[Statements, Any], bool]] = {
    ast.Expr: Statements._do_expression,
    ast.Assign: Statements._do_assignment,
    ast.AnnAssign: Statements._do_assignment,
    ast.AugAssign: Statements._do_augmented,
    ast.Delete: Statements._do_delete,
    ast.FunctionDef: Statements._do_definition,
    ast.AsyncFunctionDef: Statements._do_definition,
    ast.ClassDef: Statements._do_class,
    ast.Return: Statements._do_return,
    ast.Raise: Statements._do_raise,
    ast.Assert: Statements._do_assert,
    ast.Break: Statements._do_break,
    ast.Continue: Statements._do_break,
    ast.If: Statements._do_if,
    ast.Match: Statements._do_match,
    ast.For: Statements._do_for,
    ast.AsyncFor: Statements._do_for,
    ast.While: Statements._do_while,
    ast.With: Statements._do_with,
    ast.AsyncWith: Statements._do_with,
    ast.Try: Statements._do_try,
    ast.TryStar: Statements._do_try,
}


def _caught_types(statement: ast.Try) -> Iterator[str]:
    """Yield the names of the exceptions that a `try` catches."""
    for handler in statement.handlers:
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        yield from (name_of(each) if each else "BaseException" for each in types)
    if not statement.handlers:
        yield "no exception"


def _as_load(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """Return the expression that reads what a target names."""
    fields = {name: getattr(target, name) for name in target._fields}
    return ast.copy_location(type(target)(**{**fields, "ctx": ast.Load()}), target)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]] | None:
    """Return what `a, b = x, y` assigns to each; None for any other assignment."""
    if not isinstance(target, ast.Tuple | ast.List) or not isinstance(value, ast.Tuple | ast.List):
        return None
    is_starred = any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts))
    return (
        None if is_starred or len(target.elts) != len(value.elts) else list(zip(target.elts, value.elts, strict=True))
    )


def _fits(pattern: ast.pattern, subject: Value) -> bool | None:
    """Return whether a pattern fits a value; None if that is not known."""
    if isinstance(pattern, ast.MatchAs):
        return True if pattern.pattern is None else _fits(pattern.pattern, subject)
    if isinstance(pattern, ast.MatchOr):
        found = [_fits(each, subject) for each in pattern.patterns]
        return True if True in found else None if None in found else False
    if isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
        value = pattern.value.value if isinstance(pattern.value, ast.Constant) else pattern.value
        if isinstance(value, ast.AST):
            return None
        is_equal = fold_operator(ast.Eq(), subject, constant(value))
        return is_equal.known[0] if is_equal else None
    kinds = {name_of(pattern.cls)} if isinstance(pattern, ast.MatchClass) else _PATTERN_TYPES.get(type(pattern))
    return False if kinds and cannot_be(subject, kinds) else None
