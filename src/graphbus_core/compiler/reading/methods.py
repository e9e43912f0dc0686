"""Reads methods: their parameters, decorators and declared contracts, and the values that they return."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import read_schema, read_type
from graphbus_core.compiler.reading.bodies import Body, FunctionNode
from graphbus_core.compiler.reading.constants import NOT_CONSTANT, evaluate_constant
from graphbus_core.compiler.reading.endings import is_stub, last_calls, reaches_end
from graphbus_core.compiler.reading.flow import infer_type, read_variants
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    DefinedName,
    External,
    Module,
    ModuleRef,
    NameScope,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.standard import PROPERTIES, TRANSPARENT
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.compiler.reading.views import FunctionView
from graphbus_core.model.agent import MethodSpec, Parameter, ParameterKind, Returned, SourceSpan
from graphbus_core.schema.types import DICT, NULL, UNKNOWN, Field, Schema, Type

_RETURNING = frozenset({"call", "log", "publish", "request"})
"""Methods of `GraphBusNode` that return to the caller."""


def _never_returns(call: ast.Call, view: FunctionView, *, in_doubt: bool) -> bool:
    """True if a call never returns, because it raises or exits; `in_doubt` is the answer if the called code is not known."""
    target = resolve_through(call.func, view.scope)
    if isinstance(target, DefinedName) and isinstance(target.node, FUNCTIONS):
        returns = [node for node in ast.walk(target.node) if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)]
        is_declared = target.node.returns is not None and ast.unparse(target.node.returns).strip("'").endswith(
            ("NoReturn", "Never")
        )
        return is_declared or not (returns or is_stub(target.node.body) or reaches_end(target.node.body))
    if not isinstance(call.func, ast.Attribute):  # a plain name
        return in_doubt and target != External("builtins.print")
    root = call.func.value
    if isinstance(root, ast.Name) and root.id == view.body.self_name:
        return in_doubt and call.func.attr not in _RETURNING
    # a function of a module may exit; a method of any other object is taken to return
    return in_doubt and isinstance(resolve(root, view.scope), External | ModuleRef)


_ATTRIBUTE_DECORATORS = frozenset({"setter", "getter", "deleter"})

_WRAPPERS = PROPERTIES | {"builtins.classmethod", "builtins.staticmethod"}


class Decorator(msgspec.Struct, frozen=True):
    """A decorator.

    Attributes:
        name: Its dotted name if it is defined outside of the project, else `""`.
        node: The expression after the `@`.
        call: The same expression if it is a call, as `@subscribe("/A")`; None for a plain name.
    """

    name: str
    node: ast.expr
    call: ast.Call | None

    def argument(self, position: int, name: str) -> ast.expr | None:
        """Return the argument with this position or name; None if it is missing, or if the decorator is not a call."""
        return call_argument(self.call, position, name) if self.call else None


class MethodSource(msgspec.Struct, frozen=True):
    """A method of a class: its syntax, what one pass over its body has found, and its decorators, outermost first."""

    module: Module
    node: FunctionNode
    body: Body
    decorators: tuple[Decorator, ...]
    is_static: bool
    is_stub: bool

    @property
    def is_callable(self) -> bool:
        """False for a property, its setter and its deleter."""
        return not self.decorators or not any(
            decorator.name in PROPERTIES
            or (isinstance(decorator.node, ast.Attribute) and decorator.node.attr in _ATTRIBUTE_DECORATORS)
            for decorator in self.decorators
        )

    @property
    def effective(self) -> tuple[Decorator, ...]:
        """The decorators that GraphBus sees: `@classmethod`, `@staticmethod` and `@property` hide all that are above them."""
        lasting = 0
        for position, decorator in enumerate(self.decorators, 1):
            lasting = position if decorator.name in _WRAPPERS else lasting
        return self.decorators[lasting:]


def read_decorators(decorators: list[ast.expr], scope: NameScope) -> tuple[Decorator, ...]:
    """Return the decorators of a class or function, in their order, with their dotted names."""
    found: list[Decorator] = []
    for node in decorators:
        call = node if isinstance(node, ast.Call) else None
        target = resolve_through(call.func if call else node, scope)
        found.append(Decorator(target.dotted if isinstance(target, External) else "", node, call))
    return tuple(found)


def read_method(node: FunctionNode, scope: NameScope) -> MethodSource:
    """Read one method of the class that `scope` belongs to."""
    decorators = read_decorators(node.decorator_list, scope) if node.decorator_list else ()
    is_static = bool(decorators) and any(decorator.name == "builtins.staticmethod" for decorator in decorators)
    arguments = node.args.posonlyargs or node.args.args
    self_name = arguments[0].arg if arguments and not is_static else ""
    body = Body(node, self_name)
    return MethodSource(scope.module, node, body, decorators, is_static, is_stub(node.body))


def read_parameters(method: MethodSource, scope: NameScope) -> tuple[Parameter, ...]:
    """Return the parameters of a method, `self` left out."""
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
            for argument, kind, has_default in _list_arguments(method)
        ]
    )


def _list_arguments(method: MethodSource) -> list[tuple[ast.arg, ParameterKind, bool]]:
    """Return the arguments of a method without `self`, each with its kind and whether it has a default."""
    args = method.node.args
    positional = [*args.posonlyargs, *args.args]
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


def annotated_arguments(method: MethodSource) -> Iterator[tuple[str, ast.expr | None]]:
    """Return the names of the parameters that `read_parameters` lists, with their annotations."""
    return ((argument.arg, argument.annotation) for argument, _, _ in _list_arguments(method))


def make_view(
    method: MethodSource,
    parameters: tuple[Parameter, ...],
    scope: NameScope,
    chain: Sequence[ClassSite],
    **attributes: Any,
) -> FunctionView:
    """Return the view of a method's body; `chain` and `attributes` (fields of `FunctionView`) describe `self`."""
    types: Mapping[str, Type] = {
        parameter.name: parameter.type if parameter.kind not in ("var_positional", "var_keyword") else UNKNOWN
        for parameter in parameters
    }
    hidden = frozenset((*scope.hidden, *method.body.bound, *types, method.body.self_name))
    inner = NameScope(
        scope.library,
        scope.module,
        chain,
        self_name=method.body.self_name,
        hidden=hidden,
        instance_names=scope.instance_names,
    )
    return FunctionView(inner, method.body, types, **attributes)


