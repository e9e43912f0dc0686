"""Findings -> changes that mend them: edits of single tokens, everything between them stays byte for byte.

    finding --> mender --> TokenEdits --> Fix

A fix is made only where one clear edit surely does it, or the same edit at all ends of a name; everywhere else the finding keeps
its hint. `renames` has the menders that give one name to two ends, this module all others.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable

from graphbus_core.compiler.graph import components
from graphbus_core.compiler.reading.modules import Bindings
from graphbus_core.compiler.reading.syntax import type_parameters
from graphbus_core.compiler.rules.bodies import defaulted
from graphbus_core.compiler.rules.renames import (
    REFLECTING,
    giving_place,
    is_read,
    key_of,
    parameter_of,
    rename_entries,
    rename_handed_over,
    rename_key,
    rename_key_of_result,
    rename_key_returned,
    rename_key_sent,
    rename_literal,
    rename_requested,
    rename_to_field,
    rename_topic,
    schema_display,
)
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Function, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import ProjectFacts, last_name
from graphbus_core.errors import BuildError
from graphbus_core.model.findings import NEW_DEPENDS_ON, Finding, Fix
from graphbus_core.model.proposals import CodeChange

_BUILTIN = frozenset({*dir(builtins), "Any"})


def make_fix(findings: Iterable[Finding], project: ProjectFacts, *, is_narrow: bool = False) -> Fix | None:
    """Make one change for all of the findings, or None when it cannot be made with certainty.

    Args:
        findings: At least one; several must be of one agent.
        project: The project.
        is_narrow: Change as few files as possible, although the same is wrong in others.
    """
    edits = TokenEdits(project, is_narrow=is_narrow)
    first, *others = findings
    try:
        mender = _give_as_well if "missing" in first.data else MENDERS[first.code]
        remedy = mender(first, edits)
        more = [MENDERS[finding.code](finding, edits) for finding in others]
        changes = edits.changes()
    except (Refused, BuildError):  # a file that cannot be read may hold anything
        return None
    names = {related.agent for related in first.related} | {*remedy.affected} | _owners(changes, project)
    return Fix(
        title=f"Annotate the parameters and the result{edits.where}" if more else remedy.title,
        intent=remedy.intent,
        changes=changes,
        is_safe=all(each.is_safe for each in (remedy, *more)),
        affects=tuple(sorted(names - {"", first.agent})),
    )


def _owners(changes: Iterable[CodeChange], project: ProjectFacts) -> set[str]:
    """Give the agents whose class is changed; all of a file for what is a base class or stands in none."""
    owners: set[str] = set()
    for change in changes:
        own, name = project.editable[change.file_path], change.target.partition(".")[0]
        is_import = change.operation == "add_import"
        owners.update([name] if name in own else () if is_import else own)
    return owners


def _declare_parameter(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB102: declare the parameter in the input schema."""
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    annotation = parameter_of(symbol.function, name).annotation
    if isinstance(annotation, ast.Constant) or (annotation and type_parameters(symbol.function) & _names(annotation)):
        raise Refused("the decorator does not know the type")
    entry = f'"{name}": {symbol.text_of(annotation) if annotation else "object"}'
    display = schema_display(symbol.function)
    if display.values:
        symbol.insert_behind(display.values[-1], f", {entry}")
    else:
        symbol.insert_behind(display, entry, length=1)
    neighbours = edits.wiring.neighbours(finding.agent)
    return Remedy(f"Declare {name!r} in the input_schema of {symbol.target}", "align_schema", neighbours)


