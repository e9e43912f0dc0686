"""Sessions as a report tells them: one with all that can happen in it, and one as large as sessions get."""

from __future__ import annotations

from graphbus_core.cli.report.story import Story
from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import (
    CodeChange,
    CommitRecord,
    Consensus,
    Counterexample,
    Ending,
    GateReport,
    ImpactAssessment,
    Negotiations,
    Proposal,
    ProposalEvaluation,
    ProposalRecord,
    Removal,
    RungResult,
    SchemaChange,
)
from graphbus_core.model.spending import Spend, Usage
from graphbus_core.negotiation.transcript import SessionRecord, TranscriptEvent
from graphbus_core.schema.types import Field, Schema, Type

AGENTS = ("Orders", "Stock", "Mail", "Prices", "Audit", "Judge")
EDGES = (
    Edge("Stock", "Orders", "depends_on"),
    Edge("Prices", "Orders", "depends_on"),
    Edge("Orders", "Mail", "topic", "/Order/Placed"),
    Edge("Orders", "Stock", "topic", "/Order/Placed"),
    Edge("Stock", "Mail", "topic", "/Stock/Low"),
    Edge("Prices", "Stock", "call", "price_of"),
    Edge("Mail", "Audit", "topic", "/Mail/Sent"),
)
DIFF = """\
--- a/agents/orders.py
+++ b/agents/orders.py
@@ -12,9 +12,11 @@ class Orders(GraphBusNode):
     @schema_method(input_schema={"order_id": str, "items": list}, output_schema={"total": float})
     def place(self, order_id, items):
         \"\"\"Take an order and say what it costs.\"\"\"
-        total = sum(item["price"] * item["qty"] for item in items)
-        self.publish("/Order/Placed", {"order_id": order_id, "sum": total})
+        if any(item["price"] < 0 for item in items):
+            raise ValueError("A price is negative: nothing was ordered, and nobody was told of it, so that nobody waits.")
+        total = sum(item["price"] * item["quantity"] for item in items)
+        self.publish("/Order/Placed", {"order_id": order_id, "total": total})
         return {"total": total}
\x20
     def cancel(self, order_id):
         \"\"\"Forget an order.\"\"\"
@@ -40,2 +42,2 @@
\x20
-LIMIT = 10
+LIMIT = 12
\\ No newline at end of file
"""
OLD = 'def on_low(self, event):\n    self.send(event["sku"])\n'
NEW = 'def on_low(self, event):\n    if event["left"] < 3:\n        self.send(event["sku"])\n'


def climbed(proposal_id: str, *failed: RungResult) -> GateReport:
    """A report with every rung up to the first that refuses."""
    reached = failed[0].rung if failed else "G9"
    passed = tuple(RungResult(rung=f"G{number}", status="passed") for number in range(6) if f"G{number}" < reached)
    silent = () if failed else (RungResult(rung="G6", status="not_run", message="the project has no tests"),)
    removals = (Removal(method="Audit.on_placed", topic="/Order/Placed", lost={"reads": ("total",)}),)
    rungs = (*passed, *failed, *silent)
    return GateReport(proposal_id=proposal_id, passed=not failed, rungs=rungs, removals=removals)


def proposal(number: int, src: str, title: str, **fields: object) -> Proposal:
    """A proposal with one change."""
    change = CodeChange(
        file_path=f"agents/{src.lower()}.py", target=f"{src}.on_low", change_type="modify", old_code=OLD, new_code=NEW
    )
    values = {"round": 1, "intent": "add_validation", "code_change": change, **fields}
    return Proposal(proposal_id=f"P{number:03}", src=src, title=title, **values)  # type: ignore[arg-type]


def vote(one: Proposal, evaluator: str, decision: str, **fields: object) -> ProposalEvaluation:
    """What an agent says to a proposal."""
    return ProposalEvaluation(
        proposal_id=one.proposal_id,
        evaluator=evaluator,
        round=one.round,
        decision=decision,  # type: ignore[arg-type]
        **fields,  # type: ignore[arg-type]
    )


def committed(
    number: int, one: Proposal, consensus: Consensus, evaluators: tuple[str, ...], diff: str = DIFF
) -> CommitRecord:
    """An accepted proposal."""
    files = one.files
    changes = (
        SchemaChange(
            method="/Order/Placed",
            input_schema_before=Schema((Field("order_id", Type("str")), Field("sum", Type("float")))),
            input_schema_after=Schema((Field("order_id", Type("str")), Field("total", Type("float")))),
        ),
    )
    return CommitRecord(
        commit_id=f"C{number:03}",
        proposal_id=one.proposal_id,
        round=one.round,
        proposer=one.src,
        evaluators=evaluators,
        consensus_type=consensus,
        files_modified=files,
        title=one.title,
        resolution={path: diff.replace("agents/orders.py", path) for path in files},
        schema_changes=changes,
    )


