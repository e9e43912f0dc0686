"""Finds where a Celery project sends messages: every form in which a task is called, scheduled or put into a canvas."""

from __future__ import annotations

import ast
from typing import NamedTuple

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.evaluate import Evaluator
from graphbus_core.readers.celery.values import (
    NOTHING,
    RESULT,
    SOMETHING,
    App,
    Arguments,
    Bound,
    Chain,
    Chord,
    External,
    FunctionValue,
    Group,
    NamedTask,
    Partial,
    Signature,
    Task,
    Value,
    Values,
)
from graphbus_core.readers.scopes import Module, Point, Scope

_CALLS = {"delay": False, "delay_on_commit": False, "apply_async": True, "apply_async_on_commit": True}
"""The methods that send -> whether they get the arguments as a tuple and a dictionary."""
_EACH = {"map", "starmap", "chunks"}
_METHODS = frozenset(
    {*_CALLS, *_EACH, "retry", "send_task", "add_periodic_task", "link", "link_error", "on_error", "replace"}
)
_MAKES = frozenset(
    {"s", "si", "signature", "subtask", "chain", "group", "chord", "clone", "set", "Signature", "maybe_signature"}
)
_AT_ONCE = frozenset({"on_commit", "call_soon", "call_later", "defer"})
"""Functions that call what they get, without arguments."""


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


