"""Methods: parameters, declared contracts, every way in which the body ends, and what the expressions in it are worth."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import NOT_CONSTANT, evaluate, read_schema, read_type
from graphbus_core.compiler.reading.bodies import Body, Function, is_stub, last_calls, reaches_end
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    External,
    Module,
    ModuleRef,
    Scope,
    Symbol,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import span_of
from graphbus_core.model.agent import MethodSpec, Parameter, ParameterKind, Returned, SourceSpan
from graphbus_core.schema.types import (
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    UNKNOWN,
    Field,
    Schema,
    Type,
    union,
)

_RETURNING = frozenset({"call", "log", "publish", "request"})


def _may_not_return(call: ast.Call, view: View, *, in_doubt: bool) -> bool:
    """Tell of a call whether it never comes back; `in_doubt` is the answer where the code of the callee is not known."""
    target = resolve_through(call.func, view.scope)
    if isinstance(target, Symbol) and isinstance(target.node, FUNCTIONS):
        returns = [node for node in ast.walk(target.node) if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)]
        says_so = target.node.returns is not None and ast.unparse(target.node.returns).strip("'").endswith(
            ("NoReturn", "Never")
        )
        return says_so or not (returns or is_stub(target.node.body) or reaches_end(target.node.body))
    if not isinstance(call.func, ast.Attribute):
        return in_doubt and target != External("builtins.print")
    root = call.func.value
    if isinstance(root, ast.Name) and root.id == view.body.self_name:
        return in_doubt and call.func.attr not in _RETURNING
    return in_doubt and isinstance(resolve(root, view.scope), External | ModuleRef)


_TRANSPARENT = frozenset(
    {
        *("builtins.classmethod", "builtins.staticmethod", "functools.cache", "functools.lru_cache"),
        *(f"graphbus_core.{name}" for name in ("depends_on", "publishes", "schema_method", "subscribe")),
        *("typing.final", "typing.override", "typing_extensions.override"),
    }
)
_ATTRIBUTE_DECORATORS = frozenset({"setter", "getter", "deleter"})
_PROPERTIES = frozenset({"builtins.property", "functools.cached_property"})
_WRAPPERS = _PROPERTIES | {"builtins.classmethod", "builtins.staticmethod"}


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

    @property
    def is_callable(self) -> bool:
        """False for properties."""
        return not self.decorators or not any(
            decorator.name in _PROPERTIES
            or (isinstance(decorator.node, ast.Attribute) and decorator.node.attr in _ATTRIBUTE_DECORATORS)
            for decorator in self.decorators
        )

    @property
    def effective(self) -> tuple[Decorator, ...]:
        """Its decorators without those above a `@classmethod`, `@staticmethod` or property, on which their marks are lost."""
        lasting = 0
        for position, decorator in enumerate(self.decorators, 1):
            lasting = position if decorator.name in _WRAPPERS else lasting
        return self.decorators[lasting:]


def read_decorators(decorators: list[ast.expr], scope: Scope) -> tuple[Decorator, ...]:
    """Name the decorators of a class or function."""
    found: list[Decorator] = []
    for node in decorators:
        call = node if isinstance(node, ast.Call) else None
        target = resolve_through(call.func if call else node, scope)
        found.append(Decorator(target.dotted if isinstance(target, External) else "", node, call))
    return tuple(found)


def read_method(node: Function, scope: Scope) -> Method:
    """Read one method in the class that `scope` stands in."""
    decorators = read_decorators(node.decorator_list, scope) if node.decorator_list else ()
    is_static = bool(decorators) and any(decorator.name == "builtins.staticmethod" for decorator in decorators)
    arguments = node.args.posonlyargs or node.args.args
    self_name = arguments[0].arg if arguments and not is_static else ""
    body = Body(node, self_name)
    return Method(scope.module, node, body, decorators, is_static, is_stub(node.body))


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


def make_spec(method: Method, parameters: tuple[Parameter, ...], scope: Scope, view: View) -> MethodSpec:
    """Put together what the artifacts say about a method."""
    schema = next((each for each in method.effective if each.name == "graphbus_core.schema_method"), None)
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
        returned=tuple(_returned(method, view)),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        is_static=method.is_static,
        doc=docstring(node),
    )


def _returned(method: Method, view: View) -> Iterator[Returned]:
    path = method.module.path
    if method.body.is_generator or method.is_stub or any(each.name not in _TRANSPARENT for each in method.decorators):
        yield Returned(span_of(path, method.node), UNKNOWN)
        return
    for node in method.body.returns:
        yield from _returned_value(node.value, span_of(path, node), view)
    body = method.node.body
    gives_values = any(node.value is not None for node in method.body.returns)
    # where other ways return a value, a last call that is not known is more likely one that raises than a forgotten return
    if reaches_end(body) and not any(_may_not_return(call, view, in_doubt=gives_values) for call in last_calls(body)):
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


# --- what expressions are worth -------------------------------------------------------------------

_MAX_DEPTH = 8
_CALLS = {
    **{f"builtins.{name}": STR for name in ("str", "repr", "chr")},
    **{f"builtins.{name}": INT for name in ("len", "int", "ord", "hash", "id")},
    **{f"builtins.{name}": BOOL for name in ("bool", "isinstance", "any", "all")},
    "builtins.list": LIST,
    "builtins.sorted": LIST,
    "builtins.dict": DICT,
    "builtins.bytes": BYTES,
    "builtins.float": FLOAT,
    "builtins.set": Type("set"),
    "builtins.tuple": Type("tuple"),
    **dict.fromkeys(("time.time", "time.monotonic", "time.perf_counter"), FLOAT),
}
_COPYING = frozenset({External("copy.copy"), External("copy.deepcopy")})
_LITERALS: dict[type, Type] = {str: STR, int: INT, float: FLOAT, bool: BOOL, bytes: BYTES, type(None): NULL}
_BARE = {"list": LIST, "dict": DICT, "record": DICT, "set": Type("set")}


class View(msgspec.Struct, frozen=True):
    """A method as its expressions see it: where it stands, what its body binds, what its parameters are annotated with."""

    scope: Scope
    body: Body
    parameters: Mapping[str, Type]


def infer(expression: ast.expr, view: View, depth: int = 0) -> Type:
    """Give the type of an expression's value; unknown unless it is certain, annotations of parameters believed."""
    reader = _READERS.get(expression.__class__)
    if reader is None or depth > _MAX_DEPTH:
        return _ALWAYS.get(expression.__class__, UNKNOWN)
    return reader(expression, view, depth + 1)


