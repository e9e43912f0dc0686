"""`graphbus mcp`: the SDK's own client speaks with a real server, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from graphbus_core.cli.mcp_tools import TOOLS
from graphbus_core.store import ARTIFACTS, MANIFEST

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


def on_stdio(shop: Path, talk: Callable[[Client], Coroutine[Any, Any, None]], *options: str) -> None:
    async def whole() -> None:
        async with asyncio.timeout(120):
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

    on_stdio(shop, talk)


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

    on_stdio(shop, talk, "--allow-write")


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
        ("run_call", {"agent": "--help", "method": "x"}),
    ],
)
def test_an_argument_that_is_unknown_wrong_or_leaves_the_project_is_refused(shop, tmp_path, tool, arguments):
    link = shop / "outside"
    if not link.is_symlink():
        link.symlink_to(tmp_path, target_is_directory=True)

    async def talk(client: Client) -> None:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert document_of(result)["errors"][0]["code"] == "GBE169"

    on_stdio(shop, talk, "--allow-write")


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

    on_stdio(shop, talk)


def test_the_artifacts_are_resources(shop):
    async def talk(client: Client) -> None:
        names = [each.name for each in (await client.list_resources()).resources]
        assert names == [*ARTIFACTS, MANIFEST]
        read = await client.read_resource("graphbus://artifacts/graph.json")
        assert read.contents[0].text == (shop / ".graphbus" / "graph.json").read_text()
        for name in ("../pyproject.toml", "nothing.json"):
            with pytest.raises(MCPError):
                await client.read_resource(f"graphbus://artifacts/{name}")

    on_stdio(shop, talk)


def test_several_calls_at_once_are_answered(shop):
    async def talk(client: Client) -> None:
        results = await asyncio.gather(*(client.call_tool("inspect", {}) for _ in range(6)))
        assert len({json.dumps(document_of(result)) for result in results}) == 1

    on_stdio(shop, talk)


def test_what_is_no_message_does_not_end_the_server(shop):
    words = [sys.executable, "-m", "graphbus_core", "mcp"]
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    lines = f"garbage\n{json.dumps(hello)}\n"
    done = subprocess.run(words, cwd=shop, input=lines, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[-1]["result"]["serverInfo"]["name"] == "graphbus"


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
            assert server.wait(20) in (0, 143, -signal.SIGTERM)
        finally:
            server.kill()


def test_over_http_the_same_tools_answer_with_the_token(shop, http):
    async def talk() -> None:
        headers = {"Authorization": f"Bearer {TOKEN.replace(' ', '-')}"}
        web = httpx2.AsyncClient(headers=headers, timeout=60)
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
