"""The MCP server: the only module that imports the SDK. A tool runs a command of GraphBus in a child process.

So an answer is the very document that the command prints with `--json`, code of the project cannot write into the connection, and
a call that takes too long is ended with all that it has started.

The event loop runs on a daemon thread, because nothing interrupts a thread that reads stdin. The main thread waits for signals.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, cast

import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from graphbus_core import __version__
from graphbus_core.cli.console import error_as_json
from graphbus_core.cli.mcp_tools import TOOLS, CommandLine, McpTool, command_of
from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.hosting.serving.address import RequestGuard, find_token
from graphbus_core.hosting.serving.server import HttpServer, open_listener
from graphbus_core.hosting.signals import SignalHandler, StopRequested, stop_on_signals, wait_for_signal
from graphbus_core.log import Log
from graphbus_core.model.config import ServeConfig
from graphbus_core.store import ARTIFACTS, MANIFEST
from graphbus_core.store.folders import read_plain

_MOST_CALLS = 4
"""How many commands run at the same time; further calls wait."""
_LIMIT_S = 1800.0
_GRACE_S = 1.0
"""How long an interrupted command may take to end what it has started; clients kill a server after two seconds."""
_MOST_BYTES = 8 * 1024 * 1024
"""The size of the largest answer, and of the largest message on stdin."""
_SCHEME = "graphbus://artifacts/"

_log = Log("graphbus.mcp")


class Commands:
    """Runs commands of GraphBus in a project, each in a process and session of its own, `_MOST_CALLS` at the same time.

    Args:
        root: The folder in which they run.
        limit_s: How long a command may take.
    """

    def __init__(self, root: Path, limit_s: float = _LIMIT_S) -> None:
        self._root = root
        self._limit_s = limit_s
        self._slots = asyncio.Semaphore(_MOST_CALLS)
        self._running: set[Process] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def run(self, command: CommandLine) -> tuple[int, str]:
        """Run a command; return its exit status and its JSON document. When cancelled, it is interrupted.

        Raises:
            RunError: GBE690, it has printed no document, or one that is too large, or took too long.
        """
        async with self._slots:
            self._loop = asyncio.get_running_loop()
            if self._is_closed:
                raise RunError("GBE690", command=command.words[0], reason="the server is stopping")
            process = await self._start(command)
            self._running.add(process)
            try:
                async with asyncio.timeout(self._limit_s):
                    output = await _read_answer(process, command)
                    status = await process.wait()
            except TimeoutError:
                reason = f"it took longer than {self._limit_s:g} s"
                raise RunError("GBE690", command=command.words[0], reason=reason) from None
            finally:
                # A task of its own: within a cancelled scope of the SDK every `await` is cancelled at once.
                ending = asyncio.create_task(self._end(process))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
        if not output:
            raise RunError("GBE690", command=command.words[0], reason=f"it ended with exit status {status}")
        return status, output.decode(errors="replace")

    async def _start(self, command: CommandLine) -> Process:
        """Start a command. With `-P` no file of the project is imported in place of a library."""
        with TemporaryFile() as stdin:
            stdin.write(command.stdin.encode(errors="replace"))
            stdin.seek(0)
            words = [sys.executable, "-P", "-m", "graphbus_core", *command.words]
            quiet, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
            return await asyncio.create_subprocess_exec(
                *words, cwd=self._root, stdin=stdin, stdout=pipe, stderr=quiet, start_new_session=True
            )

    async def _end(self, process: Process) -> None:
        """Interrupt a command, which ends what it runs in a sandbox, and kill what is left in its group after the grace."""
        with suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                if process.returncode is None:
                    process.send_signal(signal.SIGINT)
                await process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        transport: Any = process._transport  # type: ignore[attr-defined]  # asyncio closes it some turns later, if at all
        transport.close()
        await asyncio.sleep(0)
        self._running.discard(process)

    async def close(self) -> None:
        """End all commands, and wait for that; no other is started."""
        self._is_closed = True
        await asyncio.gather(*self._ending, *(self._end(process) for process in self._running))

    def close_from_outside(self) -> None:
        """End all commands; from another thread than that of the event loop."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self.close(), self._loop).result(2 * _GRACE_S)


