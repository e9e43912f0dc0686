"""Turns findings into changes that fix them. A change edits single tokens; everything between them stays byte for byte.

    finding --> tiers of variants --> fixer --> TokenEdits --> Fix, tried on the whole project

A variant is a copy of the finding with the name or value to use in `data`. A tier holds variants with equally strong evidence.
`make_fix` makes a change only if the code itself shows which one is right; otherwise the finding only has its hint.

    name_choices   which name to use              value_fixes    values that are missing or have another type
    renames        one name at all of its ends    misuse_fixes   fixes for GB310 to GB324
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
from graphbus_core.compiler.rules import check, misuse_fixes, renames, value_fixes
from graphbus_core.compiler.rules.bodies import parameters_with_defaults
from graphbus_core.compiler.rules.name_choices import choose_names
from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Function, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import ProjectFacts, last_name
from graphbus_core.errors import BuildError
from graphbus_core.model.findings import NEW_DEPENDS_ON, Finding, Fix
from graphbus_core.model.proposals import CodeChange

Fixer = Callable[[Finding, TokenEdits], Remedy]
"""A function that makes the edits for a finding. It raises `Refused` if they cannot be made with certainty."""

_BUILTIN = frozenset({*dir(builtins), "Any"})


def make_fix(findings: Iterable[Finding], project: ProjectFacts, *, is_narrow: bool = False) -> Fix | None:
    """Return the change that fixes all of the findings; None if no change works, or if several work equally well.

    The tiers are tried from the strongest evidence to the weakest, and the first one with a change that works decides. A change
    works if a check of the changed project has neither the first finding nor new errors or warnings. If several work, the one
    that removes the most findings is returned. Safe fixes in agents are not checked: they are right by construction.

    Args:
        findings: The finding to fix, and perhaps missing annotations in the same method, which the same change is to fix.
        project: The project.
        is_narrow: Change as few files as possible, even if other files have the same error.
    """
    first, *others = findings
    for tier in _find_tiers_to_try(first, TokenEdits(project)):
        pairs = ((fixer, [variant, *others]) for fixer, variant in tier)
        tried = [_make_change(fixer, found, TokenEdits(project, is_narrow=is_narrow)) for fixer, found in pairs]
        distinct = {each.fix.changes: each for each in tried if each}
        # how many findings each change removes: 0 for one that does not work
        fixed = [
            (each.fix, 1 if each.fix.is_safe and first.agent else _count_fixed(each, first, project))
            for each in distinct.values()
        ]
        most = max((count for _, count in fixed), default=0)
        best = [fix for fix, count in fixed if count == most]
        if most:
            return best[0] if len(best) == 1 else None
    return None


class _TriedFix(NamedTuple):
    """A fix, and path -> the bytes of each file that it changes."""

    fix: Fix
    files: dict[str, bytes]


def _find_tiers_to_try(finding: Finding, edits: TokenEdits) -> Iterator[list[tuple[Fixer, Finding]]]:
    """Yield tiers of pairs to try, a fixer and the variant of the finding for it; the strongest evidence comes first."""
    fixers = FIXERS.get(finding.code, ())
    if not _KEYS_TO_CHOOSE & finding.data.keys():  # the finding itself says what to write
        yield from ([(fixer, finding)] for fixer in fixers)
    for key, choose, variant_fixer in _CHOOSING:
        if key in finding.data:
            with suppress(Refused, BuildError):
                yield from (
                    [(variant_fixer or fixers[0], variant) for variant in tier] for tier in choose(finding, edits)
                )


def _make_change(fixer: Fixer, findings: Sequence[Finding], edits: TokenEdits) -> _TriedFix | None:
    """Return one fix for the first finding and for the other ones, which are missing annotations; None if an edit is refused."""
    first, *others = findings
    try:
        remedy = fixer(first, edits)
        more = [FIXERS[finding.code][0](finding, edits) for finding in others]
        changes, files = edits.changes(in_any_file=remedy.is_safe and not first.agent), edits.files()
    except (Refused, BuildError):
        return None
    names = {each.agent for each in first.related} | {*remedy.affected} | _find_changed_agents(changes, edits.project)
    fix = Fix(
        title=f"Annotate the parameters and the result{edits.where}" if more else remedy.title,
        intent=remedy.intent,
        changes=changes,
        is_safe=all(each.is_safe for each in (remedy, *more)),
        affects=tuple(sorted(names - {"", first.agent})),
    )
    return _TriedFix(fix, files)


def _count_fixed(tried: _TriedFix, finding: Finding, before: ProjectFacts) -> int:
    """Return how many findings a change removes; 0 if `finding` remains, or if new errors, warnings or unknown types appear."""
    after = before.with_files(tried.files)
    found = {each.key: each for each in check(after, has_text=False)}  # makes no fixes, so it does not recurse
    known = _find_keys_of_findings(before)
    is_worse = any(each.severity != "info" for key, each in found.items() if key not in known)
    errors = {(error.code, str(error)) for error in before.errors}
    counts = zip(value_fixes.count_unknown(after.wiring), value_fixes.count_unknown(before.wiring), strict=True)
    are_types_known = all(count <= count_before for count, count_before in counts)
    is_gone = finding.key not in found and not is_worse
    is_right = is_gone and are_types_known and {(one.code, str(one)) for one in after.errors} <= errors
    return max(1, len(known - found.keys())) if is_right else 0


_KEYS_FOUND: WeakKeyDictionary[ProjectFacts, frozenset[tuple[str, str, str]]] = WeakKeyDictionary()


def _find_keys_of_findings(project: ProjectFacts) -> frozenset[tuple[str, str, str]]:
    """Return the keys of all findings of a project; cached by project."""
    if project not in _KEYS_FOUND:
        _KEYS_FOUND[project] = frozenset(each.key for each in check(project, has_text=False))
    return _KEYS_FOUND[project]


def _find_changed_agents(changes: Iterable[CodeChange], project: ProjectFacts) -> set[str]:
    """Return the agents whose class is changed; any other change, except an import, counts for all agents of its file."""
    owners: set[str] = set()
    for change in changes:
        own, name = project.editable.get(change.file_path, ()), change.target.partition(".")[0]
        is_import = change.operation == "add_import"
        owners.update([name] if name in own else () if is_import else own)
    return owners


def _declare_parameter(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB102: declare the parameter in the input schema with its annotation, or as `object` if it has none.

    Refused if the annotation is a string or has a type parameter of the method, which the decorator does not know.
    """
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    annotation = renames.parameter_of(symbol.function, name).annotation
    if isinstance(annotation, ast.Constant) or (
        annotation and type_parameters(symbol.function) & _names_in(annotation)
    ):
        raise Refused("the decorator does not know the type")
    entry = f'"{name}": {symbol.text_of(annotation) if annotation else "object"}'
    display = renames.schema_display(symbol.function)
    if display.values:
        symbol.insert_after(display.values[-1], f", {entry}")
    else:
        symbol.insert_after(display, entry, length=1)
    neighbours = edits.wiring.neighbours(finding.agent)
    return Remedy(f"Declare {name!r} in the input_schema of {symbol.target}", "align_schema", neighbours)


