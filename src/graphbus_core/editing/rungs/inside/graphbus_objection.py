"""Runs the tests of one file of text and tells what became of each: `graphbus_objection.py [[root, ...], text]`."""

from __future__ import annotations

import os
import sys
from types import CoroutineType, FunctionType

import graphbus_line  # type: ignore[import-not-found,unused-ignore]

_SKIPS = {"Skipped", "SkipTest"}


def main() -> None:
    """Load the text as a module, then call every function in it whose name begins with `test`."""
    say, leave = graphbus_line.connect(), os._exit
    roots, text = graphbus_line.take_work()
    sys.path[:1] = [*roots, ""]
    del sys.modules["graphbus_line"]
    space: dict[str, object] = {"__name__": "objection", "__file__": "objection.py"}
    outcomes, error = {}, ""
    try:
        exec(compile(text, "objection.py", "exec"), space)  # noqa: S102 - this is the jail
        for name, test in list(space.items()):
            if name.startswith("test") and isinstance(test, FunctionType):
                outcomes[name] = _outcome(test)
    except BaseException as reason:  # noqa: BLE001 - SystemExit, too, is what becomes of it
        error = type(reason).__name__
    say({"outcomes": outcomes, "error": error})
    leave(0)


def _outcome(test: FunctionType) -> str:
    try:
        result = test()
        if isinstance(result, CoroutineType):
            import asyncio

            asyncio.run(result)
    except BaseException as reason:  # noqa: BLE001
        name = type(reason).__name__
        return "skipped" if name in _SKIPS else f"failed: {name}"
    return "passed"


main()