def _method_span(method: MethodSource) -> SourceSpan:
    """Return the span of a method with its decorators."""
    node = method.node
    line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    return SourceSpan(method.module.path, line, node.col_offset, node.end_lineno or line, node.end_col_offset or 0)


def make_spec(
    method: MethodSource, parameters: tuple[Parameter, ...], scope: NameScope, view: FunctionView
) -> MethodSpec:
    """Return the description of a method for the artifacts; `scope` is that of the class, `view` that of the body."""
    schema = next((each for each in method.effective if each.name == "graphbus_core.schema_method"), None)
    node = method.node
    returns = read_type(node.returns, scope.in_signature(node))
    inputs, outputs = _read_contract(schema, parameters, returns, scope) if schema else (None, None)
    return MethodSpec(
        name=node.name,
        span=_method_span(method),
        parameters=parameters,
        has_schema=schema is not None,
        schema_span=span_of(method.module.path, schema.node) if schema else None,
        input_schema=inputs,
        output_schema=outputs,
        returns=returns,
        has_return_annotation=node.returns is not None,
        returned=tuple(_read_returned(method, view)),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        is_static=method.is_static,
        doc=docstring(node),
    )


def _read_contract(
    declared: Decorator, parameters: tuple[Parameter, ...], returns: Type, scope: NameScope
) -> tuple[Schema | None, Schema | None]:
    """Return the input and output schema of `@schema_method`; without arguments they come from the annotations."""
    if declared.call is None or not (declared.call.args or declared.call.keywords):
        is_open = any(each.kind == "var_keyword" for each in parameters)
        named = [each for each in parameters if each.kind in ("positional", "positional_only", "keyword_only")]
        inputs = Schema(tuple(Field(each.name, each.type, not each.has_default) for each in named), is_open)
        return inputs, Schema(returns.fields) if returns.kind == "record" else None
    schema = read_schema(declared.argument(0, "input_schema"), scope)
    outputs = read_schema(declared.argument(1, "output_schema"), scope)
    return schema and _make_defaults_optional(schema, parameters), outputs


def _make_defaults_optional(schema: Schema, parameters: tuple[Parameter, ...]) -> Schema:
    """Return the schema with those fields optional whose parameters have a default."""
    optional = {each.name for each in parameters if each.has_default}
    fields = (Field(each.name, each.type, each.required and each.name not in optional) for each in schema.fields)
    return Schema(tuple(fields), schema.is_open)


