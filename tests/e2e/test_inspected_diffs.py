"""The diffs that `inspect-negotiation` and the report show are those that the voters saw, whatever became of the proposal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.cli import main
from graphbus_core.llm.client import Clients, ModelPrompt, ScriptedClient
from graphbus_core.model.config import BuildConfig, SafetyConfig, Settings
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.lock import pack_bytes, unpack_bytes
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import resolve_build
from tests.fakes.model_sessions import write_zoo
from tests.fakes.model_texts import agreeable, asked_in, data_in, decision, edit, evaluation, nothing, proposal, swap

ORDERS = "agents/orders.py"
IMPORTS = "from graphbus_core import GraphBusNode, publishes, schema_method\n"
CALL = "        total = self.total(prices)\n"
RESULT = '        return {"order_id": order_id, "total": total}\n'
COUNT = "    def {}(self) -> int:\n        return 1\n"
SUM = """\
    def total(self, prices: list) -> float:
        amounts = list(prices)
        result = sum(amounts)
        return float(result)
"""


def on_orders(title: str, old: str, new: str, target: str = "") -> str:
    """A proposal of another agent for the file of OrderService."""
    return proposal(title, swap(ORDERS, old, new, target), affects=["OrderService"])


PLANS = {
    ("OrderService", 1): [
        proposal("sum", edit("replace_symbol", ORDERS, "OrderService.total", SUM), priority=9),
        proposal("count", edit("add_symbol", ORDERS, "OrderService.count_NO", COUNT.format("count_NO"))),
    ],
    ("StockService", 1): [
        on_orders("copy", CALL, "        NO = list(prices)\n        total = self.total(NO)\n", "OrderService.place"),
        on_orders("name", RESULT, RESULT.replace("return", "found =") + "        return found\n", "OrderService.place"),
    ],
    ("MailService", 1): [on_orders("limit", IMPORTS, f"{IMPORTS}\nLARGEST = 1000\nSMALLEST = 1\n")],
    ("OrderService", 2): [
        proposal("count again", edit("add_symbol", ORDERS, "OrderService.again_NO", COUNT.format("again_NO"))),
        proposal("import", edit("add_import", ORDERS, "", "import math as NO\n")),
    ],
    ("StockService", 2): [on_orders("nowhere", "not there\n", "NO\n")],
}
"""(Agent, how often it was asked) -> what it proposes."""


class Voters:
    """A scripted model: proposes by plan, rejects what has NO in its diff, and keeps the last diff shown to voters."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.rounds: dict[str, int] = {}
        client = ScriptedClient(self.speak)
        self.backend = Backend(Clients(client, client, client))

    def speak(self, prompt: ModelPrompt) -> str:
        asked = asked_in(prompt)
        if asked.task == "propose":
            number = self.rounds[asked.agent] = self.rounds.get(asked.agent, 0) + 1
            return "".join(PLANS.get((asked.agent, number), [nothing()]))
        if asked.task == "evaluate":
            diffs = {name: data_in(prompt, f"diff of {name}") for name in asked.proposals}
            self.seen.update(diffs)
            return "".join(evaluation(name, "reject" if "NO" in diff else "accept") for name, diff in diffs.items())
        return decision(asked.proposals[0], "reject") if asked.task == "arbitrate" else agreeable(prompt)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project after a session of several rounds in which most proposals change one file, and the diffs that voters saw."""
    root, voters = write_zoo(tmp_path_factory.mktemp("session") / "zoo"), Voters()
    settings = Settings(safety=SafetyConfig(max_proposals_per_round=2))
    with voters.backend as backend:
        request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True, settings=settings)
        run_build_pipeline(request, backend=backend)
    return root, voters.seen


@pytest.mark.slow
def test_each_diff_is_the_one_that_the_voters_saw(
    session: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, seen = session
    monkeypatch.chdir(root)
    records = load_session(root / ".graphbus", "S001").negotiations.records
    statuses = {record.proposal.proposal_id: record.status for record in records}
    assert len({record.proposal.round for record in records}) >= 2
    assert {statuses[name] for name in seen} == {"accepted", "rejected"}
    for name, status in statuses.items():
        capsys.readouterr()
        assert main(["inspect-negotiation", name]) == 0
        text = capsys.readouterr().out
        assert main(["inspect-negotiation", name, "--json"]) == 0
        shown = "".join(json.loads(capsys.readouterr().out)["diffs"].values())
        if name in seen:
            assert shown == seen[name], name
            assert f"\nChange\n{shown}" in text
        else:
            assert status == "refused"
            assert (shown == "") == ("\nEdits as proposed; " in text)


@pytest.mark.slow
def test_a_diff_that_was_committed_after_others_is_shown_beside_the_one_that_was_voted_on(
    session: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, seen = session
    monkeypatch.chdir(root)
    records = load_session(root / ".graphbus", "S001").negotiations.records
    (moved,) = (record for record in records if record.proposal.title == "name")
    name = moved.proposal.proposal_id
    committed = "".join(moved.commit.resolution.values()) if moved.commit else ""
    assert committed
    assert committed != seen[name]
    assert main(["inspect-negotiation", name]) == 0
    out = capsys.readouterr().out
    assert f"Change\n{seen[name]}\nChange as committed, after other changes\n{committed}" in out
    assert "Earlier attempts" not in out, "the gate checked it twice, and it passed twice"


@pytest.mark.slow
def test_a_replay_gives_the_same_diffs_and_accepts_a_record_without_them(
    session: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = session
    config = resolve_build(BuildConfig(paths=(str(root / "agents"),)))
    assert replay_session(config).differences == ()
    lock_file = root / ".graphbus/negotiation.lock"
    lock = json.loads(lock_file.read_text(encoding="utf-8"))
    for diffs, differs in (({}, False), ({"P001": {"agents/orders.py": "another"}}, True)):
        record = {**json.loads(unpack_bytes(lock["session"]["record"])), "diffs": diffs}
        lock["session"]["record"] = pack_bytes(json.dumps(record).encode())
        lock_file.write_text(json.dumps(lock), encoding="utf-8")
        assert bool(replay_session(config).differences) == differs
