"""The data of a negotiation: proposals, evaluations, reports of the gate, commits, and the record of a session.

Records and artifacts contain these structs as JSON. Most fields are written even if they have their default value.

Source: seed 000 and seed 002, chapter 3.
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
"""The end of an arbiter's name in `evaluator` and `evaluators`."""


def diff_of_texts(path: str, before: str, after: str) -> str:
    """Return the unified diff of two texts in the form that `git apply` accepts; empty if they are equal."""
    from difflib import unified_diff

    lines = unified_diff(_split_for_diff(before), _split_for_diff(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _split_for_diff(text: str) -> list[str]:
    """Return the lines of a text with their line ends. Only LF ends a line, as in Git; `splitlines` would split at others too."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


class CodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of one file. `diff` is always computed from `old_code` and `new_code`; a value passed for it is ignored.

    Attributes:
        file_path: Relative posix path below the project root.
        target: Qualified name of a symbol in the file, `"Class.method"` or `"Class"`; empty for the whole module.
        operation: What kind of edit it is; `add_import` and `add_symbol` have no old code.
        old_code: The text that the author saw, exactly as in the file, with its indentation. For `replace_symbol` it is the whole
            symbol, from its first decorator to its last line.
        diff: Unified diff from `old_code` to `new_code`; lines count from the first line of `old_code`. Empty for
            `set_decorator_argument`, whose `new_code` is only an argument.
        base_sha256: sha256 of the text of the symbol that the author saw, in UTF-8; for `search_replace` without target, of the
            whole file.
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
        """Compute `diff`."""
        is_text = self.operation != "set_decorator_argument"
        diff = diff_of_texts(self.file_path, self.old_code, self.new_code) if is_text else ""
        force_setattr(self, "diff", diff)


class SchemaChange(msgspec.Struct, frozen=True, kw_only=True):
    """The schemas of a contract element before and after a change; `method` is `"Agent.method"` or a topic."""

    method: str
    input_schema_before: Schema | None = None
    input_schema_after: Schema | None = None
    output_schema_before: Schema | None = None
    output_schema_after: Schema | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that an agent proposes. Its code changes are accepted or rejected together.

    Attributes:
        proposal_id: The number that the engine assigns, such as `"P001"`.
        src: The agent that proposes it.
        dst: The agent to which it is addressed; None for all affected agents.
        affects: Further agents that the author names as affected.
        intent: `"align_schema"`, `"add_validation"`, `"refactor_method"` ...
        code_change: The first change of code, usually the only one; None if it changes nothing.
        further_code_changes: The other changes of code, in the order in which they apply.
        schema_change: The first contract element that the author says it changes; None if there is none.
        further_schema_changes: The other ones.
        reason: Why the author wants the change.
        dependencies: The ids of proposals that must be accepted first.
        priority: Proposals with a higher number are committed first.
        parent: The id of the proposal that this one counters; None if it is no counter-proposal.
        finding: The code of the rule whose finding it removes; empty if there is none.
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
    # The names of these fields in artifacts and sessions of format 2, which are read and never written.
    _code_changes: tuple[CodeChange, ...] | UnsetType = msgspec.field(default=UNSET, name="code_changes")
    _schema_changes: tuple[SchemaChange, ...] | UnsetType = msgspec.field(default=UNSET, name="schema_changes")

    def __post_init__(self) -> None:
        """Move the values of the fields of format 2, and those of `with_changes`, to the present fields."""
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
        """All contract elements that the author says the proposal changes."""
        return (self.schema_change, *self.further_schema_changes) if self.schema_change else ()

    @property
    def files(self) -> tuple[str, ...]:
        """The sorted paths of the files that the proposal changes, each once."""
        return tuple(sorted({change.file_path for change in self.code_changes}))

    def with_changes(self, code: Sequence[CodeChange], schema: Sequence[SchemaChange] = ()) -> Proposal:
        """Return a copy of the proposal with these changes of code and contracts instead of its own."""
        return replace(self, _code_changes=tuple(code), _schema_changes=tuple(schema))


class ImpactAssessment(msgspec.Struct, frozen=True):
    """The consequences that an evaluator expects."""

    breaks_contracts: bool = False
    affects_dependencies: tuple[str, ...] = ()
    estimated_risk: Risk = "low"


class Counterexample(msgspec.Struct, frozen=True, omit_defaults=True):
    """Evidence for a reject: a sentence about a contract, or a Python file with one or more tests.

    Attributes:
        is_verified: GraphBus has checked or run it, and it holds; the reject is then a veto.
        detail: The result of that check, in words.
    """

    kind: Literal["contract", "test"]
    text: str
    is_verified: bool = False
    detail: str = ""


class ProposalEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of one proposal by one agent, or the decision of an arbiter. A missing or unusable answer is `abstain`.

    Attributes:
        evaluator: The name of the agent; for an arbiter `"Name (ARBITER)"`.
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
        """Add the suffix to the name of an arbiter, unless it is there."""
        if self.is_arbiter and not self.evaluator.endswith(ARBITER):
            force_setattr(self, "evaluator", f"{self.evaluator}{ARBITER}")

    @property
    def agent(self) -> str:
        """The name of the evaluating agent; for an arbiter without the suffix."""
        return self.evaluator.removesuffix(ARBITER) if self.is_arbiter else self.evaluator


class RungResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one rung of the gate. `code`, such as `"G3.import"`, says why it refused or could not verify the change."""

    rung: str
    status: RungStatus
    code: str = ""
    message: str = ""
    path: str = ""
    line: int = 0


DEEDS: dict[str, str] = {
    "reads": "reads",
    "calls": "calls",
    "runs": "calls its own",
    "publishes": "publishes",
    "raises": "raises",
    "sets": "changes its attribute",
    "returns": "returns",
}
"""What a handler or method can do: a key of `Removal.lost` -> the verb in a sentence."""


class Removal(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a handler or method does before a change and not after it, the methods that it calls on `self` included.

    Attributes:
        method: `"Agent.method"`, as it is named before the change.
        topic: For a handler, the topic; what the agent does with its events in another method counts as kept.
        keeps_nothing: The handler does nothing of what it did.
        lost: A key of `DEEDS` -> keys of the payload, methods, topics, exceptions, attributes or keys of the result; sorted.
    """

    method: str
    topic: str = ""
    keeps_nothing: bool = False
    lost: dict[str, tuple[str, ...]] = {}


def describe_removals(removals: Sequence[Removal]) -> tuple[str, ...]:
    """Return a sentence for each removal, such as `Shop.on_order (/Order) no longer reads total; publishes /Mail.`."""
    return tuple(
        f"{each.method}{f' ({each.topic})' if each.topic else ''} no longer "
        + ("does anything that it did" + (": it no longer " if each.lost else "") if each.keeps_nothing else "")
        + "; ".join(f"{DEEDS.get(kind, kind)} {', '.join(names)}" for kind, names in each.lost.items())
        + "."
        for each in removals
    )


class GateReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The results of all rungs for one proposal; `passed` is True if none of them refused it.

    Attributes:
        schema_changes: The contract elements that the change alters, computed.
        removals: What handlers and methods no longer do after the change, computed; `removed` says it in words.
    """

    proposal_id: str
    passed: bool
    rungs: tuple[RungResult, ...]
    schema_changes: tuple[SchemaChange, ...] = ()
    removals: tuple[Removal, ...] = ()

    @property
    def removed(self) -> tuple[str, ...]:
        """What handlers and methods no longer do after the change, a sentence each."""
        return describe_removals(self.removals)

    @property
    def failure(self) -> RungResult | None:
        """The result of the rung that refused the proposal; None if no rung did."""
        return next((rung for rung in self.rungs if rung.status == "failed"), None)


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry in the log of a proposal: an actor (an agent, or `gate`), what it did, and its text."""

    actor: str
    action: str
    text: str


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted proposal. It has no timestamp, because a replay must produce the same bytes.

    Attributes:
        proposer: The agent that proposed it.
        evaluators: The agents that voted, then the arbiters as `"Name (ARBITER)"`.
        resolution: Path -> unified diff of each changed file.
        negotiation_log: What led to the commit: the proposal, the report of the gate, and every evaluation.
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
    """Everything that happened to a proposal; `refusal` says why it was closed without a commit."""

    proposal: Proposal
    status: Status
    gate: GateReport | None = None
    evaluations: tuple[ProposalEvaluation, ...] = ()
    commit: CommitRecord | None = None
    refusal: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How and why a negotiation ended, with its numbers. Source: seed 002, 6.9."""

    terminated: bool
    reason: TerminationReason
    rounds_executed: int
    proposals_made: int
    commits_created: int
    files_modified: int
    detail: str = ""


class Negotiations(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one session; `completed` are its commits. Source: seed 001."""

    session: str
    completed: tuple[CommitRecord, ...]
    records: tuple[ProposalRecord, ...]
    ending: Ending

    @property
    def converged(self) -> bool:
        """True if the session ended because no agent had anything left to propose. Source: seed 001."""
        return self.ending.reason == "convergence"


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a session changed: its digests before and after, and the proposals that changed it.

    Source: seed 001: modified_files.json.
    """

    path: str
    sha256_before: str
    sha256_after: str
    proposals: tuple[str, ...] = ()
