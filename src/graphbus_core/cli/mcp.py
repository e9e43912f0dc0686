"""`graphbus mcp`: offers check, gate and the rest to coding agents over the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.hosting.imports import require_packages


@click.command("mcp", short_help="Offer check, gate and more to coding agents over MCP.")
@click.option("--allow-write", is_flag=True, help="Offer negotiate and run_call, too.")
@click.option("--http", "is_http", is_flag=True, help="Serve HTTP on 127.0.0.1 instead of stdio.")
@click.option("--port", default=8766, type=click.IntRange(0, 65535), metavar="PORT", help="The port of --http (8766).")
def mcp(*, allow_write: bool, is_http: bool, port: int) -> int:
    """Serve the Model Context Protocol, so that a coding agent can ask about this project: check, contract_diff, gate,
    inspect, why, negotiations. The artifacts are resources. The project is that of the working directory.

    An answer is the document that the command of the same name prints with --json. Paths outside of the project are
    refused. With --allow-write there are also negotiate, which changes source files, and run_call, which runs your code.

    With --http each request needs the token in $GRAPHBUS_TOKEN; without this variable a new one is shown.

    Exit status: 0 the client has left, or a signal came; 2 wrong usage; 7 the extra `mcp` is missing, or the port is taken.

    \b
    Examples:
      graphbus mcp
      graphbus mcp --allow-write
      graphbus mcp --http --port 8766
    """
    require_packages("graphbus mcp", ("mcp",), extra="mcp")
    from graphbus_core.cli.mcp_server import serve_http, serve_stdio

    root = settings.find_root([Path()])
    found = settings.load(root)
    artifacts = Path(root, found.artifacts)
    if is_http:
        serve_http(Path(root), artifacts, port, console.print_note, may_write=allow_write)
    else:
        serve_stdio(Path(root), artifacts, may_write=allow_write)
    return 0
