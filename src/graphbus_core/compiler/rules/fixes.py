"""Findings -> changes that mend them: edits of single tokens, everything between them stays byte for byte.

    finding --> tiers of variants --> mender --> TokenEdits --> Fix, tried on the whole project

`make_fix` makes a change only where the code itself decides what was meant; everywhere else the finding keeps its hint.

    meant_names    which name is meant            meant_values   which value is meant
    renames        one name at all of its ends    misuse_fixes   what the rules GB310 to GB323 say
    entries        where a mapping is written     here           dependencies, schemas, annotations, bodies
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from graphbus_core.compiler.graph import components
from graphbus_core.compiler.reading.modules import Bindings
from graphbus_core.compiler.reading.syntax import parse_expression, type_parameters
from graphbus_core.compiler.rules import check, misuse_fixes
from graphbus_core.compiler.rules.bodies import defaulted
from graphbus_core.compiler.rules.meant_names import choose_names
from graphbus_core.compiler.rules.meant_values import (
    choose_fitting,
    choose_left_out,
    count_unknown,
    give_as_well,
    replace_value,
)
from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.renames import (
    REFLECTING,
    parameter_of,
    pass_one_by_one,
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

Mender = Callable[[Finding, TokenEdits], Remedy]
"""Makes the edits for a finding. It raises `Refused` where they cannot be made."""

_BUILTIN = frozenset({*dir(builtins), "Any"})


def make_fix(findings: Iterable[Finding], project: ProjectFacts, *, is_narrow: bool = False) -> Fix | None:
    """Make the one change that mends all of the findings; None when there is none, or several might be meant.

    What might be meant is tried in tiers, from the strongest evidence to the weakest. The first tier with a change that works
    decides; a change works when the project that it makes is checked and has lost the finding and got no other one. Of several
    the one is made that mends most. Changes that nobody else can notice are known to be right and are not tried.

    Args:
        findings: At least one; several must be of one agent.
        project: The project.
        is_narrow: Change as few files as possible, although the same is wrong in others.
    """
    first, *others = findings
    for tier in _tiers(first, TokenEdits(project)):
        made = [_make(mender, [variant, *others], TokenEdits(project, is_narrow=is_narrow)) for mender, variant in tier]
        distinct = {each.fix.changes: each for each in made if each}
        mended = [
            (each.fix, 1 if each.fix.is_safe else _count_mended(each, first, project)) for each in distinct.values()
        ]
        most = max((count for _, count in mended), default=0)
        best = [fix for fix, count in mended if count == most]
        if most:
            return best[0] if len(best) == 1 else None
    return None


class _Made(NamedTuple):
    """A change, and the bytes of the files after it."""

    fix: Fix
    files: dict[str, bytes]


def _tiers(finding: Finding, edits: TokenEdits) -> Iterator[list[tuple[Mender, Finding]]]:
    """Give what to try, the strongest evidence first."""
    menders = MENDERS.get(finding.code, ())
    if not _LACKING & finding.data.keys():
        yield from ([(mender, finding)] for mender in menders)
    for key, choose, chosen in _CHOOSING:
        if key in finding.data:
            with suppress(Refused, BuildError):
                yield from ([(chosen or menders[0], variant) for variant in tier] for tier in choose(finding, edits))


def _make(mender: Mender, findings: Sequence[Finding], edits: TokenEdits) -> _Made | None:
    first, *others = findings
    try:
        remedy = mender(first, edits)
        more = [MENDERS[finding.code][0](finding, edits) for finding in others]
        changes, files = edits.changes(), edits.files()
    except (Refused, BuildError):  # a file that cannot be read may hold anything
        return None
    names = {related.agent for related in first.related} | {*remedy.affected} | _owners(changes, edits.project)
    fix = Fix(
        title=f"Annotate the parameters and the result{edits.where}" if more else remedy.title,
        intent=remedy.intent,
        changes=changes,
        is_safe=all(each.is_safe for each in (remedy, *more)),
        affects=tuple(sorted(names - {"", first.agent})),
    )
    return _Made(fix, files)


def _count_mended(made: _Made, finding: Finding, before: ProjectFacts) -> int:
    """Count the findings that a change takes away: 0 if this one is not among them, or if another error or warning comes."""
    after = before.with_files(made.files)
    found = {each.key: each for each in check(after, has_text=False)}
    known = _keys_found(before)
    is_worse = any(each.severity != "info" for key, each in found.items() if key not in known)
    errors = {(error.code, str(error)) for error in before.errors}
    is_known = count_unknown(after.wiring) <= count_unknown(before.wiring)
    is_gone = finding.key not in found and not is_worse
    is_right = is_gone and is_known and {(one.code, str(one)) for one in after.errors} <= errors
    return max(1, len(known - found.keys())) if is_right else 0


_KEYS_FOUND: WeakKeyDictionary[ProjectFacts, frozenset[tuple[str, str, str]]] = WeakKeyDictionary()


def _keys_found(project: ProjectFacts) -> frozenset[tuple[str, str, str]]:
    """Give the keys of all findings of a project, once for each project."""
    if project not in _KEYS_FOUND:
        _KEYS_FOUND[project] = frozenset(each.key for each in check(project, has_text=False))
    return _KEYS_FOUND[project]


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


def _choose_side(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Give both ways to end a contradiction between a schema and an annotation: what others give decides."""
    yield [replace(finding, data=finding.data | {"right": side}) for side in ("schema", "annotation")]