def records() -> tuple[ProposalRecord, ...]:
    """Accepted, countered, superseded, refused, vetoed, arbitrated, overridden, deferred and pending."""
    first = proposal(
        1, "Orders", "Refuse negative prices and say `total` where everybody says `total`",
        affects=("Mail", "Stock"), dst="Mail", priority=2, finding="GB003",
        reason="A negative price would make the total wrong, and Mail reads `total`, which nobody sends.",
    )  # fmt: skip
    second = proposal(2, "Stock", "Warn when fewer than three are left", affects=("Mail",), dependencies=("P001",))
    third = proposal(3, "Mail", "Warn when fewer than five are left", parent="P002", affects=("Stock",), round=2)
    fourth = proposal(4, "Audit", "Write a copy of each mail to a file", affects=("Mail",))
    fifth = proposal(5, "Prices", "Round prices down", affects=("Orders",), round=2)
    sixth = proposal(6, "Mail", "Say good morning", affects=("Orders", "Audit"), round=2)
    seventh = proposal(7, "Prices", "Keep the price of a mug", affects=("Stock",), round=3)
    eighth = proposal(8, "Audit", "Count the mails", round=3)
    ninth = proposal(9, "Stock", "Count the mugs", round=3)
    proof = Counterexample("test", "def test_total():\n    assert place([{'price': 0.99}]) == 0.99\n", is_verified=True)
    guess = Counterexample("contract", "Somebody may compare cents.", detail="nobody does")
    import_refused = RungResult(
        rung="G3", status="failed", code="G3.file", message="open() writes a file", path="agents/audit.py", line=14
    )
    return (
        ProposalRecord(
            proposal=first, status="accepted", gate=climbed("P001"),
            evaluations=(
                vote(first, "Mail", "accept", confidence=0.9, reasoning="It fixes GB003 on my side."),
                vote(first, "Stock", "reject", confidence=0.55, reasoning="I would rather keep the name.",
                     concerns=("Old events bear the old name.",), suggestions=("Send both names for a while.",),
                     impact_assessment=ImpactAssessment(True, ("Mail",), "medium"), evidence=(guess,)),
                vote(first, "Judge", "accept", reasoning="Mail is the only reader, and it agrees.", is_arbiter=True),
            ),
            commit=committed(1, first, "arbiter", ("Mail", "Stock", "Judge (ARBITER)")),
        ),
        ProposalRecord(
            proposal=second, status="superseded", gate=climbed("P002"), refusal="P003 was accepted instead",
            evaluations=(vote(second, "Mail", "counter", reasoning="Three is late.", counter_proposal=third),),
        ),
        ProposalRecord(
            proposal=third, status="accepted", gate=climbed("P003"),
            evaluations=(vote(third, "Stock", "accept"),), commit=committed(2, third, "unanimous", ("Stock",)),
        ),
        ProposalRecord(
            proposal=fourth, status="refused", gate=climbed("P004", import_refused), refusal="G3.file: open() writes a file"
        ),
        ProposalRecord(
            proposal=fifth, status="rejected", gate=climbed("P005"), refusal="a verified objection of Orders",
            evaluations=(vote(fifth, "Orders", "reject", reasoning="My totals go wrong.", evidence=(proof,)),),
        ),
        ProposalRecord(
            proposal=sixth, status="accepted", gate=climbed("P006"),
            evaluations=(vote(sixth, "Orders", "abstain"), vote(sixth, "Audit", "reject")),
            commit=committed(3, sixth, "override", ("Orders", "Audit")),
        ),
        ProposalRecord(
            proposal=seventh, status="deferred", gate=climbed("P007"), evaluations=(vote(seventh, "Stock", "defer"),)
        ),
        ProposalRecord(proposal=eighth, status="pending"),
        ProposalRecord(proposal=ninth, status="countered", gate=climbed("P009")),
    )  # fmt: skip


def eventful_record() -> SessionRecord:
    """A session with models, in which everything happens once."""
    made = records()
    commits = tuple(each.commit for each in made if each.commit)
    ending = Ending(
        terminated=True, reason="budget", rounds_executed=4, proposals_made=len(made), commits_created=len(commits),
        files_modified=2, detail="$0.50 of $0.50",
    )  # fmt: skip
    usage = Usage(input_tokens=182_340, cache_read_tokens=121_000, cache_write_tokens=9_100, output_tokens=14_220)
    return SessionRecord(
        schema_version=1,
        session="S007",
        backend="example:large",
        agents=AGENTS,
        arbiters=("Judge",),
        intent="One name for one thing, and nothing negative",
        negotiations=Negotiations(session="S007", completed=commits, records=made, ending=ending),
        models={"proposer": "example:large", "evaluator": "example:small", "arbiter": "example:large"},
        spent=Spend(calls=41, requests=38, cached=6, usage=usage, cost_usd=0.4821, unpriced=1),
        costs={"P001": 0.1204, "P002": 0.031, "P003": 0.062, "P005": 0.044},
        is_applied=True,
    )


