"""The pytest plugin that tells the watcher of each phase of each test, and whether pytest itself is still what it was.

Loaded before any conftest.py. Its key lives in a closure; what is imported later finds no name that leads to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import graphbus_seen  # type: ignore[import-not-found,unused-ignore]
import graphbus_trial  # type: ignore[import-not-found,unused-ignore]
import pytest

os.environ.pop("PYTEST_PLUGINS", None)


def _plugin(manager: pytest.PytestPluginManager) -> object:
    say = graphbus_trial.connect()
    named = graphbus_seen.named
    seen = graphbus_seen.Seen()
    seen.watch(manager)
    say(["begin"])

    class Verdict:
        def pytest_plugin_registered(self, plugin: object) -> None:
            if not str(getattr(plugin, "__file__", "")).endswith("conftest.py"):
                seen.changed.add(f"the plugin {named(plugin)}")  # as the honest ones are, without the change

        @pytest.hookimpl(tryfirst=True)
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                lines = [line.removeprefix("E ").strip() for line in str(report.longrepr).splitlines()]
                say(["uncollected", report.nodeid, ([line for line in lines if line] or ["error"])[-1][:200]])

        def pytest_collection_finish(self) -> None:
            seen.compare()  # again at the end; pytest changes a little itself, as it does without the change

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seen.glance()
            say(["phase", report.nodeid, str(report.when), report.outcome, hasattr(report, "wasxfail")])

        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(self, exitstatus: int) -> None:
            seen.compare()
            say(["end", int(exitstatus), sorted(seen.changed)[:2000]])

    manager.register(_functions(seen), "graphbus functions")
    return Verdict()


def _functions(seen: graphbus_seen.Seen) -> object:
    """Give what compares the functions of tests and fixtures with what they were when they were found."""

    fixtures_of = graphbus_seen.fixtures_of

    class Functions:
        def pytest_collectstart(self, collector: pytest.Collector) -> None:
            for fixture in fixtures_of(getattr(collector.session, "_fixturemanager", None)):
                seen.remember(fixture, fixture.func)

        def pytest_itemcollected(self, item: pytest.Item) -> None:
            seen.remember(item, getattr(item, "obj", None))

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
            seen.check(item, getattr(item, "obj", None), f"the function of a test ({type(item).__name__})")
            yield

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
            seen.check(fixturedef, fixturedef.func, "the function of a fixture")
            yield

    return Functions()


def pytest_plugin_registered(manager: pytest.PytestPluginManager) -> None:
    """Take part under a name as soon as we are known, before any conftest.py; the module itself is forgotten."""
    if _make:
        manager.register(_make.pop()(manager), "graphbus")
        sys.modules.pop("graphbus_trial", None)
        sys.modules.pop("graphbus_seen", None)


_make = [_plugin]