def _agree_on_type(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB106: let the annotation say what the schema says, or the other way round."""
    name, symbol = finding.data["contradicted"], edits.at(finding.span)
    declared, annotation = _declared_type(symbol, name)
    if finding.data["right"] == "schema":
        symbol.replace(annotation, symbol.text_of(declared))
        return Remedy(f"Annotate {name!r} of {symbol.target} like its schema", "align_schema")
    symbol.replace(declared, symbol.text_of(annotation))
    title = f"Declare {name!r} of {symbol.target} like its annotation"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def _declared_type(symbol: EditedSymbol, name: str) -> tuple[ast.expr, ast.expr]:
    display, annotation = schema_display(symbol.function), parameter_of(symbol.function, name).annotation
    pairs = zip(display.keys, display.values, strict=True)
    declared = take_single([value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name])
    if annotation is None or "NotRequired" in ast.dump(declared):
        raise Refused("one of the two is not written")
    return declared, annotation


def _annotate_as_promised(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: annotate a parameter with the type that is declared for it, unless the body may rely on the other one."""
    symbol, kind = edits.at(finding.span), finding.data["annotation"]
    payload = parameter_of(symbol.function, finding.data["parameter"])
    above = {child: node for node in ast.walk(symbol.node) for child in ast.iter_child_nodes(node)}
    uses = [node for node in above if isinstance(node, ast.Name) and node.id == payload.arg]
    is_vaguer = payload.annotation is not None and "[" in symbol.text_of(payload.annotation) and "[" not in kind
    if (
        payload.annotation is None
        or is_vaguer
        or not all(isinstance(above[use], ast.Call | ast.FormattedValue) for use in uses)
    ):
        raise Refused("the body may rely on the other type")
    _refuse_hidden(symbol, _names(parse_expression(kind)))
    symbol.replace(payload.annotation, kind)
    return Remedy(f"Annotate {payload.arg!r} of {symbol.target} with {kind}", "align_schema")


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
    unknown = [each for each in agent.dependencies if each.name not in agents and not old]
    undeclared = {call.agent for call in agent.calls} - {each.name for each in agent.dependencies} - {agent.name, ""}
    is_other = len(unknown) == 1 and undeclared == {new} and not near_match(unknown[0].name, agents)
    needs = {name: {each.name for each in one.dependencies} & agents.keys() for name, one in agents.items()}
    needs[agent.name] |= {new}
    if (unknown and not is_other) or any({agent.name, new} <= {*group} for group in components(needs)):
        raise Refused("the dependencies would form a circle, or another one is misnamed")
    if is_other:
        symbol = edits.at(unknown[0].span)
        symbol.replace(symbol.expression_at(unknown[0].span), f'"{new}"')
        return Remedy(f"Depend on {new!r} instead of {unknown[0].name!r}", "declare_dependency", (new,), is_safe=True)
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


_CHOOSING: tuple[tuple[str, Callable[[Finding, TokenEdits], Iterator[list[Finding]]], Mender | None], ...] = (
    ("missing", choose_left_out, give_as_well),
    ("choices", choose_names, None),
    ("unfit", choose_fitting, replace_value),
    ("contradicted", _choose_side, _agree_on_type),
    ("annotation", lambda finding, _: iter([[finding]]), _annotate_as_promised),
)
"""What the data of a finding says, who chooses what is meant, and who makes the edits if not the mender of the rule."""

_LACKING = frozenset(key for key, _, _ in _CHOOSING)

MENDERS: dict[str, tuple[Mender, ...]] = {
    "GB001": (rename_topic,),
    "GB003": (rename_key,),
    "GB004": (rename_key_sent,),
    "GB005": (rename_requested,),
    "GB010": (_connect,),
    "GB101": (rename_to_field,),
    "GB102": (_declare_parameter,),
    "GB103": (rename_key_returned,),
    "GB106": (_agree_on_type,),
    "GB110": (rename_handed_over, pass_one_by_one),
    "GB111": (rename_key_of_result,),
    "GB201": (_annotate_parameter,),
    "GB202": (_annotate_result,),
    "GB210": (_add_guard,),
    "GB301": (_make_default_in_body,),
    "GB302": (_catch_exceptions_only,),
    "GB310": (misuse_fixes.use_correctly,),
    "GB312": (misuse_fixes.name_topic,),
    "GB313": (misuse_fixes.unpack_topics,),
    "GB314": (misuse_fixes.await_answer,),
    "GB315": (misuse_fixes.make_without_arguments,),
    "GB316": (misuse_fixes.start_later,),
    "GB317": (misuse_fixes.order_decorators,),
    "GB318": (misuse_fixes.decorate_override,),
    "GB321": (misuse_fixes.take_fields_alone,),
    "GB323": (misuse_fixes.import_class,),
}
