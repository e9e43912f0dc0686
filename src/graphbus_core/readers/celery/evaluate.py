"""Finds out what an expression of a Celery project may be, by following names, imports, attributes, calls and returned values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property

from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.arguments import Literals
from graphbus_core.readers.celery.definitions import Definitions
from graphbus_core.readers.celery.known import (
    APP_CLASS,
    CANVAS,
    CURRENT_APP,
    NAMED_CELERY,
    OUTSIDE,
    SIGNATURES,
    SIGNED,
    last_name,
    member_of_app,
    outside,
)
from graphbus_core.readers.celery.values import (
    App,
    Bound,
    Chain,
    Chord,
    ClassValue,
    Decorator,
    Elements,
    Entries,
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
from graphbus_core.readers.scopes import Binding, FunctionNode, Imported, Module, Point, Scope, defaults_of, read_module
from graphbus_core.readers.seam import Project

_CANVASES = (Signature, Chain, Group, Chord)
_COPIES = frozenset(f"builtins.{name}" for name in ("list", "tuple", "reversed", "sorted"))


class Evaluator:
    """Evaluates the expressions of one state of a project.

    Attributes:
        packages: Its modules.
        definitions: What finds its tasks.
        unreadable: Path -> why the file could not be read, and the line.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.packages = Packages(project.paths)
        self.definitions = Definitions(self)
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

    def _of_joinedstr(self, node: ast.JoinedStr, point: Point) -> Values:
        """Return the text of an f-string whose parts are all known."""
        parts = [self.values(each, point) for each in node.values]
        texts = [each[0].text for each in parts if len(each) == 1 and isinstance(each[0], Text)]
        return (Text("".join(texts)),) if len(texts) == len(parts) else ()

    def _of_formattedvalue(self, node: ast.FormattedValue, point: Point) -> Values:
        """Return the value in braces, unless a conversion or a format changes its text."""
        return self.values(node.value, point) if node.conversion in (-1, ord("s")) and not node.format_spec else ()

    def _of_dict(self, node: ast.Dict, point: Point) -> Values:
        return (Entries(tuple(zip(node.keys, node.values, strict=True)), point),)

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
        return (Elements(((node.elt, Point(self.scope_of(node, point), (), 1)),)),)

    _of_setcomp = _of_generatorexp = _of_listcomp

    def _of_lambda(self, node: ast.Lambda, point: Point) -> Values:
        return (FunctionValue(self.scope_of(node, point)),)

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
        """Return the task of `app.tasks["name"]`, or what the entry of a dictionary, list or tuple may be."""
        return tuple(found for each in self.values(node.value, point) for found in self._entry(each, node.slice, point))

    def _entry(self, owner: Value, key: ast.expr, point: Point) -> Values:
        """Return what `owner[key]` may be: of a key that is not known, every entry."""
        index = key.value if isinstance(key, ast.Constant) else None
        if isinstance(owner, Registry):
            return (NamedTask(name),) if (name := self.text(key, point)) else ()
        if isinstance(owner, Entries):
            same = [value for each, value in owner.parts if each and index is not None and _constant(each) == index]
            chosen = same[-1:] or [value for each, value in owner.parts if each]
            return tuple(found for each in chosen for found in self.values(each, owner.point))
        if not isinstance(owner, Elements) or any(isinstance(part, ast.Starred) for part, _ in owner.parts):
            return ()
        if isinstance(index, int):
            return self.values(*owner.parts[index]) if index < len(owner.parts) else ()
        return (
            () if isinstance(key, ast.Slice) else tuple(found for each in owner.parts for found in self.values(*each))
        )

    def scope_of(self, node: ast.AST, point: Point) -> Scope:
        """Return the scope that a node of the file of a point makes."""
        module = self.module(point.scope.path)
        assert module is not None  # noqa: S101 the node comes from it
        return module.scopes[node]

    # --- names ---

    def _of_name(self, node: ast.Name, point: Point) -> Values:
        owner = point.scope.owner(node.id)
        if owner is None and node.id == "__name__":
            return (Text(self.packages.name_of(point.scope.path)),)
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
        if isinstance(node, ast.arg):
            return self._of_parameter(node, point.scope)
        if isinstance(node, ast.ClassDef):
            return (ClassValue(self.scope_of(node, point)),)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return (
                self._of_first_parameter(node, point)
                if binding.kind == "first"
                else self.definitions.definition(node, point)
            )
        return self.values(node, point) if isinstance(node, ast.expr) else ()

    def _before(self, point: Point) -> Point:
        """Return the point at which the iterable of a loop or comprehension stands."""
        return point.scope.at if point.scope.kind == "comprehension" and point.scope.at else point

    def _of_first_parameter(self, node: FunctionNode, point: Point) -> Values:
        """Return what `self` is: the instance in a method, and the task in a function that is bound to it."""
        around = point.scope.parent
        if around is not None and around.kind == "class":
            names = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
            tasks = self.definitions.tasks_of_class(around)
            return () if "staticmethod" in names else tasks or (Instance(around),)
        at = point.scope.at
        found = self.definitions.definition(node, at) if at else ()
        bound = tuple(each for each in found if isinstance(each, Task) and each.is_bound)
        return bound or self._of_parameter((*node.args.posonlyargs, *node.args.args)[0], point.scope)

    def _of_parameter(self, node: ast.arg, scope: Scope) -> Values:
        """Return what a parameter is by its annotation, an application, and what it may be by its default, a task."""
        if scope.at is None or not isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return ()
        default = defaults_of(scope.node.args).get(node)
        known = [each for each in self.values(node.annotation, scope.at) if self._is_app_class(each)]
        return *(App() for _ in known), *(each for each in self.values(default, scope.at) if isinstance(each, Task))

    def _of_import(self, imported: Imported, path: str) -> Values:
        if imported.level:
            stem = self.packages.relative(path, imported.level, imported.module)
        else:
            is_outside = imported.module.partition(".")[0] in OUTSIDE
            stem = None if is_outside else self.packages.find(imported.module, path)
        if stem is None:
            return outside(".".join(filter(None, (imported.module, imported.name))))
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
        if not found and node.attr == "task" and self._is_named_as_app(last_name(node.value), point):
            return (Decorator(),)  # `@celery.task` of an application whose origin is not known
        return found

    def _is_named_as_app(self, name: str, point: Point) -> bool:
        """True for a name with `celery` in it, and for `app` in a file that mentions Celery."""
        is_app = name == "app" and b"celery" in self._project.text(point.scope.path).lower()
        return is_app or bool(NAMED_CELERY.fullmatch(name))

    def member(self, value: Value, name: str) -> Values:
        """Return what an attribute of a value may be."""
        return self._guarded((value, name), lambda: self._member(value, name))

    def _member(self, value: Value, name: str) -> Values:
        found: Values = ()
        match value:
            case ModuleValue():
                found = self._of_module_member(value.stem, name)
            case External():
                found = outside(f"{value.name}.{name}")
            case App():
                found = member_of_app(value, name)
            case ClassValue() | Instance():
                found = self._of_class_member(value, name)
            case Task() | NamedTask():
                found = (Text(value.name),) if name == "name" and value.name else (Bound(value, name),)
            case Signature() | Chain() | Group() | Chord() | Registry() | Entries():
                found = (Bound(value, name),)
            case Text() if name == "value":  # of a member of an Enum
                found = (value,)
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
        tasks = self.definitions.tasks_of_class(scope)
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
                yield from self.all_ancestors(base.scope)
            elif isinstance(base, External):
                yield base

    def all_ancestors(self, scope: Scope) -> Values:
        """Return a class and all that it derives from, each before its own bases; of those from elsewhere the names."""
        return self._guarded(("task", scope), lambda: tuple(self._ancestors(scope)))

    # --- calls ---

    def _of_call(self, node: ast.Call, point: Point) -> Values:
        return tuple(found for each in self.values(node.func, point) for found in self._result(each, node, point))

    def _result(self, function: Value, node: ast.Call, point: Point) -> Values:
        found: Values = ()
        match function:
            case External():
                found = self._of_external_call(function.name, node, point)
            case Decorator():
                found = self.definitions.decorated(function, node, point)
            case ClassValue():
                found = self._instance_of(function.scope)
            case FunctionValue():
                found = tuple(
                    each.extended(node.keywords, point) if isinstance(each, Decorator) and each.is_open else each
                    for each in self._returned(function.scope)
                )
            case Bound():
                found = self._of_method_call(function, node, point)
            case Chord(body=None) if node.args:
                found = (Chord(function.header, self.values(node.args[0], point)),)
        return found

    def _of_external_call(self, name: str, node: ast.Call, point: Point) -> Values:
        """Return what a call of something from elsewhere gives: an application, a signature, a canvas, a partial function."""
        first = node.args[0] if node.args else None
        found: Values = ()
        if CURRENT_APP.fullmatch(name) or APP_CLASS.fullmatch(name):
            found = (App(),)
        elif SIGNATURES.fullmatch(name):
            found = self._named_signature(node, point)
        elif canvas := CANVAS.fullmatch(name):
            found = self._canvas(canvas[2], node, point)
        elif name == "functools.partial":
            given = self.values(first, point)
            found = tuple(
                each.extended(node.keywords, point) if isinstance(each, Decorator) else Partial(each) for each in given
            )
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
            return self._of_app_call(name, node, point)
        if isinstance(owner, Registry | Entries):
            return self._of_table_call(owner, name, node, point)
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

    def _of_app_call(self, name: str, node: ast.Call, point: Point) -> Values:
        if name == "register_task":
            return self._registered(node, point)
        if name in ("signature", "subtask"):
            return self._named_signature(node, point)
        return (App(),) if name[0] == "_" else ()

    def _of_table_call(self, owner: Registry | Entries, name: str, node: ast.Call, point: Point) -> Values:
        """Return what `get` and `values` of a dictionary give."""
        if name == "values" and isinstance(owner, Entries):
            return (Elements(tuple((value, owner.point) for key, value in owner.parts if key)),)
        return self._entry(owner, node.args[0], point) if name == "get" and node.args else ()

    def _signed(self, task: Task | NamedTask, name: str, node: ast.Call, point: Point) -> Values:
        """Return the signature that `s`, `si`, `signature` or `subtask` of a task makes."""
        if name not in SIGNED:
            return ()
        is_plain = name in ("s", "si")
        given = self.literals.arguments_of(node, point) if is_plain else self.literals.passed(node, point, 0)
        is_immutable = name == "si" or (not is_plain and self.literals.is_true(node, "immutable"))
        return (Signature(task, given, is_immutable, self.span(node, point)),)

    def _registered(self, node: ast.Call, point: Point) -> Values:
        """Return the task that `register_task` gets: a task, or a class or instance of one."""
        found: list[Value] = []
        for each in self.values(node.args[0] if node.args else None, point):
            found += self.definitions.tasks_of_class(each.scope) if isinstance(each, ClassValue | Instance) else (each,)
        return tuple(found)

    def _instance_of(self, scope: Scope) -> Values:
        return (
            (App(),)
            if self._is_app_class(ClassValue(scope))
            else self.definitions.tasks_of_class(scope) or (Instance(scope),)
        )

    def _is_app_class(self, value: Value) -> bool:
        """True for the class of applications and its subclasses."""
        known = self._ancestors(value.scope) if isinstance(value, ClassValue) else [value]
        return any(isinstance(each, External) and APP_CLASS.fullmatch(each.name) for each in known)

    def _returned(self, scope: Scope) -> Values:
        """Return what a function may return, also by its annotation."""
        found = self.definitions.returned(scope)
        annotation = getattr(scope.node, "returns", None)
        if not found and annotation is not None and scope.at is not None:
            return tuple(App() for each in self.values(annotation, scope.at) if self._is_app_class(each))
        return found

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


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
