"""The nouns of a negotiation: who wants to change what, who says what to it, and what came of it.

Source: seed 000 (Proposal, Evaluation) and seed 002, chapter 3. Field names are those of seed 002.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.schema.types import Schema

Operation = Literal[
    "replace_symbol", "add_symbol", "delete_symbol", "set_decorator_argument", "add_import", "search_replace"
]
ChangeType = Literal["modify", "add", "delete"]
Decision = Literal["accept", "reject", "counter", "defer"]
VoteDecision = Literal["accept", "reject", "counter", "defer", "abstain"]
Consensus = Literal["unanimous", "majority", "arbiter", "override"]
Status = Literal["pending", "refused", "accepted", "rejected", "countered", "superseded", "deferred"]
TerminationReason = Literal["convergence", "max_rounds", "file_limit", "manual", "budget", "oscillation", "error"]
RungStatus = Literal["passed", "failed", "not_run"]
Risk = Literal["low", "medium", "high"]


class CodeChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One edit of one file. Old and new text are the truth; `diff` is computed from them and never read back.

    Attributes:
        file_path: Relative posix path below the project root.
        target: Qualified name in the file, `"Class.method"` or `"Class"`; empty for the whole module.
        operation: How `old_code` becomes `new_code`; `add_import` and `add_symbol` have no old code.
        old_code: The text that the author saw, byte for byte, as written in the file (its indentation included). For
            `replace_symbol` the whole symbol from its first decorator to its last line.
        base_sha256: sha256 of the symbol's (for `search_replace` without target: the file's) UTF-8 text that the author saw.
    """

    file_path: str
    target: str
    change_type: ChangeType
    operation: Operation = "replace_symbol"
    old_code: str = ""
    new_code: str = ""
    diff: str = ""
    base_sha256: str = ""


class SchemaChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a contract element differs before and after; `method` is `"Agent.method"` or a topic."""

    method: str
    input_schema_before: Schema | None = None
    input_schema_after: Schema | None = None
    output_schema_before: Schema | None = None
    output_schema_after: Schema | None = None


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A wish to change code. Its changes stand or fall together.

    Attributes:
        proposal_id: Given by the engine: `"P001"`, in order of the round and the agents.
        src: The proposing agent.
        dst: The agent addressed; None for all who are affected.
        affects: Further agents that the proposer declares as affected.
        intent: `"align_schema"`, `"add_validation"`, `"refactor_method"` ...
        reason: Why; a person must be able to judge it.
        dependencies: Proposals that must be accepted before.
        priority: Higher comes first.
        parent: The proposal that this one counters, if any.
        finding: The rule code that it mends, if any.
    """

    proposal_id: str
    round: int
    src: str
    intent: str
    code_changes: tuple[CodeChange, ...]
    dst: str | None = None
    affects: tuple[str, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    reason: str = ""
    title: str = ""
    dependencies: tuple[str, ...] = ()
    priority: int = 0
    parent: str | None = None
    finding: str = ""

    @property
    def code_change(self) -> CodeChange:
        """The first change: the only one, in most proposals (seed 002)."""
        return self.code_changes[0]

    @property
    def schema_change(self) -> SchemaChange | None:
        """The first contract change, or None (seed 002)."""
        return self.schema_changes[0] if self.schema_changes else None

    @property
    def files(self) -> tuple[str, ...]:
        """The distinct files that it wants to change, sorted."""
        return tuple(sorted({change.file_path for change in self.code_changes}))


class ImpactAssessment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an evaluator expects to happen."""

    breaks_contracts: bool = False
    affects_dependencies: tuple[str, ...] = ()
    estimated_risk: Risk = "low"


class Counterexample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A concrete counterexample behind a reject: a sentence about a contract, or a Python file with one or more tests.

    Attributes:
        is_verified: It was executed or checked, and it holds: then it is a veto.
        detail: What came of executing or checking it, in words.
    """

    kind: Literal["contract", "test"]
    text: str
    is_verified: bool = False
    detail: str = ""


class ProposalEvaluation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One agent's judgement of one proposal. A failed, late or unusable answer is `abstain`, never accept."""

    proposal_id: str
    evaluator: str
    round: int
    decision: VoteDecision
    confidence: float = 1.0
    reasoning: str = ""
    concerns: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    counter_proposal: Proposal | None = None
    impact_assessment: ImpactAssessment = ImpactAssessment()
    evidence: tuple[Counterexample, ...] = ()
    is_arbiter: bool = False


class RungResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one rung of the gate says; `code` is stable, e.g. `"G3.import"`: why it refuses, or what it let through unverified."""

    rung: str
    status: RungStatus
    code: str = ""
    message: str = ""
    path: str = ""
    line: int = 0


class GateReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The climb of one proposal. Passed means: every rung passed or was allowed not to run."""

    proposal_id: str
    passed: bool
    rungs: tuple[RungResult, ...]
    schema_changes: tuple[SchemaChange, ...] = ()

    @property
    def failure(self) -> RungResult | None:
        """The rung that refused, or None."""
        return next((rung for rung in self.rungs if rung.status == "failed"), None)


class CommitRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An accepted proposal. No clock time: a replay must give the same bytes.

    Attributes:
        evaluators: Who voted, the arbiter last as `"Name (ARBITER)"`.
        resolution: The diff of every file, path -> unified diff.
    """

    commit_id: str
    proposal_id: str
    round: int
    proposer: str
    evaluators: tuple[str, ...]
    consensus_type: Consensus
    files_modified: tuple[str, ...]
    title: str = ""
    resolution: dict[str, str] = {}
    schema_changes: tuple[SchemaChange, ...] = ()


class ProposalRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A proposal's whole story, as `graphbus inspect-negotiation` shows it."""

    proposal: Proposal
    status: Status
    gate: GateReport | None = None
    evaluations: tuple[ProposalEvaluation, ...] = ()
    commit: CommitRecord | None = None
    refusal: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How and why a negotiation ended (seed 002, 6.9)."""

    terminated: bool
    reason: TerminationReason
    rounds_executed: int
    proposals_made: int
    commits_created: int
    files_modified: int
    detail: str = ""


class Negotiations(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that came of one session: `completed` are the commits of seed 001."""

    session: str
    completed: tuple[CommitRecord, ...]
    records: tuple[ProposalRecord, ...]
    ending: Ending

    @property
    def converged(self) -> bool:
        """True when it ended because nobody had anything left to propose (seed 001)."""
        return self.ending.reason == "convergence"


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a session changed, by its digests (seed 001: modified_files.json)."""

    path: str
    sha256_before: str
    sha256_after: str
    proposals: tuple[str, ...] = ()
