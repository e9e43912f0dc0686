"""The data of a negotiation: proposals, evaluations, reports of the gate, commits, and the record of a session.

Source: seed 000 (Proposal, Evaluation) and seed 002, chapter 3. Field names are those of seed 002, and every field that the seed
names is in the JSON of artifacts, also where it has its default value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr, replace

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
ARBITER = " (ARBITER)"
"""What follows the name of an arbiter among evaluators."""


def diff_of_texts(path: str, before: str, after: str) -> str:
    """Give the unified diff of two texts, as `git apply` reads it; empty when they are equal."""
    from difflib import unified_diff

    lines = unified_diff(_diff_lines(before), _diff_lines(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _diff_lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


class CodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of one file. `old_code` and `new_code` decide; `diff` is computed from them, whatever is given for it.

    Attributes:
        file_path: Relative posix path below the project root.
        target: Qualified name in the file, `"Class.method"` or `"Class"`; empty for the whole module.
        operation: How `old_code` becomes `new_code`; `add_import` and `add_symbol` have no old code.
        old_code: The text that the author saw, byte for byte, as written in the file (its indentation included). For
            `replace_symbol` the whole symbol from its first decorator to its last line.
        diff: Unified diff from `old_code` to `new_code`; lines count from the first line of `old_code`. Empty for
            `set_decorator_argument`, whose `new_code` is an argument and no text of the file.
        base_sha256: sha256 of the UTF-8 text of the symbol that the author saw; for `search_replace` without target, of the file.
    """

    file_path: str
    target: str
    change_type: ChangeType
    operation: Operation = "replace_symbol"
    old_code: str = ""
    new_code: str = ""
    diff: str = ""
    base_sha256: str = ""

    def __post_init__(self) -> None:
        is_text = self.operation != "set_decorator_argument"
        diff = diff_of_texts(self.file_path, self.old_code, self.new_code) if is_text else ""
        force_setattr(self, "diff", diff)


class SchemaChange(msgspec.Struct, frozen=True, kw_only=True):
    """How a contract element differs before and after; `method` is `"Agent.method"` or a topic."""

    method: str
    input_schema_before: Schema | None = None
    input_schema_after: Schema | None = None
    output_schema_before: Schema | None = None
    output_schema_after: Schema | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change of code that an agent proposes. Its code changes are accepted or rejected together.

    Attributes:
        proposal_id: Given by the engine: `"P001"`, in order of the round and the agents.
        src: The proposing agent.
        dst: The agent addressed; None for all who are affected.
        affects: Further agents that the proposer declares as affected.
        intent: `"align_schema"`, `"add_validation"`, `"refactor_method"` ...
        code_change: The only change of most proposals, else the first one; None for a proposal that changes nothing.
        further_code_changes: The others, in the order in which they apply.
        schema_change: The contract element that the proposer says it changes, or the first of them.
        further_schema_changes: The others.
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
    code_change: CodeChange | None = None
    further_code_changes: tuple[CodeChange, ...] = ()
    dst: str | None = None
    affects: tuple[str, ...] = ()
    schema_change: SchemaChange | None = None
    further_schema_changes: tuple[SchemaChange, ...] = ()
    reason: str = ""
    title: str = ""
    dependencies: tuple[str, ...] = ()
    priority: int = 0
    parent: str | None = None
    finding: str = ""
    # How format 2 and the sessions of its time spell the changes; read, and never written.
    _code_changes: tuple[CodeChange, ...] | UnsetType = msgspec.field(default=UNSET, name="code_changes")
    _schema_changes: tuple[SchemaChange, ...] | UnsetType = msgspec.field(default=UNSET, name="schema_changes")

    def __post_init__(self) -> None:
        for old, first, further in (
            ("_code_changes", "code_change", "further_code_changes"),
            ("_schema_changes", "schema_change", "further_schema_changes"),
        ):
            changes = getattr(self, old)
            if changes is not UNSET:
                force_setattr(self, old, UNSET)
                force_setattr(self, first, changes[0] if changes else None)
                force_setattr(self, further, changes[1:])

    @property
    def code_changes(self) -> tuple[CodeChange, ...]:
        """All changes of code, in the order in which they apply."""
        return (self.code_change, *self.further_code_changes) if self.code_change else ()

    @property
    def schema_changes(self) -> tuple[SchemaChange, ...]:
        """All contract elements that the proposer says it changes."""
        return (self.schema_change, *self.further_schema_changes) if self.schema_change else ()

    @property
    def files(self) -> tuple[str, ...]:
        """The distinct files that it wants to change, sorted."""
        return tuple(sorted({change.file_path for change in self.code_changes}))

    def with_changes(self, code: Sequence[CodeChange], schema: Sequence[SchemaChange] = ()) -> Proposal:
        """Give the same proposal with other changes of code and contracts."""
        return replace(self, _code_changes=tuple(code), _schema_changes=tuple(schema))


class ImpactAssessment(msgspec.Struct, frozen=True):
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


class ProposalEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's judgement of one proposal. A failed, late or unusable answer is `abstain`, never accept.

    Attributes:
        evaluator: The agent; for an arbiter `"Name (ARBITER)"` (seed 002, 6.6.3).
        confidence: From 0 to 1; 1 for arbiters, whose decisions are final.
    """

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

    def __post_init__(self) -> None:
        if self.is_arbiter and not self.evaluator.endswith(ARBITER):
            force_setattr(self, "evaluator", f"{self.evaluator}{ARBITER}")

    @property
    def agent(self) -> str:
        """The name of the evaluating agent, also of an arbiter."""
        return self.evaluator.removesuffix(ARBITER) if self.is_arbiter else self.evaluator


class RungResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one rung of the gate says; `code` is stable, e.g. `"G3.import"`: why it refuses, or what it let through unverified."""

    rung: str
    status: RungStatus
    code: str = ""
    message: str = ""
    path: str = ""
    line: int = 0


class GateReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of the gate for one proposal. Passed means: every rung passed or was allowed not to run."""

    proposal_id: str
    passed: bool
    rungs: tuple[RungResult, ...]
    schema_changes: tuple[SchemaChange, ...] = ()

    @property
    def failure(self) -> RungResult | None:
        """The rung that refused, or None."""
        return next((rung for rung in self.rungs if rung.status == "failed"), None)


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the conversation about a proposal: who (an agent, or `gate`) did what, and in which words."""

    actor: str
    action: str
    text: str


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted proposal. It has no `timestamp`: a replay must give the same bytes.

    Attributes:
        evaluators: Who voted, the arbiter last as `"Name (ARBITER)"`.
        resolution: The diff of every file, path -> unified diff.
        negotiation_log: The conversation about the text that was committed: its proposal, the gate, every evaluation.
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
    negotiation_log: tuple[LogEntry, ...] = ()


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
