"""Sessions that were agreed on without asking anybody: real workspace, record, journal and, if wanted, git commits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import (
    CodeChange,
    CommitRecord,
    Ending,
    GateReport,
    Negotiations,
    Proposal,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
)
from graphbus_core.negotiation.apply import apply_session
from graphbus_core.negotiation.transcript import RECORD_VERSION, SessionRecord, claim_session, save_session

ORDER = """from graphbus_core import GraphBusNode


class Order(GraphBusNode):
    def place(self, price=0):
        total = price
        self.publish("/Order/Created", {"sku": "mug", "total": total})

    def rebate(self):
        return 0
"""
STOCK = """from graphbus_core import GraphBusNode, subscribe


class Stock(GraphBusNode):
    @subscribe("/Order/Created")
    def on_order(self, event):
        self.log(event["sku"])
"""
FILES: Mapping[str, str | bytes] = {
    "pyproject.toml": "[tool.graphbus]\n",
    ".gitignore": ".graphbus/\n",
    "agents/order.py": ORDER,
    "agents/stock.py": STOCK,
    "notes.txt": "notes\n",
}
Edit = tuple[str, str, str]
"""Path, old text, new text."""

PRICE: Edit = ("agents/order.py", "        total = price\n", "        total = max(price, 0)\n")
REBATE: Edit = ("agents/order.py", "return 0\n", "return 1\n")
LOG: Edit = ("agents/stock.py", 'self.log(event["sku"])', "self.log(f\"sold {event['sku']}\")")


class Agreed:
    """A session in the making; each `accept` is one accepted proposal."""

    def __init__(self, root: Path, **config: Any) -> None:
        config.setdefault("makes_commits", True)
        self.config = ResolvedBuild(root=str(root), paths=(str(root / "agents"),), **config)
        self.workspace = Workspace(Project.read(self.config, cache=False))
        self.session = claim_session(self.config.artifacts_dir, is_kept=False)
        self.models: dict[str, str] = {}
        self.costs: dict[str, float] = {}
        self.records: list[ProposalRecord] = []

    def accept(self, *edits: Edit, title: str = "Refuse negative prices", **more: Any) -> Agreed:
        number = f"P{len(self.records) + 1:03}"
        changes = tuple(
            CodeChange(
                file_path=path, target="", change_type="modify", operation="search_replace", old_code=old, new_code=new
            )
            for path, old, new in edits
        )
        fields = {"intent": "add_validation", "src": "Order", "reason": "A negative price would make the total wrong."}
        proposal = Proposal(proposal_id=number, round=1, title=title, **{**fields, **more}).with_changes(changes)
        before = {path: self.workspace.file_data(path) for path in proposal.files}
        self.workspace.commit(proposal)
        diffs = {path: unified_diff(path, data, self.workspace.file_data(path)) for path, data in before.items()}
        self.records.append(
            ProposalRecord(
                proposal=proposal,
                status="accepted",
                gate=GateReport(
                    proposal_id=number,
                    passed=True,
                    rungs=(RungResult(rung="G0", status="passed"), RungResult(rung="G6", status="not_run")),
                ),
                evaluations=(
                    ProposalEvaluation(
                        proposal_id=number, evaluator="Stock", round=1, decision="accept", reasoning="Fits what I read."
                    ),
                ),
                commit=CommitRecord(
                    commit_id=f"C{number[1:]}",
                    proposal_id=number,
                    round=1,
                    proposer=proposal.src,
                    evaluators=("Stock",),
                    consensus_type="unanimous",
                    files_modified=proposal.files,
                    title=title,
                    resolution=diffs,
                ),
            )
        )
        return self

    def save(self) -> SessionRecord:
        commits = tuple(record.commit for record in self.records if record.commit)
        ending = Ending(
            terminated=True,
            reason="convergence",
            rounds_executed=1,
            proposals_made=len(self.records),
            commits_created=len(commits),
            files_modified=len(self.workspace.changed_files()),
        )
        negotiations = Negotiations(session=self.session, completed=commits, records=tuple(self.records), ending=ending)
        record = SessionRecord(
            schema_version=RECORD_VERSION,
            session=self.session,
            backend="rules",
            agents=("Order", "Stock"),
            arbiters=(),
            intent="",
            negotiations=negotiations,
        )
        record = replace(record, models=self.models, costs=self.costs)
        save_session(self.config.artifacts_dir, record, ())
        return record

    def land(self) -> None:
        """Save the session, write the files, make the commits."""
        apply_session(self.config, self.save().negotiations, self.workspace, None)
