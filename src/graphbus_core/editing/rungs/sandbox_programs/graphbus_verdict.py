"""The pytest plugin that reports each phase of each test to the watcher, `graphbus_watch.py`.

It is loaded before any conftest.py. Its key lives in a closure, so that code imported later cannot forge reports.
"""

from __future__ import annotations

import os
import sys

import graphbus_trial  # type: ignore[import-not-found,unused-ignore]
import pytest

os.environ.pop("PYTEST_PLUGINS", None)


def _make_plugin() -> object:
    """Connect to the watcher, report the beginning of the run, and return the pytest plugin that reports the rest."""
    send_report = graphbus_trial.connect()
    send_report(["begin"])

    class Reporter:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            """Report a file that cannot be collected, with the last line of its error."""
            if report.failed:
                lines = [line.removeprefix("E ").strip() for line in str(report.longrepr).splitlines()]
                send_report(["uncollected", report.nodeid, ([line for line in lines if line] or ["error"])[-1][:200]])

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            """Report a phase of a test: its outcome, and whether the test is expected to fail."""
            send_report(["phase", report.nodeid, str(report.when), report.outcome, hasattr(report, "wasxfail")])

        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(self, exitstatus: int) -> None:
            """Report the end of the run with its exit status."""
            send_report(["end", int(exitstatus)])

    return Reporter()


def pytest_plugin_registered(manager: pytest.PytestPluginManager) -> None:
    """Register the plugin of `_make_plugin` at the first call, before any conftest.py; later calls do nothing."""
    if _plugin_factory:
        manager.register(_plugin_factory.pop()(), "graphbus")
        sys.modules.pop("graphbus_trial", None)


_plugin_factory = [_make_plugin]  # emptied by the first call, so that project code finds nothing here
