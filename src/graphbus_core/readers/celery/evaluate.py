"""Finds out what an expression of a Celery project may be, by following names, imports, attributes, calls and returned values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property, partial

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.arguments import Literals
from graphbus_core.readers.celery.values import (
    App,
    Bound,
    Chain,
    Chord,
    ClassValue,
    Decorator,
    Elements,
    External,
    FunctionValue,
    Group,
    Instance,
    ModuleValue,
    NamedTask,
    Partial,
    Registry,
    Signature,
    Task,
    Text,
    Value,
    Values,
)
from graphbus_core.readers.packages import Packages
from graphbus_core.readers.scopes import Binding, FunctionNode, Imported, Module, Point, Scope, read_module
from graphbus_core.readers.seam import Project

_DECORATORS = re.compile(
    r"celery\.(app\.)?shared_task|celery\.(decorators\.|task\.|task\.base\.)?(periodic_)?task|celery\.task\.task"
)
_APP_CLASS = re.compile(r"celery\.(app\.(base\.)?)?Celery|.*celery.*\.\w*Celery\w*|.*\.\w*Celery(App)?", re.IGNORECASE)
_TASK_CLASS = re.compile(r"(.*\.)?celery\.(.*\.)?(Periodic)?Task")
_CURRENT_APP = re.compile(r"celery\.(_state\.|app\.)?(get_)?current_app|celery\.app\.app_or_default")
_SIGNATURES = re.compile(r"celery\.(canvas\.|task\.)?(signature|subtask|Signature|maybe_signature)")
_CANVAS = re.compile(r"celery\.(canvas\.|task\.sets\.)?_?(chain|group|chord)")
_NAMED_CELERY = re.compile(r"(?i)\w*celery\w*")
_OUTSIDE = ("celery", "functools")
"""Packages that are never those of the project: a file may be called `celery.py`."""
_APP_METHODS = frozenset(
    {"send_task", "signature", "subtask", "register_task", "add_periodic_task", "_get_current_object"}
)
_SIGNED = frozenset({"s", "si", "signature", "subtask", "subtask_from_request"})
_COPIES = frozenset(f"builtins.{name}" for name in ("list", "tuple", "reversed", "sorted"))
_CANVASES = (Signature, Chain, Group, Chord)
_TRANSPARENT = frozenset({"property", "cached_property", "staticmethod", "classmethod", "lru_cache", "cache"})


class Evaluator:
    """Evaluates the expressions of one state of a project.

    Attributes:
        packages: Its modules.
        unreadable: Path -> why the file could not be read, and the line.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.packages = Packages(project.paths)
        self.unreadable: dict[str, tuple[str, int]] = {}
        self._modules: dict[str, Module | None] = {}
        self._known: dict[ast.AST, Values] = {}
        self._open: set[object] = set()
        self._cuts = 0

    def module(self, path: str) -> Module | None:
        """Return a file that was read; None if it is no Python, which `unreadable` then says."""
        if path not in self._modules:
            try:
                self._modules[path] = self._project.once(read_module, path)
            except (SyntaxError, ValueError, RecursionError, OSError) as failure:
                reason = getattr(failure, "msg", None) or type(failure).__name__
                self.unreadable[path] = reason, getattr(failure, "lineno", None) or 1
                self._modules[path] = None
        return self._modules[path]

    def values(self, node: ast.expr | None, point: Point) -> Values:
        """Return what an expression may be."""
        if node is None:
            return ()
        if node in self._known:
            return self._known[node]
        cuts = self._cuts
        found = self._guarded(node, lambda: self._evaluate(node, point))
        if self._cuts == cuts:  # else it depends on what is being evaluated around it
            self._known[node] = found
        return found

    def text(self, node: ast.expr | None, point: Point) -> str:
        """Return the string that an expression certainly is; empty if it is not known."""
        found = self.values(node, point)
        return found[0].text if len(found) == 1 and isinstance(found[0], Text) else ""

    def _guarded(self, key: object, function: Callable[[], Values]) -> Values:
        """Call a function unless it is being called for the same key."""
        if key in self._open:
            self._cuts += 1
            return ()
        self._open.add(key)
        try:
            return function()
        finally:
            self._open.discard(key)

    def _evaluate(self, node: ast.expr, point: Point) -> Values:
        method = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        return method(node, point) if method else ()

    def _of_constant(self, node: ast.Constant, _point: Point) -> Values:
        return (Text(node.value),) if isinstance(node.value, str) else ()

    def _of_ifexp(self, node: ast.IfExp, point: Point) -> Values:
        return (*self.values(node.body, point), *self.values(node.orelse, point))

    def _of_boolop(self, node: ast.BoolOp, point: Point) -> Values:
        return tuple(value for each in node.values for value in self.values(each, point))

    def _of_namedexpr(self, node: ast.NamedExpr, point: Point) -> Values:
        return self.values(node.value, point)

    def _of_await(self, node: ast.Await, point: Point) -> Values:
        return self.values(node.value, point)

    def _of_list(self, node: ast.List | ast.Tuple | ast.Set, point: Point) -> Values:
        return (Elements(tuple((each, point) for each in node.elts)),)

    _of_tuple = _of_set = _of_list

    def _of_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, point: Point) -> Values:
        return (Elements(((node.elt, Point(self._scope_of(node, point), (), 1)),)),)

    _of_setcomp = _of_generatorexp = _of_listcomp

    def _of_lambda(self, node: ast.Lambda, point: Point) -> Values:
        return (FunctionValue(self._scope_of(node, point)),)

    def _of_binop(self, node: ast.BinOp, point: Point) -> Values:
        """Return the chain of `a | b`, or what the text `a + b` says."""
        left, right = self.values(node.left, point), self.values(node.right, point)
        if isinstance(node.op, ast.Add):
            texts = [each.text for each in (*left, *right) if isinstance(each, Text)]
            return (Text("".join(texts)),) if len(left) == len(right) == 1 and len(texts) == 2 else ()
        if isinstance(node.op, ast.BitOr) and any(isinstance(each, _CANVASES) for each in (*left, *right)):
            first = left[0].parts if len(left) == 1 and isinstance(left[0], Chain) else (left,)
            last = right[0].parts if len(right) == 1 and isinstance(right[0], Chain) else (right,)
            return (Chain((*first, *last)),)
        return ()

    def _of_subscript(self, node: ast.Subscript, point: Point) -> Values:
        """Return the task of `app.tasks["name"]`, or the element of a list or tuple at a fixed index."""
        found: list[Value] = []
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        for each in self.values(node.value, point):
            if isinstance(each, Registry):
                found += [NamedTask(name)] if (name := self.text(node.slice, point)) else []
            elif isinstance(each, Elements) and isinstance(index, int) and index < len(each.parts):
                is_plain = not any(isinstance(part, ast.Starred) for part, _ in each.parts)
                found += self.values(*each.parts[index]) if is_plain else ()
        return tuple(found)

    def _scope_of(self, node: ast.AST, point: Point) -> Scope:
        module = self.module(point.scope.path)
        assert module is not None  # noqa: S101 the node comes from it
        return module.scopes[node]

    # --- names ---

    def _of_name(self, node: ast.Name, point: Point) -> Values:
        owner = point.scope.owner(node.id)
        if owner is None:
            return (External(f"builtins.{node.id}"),)
        if node.id in owner.bindings:
            return tuple(value for each in owner.reaching(node.id, point) for value in self._of_binding(each))
        return self._through_stars(owner, node.id)

    def _of_binding(self, binding: Binding) -> Values:
        node, point = binding.node, binding.point
        if isinstance(node, Imported):
            return self._of_import(node, point.scope.path)
        if binding.kind == "item" and isinstance(node, ast.expr):
            return tuple(value for each in self.parts(node, self._before(point)) for value in each)
        if isinstance(node, ast.ClassDef):
            return (ClassValue(self._scope_of(node, point)),)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self._of_first_parameter(node, point) if binding.kind == "first" else self.definition(node, point)
        return self.values(node, point) if isinstance(node, ast.expr) else ()

    def _before(self, point: Point) -> Point:
        """Return the point at which the iterable of a loop or comprehension stands."""
        return point.scope.at if point.scope.kind == "comprehension" and point.scope.at else point

    def _of_first_parameter(self, node: FunctionNode, point: Point) -> Values:
        """Return what `self` is: the instance in a method, and the task in a function that is bound to it."""
        around = point.scope.parent
        if around is not None and around.kind == "class":
            names = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
            tasks = self.tasks_of_class(around)
            return () if "staticmethod" in names else tasks or (Instance(around),)
        at = point.scope.at
        return tuple(
            each for each in (self.definition(node, at) if at else ()) if isinstance(each, Task) and each.is_bound
        )

    def _of_import(self, imported: Imported, path: str) -> Values:
        if imported.level:
            stem = self.packages.relative(path, imported.level, imported.module)
        else:
            is_outside = imported.module.partition(".")[0] in _OUTSIDE
            stem = None if is_outside else self.packages.find(imported.module, path)
        if stem is None:
            return _outside(".".join(filter(None, (imported.module, imported.name))))
        return self.member(ModuleValue(stem), imported.name) if imported.name else (ModuleValue(stem),)

    def _through_stars(self, module: Scope, name: str) -> Values:
        """Return what a name may be that is not bound in a module, but perhaps imported by `*`."""
        found: list[Value] = []
        for star in module.stars:
            for each in self._of_import(star._replace(name=""), module.path):
                if not isinstance(each, External):
                    found += self.member(each, name)
        return tuple(found)

    # --- attributes ---

    def _of_attribute(self, node: ast.Attribute, point: Point) -> Values:
        found = tuple(value for each in self.values(node.value, point) for value in self.member(each, node.attr))
        if not found and node.attr == "task" and _NAMED_CELERY.fullmatch(_last_name(node.value)):
            return (Decorator(),)  # `@celery.task` of an application whose origin is not known
        return found

    def member(self, value: Value, name: str) -> Values:
        """Return what an attribute of a value may be."""
        return self._guarded((value, name), lambda: self._member(value, name))

    def _member(self, value: Value, name: str) -> Values:
        found: Values = ()
        match value:
            case ModuleValue():
                found = self._of_module_member(value.stem, name)
            case External():
                found = _outside(f"{value.name}.{name}")
            case App():
                found = _member_of_app(value, name)
            case ClassValue() | Instance():
                found = self._of_class_member(value, name)
            case Task() | NamedTask():
                found = (Text(value.name),) if name == "name" and value.name else (Bound(value, name),)
            case Signature() | Chain() | Group() | Chord():
                found = (Bound(value, name),)
        return found

    def _of_module_member(self, stem: str, name: str) -> Values:
        path = self.packages.path_of(stem)
        module = self.module(path) if path else None
        found: Values = ()
        if module is not None:
            scope = module.scope
            bound = [value for each in scope.reaching(name, scope.end) for value in self._of_binding(each)]
            found = tuple(bound) if name in scope.bindings else self._through_stars(scope, name)
        below = f"{stem}/{name}" if stem else name
        return found or ((ModuleValue(below),) if self.packages.has(below) else ())

    def _of_class_member(self, value: ClassValue | Instance, name: str) -> Values:
        """Return what an attribute of a class or of an instance may be; methods of class tasks are those of the task."""
        scope = value.scope
        tasks = self.tasks_of_class(scope)
        if tasks and name not in scope.bindings:
            return tuple(found for each in tasks for found in self.member(each, name))
        bindings = [*scope.reaching(name, scope.end), *scope.attributes.get(name, ())]
        if bindings:
            return tuple(found for each in bindings for found in self._of_binding(each))
        return tuple(
            found for base in self._bases(scope) for found in self.member(base, name) if isinstance(base, ClassValue)
        )

    def _bases(self, scope: Scope) -> Iterator[Value]:
        if isinstance(scope.node, ast.ClassDef) and scope.at is not None:
            for each in scope.node.bases:
                yield from self.values(each, scope.at)

    def _ancestors(self, scope: Scope) -> Iterator[Value]:
        """Yield a class and all that it derives from, each before its own bases; of those from elsewhere the names."""
        yield ClassValue(scope)
        for base in self._bases(scope):
            if isinstance(base, ClassValue) and base.scope is not scope:
                yield from self._guarded(("bases", base), partial(self._all_ancestors, base.scope))
            elif isinstance(base, External):
                yield base

    def _all_ancestors(self, scope: Scope) -> Values:
        return tuple(self._ancestors(scope))

    # --- calls ---

    def _of_call(self, node: ast.Call, point: Point) -> Values:
        return tuple(found for each in self.values(node.func, point) for found in self._result(each, node, point))

    def _result(self, function: Value, node: ast.Call, point: Point) -> Values:
        found: Values = ()
        match function:
            case External():
                found = self._of_external_call(function.name, node, point)
            case Decorator():
                found = self._decorated(function, node, point)
            case ClassValue():
                found = self._instance_of(function.scope)
            case FunctionValue():
                found = self._returned(function.scope)
            case Bound():
                found = self._of_method_call(function, node, point)
            case Chord(body=None) if node.args:
                found = (Chord(function.header, self.values(node.args[0], point)),)
        return found

    def _of_external_call(self, name: str, node: ast.Call, point: Point) -> Values:
        """Return what a call of something from elsewhere gives: an application, a signature, a canvas, a partial function."""
        first = node.args[0] if node.args else None
        found: Values = ()
        if _CURRENT_APP.fullmatch(name) or _APP_CLASS.fullmatch(name):
            found = (App(),)
        elif _SIGNATURES.fullmatch(name):
            found = self._named_signature(node, point)
        elif canvas := _CANVAS.fullmatch(name):
            found = self._canvas(canvas[2], node, point)
        elif name == "functools.partial":
            found = tuple(Partial(each) for each in self.values(first, point))
        elif name == "builtins.getattr" and len(node.args) > 1:
            attribute = self.text(node.args[1], point)
            found = tuple(value for each in self.values(first, point) for value in self.member(each, attribute))
        elif name in _COPIES:
            found = self.values(first, point)
        return found

    def _canvas(self, kind: str, node: ast.Call, point: Point) -> Values:
        """Return the chain, group or chord of a call."""
        parts = tuple(
            part for each in node.args for part in self._parts_of_argument(each, point, is_only=len(node.args) == 1)
        )
        if kind == "chain":
            return (Chain(parts),)
        if kind == "group":
            return (Group(parts),)
        body = (
            node.args[1]
            if len(node.args) > 1
            else next((each.value for each in node.keywords if each.arg == "body"), None)
        )
        header = (
            node.args[0] if node.args else next((each.value for each in node.keywords if each.arg == "header"), None)
        )
        return (Chord(self._members(header, point), None if body is None else self.values(body, point)),)

    def _parts_of_argument(self, node: ast.expr, point: Point, *, is_only: bool) -> Iterator[Values]:
        """Yield the parts that an argument of `chain` or `group` stands for: itself, or the elements of a list."""
        if isinstance(node, ast.Starred):
            yield from self.parts(node.value, point) or ((),)
        elif is_only:
            yield from self._members(node, point)
        else:
            yield self.values(node, point)

    def _members(self, node: ast.expr | None, point: Point) -> tuple[Values, ...]:
        found = self.values(node, point)
        if any(isinstance(each, Elements) for each in found) and node is not None:
            return tuple(self.parts(node, point))
        return (found,)

    def parts(self, node: ast.expr, point: Point) -> list[Values]:
        """Return what the elements of a list, tuple or comprehension may be."""
        return [
            self.values(part, where)
            for each in self.values(node, point)
            if isinstance(each, Elements)
            for part, where in each.parts
        ]

    def _named_signature(self, node: ast.Call, point: Point) -> Values:
        """Return the signature of `signature("name", args, kwargs)`; of a task or signature that is passed, that one."""
        first = node.args[0] if node.args else next((each.value for each in node.keywords if each.arg == "task"), None)
        arguments = self.literals.passed(node, point, 1)
        span = self.span(node, point)
        is_immutable = self.literals.is_true(node, "immutable")
        named = [NamedTask(each.text) if isinstance(each, Text) else each for each in self.values(first, point)]
        found = [Signature(each, arguments, is_immutable, span) for each in named if isinstance(each, Task | NamedTask)]
        return (*found, *(each for each in named if isinstance(each, Signature)))

    def _of_method_call(self, method: Bound, node: ast.Call, point: Point) -> Values:
        owner, name = method.owner, method.name
        if isinstance(owner, Task | NamedTask):
            return self._signed(owner, name, node, point)
        if isinstance(owner, App):
            if name == "register_task":
                return self._registered(node, point)
            return (
                self._named_signature(node, point)
                if name in ("signature", "subtask")
                else (App(),)
                if name[0] == "_"
                else ()
            )
        if isinstance(owner, Signature) and name == "set":
            return (
                Signature(
                    owner.task,
                    owner.arguments,
                    owner.is_immutable or self.literals.is_true(node, "immutable"),
                    owner.span,
                ),
            )
        if isinstance(owner, Signature) and name in ("clone", "s", "si"):
            passed = (
                self.literals.passed(node, point, 0) if name == "clone" else self.literals.arguments_of(node, point)
            )
            return (
                Signature(
                    owner.task,
                    owner.arguments.behind(passed),
                    owner.is_immutable or name == "si",
                    self.span(node, point),
                ),
            )
        return (owner,) if name in ("set", "clone", "on_error") else ()

    def _signed(self, task: Task | NamedTask, name: str, node: ast.Call, point: Point) -> Values:
        """Return the signature that `s`, `si`, `signature` or `subtask` of a task makes."""
        if name not in _SIGNED:
            return ()
        is_plain = name in ("s", "si")
        given = self.literals.arguments_of(node, point) if is_plain else self.literals.passed(node, point, 0)
        is_immutable = name == "si" or (not is_plain and self.literals.is_true(node, "immutable"))
        return (Signature(task, given, is_immutable, self.span(node, point)),)

    def _registered(self, node: ast.Call, point: Point) -> Values:
        """Return the task that `register_task` gets: a task, or a class or instance of one."""
        found: list[Value] = []
        for each in self.values(node.args[0] if node.args else None, point):
            found += self.tasks_of_class(each.scope) if isinstance(each, ClassValue | Instance) else (each,)
        return tuple(found)

    def _instance_of(self, scope: Scope) -> Values:
        return (App(),) if self._is_app_class(ClassValue(scope)) else self.tasks_of_class(scope) or (Instance(scope),)

    def _is_app_class(self, value: Value) -> bool:
        """True for the class of applications and its subclasses."""
        known = self._ancestors(value.scope) if isinstance(value, ClassValue) else [value]
        return any(isinstance(each, External) and _APP_CLASS.fullmatch(each.name) for each in known)

    def _returned(self, scope: Scope) -> Values:
        """Return what a function may return; nothing if a decorator may change that."""
        node = scope.node
        names = {_last_name(each) for each in getattr(node, "decorator_list", ())}
        if not names <= _TRANSPARENT or isinstance(node, ast.AsyncFunctionDef):
            return ()
        found = [value for each, point in scope.returns for value in self.values(each, point)]
        annotation = getattr(node, "returns", None)
        if not found and annotation is not None and scope.at is not None:
            found = [App() for each in self.values(annotation, scope.at) if self._is_app_class(each)]
        return tuple(found)

    # --- tasks ---

    def definition(self, node: FunctionNode, point: Point) -> Values:
        """Return what a function definition binds: a task if one of its decorators makes one, else the function."""
        scope = self._scope_of(node, point)
        for number, each in enumerate(node.decorator_list):
            for found in self.values(each, point):
                if isinstance(found, Decorator):
                    others = [*node.decorator_list[:number], *node.decorator_list[number + 1 :]]
                    return (self._function_task(node, found, scope, is_wrapped=bool(others)),)
        if any(_last_name(each) in ("property", "cached_property") for each in node.decorator_list):
            return self._returned(scope)
        return (FunctionValue(scope),)

    def _decorated(self, decorator: Decorator, node: ast.Call, point: Point) -> Values:
        """Return the task that `shared_task(function)` makes, or the decorator with the options of the call."""
        given = tuple((each.arg, each.value, point) for each in node.keywords if each.arg)
        is_open = any(each.arg is None for each in node.keywords)
        extended = Decorator((*decorator.options, *given), decorator.is_open or is_open)
        if not node.args:
            return (extended,)
        found: list[Value] = []
        for each in self.values(node.args[0], point):
            if isinstance(each, FunctionValue) and isinstance(each.scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(self._function_task(each.scope.node, extended, each.scope, is_wrapped=False))
            elif isinstance(each, ClassValue):
                found += self.tasks_of_class(each.scope)
        return tuple(found)

    def _function_task(self, node: FunctionNode, decorator: Decorator, scope: Scope, *, is_wrapped: bool) -> Task:
        """Return the task that a decorator makes of a function."""
        options = {name: (value, point) for name, value, point in decorator.options}
        name = self._task_name(options.get("name"), node.name, scope.path)
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        bind = options["bind"][0] if "bind" in options else None
        is_bound = (
            bind.value is True
            if isinstance(bind, ast.Constant)
            else (bind is not None or decorator.is_open) and names[:1] == ["self"]
        )
        texts = tuple((key, self.option_text(value, point)) for key, (value, point) in options.items())
        return Task(name, node.name, self.span(node, scope.end), scope, is_bound, is_wrapped, texts)

    def _task_name(self, given: tuple[ast.expr, Point] | None, label: str, path: str) -> str:
        """Return the name of a task: the one that is given, else that of the module and the function."""
        if given is None or (isinstance(given[0], ast.Constant) and given[0].value is None):
            return f"{self.packages.name_of(path)}.{label}"
        return self.text(*given)

    def option_text(self, node: ast.expr, point: Point) -> str:
        """Return the text of an option: that of a string behind a name, else that of the source."""
        return repr(text) if (text := self.text(node, point)) else ast.unparse(node)

    def tasks_of_class(self, scope: Scope) -> tuple[Task, ...]:
        """Return the task that a class defines: a subclass of `celery.Task` with a method `run`; empty for other classes."""
        known = self._guarded(("task", scope), partial(self._all_ancestors, scope))
        if not any(isinstance(each, External) and _TASK_CLASS.fullmatch(each.name) for each in known):
            return ()
        classes = [each.scope for each in known if isinstance(each, ClassValue)]
        run = next((each.bindings["run"][-1] for each in classes if "run" in each.bindings), None)
        if (
            run is None
            or not isinstance(run.node, ast.FunctionDef | ast.AsyncFunctionDef)
            or not isinstance(scope.node, ast.ClassDef)
        ):
            return ()
        function = self._scope_of(run.node, run.point)
        given = {name: found[-1] for name, found in scope.bindings.items() if found[-1].kind == "value"}
        options = {name: (each.node, each.point) for name, each in given.items() if isinstance(each.node, ast.expr)}
        name = self._task_name(options.get("name"), scope.node.name, scope.path)
        is_static = any(_last_name(each) == "staticmethod" for each in run.node.decorator_list)
        texts = tuple((key, self.option_text(*value)) for key, value in options.items())
        span = self.span(scope.node, scope.end)
        return (
            Task(name, scope.node.name, span, function, not is_static, len(run.node.decorator_list) > is_static, texts),
        )

    def span(self, node: ast.expr | FunctionNode | ast.ClassDef, point: Point) -> SourceSpan:
        """Return the place of an expression, or of the first line of a definition."""
        if isinstance(node, ast.expr):
            return SourceSpan(
                point.scope.path, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0
            )
        return SourceSpan(point.scope.path, node.lineno, node.col_offset, node.lineno, node.col_offset + len(node.name))

    @cached_property
    def literals(self) -> Literals:
        """The reader of literal arguments."""
        return Literals(self.values)


def _outside(name: str) -> Values:
    """Return what a name from elsewhere is: an application, a decorator, or nothing but its name."""
    if _CURRENT_APP.fullmatch(name):
        return (App(),) if name.endswith("current_app") and "get_" not in name else (External(name),)
    parts = name.rpartition(".")
    if _DECORATORS.fullmatch(name) or (parts[2] == "task" and _NAMED_CELERY.search(parts[0])):
        return (Decorator(),)
    return (External(name),)


def _member_of_app(app: App, name: str) -> Values:
    if name == "task":
        return (Decorator(),)
    if name == "tasks":
        return (Registry(),)
    if name == "Task":
        return (External("celery.Task"),)
    return (Bound(app, name),) if name in _APP_METHODS else ()


def _last_name(node: ast.expr) -> str:
    """Return the last name of `a.b.c` or `a.b.c(...)`; empty for other expressions."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
