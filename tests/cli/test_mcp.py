"""`graphbus mcp`: the SDK's own client speaks with a real server, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from graphbus_core.cli.mcp_server import Commands, make_server
from graphbus_core.cli.mcp_tools import TOOLS, CommandLine
from graphbus_core.errors import RunError
from graphbus_core.store import ARTIFACTS, MANIFEST
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

EXAMPLES = Path(__file__).parents[2] / "examples"
READING = ["check", "contract_diff", "gate", "inspect", "why", "negotiations"]
TOKEN = "a token for tests that is long enough"


def run(*words: str, cwd: Path, status: int = 0) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop of the examples, built and committed."""
    folder = tmp_path_factory.mktemp("mcp") / "shop"
    shutil.copytree(EXAMPLES / "shop", folder, ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    run(sys.executable, "-m", "graphbus_core", "build", "agents", cwd=folder)
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        run("git", *words, cwd=folder)
    return folder


@asynccontextmanager
async def client_on_stdio(shop: Path, *options: str) -> AsyncIterator[Client]:
    words = ["-m", "graphbus_core", "mcp", *options]
    async with Client(StdioServerParameters(command=sys.executable, args=words, cwd=str(shop))) as client:
        yield client


def document_of(result: CallToolResult) -> Any:
    """Return the document of an answer, which is the same as text and as structured content."""
    (content,) = result.content
    document = json.loads(content.text)  # type: ignore[union-attr]
    assert result.structured_content == (document if isinstance(document, dict) else {"items": document})
    return document


def in_process(shop: Path, talk: Callable[[Client], Coroutine[Any, Any, None]], *options: str) -> None:
    """As `on_stdio`, with the server in this process: quicker where the transport does not matter."""

    async def whole() -> None:
        commands = Commands(shop)
        server = make_server(commands, shop, shop / ".graphbus", may_write="--allow-write" in options)
        try:
            async with asyncio.timeout(PATIENCE_S), Client(server) as client:
                await talk(client)
        finally:
            await commands.close()

    asyncio.run(whole())


def on_stdio(shop: Path, talk: Callable[[Client], Coroutine[Any, Any, None]], *options: str) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            async with client_on_stdio(shop, *options) as client:
                await talk(client)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("check", {}, ["check", "--json"]),
        ("check", {"paths": ["agents/accounts.py"]}, ["check", "--json", "agents/accounts.py"]),
        ("contract_diff", {"old": "HEAD"}, ["contract", "diff", "--json", "HEAD"]),
        ("inspect", {}, ["inspect", "--json"]),
        ("why", {"file": "agents/accounts.py"}, ["why", "--json", "agents/accounts.py"]),
    ],
)
def test_an_answer_is_what_the_command_prints_with_json(shop, tool, arguments, words):
    printed = json.loads(run(sys.executable, "-m", "graphbus_core", *words, cwd=shop))

    async def talk(client: Client) -> None:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error
        assert document_of(result) == printed

    on_stdio(shop, talk)


def test_the_gate_judges_a_text_and_a_patch_that_are_not_written(shop):
    path = shop / "agents" / "accounts.py"
    before = path.read_text()

    async def talk(client: Client) -> None:
        new = before + "\nimport os\nos.system('true')\n"
        refused = document_of(await client.call_tool("gate", {"file": "agents/accounts.py", "new_text": new}))
        assert refused["passed"] is False
        patch = "--- a/agents/accounts.py\n+++ b/agents/accounts.py\n@@ -1,1 +1,1 @@\n-no such line\n+other\n"
        errors = await client.call_tool("gate", {"patch": patch})
        assert errors.is_error
        assert document_of(errors)["errors"][0]["code"].startswith("GBE3")

    on_stdio(shop, talk)
    assert path.read_text() == before


