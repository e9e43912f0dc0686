"""A program on a real NATS server represents an agent, through `graphbus relay`."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.llm.client import Clients, ScriptedClient
from graphbus_core.model.config import AgentProgram, BuildConfig, ResolvedBuild
from graphbus_core.model.messages import Event
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conformance import Conformance, Kit
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.sample_question import sample_question_for
from graphbus_core.settings import resolve_build
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.protocol import agent
from tests.protocol.test_sessions import PERL, failures_of, negotiate, shop

pytestmark = [pytest.mark.slow, pytest.mark.measures_children]
__all__ = ["shop"]  # a fixture


@contextmanager
def program_on(
    url: str,
    name: str,
    answer: Callable[[Any], bytes] = lambda asked: json.dumps(agent.answer_to(asked)).encode(),
) -> Iterator[None]:
    """Let agent.py, or a function, answer on the subjects of an agent until the block ends."""
    ready, done = threading.Event(), threading.Event()

    async def listen() -> None:
        connection = await nats.connect(url)

        async def take(message: nats.aio.msg.Msg) -> None:
            asked = json.loads(message.data)
            if "id" in asked:
                await message.respond(answer(asked))

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


HELLO = {"protocol": 1, "schema": "1.0", "host": "h", "agent": "Stock", "role": "member"}


def test_two_programs_for_one_agent_are_refused_as_one_that_answers_twice(tmp_path):
    with (
        NatsServer(NEWEST, tmp_path / "nats") as server,
        program_on(server.url(), "Stock"),
        program_on(server.url(), "Stock"),
    ):
        program = start(server.url(), tmp_path)
        try:
            program.ask("agent/hello", HELLO)
            with pytest.raises(BreachError, match=r"GBNP-013: it answers \d+ again"):
                ask_often(program)
        finally:
            program.kill()


def ask_often(program: Program) -> None:
    """Ask until there is a breach: the second answers may come late."""
    for _ in range(1000):
        program.ask("agent/x_later", {})


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (b"", "GBNP-001"),
        (b"hello", "GBNP-001"),
        (b'{"jsonrpc":"2.0",\n"id":1}', "GBNP-001"),
        (b"\xff\xfe", "GBNP-003"),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', "GBNP-014"),
    ],
)
def test_what_a_program_on_nats_says_wrongly_is_judged_like_a_line(tmp_path, answer, number):
    with NatsServer(NEWEST, tmp_path / "nats") as server, program_on(server.url(), "Stock", lambda _asked: answer):
        program = start(server.url(), tmp_path)
        try:
            with pytest.raises(BreachError, match=number):
                program.ask("agent/hello", HELLO)
        finally:
            program.kill()


def test_a_question_that_the_server_does_not_take_is_named(tmp_path):
    with (
        NatsServer(NEWEST, tmp_path / "nats", config="max_payload: 4096") as server,
        program_on(server.url(), "Stock"),
    ):
        program = start(server.url(), tmp_path)
        try:
            program.ask("agent/hello", HELLO)
            with pytest.raises(BreachError, match=r"GBNP-012: .*maximum payload"):
                program.ask("agent/x_later", {"text": "x" * 5000})
        finally:
            program.kill()


def test_a_program_on_nats_one_in_perl_rules_and_a_model_negotiate_together(shop):
    """The session replays from the lock without any of them; `shop` is the example, in which Orders proposes a check."""
    heard: list[Event] = []
    model = ScriptedClient(lambda prompt: "# analysis\n" if "# analysis" in prompt.task else "# proposals\nnone\n")
    with NatsServer(NEWEST, shop / "nats") as server, program_on(server.url(), "Stock"):
        command = (sys.executable, "-m", "graphbus_core", "relay", server.url())
        on_nats = AgentProgram(command=command, network=True)
        negotiate(shop, heard, Clients(model, model, model), Orders=PERL, Stock=on_nats)
    assert failures_of(heard, "Orders") == failures_of(heard, "Stock") == []
    votes = [event.payload for event in heard if event.topic == "/Negotiation/Evaluated"]
    assert "It is complete." in str(votes), votes
    replayed = replay_session(resolve_build(BuildConfig(paths=(str(shop / "shop"),))))
    assert replayed.differences == ()
