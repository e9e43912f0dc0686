"""A world for the negotiation engine: files, a gate, agents and an arbiter in memory, which carry out its commands.

`World` does what a test tells it to; `Adversary` does anything at all, reproducibly, from a seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import pairwise
from random import Random
from typing import Any

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import (
    CodeChange,
    Counterexample,
    GateReport,
    Negotiations,
    Proposal,
    ProposalEvaluation,
    RungResult,
    SchemaChange,
    VoteDecision,
)
from graphbus_core.negotiation.engine import begin, collect_records, step
from graphbus_core.negotiation.protocol import (
    ApplyProposal,
    Arbitrated,
    AskArbitration,
    AskEvaluations,
    AskPerson,
    AskProposals,
    AskRepair,
    ChangeApplied,
    CheckProposal,
    Command,
    Evaluated,
    Gated,
    NegotiationState,
    NegotiationStopped,
    Participants,
    PersonReply,
    Proposed,
    Repaired,
    Reply,
)
from graphbus_core.schema.types import INT, STR, Field, Schema

QUESTIONS = (AskProposals, AskRepair, AskEvaluations, AskArbitration, AskPerson, CheckProposal, ApplyProposal)
AGENT_QUESTIONS = (AskProposals, AskRepair, AskEvaluations, AskArbitration)
ANSWERS = {
    AskProposals: "_propose",
    AskRepair: "_repair",
    AskEvaluations: "_evaluate",
    AskArbitration: "_arbitrate",
    AskPerson: "_review",
    CheckProposal: "_check",
    ApplyProposal: "_apply",
}


def change(path: str, old: str, new: str) -> CodeChange:
    """Replace a text in a file."""
    return CodeChange(
        file_path=path, target="", change_type="modify", operation="search_replace", old_code=old, new_code=new
    )


def draft(title: str, *changes: CodeChange, **fields: Any) -> Proposal:
    """A proposal before the engine numbers it; without changes it replaces `0` by `1` in `a.py`."""
    return Proposal(
        proposal_id=fields.pop("proposal_id", ""),
        round=0,
        src="",
        intent="test",
        title=title,
        **fields,
    ).with_changes(changes or (change("a.py", "0", "1"),))


def counter(title: str, **fields: object) -> ProposalEvaluation:
    """A vote that proposes something else."""
    return ProposalEvaluation(
        proposal_id="",
        evaluator="",
        round=0,
        decision="counter",
        counter_proposal=draft(title, change("a.py", "0", "2"), **fields),
    )


def report(proposal_id: str, passed: bool = True, **fields: Any) -> GateReport:
    """What a gate with one rung says."""
    rung = (
        RungResult(rung="G1", status="passed")
        if passed
        else RungResult(rung="G1", status="failed", code="G1.apply", message="it does not apply")
    )
    return GateReport(proposal_id=proposal_id, passed=passed, rungs=(rung,), **fields)


class World:
    """Does as it is told, by the titles of the proposals; whoever is told nothing proposes nothing and accepts everything.

    Attributes:
        files: The workspace.
        asked: Every question of the engine, in order.
        told: Every announcement, in order.
    """

    def __init__(
        self, *names: str, arbiters: tuple[str, ...] = (), edges: tuple[Edge, ...] = (), **safety: Any
    ) -> None:
        owners = {f"{name.lower()}.py": (name,) for name in names}
        self.participants = Participants(agents=(*names, *arbiters), arbiters=arbiters, owners=owners, edges=edges)
        self.safety = SafetyConfig(**safety)
        self.files = dict.fromkeys(owners, "0")
        self.original = dict(self.files)
        self.drafts: dict[tuple[str, int], tuple[Proposal, ...]] = {}
        self.decisions: dict[tuple[str, str], list[VoteDecision | ProposalEvaluation]] = {}
        self.refusals: dict[str, list[bool]] = {}
        self.repairs: dict[str, list[Proposal]] = {}
        self.words: dict[str | tuple[str, str], VoteDecision | None] = {}
        self.is_reviewed = False
        self.person: dict[str, list[PersonReply]] = {}
        self.failures: set[tuple[str, str]] = set()
        self.schema_changes: dict[str, Any] = {}
        self.edges_after: dict[str, tuple[Edge, ...]] = {}
        self.stop_at: tuple[type, NegotiationStopped] | None = None
        self.asked: list[Command] = []
        self.told: list[Command] = []
        self.state: NegotiationState | None = None

    # --- what a test says ---

    def proposes(self, agent: str, *drafts: Proposal, round: int = 1) -> None:
        self.drafts[agent, round] = drafts

    def votes(self, title: str, **decisions: VoteDecision | ProposalEvaluation | list[Any]) -> None:
        for agent, said in decisions.items():
            self.decisions[agent, title] = list(said) if isinstance(said, list) else [said]

    def gate_says(self, title: str, *passes: bool) -> None:
        self.refusals[title] = list(passes)

    def statuses(self) -> dict[str, str]:
        """Run it, and give what became of each proposal by its title."""
        return {record.proposal.title: record.status for record in self.run().records}

    # --- what the engine asks ---

    def answer(self, question: Any) -> Reply:
        reply: Reply = getattr(self, ANSWERS[type(question)])(question)
        return reply

    def _propose(self, question: AskProposals) -> Reply:
        if (question.agent, "propose") in self.failures:
            return Proposed(question.agent, failure="it broke down")
        return Proposed(question.agent, self.drafts.get((question.agent, question.round), ()))

    def _repair(self, question: AskRepair) -> Reply:
        left = self.repairs.get(question.proposal.title, [])
        failure = "it broke down" if (question.agent, "repair") in self.failures else ""
        return Repaired(question.proposal.proposal_id, left.pop(0) if left else None, failure)

    def _evaluate(self, question: AskEvaluations) -> Reply:
        if (question.agent, "evaluate") in self.failures:
            return Evaluated(question.agent, failure="it broke down")
        return Evaluated(
            question.agent, tuple(self._vote(question.agent, review.proposal) for review in question.reviews)
        )

    def _vote(self, agent: str, proposal: Proposal) -> ProposalEvaluation:
        left = self.decisions.get((agent, proposal.title), ["accept"])
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, ProposalEvaluation):
            return ProposalEvaluation(
                proposal_id=proposal.proposal_id,
                evaluator="whoever",
                round=0,
                decision=said.decision,
                counter_proposal=said.counter_proposal,
                evidence=said.evidence,
            )
        return ProposalEvaluation(proposal_id=proposal.proposal_id, evaluator="whoever", round=0, decision=said)

    def _arbitrate(self, question: AskArbitration) -> Reply:
        proposal = question.review.proposal
        if (question.arbiter, "arbitrate") in self.failures:
            return Arbitrated(proposal.proposal_id, question.arbiter, failure="it broke down")
        said = self.words.get((question.arbiter, proposal.title), self.words.get(proposal.title, "reject"))
        if said is None:
            return Arbitrated(proposal.proposal_id, question.arbiter)
        word = ProposalEvaluation(
            proposal_id="", evaluator="", round=0, decision=said, reasoning="because" if said == "accept" else ""
        )
        return Arbitrated(proposal.proposal_id, question.arbiter, word)

    def _review(self, question: AskPerson) -> Reply:
        proposal = question.review.proposal
        left = self.person.get(proposal.title, [])
        said = left.pop(0) if left else PersonReply("", "yes" if question.agreed else "no")
        return PersonReply(proposal.proposal_id, said.verdict, said.proposal, said.reason)

    def _check(self, question: CheckProposal) -> Reply:
        proposal = question.proposal
        said = self.refusals.get(proposal.title, [])
        passed = said.pop(0) if said else True
        edges = self.edges_after.get(proposal.title, self.participants.edges)
        changes = self.schema_changes.get(proposal.title, ())
        return Gated(proposal.proposal_id, report(proposal.proposal_id, passed, schema_changes=changes), edges)

    def _apply(self, question: ApplyProposal) -> Reply:
        proposal = question.proposal
        after = dict(self.files)
        for edit in proposal.code_changes:
            text = after.get(edit.file_path, "")
            if edit.old_code not in text:
                return ChangeApplied(
                    proposal_id=proposal.proposal_id, digest=self.digest, refusal=f"{edit.old_code!r} is gone"
                )
            after[edit.file_path] = text.replace(edit.old_code, edit.new_code, 1)
        diffs = {
            path: f"-{self.files.get(path)}\n+{text}" for path, text in after.items() if text != self.files.get(path)
        }
        self.files = after
        edges = self.edges_after.get(proposal.title, self.participants.edges)
        return ChangeApplied(proposal_id=proposal.proposal_id, digest=self.digest, resolution=diffs, edges=edges)

    @property
    def digest(self) -> str:
        return sha256(repr(sorted(self.files.items())).encode()).hexdigest()

    # --- the whole ---

    def run(self, shuffle: Random | None = None) -> Negotiations:
        """Negotiate to the end; with `shuffle`, the answers of a phase arrive in a random order."""
        state, commands = begin(self.participants, self.safety, self.digest, is_reviewed=self.is_reviewed)
        while state.phase != "FINISHED":
            questions = self.note(commands)
            if shuffle:
                shuffle.shuffle(questions)
            commands = ()
            for question in questions:
                if self.stop_at and isinstance(question, self.stop_at[0]):
                    state, commands = step(state, self.stop_at[1])
                    break
                state, more = step(state, self.answer(question))
                commands = (*commands, *more)
        self.note(commands)
        self.state = state
        return collect_records(state, "S001")

    def note(self, commands: Iterable[Command]) -> list[Any]:
        questions = [command for command in commands if isinstance(command, QUESTIONS)]
        self.asked += questions
        self.told += [command for command in commands if not isinstance(command, QUESTIONS)]
        return questions

    def questions(self, kind: type) -> list[Any]:
        return [question for question in self.asked if isinstance(question, kind)]

    def announced(self, kind: type) -> list[Any]:
        return [announcement for announcement in self.told if isinstance(announcement, kind)]


def proposing(*names: str, votes: dict[str, Any] | None = None, **options: Any) -> World:
    """A world in which A proposes `one` in the first round; `votes` are those on it, by the name of the agent."""
    world = World(*names, **options)
    world.proposes("A", draft("one"))
    world.votes("one", **votes or {})
    return world


class Adversary(World):
    """Answers anything at all: nothing, too much, nonsense, twice, the wrong name, a breakdown. The same question of the
    same seed gets the same answer, whenever it is asked.
    """

    def __init__(
        self, seed: int, names: tuple[str, ...], arbiters: tuple[str, ...], *, is_reviewed: bool = False, **safety: Any
    ) -> None:
        edges = tuple(Edge(one, other, "topic", f"/{one}/T") for one, other in pairwise(names))
        super().__init__(*names, arbiters=arbiters, edges=edges, **safety)
        self.seed = seed
        self.is_reviewed = is_reviewed

    def again(self) -> Adversary:
        """The same world from the beginning."""
        other = Adversary(self.seed, self.participants.voters, self.participants.arbiters, is_reviewed=self.is_reviewed)
        other.safety = self.safety
        return other

    def _dice(self, *about: object) -> Random:
        return Random(repr((self.seed, *about)))

    def _draft(self, dice: Random) -> Proposal:
        paths = [*self.original] * 3 + ["protected.py", "missing.py"]
        changes = tuple(
            change(dice.choice(paths), dice.choice("0012"), dice.choice("0123"))
            for _ in range(dice.choice((0, 1, 1, 1, 1, 1, 1, 1, 2)))
        )
        return Proposal(
            proposal_id=dice.choice(("", "P001", "x", "y")),
            round=dice.randrange(99),
            src=dice.choice(("", "A", "nobody")),
            intent="anything",
            dst=dice.choice((None, "A", "nobody")),
            affects=dice.choice(((), ("A", "B"), ("nobody",))),
            dependencies=dice.choice((*((),) * 12, ("P001",), ("x",), ("y", "P009"), ("",))),
            priority=dice.randrange(-2, 3),
            parent=dice.choice((None, "P001", "nothing")),
        ).with_changes(changes)

    def _propose(self, question: AskProposals) -> Reply:
        dice = self._dice("propose", question.agent, question.round)
        if dice.random() < 0.1:
            return Proposed(question.agent, failure="boom")
        count = dice.choice((0, 0, 1)) if question.round > self.seed % 5 else dice.choice((0, 1, 1, 2, 5))
        return Proposed(question.agent, tuple(self._draft(dice) for _ in range(count)))

    def _repair(self, question: AskRepair) -> Reply:
        dice = self._dice("repair", question.proposal)
        repaired = self._draft(dice) if dice.random() < 0.7 else None
        return Repaired(question.proposal.proposal_id, repaired, dice.choice(("", "boom")))

    def _evaluate(self, question: AskEvaluations) -> Reply:
        dice = self._dice("evaluate", question.agent, question.round)
        if dice.random() < 0.1:
            return Evaluated(question.agent, failure="boom")
        votes = [
            self._any_vote(dice, review.proposal.proposal_id) for review in question.reviews if dice.random() < 0.9
        ]
        votes += [self._any_vote(dice, dice.choice(("P001", "P777")))] * dice.choice((0, 0, 1))
        return Evaluated(question.agent, tuple(votes))

    def _any_vote(self, dice: Random, proposal_id: str) -> ProposalEvaluation:
        decision: VoteDecision = dice.choice(("accept", "accept", "accept", "reject", "counter", "defer", "abstain"))
        return ProposalEvaluation(
            proposal_id=proposal_id,
            evaluator=dice.choice(("A", "B", "nobody")),
            round=dice.randrange(99),
            decision=decision,
            counter_proposal=self._draft(dice) if dice.random() < 0.8 else None,
            evidence=(Counterexample("contract", "it breaks", is_verified=dice.random() < 0.3),)
            * dice.choice((0, 0, 1)),
            is_arbiter=dice.random() < 0.2,
        )

    def _arbitrate(self, question: AskArbitration) -> Reply:
        proposal_id = question.review.proposal.proposal_id
        dice = self._dice("arbitrate", proposal_id, question.arbiter, question.reason)
        word = self._any_vote(dice, "P777") if dice.random() < 0.8 else None
        return Arbitrated(proposal_id, question.arbiter, word, dice.choice(("", "boom")))

    def _review(self, question: AskPerson) -> Reply:
        proposal = question.review.proposal
        dice = self._dice("review", proposal, question.reason, self.digest)
        own = self._draft(dice) if dice.random() < 0.8 else None
        verdict = dice.choice(("yes", "yes", "yes", "no", "edit", "edit")) if dice.random() < 0.97 else "quit"
        return PersonReply(proposal.proposal_id, verdict, own, dice.choice(("", "because")))

    def _check(self, question: CheckProposal) -> Reply:
        dice = self._dice("gate", question.proposal, self.digest)
        proposal_id = question.proposal.proposal_id
        edges = self.participants.edges[: dice.randrange(len(self.participants.edges) + 1)]
        kind = Schema(fields=(Field("x", dice.choice((STR, INT))),))
        changes = (SchemaChange(method=dice.choice(("/T", "A.go")), output_schema_after=kind),) * dice.choice((0, 0, 1))
        said = report(proposal_id, dice.random() < 0.75, schema_changes=changes)
        if not said.passed and dice.random() < 0.3:
            rung = RungResult(rung="G1", status="failed", code="G1.conflict", message="both changed it")
            said = GateReport(proposal_id=proposal_id, passed=False, rungs=(rung,))
        return Gated(proposal_id, said, edges, dice.choice(((), ("a.py",))))
