"""GB319: imports of names that GraphBus does not have, with the name that is meant. Only the files of GraphBus are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import graphbus_core
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.modules import Bindings, ImportBinding, absolute_name
from graphbus_core.compiler.reading.syntax import parse, span_of
from graphbus_core.compiler.rules.wiring import make_finding
from graphbus_core.errors import did_you_mean
from graphbus_core.model.findings import Finding

_OWN = "graphbus_core"
_PACKAGE = Path(graphbus_core.__file__).parent
_MEANT = {
    "GraphBusNode": "Agent BaseAgent AgentNode GraphBusAgent Node BaseNode agent node_base",
    "build_graph": "build_project builder orchestrator",
    "run_graph": "RuntimeExecutor run_runtime ArtifactLoader executor loader",
    "connect": "SimpleMessageBus EventRouter event_router message_bus",
    "subscribe": "subscribes on handler",
    "schema_method": "method agent_capability tool",
    "publishes": "publish publisher emits",
    "Event": "Message message",
    **{f"model.config.{name}": name for name in ("BuildConfig", "RuntimeConfig", "LLMConfig")},
    "model.agent.AgentDefinition": "AgentDefinition",
    "bus.MessageBus": "MessageBus",
}
"""Our name, and what others call it or where else they look for it."""


def check_imports(file: ReadFile) -> Iterator[Finding]:
    """Find names and modules that are imported from GraphBus and that it does not have."""
    missing = {name for name in file.imports if not _is_there(name, file)}
    modules = {name for name, each in file.module.bindings.first.items() if each == ImportBinding(_OWN, "")}
    for node in ast.walk(file.module.tree) if missing or modules else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = file.module.source
            package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
            home = absolute_name(node.module or "", node.level, package) if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                dotted = home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".")
                if dotted in missing:
                    yield _missing(dotted, alias, file, alias.asname or alias.name)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in modules:
            dotted = f"{_OWN}.{node.attr}"
            yield from () if _is_there(dotted, file) else [_missing(dotted, node, file, ast.unparse(node))]


def _missing(dotted: str, node: ast.alias | ast.expr, file: ReadFile, written: str) -> Finding:
    home, _, name = dotted.rpartition(".")
    derived = [each.name for each, _ in file.module.bindings.classes if written in map(ast.unparse, each.bases)]
    loss = f", so that {', '.join(derived)} is no agent" if derived else ""
    ours = name if name in graphbus_core.__all__ else ""
    ours = ours or next((ours for ours, others in _MEANT.items() if name in others.split()), "")
    within, _, last = f"{_OWN}.{ours}".rpartition(".")
    guess = did_you_mean(name, graphbus_core.__all__).strip() or f"It has {', '.join(graphbus_core.__all__)}."
    hint = f"Write `from {within} import {last}`." if ours else guess
    return make_finding("GB319", "", span_of(file.module.path, node), f"{home or 'Python'} has no {name!r}{loss}", hint)


def _is_there(dotted: str, file: ReadFile) -> bool:
    """False for what begins like a name of GraphBus and does not exist; what may fail is marked and so begins otherwise."""
    top, _, rest = dotted.partition(".")
    if top == "graphbus":
        return bool(file.library.path_of(top)) or file.library.is_outside(top)
    return top != _OWN or not rest or rest in graphbus_core.__all__ or _has(_PACKAGE, rest)


@cache
def _has(folder: Path, rest: str) -> bool:
    """Return whether one of our packages has a module or a name; a module with `__getattr__` may have any."""
    first, _, further = rest.partition(".")
    if (folder / first / "__init__.py").is_file():
        return not further or _has(folder / first, further)
    is_module = (folder / f"{first}.py").is_file()
    path, name = (folder / f"{first}.py", further) if is_module else (folder / "__init__.py", rest)
    bindings = Bindings(parse(path.read_text(encoding="utf-8")).body)
    is_bound = name in bindings.first or name in bindings.rebound or (is_module and not further)
    return is_bound or ("__getattr__" in bindings.first and path.parent != _PACKAGE)
