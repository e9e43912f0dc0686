"""Methods: parameters, declared contracts, and every way in which the body ends, calls that never come back included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from graphbus_core.compiler.reading.annotations import read_schema, read_type
from graphbus_core.compiler.reading.bodies import Body, Function, Stops, ends_of, is_stub, reaches_end
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    External,
    Module,
    ModuleRef,
    Scope,
    Symbol,
    Target,
    find_member,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import span_of
from graphbus_core.compiler.reading.values import View, infer, read_fields
from graphbus_core.model.agent import MethodSpec, Parameter, ParameterKind, Returned, SourceSpan
from graphbus_core.schema.types import DICT, NULL, UNKNOWN, Type

_RETURNING = frozenset({"call", "log", "publish", "request"})
_NEVER = frozenset({"NoReturn", "Never"})


def _judge_calls(function: Function, view: View, raising: frozenset[str]) -> Stops:
    """Give the judgement which calls of a method may never return.

    A callee that is not known counts as such only at the very end of a path, and only if other paths return a value:
    there a `return` was hardly forgotten. `raising` are the methods of `self` that never return.
    """
    gives_values = any(node.value is not None for node in view.body.returns)
    last = {id(call) for call in ends_of(function.body)} if gives_values else set()

    def stops(call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr in raising:
            return True
        returns = _returns(call.func, function, view)
        return not returns if returns is not None else id(call) in last

    return stops


def _never_comes_back(function: Function, body: Body | None = None) -> bool:
    """True for a function that says so, or that only raises."""
    if _says_so(function.returns):
        return True
    if is_stub(function.body) or reaches_end(function.body):
        return False
    body = body or Body(function, "")
    return not (body.returns or body.is_generator)


def _says_so(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] in _NEVER
    return getattr(annotation, "attr", getattr(annotation, "id", "")) in _NEVER


def _returns(callee: ast.expr, function: Function, view: View) -> bool | None:
    """True or False where it is known, else None."""
    if isinstance(callee, ast.Name):
        if callee.id in view.scope.hidden:
            return _inner_returns(callee.id, function)
        return _target_returns(resolve_through(callee, view.scope))
    if not isinstance(callee, ast.Attribute):
        return None
    if isinstance(callee.value, ast.Name) and callee.value.id == view.body.self_name:
        member = find_member(view.scope.chain, callee.attr)
        return True if member is None and callee.attr in _RETURNING else _target_returns(member)
    if isinstance(resolve(callee.value, view.scope), ModuleRef | External):
        return _target_returns(resolve_through(callee, view.scope))
    return True  # a method of some object


def _inner_returns(name: str, function: Function) -> bool | None:
    for node in ast.walk(function):
        if isinstance(node, FUNCTIONS) and node.name == name and node is not function:
            return not _never_comes_back(node)
    return None


def _target_returns(target: Target) -> bool | None:
    if isinstance(target, Symbol):
        node = target.node
        if isinstance(node, FUNCTIONS):
            return not _never_comes_back(node)
        return True if isinstance(node, ast.ClassDef) else None
    if isinstance(target, External):
        top, _, rest = target.dotted.partition(".")
        return True if top in sys.stdlib_module_names and not rest.startswith("exec") else None
    return None


_TRANSPARENT = frozenset(
    {
        "builtins.classmethod",
        "builtins.staticmethod",
        "functools.cache",
        "functools.lru_cache",
        "graphbus_core.depends_on",
        "graphbus_core.publishes",
        "graphbus_core.schema_method",
        "graphbus_core.subscribe",
        "typing.final",
        "typing.override",
        "typing_extensions.override",
    }
)
_ATTRIBUTE_DECORATORS = frozenset({"setter", "getter", "deleter"})
_PROPERTIES = frozenset({"builtins.property", "functools.cached_property"})


class Decorator(msgspec.Struct, frozen=True):
    """A decorator: its dotted name (`""` when unknown), the expression, and the call with its arguments if it is one."""

    name: str
    node: ast.expr
    call: ast.Call | None

    def argument(self, position: int, name: str) -> ast.expr | None:
        """Give the argument at a position or of a name."""
        return call_argument(self.call, position, name) if self.call else None


def call_argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Give the argument of a call at a position or of a name; None when it is missing or hidden behind a star."""
    given = call.args[: position + 1]
    if len(given) > position and ast.Starred not in [argument.__class__ for argument in given]:
        return given[position]
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return None


