"""What a graph takes from the project: the agents that are to run and the middleware, imported from there and from nowhere else.

Every failure is reported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from types import ModuleType
from typing import Any

from graphbus_core import isolation
from graphbus_core.errors import GraphBusError, Place, RunError, did_you_mean, raise_all
from graphbus_core.isolation import attempt
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.values import shown

_COROUTINE = 0x80


def describe_exception(error: BaseException | None) -> str:
    """Name an exception in one line: `ValueError: message`."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}"
    if isinstance(error, Exception):
        error = isolation.explain(error)
    if isinstance(error, GraphBusError):
        return f"{error.sentence.rstrip('.')} [{error.code}]"
    return f"{type(error).__name__}: {error}".rstrip(".: ")


Factory = Callable[[Any], object]
"""Makes the object of a class: `make(cls: type[T]) -> T`."""


class NodeModules:
    """The classes of the agents, imported; `forget` leaves the interpreter as it was.

    Attributes:
        classes: In the order of activation.
        middleware: What the project puts around handlers and calls, outermost first.
        factory: What the project makes its agents with; None: their classes.
        left_out: The agents whose classes cannot be had, and why; only after `import_some`.
        confinement: What this process was bound to before they were imported, in lines for a person.
    """

    def __init__(self, root: str | os.PathLike[str], import_roots: Sequence[str]) -> None:
        self.classes: dict[str, type[GraphBusNode]] = {}
        self.middleware: tuple[Middleware, ...] = ()
        self.factory: Factory | None = None
        self.left_out: dict[str, GraphBusError] = {}
        self.confinement: tuple[str, ...] = ()
        self.root = os.path.realpath(root)
        self._before = set(sys.modules)
        self._names: set[str] = set()
        self._paths = [os.path.realpath(os.path.join(self.root, each)) for each in import_roots]
        sys.path[:0] = self._paths

    def import_all(self, definitions: Sequence[AgentDefinition]) -> None:
        """Import the class of every agent.

        Raises:
            RunError: GBE601 a module does not import, GBE602 its class is missing, GBE604 the module is not the project's.
            SeveralErrors: All of them; then nothing stays imported.
        """
        problems = self._take_classes(definitions)
        if problems:
            self.forget()
        raise_all(dict.fromkeys(problems.values()))  # one module may have several agents

    def import_some(self, definitions: Sequence[AgentDefinition]) -> None:
        """Import the class of every agent that can be had; `left_out` says why the others cannot."""
        self.left_out |= self._take_classes(definitions)

    def _take_classes(self, definitions: Sequence[AgentDefinition]) -> dict[str, GraphBusError]:
        """Import each module once, and give why which agents have no class."""
        modules: dict[str, ModuleType | GraphBusError] = {}
        problems: dict[str, GraphBusError] = {}
        for definition in definitions:
            if definition.module not in modules:
                modules[definition.module] = self._import(definition.module, definition.path)
            module = modules[definition.module]
            found = _class_of(definition, module) if isinstance(module, ModuleType) else module
            if isinstance(found, GraphBusError):
                problems[definition.name] = found
            else:
                self.classes[definition.name] = found
        return problems

    def import_own(self, module: str) -> ModuleType | None:
        """Import another module of the project, or give None when it has no such module.

        Raises:
            RunError: GBE601, GBE604.
        """
        for folder in self._paths:
            for path in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
                if os.path.isfile(os.path.join(folder, path)):
                    found = self._import(module, self._shown(os.path.join(folder, path)))
                    if isinstance(found, GraphBusError):
                        raise found
                    return found
        return None

    def import_name(self, module: str) -> ModuleType:
        """Import another module, e.g. that of the entry point.

        Raises:
            RunError: GBE606 when it does not import.
        """
        result, error = _import_quietly(module)
        if result is None:
            raise RunError(
                "GBE606", name=module, reason=describe_exception(error), where=self.place_of(error)
            ) from error
        return result

    def forget(self) -> None:
        """Take the project's modules and folders out of the interpreter again."""
        new = {name: module for name, module in sys.modules.copy().items() if name not in self._before}
        ours = [name for name, module in new.items() if name in self._names or self._is_ours(module)]
        for name in {part for each in ours for part in _with_parents(each)}:
            if name in new:
                sys.modules.pop(name, None)
        for path in self._paths:
            if path in sys.path:
                sys.path.remove(path)
        self._paths = []

    def place_of(self, error: BaseException | None) -> Place | None:
        """The innermost line of the project that took part in the failure."""
        if isinstance(error, SyntaxError) and error.filename:
            return Place(self._shown(error.filename), error.lineno or 0)
        places = [Place(self._shown(path), line) for path, line in _frames(error) if self._contains(path)]
        return places[-1] if places else None

    def _import(self, name: str, path: str) -> ModuleType | GraphBusError:
        wanted = os.path.realpath(os.path.join(self.root, path))
        if not self._contains(wanted) or not os.path.isfile(wanted):
            return RunError("GBE604", module=name, path=path, found="no file of the project")
        present = sys.modules.get(name) or sys.modules.get(name.partition(".")[0])
        if present is not None and not self._is_ours(present):
            return RunError("GBE604", module=name, path=path, found=_origin(present))
        self._names.add(name)
        module, error = _import_quietly(name)
        if module is None:
            where = self.place_of(error) or Place(path, 1)
            refusal = RunError("GBE601", module=name, reason=describe_exception(error), where=where)
            refusal.__cause__ = error
            return refusal
        if os.path.realpath(_origin(module)) != wanted:
            return RunError("GBE604", module=name, path=path, found=_origin(module))
        return module

    def _is_ours(self, module: ModuleType) -> bool:
        origins = [getattr(module, "__file__", None) or "", *_folders(module)]
        return any(self._contains(origin) for origin in origins if origin)

    def _contains(self, path: str) -> bool:
        if path.startswith("<"):  # `<string>`, `<frozen importlib._bootstrap>`: no file
            return False
        return _is_within(os.path.realpath(path), self.root)

    def _shown(self, path: str) -> str:
        resolved = os.path.realpath(path)
        return os.path.relpath(resolved, self.root) if _is_within(resolved, self.root) else path


