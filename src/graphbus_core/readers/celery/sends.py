"""Finds where a Celery project sends messages: every form in which a task is called, scheduled or put into a canvas."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.evaluate import Evaluator
from graphbus_core.readers.celery.forwarding import Forwarding, forward
from graphbus_core.readers.celery.known import SIGNED
from graphbus_core.readers.celery.values import (
    NOTHING,
    RESULT,
    SOMETHING,
    App,
    Arguments,
    Bound,
    Chain,
    Chord,
    Decorator,
    External,
    FunctionValue,
    Group,
    NamedTask,
    Partial,
    Signature,
    Task,
    Text,
    Value,
    Values,
)
from graphbus_core.readers.scopes import Binding, Imported, Module, Point, Scope

_CALLS = {"delay": False, "delay_on_commit": False, "apply_async": True, "apply_async_on_commit": True}
"""The methods that send -> whether they get the arguments as a tuple and a dictionary."""
_EACH = {"map", "starmap", "chunks"}
_METHODS = frozenset(
    {*_CALLS, *_EACH, "retry", "send_task", "add_periodic_task", "link", "link_error", "on_error", "replace"}
)
_MAKES = frozenset(
    {"s", "si", "signature", "subtask", "chain", "group", "chord", "clone", "set", "Signature", "maybe_signature"}
)
_MOST_HELPERS = 4
"""Through how many functions a task is followed, each of which gets it from the one before."""
_MOST_CALLS = 32
"""How many calls a task is followed into in all, so that functions that call each other at many places end soon."""
_REFERENCES = _CALLS.keys() | SIGNED
_AT_ONCE = frozenset({"on_commit", "call_soon", "call_later", "defer"})
"""Functions that call what they get, without arguments unless more is given to them."""
_OF_AT_ONCE = frozenset({"using", "robust", "context"})
"""What such functions take for themselves."""


class Send(NamedTuple):
    """A place that sends a message.

    Attributes:
        task: To which task; None: that is not known.
        arguments: What it sends.
        span: The place.
        how: The form, such as `delay`.
        why: Why the task is not known.
    """

    task: Task | NamedTask | None
    arguments: Arguments
    span: SourceSpan
    how: str
    why: str = ""


class _Passed(NamedTuple):
    """A task that is passed on.

    Attributes:
        task: The expression that is given.
        point: Where that is.
        calls: Has one item for each call that may still be followed, in all functions together.
        depth: Through how many functions it was followed already.
    """

    task: ast.expr
    point: Point
    calls: Iterator[int]
    depth: int = 0


class Sends:
    """Collects the sends of files; `finish` returns them, because a signature of one file may be sent by another.

    Attributes:
        mentioned: Texts in calls and dictionaries that may be the name of a task, and where they are.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._literals = evaluator.literals
        self._found: list[Send] = []
        self._made: dict[SourceSpan, list[Signature]] = {}
        self._used: dict[SourceSpan, list[tuple[Signature, Arguments, str]]] = {}
        self._taken: set[ast.expr] = set()
        self._names: Collection[str] | None = None
        self.mentioned: list[tuple[str, SourceSpan]] = []

    def read(self, module: Module, names: Collection[str] | None = None) -> None:
        """Collect the sends of a file; only tasks with these names are followed when they are passed on, without them all."""
        self._names = names
        called = {node.func for node, _ in module.sites if isinstance(node, ast.Call)}
        for node, point in module.sites:
            if isinstance(node, ast.Call):
                self._read_call(node, point)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                self._read_canvas(node, point)
            elif isinstance(node, ast.Dict):
                self._read_entries(node, point)
            elif isinstance(node, ast.Attribute) and node.attr in _REFERENCES and node not in called | self._taken:
                self._read_reference(node, point, SOMETHING)
        for scope in module.scopes.values():
            if scope.kind == "class":
                self._read_class(scope)

    def finish(self) -> list[Send]:
        """Return all sends; a signature whose use was not found may get further arguments in front."""
        for span, made in self._made.items():
            if span not in self._used:
                for each in made:
                    front = NOTHING if each.is_immutable else SOMETHING
                    self._found.append(Send(each.task, each.arguments.behind(front), span, "signature"))
        for span, used in self._used.items():
            for signature, front, how in dict.fromkeys(used):
                arguments = signature.arguments if signature.is_immutable else signature.arguments.behind(front)
                self._found.append(Send(signature.task, arguments, span, how))
        return self._found

    # --- calls ---

    def _read_call(self, node: ast.Call, point: Point) -> None:
        """Read a call of one of the names that send or make something; calls come before those among their arguments."""
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else ""
        )
        if name in _METHODS:
            if not self._read_method(node, name, point):
                self._read_passed_on(node, point)
        elif name in _MAKES:
            if not self._read_canvas(node, point):
                self._read_passed_on(node, point)
        elif isinstance(node.func, ast.Call | ast.BinOp):
            self._read_called_canvas(node, point)
            self._read_passed_on(node, point)
        elif name == "partial" and node.args:
            self._read_partial(node, point, SOMETHING)
        elif name == "dict" and {"task", "schedule"} <= {each.arg for each in node.keywords}:
            self._read_beat_entry(node, {each.arg: each.value for each in node.keywords}, point)
        elif name in _AT_ONCE:
            self._read_passed_on(node, point)
            self._read_callbacks(node, point)
        else:
            self._read_alias(node, point)
            self._read_passed_on(node, point)

    def _read_method(self, node: ast.Call, name: str, point: Point) -> bool:
        """Read a call of a method that sends, or adds to what is sent; False if it may be another function with such a name."""
        found = self._evaluator.values(node.func, point)
        reached = [self._read_bound(each, node, name, point) for each in found if isinstance(each, Bound)]
        if any(reached):
            return True
        if name in ("send_task", "add_periodic_task"):
            self._read_app_method(node, name, point)
            return not any(isinstance(each, FunctionValue) for each in found)
        if name in _CALLS and isinstance(node.func, ast.Attribute):
            text = _shorten(ast.unparse(node.func.value))
            is_outside = any(isinstance(each, External) for each in self._evaluator.values(node.func.value, point))
            why = f"`{text}` is defined elsewhere" if is_outside else f"what `{text}` is depends on the run"
            self._found.append(Send(None, self._arguments_for(name, node, point), self._span(node, point), name, why))
        return False

    def _read_bound(self, method: Bound, node: ast.Call, name: str, point: Point) -> bool:
        """Read a call of a method of a task, signature or application; False if it is none of these."""
        owner = method.owner
        if isinstance(owner, Task | NamedTask):
            self._read_task_method(owner, node, name, point)
        elif isinstance(owner, App):
            self._read_app_method(node, name, point)
        elif isinstance(owner, Signature | Chain | Group | Chord):
            self._read_canvas_method(owner, node, name, point)
        else:
            return False
        return True

    def _read_task_method(self, task: Task | NamedTask, node: ast.Call, name: str, point: Point) -> None:
        span = self._span(node, point)
        if name in _CALLS:
            self._found.append(Send(task, self._arguments_for(name, node, point), span, name))
            if _CALLS[name]:
                self._read_links(node, point)
        elif name in _EACH and node.args:
            self._found.append(Send(task, self._item_arguments(node.args[0], name, point), span, name))
        elif name == "retry" and any(each.arg in ("args", "kwargs") for each in node.keywords):
            self._found.append(Send(task, self._retried(node, point), span, name))
        elif name == "replace" and node.args:
            self._use(self._evaluator.values(node.args[0], point), NOTHING, name)

    def _retried(self, node: ast.Call, point: Point) -> Arguments:
        """Return the arguments of `self.retry(args=..., kwargs=...)`; what is not given is that of the message."""
        given = {each.arg for each in node.keywords}
        found = self._literals.passed(node, point, len(node.args))
        rest = Arguments(has_rest="args" not in given, is_open="kwargs" not in given)
        return found.behind(rest)

    def _item_arguments(self, node: ast.expr, name: str, point: Point) -> Arguments:
        """Return the arguments that each item of `map`, `starmap` or `chunks` becomes."""
        if name == "map":
            return RESULT
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "zip"
            and not node.keywords
        ):
            return Arguments(len(node.args), has_rest=any(isinstance(each, ast.Starred) for each in node.args))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._literals.sequence(node.elt, point)
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            shapes = {self._literals.sequence(each, point) for each in node.elts}
            return shapes.pop() if len(shapes) == 1 else Arguments(has_rest=True)
        return Arguments(has_rest=True)

    def _read_app_method(self, node: ast.Call, name: str, point: Point) -> None:
        if name == "send_task":
            self._send_named(node, point)
        elif name == "add_periodic_task" and len(node.args) > 1:
            self._use(self._evaluator.values(node.args[1], point), self._literals.passed(node, point, 2), "beat")

    def _send_named(self, node: ast.Call, point: Point) -> None:
        """Read `send_task("name", args, kwargs)`."""
        first = node.args[0] if node.args else next((each.value for each in node.keywords if each.arg == "name"), None)
        span, arguments = self._span(node, point), self._literals.passed(node, point, 1)
        found = self._named(first, point)
        for task in found:
            self._found.append(Send(task, arguments, span, "send_task"))
        if not found:
            self._found.append(Send(None, arguments, span, "send_task", "the name of the task is computed"))
        self._read_links(node, point)

    def _named(self, node: ast.expr | None, point: Point) -> list[Task | NamedTask]:
        """Return the tasks that a name, or a task in its place, may mean."""
        found = self._evaluator.values(node, point)
        texts = {self._evaluator.text(node, point)} - {""}
        return [*map(NamedTask, texts), *(each for each in found if isinstance(each, Task | NamedTask))]

    def _read_links(self, node: ast.Call, point: Point) -> None:
        """Read the callbacks of a call: `link` gets the result, `link_error` what depends on the signature of the callback."""
        for each in node.keywords:
            if each.arg in ("link", "link_error"):
                self._use_linked(each.value, point, each.arg)

    def _use_linked(self, node: ast.expr, point: Point, how: str) -> None:
        front = RESULT if how == "link" else Arguments(has_rest=True)
        for found in self._evaluator.parts(node, point) or [self._evaluator.values(node, point)]:
            self._use(found, front, how)

    def _read_canvas_method(self, owner: Value, node: ast.Call, name: str, point: Point) -> None:
        if name in _CALLS:
            self._use((owner,), self._arguments_for(name, node, point), name)
            self._read_links(node, point)
        elif name in ("link", "link_error", "on_error") and node.args:
            self._use_linked(node.args[0], point, "link" if name == "link" else "link_error")

    def _read_alias(self, node: ast.Call, point: Point) -> None:
        """Read the call of a variable that holds a method such as `task.delay`, or a partial one."""
        owner = point.scope.owner(node.func.id) if isinstance(node.func, ast.Name) else None
        bound = owner.bindings.get(node.func.id, ()) if owner and isinstance(node.func, ast.Name) else ()
        if not any(each.kind == "value" for each in bound):
            return
        for each in self._evaluator.values(node.func, point):
            if isinstance(each, Bound) and each.name in _CALLS:
                self._read_bound(each, node, each.name, point)

    # --- callables that are passed on ---

    def _read_callbacks(self, node: ast.Call, point: Point) -> None:
        """Read what `on_commit` and the like call later: `task.delay` or a partial function of it."""
        is_open = any(each.arg not in _OF_AT_ONCE for each in node.keywords)
        for each in node.args:
            if isinstance(each, ast.Attribute) and each.attr in _CALLS and each not in self._taken:
                self._read_reference(each, point, SOMETHING if is_open or each is not node.args[-1] else NOTHING)
                self._taken.add(each)
            elif isinstance(each, ast.Call) and _name_of(each.func) == "partial" and each.args:
                self._read_partial(each, point, NOTHING)

    def _read_passed_on(self, node: ast.Call, point: Point, more: Arguments = NOTHING) -> None:
        """Read a call that gets a task, or a method of one; what it sends is known if the function is one of the project.

        Args:
            more: What the function may get besides.
        """
        self._mention([*node.args, *(each.value for each in node.keywords if each.arg != "name")], point)
        given = [each for each in _arguments_in(node) if each not in self._taken and self._may_be_task(each, point)]
        functions = self._evaluator.values(node.func, point) if given else ()
        if not any(isinstance(each, Decorator) or _is_builtin(each) for each in functions):
            for argument in given:
                self._read_passed(argument, functions, node, point, more)

    def _may_be_task(self, node: ast.expr, point: Point) -> bool:
        """True for a name, or attribute of one, that may stand for a task which is looked for; evaluating all takes too long."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        if self._names is None or _name_of(node) in self._names:
            return True
        if isinstance(node, ast.Attribute):
            return node.attr in _CALLS or (node.attr == "name" and _name_of(node.value) in self._names)
        owner = point.scope.owner(node.id)
        return any(_mentions(each, self._names) for each in (owner.bindings.get(node.id, ()) if owner else ()))

    def _read_passed(self, given: ast.expr, functions: Values, node: ast.Call, point: Point, more: Arguments) -> None:
        """Read an argument of a call, which may be a task or a method such as `task.delay`."""
        span = self._span(node, point)
        for each in self._evaluator.values(given, point):
            if isinstance(each, Text) and "." in each.text:
                self.mentioned.append((each.text, span))
            task = each.owner if isinstance(each, Bound) and each.name in _CALLS else each
            if isinstance(task, Task | NamedTask):
                sends = dict.fromkeys(self._follow(functions, node, _Passed(given, point, iter(range(_MOST_CALLS)))))
                self._found += [Send(task, arguments.behind(more), span, how) for arguments, how in sends]
                if not sends and task is each:
                    self._found.append(Send(task, SOMETHING, span, "passed on"))
                self._taken |= {given} if sends or task is each else set()

    def _follow(self, functions: Values, call: ast.Call, passed: _Passed) -> Iterator[tuple[Arguments, str]]:
        """Yield what functions send to a task that a call gives to them, and how; nothing if that is not known."""
        for each in functions if passed.depth < _MOST_HELPERS else ():
            forwarding = forward(call, each.scope) if isinstance(each, FunctionValue) else None
            module = self._evaluator.module(forwarding.scope.path) if forwarding else None
            if forwarding and module and next(passed.calls, None) is not None:
                names = {name for name, value in forwarding.given.items() if value is passed.task}
                for node, at in module.sites:
                    if isinstance(node, ast.Call) and any(at.scope.owner(name) is forwarding.scope for name in names):
                        yield from self._follow_call(node, at, names, forwarding, passed)

    def _follow_call(
        self, node: ast.Call, at: Point, names: set[str], forwarding: Forwarding, passed: _Passed
    ) -> Iterator[tuple[Arguments, str]]:
        """Yield what a call inside a function sends to the parameters with these names, or passes on to another function."""
        point = passed.point
        is_partial = _name_of(node.func) == "partial" and bool(node.args)
        function = node.args[0] if is_partial else node.func
        owner = function.value if isinstance(function, ast.Attribute) else function
        call = ast.Call(function, node.args[is_partial:], node.keywords)
        if isinstance(owner, ast.Name) and owner.id in names:
            how = _name_of(passed.task if owner is function else function)
            call = forwarding.rewrite(call)
            if how in _CALLS:
                yield self._arguments_for(how, call, point), how
            elif how in ("s", "si"):
                yield self._literals.arguments_of(call, point).behind(SOMETHING if how == "s" else NOTHING), how
        elif any(isinstance(each, ast.Name) and each.id in names for each in _arguments_in(call)):
            functions = self._evaluator.values(function, at)
            if not any(_is_builtin(each) for each in functions):
                deeper = passed._replace(depth=passed.depth + 1)
                sends = [*self._follow(functions, forwarding.rewrite(call), deeper)]
                yield from sends or [(SOMETHING, "passed on")]

    def _arguments_for(self, method: str, call: ast.Call, point: Point) -> Arguments:
        """Return what a call of a method such as `delay` or `apply_async` sends."""
        return self._literals.passed(call, point, 0) if _CALLS[method] else self._literals.arguments_of(call, point)

    def _mention(self, nodes: Iterable[ast.expr | None], point: Point) -> None:
        texts = (each for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str))
        self.mentioned += [(str(each.value), self._span(each, point)) for each in texts if "." in str(each.value)]

    def _read_kept(self, node: ast.AST | Imported | None, point: Point) -> None:
        """Note that a task is kept in a table or in a class, from where it may be sent."""
        if isinstance(node, ast.Name | ast.Attribute):
            for each in self._evaluator.values(node, point):
                if isinstance(each, Task | NamedTask):
                    self._found.append(Send(each, SOMETHING, self._span(node, point), "kept"))

    def _read_class(self, scope: Scope) -> None:
        for bindings in scope.bindings.values():
            for each in bindings:
                if each.kind == "value":
                    self._read_kept(each.node, each.point)

    def _send_with(self, function: ast.expr, call: ast.Call, point: Point, more: Arguments) -> None:
        """Note that a method such as `task.delay` is called with the arguments of a call, and perhaps more."""
        self._taken.add(function)
        for each in self._evaluator.values(function, point):
            if isinstance(each, Bound) and each.name in _CALLS and isinstance(each.owner, Task | NamedTask):
                given = self._arguments_for(each.name, call, point)
                self._found.append(Send(each.owner, given.behind(more), self._span(function, point), each.name))

    def _read_partial(self, node: ast.Call, point: Point, more: Arguments) -> None:
        """Read `partial(task.delay, 1)` or `partial(helper, task)`, which may get more arguments when it is called."""
        function = node.args[0]
        call = ast.copy_location(ast.Call(function, node.args[1:], node.keywords), node)
        if _name_of(function) not in _CALLS:
            self._read_passed_on(call, point, more)
        elif function not in self._taken and any(
            isinstance(each, Partial) for each in self._evaluator.values(node, point)
        ):
            self._send_with(function, call, point, more)

    def _read_reference(self, node: ast.Attribute, point: Point, arguments: Arguments) -> None:
        """Read `task.delay` that is passed on, with the arguments that it will get."""
        for each in self._evaluator.values(node, point):
            if isinstance(each, Bound) and isinstance(each.owner, Task | NamedTask):
                self._found.append(Send(each.owner, arguments, self._span(node, point), node.attr))

    # --- canvases ---

    def _read_canvas(self, node: ast.expr, point: Point) -> bool:
        """Note the signatures that an expression makes, and which of them get the result of another one; False without any."""
        found = self._evaluator.values(node, point)
        for each in found:
            if isinstance(each, Signature):
                self._made.setdefault(each.span, []).append(each)
            elif isinstance(each, Chain):
                for part in each.parts[1:]:
                    self._use(part, RESULT, "chain")
            elif isinstance(each, Chord) and each.body is not None:
                self._use(each.body, RESULT, "chord")
        return any(isinstance(each, Signature | Chain | Group | Chord) for each in found)

    def _read_called_canvas(self, node: ast.Call, point: Point) -> None:
        """Read `(a.s() | b.s())(1)`, which sends it, and `chord(header)(body)`."""
        given = self._literals.arguments_of(node, point)
        for each in self._evaluator.values(node.func, point):
            if isinstance(each, Chord) and each.body is None and node.args:
                complete = Chord(each.header, self._evaluator.values(node.args[0], point))
                self._use((complete,), NOTHING, "chord")
            elif isinstance(each, Chain | Group | Chord):
                self._use((each,), given, "chain" if isinstance(each, Chain) else "group")

    def _use(self, values: Values, front: Arguments, how: str) -> None:
        """Note that signatures are sent with arguments in front."""
        for each in values:
            if isinstance(each, Signature):
                self._used.setdefault(each.span, []).append((each, front, how))
            elif isinstance(each, Task | NamedTask):
                continue
            elif isinstance(each, Chain):
                for number, part in enumerate(each.parts):
                    self._use(part, RESULT if number else front, how if number == 0 else "chain")
            elif isinstance(each, Group | Chord):
                for part in each.parts if isinstance(each, Group) else each.header:
                    self._use(part, front, how)
                if isinstance(each, Chord) and each.body is not None:
                    self._use(each.body, RESULT, "chord")

    # --- schedules ---

    def _read_entries(self, node: ast.Dict, point: Point) -> None:
        """Read a dictionary: an entry of a beat schedule, or one that keeps tasks or names of them."""
        entry = {
            key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        }
        if {"task", "schedule"} <= entry.keys():
            self._read_beat_entry(node, entry, point)
            return
        self._mention(node.values, point)
        for each in node.values:
            self._read_kept(each, point)

    def _read_beat_entry(self, node: ast.expr, entry: Mapping[Any, ast.expr], point: Point) -> None:
        """Read an entry of a beat schedule, which has `task` and `schedule`."""
        given = [ast.keyword(name, entry[name]) for name in ("args", "kwargs") if name in entry]
        arguments = self._literals.passed(ast.Call(node, [], given), point, 0)
        found = self._named(entry["task"], point)
        for task in found:
            self._found.append(Send(task, arguments, self._span(entry["task"], point), "beat"))
        if not found:
            self._found.append(
                Send(None, arguments, self._span(node, point), "beat", "the name of the task is computed")
            )

    def _span(self, node: ast.expr, point: Point) -> SourceSpan:
        return self._evaluator.span(node, point)


def _arguments_in(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _mentions(binding: Binding, names: Collection[str]) -> bool:
    """True if a name is bound to something with one of these names, or is a parameter, which may have a task as its default."""
    if isinstance(binding.node, Imported):
        return binding.node.name in names
    if binding.kind in ("first", "parameter"):
        return True
    found = ast.walk(binding.node) if isinstance(binding.node, ast.expr) else ()
    return any(_name_of(each) in names for each in found if isinstance(each, ast.Name | ast.Attribute))


def _is_builtin(function: Value) -> bool:
    return isinstance(function, External) and function.name.startswith("builtins.")


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