class Method(msgspec.Struct, frozen=True):
    """A method of a class, its body read and its decorators named."""

    module: Module
    node: Function
    body: Body
    decorators: tuple[Decorator, ...]
    is_static: bool
    is_stub: bool
    reaches_end: bool

    @property
    def is_callable(self) -> bool:
        """False for properties."""
        return not self.decorators or not any(
            decorator.name in _PROPERTIES
            or (isinstance(decorator.node, ast.Attribute) and decorator.node.attr in _ATTRIBUTE_DECORATORS)
            for decorator in self.decorators
        )

    @property
    def schema(self) -> Decorator | None:
        """The `@schema_method` of the method, if it has one."""
        for decorator in self.decorators:
            if decorator.name == "graphbus_core.schema_method":
                return decorator
        return None

    @property
    def is_replaced(self) -> bool:
        """True when subclasses or a decorator that is not known decide what the method gives."""
        return any(decorator.name not in _TRANSPARENT for decorator in self.decorators)

    @property
    def arguments(self) -> list[ast.arg]:
        """The parameters that can be passed by position, `self` included."""
        return [*self.node.args.posonlyargs, *self.node.args.args]


def read_decorators(decorators: list[ast.expr], scope: Scope) -> tuple[Decorator, ...]:
    """Name the decorators of a class or function."""
    return tuple([_read_decorator(decorator, scope) for decorator in decorators])


def _read_decorator(node: ast.expr, scope: Scope) -> Decorator:
    call = node if isinstance(node, ast.Call) else None
    target = resolve_through(call.func if call else node, scope)
    return Decorator(target.dotted if isinstance(target, External) else "", node, call)


def read_method(node: Function, scope: Scope) -> Method:
    """Read one method in the class that `scope` stands in."""
    decorators = read_decorators(node.decorator_list, scope) if node.decorator_list else ()
    is_static = bool(decorators) and any(decorator.name == "builtins.staticmethod" for decorator in decorators)
    arguments = node.args.posonlyargs or node.args.args
    self_name = arguments[0].arg if arguments and not is_static else ""
    body = Body(node, self_name)
    return Method(scope.module, node, body, decorators, is_static, is_stub(node.body), reaches_end(node.body))


def read_parameters(method: Method, scope: Scope) -> tuple[Parameter, ...]:
    """Give the parameters of a method, `self` left out."""
    path = method.module.path
    return tuple(
        [
            Parameter(
                argument.arg,
                span_of(path, argument),
                read_type(argument.annotation, scope),
                kind,
                has_default,
                argument.annotation is not None,
            )
            for argument, kind, has_default in _listed(method)
        ]
    )


def _listed(method: Method) -> list[tuple[ast.arg, ParameterKind, bool]]:
    args = method.node.args
    positional = method.arguments
    first_default = len(positional) - len(args.defaults)
    listed: list[tuple[ast.arg, ParameterKind, bool]] = []
    for position, argument in enumerate(positional):
        if position or method.is_static:
            kind: ParameterKind = "positional_only" if position < len(args.posonlyargs) else "positional"
            listed.append((argument, kind, position >= first_default))
    if args.vararg:
        listed.append((args.vararg, "var_positional", False))
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        listed.append((argument, "keyword_only", default is not None))
    if args.kwarg:
        listed.append((args.kwarg, "var_keyword", False))
    return listed