def _names(expression: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


# --- annotations --------------------------------------------------------------------------------


def _annotate_parameter(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB201: write the type as the schema spells it; of defaults, only None and constants of this very type fit."""
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    display = schema_display(symbol.function)
    pairs = zip(display.keys, display.values, strict=True)
    value = take_single([value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name])
    if not isinstance(value, ast.Name | ast.Subscript | ast.BinOp) or "NotRequired" in ast.dump(value):
        raise Refused("the schema does not spell a type")
    _refuse_hidden(symbol, _names(value))
    kind = " ".join(symbol.text_of(value).split())
    default = next((each for argument, each in defaulted(symbol.function) if argument.arg == name), None)
    if isinstance(default, ast.Constant) and default.value is None:
        kind += "" if "None" in kind else " | None"
    elif default is not None and (not isinstance(default, ast.Constant) or type(default.value).__name__ != kind):
        raise Refused("the default may be of another type")
    symbol.annotate(parameter_of(symbol.function, name), kind, default)
    title = f"Annotate {name!r} of {symbol.target} with {kind}"
    return Remedy(title, "add_annotation", is_safe=True)


def _annotate_result(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB202: write `-> dict[str, Any]` behind the parameters, and import Any."""
    symbol = edits.at(finding.span)
    symbol.insert_result(" -> dict[str, Any]")
    _refuse_hidden(symbol, {"dict", "str"})
    edits.add_import(symbol, "typing", "Any")
    title = f"Annotate the result of {symbol.function.name} with dict[str, Any]"
    return Remedy(title, "add_annotation", is_safe=True)


def _refuse_hidden(symbol: EditedSymbol, names: set[str]) -> None:
    """Give up where a name that is to be written means something else: in the class, or for a builtin in the module."""
    hidden = type_parameters(symbol.node)
    if isinstance(symbol.owner, ast.ClassDef):
        hidden |= type_parameters(symbol.owner) | _bound(symbol.owner.body)
    if names & hidden or names & _BUILTIN & _bound(symbol.tree.body):
        raise Refused("a name means something else here")


def _bound(body: Iterable[ast.stmt]) -> frozenset[str]:
    bindings = Bindings(body)
    return frozenset({*bindings.first, *bindings.rebound}) | (_BUILTIN if bindings.stars else frozenset())


# --- bodies -------------------------------------------------------------------------------------

_ADDING = frozenset({"add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update"})
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
_ENDING = frozenset(
    {
        *("exit", "quit", "_exit", "abort", "parse_args", "parse_known_args", "SystemExit", "KeyboardInterrupt"),
        *("GeneratorExit", "CancelledError", "BaseException", "BaseExceptionGroup"),
    }
)


def _make_default_in_body(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB301: `items=[]` becomes `items=None`, and `[]` is made in the body; a safe fix where nothing ever looks at the value."""
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    default = {argument.arg: default for argument, default in defaulted(symbol.function)}[name]
    added, looks = _uses(name, default, symbol.function)
    is_called = bool(edits.wiring.callers(finding.agent, symbol.function.name))
    if not _is_constant(default) or (looks and (is_called or not _is_joined(name, added, looks, symbol.function))):
        raise Refused("somebody may rely on what is shared")
    heard = (each for definition in edits.project.definitions for each in definition.subscriptions)
    if any((each.method, each.span.path) == (symbol.function.name, finding.span.path) for each in heard):
        raise Refused("the signature decides how the handler is called")
    _refuse_hidden(symbol, _names(default))
    annotation = parameter_of(symbol.function, name).annotation
    written = symbol.text_of(annotation) if annotation else "None"
    if isinstance(annotation, ast.Constant):
        raise Refused("the annotation is written as text")
    if annotation and not any(word in written for word in ("None", "Optional", "Any", "object")):
        symbol.insert_behind(annotation, " | None")
    symbol.insert_first([f"if {name} is None:", f"\t{name} = {symbol.text_of(default)}"])
    symbol.replace(default, "None")
    title = f"Make the default of {name!r} anew in each call of {symbol.target}"
    return Remedy(title, "fix_default", is_safe=not looks)


def _is_constant(default: ast.expr) -> bool:
    """True for a value that is the same whenever and wherever it is made."""
    try:
        ast.literal_eval(default)
    except ValueError:
        is_bare = isinstance(default, ast.Call) and not default.args and not default.keywords
        return is_bare and ast.unparse(default) in ("list()", "dict()", "set()")
    return default.lineno == default.end_lineno


def _uses(name: str, default: ast.expr, function: Function) -> tuple[list[ast.stmt], list[ast.Name]]:
    """Give the statements that add to the value without a look at what is in it, and the other uses of the name."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    adding: dict[ast.AST, ast.stmt] = {}
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            adding[node.target] = node
        elif isinstance(node, ast.Assign) and isinstance(default, ast.Dict):
            adding |= {target.value: node for target in node.targets if isinstance(target, ast.Subscript)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr in _ADDING:
                adding[called.value] = node
    names = [node for node in nodes if isinstance(node, ast.Name)]
    mine = [node for node in names if node.id == name]
    looks = [node for node in mine if node not in adding] + [node for node in names if node.id in REFLECTING]
    return [adding[node] for node in mine if node in adding], looks


def _is_joined(name: str, added: list[ast.stmt], looks: list[ast.Name], function: Function) -> bool:
    """True when every call adds the same constants first, and only a text is made of the value: surely no memory."""
    first = next((statement for statement in function.body if statement in added), None)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) == "join"]
    parts = [part for call in calls for part in call.args]
    parts += [each for part in parts if isinstance(part, ast.List | ast.Tuple) for each in part.elts]
    joined = [part.value if isinstance(part, ast.Starred) else part for part in parts]
    is_behind = first is not None and all(look.lineno > (first.end_lineno or 0) and look in joined for look in looks)
    return is_behind and all(_names(statement) == {name} for statement in added)


def _catch_exceptions_only(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB302: `except:` becomes `except Exception:`, unless what is tried ends the process, or can be closed or cancelled."""
    symbol = edits.at(finding.span)
    clause = next(node for node in symbol.nodes_at(finding.span) if isinstance(node, ast.ExceptHandler))
    tries = (node for node in ast.walk(symbol.node) if isinstance(node, ast.Try) and clause in node.handlers)
    for node in (inner for each in tries for statement in each.body for inner in ast.walk(statement)):
        if isinstance(node, _SUSPENDING) or (isinstance(node, ast.expr) and last_name(node) in _ENDING):
            raise Refused("what is caught is no Exception")
    _refuse_hidden(symbol, {"Exception"})
    symbol.insert_behind(clause, " Exception", length=len("except"))
    return Remedy(f"Let {symbol.target} catch exceptions only", "narrow_except")


def _add_guard(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB210: refuse arguments of another type than the schema declares."""
    symbol = edits.at(finding.span)
    kinds = [item.partition(":")[::2] for item in finding.data["kinds"].split(",")]
    _refuse_hidden(symbol, {"isinstance", "TypeError", "type", *(kind for _, kind in kinds)})
    optional = {argument.arg for argument, _ in defaulted(symbol.function)}
    lines: list[str] = []
    for name, kind in kinds:
        wanted = "(int, float)" if kind == "float" else kind
        condition = f"not isinstance({name}, {wanted})"
        lines += [
            f"if {name} is not None and {condition}:" if name in optional else f"if {condition}:",
            f'\traise TypeError(f"{name} must be {kind}, not {{type({name}).__name__}}")',
        ]
    symbol.insert_first(lines)
    neighbours = edits.wiring.neighbours(finding.agent)
    return Remedy(f"Validate the input of {symbol.target}", "add_validation", neighbours)


# --- what is missing ----------------------------------------------------------------------------


def _connect(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB010: name the agent that is meant, and declare that it is depended on."""
    old, new = finding.data.get("old", ""), finding.data["new"]
    agents = edits.wiring.agents
    agent = agents[finding.agent]
    is_meant = not old and any(each.name not in agents for each in agent.dependencies)
    needs = {name: {each.name for each in one.dependencies} & agents.keys() for name, one in agents.items()}
    needs[agent.name] |= {new}
    if is_meant or any({agent.name, new} <= {*group} for group in components(needs)):
        raise Refused("the dependencies would form a circle, or another one is misnamed")
    misnamed = [each.span for each in agent.dependencies if each.name == old]
    for span in (*misnamed, *(call.span for call in agent.calls if old and call.agent == old)):
        rename_literal(edits, span, old, new)
    is_missing = not misnamed and new not in {each.name for each in agent.dependencies}
    is_decorated = _depend(new, edits.at(agent.name_span), edits) if is_missing else True
    title = f"Name {new!r} instead of {old!r}{edits.where}" if old else f"Declare that {agent.name} depends on {new}"
    return Remedy(title, "declare_dependency" if is_decorated else NEW_DEPENDS_ON, (new,), is_safe=True)


def _depend(name: str, symbol: EditedSymbol, edits: TokenEdits) -> bool:
    """Put a name into the `@depends_on` of a class, or such a decorator above it; tell whether one was there."""
    imports = [node for node in symbol.tree.body if isinstance(node, ast.ImportFrom)]
    is_imported = any((alias.asname or alias.name) == name for node in imports for alias in node.names)
    written = name if is_imported else f'"{name}"'
    for decorator in symbol.node.decorator_list if isinstance(symbol.node, ast.ClassDef) else ():
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "depends_on" and decorator.args:
            last = decorator.args[-1]
            listed = last.elts if isinstance(last, ast.List | ast.Tuple) else [last]
            symbol.insert_behind(take_single(listed[-1:]), f", {written}")
            return True
    edits.add_import(symbol, "graphbus_core", "depends_on")
    symbol.insert_line_above(f"@depends_on({written})")
    return False


def _give_as_well(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB003, GB004, GB103, GB110: send, pass or return what is wanted and stands there under another name."""
    name, (span, wanted) = finding.data["missing"], giving_place(finding, edits.wiring)
    symbol = edits.at(span)
    given = symbol.expression_at(span)
    keys, values = _given(given)
    odd = [(key, value) for key, value in zip(keys, values, strict=True) if key_of(key) not in wanted]
    same = [key for key, value in odd if any(name in _named(node) for node in ast.walk(value))]
    old = key_of(take_single(same))
    if finding.code == "GB103" and is_read(finding.data["method"], old, 1, edits.project):
        raise Refused("something may read the other key")
    rename_entries([(symbol, take_single(same))], old, name)
    return Remedy(f"Give {name!r} instead of {old!r}{edits.where}", "align_schema")


def _given(expression: ast.expr) -> tuple[list[ast.Constant | ast.keyword], list[ast.expr]]:
    """Give the keys and values of a display, or the arguments of a call, that are all written there."""
    keys: list[ast.Constant | ast.keyword] = []
    if isinstance(expression, ast.Dict):
        keys += [key for key in expression.keys if isinstance(key, ast.Constant)]
        values = expression.values
    elif isinstance(expression, ast.Call):
        keys += [keyword for keyword in expression.keywords if keyword.arg]
        values = [keyword.value for keyword in expression.keywords]
    if not keys or len(keys) != len(values):
        raise Refused("it is not known where to write it")
    return keys, values


def _named(node: ast.AST) -> tuple[object, ...]:
    """Give the names that a value has where it comes from: `total`, `order.total` and `order["total"]`."""
    return getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "value", None)


MENDERS: dict[str, Callable[[Finding, TokenEdits], Remedy]] = {
    "GB001": rename_topic,
    "GB003": rename_key,
    "GB004": rename_key_sent,
    "GB005": rename_requested,
    "GB010": _connect,
    "GB101": rename_to_field,
    "GB102": _declare_parameter,
    "GB103": rename_key_returned,
    "GB110": rename_handed_over,
    "GB111": rename_key_of_result,
    "GB201": _annotate_parameter,
    "GB202": _annotate_result,
    "GB210": _add_guard,
    "GB301": _make_default_in_body,
    "GB302": _catch_exceptions_only,
}