def test_only_reading_is_offered_unless_writing_is_allowed(shop):
    async def talk(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == READING
        for name in ("negotiate", "run_call"):
            with pytest.raises(MCPError, match="--allow-write"):
                await client.call_tool(name, {})

    in_process(shop, talk)


def test_with_allow_write_a_negotiation_and_a_call_are_offered(shop):
    async def talk(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [tool.name for tool in TOOLS]
        assert [tool.name for tool in listed if not tool.annotations.read_only_hint] == ["negotiate", "run_call"]
        plan = await client.call_tool("negotiate", {"model": "rules", "dry_run": True})
        assert not plan.is_error, plan
        called = await client.call_tool("run_call", {"agent": "Nobody", "method": "nothing"})
        assert called.is_error
        assert document_of(called)["errors"][0]["code"].startswith("GBE")

    in_process(shop, talk, "--allow-write")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("check", {"paths": [".."]}),
        ("check", {"paths": ["/etc"]}),
        ("check", {"paths": ["outside"]}),
        ("check", {"paths": "agents"}),
        ("check", {"path": ["agents"]}),
        ("check", {"paths": ["a\0b"]}),
        ("gate", {"file": "../x.py", "new_text": ""}),
        ("why", {"file": "agents/../../x.py"}),
        ("contract_diff", {"old": "../other/.graphbus"}),
        ("contract_diff", {"old": "outside"}),
        ("contract_diff", {}),
        ("negotiate", {"paths": ["/tmp"]}),
        ("negotiate", {"model": "command:touch here"}),
        ("negotiate", {"max_usd": 0}),
        ("inspect", {"agent": "a\0b"}),
        ("inspect", {"agent": "x" * 131_072}),
        ("run_call", {"agent": "Waiting", "method": "wait", "arguments": {"text": "x" * 131_072}}),
        ("run_call", {"agent": "--help", "method": "x"}),
    ],
)
def test_an_argument_that_is_unknown_wrong_or_leaves_the_project_is_refused(shop, tmp_path, tool, arguments):
    link = shop / "outside"
    link.symlink_to(tmp_path, target_is_directory=True)

    async def talk(client: Client) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert document_of(result)["errors"][0]["code"] == "GBE169"

    try:
        in_process(shop, talk, "--allow-write")
    finally:
        link.unlink()


@pytest.mark.parametrize(
    "arguments",
    [
        {"new_text": "import os\n"},
        {"file": "agents/accounts.py"},
        {"file": "agents/accounts.py", "new_text": "", "patch": ""},
        {"patch": "", "against": "HEAD"},
        {"staged": True, "against": "HEAD"},
    ],
)
def test_the_gate_judges_nothing_but_what_was_meant(shop, arguments):
    async def talk(client: Client) -> None:
        result = await client.call_tool("gate", arguments)
        assert result.is_error
        assert document_of(result)["errors"][0]["code"] == "GBE110"

    in_process(shop, talk)


