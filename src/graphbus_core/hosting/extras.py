"""Packages that only some graphs need: asked for when a graph wants them, with the command that installs them."""

from __future__ import annotations

from collections.abc import Sequence

from graphbus_core.errors import RunError


def require(what: str, modules: Sequence[str], extra: str) -> None:
    """Find out whether the modules can be imported, without importing them.

    Args:
        what: What needs them, in the words of the user.
        modules: Top-level modules, or modules of a namespace package.
        extra: The optional dependency of GraphBus that brings them.

    Raises:
        RunError: GBE671.
    """
    missing = [name for name in modules if not _is_there(name)]
    if missing:
        raise RunError("GBE671", what=what, packages=" and ".join(missing), extra=extra)


def _is_there(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even its parent
        return False
