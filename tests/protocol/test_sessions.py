"""Programs in real negotiations: they propose, vote and decide beside rules; what one does wrong costs only its own turn."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.editing import sandboxes
from graphbus_core.errors import ModelError, NegotiationError, UsageError
from graphbus_core.llm.client import Clients, ScriptedClient
from graphbus_core.model.config import AgentProgram, BuildConfig
from graphbus_core.model.messages import Event
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.sessions import load_answers
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import resolve_build
from tests.protocol.agent import FAULTS

EXAMPLE = Path(__file__).parents[2] / "examples" / "other_languages"
AGENT = Path(__file__).with_name("agent.py")
SOURCE = (EXAMPLE / "shop" / "agents.py").read_text(encoding="utf-8")
PERL = AgentProgram(command=("perl", "programs/amounts.pl"))
NODE = AgentProgram(command=("node", "programs/event_ids.mjs"))
CHECK = 'raise ValueError("amount must not be negative")'
ONE_SIDED = {"answers with an error without a code", "answers an unknown method", "refuses unknown members"}
"""Faults that a session does not meet, because a host asks nothing of the kind."""
AT_THE_END = {
    "stays after bye",
    "ends with status 3",
    "stays without input",
    "says bye with null",
    "needs an analysis first",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A copy of the example, without programs in its settings."""
    folder = tmp_path / "other_languages"
    shutil.copytree(EXAMPLE, folder)
    shutil.copy(AGENT, folder / "programs" / "agent.py")
    (folder / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "1"\nrequires-python = ">=3.11"\n')
    return folder


def python(fault: str = "", timeout_s: float = 20.0) -> AgentProgram:
    return AgentProgram(command=(sys.executable, "programs/agent.py", fault), timeout_s=timeout_s)


def settings_of(shop: Path, isolation: str = "jail", **agents: AgentProgram) -> None:
    """Write the settings with these programs."""
    tables = [
        f"[tool.graphbus.agents.{name}]\ncommand = {json.dumps(each.command)}\ntimeout_s = {each.timeout_s}\n"
        f"network = {str(each.network).lower()}\n"
        for name, each in agents.items()
    ]
    project = '[project]\nname = "shop"\nversion = "1"\nrequires-python = ">=3.11"\n'
    gate = f'[tool.graphbus.gate]\nisolation = "{isolation}"\n'
    (shop / "pyproject.toml").write_text(project + gate + "".join(tables))


def negotiate(
    shop: Path,
    heard: list[Event] | None = None,
    clients: Clients | None = None,
    isolation: str = "jail",
    **agents: AgentProgram,
) -> BuildResult:
    """Negotiate over the shop with these programs; the settings say so, as a user's would."""
    settings_of(shop, isolation, **agents)
    bus = MessageBus()
    if heard is not None:
        bus.subscribe("/Negotiation/**", heard.append)
    request = BuildConfig(paths=(str(shop / "shop"),), enable_agents=True, model="" if clients else "rules")
    return run_build_pipeline(request, bus=bus, backend=Backend(clients, environ={}))


def failures_of(heard: list[Event], agent: str) -> list[str]:
    return [
        event.payload["reason"]
        for event in heard
        if event.topic == "/Negotiation/Failed" and event.payload["agent"] == agent
    ]


def source_of(shop: Path) -> str:
    return (shop / "shop" / "agents.py").read_text(encoding="utf-8")


def test_programs_propose_vote_and_land_a_change_that_replays_byte_for_byte(shop):
    negotiate(shop, Orders=PERL, Stock=NODE)
    assert CHECK in source_of(shop)
    config = resolve_build(BuildConfig(paths=(str(shop / "shop"),)))
    record = load_session(config.artifacts_dir, "")
    assert record.backend == "rules, programs"
    (commit,) = record.negotiations.completed
    assert (commit.proposer, commit.evaluators) == ("Orders", ("Stock",))
    shutil.rmtree(shop / "programs")  # a replay needs no program
    shutil.rmtree(shop / ".graphbus" / "sessions")
    replayed = replay_session(config)
    assert replayed.source == "the lock"
    assert replayed.requests > 0
    assert replayed.differences == ()
    lock = (shop / ".graphbus" / "negotiation.lock").read_text()
    assert "perl" not in lock
    assert str(shop) not in lock


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - ONE_SIDED - AT_THE_END))
def test_whatever_a_program_does_wrong_costs_its_turn_and_never_the_session(shop, fault):
    heard: list[Event] = []
    slow = fault == "hangs"
    negotiate(shop, heard, Orders=PERL, Stock=python(fault, 1.0 if slow else 20.0))
    reasons = failures_of(heard, "Stock")
    is_met = FAULTS[fault] not in ("GBNP-044", "GBNP-050", "GBNP-051", "GBNP-070", "GBNP-071", "GBNP-072", "GBNP-067")
    assert any(FAULTS[fault] in reason for reason in reasons) or not is_met
    assert heard[-1].topic == "/Negotiation/Finished"
    assert failures_of(heard, "Orders") == []
    assert no_program_is_left()


