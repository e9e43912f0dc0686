"""The process that runs the graph of `graphbus dev` and `graphbus run --watch`.

    supervisor                          this process
    starts it in advance                imports GraphBus
    Order(options, arguments)     ->    imports the modules of the project
                                  <-    "imported" | "failed", errors
    "go"                          ->    creates and starts the agents
                                  <-    "ready", lines to print and imported modules | "failed", errors
    "proceed"                     ->    makes the calls and events of the options, and keeps running
    any other text                ->    prints it above the line that is being typed
    "end", or the connection ends ->    stops as after SIGTERM

The old process runs until "imported" arrives, so a module that cannot be imported does not stop the graph.
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
"""The code of the process. Its arguments: file descriptor of the connection, modules to import in advance, import path."""


class Order(NamedTuple):
    """The message that tells the process what to run, with `sys.argv` of the supervisor."""

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
        if link.is_ready:  # the supervisor prints only errors of the start
            for each in errors:
                console.print_error(each)
        else:
            for each in errors:
                each.data = {}  # the sentences are complete; the data may contain what cannot be pickled
            link.tell("failed", errors)
        return error.status


def _import_project(options: RunOptions) -> None:
    """Import the modules of the project in advance, except middleware, which is imported when the graph starts."""
    config = runtime.load_runtime_config(options.request())
    artifacts = runtime.load_build_artifacts(config)
    without_middleware = msgspec.structs.replace(config.settings, middleware=())
    runtime.import_modules(artifacts, msgspec.structs.replace(config, settings=without_middleware))
