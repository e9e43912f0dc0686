"""GB310: an async method that holds up the event loop, and with it every other async handler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.source import span_of
from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.compiler.rules.evidence import Source
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding

_IN_A_THREAD = "await asyncio.to_thread({call}, ...)"
_BLOCKING = {
    "time.sleep": "await asyncio.sleep(...)",
    "os.system": "await asyncio.create_subprocess_shell(...)",
    "subprocess.run": "await asyncio.create_subprocess_exec(...)",
    "subprocess.call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_output": "await asyncio.create_subprocess_exec(...)",
    "urllib.request.urlopen": _IN_A_THREAD,
    **{
        f"{package}.{verb}": _IN_A_THREAD
        for package in ("requests", "httpx")
        for verb in ("get", "post", "put", "patch", "delete", "head", "options", "request")
    },
}
_LAST_WORDS = frozenset(name.rpartition(".")[2] for name in _BLOCKING)


def check_blocking(method: ast.AsyncFunctionDef, definition: AgentDefinition, source: Source) -> Iterator[Finding]:
    """Find calls that wait without letting others go on."""
    calls = [call for call in _calls(method) if _dotted(call.func).rpartition(".")[2] in _suspects(call, source)]
    imports = _imports(parse(source.text)) if calls else {}
    bound = {node.id for node in ast.walk(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for call in calls:
        written = _dotted(call.func)
        first, _, rest = written.partition(".")
        meant = ".".join(filter(None, [imports.get(first, "?"), rest]))
        if meant in _BLOCKING and first not in bound:
            yield Finding(
                code="GB310",
                severity="error",
                agent=definition.name,
                span=span_of(definition.path, call),
                message=f"{definition.name}.{method.name} is async and waits in {meant}, which stops all other handlers",
                hint=f"Use `{_BLOCKING[meant].format(call=written)}`, or make the method a plain `def`.",
            )


def _suspects(call: ast.Call, source: Source) -> frozenset[str]:
    """The last words of blocking calls; a plain name may be an alias, so that any is suspect if `as` is in the file."""
    if isinstance(call.func, ast.Name) and b" as " in source.utf8:
        return frozenset({call.func.id})
    return _LAST_WORDS


def _calls(method: ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """The calls in the body, those in functions within it left out: these may run in a thread."""
    waiting: list[ast.AST] = list(method.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _dotted(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        left = _dotted(expression.value)
        return f"{left}.{expression.attr}" if left else ""
    return expression.id if isinstance(expression, ast.Name) else ""


def _imports(tree: ast.Module) -> dict[str, str]:
    """Name -> what the file imports under it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else (
                    alias.name.partition(".")[0]
                )  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
