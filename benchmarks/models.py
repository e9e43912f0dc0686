"""Negotiations with a model: how close to the critical path they stay, and what they cost.

The model is scripted and takes 200 ms for each answer. Everybody proposes one change of its own class and accepts those of
others. The critical path is the number of phases in which somebody is asked, times 200 ms. The gate only applies the changes,
for it is measured on its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from stopwatch import ROOT, Row, report

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.llm.client import Clients, Completion, LLMClient, ModelPrompt, Progress, ScriptedClient
from graphbus_core.model.config import Budget, BuildConfig, Electorate, LLMConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.spending import Spend
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.settings import resolve_build

sys.path.insert(0, str(ROOT))
from negotiation import OpenGate

from tests.fakes.model_server import KEY, KEY_VARIABLE, Answer, ModelServer
from tests.fakes.model_server import Request as WireRequest
from tests.fakes.model_texts import AskedOf, agreeable, asked_in, edit, proposal
from tests.fakes.zoo import prompt_of

LATENCY_S = 0.2
INPUT_USD, OUTPUT_USD = 3.0, 15.0
CLASS = '''\
"""One of many."""

from graphbus_core import Event, GraphBusNode, publishes, schema_method, subscribe


@publishes("/T{number}", {{"value": int}})
class Agent{number:03}(GraphBusNode):
    """Hears its neighbour, adds and tells the next one."""

    @schema_method(input_schema={{"value": int}}, output_schema={{"value": int}})
    def add(self, value: int) -> dict:
        result = value + {number}
        self.publish("/T{number}", {{"value": result}})
        return {{"value": result}}

    @subscribe("/T{before}")
    def on_value(self, event: Event) -> None:
        self.seen = event["value"]
'''
METHOD = """\
    def add(self, value: int) -> dict:
        self.publish("/T{number}", {{"value": value + {number}}})
        return {{"value": value + {number}}}
"""
SCHEMA = '    @schema_method(input_schema={"value": int}, output_schema={"value": int})\n'


class Talk(NamedTuple):
    """One negotiation: its time in seconds, the phases in which somebody was asked, and what it has cost."""

    seconds: float
    phases: int
    spend: Spend
    commits: int


class Everybody:
    """Everybody proposes once, and accepts; counts the phases in which there was something to answer."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, str], int] = {}
        self.phases: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    def speak(self, prompt: ModelPrompt) -> str:
        asked = asked_in(prompt)
        with self._lock:
            number = self.asked[asked.task, asked.agent] = self.asked.get((asked.task, asked.agent), 0) + 1
            self.phases.add((asked.task, number))
        return _proposal(asked) if asked.task == "propose" and number == 1 else agreeable(prompt)


def _proposal(asked: AskedOf) -> str:
    number = int(asked.agent.removeprefix("Agent"))
    code = SCHEMA + METHOD.format(number=number)
    return proposal("Leave out a name", edit("replace_symbol", asked.path, f"{asked.agent}.add", code))


class SleepingClient:
    """A scripted model in this process that takes its time."""

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self.model, self.price = client.model, client.price

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        time.sleep(LATENCY_S)
        return self._client.complete(prompt, max_output_tokens, progress)

    def close(self) -> None:
        pass


