"""The middleware that a project names in `[tool.graphbus.runtime]`: imported from the project and made ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphbus_core.errors import GraphBusError, Place, RunError, did_you_mean, raise_all
from graphbus_core.hosting.imports import NodeModules, describe_exception
from graphbus_core.isolation import attempt
from graphbus_core.middleware import Middleware


def load_middleware(names: Sequence[str], modules: NodeModules) -> tuple[Middleware, ...]:
    """Import each `package.module:name`, in their order; a class is made without arguments.

    Raises:
        RunError: GBE601 a module does not import, GBE604 it is not the project's, GBE663 what is named is no middleware.
        SeveralErrors: More than one; then nothing of the project stays imported.
    """
    problems: list[GraphBusError] = []
    found: list[Middleware] = []
    for name in names:
        try:
            found.append(_load(name, modules))
        except RunError as error:
            problems.append(error)
    if problems:
        modules.forget()
    raise_all(problems)
    return tuple(found)


def _load(name: str, modules: NodeModules) -> Middleware:
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise _refuse(name, modules, "it must be written as package.module:name")
    module = modules.import_own(module_name)
    if module is None:
        raise _refuse(name, modules, f"the project has no module {module_name}")
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        known = [each for each, value in vars(module).items() if callable(value)]
        near = did_you_mean(path, known).replace(" Did", "; did").rstrip("?")
        raise _refuse(name, modules, f"{module_name} has no {path!r}{near}")
    if isinstance(found, type):
        found, error = attempt(found)
        if error is not None:
            raise _refuse(name, modules, describe_exception(error), modules.place_of(error)) from error
    if not callable(found):
        raise _refuse(name, modules, f"{type(found).__name__!r} cannot be called")
    middleware: Middleware = found
    return middleware


def _refuse(name: str, modules: NodeModules, reason: str, where: Place | None = None) -> RunError:
    from graphbus_core.settings import place_of

    return RunError("GBE663", where=where or place_of(modules.root, "runtime", "middleware"), name=name, reason=reason)
