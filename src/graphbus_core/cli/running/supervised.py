"""The process that runs the graph of `graphbus dev` and `graphbus run --watch`.

    supervisor                          this process
    (starts it ahead)                   imports GraphBus
    Order(options, arguments)     ->    imports the modules of the project
                                  <-    "imported" | "failed", errors
    "go"                          ->    makes and starts the agents
                                  <-    "ready", lines for a person | "failed", errors
    "proceed"                     ->    does what the options ask for, and stays up
    text                          ->    writes it above the line that is being typed
    "end", or it is gone          ->    stops as after SIGTERM

Everything up to "imported" happens while the old process still runs, so a module that cannot be imported does no harm.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NamedTuple

import msgspec

from graphbus_core import collector, runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.execution import Link, RunOptions, run_graph_here
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.hosting.signals import StopRequested

COMMAND = """
import sys
sys.path[:] = sys.argv[3:]
from graphbus_core import collector
collector.pause()
from graphbus_core.cli.running.supervised import main
sys.exit(main())
"""
"""What its interpreter runs, followed by the connection, the modules to import ahead, and the supervisor's import path."""


class Order(NamedTuple):
    """What to run, and the arguments of the original command line."""

    options: RunOptions
    arguments: list[str]


def main() -> int:
    """Run one graph, and return the exit status of the process."""
    # Ctrl-C reaches all processes of a terminal. Until the graph starts, only the supervisor reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.dont_write_bytecode = (
        True  # Python compares bytecode and source by whole seconds, which is too coarse for quick saves
    )
    link = Link(Connection(int(sys.argv[1])))
    for name in sys.argv[2].split():
        import_module(name)
    collector.resume()
    console.prepare_streams()
    try:
        order: Order = link.receive()
        sys.argv[:] = order.arguments
        _import_project(order.options)
        link.tell("imported")
        link.receive()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return run_graph_here(order.options, link)
    except StopRequested:
        return 0
    except GraphBusError as error:
        errors = tuple(error.errors) if isinstance(error, SeveralErrors) else (error,)
        if link.is_ready:  # the supervisor shows only why the graph does not start
            for each in errors:
                console.print_error(each)
        else:
            for each in errors:
                each.data = {}  # the sentences are formatted already; the data may not be picklable
            link.tell("failed", errors)
        return error.status


def _import_project(options: RunOptions) -> None:
    """Import the modules of the project ahead of the start; middleware is not imported yet."""
    config = runtime.load_runtime_config(options.request())
    artifacts = runtime.load_build_artifacts(config)
    bare = msgspec.structs.replace(config.settings, middleware=())
    runtime.import_modules(artifacts, msgspec.structs.replace(config, settings=bare))
