"""Imports the agents, the middleware and the factory of a project, and refuses modules that come from anywhere else."""

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
from graphbus_core.model.config import OUTSIDE
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.values import format_value

_COROUTINE = 0x80


def describe_exception(error: BaseException | None) -> str:
    """Return an exception as one line for messages: `ValueError: message`, or the sentence of a GraphBusError."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}"
    if isinstance(error, Exception):
        error = isolation.explain_exception(error)
    if isinstance(error, GraphBusError):
        return f"{error.sentence.rstrip('.')} [{error.code}]"
    return f"{type(error).__name__}: {error}".rstrip(".: ")


Factory = Callable[[Any], object]
"""Creates the object of a class: `make(cls: type[T]) -> T`."""


class NodeModules:
    """Imports modules of one project; `forget` removes them from the interpreter again.

    Args:
        root: The project.
        import_roots: Folders below it that the constructor puts at the beginning of `sys.path`.

    Attributes:
        classes: Name -> class of each agent, in the order of activation.
        middleware: The middleware that the project configures, outermost first.
        factory: Creates the agents; None: classes are called without arguments.
        left_out: Name -> error of agents whose classes could not be imported; filled by `import_some` only.
        confinement: Lines for the terminal about the limits that were applied to this process before the imports.
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
            RunError: GBE601 when a module cannot be imported, GBE602 if its class is missing, GBE604 if it is not the project's.
            SeveralErrors: For more than one error. After any error nothing stays imported.
        """
        problems = self._import_classes(definitions)
        if problems:
            self.forget()
        raise_all(dict.fromkeys(problems.values()))  # one module may have several agents

    def import_some(self, definitions: Sequence[AgentDefinition]) -> None:
        """Import the class of every agent as far as possible, and put the errors of the others into `left_out`."""
        self.left_out |= self._import_classes(definitions)

    def _import_classes(self, definitions: Sequence[AgentDefinition]) -> dict[str, GraphBusError]:
        """Import each module once, and put the class of each agent into `classes`.

        Returns:
            Name -> error of the agents whose class was not found: GBE601, GBE602 or GBE604.
        """
        modules: dict[str, ModuleType | GraphBusError] = {}
        problems: dict[str, GraphBusError] = {}
        for definition in definitions:
            if definition.module not in modules:
                modules[definition.module] = self._import_module(definition.module, definition.path)
            module = modules[definition.module]
            found = _class_of(definition, module) if isinstance(module, ModuleType) else module
            if isinstance(found, GraphBusError):
                problems[definition.name] = found
            else:
                self.classes[definition.name] = found
        return problems

    def import_own(self, module: str) -> ModuleType | None:
        """Import another module of the project by its dotted name; None when the project has no such module.

        Raises:
            RunError: GBE601, GBE604.
        """
        for folder in self._paths:
            for path in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
                if os.path.isfile(os.path.join(folder, path)):
                    found = self._import_module(module, self._relative_path(os.path.join(folder, path)))
                    if isinstance(found, GraphBusError):
                        raise found
                    return found
        return None

    def import_name(self, module: str) -> ModuleType:
        """Import any module, such as that of the entry point.

        Raises:
            RunError: GBE606 when it cannot be imported.
        """
        result, error = _try_import(module)
        if result is None:
            reason, advice = describe_exception(error), _advise_on_import(error)
            # Is the named module missing, or only one that it imports?
            if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
                advice = "Write the entry point as `package.module:function`, with a module of the project."
            where = self.place_of(error)
            raise RunError("GBE606", name=module, reason=reason, where=where, advice=advice) from error
        return result

    def forget(self) -> None:
        """Remove the project's modules that were imported since from `sys.modules`, and its folders from `sys.path`."""
        new = {name: module for name, module in sys.modules.copy().items() if name not in self._before}
        own_names = [name for name, module in new.items() if name in self._names or self.is_from_project(module)]
        for name in {part for each in own_names for part in _name_and_parents(each)}:
            if name in new:  # a parent package may be a namespace without a file
                sys.modules.pop(name, None)
        for path in self._paths:
            if path in sys.path:
                sys.path.remove(path)
        self._paths = []

    def place_of(self, error: BaseException | None) -> Place | None:
        """Return the innermost line of the project in the traceback of an error, or the line of a syntax error; else None."""
        if isinstance(error, SyntaxError) and error.filename:
            return Place(self._relative_path(error.filename), error.lineno or 0)
        places = [
            Place(self._relative_path(path), line)
            for path, line in _traceback_lines(error)
            if self._is_in_project(path)
        ]
        return places[-1] if places else None

    def _import_module(self, name: str, path: str) -> ModuleType | GraphBusError:
        """Import a module, and verify that it comes from `path` in the project.

        Returns:
            The module; or the error GBE604 if it comes from elsewhere, GBE601 if it cannot be imported.
        """
        expected = os.path.realpath(os.path.join(self.root, path))
        if not self._is_in_project(expected) or not os.path.isfile(expected):
            advice = "Restore the file, or run `graphbus build` again."
            problem = "there is no such file in the project"
            return RunError("GBE604", module=name, path=path, problem=problem, advice=advice)
        # If a package with this name was imported from elsewhere, Python would search the module there.
        present = sys.modules.get(name) or sys.modules.get(name.partition(".")[0])
        if present is not None and not self.is_from_project(present):
            return _wrong_file_error(name, path, present)
        self._names.add(name)
        module, error = _try_import(name)
        if module is None:
            where = self.place_of(error) or Place(path, 1)
            advice = _advise_on_import(error)
            import_error = RunError("GBE601", module=name, reason=describe_exception(error), where=where, advice=advice)
            import_error.__cause__ = error
            return import_error
        if os.path.realpath(_file_of(module)) != expected:
            return _wrong_file_error(name, path, module)
        return module

    def is_from_project(self, module: ModuleType) -> bool:
        """True if the file of a module, or a folder of a package, lies in the project."""
        origins = [getattr(module, "__file__", None) or "", *_package_folders(module)]
        return any(self._is_in_project(origin) for origin in origins if origin)

    def _is_in_project(self, path: str) -> bool:
        """True for the path of a file or folder in the project, after following symbolic links."""
        if path.startswith("<"):  # not a file: `<string>`, `<frozen importlib._bootstrap>`
            return False
        return _is_within(os.path.realpath(path), self.root)

    def _relative_path(self, path: str) -> str:
        """Return a path relative to the project; a path outside of it unchanged."""
        resolved = os.path.realpath(path)
        return os.path.relpath(resolved, self.root) if _is_within(resolved, self.root) else path


