"""The code of ours that runs inside the sandbox, next to the project's. It imports nothing of GraphBus but what agents import."""

from __future__ import annotations

PLUGIN_NAME = "graphbus_verdict"
REPORT = "GRAPHBUS_VERDICT"

IMPORT = """\
import importlib, json, os, sys
report, token, work = sys.argv[1:4]
del sys.argv[1:]
roots, modules = json.loads(work)
sys.path[:0] = roots
open_, dumps, loads = open, json.dumps, importlib.import_module
from graphbus_core.node import GraphBusNode
nodes, errors = {}, {}
for name in modules:
    try:
        module = loads(name)
        nodes[name] = sorted(
            value.__name__ for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, GraphBusNode) and value.__module__ == name
        )
    except BaseException as error:
        errors[name] = f"{type(error).__name__}: {error}"[:500]
with open_(report, "w") as file:
    file.write(token + "\\n" + dumps({"nodes": nodes, "errors": errors}))
os._exit(0)
"""

PLUGIN = '''\
"""Writes that pytest has begun, and then the outcome of each test, where the sandbox's owner looks for it."""
import json, os
import pytest

token, _, report = os.environ.pop("GRAPHBUS_VERDICT").partition(":")
os.environ.pop("PYTEST_PLUGINS", None)
outcomes, uncollected = {}, {}
rank = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


def tell(text):
    with open(report, "w") as file:
        file.write(token + "\\n" + text)


tell(json.dumps({"outcomes": None, "uncollected": {}}))


def pytest_collectreport(report):
    if report.failed:
        lines = [line.removeprefix("E ").strip() for line in str(report.longrepr).splitlines()]
        uncollected[report.nodeid] = ([line for line in lines if line] or ["error"])[-1][:200]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    outcome = "error" if report.failed and report.when != "call" else report.outcome
    if outcome == "passed" and report.when != "call":
        return
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.skipped else "xpassed"
    was = outcomes.get(report.nodeid)
    if was is None or rank.get(outcome, 1) > rank.get(was, 1):
        outcomes[report.nodeid] = outcome


def pytest_sessionfinish(session, exitstatus):
    tell(json.dumps({"outcomes": outcomes, "uncollected": uncollected}))
'''
