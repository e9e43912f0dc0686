"""Imports modules of the project and tells which agents each has, then calls: `graphbus_import.py [roots, modules, trials]`.

What is said first is about the imports and cannot be taken back by what the calls do.
"""

from __future__ import annotations

import importlib
import os
import sys

import graphbus_line  # type: ignore[import-not-found,unused-ignore]
import graphbus_raised  # type: ignore[import-not-found,unused-ignore]
import graphbus_smoke  # type: ignore[import-not-found,unused-ignore]


def main() -> None:
    """Import one after the other; whatever one of them raises is an answer."""
    say, leave, tell = graphbus_line.connect(), os._exit, graphbus_raised.teller()
    roots, modules, trials = graphbus_line.take_work()
    call = graphbus_smoke.call
    sys.path[:1] = [*roots, ""]
    del sys.modules["graphbus_line"], sys.modules["graphbus_raised"], sys.modules["graphbus_smoke"]
    from graphbus_core.node import GraphBusNode

    nodes, errors = {}, {}
    for name in modules:
        try:
            module = importlib.import_module(name)
            nodes[name] = sorted(
                value.__name__
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, GraphBusNode) and value.__module__ == name
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is what becomes of an import
            errors[name] = tell(error)
    say({"nodes": nodes, "errors": errors})
    if trials and not errors:
        call(trials, say)
    leave(0)


main()