def choose(
    agents: Sequence[AgentDefinition], only: Sequence[str]
) -> tuple[list[AgentDefinition], dict[str, GraphBusError]]:
    """Give the agents that run here, in the order of activation, and why the others do not.

    Args:
        agents: Those of the graph.
        only: The names of those that shall run; none: all.

    Raises:
        RunError: GBE695 for a name that no agent has; SeveralErrors for more than one.
    """
    known = [agent.name for agent in agents]
    raise_all(
        RunError("GBE695", name=name, suggestion=did_you_mean(name, known), known=", ".join(sorted(known)))
        for name in dict.fromkeys(only)
        if name not in known
    )
    asked = " ".join(f"--only {name}" for name in only)
    left_out: dict[str, GraphBusError] = {
        name: RunError("GBE696", agent=name, asked=asked) for name in known if only and name not in only
    }
    return [agent for agent in agents if agent.name not in left_out], left_out


def load_middleware(names: Sequence[str], modules: NodeModules) -> tuple[Middleware, ...]:
    """Import each `package.module:name`, in their order; a class is made without arguments.

    Raises:
        RunError: GBE601 a module does not import, GBE604 it is not the project's, GBE663 what is named is no middleware. Then
            nothing of the project stays imported.
    """
    try:
        return tuple([_load_one(name, modules) for name in names])
    except RunError:
        modules.forget()
        raise


def load_factory(name: str, modules: NodeModules) -> Factory:
    """Import what makes the agents, `package.module:name`.

    Raises:
        RunError: GBE601 its module does not import, GBE604 it is not the project's, GBE655 what is named is no factory. Then
            nothing of the project stays imported.
    """
    try:
        factory: Factory = _callable_of(_named(name, modules, "factory"), name, modules, "factory")
        if getattr(getattr(factory, "__code__", None), "co_flags", 0) & _COROUTINE:
            raise _refuse("factory", name, modules, "an `async def` gives no agent, but something to await")
    except RunError:
        modules.forget()
        raise
    return factory