async def _read_answer(process: Process, command: CommandLine) -> bytes:
    """Return what a command prints on stdout; RunError (GBE690) if that is too large."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        await process.stdout.readexactly(_MOST_BYTES + 1)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise RunError("GBE690", command=command.words[0], reason=f"its answer has more than {_MOST_BYTES:,} bytes")


def make_server(commands: Commands, root: Path, artifacts: Path, *, may_write: bool) -> Server[Any]:
    """Return the server of one project.

    Args:
        commands: What runs the tools.
        root: The project; no path of an argument may leave it.
        artifacts: Its artifact folder.
        may_write: Offer the tools that change files or run code of the project, too.
    """
    tools = {tool.name: tool for tool in TOOLS if may_write or not tool.writes}

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(tool) for tool in tools.values()])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            closed = next((each.name for each in TOOLS if each.name == params.name), "")
            advice = " It needs `graphbus mcp --allow-write`." if closed else ""
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name}.{advice}")
        try:
            status, output = await commands.run(command_of(tool, params.arguments or {}, root))
        except GraphBusError as error:
            return _as_result(json.dumps({"errors": [error_as_json(error)]}), is_error=True)
        return _as_result(output, is_error=status not in (0, 3))  # 3: there are findings

    async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
        names = [name for name in (*ARTIFACTS, MANIFEST) if (artifacts / name).is_file()]
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=f"{_SCHEME}{name}", name=name, mime_type="application/json") for name in names
            ]
        )

    async def read_resource(_context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        name = str(params.uri).removeprefix(_SCHEME)
        if name not in (*ARTIFACTS, MANIFEST):
            raise MCPError(types.INVALID_PARAMS, f"There is no resource {params.uri}.")
        try:
            text = read_plain(artifacts / name).decode()
        except (OSError, UnicodeDecodeError):
            raise MCPError(types.INVALID_PARAMS, f"{name} cannot be read; `graphbus build` writes it.") from None
        content = types.TextResourceContents(uri=str(params.uri), mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[content])

    return Server(
        "graphbus",
        version=__version__,
        instructions="Agents of this project exchange typed events and calls. Judge a change with `gate` before you make it.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _describe(tool: McpTool) -> types.Tool:
    annotations = types.ToolAnnotations(read_only_hint=not tool.writes)
    return types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=annotations)


def _as_result(output: str, *, is_error: bool) -> types.CallToolResult:
    """Return a document as the answer of a tool, as text and as structured content; one with errors only is an error."""
    document: Any = None
    with suppress(ValueError):
        document = json.loads(output)
    structured = document if isinstance(document, dict) else {"items": document}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=output)],
        structured_content=structured if document is not None else None,
        is_error=is_error or (isinstance(document, dict) and document.keys() == {"errors"}),
    )


def serve_stdio(root: Path, artifacts: Path, *, may_write: bool) -> None:
    """Serve on stdin and stdout until stdin ends or a signal comes. The SDK turns descriptor 1 to stderr, so that nothing else
    gets into it."""
    commands, lines = Commands(root), _read_lines()
    server = make_server(commands, root, artifacts, may_write=may_write)

    async def serve() -> None:
        try:
            async with stdio_server(stdin=cast(Any, lines)) as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())
        finally:
            await commands.close()

    def serve_and_stop() -> None:
        try:
            asyncio.run(serve())
        except* BrokenPipeError:
            pass  # the client is gone
        finally:
            signals.request_stop()

    with _until_signal(commands) as signals:
        Thread(target=serve_and_stop, name="graphbus-mcp", daemon=True).start()


@contextmanager
def _until_signal(commands: Commands) -> Iterator[SignalHandler]:
    """After the block, wait until SIGTERM or SIGINT comes, and end all commands."""
    with stop_on_signals() as signals:
        signals.is_busy = lambda: False
        with suppress(StopRequested):
            yield signals
            wait_for_signal()
        commands.close_from_outside()


async def _read_lines() -> AsyncIterator[str]:
    """Yield the lines of stdin, until it ends or a line is longer than `_MOST_BYTES`."""
    stdin = open(0, "rb", closefd=False)  # noqa: SIM115, ASYNC230 - open as long as the process lives
    while line := await anyio.to_thread.run_sync(stdin.readline, _MOST_BYTES + 1):
        if len(line) > _MOST_BYTES:
            _log.error("the connection is closed, because a message has more than %d bytes", _MOST_BYTES)
            return
        yield line.decode(errors="replace")


def serve_http(root: Path, artifacts: Path, port: int, say: Callable[[str], object], *, may_write: bool) -> None:
    """Serve streamable HTTP on this machine until a signal comes; `say` gets a line about the address, and one about a new token.

    Raises:
        RunError: GBE672, the address cannot be used.
        UsageError: GBE156, the token cannot be used.
    """
    config, commands = ServeConfig(port=port), Commands(root)
    listener = open_listener(config.host, port)
    token = find_token(config, root, artifacts)  # only now: the token file may belong to a server on the same port
    server = make_server(commands, root, artifacts, may_write=may_write)
    app = _guarded(server.streamable_http_app(json_response=True), RequestGuard(config, token.text))
    running = HttpServer(app, config, listener, has_lifespan=True)
    with _until_signal(commands):
        running.start()
        say(f"Listening at http://{config.host}:{listener.getsockname()[1]}/mcp")
        if token.notice:
            say(token.notice)
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