def _name(expression: ast.Name, view: View, depth: int) -> Type:
    name = expression.id
    if name in view.body.bound:
        value = view.body.bound_once(name) if name not in view.parameters else None
        if value is None:
            return UNKNOWN
        return _bare(infer(value, view, depth))
    return view.parameters[name] if name in view.parameters else _constant(expression, view, depth)


def _constant(expression: ast.expr, view: View, depth: int) -> Type:
    return _LITERALS.get(type(evaluate(expression, view.scope)), UNKNOWN)


def _bare(found: Type) -> Type:
    """What is certain of a mutable value that others may have changed since: only what kind of container it is."""
    return union(*map(_bare, found.args)) if found.kind == "union" else _BARE.get(found.kind, found)


def _list(expression: ast.List, view: View, depth: int) -> Type:
    found = {infer(each, view, depth) for each in expression.elts}
    item = found.pop() if len(found) == 1 else UNKNOWN
    return LIST if item.kind == "unknown" else Type("list", (item,))


def _dict(expression: ast.Dict, view: View, depth: int) -> Type:
    schema = _read_display(expression, view, depth)
    if schema is None or schema.is_open or not schema.fields:
        return DICT
    return Type("record", fields=schema.fields)


def _call(expression: ast.Call, view: View, depth: int) -> Type:
    if isinstance(expression.func, ast.Name) and expression.func.id in view.body.bound:
        return UNKNOWN
    target = resolve(expression.func, view.scope)
    if not isinstance(target, External):
        return UNKNOWN
    if target.dotted == "builtins.round" and expression.args:
        value, has_digits = infer(expression.args[0], view, depth), len(expression.args) + len(expression.keywords) > 1
        return UNKNOWN if value.kind not in ("int", "float") else value if has_digits else INT
    if target.dotted == "builtins.dict" and expression.keywords:
        schema = _read_dict_call(expression, view, depth)
        if schema is not None and not schema.is_open:
            return Type("record", fields=schema.fields)
    return _CALLS.get(target.dotted, UNKNOWN)


def _operation(expression: ast.BinOp, view: View, depth: int) -> Type:
    left = infer(expression.left, view, depth)
    if left == STR and isinstance(expression.op, ast.Mod):
        return STR
    right = infer(expression.right, view, depth)
    if left.name or right.name:  # a date plus a duration is no text
        return UNKNOWN
    kinds = {left.kind, right.kind}
    if kinds == {"str"} and isinstance(expression.op, ast.Add):
        return STR
    if not kinds <= {"int", "float"} or isinstance(expression.op, ast.Pow):
        return UNKNOWN
    return FLOAT if "float" in kinds or isinstance(expression.op, ast.Div) else INT


def _not(expression: ast.UnaryOp, view: View, depth: int) -> Type:
    if isinstance(expression.op, ast.Not):
        return BOOL
    value = infer(expression.operand, view, depth)
    return value if value.kind in ("int", "float") else UNKNOWN