def annotated_arguments(method: Method) -> Iterator[tuple[str, ast.expr | None]]:
    """Give the names of the parameters that `read_parameters` lists, with their annotations."""
    return ((argument.arg, argument.annotation) for argument, _, _ in _listed(method))


def make_view(method: Method, parameters: tuple[Parameter, ...], scope: Scope, chain: Sequence[ClassSite]) -> View:
    """Give the method as the expressions of its body see it; `chain` is what its `self.x` looks through."""
    types: Mapping[str, Type] = {
        parameter.name: parameter.type if parameter.kind not in ("var_positional", "var_keyword") else UNKNOWN
        for parameter in parameters
    }
    hidden = frozenset((*scope.hidden, *method.body.bound, *types, method.body.self_name))
    inner = Scope(
        scope.library,
        scope.module,
        chain,
        self_name=method.body.self_name,
        hidden=hidden,
        instance_names=scope.instance_names,
    )
    return View(inner, method.body, types)


def _method_span(method: Method) -> SourceSpan:
    """The function with its decorators."""
    node = method.node
    line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    return SourceSpan(method.module.path, line, node.col_offset, node.end_lineno or line, node.end_col_offset or 0)


def make_spec(
    method: Method, parameters: tuple[Parameter, ...], scope: Scope, view: View, raising: frozenset[str]
) -> MethodSpec:
    """Put together what the artifacts say about a method."""
    schema = method.schema
    node = method.node
    return MethodSpec(
        name=node.name,
        span=_method_span(method),
        parameters=parameters,
        has_schema=schema is not None,
        schema_span=span_of(method.module.path, schema.node) if schema else None,
        input_schema=read_schema(schema.argument(0, "input_schema"), scope) if schema else None,
        output_schema=read_schema(schema.argument(1, "output_schema"), scope) if schema else None,
        returns=read_type(node.returns, scope.in_signature(node)),
        has_return_annotation=node.returns is not None,
        returned=tuple(_returned(method, view, raising)),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        is_static=method.is_static,
        doc=docstring(node),
    )


def _returned(method: Method, view: View, raising: frozenset[str]) -> Iterator[Returned]:
    path = method.module.path
    if method.body.is_generator or method.is_stub or (method.decorators and method.is_replaced):
        yield Returned(span_of(path, method.node), UNKNOWN)
        return
    for node in method.body.returns:
        yield from _returned_value(node.value, span_of(path, node), view)
    body = method.node.body
    if method.reaches_end and reaches_end(body, _judge_calls(method.node, view, raising)):
        yield Returned(span_of(path, body[-1]), NULL)


def _returned_value(value: ast.expr | None, span: SourceSpan, view: View) -> Iterator[Returned]:
    if value is None:
        yield Returned(span, NULL)
    elif isinstance(value, ast.IfExp):
        yield from _returned_value(value.body, span, view)
        yield from _returned_value(value.orelse, span, view)
    else:
        shape = read_fields(value, view)
        if shape is None:
            yield Returned(span, infer(value, view))
        else:
            yield Returned(span, DICT if shape.is_open else Type("record", fields=shape.fields), shape)


def never_returns(method: Method) -> bool:
    """True for a method that only raises, or says that it never returns."""
    is_quickly_told = method.reaches_end and method.node.returns is None
    return not is_quickly_told and _never_comes_back(method.node, method.body)


def docstring(node: ast.ClassDef | Function) -> str:
    """Give the docstring of a class or function, as it is shown."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return clean_text(first.value.value)
    return ""


def clean_text(text: str) -> str:
    """Give a text without its common indentation and without blank ends, as docstrings are shown."""
    if "\n" not in text:
        return text.strip()
    lines = text.expandtabs().splitlines()
    margins = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(margins, default=0)
    return "\n".join([line.lstrip() for line in lines[:1]] + [line[margin:].rstrip() for line in lines[1:]]).strip()
