"""GB319: imports of what GraphBus does not have, with what is meant. Only its own files are looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import graphbus_core
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.modules import Bindings, Import, absolute_name
from graphbus_core.compiler.reading.syntax import parse, span_of
from graphbus_core.compiler.rules.wiring import report
from graphbus_core.errors import did_you_mean
from graphbus_core.model.findings import Finding

_OWN = "graphbus_core"
_PACKAGE = Path(graphbus_core.__file__).parent
_MEANT = {
    **dict.fromkeys(("Agent", "BaseAgent", "AgentNode", "GraphBusAgent", "Node", "BaseNode", "agent"), "GraphBusNode"),
    **dict.fromkeys(("RuntimeExecutor", "run_runtime", "ArtifactLoader", "executor", "loader", "Runtime"), "run_graph"),
    **dict.fromkeys(("build_project", "GraphBuilder", "Builder", "builder", "orchestrator"), "build_graph"),
    **dict.fromkeys(("SimpleMessageBus", "EventRouter", "event_router", "message_bus", "TestGraph"), "connect"),
    **dict.fromkeys(("subscribes", "on", "listen", "handler", "event_handler"), "subscribe"),
    **dict.fromkeys(("method", "schema", "capability", "agent_capability", "tool"), "schema_method"),
    **dict.fromkeys(("publish", "publisher", "emits"), "publishes"),
    **dict.fromkeys(("depends", "requires"), "depends_on"),
    **dict.fromkeys(("Message", "message"), "Event"),
}
_HOMES = {
    "BuildConfig": "graphbus_core.model.config",
    "RuntimeConfig": "graphbus_core.model.config",
    "LLMConfig": "graphbus_core.model.config",
    "AgentDefinition": "graphbus_core.model.agent",
    "MessageBus": "graphbus_core.bus",
}
"""What other packages call such things, and where ours are that are not offered at the top."""


def check_imports(read: ReadFile) -> Iterator[Finding]:
    """Find names and modules that are imported from GraphBus and that it does not have."""
    missing = {name for name in read.imports if not _is_there(name, read)}
    if missing:
        yield from _at_statements(missing, read)
    modules = {name for name, each in read.module.bindings.first.items() if each == Import(_OWN, "")}
    for node in ast.walk(read.module.tree) if modules else ():
        is_ours = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in modules
        if is_ours and isinstance(node, ast.Attribute) and not _is_there(f"{_OWN}.{node.attr}", read):
            yield _missing(f"{_OWN}.{node.attr}", node, read, ast.unparse(node))


def _at_statements(missing: set[str], read: ReadFile) -> Iterator[Finding]:
    source = read.module.source
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    for node in ast.walk(read.module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = absolute_name(node.module or "", node.level, package) if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                dotted = home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".")
                if dotted in missing:
                    yield _missing(dotted, alias, read, alias.asname or alias.name)


def _missing(dotted: str, node: ast.alias | ast.expr, read: ReadFile, written: str) -> Finding:
    home, _, name = dotted.rpartition(".")
    derived = [each for each, _ in read.module.bindings.classes if written in map(ast.unparse, each.bases)]
    loss = f", so that {', '.join(each.name for each in derived)} is no agent" if derived else ""
    message = f"{home or 'Python'} has no {name!r}{loss}"
    return report("GB319", "", span_of(read.module.path, node), message, _hint(dotted))


def _hint(dotted: str) -> str:
    """Say what to import instead, or what there is."""
    offered = graphbus_core.__all__
    name = dotted.rpartition(".")[2]
    if name in _HOMES:
        return f"Write `from {_HOMES[name]} import {name}`."
    meant = name if name in offered else _MEANT.get(name)
    if meant:
        return f"Write `from {_OWN} import {meant}`."
    return did_you_mean(name, offered).strip() or f"{_OWN} offers {', '.join(offered)}."


def _is_there(dotted: str, read: ReadFile) -> bool:
    """False for what begins like a name of GraphBus and does not exist; what may fail is marked and so begins otherwise."""
    top, _, rest = dotted.partition(".")
    if top == "graphbus":
        return bool(read.library.path_of(top)) or read.library.is_outside(top)
    return top != _OWN or not rest or rest in graphbus_core.__all__ or _has(_PACKAGE, rest)


@cache
def _has(folder: Path, rest: str) -> bool:
    """Tell whether there is a module or name below one of our packages."""
    first, _, further = rest.partition(".")
    if (folder / first / "__init__.py").is_file():
        return not further or _has(folder / first, further)
    if (folder / f"{first}.py").is_file():
        return not further or further in _names_in(folder / f"{first}.py", further)
    return not further and first in _names_in(folder / "__init__.py", first)


@cache
def _names_in(path: Path, asked: str) -> frozenset[str]:
    """Name what one of our modules binds; one with `__getattr__` may have any name."""
    bindings = Bindings(parse(path.read_text(encoding="utf-8")).body)
    names = frozenset({*bindings.first, *bindings.rebound})
    return names | {asked} if "__getattr__" in names and path.parent != _PACKAGE else names