def select_agents(
    agents: Sequence[AgentDefinition], only: Sequence[str]
) -> tuple[list[AgentDefinition], dict[str, GraphBusError]]:
    """Select the agents that `--only` names.

    Args:
        agents: All agents of the graph, in the order of activation.
        only: The names of those to run, and perhaps `OUTSIDE`; empty: all.

    Returns:
        The agents to run, in the same order, and name -> error GBE696 of the others.

    Raises:
        RunError: GBE695 for a name that no agent has; SeveralErrors for more than one.
    """
    known = [agent.name for agent in agents]
    raise_all(
        RunError("GBE695", name=name, suggestion=did_you_mean(name, known), known=", ".join(sorted(known)))
        for name in dict.fromkeys(only)
        if name not in (*known, OUTSIDE)
    )
    asked = " ".join(f"--only {name}" for name in only)
    left_out: dict[str, GraphBusError] = {
        name: RunError("GBE696", agent=name, asked=asked) for name in known if only and name not in only
    }
    return [agent for agent in agents if agent.name not in left_out], left_out


def load_middleware(names: Sequence[str], modules: NodeModules) -> tuple[Middleware, ...]:
    """Import each `package.module:name` in order; a class is called without arguments.

    Raises:
        RunError: GBE601 when a module cannot be imported, GBE604 when it is not the project's, GBE663 when the name is no
            middleware. After an error nothing of the project stays imported.
    """
    try:
        return tuple([_load_one_middleware(name, modules) for name in names])
    except RunError:
        modules.forget()
        raise


def load_factory(name: str, modules: NodeModules) -> Factory:
    """Import the function that creates the agents, `package.module:name`.

    Raises:
        RunError: GBE601 when its module cannot be imported, GBE604 when it is not the project's, GBE655 when the name is no
            factory. After an error nothing of the project stays imported.
    """
    try:
        factory: Factory = _require_callable(_resolve_setting(name, modules, "factory"), name, modules, "factory")
        if getattr(getattr(factory, "__code__", None), "co_flags", 0) & _COROUTINE:
            raise _setting_error(
                "factory", name, modules, "an `async def` function returns an awaitable instead of an agent"
            )
    except RunError:
        modules.forget()
        raise
    return factory


def make_node(kind: type[GraphBusNode], factory: Factory | None) -> GraphBusNode:
    """Create the object of an agent, with the factory or by calling its class.

    Raises:
        RunError: GBE656 when the factory fails, GBE657 when it returns an object of another class.
        Exception: What the constructor of the class raises.
    """
    if factory is None:
        return kind()
    name = getattr(factory, "__qualname__", format_value(factory))
    node, error = attempt(lambda: factory(kind))
    if error is not None:
        raise RunError("GBE656", factory=name, name=kind.__name__, reason=describe_exception(error)) from error
    if not isinstance(node, kind):
        raise RunError("GBE657", factory=name, name=kind.__name__, got=format_value(node))
    return node


