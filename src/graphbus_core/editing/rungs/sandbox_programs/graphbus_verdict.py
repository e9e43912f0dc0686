"""The pytest plugin that reports each phase of each test to the watcher, `graphbus_watch.py`.

It is loaded before any conftest.py. Its key lives in a closure, so that code imported later cannot forge reports.
"""

from __future__ import annotations

import os
import sys

import graphbus_trial  # type: ignore[import-not-found,unused-ignore]
import pytest

os.environ.pop("PYTEST_PLUGINS", None)


def _plugin() -> object:
    """Connect to the watcher, and return the plugin."""
    say = graphbus_trial.connect()
    say(["begin"])

    class Reporter:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                lines = [line.removeprefix("E ").strip() for line in str(report.longrepr).splitlines()]
                say(["uncollected", report.nodeid, ([line for line in lines if line] or ["error"])[-1][:200]])

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            say(["phase", report.nodeid, str(report.when), report.outcome, hasattr(report, "wasxfail")])

        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(self, exitstatus: int) -> None:
            say(["end", int(exitstatus)])

    return Reporter()


def pytest_plugin_registered(manager: pytest.PytestPluginManager) -> None:
    """Register the real plugin, once and before any conftest.py, and remove its helper from `sys.modules`."""
    if _make:
        manager.register(_make.pop()(), "graphbus")
        sys.modules.pop("graphbus_trial", None)


_make = [_plugin]