def no_program_is_left() -> bool:
    """Return whether agent.py runs nowhere, after at most a moment."""
    for _ in range(100):
        running = [
            entry
            for entry in Path("/proc").glob("[0-9]*/cmdline")
            if entry.exists() and b"programs/agent.py" in _read(entry)
        ]
        if not running:
            return True
        time.sleep(0.05)
    return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_program_that_fails_three_times_in_a_row_is_not_asked_again(shop):
    heard: list[Event] = []
    negotiate(shop, heard, Orders=PERL, Stock=python("forgets jsonrpc"))
    reasons = failures_of(heard, "Stock")
    assert len(reasons) > 3
    assert all("GBE464" in reason for reason in reasons[:3])
    assert all("GBE466" in reason for reason in reasons[3:])


def test_programs_that_all_fail_end_the_session_with_one_error(shop):
    nowhere = AgentProgram(command=("no-such-program",))
    with pytest.raises(NegotiationError) as caught:
        negotiate(shop, Orders=nowhere, Stock=nowhere, Referee=nowhere)
    assert caught.value.code == "GBE413"
    assert "no-such-program" in str(caught.value)
    assert source_of(shop) == SOURCE


def start_error(shop: Path, settings: AgentProgram) -> str:
    sandbox = sandboxes.choose_sandbox("jail", shop)
    assert sandbox
    with pytest.raises(ModelError) as caught:
        Program(settings, shop, sandbox)
    assert caught.value.code == "GBE465"
    return str(caught.value)


