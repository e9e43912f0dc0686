"""GB201, GB202: the annotations that a schema implies."""

from __future__ import annotations

import ast
import io
import tokenize
from itertools import accumulate
from typing import TypeGuard

from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.fixes.literals import is_one_of
from graphbus_core.compiler.rules.fixes.parameters import argument_of, schema_display
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.model.proposals import CodeChange
from graphbus_core.schema.types import UNKNOWN, Type

_BUILTIN = frozenset(
    {"str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set", "frozenset", "object", "None"}
)


def annotate_parameter(finding: Finding, evidence: Evidence) -> Fix:
    """GB201: write the type of the schema behind the parameter."""
    name = finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    argument = argument_of(symbol.function, name)
    kind = _kind(symbol, name)
    default = _default(symbol, argument)
    if isinstance(default, ast.Constant) and default.value is None:
        kind += "" if "None" in kind else " | None"
    elif default is not None and not is_one_of(_type(finding, evidence), default):
        raise Refused("the default is of another type")
    end = symbol.text.start(argument) + len(name.encode())
    behind = symbol.text.start(default) if default is not None else end
    if symbol.text.utf8[end:behind].strip() == b"=":
        symbol.replace(end, behind, f": {kind} = ")
    else:
        symbol.insert(end, f": {kind}")
    return Fix(
        title=f"Annotate {name!r} of {symbol.target} with {kind}",
        intent="add_annotation",
        changes=(symbol.change(),),
        is_safe=True,
    )


def annotate_result(finding: Finding, evidence: Evidence) -> Fix:
    """GB202: write `-> dict[str, Any]` behind the parameters, and import Any."""
    symbol = Symbol.at(evidence, finding.span)
    function = symbol.function
    _refuse_hidden_names(symbol, {"dict", "str"})
    symbol.insert(_end_of_parameters(symbol), " -> dict[str, Any]")
    changes = [symbol.change()]
    if not _imports_any(symbol):
        _refuse_hidden_names(symbol, {"Any"})
        path = symbol.text.source.path
        changes.append(
            CodeChange(
                file_path=path, target="", change_type="add", operation="add_import", new_code="from typing import Any"
            )
        )
    return Fix(
        title=f"Annotate the result of {function.name} with dict[str, Any]",
        intent="add_annotation",
        changes=tuple(changes),
        is_safe=True,
    )


def _type(finding: Finding, evidence: Evidence) -> Type:
    """The type that the schema gives the parameter."""
    agent = next(definition for definition in evidence.definitions if definition.name == finding.agent)
    method = agent.method(finding.data["method"])
    field = method.input_schema.get(finding.data["parameter"]) if method and method.input_schema else None
    return field.type if field else UNKNOWN


def _kind(symbol: Symbol, name: str) -> str:
    """The type as the schema spells it: names mean the same in the decorator and in the signature below it."""
    display = schema_display(symbol.function, "input_schema", 0)
    for key, value in zip(display.keys, display.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == name:
            names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            if not isinstance(value, ast.Name | ast.Subscript | ast.BinOp) or not _is_type(value):
                raise Refused("the schema does not spell a type")
            _refuse_hidden_names(symbol, names & _BUILTIN, names - _BUILTIN)
            return " ".join(symbol.text.of(value).split())
    raise Refused("the schema does not name the parameter")


def _is_type(value: ast.expr) -> bool:
    """Names, subscripts, `|`, None and literals within; no calls, no displays."""
    plain = (ast.Name, ast.Subscript, ast.BinOp, ast.Constant, ast.Tuple, ast.Attribute, ast.BitOr, ast.expr_context)
    return all(isinstance(node, plain) for node in ast.walk(value)) and "NotRequired" not in ast.dump(value)


def _refuse_hidden_names(symbol: Symbol, builtins: set[str], others: set[str] | frozenset[str] = frozenset()) -> None:
    """Give up when the class or a type parameter, or for builtins the module, gives one of the names another meaning."""
    in_class = symbol.type_parameters | (_bound_by(symbol.owner.body) if symbol.owner else set())
    stored = {node.id for node in ast.walk(symbol.text.tree) if _is_stored(node)}
    defined = _bound_by(symbol.text.tree.body)
    if builtins & (in_class | stored | defined) or others & in_class:
        raise Refused("a name of the annotation means something else here")


def _bound_by(body: list[ast.stmt]) -> set[str]:
    """The names that statements bind in their own scope: definitions, imports, assignments."""
    names = {getattr(statement, "name", "") for statement in body}
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in statement.names)
        elif not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.update(node.id for node in ast.walk(statement) if _is_stored(node))
    return names


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _default(symbol: Symbol, argument: ast.arg) -> ast.expr | None:
    arguments = symbol.function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    defaults |= {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    return defaults.get(argument)


def _end_of_parameters(symbol: Symbol) -> int:
    """Right behind the bracket that closes the parameters; those of `def take[T: (int, str)]` come before them."""
    function = symbol.function
    start = symbol.text.offset(function.lineno, function.col_offset)
    text = symbol.text.utf8[start : symbol.end].decode()
    depth = 0
    lines = [0, *accumulate(map(len, io.StringIO(text, newline="")))]
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
        elif token.type == tokenize.OP and token.string in ")]}":
            depth -= 1
            if depth == 0 and token.string == ")":
                position = lines[token.end[0] - 1] + token.end[1]
                return start + len(text[:position].encode())
    raise Refused("the parameters have no end")


def _imports_any(symbol: Symbol) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "typing"
        and any(alias.name == "Any" and alias.asname in (None, "Any") for alias in node.names)
        for node in symbol.text.tree.body
    )
