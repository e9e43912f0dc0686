from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.cli import main
from graphbus_core.model.proposals import Counterexample, ProposalEvaluation, SchemaChange
from graphbus_core.negotiation.transcript import SessionRecord, record_application, save_session
from tests.fakes.negotiating_world import World, change, draft


def vote(decision: str, **fields: object) -> ProposalEvaluation:
    return ProposalEvaluation(proposal_id="", evaluator="", round=0, decision=decision, **fields)  # type: ignore[arg-type]


def negotiated(session: str) -> SessionRecord:
    """A session in which something was accepted, refused by a limit, vetoed, countered and arbitrated."""
    world = World(
        "Order", "Stock", "Mail", arbiters=("Judge",), protected_files=("mail.py",), max_proposals_per_round=2
    )
    world.proposes(
        "Order",
        draft(
            "rename skuu to sku",
            change("order.py", "0", "1"),
            affects=("Stock",),
            reason="Stock sends sku.",
            finding="GB003",
        ),
        draft("touch the mail", change("mail.py", "0", "1")),
    )
    world.proposes("Stock", draft("split it", change("stock.py", "0", "5")))
    world.schema_changes["rename skuu to sku"] = (SchemaChange(method="Order.place"),)
    proof = Counterexample("contract", "Mail reads a key that nobody sends.", is_verified=True)
    world.votes("split it", Order="accept", Mail=vote("reject", evidence=(proof,)))
    world.proposes("Mail", draft("tidy up", change("order.py", "1", "2"), affects=("Stock",)), round=2)
    other = vote("counter", counter_proposal=draft("tidy up more", change("order.py", "1", "3")))
    world.votes("tidy up", Order=[other, "accept"], Stock="reject")
    world.votes("tidy up more", Mail="reject", Order="reject", Stock="reject")
    world.words["tidy up"] = "accept"
    outcome = world.run()
    return SessionRecord(
        schema_version=1,
        session=session,
        backend="rules",
        agents=world.participants.agents,
        arbiters=world.participants.arbiters,
        intent="one name for one thing",
        negotiations=replace(outcome, session=session),
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a project with two sessions."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    for name in ("S001", "S002"):
        save_session(tmp_path / ".graphbus", negotiated(name), ())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["inspect-negotiation", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_last_session_is_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("S002  5 proposed, 2 accepted, 1 file, ")
    assert lines[1] == "accepted changes: not written"
    assert lines[2] == "intent: one name for one thing"
    assert lines[4].split() == ["ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES"]
    rows = [line.split() for line in lines[5:]]
    assert [(row[0], row[1], row[2], row[3]) for row in rows] == [
        ("P001", "1", "Order", "accepted"),
        ("P002", "1", "Order", "refused"),
        ("P003", "1", "Stock", "rejected"),
        ("P004", "2", "Mail", "accepted"),
        ("P005", "3", "Order", "rejected"),
    ]
    assert "1/1 unanimous" in out
    assert "1/2 arbiter" in out
    assert "graphbus inspect-negotiation P001" in err
    assert "Other sessions: S001" in err


@pytest.mark.parametrize(
    ("is_applied", "refusal", "said"),
    [
        (True, "", "written to the source files"),
        (False, "A file has\nchanged. [GBE320]", "not written: A file has changed. [GBE320]"),
        (False, "", "not written"),
    ],
)
def test_whether_the_changes_were_written_is_shown(
    here: Path, capsys: pytest.CaptureFixture[str], is_applied: bool, refusal: str, said: str
) -> None:
    record_application(here / ".graphbus", "S002", is_applied=is_applied, refusal=refusal)
    _, out, _ = run(capsys)
    assert out.splitlines()[1] == f"accepted changes: {said}"
    _, out, _ = run(capsys, "P001")
    assert out.splitlines()[-1] == f"  {said}"
    _, out, _ = run(capsys, "P003")
    assert said not in out
    document = json.loads(run(capsys, "--json")[1])
    assert (document["is_applied"], document["refusal"]) == (is_applied, refusal)
    one = json.loads(run(capsys, "P001", "--json")[1])
    assert (one["is_applied"], one["session_refusal"]) == (is_applied, refusal)


def test_one_proposal_is_shown_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "p001")
    assert status == 0
    for expected in (
        "P001  accepted  rename skuu to sku",
        "why:         Stock sends sku.",
        "fixes:       GB003",
        "affects:     Stock",
        "-0",
        "+1",
        "  G1 apply       passed\n",
        "Stock  accept",
        "C001: unanimous (Stock), changed order.py",
    ):
        assert expected in out


def test_a_veto_is_shown_with_its_counterexample(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "P003")
    assert "\n  Mail   reject\n" in out
    assert "contract evidence, verified: Mail reads a key that nobody sends." in out
    assert "rejected: Mail proved that it breaks something" in out
    assert "--- a/stock.py" in out


def test_a_counter_proposal_and_the_arbiter_are_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "P004")
    assert "countered by: P005" in out
    votes = [line for line in out.partition("\nVotes\n")[2].partition("\n\n")[0].splitlines() if line[2] != " "]
    assert [line.split()[0] for line in votes] == ["Order", "Stock", "Order", "Judge"]
    assert {len(line) - len(line[17:].lstrip()) for line in votes} == {19}
    assert "Judge (ARBITER)  accept: because" in out
    assert "C002: arbiter (Order, Stock, Judge (ARBITER)), changed order.py" in out
    _, out, _ = run(capsys, "P005")
    assert "counters:    P004" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--agent", "Mail"), ["P003", "P004", "P005"]),
        (("--agent", "Judge"), ["P004"]),
        (("--file", "stock.py"), ["P003"]),
        (("--file", "./mail.py"), ["P002"]),
        (("--status", "accepted"), ["P001", "P004"]),
        (("--agent", "Order", "--status", "refused"), ["P002"]),
        (("--status", "pending"), []),
        (("--round", "2"), ["P004"]),
        (("--session", "S001", "--status", "accepted"), ["P001", "P004"]),
    ],
)
def test_proposals_are_chosen_by_agent_file_and_status(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: list[str]
) -> None:
    status, out, _ = run(capsys, *arguments, "--json")
    document = json.loads(out)
    assert status == 0
    assert [one["proposal"]["proposal_id"] for one in document["proposals"]] == expected
    status, out, _ = run(capsys, *arguments)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("P0")] == expected
    assert ("No proposal to show." in out) == (not expected)


def test_json_is_one_document_with_everything(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "--json")
    document = json.loads(out)
    assert (document["session"], document["backend"], document["arbiters"]) == ("S002", "rules", ["Judge"])
    assert document["ending"]["commits_created"] == len(document["commits"]) == 2
    assert err == ""
    _, out, _ = run(capsys, "P003", "--json")
    one = json.loads(out)
    assert (one["session"], one["status"], one["proposal"]["src"]) == ("S002", "rejected", "Stock")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("P01",), "Session S002 has no proposal P01. Did you mean 'P001'? [GBE406]"),
        (("--agent", "Oder"), "Session S002 has no agent Oder. Did you mean 'Order'? [GBE406]"),
        (("--file", "stok.py"), "Session S002 has no proposal for stok.py. Did you mean 'stock.py'? [GBE406]"),
        (("--session", "S01"), "There is no session S01. Did you mean 'S001'? [GBE404]"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (5, "")
    assert sentence in err