def eventful_transcript() -> tuple[TranscriptEvent, ...]:
    """What only the transcript of that session knows: an earlier climb, an agent that failed, one that wanted too much."""
    import msgspec

    stale = RungResult(
        rung="G1", status="failed", code="G1.stale", message="the text has changed", path="agents/orders.py", line=3
    )
    reports = [climbed("P001", stale), climbed("P001")]
    gated = [{"proposal_id": each.proposal_id, "report": msgspec.to_builtins(each)} for each in reports]
    return (
        TranscriptEvent("/Negotiation/Round", {"round": 1}),
        *(TranscriptEvent("/Negotiation/Gated", each) for each in gated),
        TranscriptEvent("/Negotiation/Evaluated", {"evaluation": {"proposal_id": "P001", "evaluator": "Mail"}}),
        TranscriptEvent(
            "/Negotiation/Dropped", {"agent": "Stock", "count": 2, "reason": "more than 3 proposals in a round"}
        ),
        TranscriptEvent("/Negotiation/Round", {"round": 2}),
        TranscriptEvent("/Negotiation/Gated", {"proposal_id": "P006", "report": msgspec.to_builtins(climbed("P006"))}),
        TranscriptEvent("/Negotiation/Evaluated", {"evaluation": {"proposal_id": "P006", "evaluator": "Audit"}}),
        TranscriptEvent("/Negotiation/Gated", {"proposal_id": "P006", "report": msgspec.to_builtins(climbed("P006"))}),
        TranscriptEvent("/Negotiation/Merged", {"proposal_id": "P003", "files": ["agents/mail.py"]}),
        TranscriptEvent("/Negotiation/SentBack", {"proposal_id": "P003", "reason": "P001 renamed the field"}),
        TranscriptEvent("/Negotiation/Evaluated", {"evaluation": {"proposal_id": "P003", "evaluator": "Stock"}}),
        TranscriptEvent("/Negotiation/Reviewed", {"proposal_id": "P003", "verdict": "yes", "reason": "at last"}),
        TranscriptEvent(
            "/Negotiation/Failed", {"agent": "Prices", "task": "evaluate", "reason": "the answer was cut off"}
        ),
    )


def eventful() -> Story:
    """That session as a story."""
    return Story(eventful_record(), EDGES, eventful_transcript(), "written")


def large(agents: int = 100, proposals: int = 60) -> Story:
    """A session of many agents in seven layers, with many proposals of some length."""
    names = tuple(f"Agent{number:03}Service" for number in range(agents))
    edges = tuple(
        Edge(names[number - step], names[number], "depends_on" if step == 15 else "topic", "" if step == 15 else "/A/B")
        for number in range(15, agents)
        for step in (15, 13)
    )
    diff = DIFF + "".join(
        f"@@ -{line},7 +{line},7 @@\n a\n b\n c\n-{'x' * 60} = {line}\n+{'y' * 60} = {line}\n d\n e\n f\n"
        for line in range(100, 1000, 100)
    )
    made = []
    for number in range(proposals):
        src = names[number % agents]
        others = tuple(names[(number * 7 + step) % agents] for step in range(1, 9))
        one = proposal(number + 1, src, f"Improve part {number} of it", affects=others, round=number // 10 + 1)
        votes = tuple(vote(one, other, "accept", reasoning="It does not concern me.") for other in others)
        commit = committed(number + 1, one, "unanimous", others, diff) if number % 2 else None
        status = "accepted" if commit else "rejected"
        made.append(
            ProposalRecord(
                proposal=one,
                status=status,  # type: ignore[arg-type]
                gate=climbed(one.proposal_id),
                evaluations=votes,
                commit=commit,
            )
        )
    commits = tuple(each.commit for each in made if each.commit)
    ending = Ending(
        terminated=True, reason="convergence", rounds_executed=8, proposals_made=proposals,
        commits_created=len(commits), files_modified=len(commits),
    )  # fmt: skip
    record = SessionRecord(
        schema_version=1, session="S100", backend="rules", agents=names, arbiters=(), intent="",
        negotiations=Negotiations(session="S100", completed=commits, records=tuple(made), ending=ending), is_applied=True,
    )  # fmt: skip
    return Story(record, edges)
