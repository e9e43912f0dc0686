"""`graphbus view`: show a trace, artifacts, a session or a ledger on a page, until Ctrl-C."""

from __future__ import annotations

import click

from graphbus_core.cli import console
from graphbus_core.hosting.signals import StopRequested, stop_on_signals, wait_for_signal
from graphbus_core.model.config import ServeConfig


@click.command("view", short_help="Show a trace, a build, a session or a ledger on a page.")
@click.argument("path", metavar="[PATH]", default=".graphbus")
@click.argument("other", metavar="[OTHER]", default="")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="The address to listen on (127.0.0.1).")
@click.option("--port", default=0, type=click.IntRange(0, 65535), metavar="PORT", help="The port (any free one).")
def view(*, path: str, other: str, host: str, port: int) -> int:
    """Show PATH on a page that only this machine can open, until Ctrl-C. PATH is a folder with artifacts (.graphbus by
    default), a trace, the folder or the name of a session, an SQLite ledger, or the address nats://HOST:PORT/APP of one
    on NATS. With OTHER, a second trace or folder with artifacts, the page compares the two.

    Nothing is changed. A running graph is shown with `graphbus run --serve --view`, or by `graphbus dev`.

    Exit status: 0 stopped by Ctrl-C; 2 there is no such path; 6 the artifacts are damaged or outdated; 7 the ledger
    cannot be reached, or packages are missing.

    \b
    Examples:
      graphbus view
      graphbus view .graphbus/state/trace.jsonl
      graphbus view S001
      graphbus view nats://127.0.0.1:4222/orders
      graphbus view before/trace.jsonl .graphbus/state/trace.jsonl
    """
    from graphbus_core.hosting.serving.companion import serve_pages
    from graphbus_core.view.opening import open_source
    from graphbus_core.view.pages import ViewPages

    pages = ViewPages(open_source(path, other))
    try:
        with stop_on_signals(), serve_pages(pages, ServeConfig(host=host, port=port), "graphbus view") as address:
            console.print_line(f"View at {address}")
            console.print_note("Ctrl-C ends it.")
            console.flush()
            wait_for_signal()
    except StopRequested:
        return 0
    return 0