def make_node(kind: type[GraphBusNode], factory: Factory | None) -> GraphBusNode:
    """Make the object of an agent.

    Raises:
        RunError: GBE656 a factory that fails, GBE657 one that gives something else.
        Exception: What a constructor raises.
    """
    if factory is None:
        return kind()
    name = getattr(factory, "__qualname__", shown(factory))
    node, error = attempt(lambda: factory(kind))
    if error is not None:
        raise RunError("GBE656", factory=name, name=kind.__name__, reason=describe_exception(error)) from error
    if not isinstance(node, kind):
        raise RunError("GBE657", factory=name, name=kind.__name__, got=shown(node))
    return node


def _load_one(name: str, modules: NodeModules) -> Middleware:
    found = _named(name, modules, "middleware")
    if isinstance(found, type):
        found, error = attempt(found)
        if error is not None:
            raise _refuse("middleware", name, modules, describe_exception(error), modules.place_of(error)) from error
    middleware: Middleware = _callable_of(found, name, modules, "middleware")
    return middleware


def _named(name: str, modules: NodeModules, setting: str) -> Any:
    """What a setting of `[tool.graphbus.runtime]` names."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise _refuse(setting, name, modules, "the module or the name is missing")
    module = modules.import_own(module_name)
    if module is None:
        raise _refuse(setting, name, modules, f"the project has no module {module_name}")
    found: Any = attempt(lambda: attrgetter(path)(module))[0]
    if found is None:
        known = [each for each, value in vars(module).items() if callable(value)]
        near = did_you_mean(path, known).replace(" Did", "; did").rstrip("?")
        raise _refuse(setting, name, modules, f"{module_name} has no {path!r}{near}")
    return found


def _callable_of(found: Any, name: str, modules: NodeModules, setting: str) -> Any:
    if not callable(found):
        raise _refuse(setting, name, modules, f"{type(found).__name__!r} cannot be called")
    return found


def _refuse(setting: str, name: str, modules: NodeModules, reason: str, where: Place | None = None) -> RunError:
    from graphbus_core.settings import place_of

    code = {"middleware": "GBE663", "factory": "GBE655"}[setting]
    return RunError(code, where=where or place_of(modules.root, "runtime", setting), name=name, reason=reason)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _class_of(definition: AgentDefinition, module: ModuleType) -> type[GraphBusNode] | GraphBusError:
    found = getattr(module, definition.name, None)
    if isinstance(found, type) and issubclass(found, GraphBusNode):
        return found
    names = [name for name, value in vars(module).items() if isinstance(value, type)]
    suggestion = did_you_mean(definition.name, names)
    place = Place(definition.path, definition.span.line)
    return RunError("GBE602", name=definition.name, module=definition.module, suggestion=suggestion, where=place)


def _import_quietly(name: str) -> tuple[ModuleType | None, BaseException | None]:
    """Import a module, or give the reason why it does not import."""
    try:
        return attempt(lambda: import_module(name))
    except SystemExit as leaving:  # a script without a `__main__` guard
        return None, leaving


def _origin(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "the interpreter itself"


def _folders(module: ModuleType) -> list[str]:
    """Where a package looks for modules; one without `__init__.py` cannot say so when its parent has left before it."""
    folders, _ = attempt(lambda: list(getattr(module, "__path__", ())))
    return folders or []


def _with_parents(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _frames(error: BaseException | None) -> Iterator[tuple[str, int]]:
    trace: Any = error.__traceback__ if error else None
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def require(what: str, modules: Sequence[str], extra: str) -> None:
    """Find out whether the modules can be imported, without importing them.

    Args:
        what: What needs them, in the words of the user.
        modules: Top-level modules, or modules of a namespace package.
        extra: The optional dependency of GraphBus that brings them.

    Raises:
        RunError: GBE671.
    """
    missing = [name for name in modules if attempt(lambda name=name: find_spec(name))[0] is None]  # type: ignore[misc]
    if missing:
        raise RunError("GBE671", what=what, packages=" and ".join(missing), extra=extra)
