"""Finds what the decorators and classes of a Celery project define: tasks, by the decorators of Celery and of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Protocol

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.known import TASK_CLASS, last_name
from graphbus_core.readers.celery.values import ClassValue, Decorator, External, FunctionValue, Task, Value, Values
from graphbus_core.readers.packages import Packages
from graphbus_core.readers.scopes import FunctionNode, Point, Scope

_TRANSPARENT = frozenset({"property", "cached_property", "staticmethod", "classmethod", "lru_cache", "cache", "wraps"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Expressions(Protocol):
    """What evaluates expressions."""

    packages: Packages

    def values(self, node: ast.expr | None, point: Point) -> Values:
        """Return what an expression may be."""

    def text(self, node: ast.expr | None, point: Point) -> str:
        """Return the string that an expression certainly is; empty if it is not known."""

    def span(self, node: ast.expr | FunctionNode | ast.ClassDef, point: Point) -> SourceSpan:
        """Return the place of an expression or definition."""

    def scope_of(self, node: ast.AST, point: Point) -> Scope:
        """Return the scope that a node makes."""

    def all_ancestors(self, scope: Scope) -> Values:
        """Return a class and all that it derives from."""


class Definitions:
    """Finds the tasks that definitions make."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions

    def definition(self, node: FunctionNode, point: Point) -> Values:
        """Return what a function definition binds: a task if one of its decorators makes one, else the function."""
        scope = self._expressions.scope_of(node, point)
        for number, each in enumerate(node.decorator_list):
            for found in self._expressions.values(each, point):
                for decorator in self.decorators_of(found):
                    inner = tuple(node.decorator_list[number + 1 :])
                    return (self._function_task(node, decorator, scope, (inner, point)),)
        if any(last_name(each) in ("property", "cached_property") for each in node.decorator_list):
            return self.returned(scope)
        return (FunctionValue(scope),)

    def decorators_of(self, value: Value) -> Iterator[Decorator]:
        """Yield a decorator of Celery itself, and those by which a decorator of the project makes tasks.

        That is `return shared_task(...)`, `return shared_task(...)(function)`, or a function inside with such a decorator, which
        takes the place of the decorated one.
        """
        if isinstance(value, Decorator):
            yield value
        elif isinstance(value, FunctionValue):
            for each in self.returned(value.scope):
                if isinstance(each, Decorator):
                    yield each
                elif isinstance(each, Task) and each.scope is not None and each.scope.parent is value.scope:
                    yield Decorator(is_open=True)

    def returned(self, scope: Scope) -> Values:
        """Return what a function may return; nothing if a decorator may change that."""
        node = scope.node
        names = {last_name(each) for each in getattr(node, "decorator_list", ())}
        if not names <= _TRANSPARENT or isinstance(node, ast.AsyncFunctionDef):
            return ()
        return tuple(value for each, point in scope.returns for value in self._expressions.values(each, point))

    def decorated(self, decorator: Decorator, node: ast.Call, point: Point) -> Values:
        """Return the task that `shared_task(function)` makes, or the decorator with the options of the call."""
        extended = decorator.extended(node.keywords, point)
        if not node.args:
            return (extended,)
        given = self._expressions.values(node.args[0], point)
        if not given:  # what a decorator of the project decorates, or `*args` of its call
            return (extended,)
        found: list[Value] = []
        for each in given:
            if isinstance(each, FunctionValue) and isinstance(each.scope.node, _FUNCTIONS):
                found.append(self._function_task(each.scope.node, extended, each.scope, ((), point)))
            elif isinstance(each, ClassValue):
                found += self.tasks_of_class(each.scope)
        return tuple(found)

    def _function_task(
        self, node: FunctionNode, decorator: Decorator, scope: Scope, wrapped: tuple[tuple[ast.expr, ...], Point]
    ) -> Task:
        """Return the task that a decorator makes of a function, which the decorators of `wrapped` get before."""
        options = {name: (value, point) for name, value, point in decorator.options}
        name = self._task_name(options.get("name"), node.name, scope.path)
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        bind = options["bind"][0] if "bind" in options else None
        is_bound = (
            bind.value is True
            if isinstance(bind, ast.Constant)
            else (bind is not None or decorator.is_open) and names[:1] == ["self"]
        )
        texts = {key: self._option_text(value, point) for key, (value, point) in options.items()}
        span = self._expressions.span(node, scope.end)
        return Task(name, node.name, span, scope, is_bound, (*texts.items(),), *self._wrappers(*wrapped))

    def _wrappers(self, decorators: Iterable[ast.expr], point: Point) -> tuple[tuple[str, ...], bool]:
        """Return the decorators by which a task may take other arguments than its function, and if one surely changes them."""
        found: list[str] = []
        is_opaque = False
        for each in decorators:
            functions = [value for value in self._expressions.values(each, point) if isinstance(value, FunctionValue)]
            if functions and all(_passes_on(value.scope) for value in functions):
                continue
            is_opaque |= bool(functions)
            found += [] if last_name(each) in _HARMLESS else [ast.unparse(each)]
        return tuple(found), is_opaque

    def _task_name(self, given: tuple[ast.expr, Point] | None, label: str, path: str) -> str:
        """Return the name of a task: the one that is given, else that of the module and the function."""
        if given is None or (isinstance(given[0], ast.Constant) and given[0].value is None):
            return f"{self._expressions.packages.name_of(path)}.{label}"
        return self._expressions.text(*given)

    def _option_text(self, node: ast.expr, point: Point) -> str:
        """Return the text of an option: that of a string behind a name, else that of the source."""
        return repr(text) if (text := self._expressions.text(node, point)) else ast.unparse(node)

    def tasks_of_class(self, scope: Scope) -> tuple[Task, ...]:
        """Return the task that a class defines: a subclass of `celery.Task` with a method `run`; empty for other classes."""
        known = self._expressions.all_ancestors(scope)
        if not any(isinstance(each, External) and TASK_CLASS.fullmatch(each.name) for each in known):
            return ()
        classes = [each.scope for each in known if isinstance(each, ClassValue)]
        run = next((each.bindings["run"][-1] for each in classes if "run" in each.bindings), None)
        if run is None or not isinstance(run.node, _FUNCTIONS) or not isinstance(scope.node, ast.ClassDef):
            return ()
        given = {name: found[-1] for name, found in scope.bindings.items() if found[-1].kind == "value"}
        options = {name: (each.node, each.point) for name, each in given.items() if isinstance(each.node, ast.expr)}
        name = self._task_name(options.get("name"), scope.node.name, scope.path)
        is_static = any(last_name(each) == "staticmethod" for each in run.node.decorator_list)
        others = [each for each in run.node.decorator_list if last_name(each) != "staticmethod"]
        texts = tuple((key, self._option_text(*value)) for key, value in options.items())
        function = self._expressions.scope_of(run.node, run.point)
        span = self._expressions.span(scope.node, scope.end)
        wrappers = self._wrappers(others, run.point)
        return (Task(name, scope.node.name, span, function, not is_static, texts, *wrappers),)


_HARMLESS = frozenset({"atomic"})
"""Decorators from elsewhere that certainly pass on what they get."""


def _passes_on(scope: Scope) -> bool:
    """True for a decorator of which each function inside passes on all arguments that it gets."""
    inside = [each for each in ast.walk(scope.node) if isinstance(each, _FUNCTIONS) and each is not scope.node]
    takers = [each for each in inside if each.args.vararg and each.args.kwarg]
    return bool(takers) and all(
        any(isinstance(each, ast.Call) and _is_passed_on(each, taker.args) for each in ast.walk(taker))
        for taker in takers
    )


def _is_passed_on(call: ast.Call, taken: ast.arguments) -> bool:
    """True if a call passes exactly what a function takes, such as `function(self, *args, **kwargs)`."""
    names = [*(each.arg for each in (*taken.posonlyargs, *taken.args)), f"*{taken.vararg.arg}" if taken.vararg else ""]
    given = [ast.unparse(each) for each in call.args]
    named = [ast.unparse(each) for each in call.keywords]
    return given == names and named == [f"**{taken.kwarg.arg}" if taken.kwarg else ""]