def _read_returned(method: MethodSource, view: FunctionView) -> Iterator[Returned]:
    """Yield what a method may return: the value of each `return`, and None if the end of the body can be reached.

    The type is unknown for generators, for stubs, and under decorators that may change the result.
    """
    path = method.module.path
    if method.body.is_generator or method.is_stub or any(each.name not in TRANSPARENT for each in method.decorators):
        yield Returned(span_of(path, method.node), UNKNOWN)
        return
    for node in method.body.returns:
        yield from _read_returned_value(node.value, span_of(path, node), view)
    body = method.node.body
    # if other paths return a value, an unknown call at the end is more likely to raise than to hide a missing return
    gives_values = any(node.value is not None for node in method.body.returns)
    last = body[-1]
    if isinstance(last, ast.Match) and not reaches_end(body):
        missed = _has_unmatched_value(last, view)
        if missed is not False:
            yield Returned(span_of(path, last), NULL if missed else UNKNOWN)
    if (
        reaches_end(body)
        and not _is_retry_loop(last)
        and not any(_never_returns(call, view, in_doubt=gives_values) for call in last_calls(body))
    ):
        yield Returned(span_of(path, body[-1]), NULL)


def _has_unmatched_value(match: ast.Match, view: FunctionView) -> bool | None:
    """True if the subject of a `match` may have a value that fits none of its cases; None if that is not known."""
    patterns = [
        part
        for each in match.cases
        if each.guard is None
        for part in (each.pattern.patterns if isinstance(each.pattern, ast.MatchOr) else [each.pattern])
    ]
    if any(isinstance(each, ast.MatchAs) and each.pattern is None for each in patterns):  # `case _` or `case name`
        return False
    if patterns and all(_matches_fixed_length(each) for each in patterns):
        subject = infer_type(match.subject, view)
        return True if subject.kind == "list" else None  # a list may be longer or shorter
    covered: set[object] = set()
    for pattern in patterns:
        if not isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
            return None
        if isinstance(pattern, ast.MatchSingleton):
            covered.add(pattern.value)
        else:
            # an Enum member as a pattern covers its value
            member = evaluate_constant(ast.Attribute(pattern.value, "value", ast.Load()), view.scope)
            covered.add(evaluate_constant(pattern.value, view.scope) if member is NOT_CONSTANT else member)
    subject = infer_type(match.subject, view)
    if subject.kind == "literal" and NOT_CONSTANT not in covered:
        return not covered.issuperset(subject.values)
    return True if subject.kind in ("str", "int", "float") else None


def _matches_fixed_length(pattern: ast.pattern) -> bool:
    """True for a pattern like `[a, b]`, which lists of another length do not match."""
    return isinstance(pattern, ast.MatchSequence) and not any(
        isinstance(each, ast.MatchStar) for each in pattern.patterns
    )


def _is_retry_loop(last: ast.stmt) -> bool:
    """True for a loop of attempts: `for …: try: return … except …: if last: raise`. It is taken to end by `return` or `raise`."""
    attempt = last.body[-1] if isinstance(last, ast.For | ast.AsyncFor) else None
    if not isinstance(attempt, ast.Try) or reaches_end([*attempt.body, *attempt.orelse]):
        return False
    return all(any(isinstance(each, ast.Raise) for each in ast.walk(handler)) for handler in attempt.handlers)


def _read_returned_value(value: ast.expr | None, span: SourceSpan, view: FunctionView) -> Iterator[Returned]:
    """Yield the type and the fields of each value that a returned expression may have."""
    if value is None:
        yield Returned(span, NULL)
    elif isinstance(value, ast.IfExp):
        yield from _read_returned_value(value.body, span, view)
        yield from _read_returned_value(value.orelse, span, view)
    else:
        for shape, known in read_variants(value, view):
            # the object of a class, and the result of another agent, keep their types; for others the fields are more precise
            of = DICT if isinstance(value, ast.Dict) and shape is not None else known
            of = infer_type(value, view) if of.kind == "unknown" else of
            if shape is not None and not (of.name and of.kind in ("record", "result")):
                of = DICT if shape.is_open else Type("record", fields=shape.fields)
            yield Returned(span, of, shape)


def docstring(node: ast.ClassDef | FunctionNode) -> str:
    """Return the docstring of a class or function, cleaned by `clean_text`; the empty text if there is none."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return clean_text(first.value.value)
    return ""


def clean_text(text: str) -> str:
    """Return a text without the common indentation of its lines, and without blank lines at both ends."""
    if "\n" not in text:
        return text.strip()
    lines = text.expandtabs().splitlines()
    margins = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    margin = min(margins, default=0)
    return "\n".join([line.lstrip() for line in lines[:1]] + [line[margin:].rstrip() for line in lines[1:]]).strip()