def _compare(expression: ast.Compare, view: View, depth: int) -> Type:
    if all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in expression.ops):
        return BOOL
    sides = [expression.left, *expression.comparators]
    plain = ("int", "float", "str", "bool")
    return BOOL if all(infer(side, view, depth).kind in plain for side in sides) else UNKNOWN


def _either(expression: ast.IfExp, view: View, depth: int) -> Type:
    return union(infer(expression.body, view, depth), infer(expression.orelse, view, depth))


_ALWAYS = {
    ast.DictComp: DICT,
    ast.JoinedStr: STR,
    ast.ListComp: LIST,
    ast.Set: Type("set"),
    ast.SetComp: Type("set"),
    ast.Tuple: Type("tuple"),
}
_READERS: dict[type, Callable[[Any, View, int], Type]] = {
    ast.Attribute: _constant,
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.IfExp: _either,
    ast.List: _list,
    ast.Name: _name,
    ast.UnaryOp: _not,
}


# --- dict displays --------------------------------------------------------------------


def read_fields(expression: ast.expr | None, view: View, depth: int = 0) -> Schema | None:
    """Give the fields of a dict display, a `dict(...)` call, a name bound once to one, and of a copy of these; else None."""
    if expression is None or depth > _MAX_DEPTH:
        return None
    if isinstance(expression, ast.Dict):
        return _read_display(expression, view, depth + 1)
    if isinstance(expression, ast.Call):
        return _read_call(expression, view, depth + 1)
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        sides = [expression.left, expression.right]
        is_dict = any(read_fields(side, view, depth + 1) is not None for side in sides)
        return _read_display(ast.Dict(keys=[None, None], values=sides), view, depth + 1) if is_dict else None
    if isinstance(expression, ast.Name):
        return _read_local(expression.id, view, depth + 1)
    return None


def _read_call(expression: ast.Call, view: View, depth: int) -> Schema | None:
    """`dict(...)`, `copy.copy(x)` and `x.copy()`."""
    function = expression.func
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not expression.args:
        return read_fields(function.value, view, depth)
    target = resolve(function, view.scope)
    if target == External("builtins.dict"):
        return _read_dict_call(expression, view, depth)
    is_copy = target in _COPYING and len(expression.args) == 1 and not expression.keywords
    return read_fields(expression.args[0], view, depth) if is_copy else None


def _read_display(expression: ast.Dict, view: View, depth: int) -> Schema | None:
    """Give the fields of a dict display; None when a key is no text."""
    fields: dict[str, Field] = {}
    is_open = False
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            spread = read_fields(value, view, depth)
            is_open = is_open or spread is None or spread.is_open
            if spread is None or spread.is_open:  # it may replace what stands before it
                fields = {name: Field(name, UNKNOWN, field.required) for name, field in fields.items()}
            fields |= {field.name: field for field in (spread.fields if spread else ())}
            continue
        name = key.value if isinstance(key, ast.Constant) else evaluate(key, view.scope)
        if isinstance(name, str):
            fields[name] = Field(name, infer(value, view, depth))
        elif name is NOT_CONSTANT:
            is_open = True
        else:
            return None
    return Schema(tuple(fields.values()), is_open)


def _read_dict_call(expression: ast.Call, view: View, depth: int) -> Schema | None:
    """`dict(base, key=value, **more)` is `{**base, "key": value, **more}`."""
    if len(expression.args) > 1:
        return None
    pairs: list[tuple[ast.expr | None, ast.expr]] = [(None, base) for base in expression.args]
    pairs += [(ast.Constant(each.arg) if each.arg else None, each.value) for each in expression.keywords]
    return _read_display(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]), view, depth)


def _read_local(name: str, view: View, depth: int) -> Schema | None:
    """A name that is bound once to a display and then only read, or given further keys."""
    value = view.body.bound_once(name)
    if value is None or name in view.parameters or view.body.escapes(name) or isinstance(value, ast.Name):
        return None
    schema = read_fields(value, view, depth)
    if schema is None:
        return None
    fields = {field.name: field for field in schema.fields}
    for access in view.body.accesses:
        if access.name == name and access.how in ("read", "write"):
            key = evaluate(access.key, view.scope)
            if not isinstance(key, str) or isinstance(getattr(access.node, "ctx", None), ast.Del):
                return None
            _touch(fields, key, is_written=access.how == "write")
    return Schema(tuple(fields.values()), schema.is_open)


def _touch(fields: dict[str, Field], key: str, *, is_written: bool) -> None:
    """What is known of a field after its key was used somewhere: a write may add or replace it, a read may lead to a change."""
    field = fields.get(key)
    if is_written:
        fields[key] = Field(key, UNKNOWN, field is not None and field.required)
    elif field is not None:
        fields[key] = Field(key, _bare(field.type), field.required)