@contextmanager
def ring(count: int) -> Iterator[Path]:
    """A project of so many agents, each of which hears the one before it."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "agents").mkdir()
        (root / "pyproject.toml").write_text('[project]\nname = "ring"\n')
        for number in range(count):
            text = CLASS.format(number=number, before=(number - 1) % count)
            (root / "agents" / f"agent{number:03}.py").write_text(text)
        yield root


def configured(
    root: Path, count: int, electorate: Electorate, llm: LLMConfig, use_cache: bool = False
) -> ResolvedBuild:
    """As much as everybody wants to say, in one round and two quiet ones."""
    safety = SafetyConfig(max_total_file_changes=1000, electorate=electorate, max_proposals_per_agent=1)
    settings = Settings(
        safety=safety, llm=replace(llm, use_cache=use_cache, concurrency=count), budget=Budget(max_usd=0.0)
    )
    return resolve_build(
        BuildConfig(paths=(str(root / "agents"),), settings=settings, enable_agents=True, dry_run=not use_cache)
    )


def talk(config: ResolvedBuild, backend: Backend, everybody: Everybody) -> Talk:
    """Negotiate to the end; the time is that of analysis and rounds."""
    project = Project.read(config, cache=False)
    with backend:
        agents = backend.activate(config, project.definitions, project.order.order)
        session = NegotiationSession(config, MessageBus(history=0), backend=backend)
        started = time.perf_counter()
        session.analyze(agents, project)
        outcome = session.run(project, agents, detect_conflicts(project), OpenGate())
        took = time.perf_counter() - started
    return Talk(took, len(everybody.phases), session.bills.spend, len(outcome.negotiations.completed))


def in_process(count: int) -> Talk:
    """The model is a function that sleeps: what is left is GraphBus."""
    everybody = Everybody()
    client: LLMClient = SleepingClient(ScriptedClient(everybody.speak))
    with ring(count) as root:
        config = configured(root, count, "affected", LLMConfig())
        return talk(config, Backend(clients=Clients(client, client, client)), everybody)


def over_the_wire(count: int, electorate: Electorate = "affected", latency_s: float = LATENCY_S) -> Talk:
    """The model is behind HTTP on this machine, and its client library in front of it: both on the same two cores."""
    everybody = Everybody()

    def script(request: WireRequest) -> Answer:
        return Answer(everybody.speak(prompt_of(request)), delay_s=latency_s, pieces=1)

    with ring(count) as root, ModelServer(script) as server:
        llm = server.config("anthropic", input_usd=INPUT_USD, output_usd=OUTPUT_USD)
        config = configured(root, count, electorate, llm)
        return talk(config, Backend(environ={**os.environ, KEY_VARIABLE: KEY}), everybody)


def paths() -> list[Row]:
    """How close to the critical path a negotiation of so many agents stays."""
    rows = []
    for count in (4, 20, 100):
        for name, negotiate in {"in process": in_process, "over the wire": over_the_wire}.items():
            done = sorted(negotiate(count) for _ in range(3))[1]
            critical = done.phases * LATENCY_S
            limit = 1.2 if name == "in process" else 0.0
            what = f"{count} agents, model {name}, {done.commits} commits"
            rows.append(Row(what, done.seconds, critical, f"{done.phases} x 200 ms", limit))
    return rows


def costs() -> list[Row]:
    """What a negotiation costs when the affected vote, against all; by the counts of the scripted server."""
    rows = []
    for count in (5, 20, 50):
        affected, everybody = (over_the_wire(count, who, 0.0).spend for who in ("affected", "all"))
        for what, ours, peer, unit in (
            ("requests", affected.requests, everybody.requests, "requests"),
            ("tokens", affected.usage.total_tokens, everybody.usage.total_tokens, "tokens"),
            ("cost", round(affected.cost_usd, 3), round(everybody.cost_usd, 3), "USD"),
        ):
            rows.append(Row(f"{count} agents, {what}, the affected vote", ours, peer, "all vote", unit=unit))
        share = affected.usage.cache_read_tokens / max(1, affected.usage.input_tokens)
        rows.append(
            Row(f"{count} agents, input read from the provider's cache", round(100 * share), 100, "all input", unit="%")
        )
    return rows


def repeated() -> list[Row]:
    """The same negotiation twice: nothing has changed, and whatever was asked before is answered from the cache."""
    everybody = Everybody()

    def script(request: WireRequest) -> Answer:
        return Answer(everybody.speak(prompt_of(request)), pieces=1)

    with ring(5) as root, ModelServer(script) as server:
        config = configured(root, 5, "affected", server.config("anthropic"), use_cache=True)
        backend = Backend(environ={**os.environ, KEY_VARIABLE: KEY})
        talk(config, backend, everybody)
        first = len(server.requests)
        talk(config, Backend(environ={**os.environ, KEY_VARIABLE: KEY}), everybody)
        again = len(server.requests) - first
    return [Row("5 agents, requests of a repeated build", again, first, "the first build", 1e-9, "none", "requests")]


def main() -> list[Row]:
    """Measure and print."""
    return report("Negotiation with a model", [*paths(), *costs(), *repeated()])


if __name__ == "__main__":
    main()