def test_a_file_that_does_not_exist_and_a_shim_are_named(shop, monkeypatch):
    assert "`files` names lib" in start_error(shop, AgentProgram(command=("sh",), files=("lib",)))
    shims = shop / "shims"
    shims.mkdir()
    (shims / "node").write_text("#!/bin/sh\n")
    (shims / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    assert "shim of a version manager" in start_error(shop, AgentProgram(command=("node",)))


def test_a_question_that_is_too_long_is_not_the_programs_fault(shop):
    heard: list[Event] = []
    source = source_of(shop).replace("class Stock", "class Stock", 1)
    (shop / "shop" / "agents.py").write_text(source + f"\n\nclass Large(Stock):\n    TEXT = '{'x' * 1_200_000}'\n")
    negotiate(shop, heard, Large=python())
    reasons = failures_of(heard, "Large")
    assert reasons
    assert all("it cannot be asked" in reason and "GBNP-002" in reason and "GBE467" in reason for reason in reasons)


def test_an_interrupted_session_with_programs_is_resumed_from_what_they_have_answered(shop):
    config = BuildConfig(paths=(str(shop / "shop"),), enable_agents=True, model="rules")
    bus = MessageBus()

    def interrupt(_event: Event) -> None:
        raise KeyboardInterrupt

    bus.subscribe("/Negotiation/Evaluated", interrupt)
    settings_of(shop, Orders=PERL, Stock=NODE)
    with pytest.raises(KeyboardInterrupt):
        run_build_pipeline(config, bus=bus, backend=Backend(environ={}))
    assert source_of(shop) == SOURCE
    answered = load_answers(shop / ".graphbus", "S001")
    run_build_pipeline(replace(config, is_resumed=True), backend=Backend(environ={}))
    assert CHECK in source_of(shop)
    again = load_answers(shop / ".graphbus", "S001")
    assert again[: len(answered)] == answered
    assert len(again) > len(answered) > 0


def test_a_program_for_an_agent_that_does_not_exist_is_refused_before_anything_starts(shop):
    with pytest.raises(NegotiationError) as caught:
        negotiate(shop, Stok=PERL)
    assert caught.value.code == "GBE412"
    assert "Did you mean 'Stock'?" in str(caught.value)


def test_an_empty_command_is_refused(shop):
    with pytest.raises(UsageError) as caught:
        negotiate(shop, Stock=AgentProgram(command=()))
    assert caught.value.code == "GBE103"


def test_a_program_and_a_model_negotiate_together(shop):
    """The model proposes nothing and accepts everything; it is scripted."""

    def speak(prompt: Any) -> str:
        if prompt.schema is None and "# analysis" in prompt.task:
            return "# analysis\n"
        return "# proposals\nnone\n"

    model = ScriptedClient(speak)
    heard: list[Event] = []
    negotiate(shop, heard, Clients(model, model, model), Orders=PERL, Stock=NODE)
    assert failures_of(heard, "Orders") == failures_of(heard, "Stock") == []
    assert CHECK in source_of(shop)


def test_a_program_hears_what_happens_in_the_session(shop):
    notes = shop / "programs" / "notes.py"
    notes.write_text(
        AGENT.read_text().replace(
            'if "id" not in message:',
            'if "id" not in message:\n            print(message["params"]["topic"], file=sys.stderr)',
        )
    )
    heard: list[Event] = []
    wrong = AgentProgram(command=(sys.executable, "programs/notes.py", "dies in the middle"))
    negotiate(shop, heard, Orders=PERL, Stock=wrong)
    assert any("it breaks" in reason for reason in failures_of(heard, "Stock"))


SPY = """
import os, socket, sys
def can(action):
    try:
        action()
    except OSError:
        return "no"
    return "yes"
found = {
    "sources": can(lambda: open("shop/agents.py")),
    "secret": can(lambda: open(%(secret)r)),
    "own file": can(lambda: open(%(own)r)),
    "write": can(lambda: open(%(own)r, "a")),
    "network": can(lambda: socket.create_connection(("127.0.0.1", %(port)d), 2).close()),
}
sys.exit(str(found))
"""


@pytest.mark.parametrize("tier", sandboxes.TIERS)
@pytest.mark.parametrize("network", [False, True])
def test_a_program_sees_its_own_files_and_the_network_only_if_it_may(shop, tmp_path, tier, network, monkeypatch):
    if sandboxes.why_unavailable(tier):
        assert not os.environ.get("CI"), sandboxes.why_unavailable(tier)
        pytest.skip(sandboxes.why_unavailable(tier))
    secret = tmp_path / "secret"
    secret.write_text("key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        spy = shop / "programs" / "spy.py"
        values = {"secret": str(secret), "own": str(spy), "port": server.getsockname()[1]}
        spy.write_text(SPY % values)
        settings = AgentProgram(command=(sys.executable, "programs/spy.py"), network=network)
        program = Program(settings, shop, sandboxes.Jail(tier, shop))
        try:
            with pytest.raises(BreachError) as caught:
                program.ask(
                    "agent/hello", {"protocol": 1, "schema": "1.0", "host": "h", "agent": "A", "role": "member"}
                )
        finally:
            program.kill()
    seen = caught.value.reason.replace("'", '"')
    found = json.loads(seen[seen.index("{") : seen.index("}") + 1])
    wanted = {"sources": "no", "secret": "no", "own file": "yes", "write": "no", "network": "yes" if network else "no"}
    assert found == wanted