def _names_in(expression: ast.AST) -> set[str]:
    """Return the names in a node, without those of attributes."""
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


# --- annotations --------------------------------------------------------------------------------


def _annotate_parameter(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB201: annotate a parameter with the type as the schema writes it; refused if its default is of another type."""
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    display = renames.schema_display(symbol.function)
    pairs = zip(display.keys, display.values, strict=True)
    value = take_single([value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name])
    if not isinstance(value, ast.Name | ast.Subscript | ast.BinOp) or "NotRequired" in ast.dump(value):
        raise Refused("the schema does not name a type")
    _refuse_shadowed(symbol, _names_in(value))
    kind = " ".join(symbol.text_of(value).split())
    default = next((each for argument, each in parameters_with_defaults(symbol.function) if argument.arg == name), None)
    if isinstance(default, ast.Constant) and default.value is None:
        kind += "" if "None" in kind else " | None"
    elif default is not None and (not isinstance(default, ast.Constant) or type(default.value).__name__ != kind):
        raise Refused("the default may be of another type")
    symbol.annotate(renames.parameter_of(symbol.function, name), kind, default)
    title = f"Annotate {name!r} of {symbol.target} with {kind}"
    return Remedy(title, "add_annotation", is_safe=True)


def _annotate_result(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB202: add `-> dict[str, Any]` after the parameters, and import Any if the file does not."""
    symbol = edits.at(finding.span)
    symbol.insert_return_annotation(" -> dict[str, Any]")
    _refuse_shadowed(symbol, {"dict", "str"})
    edits.add_import(symbol, "typing", "Any")
    title = f"Annotate the result of {symbol.function.name} with dict[str, Any]"
    return Remedy(title, "add_annotation", is_safe=True)


def _refuse_shadowed(symbol: EditedSymbol, names: set[str]) -> None:
    """Raise Refused if a name that the fix inserts is bound in the class, or is a builtin that the module binds."""
    shadowing = type_parameters(symbol.node)
    if isinstance(symbol.owner, ast.ClassDef):
        shadowing |= type_parameters(symbol.owner) | _names_bound_in(symbol.owner.body)
    if names & shadowing or names & _BUILTIN & _names_bound_in(symbol.tree.body):
        raise Refused("a name means something else here")


def _names_bound_in(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Return the names that statements bind. A star import may bind any builtin, so it adds them all."""
    bindings = Bindings(body)
    return frozenset({*bindings.first, *bindings.rebound}) | (_BUILTIN if bindings.stars else frozenset())


def _return_mapping(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB104: return a dict that has the returned value under the only key of the output schema."""
    symbol, key = edits.at(finding.span), finding.data["key"]
    value = symbol.expression_at(finding.span)
    symbol.replace(value, f'{{"{key}": {symbol.text_of(value)}}}')
    return Remedy(f"Return the result as {key!r}{edits.where}", "align_schema")


def _choose_type_to_keep(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Yield one tier with two variants: keep the schema's type, or the annotation's. A wrong choice leads to other findings."""
    yield [replace(finding, data=finding.data | {"right": side}) for side in ("schema", "annotation")]


def _copy_type(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB106: copy the type of the schema to the annotation of the parameter, or the reverse, as `right` in the data says."""
    name, symbol = finding.data["contradicted"], edits.at(finding.span)
    declared, annotation = _declared_type_and_annotation(symbol, name)
    if finding.data["right"] == "schema":
        symbol.replace(annotation, symbol.text_of(declared))
        return Remedy(f"Annotate {name!r} of {symbol.target} like its schema", "align_schema")
    symbol.replace(declared, symbol.text_of(annotation))
    title = f"Declare {name!r} of {symbol.target} like its annotation"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def _declared_type_and_annotation(symbol: EditedSymbol, name: str) -> tuple[ast.expr, ast.expr]:
    """Return the type of a field in the schema, and the annotation of the field's parameter; Refused if either is missing."""
    display, annotation = (
        renames.schema_display(symbol.function),
        renames.parameter_of(symbol.function, name).annotation,
    )
    pairs = zip(display.keys, display.values, strict=True)
    declared = take_single([value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name])
    if annotation is None or "NotRequired" in ast.dump(declared):
        raise Refused("one of the two is not written")
    return declared, annotation


def _annotate_as_declared(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: annotate a parameter, or a field of the handler's own record, with the type that publishers declare.

    Refused if the body uses the parameter for more than arguments of calls and f-strings, or if the new type is less precise.
    """
    symbol, kind = edits.at(finding.span), finding.data["annotation"]
    if finding.data.get("record"):
        return _annotate_field(finding, symbol, edits)
    payload = renames.parameter_of(symbol.function, finding.data["parameter"])
    above = {child: node for node in ast.walk(symbol.node) for child in ast.iter_child_nodes(node)}
    uses = [node for node in above if isinstance(node, ast.Name) and node.id == payload.arg]
    is_less_precise = payload.annotation is not None and symbol.text_of(payload.annotation).startswith(f"{kind}[")
    if (
        payload.annotation is None
        or is_less_precise
        or not all(isinstance(above[use], ast.Call | ast.FormattedValue) for use in uses)
    ):
        raise Refused("the body may rely on the other type")
    _refuse_shadowed(symbol, _names_in(parse_expression(kind)))
    symbol.replace(payload.annotation, kind)
    return Remedy(f"Annotate {payload.arg!r} of {symbol.target} with {kind}", "align_schema")


def _annotate_field(finding: Finding, symbol: EditedSymbol, edits: TokenEdits) -> Remedy:
    """Annotate a field of the handler's payload class as publishers declare it; Refused if the class is not in the file."""
    records = [each for each in symbol.tree.body if getattr(each, "name", "") == finding.data["record"]]
    fields = [each for each in ast.walk(take_single(records)) if isinstance(each, ast.AnnAssign)]
    field = take_single([each for each in fields if last_name(each.target) == finding.data["parameter"]])
    edits.at_node(symbol.path, field).replace(field.annotation, finding.data["annotation"])
    return Remedy(f"Annotate {finding.data['parameter']!r} of {finding.data['record']} as declared", "align_schema")


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
    """GB301: change the default `items=[]` to None, and make the list in the body. Safe if the body only adds to the value.

    Refused if the default may differ between calls, if the body or a caller may rely on the shared value, or if the method is
    a handler, which is called by its signature.
    """
    name = finding.data["parameter"]
    symbol = edits.at(finding.span)
    default = {argument.arg: default for argument, default in parameters_with_defaults(symbol.function)}[name]
    added, other_uses = _split_uses(name, default, symbol.function)
    is_called = bool(edits.wiring.callers(finding.agent, symbol.function.name))
    may_want_memory = other_uses and (is_called or not _is_only_joined(name, added, other_uses, symbol.function))
    if not _is_constant(default) or may_want_memory:
        raise Refused("somebody may rely on what is shared")
    subscriptions = (each for definition in edits.project.definitions for each in definition.subscriptions)
    if any((each.method, each.span.path) == (symbol.function.name, finding.span.path) for each in subscriptions):
        raise Refused("the signature decides how the handler is called")
    _refuse_shadowed(symbol, _names_in(default))
    annotation = renames.parameter_of(symbol.function, name).annotation
    written = symbol.text_of(annotation) if annotation else "None"
    if isinstance(annotation, ast.Constant):
        raise Refused("the annotation is written as text")
    if annotation and not any(word in written for word in ("None", "Optional", "Any", "object")):
        symbol.insert_after(annotation, " | None")
    symbol.insert_first([f"if {name} is None:", f"\t{name} = {symbol.text_of(default)}"])
    symbol.replace(default, "None")
    title = f"Make the default of {name!r} anew in each call of {symbol.target}"
    return Remedy(title, "fix_default", is_safe=not other_uses)


def _is_constant(default: ast.expr) -> bool:
    """Return whether a default is equal whenever it is made: a literal on one line, or an empty `list()`, `dict()` or `set()`."""
    try:
        ast.literal_eval(default)
    except ValueError:
        is_bare = isinstance(default, ast.Call) and not default.args and not default.keywords
        return is_bare and ast.unparse(default) in ("list()", "dict()", "set()")
    return default.lineno == default.end_lineno


def _split_uses(name: str, default: ast.expr, function: Function) -> tuple[list[ast.stmt], list[ast.Name]]:
    """Return the statements that only add to a parameter, and its other uses, among them those of `locals` and the like."""
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
    uses = [node for node in names if node.id == name]
    others = [node for node in uses if node not in adding] + [node for node in names if node.id in renames.REFLECTING]
    return [adding[node] for node in uses if node in adding], others


def _is_only_joined(name: str, added: list[ast.stmt], uses: list[ast.Name], function: Function) -> bool:
    """Return whether the body only adds constants to a value and then joins it to a string: no call needs older items."""
    first = next((statement for statement in function.body if statement in added), None)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) == "join"]
    parts = [part for call in calls for part in call.args]
    parts += [each for part in parts if isinstance(part, ast.List | ast.Tuple) for each in part.elts]
    joined = [part.value if isinstance(part, ast.Starred) else part for part in parts]
    are_uses_later = first is not None and all(use.lineno > (first.end_lineno or 0) and use in joined for use in uses)
    return are_uses_later and all(_names_in(statement) == {name} for statement in added)


def _narrow_bare_except(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB302: write `except Exception:`; refused if the `try` block may raise other exceptions: it exits, awaits or yields."""
    symbol = edits.at(finding.span)
    clause = next(node for node in symbol.nodes_at(finding.span) if isinstance(node, ast.ExceptHandler))
    tries = (node for node in ast.walk(symbol.node) if isinstance(node, ast.Try) and clause in node.handlers)
    for node in (inner for each in tries for statement in each.body for inner in ast.walk(statement)):
        if isinstance(node, _SUSPENDING) or (isinstance(node, ast.expr) and last_name(node) in _ENDING):
            raise Refused("what is caught is no Exception")
    _refuse_shadowed(symbol, {"Exception"})
    symbol.insert_after(clause, " Exception", length=len("except"))
    return Remedy(f"Let {symbol.target} catch exceptions only", "narrow_except")


def _add_type_checks(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB210: insert checks at the top of the body that raise TypeError for arguments of another type than the schema declares."""
    symbol = edits.at(finding.span)
    kinds = [item.partition(":")[::2] for item in finding.data["kinds"].split(",")]
    _refuse_shadowed(symbol, {"isinstance", "TypeError", "type", *(kind for _, kind in kinds)})
    optional = {argument.arg for argument, _ in parameters_with_defaults(symbol.function)}
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


# --- missing dependencies -----------------------------------------------------------------------


def _declare_dependency(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB010: correct a misspelled agent name in dependencies and calls, and declare the dependency if it is missing."""
    old, new = finding.data.get("old", ""), finding.data["new"]
    agents = edits.wiring.agents
    agent = agents[finding.agent]
    unknown = [each for each in agent.dependencies if each.name not in agents and not old]
    undeclared = {call.agent for call in agent.calls} - {each.name for each in agent.dependencies} - {agent.name, ""}
    # the only unknown dependency is probably meant for the only agent that is called without one
    is_wrong_dependency = len(unknown) == 1 and undeclared == {new} and not near_match(unknown[0].name, agents)
    needs = {name: {each.name for each in one.dependencies} & agents.keys() for name, one in agents.items()}
    needs[agent.name] |= {new}
    if (unknown and not is_wrong_dependency) or any({agent.name, new} <= {*group} for group in components(needs)):
        raise Refused("the dependencies would form a circle, or another one is misnamed")
    if is_wrong_dependency:
        symbol = edits.at(unknown[0].span)
        symbol.replace(symbol.expression_at(unknown[0].span), f'"{new}"')
        return Remedy(f"Depend on {new!r} instead of {unknown[0].name!r}", "declare_dependency", (new,), is_safe=True)
    misnamed = [each.span for each in agent.dependencies if each.name == old]
    for span in (*misnamed, *(call.span for call in agent.calls if old and call.agent == old)):
        renames.rename_literal(edits, span, old, new)
    is_missing = not misnamed and new not in {each.name for each in agent.dependencies}
    is_decorated = _add_dependency(new, edits.at(agent.name_span), edits) if is_missing else True
    title = f"Name {new!r} instead of {old!r}{edits.where}" if old else f"Declare that {agent.name} depends on {new}"
    return Remedy(title, "declare_dependency" if is_decorated else NEW_DEPENDS_ON, (new,), is_safe=True)


def _add_dependency(name: str, symbol: EditedSymbol, edits: TokenEdits) -> bool:
    """Add a name to the `@depends_on` of a class and return True, or add the decorator with it and return False."""
    imports = [node for node in symbol.tree.body if isinstance(node, ast.ImportFrom)]
    is_imported = any((alias.asname or alias.name) == name for node in imports for alias in node.names)
    written = name if is_imported else f'"{name}"'
    for decorator in symbol.node.decorator_list if isinstance(symbol.node, ast.ClassDef) else ():
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "depends_on" and decorator.args:
            last = decorator.args[-1]
            listed = last.elts if isinstance(last, ast.List | ast.Tuple) else [last]
            symbol.insert_after(take_single(listed[-1:]), f", {written}")
            return True
    edits.add_import(symbol, "graphbus_core", "depends_on")
    symbol.insert_line_above(f"@depends_on({written})")
    return False


_CHOOSING: tuple[tuple[str, Callable[[Finding, TokenEdits], Iterator[list[Finding]]], Fixer | None], ...] = (
    ("missing", value_fixes.choose_missing_value, value_fixes.supply_missing_value),
    ("choices", choose_names, None),
    ("unfit", value_fixes.choose_fitting_value, value_fixes.replace_value),
    ("contradicted", _choose_type_to_keep, _copy_type),
    ("annotation", lambda finding, _: iter([[finding]]), _annotate_as_declared),
)
"""Key in the data of a finding; the function that yields tiers of variants; and the fixer for them, None for that of the rule."""

_KEYS_TO_CHOOSE = frozenset(key for key, _, _ in _CHOOSING)

FIXERS: dict[str, tuple[Fixer, ...]] = {
    "GB001": (renames.rename_topic,),
    "GB003": (renames.rename_key,),
    "GB004": (renames.rename_key_sent,),
    "GB005": (renames.rename_requested,),
    "GB010": (_declare_dependency,),
    "GB101": (renames.rename_to_field,),
    "GB102": (_declare_parameter,),
    "GB103": (renames.rename_key_returned,),
    "GB104": (_return_mapping,),
    "GB106": (_copy_type,),
    "GB110": (renames.rename_handed_over, renames.pass_one_by_one),
    "GB111": (renames.rename_key_of_result,),
    "GB201": (_annotate_parameter,),
    "GB202": (_annotate_result,),
    "GB210": (_add_type_checks,),
    "GB301": (_make_default_in_body,),
    "GB302": (_narrow_bare_except,),
    "GB310": (misuse_fixes.fix_event_use,),
    "GB312": (misuse_fixes.add_topic,),
    "GB313": (misuse_fixes.unpack_topics,),
    "GB314": (misuse_fixes.await_answer,),
    "GB315": (misuse_fixes.remove_needed_arguments,),
    "GB316": (misuse_fixes.move_to_on_start,),
    "GB317": (misuse_fixes.order_decorators,),
    "GB318": (misuse_fixes.decorate_override,),
    "GB319": (misuse_fixes.import_right_name,),
    "GB321": (misuse_fixes.remove_event_parameter,),
    "GB322": (misuse_fixes.correct_topic_name,),
    "GB323": (misuse_fixes.import_class,),
    "GB324": (misuse_fixes.fix_agent_by_name,),
}
