"""The pytest plugin that tells the watcher of each phase of each test, and whether pytest itself is still what it was.

Loaded before any conftest.py. Its key lives in a closure; what is imported later finds no name that leads to it.
"""

from __future__ import annotations

import os
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

import graphbus_line  # type: ignore[import-not-found,unused-ignore]
import pytest

os.environ.pop("PYTEST_PLUGINS", None)
_WATCHED = ("builtins", "json", "os", "posix", "pluggy", "pytest", "sys", "unittest", "_pytest")
_KINDS = (FunctionType, BuiltinFunctionType, classmethod, staticmethod, property, type)


def _seen() -> dict[str, tuple[object, object]]:
    """Give every function and class of pytest and of what it stands on, with its code."""
    found: dict[str, tuple[object, object]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _WATCHED and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, _KINDS) and not attribute.endswith("hook"):
                    found[f"{name}.{attribute}"] = (value, getattr(value, "__code__", None))
                if isinstance(value, type) and value.__module__ == name:
                    for inner, method in list(vars(value).items()):
                        if isinstance(method, _KINDS):
                            found[f"{name}.{attribute}.{inner}"] = (method, getattr(method, "__code__", None))
    return found


def _plugin() -> object:
    say = graphbus_line.connect()
    before = _seen()
    changed: set[str] = set()
    say(["begin"])

    def compare() -> None:
        now = _seen()
        for name, (value, code) in before.items():
            there = now.get(name)
            if there is None or there[0] is not value or there[1] is not code:
                changed.add(name)

    class Verdict:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                lines = [line.removeprefix("E ").strip() for line in str(report.longrepr).splitlines()]
                say(["uncollected", report.nodeid, ([line for line in lines if line] or ["error"])[-1][:200]])

        def pytest_collection_finish(self) -> None:
            compare()  # again at the end; pytest changes a little itself, as it does without the change

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            say(["phase", report.nodeid, str(report.when), report.outcome, hasattr(report, "wasxfail")])

        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(self, exitstatus: int) -> None:
            compare()
            say(["end", int(exitstatus), sorted(changed)[:1000]])

    return Verdict()


def pytest_configure(config: pytest.Config) -> None:
    """Take part under a name; the module itself is forgotten."""
    sys.modules.pop("graphbus_line", None)
    config.pluginmanager.register(_made.pop(), "graphbus")


_made = [_plugin()]
