"""What the process does that runs the graph of `graphbus dev` and `graphbus run --watch`; `SupervisorLink` has the messages."""

from __future__ import annotations

import gc
import signal
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NamedTuple

import msgspec

from graphbus_core import collector, runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.execution import Failed, Imported, RunOptions, SupervisorLink, request_of, run_graph_here
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.hosting.signals import Stopped

COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from graphbus_core import collector
collector.rest()
from graphbus_core.cli.running.supervised import main
sys.exit(main())
"""
"""What its interpreter runs, followed by the connection, the modules to import ahead, and the supervisor's import path."""


class Order(NamedTuple):
    """What to run, and what was typed."""

    options: RunOptions
    arguments: list[str]


def main() -> int:
    """Run one graph, and give the exit status of the process."""
    # Ctrl-C reaches all processes of a terminal. Until the graph starts, the supervisor decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.dont_write_bytecode = True  # bytecode is told from newer source by the second, which is too coarse here
    handle, modules = sys.argv[1:3]
    supervisor = SupervisorLink(Connection(int(handle)))
    for name in modules.split():
        import_module(name)
    collector.resume()
    try:
        return _run(supervisor)
    except Stopped:
        return 0
    except GraphBusError as error:
        supervisor.tell(Failed(_portable(error)))
        return error.status
    finally:
        gc.freeze()  # the new process waits for the end of this one, most of which would be a last search for garbage


def _run(supervisor: SupervisorLink) -> int:
    console.begin()
    order: Order = supervisor.wait()
    sys.argv[:] = order.arguments
    _import_project(order.options)
    supervisor.tell(Imported())
    supervisor.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What is imported is what was built, whatever has been saved since.
    return run_graph_here(msgspec.structs.replace(order.options, allow_drift=True), supervisor)


def _import_project(options: RunOptions) -> None:
    """Import what the graph will import; middleware is made once, when it starts."""
    config = runtime.load_runtime_config(request_of(options))
    artifacts = runtime.load_build_artifacts(config)
    bare = msgspec.structs.replace(config.settings, middleware=())
    runtime.import_modules(artifacts, msgspec.structs.replace(config, settings=bare))


def _portable(error: GraphBusError) -> tuple[GraphBusError, ...]:
    """The errors without the data of their sentences, which may be anything."""
    errors = error.errors if isinstance(error, SeveralErrors) else (error,)
    for each in errors:
        each.data = {}
    return errors
