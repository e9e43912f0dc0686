"""GB319: imports of names that GraphBus does not have, with the right name. Only the files of GraphBus are read, none is run."""

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

_PACKAGE_NAME = "graphbus_core"
_FOLDER = Path(graphbus_core.__file__).parent
_WRONG_NAMES = {
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
"""Name in GraphBus -> names that similar frameworks use for it, or modules in which people look for it, separated by spaces."""


def check_imports(file: ReadFile) -> Iterator[Finding]:
    """Find imported names and modules, and attributes of the imported package, that GraphBus does not have."""
    missing = {name for name in file.imports if not _may_exist(name, file)}
    modules = {name for name, each in file.module.bindings.first.items() if each == ImportBinding(_PACKAGE_NAME, "")}
    for node in ast.walk(file.module.tree) if missing or modules else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = file.module.source
            package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
            home = absolute_name(node.module or "", node.level, package) if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                dotted = home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".")
                if dotted in missing:
                    yield _make_missing_import(dotted, alias, file, alias.asname or alias.name)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in modules:
            dotted = f"{_PACKAGE_NAME}.{node.attr}"
            yield from () if _may_exist(dotted, file) else [_make_missing_import(dotted, node, file, ast.unparse(node))]


def _make_missing_import(dotted: str, node: ast.alias | ast.expr, file: ReadFile, usage: str) -> Finding:
    """Return the finding that GraphBus has no `dotted`, with the right name if it is known; `usage` is how the file uses it."""
    home, _, name = dotted.rpartition(".")
    derived = [each.name for each, _ in file.module.bindings.classes if usage in map(ast.unparse, each.bases)]
    are = "are not agents" if len(derived) > 1 else "is not an agent"
    loss = f", so {', '.join(derived)} {are}" if derived else ""
    right_name = name if name in graphbus_core.__all__ else ""
    right_name = right_name or next((right for right, wrong in _WRONG_NAMES.items() if name in wrong.split()), "")
    right_module, _, last = f"{_PACKAGE_NAME}.{right_name}".rpartition(".")
    guess = did_you_mean(name, graphbus_core.__all__).strip() or f"It has {', '.join(graphbus_core.__all__)}."
    hint = f"Write `from {right_module} import {last}`." if right_name else guess
    data = (
        {"old": name, "name": right_name, "home": _PACKAGE_NAME}
        if right_name and isinstance(node, ast.alias) and not right_module[len(_PACKAGE_NAME) :]
        else None
    )
    message = f"{home or 'Python'} has no {name!r}{loss}"
    return make_finding("GB319", "", span_of(file.module.path, node), message, hint, data=data)


def _may_exist(dotted: str, file: ReadFile) -> bool:
    """Return False for a name of GraphBus that does not exist, True for all others.

    An import that may fail, such as one in `try`, has a prefix in `file.imports`. It is treated as a name of another package.
    """
    top, _, rest = dotted.partition(".")
    if top == "graphbus":
        return bool(file.library.path_of(top)) or file.library.is_outside(top)
    return top != _PACKAGE_NAME or not rest or rest in graphbus_core.__all__ or _package_has(_FOLDER, rest)


@cache
def _package_has(folder: Path, rest: str) -> bool:
    """Return whether the package in a folder has a module or name such as `model.agent.Call`.

    A package below that of GraphBus counts as having any name if it defines `__getattr__`, and so do the modules in it.
    """
    first, _, further = rest.partition(".")
    if (folder / first / "__init__.py").is_file():
        return not further or _package_has(folder / first, further)
    is_module = (folder / f"{first}.py").is_file()
    path, name = (folder / f"{first}.py", further) if is_module else (folder / "__init__.py", rest)
    bindings = Bindings(parse(path.read_text(encoding="utf-8")).body)
    is_bound = name in bindings.first or name in bindings.rebound or (is_module and not further)
    return is_bound or ("__getattr__" in bindings.first and path.parent != _FOLDER)