class Sends:
    """Collects the sends of files; `finish` returns them, because a signature of one file may be sent by another."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._literals = evaluator.literals
        self._found: list[Send] = []
        self._made: dict[SourceSpan, list[Signature]] = {}
        self._used: dict[SourceSpan, list[tuple[Signature, Arguments, str]]] = {}
        self._taken: set[ast.expr] = set()

    def read(self, module: Module) -> None:
        """Collect the sends of a file."""
        called = {node.func for node, _ in module.sites if isinstance(node, ast.Call)}
        for node, point in module.sites:
            if isinstance(node, ast.Call):
                self._read_call(node, point)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                self._read_canvas(node, point)
            elif isinstance(node, ast.Dict):
                self._read_beat_entry(node, point)
            elif isinstance(node, ast.Attribute) and node.attr in _CALLS and node not in called | self._taken:
                self._read_reference(node, point, SOMETHING)

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
            self._read_method(node, name, point)
        elif name in _MAKES:
            self._read_canvas(node, point)
        elif isinstance(node.func, ast.Call | ast.BinOp):
            self._read_called_canvas(node, point)
        elif name == "partial" and node.args:
            self._read_partial(node, point, SOMETHING)
        elif name in _AT_ONCE:
            self._read_callbacks(node, point)
        elif node.args and isinstance(node.args[0], ast.Attribute) and node.args[0].attr in _CALLS:
            self._read_forwarded(node, node.args[0], point)
        elif isinstance(node.func, ast.Name):
            self._read_alias(node, point)

    def _read_method(self, node: ast.Call, name: str, point: Point) -> None:
        """Read a call of a method that sends, or adds to what is sent."""
        found = self._evaluator.values(node.func, point)
        reached = [self._read_bound(each, node, name, point) for each in found if isinstance(each, Bound)]
        if any(reached):
            return
        if name in ("send_task", "add_periodic_task"):
            self._read_app_method(node, name, point)
        elif name in _CALLS and isinstance(node.func, ast.Attribute):
            text = _shorten(ast.unparse(node.func.value))
            is_outside = any(isinstance(each, External) for each in self._evaluator.values(node.func.value, point))
            why = f"`{text}` is defined elsewhere" if is_outside else f"what `{text}` is depends on the run"
            self._found.append(Send(None, SOMETHING, self._span(node, point), name, why))

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
            takes_literals = _CALLS[name]
            given = (
                self._literals.passed(node, point, 0) if takes_literals else self._literals.arguments_of(node, point)
            )
            self._found.append(Send(task, given, span, name))
            if takes_literals:
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
            given = self._literals.passed(node, point, 0) if _CALLS[name] else self._literals.arguments_of(node, point)
            self._use((owner,), given, name)
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
        for each in node.args:
            if isinstance(each, ast.Attribute) and each.attr in _CALLS:
                self._read_reference(each, point, NOTHING)
                self._taken.add(each)
            elif isinstance(each, ast.Call) and _name_of(each.func) == "partial" and each.args:
                self._read_partial(each, point, NOTHING)

    def _read_forwarded(self, node: ast.Call, function: ast.Attribute, point: Point) -> None:
        """Read `later(task.delay, 1)` if the project defines `later` as a function that calls what it gets with the rest."""
        helpers = [each for each in self._evaluator.values(node.func, point) if isinstance(each, FunctionValue)]
        if helpers and all(self._calls_its_first_argument(each.scope) for each in helpers):
            self._send_with(function, ast.Call(node.func, node.args[1:], node.keywords), point, NOTHING)

    def _calls_its_first_argument(self, scope: Scope) -> bool:
        """True for `def later(function, *args, **kwargs)` in which `function(*args, **kwargs)` is called."""
        module = self._evaluator.module(scope.path)
        given = getattr(scope.node, "args", None)
        if module is None or given is None or len(given.args) != 1 or given.vararg is None or given.kwarg is None:
            return False
        wanted = f"{given.args[0].arg}(*{given.vararg.arg}, **{given.kwarg.arg})"
        calls = (each for each, at in module.sites if at.scope.owner(given.args[0].arg) is scope)
        return any(isinstance(each, ast.Call) and ast.unparse(each) == wanted for each in calls)

    def _send_with(self, function: ast.expr, call: ast.Call, point: Point, more: Arguments) -> None:
        """Note that a method such as `task.delay` is called with the arguments of a call, and perhaps more."""
        self._taken.add(function)
        for each in self._evaluator.values(function, point):
            if isinstance(each, Bound) and each.name in _CALLS and isinstance(each.owner, Task | NamedTask):
                given = (
                    self._literals.passed(call, point, 0)
                    if _CALLS[each.name]
                    else self._literals.arguments_of(call, point)
                )
                self._found.append(Send(each.owner, given.behind(more), self._span(function, point), each.name))

    def _read_partial(self, node: ast.Call, point: Point, more: Arguments) -> None:
        """Read `partial(task.delay, 1)`, which may get more arguments when it is called."""
        function = node.args[0]
        is_partial = any(isinstance(each, Partial) for each in self._evaluator.values(node, point))
        if function not in self._taken and is_partial:
            self._send_with(function, ast.Call(node.func, node.args[1:], node.keywords), point, more)

    def _read_reference(self, node: ast.Attribute, point: Point, arguments: Arguments) -> None:
        """Read `task.delay` that is passed on, with the arguments that it will get."""
        for each in self._evaluator.values(node, point):
            if isinstance(each, Bound) and isinstance(each.owner, Task | NamedTask):
                self._found.append(Send(each.owner, arguments, self._span(node, point), node.attr))

    # --- canvases ---

    def _read_canvas(self, node: ast.expr, point: Point) -> None:
        """Note the signatures that an expression makes, and which of them get the result of another one."""
        for each in self._evaluator.values(node, point):
            if isinstance(each, Signature):
                self._made.setdefault(each.span, []).append(each)
            elif isinstance(each, Chain):
                for part in each.parts[1:]:
                    self._use(part, RESULT, "chain")
            elif isinstance(each, Chord) and each.body is not None:
                self._use(each.body, RESULT, "chord")

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

    def _read_beat_entry(self, node: ast.Dict, point: Point) -> None:
        """Read an entry of a beat schedule: a dictionary with `task` and `schedule`."""
        entry = {
            key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        }
        if not {"task", "schedule"} <= entry.keys():
            return
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


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
