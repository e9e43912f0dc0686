"""The MCP server: the only module that imports the SDK. A tool runs a command of GraphBus in a child process.

So an answer is the very document that the command prints with `--json`, code of the project cannot write into the connection, and
a call that takes too long is ended with all that it has started.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from graphbus_core import __version__
from graphbus_core.cli.console import error_as_json
from graphbus_core.cli.mcp_tools import TOOLS, CommandLine, McpTool, command_of
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.serving.address import RequestGuard, Token
from graphbus_core.hosting.serving.server import HttpServer, open_listener
from graphbus_core.model.config import ServeConfig
from graphbus_core.store import ARTIFACTS, MANIFEST
from graphbus_core.store.folders import read_plain

_MOST_CALLS = 4
"""How many commands run at the same time; further calls wait."""
_LIMIT_S = 1800.0
_FOUND = (0, 3)
"""The exit statuses of an answer: without findings, and with some."""
_SCHEME = "graphbus://artifacts/"


def make_server(root: Path, artifacts: Path, *, may_write: bool) -> Server[Any]:
    """Return the server of one project.

    Args:
        root: The project; no path of an argument may leave it.
        artifacts: Its artifact folder.
        may_write: Offer the tools that change files or run code of the project, too.
    """
    tools = {tool.name: tool for tool in TOOLS if may_write or not tool.writes}
    slots = asyncio.Semaphore(_MOST_CALLS)

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_describe(tool) for tool in tools.values()])

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            closed = next((each.name for each in TOOLS if each.name == params.name), "")
            advice = " It needs `graphbus mcp --allow-write`." if closed else ""
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name}.{advice}")
        try:
            command = command_of(tool, params.arguments or {}, root)
        except GraphBusError as error:
            return _as_result(json.dumps({"errors": [error_as_json(error)]}), is_error=True)
        async with slots:
            status, output = await _run(command, root)
        return _as_result(output, is_error=status not in _FOUND)

    async def list_resources(_context: Any, _params: Any) -> ListResourcesResult:
        names = [name for name in (*ARTIFACTS, MANIFEST) if (artifacts / name).is_file()]
        return ListResourcesResult(
            resources=[Resource(uri=f"{_SCHEME}{name}", name=name, mime_type="application/json") for name in names]
        )

    async def read_resource(_context: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        name = str(params.uri).removeprefix(_SCHEME)
        if name not in (*ARTIFACTS, MANIFEST):
            raise MCPError(INVALID_PARAMS, f"There is no resource {params.uri}.")
        try:
            text = read_plain(artifacts / name).decode()
        except (OSError, UnicodeDecodeError):
            raise MCPError(INVALID_PARAMS, f"{name} cannot be read; `graphbus build` writes it.") from None
        content = TextResourceContents(uri=str(params.uri), mime_type="application/json", text=text)
        return ReadResourceResult(contents=[content])

    return Server(
        "graphbus",
        version=__version__,
        instructions="Agents of this project exchange typed events and calls. Judge a change with `gate` before you make it.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _describe(tool: McpTool) -> Tool:
    annotations = ToolAnnotations(read_only_hint=not tool.writes)
    return Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=annotations)


def _as_result(output: str, *, is_error: bool) -> CallToolResult:
    """Return a document as the answer of a tool, as text and as structured content."""
    document: Any = None
    with suppress(ValueError):
        document = json.loads(output)
    structured = document if isinstance(document, dict) else {"items": document}
    return CallToolResult(
        content=[TextContent(type="text", text=output)],
        structured_content=structured if document is not None else None,
        is_error=is_error,
    )


async def _run(command: CommandLine, root: Path) -> tuple[int, str]:
    """Run a command of GraphBus; return its exit status and what it prints on stdout. When cancelled, it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "graphbus_core",
        *command.words,
        cwd=root,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            output, _ = await process.communicate(command.stdin.encode())
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode or 0, output.decode(errors="replace")


def serve_stdio(root: Path, artifacts: Path, *, may_write: bool) -> None:
    """Serve on stdin and stdout until stdin ends. The SDK turns descriptor 1 to stderr, so that nothing else gets into it."""

    async def serve() -> None:
        server = make_server(root, artifacts, may_write=may_write)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(serve())


def serve_http(
    root: Path, artifacts: Path, port: int, token: Token, say: Callable[[str], object], *, may_write: bool
) -> None:
    """Serve streamable HTTP on this machine until the process is interrupted.

    Args:
        root: The project.
        artifacts: Its artifact folder.
        port: The port; 0: any free one.
        token: What requests must carry.
        say: Called with a line about the address, and one about a new token.
        may_write: As for `make_server`.

    Raises:
        RunError: GBE672, the address cannot be used.
    """
    config = ServeConfig(port=port)
    listener = open_listener(config.host, port)
    server = make_server(root, artifacts, may_write=may_write)
    app = _guarded(server.streamable_http_app(json_response=True), RequestGuard(config, token.text))
    running = HttpServer(app, config, listener, has_lifespan=True)
    running.start()
    say(f"Listening at http://{config.host}:{listener.getsockname()[1]}/mcp")
    if token.notice:
        say(token.notice)
    try:
        Event().wait()
    finally:
        running.stop()


def _guarded(app: Any, guard: RequestGuard) -> Callable[..., Any]:
    """Return an ASGI application that refuses requests without the token, or for another host or origin."""

    async def guarded(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            try:
                guard.check("POST", scope["path"], headers)
            except GraphBusError as error:
                body = json.dumps({"errors": [error_as_json(error)]}).encode()
                status = 401 if error.code == "GBE673" else 403
                head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
                head += [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send({"type": "http.response.start", "status": status, "headers": head})
                await send({"type": "http.response.body", "body": body})
                return
        await app(scope, receive, send)

    return guarded
