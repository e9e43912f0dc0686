"""What the text of a file declares beside what it does: bases of classes, roles and prompts of agents, secrets, equality."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.editing.rungs.capability import acting, harmless
from graphbus_core.editing.rungs.capability.scopes import defaults_of
from graphbus_core.editing.rungs.capability.signs import Sign
from graphbus_core.editing.rungs.capability.sources import SourceFile, Value
from graphbus_core.editing.text.source_text import Definition, definitions

GUARDED = harmless.GUARDED
_SILENT = (ast.expr_context, ast.operator, ast.Constant, ast.Call, ast.Subscript, ast.Expr, ast.Return, ast.BinOp)
"""What most nodes are, and what declares nothing."""
FunctionDefinition = ast.FunctionDef | ast.AsyncFunctionDef
Found = Iterator[tuple[str, str]]


def declared(file: SourceFile, old_names: frozenset[str]) -> Iterator[Sign]:
    """Give the signs of a file; what was there already shows each of its bases and own decorators."""
    names = {id(symbol.node): symbol.name for symbol in definitions(file.tree)}
    for node in file.nodes:
        if isinstance(node, _SILENT) or (
            isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
        ):
            continue
        line = getattr(node, "lineno", 0)
        for code, what in (*of_guarded(node), *_of_secret(node), *_of_comparison(file, node)):
            yield Sign(code, what, line)
        if isinstance(node, FunctionDefinition) and names.get(id(node)) in old_names:
            yield from (Sign("G3.decorator", what, line) for what in _of_own_decorators(file, node))
        if isinstance(node, ast.ClassDef):
            for code, what in _of_bases(file, node, names.get(id(node), node.name), old_names):
                yield Sign(code, what, line)


def _of_own_decorators(file: SourceFile, node: FunctionDefinition) -> Iterator[str]:
    """A decorator of the project on a function that was there before: it may stand between the function and its callers."""
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for decorator in node.decorator_list:
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if all(value.kind == "symbol" for value in file.values(function, scope)):
            yield f"@{ast.unparse(function)} on {node.name}"


def _of_bases(file: SourceFile, node: ast.ClassDef, name: str, old_names: frozenset[str]) -> Found:
    scope = file.scopes.of[id(node)].parent or file.scopes.module
    for base in node.bases:
        defined = file.scopes.of[id(node)].bindings.keys()
        is_harmless = all(
            _is_harmless_base(value) or defined == {harmless.SPECIALISED.get(value.name)}
            for value in file.values(base, scope)
        )
        if name in old_names or not is_harmless:
            shown = [value.name for value in file.values(base, scope) if value.name]
            yield "G3.base", f"{shown[0] if shown else ast.unparse(base)} as a base of {name}"
    for keyword in node.keywords:
        if keyword.arg not in harmless.CLASS_KEYWORDS:
            yield "G3.base", f"{ast.unparse(keyword)} of {name}"


def _is_harmless_base(value: Value) -> bool:
    if value.kind == "outside":
        return value.name in harmless.BASES
    if value.kind != "symbol" or value.home is None or not isinstance(value.node, ast.ClassDef):
        return False
    if value.node.keywords or value.home.is_agent(value.node):
        return False
    return all(_is_harmless_base(base) for base in value.home.bases(value.node))


def of_guarded(node: ast.AST) -> Found:
    """Give what binds IS_ARBITER or SYSTEM_PROMPT, with its value; anything but a plain assignment shows its kind only."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        for target in targets:
            if _final_name(target) in GUARDED:
                yield GUARDED[_final_name(target)], ast.unparse(node)
    elif isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
        if _final_name(node) in GUARDED:
            yield GUARDED[_final_name(node)], f"binding {_final_name(node)}"
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from ((GUARDED[name], f"binding {name}") for name in node.names if name in GUARDED)
    else:
        name = _bound_name(node)
        if name in GUARDED:
            yield GUARDED[name], f"binding {name}"


def _of_secret(node: ast.AST) -> Found:
    """A text under a name that promises a secret."""
    for name, value in _named_values(node):
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if is_text and acting.SECRET_NAME.search(name) and acting.SECRET_VALUE.match(ast.literal_eval(value)):
            yield "G3.secret", f"a value for {name}"


def _of_comparison(file: SourceFile, node: ast.AST) -> Found:
    """A value that says itself whether it is equal to the expected one."""
    if not isinstance(node, ast.ClassDef):
        return
    is_value = any(value.name in harmless.VALUES for value in file.bases(node))
    for item in node.body:
        if isinstance(item, Definition) and item.name in harmless.COMPARED and (is_value or _is_deaf(item)):
            yield "G3.reflection", f"{item.name} of {node.name}, which answers whatever it is compared with"


def _is_deaf(method: ast.AST) -> bool:
    """Tell whether a comparison never looks at an attribute or item of anything."""
    return not any(isinstance(node, (ast.Attribute, ast.Subscript)) for node in ast.walk(method))


def _final_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _bound_name(node: ast.AST) -> str:
    if isinstance(node, ast.alias):
        return node.asname or node.name
    if isinstance(node, (Definition, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name or ""
    return (node.rest or "") if isinstance(node, ast.MatchMapping) else ""


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((_final_name(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value:
        yield _final_name(node.target), node.value
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, node.value
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value
    elif isinstance(node, ast.arguments):
        yield from defaults_of(node).items()
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
