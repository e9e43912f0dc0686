"""A program on a real NATS server represents an agent, through `graphbus relay`."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest

from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.model.config import AgentProgram, ResolvedBuild
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conformance import Conformance, Kit
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.sample_question import sample_question_for
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.protocol import agent

pytestmark = pytest.mark.slow


@contextmanager
def program_on(url: str, name: str) -> Iterator[None]:
    """Let agent.py answer on the subjects of an agent until the block ends."""
    ready, done = threading.Event(), threading.Event()

    async def listen() -> None:
        connection = await nats.connect(url)

        async def take(message: nats.aio.msg.Msg) -> None:
            asked = json.loads(message.data)
            if "id" in asked:
                await message.respond(json.dumps(agent.answer_to(asked)).encode())

        await connection.subscribe(f"gbnp.*.{name}.*", cb=take)
        await connection.flush()
        ready.set()
        await asyncio.to_thread(done.wait)
        await connection.close()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join(10)


def start(url: str, root: Path, **limits: float) -> Program:
    sandbox = choose_sandbox("jail", root)
    assert sandbox
    command = (sys.executable, "-m", "graphbus_core", "relay", url)
    return Program(AgentProgram(command=command, network=True, **limits), root, sandbox, 10.0)  # type: ignore[arg-type]


def conform(url: str, root: Path) -> Conformance:
    with sample_question_for(ResolvedBuild(root=str(root), paths=(str(root),)), "Stock") as sample:
        return Kit("Stock", "member", (sample.view, sample.trial), lambda _note: start(url, root)).run(
            seed=1, examples=6
        )


def test_a_complete_program_on_nats_passes_every_requirement(tmp_path):
    with NatsServer(NEWEST, tmp_path / "nats") as server, program_on(server.url(), "Stock"):
        found = conform(server.url(), tmp_path)
    assert found.failures == ()
    assert {*found.verdicts.values()} == {"pass"}


def test_nobody_on_nats_is_told_soon_and_by_name(tmp_path):
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        program = start(server.url(), tmp_path)
        try:
            with pytest.raises(BreachError, match=r"no program answers on gbnp[.].*[.]Stock[.]hello"):
                program.ask(
                    "agent/hello",
                    {"protocol": 1, "schema": "1.0", "host": "h", "agent": "Stock", "role": "member"},
                )
        finally:
            program.kill()
