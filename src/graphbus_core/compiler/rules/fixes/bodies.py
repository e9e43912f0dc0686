"""GB201, GB202, GB210, GB301, GB302: annotations, guards, defaults and `except` clauses.

GB210 itself is found here as well: it is off by default, and needs the same edits.
"""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections.abc import Iterator
from itertools import accumulate

from graphbus_core.compiler.rules.bodies import defaulted, how_seen
from graphbus_core.compiler.rules.fixes.names import argument_of, others, schema_display
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol, entries, stored_names
from graphbus_core.compiler.rules.wiring import Evidence, Wiring, owns, report
from graphbus_core.model.agent import AgentDefinition, MethodSpec
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.model.proposals import CodeChange
from graphbus_core.schema.types import UNKNOWN, Type

_CHECKABLE = frozenset({"str", "int", "float", "bool", "list", "dict"})
_CHECKING = ("valid", "check", "ensure", "require", "assert", "verify", "parse", "convert", "isinstance")


def check_validation(wiring: Wiring) -> Iterator[Finding]:
    """Find methods with an input schema none of whose arguments is ever looked at before it is used."""
    for agent in wiring.asked:
        for method in agent.methods:
            kinds = _checkable(agent, method)
            if kinds and not _validates(agent, method, set(kinds), wiring):
                yield report(
                    "GB210",
                    agent.name,
                    method.schema_span or method.span,
                    f"{agent.name}.{method.name} declares its input and never validates it",
                    "Refuse wrong input at the top of the body, before anything is done with it.",
                    severity="info",
                    data={"kinds": ",".join(f"{name}:{kind}" for name, kind in kinds.items())},
                )


def _checkable(agent: AgentDefinition, method: MethodSpec) -> dict[str, str]:
    """Parameter -> type, of those whose type can be checked with isinstance."""
    if method.input_schema is None or not owns(agent, method.span):
        return {}
    fields = {field.name: field.type.kind for field in method.input_schema.fields if _is_plain(field.type)}
    return {item.name: fields[item.name] for item in method.parameters if item.name in fields}


def _is_plain(of: Type) -> bool:
    """A `str` with a name is a date or the like, or its text."""
    return of.kind in _CHECKABLE and (of.kind != "str" or not of.name)


def _validates(agent: AgentDefinition, method: MethodSpec, names: set[str], wiring: Wiring) -> bool:
    try:
        function = Symbol.of_method(wiring.evidence, method).function
    except Refused:
        return True
    return any(_looks_at(node, names) for node in ast.walk(function))


