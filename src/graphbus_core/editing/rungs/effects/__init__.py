"""Follows a function and says what can run and take effect when it is called, whatever else is written in it.

    statements      both ways of each condition that is not always the same; what follows a `return` or `raise` is not run
    local names     what each may be at a place: a constant, a function, a new object, what parameters hold
    calls           functions of the project are followed with their arguments; of what is not followed, little is known as idle
    generators      run where they are iterated, and coroutines where they are awaited
    conditions      hold below them, for what stands at the same place and is not changed in between
    annotations     exclude types; what a value is for certain they do not say

Where something is not known it counts as taking effect, so that what has no effect here has none.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import NamedTuple

from graphbus_core.editing.rungs.capability.scopes import defaults_of
from graphbus_core.editing.rungs.capability.sources import AnalyzedFile, name_of
from graphbus_core.editing.rungs.effects.annotations import declared, is_data
from graphbus_core.editing.rungs.effects.notes import TooLong, is_generator, is_static
from graphbus_core.editing.rungs.effects.statements import Statements
from graphbus_core.editing.rungs.effects.values import (
    NOTHING,
    SCALARS,
    Function,
    FunctionLike,
    Labels,
    Raised,
    Scope,
    Value,
)

__all__ = ["EVERYTHING", "Course", "follow", "is_generator"]

EVERYTHING = frozenset({"*"})
"""Stands for all parameters and keys."""


class Course(NamedTuple):
    """What a call of a function may do.

    Attributes:
        acts: It changes something that was there before, or calls what is not known to change nothing.
        refuses: It raises in some runs.
        returns: Its result depends on its arguments, or on what they lead to.
        gives_result: Some `return` has a value.
        live: The expressions and statements that can run, each with the path of its file.
        effective: Those among them that take effect.
        used: The parameters and keys on which the effects and results depend.
    """

    acts: bool
    refuses: bool
    returns: bool
    gives_result: bool
    live: dict[ast.AST, str]
    effective: frozenset[ast.AST]
    used: Labels


def follow(file: AnalyzedFile, function: FunctionLike, owner: ast.ClassDef | None = None) -> Course:
    """Return what a call of a function, or of a method of the class `owner`, may do."""
    walk = _Walk()
    try:
        walk.run(file, function, owner)
    except (TooLong, RecursionError):
        everything = dict.fromkeys(ast.walk(function), file.path)
        return Course(True, True, True, True, everything, frozenset(everything), EVERYTHING)
    return walk.course()


class _Walk(Statements):
    """One walk through a function and the functions that it calls."""

    def run(self, file: AnalyzedFile, node: FunctionLike, owner: ast.ClassDef | None) -> None:
        """Follow the function that is asked for, decorators included."""
        self.scope = Scope(file, owner)
        value = Value(functions=(Function(node, self.scope),), is_foreign=False)
        for function in self.decorate(value, node).functions:
            scope = Scope(function.scope.file, outer=function.scope)
            self._bind_all_parameters(function, scope, owner)
            with self.inside(function.node, scope), suppress(Raised):
                self.result = self.call
                self.run_body(function.node)

    def course(self) -> Course:
        """Return what the walk has found."""
        results = self.result.results
        labels = NOTHING.union(*(self.labels_of(each) for each in results))
        decided = self.decided_by(self.result)
        return Course(
            self.acts,
            self.refuses,
            bool(labels or decided),
            any(not each.known or each.known[0] is not None for each in results),
            self.live,
            frozenset(self.effective),
            self.used | labels | decided,
        )

    def _bind_all_parameters(self, function: Function, scope: Scope, owner: ast.ClassDef | None) -> None:
        """Give each parameter a value of which nothing but its annotation is known."""
        node = function.node
        defaults = defaults_of(node.args)
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        is_handler = any(name_of(each) == "subscribe" for each in getattr(node, "decorator_list", ()))
        for number, each in enumerate(names):
            value = self.of_declared(Value(frozenset({each.arg})), declared(scope.file, each.annotation))
            default = defaults.get(each.arg)
            if is_handler and number:  # what events carry is read-only
                value = value._replace(is_foreign=each.annotation is not None and not is_data(value.declared))
            if is_handler and number == 1 and len(names) == 2 and each.annotation is None:
                value = value._replace(excluded=SCALARS)  # an event
            if default is not None and not (
                isinstance(default, ast.Constant) and type(default.value) not in value.excluded
            ):
                value = value._replace(declared=None, excluded=frozenset())
            scope.names[each.arg] = value
        for star in filter(None, (node.args.vararg, node.args.kwarg)):
            scope.names[star.arg] = Value(frozenset({star.arg}))
        if owner and names and not is_static(node):
            value = scope.names[names[0].arg]
            scope.names[names[0].arg] = value._replace(kind=(function.scope.file, owner), excluded=SCALARS)