@pytest.mark.parametrize("text", ["--help", "-x", "--output=/tmp/x", "--"])
def test_no_text_becomes_an_option(shop, text):
    async def talk(client: Client) -> None:
        for tool, arguments in (
            ("check", {"paths": [text]}),
            ("contract_diff", {"old": text}),
            ("inspect", {"agent": text}),
            ("negotiations", {"proposal": text}),
            ("gate", {"against": text}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, result)
            assert document_of(result)["errors"], tool

    in_process(shop, talk)


def test_the_artifacts_are_resources(shop):
    async def talk(client: Client) -> None:
        names = [each.name for each in (await client.list_resources()).resources]
        assert names == [*ARTIFACTS, MANIFEST]
        read = await client.read_resource("graphbus://artifacts/graph.json")
        assert read.contents[0].text == (shop / ".graphbus" / "graph.json").read_text()
        for name in ("../pyproject.toml", "nothing.json"):
            with pytest.raises(MCPError):
                await client.read_resource(f"graphbus://artifacts/{name}")

    in_process(shop, talk)


def test_several_calls_at_once_are_answered(shop):
    async def talk(client: Client) -> None:
        results = await asyncio.gather(*(client.call_tool("inspect", {}) for _ in range(6)))
        assert len({json.dumps(document_of(result)) for result in results}) == 1

    in_process(shop, talk)


def test_what_is_no_message_does_not_end_the_server(shop):
    words = [sys.executable, "-m", "graphbus_core", "mcp"]
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    lines = f"garbage\n{json.dumps(hello)}\n"
    done = subprocess.run(words, cwd=shop, input=lines, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[-1]["result"]["serverInfo"]["name"] == "graphbus"


# --- commands that wait, print, die and answer too much -----------------------------------------

AGENT = """
import os, subprocess, time
from pathlib import Path
from graphbus_core import GraphBusNode, schema_method


class Waiting(GraphBusNode):
    @schema_method(input_schema={}, output_schema={"answer": str})
    def wait(self):
        Path("started").write_text(f"{os.getpid()}.")
        time.sleep(60)
        return {"answer": "late"}

    @schema_method(input_schema={}, output_schema={"answer": str})
    def print(self):
        print("printed")
        os.write(1, b"written to the descriptor")
        subprocess.run(["echo", "printed by a child"])
        return {"answer": "right"}

    @schema_method(input_schema={}, output_schema={"answer": str})
    def die(self):
        os.kill(os.getpid(), 9)

    @schema_method(input_schema={}, output_schema={"answer": str})
    def answer_too_much(self):
        return {"answer": "x" * 9_000_000}
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A built project with an agent of which each method is a trouble."""
    write_project(tmp_path, {"pyproject.toml": "[tool.graphbus]\n", "agents/waiting.py": AGENT})
    run(sys.executable, "-m", "graphbus_core", "build", "agents", cwd=tmp_path)
    return tmp_path


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of_command(project: Path) -> int:
    """Wait until `Waiting.wait` has started, and return the id of its process."""
    started = project / "started"
    wait_until(lambda: started.exists() and started.read_text().endswith("."))
    return int(started.read_text()[:-1])


def test_what_code_of_the_project_prints_is_not_in_the_answer(waiting):
    async def talk(client: Client) -> None:
        result = await client.call_tool("run_call", {"agent": "Waiting", "method": "print"})
        assert document_of(result)["calls"][0]["result"] == {"answer": "right"}

    on_stdio(waiting, talk, "--allow-write")


@pytest.mark.parametrize(("method", "reason"), [("die", "exit status -9"), ("answer_too_much", "8,388,608 bytes")])
def test_a_command_without_an_answer_is_an_error_with_the_reason(waiting, method, reason):
    async def talk(client: Client) -> None:
        result = await client.call_tool("run_call", {"agent": "Waiting", "method": method})
        assert result.is_error
        (error,) = document_of(result)["errors"]
        assert error["code"] == "GBE690"
        assert reason in error["message"]
        assert not (await client.call_tool("inspect", {})).is_error

    on_stdio(waiting, talk, "--allow-write")


def test_a_command_that_takes_too_long_is_ended(waiting):
    async def whole() -> None:
        commands = Commands(waiting, limit_s=5.0)
        with pytest.raises(RunError, match="longer than 5 s"):
            await commands.run(CommandLine(("run", "--json", "--call", "Waiting.wait", "{}")))
        await commands.close()

    asyncio.run(whole())
    assert not is_alive(pid_of_command(waiting))


def test_a_call_that_is_cancelled_ends_its_command(waiting):
    async def talk(client: Client) -> None:
        call = asyncio.create_task(client.call_tool("run_call", {"agent": "Waiting", "method": "wait"}))
        pid = await asyncio.to_thread(pid_of_command, waiting)
        call.cancel()
        await asyncio.to_thread(wait_until, lambda: not is_alive(pid))
        assert not (await client.call_tool("inspect", {})).is_error

    on_stdio(waiting, talk, "--allow-write")


def message(method: str, params: dict[str, Any], number: int = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


HELLO = message(
    "initialize",
    {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, "end of input", "client gone"], ids=str)
def test_when_the_server_ends_so_does_what_it_runs(waiting, end):
    """Also calls that wait for others do not start then."""
    words = [sys.executable, "-m", "graphbus_core", "mcp", "--allow-write"]
    with subprocess.Popen(
        words, cwd=waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        try:
            assert server.stdin
            assert server.stdout
            server.stdin.write(HELLO)
            server.stdin.flush()
            server.stdout.readline()
            for number in range(2, 8):
                call = {"name": "run_call", "arguments": {"agent": "Waiting", "method": "wait"}}
                server.stdin.write(message("tools/call", call, number))
            server.stdin.flush()
            pid_of_command(waiting)
            if isinstance(end, signal.Signals):
                server.send_signal(end)
            else:
                if end == "client gone":
                    server.stdout.close()
                    server.stdin.write(message("tools/list", {}, 9))
                server.stdin.close()
            assert server.wait(PATIENCE_S) == 0
            assert server.stderr
            assert server.stderr.read() == b""
        finally:
            server.kill()
    mark = str(waiting).encode()
    left = [each for each in Path("/proc").glob("[0-9]*/cwd") if os.path.realpath(each).encode() == mark]
    assert left == []


def test_a_message_that_is_too_large_ends_the_connection(waiting):
    words = [sys.executable, "-m", "graphbus_core", "mcp"]
    large = HELLO + b'{"x": "' + b"x" * 9_000_000
    done = subprocess.run(words, cwd=waiting, input=large, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
    assert b"more than 8388608 bytes" in done.stderr
    assert b"Traceback" not in done.stderr


def test_no_file_of_the_project_is_imported_in_place_of_a_library(waiting):
    (waiting / "click.py").write_text("open('imported', 'w').close()\n")

    async def talk(client: Client) -> None:
        assert not (await client.call_tool("inspect", {})).is_error

    words = StdioServerParameters(command=sys.executable, args=["-P", "-m", "graphbus_core", "mcp"], cwd=str(waiting))

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Client(words) as client:
            await talk(client)

    asyncio.run(whole())
    assert not (waiting / "imported").exists()


def test_errors_instead_of_an_answer_are_an_error_of_the_tool(shop):
    wrong = shop / "agents" / "wrong.py"
    wrong.write_text("def (\n")
    try:

        async def talk(client: Client) -> None:
            result = await client.call_tool("contract_diff", {"old": "HEAD"})
            assert document_of(result)["errors"][0]["code"] == "GBE201"
            assert result.is_error
            assert not (await client.call_tool("check", {})).is_error

        in_process(shop, talk)
    finally:
        wrong.unlink()


# --- HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
def http(shop: Path) -> Iterator[str]:
    """A server on a free port; its address."""
    words = [sys.executable, "-m", "graphbus_core", "mcp", "--http", "--port", "0"]
    environment = {**os.environ, "GRAPHBUS_TOKEN": TOKEN.replace(" ", "-")}
    with subprocess.Popen(words, cwd=shop, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            line = server.stderr.readline()
            assert "Listening at http://127.0.0.1:" in line, line
            yield line.split()[-1]
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()


def test_over_http_the_same_tools_answer_with_the_token(shop, http):
    async def talk() -> None:
        headers = {"Authorization": f"Bearer {TOKEN.replace(' ', '-')}"}
        web = httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S)
        async with web, Client(streamable_http_client(http, http_client=web)) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == READING
            result = await client.call_tool("inspect", {})
            assert not result.is_error
            assert document_of(result)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong-token-that-is-long"}, 401),
        ({"Authorization": "TOKEN", "Origin": "http://evil.example"}, 403),
        ({"Authorization": "TOKEN", "Host": "evil.example"}, 403),
    ],
)
def test_over_http_others_are_refused(http, headers, status):
    sent = {name: value.replace("TOKEN", f"Bearer {TOKEN.replace(' ', '-')}") for name, value in headers.items()}
    for method in ("POST", "GET", "DELETE"):
        answer = httpx2.request(method, http, headers=sent)
        assert answer.status_code == status
        assert answer.json()["errors"][0]["code"].startswith("GBE67")


def test_a_server_without_a_port_leaves_the_token_of_another_alone(shop, http):
    token = shop / ".graphbus" / "http_token"
    token.write_text("of another server")
    try:
        port = http.rpartition(":")[2].partition("/")[0]
        run(sys.executable, "-m", "graphbus_core", "mcp", "--http", "--port", port, cwd=shop, status=7)
        assert token.read_text() == "of another server"
    finally:
        token.unlink()


def test_when_the_http_server_ends_so_does_what_it_runs(waiting):
    words = [sys.executable, "-m", "graphbus_core", "mcp", "--http", "--port", "0", "--allow-write"]
    token = TOKEN.replace(" ", "-")
    environment = {**os.environ, "GRAPHBUS_TOKEN": token}

    async def talk(address: str) -> None:
        web = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)
        async with web, Client(streamable_http_client(address, http_client=web)) as client:
            call = asyncio.create_task(client.call_tool("run_call", {"agent": "Waiting", "method": "wait"}))
            await asyncio.to_thread(pid_of_command, waiting)
            server.send_signal(signal.SIGTERM)
            with suppress(MCPError):
                assert (await call).is_error

    with subprocess.Popen(words, cwd=waiting, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            address = server.stderr.readline().split()[-1]
            with suppress(Exception):  # the client learns in one way or another that the server is gone
                asyncio.run(talk(address))
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
    assert not is_alive(pid_of_command(waiting))