def _looks_at(node: ast.AST, names: set[str]) -> bool:
    """A condition on an argument, or a call by a name that speaks of checking."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return _mentions(node.test, names)
    if isinstance(node, ast.Match):
        return _mentions(node.subject, names)
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")).lower()
        return any(word in name for word in _CHECKING) and _mentions(node, names)
    return False


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


_MAKERS = {"list": "list", "dict": "dict", "set": "set", "tuple": "tuple"}


def _is_one_of(wanted: Type, value: ast.expr) -> bool:
    """Tell whether a value surely is of a type; one that is computed may be anything, and so is not."""
    if wanted.kind in ("unknown", "any"):
        return True
    if wanted.kind == "union":
        return any(_is_one_of(choice, value) for choice in wanted.args)
    return (
        _is_member_of(wanted, value)
        if wanted.kind in ("str", "literal") and wanted.name
        else _is_literal_of(wanted, value)
    )


def _is_member_of(wanted: Type, value: ast.expr) -> bool:
    """True for a member of an Enum by its name: its words are none, and a text is no date."""
    is_attribute = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
    return is_attribute and wanted.kind == "literal" and ast.unparse(value.value) == wanted.name  # type: ignore[attr-defined]


def _is_literal_of(wanted: Type, value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand) and _is_one_of(wanted, value.operand)
    if isinstance(value, ast.Constant):
        return _is_constant_of(wanted, value.value)
    if isinstance(value, ast.Call):
        is_empty = not value.args and not value.keywords
        return (
            is_empty and isinstance(value.func, ast.Name) and _MAKERS.get(value.func.id) == (wanted.name or wanted.kind)
        )
    return _is_display_of(wanted, value)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def _is_constant_of(wanted: Type, value: object) -> bool:
    if wanted.kind == "literal":
        return any(value == choice and type(value) is type(choice) for choice in wanted.values)
    if value is None:
        return wanted.kind == "null"
    return type(value).__name__ == wanted.kind or (wanted.kind == "float" and type(value) is int)


def _is_display_of(wanted: Type, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        keys, values = wanted.args if len(wanted.args) == 2 else (UNKNOWN, UNKNOWN)
        are_keys = all(key is not None and _is_one_of(keys, key) for key in value.keys)
        return wanted.kind == "dict" and are_keys and all(_is_one_of(values, item) for item in value.values)
    if isinstance(value, ast.List | ast.Set):
        item = wanted.args[0] if wanted.args else UNKNOWN
        kind = "list" if isinstance(value, ast.List) else "set"
        return (wanted.name or wanted.kind) == kind and all(_is_one_of(item, each) for each in value.elts)
    if wanted.kind == "list" and wanted.name:  # a tuple of any length
        return isinstance(value, ast.Tuple) and all(_is_one_of(wanted.args[0], each) for each in value.elts)
    return isinstance(value, ast.Tuple) and wanted.kind == "tuple" and (not value.elts or not wanted.args)


_BUILTIN_TYPES = frozenset(
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
    elif default is not None and not _is_one_of(_type(finding, evidence), default):
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
    _, value = entries(display).get(name, (None, None))
    if not isinstance(value, ast.Name | ast.Subscript | ast.BinOp) or not _is_type(value):
        raise Refused("the schema does not spell a type")
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    _refuse_hidden_names(symbol, names & _BUILTIN_TYPES, names - _BUILTIN_TYPES)
    return " ".join(symbol.text.of(value).split())


def _is_type(value: ast.expr) -> bool:
    """Names, subscripts, `|`, None and literals within; no calls, no displays."""
    plain = (ast.Name, ast.Subscript, ast.BinOp, ast.Constant, ast.Tuple, ast.Attribute, ast.BitOr, ast.expr_context)
    return all(isinstance(node, plain) for node in ast.walk(value)) and "NotRequired" not in ast.dump(value)


def _refuse_hidden_names(symbol: Symbol, builtins: set[str], others: set[str] | frozenset[str] = frozenset()) -> None:
    """Give up when the class or a type parameter, or for builtins the module, gives one of the names another meaning."""
    in_class = symbol.type_parameters | (_bound_by(symbol.owner.body) if symbol.owner else set())
    stored = stored_names(symbol.text.tree)
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
            names |= stored_names(statement)
    return names


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


_BUILTIN = frozenset(dir(builtins))
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
_CALLS = {"exit", "quit", "_exit", "abort", "parse_args", "parse_known_args"}
_RAISED = {"SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "BaseException", "BaseExceptionGroup"}
_ENDING = frozenset(_CALLS | _RAISED)


def make_default_in_body(finding: Finding, evidence: Evidence) -> Fix:
    """GB301: `items=[]` becomes `items=None`, and `[]` is made in the body."""
    name = finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    argument, default = next((pair for pair in defaulted(symbol.function) if pair[0].arg == name), (None, None))
    if argument is None or default is None or default.lineno != default.end_lineno:
        raise Refused("the default is not written on one line")
    seen = how_seen(name, default, symbol.function)
    is_called = any(Wiring(evidence).callers(finding.agent, symbol.function.name))
    if seen == "as memory" or (seen == "as text" and is_called):
        raise Refused("somebody may rely on what is shared")
    _refuse_handlers(symbol, evidence)
    _refuse_names_of_the_class(symbol, default)
    if argument.annotation is not None:
        _allow_none(symbol, argument.annotation)
    symbol.replace_node(default, "None")
    symbol.insert_first([f"if {name} is None:", f"\t{name} = {symbol.text.of(default)}"])
    return Fix(
        title=f"Make the default of {name!r} anew in each call of {symbol.target}",
        intent="fix_default",
        changes=(symbol.change(),),
        is_safe=seen == "never",
    )


def _refuse_handlers(symbol: Symbol, evidence: Evidence) -> None:
    is_handler = any(
        subscription.method == symbol.function.name and subscription.span.path == symbol.text.source.path
        for definition in evidence.definitions
        for subscription in definition.subscriptions
    )
    if is_handler:
        raise Refused("the signature decides how the handler is called")


def _refuse_names_of_the_class(symbol: Symbol, default: ast.expr) -> None:
    """What the class body binds can be named in a default, but not in a method."""
    body = symbol.owner.body if symbol.owner else []
    bound = stored_names(*body) | {getattr(statement, "name", "") for statement in body}
    own = {argument.arg for argument in ast.walk(symbol.function) if isinstance(argument, ast.arg)}
    own |= stored_names(symbol.function)
    if any(isinstance(node, ast.Name) and node.id in bound | own for node in ast.walk(default)):
        raise Refused("the default names something that the body does not see")


def _allow_none(symbol: Symbol, annotation: ast.expr) -> None:
    written = symbol.text.of(annotation)
    if any(word in written for word in ("None", "Optional", "Any", "object")):
        return
    if isinstance(annotation, ast.Constant):
        if not isinstance(annotation.value, str) or f"{written[0]}{annotation.value}{written[0]}" != written:
            raise Refused("the annotation is no plain text")
        symbol.replace_text(annotation, annotation.value, f"{annotation.value} | None")
    else:
        symbol.insert(symbol.text.end(annotation), " | None")


def catch_exceptions_only(finding: Finding, evidence: Evidence) -> Fix:
    """GB302: `except:` becomes `except Exception:`."""
    symbol = Symbol.at(evidence, finding.span)
    start = symbol.text.offset(finding.span.line, finding.span.column)
    if symbol.text.utf8[start : start + 6] != b"except":
        raise Refused("the place holds no except")
    if any(_binds_exception(node) for node in ast.walk(symbol.text.tree)):
        raise Refused("Exception means something else here")
    _refuse_if_more_is_caught_on_purpose(symbol, (finding.span.line, finding.span.column))
    symbol.insert(start + 6, " Exception")
    return Fix(
        title=f"Let {symbol.target} catch exceptions only",
        intent="narrow_except",
        changes=(symbol.change(),),
    )


def _refuse_if_more_is_caught_on_purpose(symbol: Symbol, place: tuple[int, int]) -> None:
    """Give up where what is tried ends the process, parses a command line, or can be closed or cancelled."""
    for node in ast.walk(symbol.node):
        if isinstance(node, ast.Try) and any(_place(clause) == place for clause in node.handlers):
            tried = [inner for statement in node.body for inner in ast.walk(statement)]
            if any(isinstance(inner, _SUSPENDING) or _words(inner) & _ENDING for inner in tried):
                raise Refused("what is caught is no Exception")


def _place(clause: ast.ExceptHandler) -> tuple[int, int]:
    return clause.lineno, clause.col_offset


def _words(node: ast.AST) -> set[str]:
    return {getattr(node, "id", ""), getattr(node, "attr", "")}


def _binds_exception(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "Exception" and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.alias):
        return "Exception" in (node.asname or node.name, "" if node.name != "*" else "Exception")
    return "Exception" in (getattr(node, "arg", ""), getattr(node, "name", ""))


def add_guard(finding: Finding, evidence: Evidence) -> Fix:
    """GB210: refuse arguments of another type than the schema declares."""
    symbol = Symbol.at(evidence, finding.span)
    if stored_names(symbol.text.tree) & {"isinstance", "TypeError", "type", *_kinds(finding).values()}:
        raise Refused("a name of the guard means something else here")
    optional = {argument.arg for argument, default in defaulted(symbol.function)}
    lines: list[str] = []
    for name, kind in _kinds(finding).items():
        wanted = "(int, float)" if kind == "float" else kind
        condition = f"not isinstance({name}, {wanted})"
        lines += [
            f"if {name} is not None and {condition}:" if name in optional else f"if {condition}:",
            f'\traise TypeError(f"{name} must be {kind}, not {{type({name}).__name__}}")',
        ]
    symbol.insert_first(lines)
    return Fix(
        title=f"Validate the input of {symbol.target}",
        intent="add_validation",
        changes=(symbol.change(),),
        affects=others(Wiring(evidence).neighbours(finding.agent), finding.agent),
    )


def _kinds(finding: Finding) -> dict[str, str]:
    """Parameter -> the name of its type."""
    pairs = (item.partition(":") for item in finding.data["kinds"].split(","))
    return {name: kind for name, _, kind in pairs}