def _load_one_middleware(name: str, modules: NodeModules) -> Middleware:
    """Import one middleware; create the object if the name is a class."""
    found = _resolve_setting(name, modules, "middleware")
    if isinstance(found, type):
        found, error = attempt(found)
        if error is not None:
            raise _setting_error(
                "middleware", name, modules, describe_exception(error), modules.place_of(error)
            ) from error
    middleware: Middleware = _require_callable(found, name, modules, "middleware")
    return middleware


def _resolve_setting(name: str, modules: NodeModules, setting: str) -> Any:
    """Return the object that a setting names as `package.module:name`; raise `_setting_error` if there is none."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise _setting_error(setting, name, modules, "the module or the name is missing")
    module = modules.import_own(module_name)
    if module is None:
        raise _setting_error(setting, name, modules, f"the project has no module {module_name}")
    found: Any = attempt(lambda: attrgetter(path)(module))[0]
    if found is None:
        known = [each for each, value in vars(module).items() if callable(value)]
        near = did_you_mean(path, known).replace(" Did", " (did").replace("?", "?)")
        raise _setting_error(setting, name, modules, f"{module_name} has no {path!r}{near}")
    return found


def _require_callable(found: Any, name: str, modules: NodeModules, setting: str) -> Any:
    """Return the object if it can be called; otherwise raise the error of the setting."""
    if not callable(found):
        raise _setting_error(setting, name, modules, f"a value of type {type(found).__name__!r} cannot be called")
    return found


def _setting_error(setting: str, name: str, modules: NodeModules, reason: str, where: Place | None = None) -> RunError:
    """Make the error for an unusable `middleware` (GBE663) or `factory` (GBE655), at `where` or at the line of the setting."""
    from graphbus_core.settings import place_of

    code = {"middleware": "GBE663", "factory": "GBE655"}[setting]
    return RunError(code, where=where or place_of(modules.root, "runtime", setting), name=name, reason=reason)


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def _class_of(definition: AgentDefinition, module: ModuleType) -> type[GraphBusNode] | GraphBusError:
    """Return the class of an agent in its module, or the error GBE602."""
    found = getattr(module, definition.name, None)
    if isinstance(found, type) and issubclass(found, GraphBusNode):
        return found
    names = [name for name, value in vars(module).items() if isinstance(value, type)]
    suggestion = did_you_mean(definition.name, names)
    place = Place(definition.path, definition.span.line)
    return RunError("GBE602", name=definition.name, module=definition.module, suggestion=suggestion, where=place)


def _try_import(name: str) -> tuple[ModuleType | None, BaseException | None]:
    """Import a module; return (module, None), or (None, the Exception or SystemExit that it raised)."""
    try:
        return attempt(lambda: import_module(name))
    except SystemExit as leaving:  # a script without a `__main__` guard may call sys.exit
        return None, leaving


def _advise_on_import(error: BaseException | None) -> str:
    """Return the hint for a module that raised this exception when it was imported."""
    if isinstance(error, ModuleNotFoundError):
        return "Install the missing package, or correct the import."
    if isinstance(error, SystemExit):
        return 'Move the code that ends the program below `if __name__ == "__main__":`.'
    return "Correct the code at this line."


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "the interpreter itself"


def _wrong_file_error(name: str, path: str, found: ModuleType) -> RunError:
    """Return GBE604 for a module of the project whose name Python gives to another file."""
    problem = f"Python finds it in {_file_of(found)}"
    advice = "Rename the module: Python finds another module with the same name first."
    return RunError("GBE604", module=name, path=path, problem=problem, advice=advice)


def _package_folders(module: ModuleType) -> list[str]:
    """Return the folders of a package; none for a module, nor for a namespace package whose parent is no longer imported."""
    folders, _ = attempt(lambda: list(getattr(module, "__path__", ())))
    return folders or []


def _name_and_parents(name: str) -> Iterator[str]:
    """Yield a dotted name and the names of its parent packages."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _traceback_lines(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Yield the file and line of each frame in the traceback, outermost first."""
    trace: Any = error.__traceback__ if error else None
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def require_packages(what: str, modules: Sequence[str], extra: str) -> None:
    """Raise an error that names the extra to install unless all modules can be found; they are not imported.

    Args:
        what: The option or setting that needs them, for the message.
        modules: Top-level modules, or modules of a namespace package.
        extra: The extra of GraphBus that installs them.

    Raises:
        RunError: GBE671 when one is missing.
    """
    missing = [name for name in modules if attempt(lambda name=name: find_spec(name))[0] is None]  # type: ignore[misc]
    if missing:
        raise RunError("GBE671", what=what, packages=" and ".join(missing), extra=extra)
