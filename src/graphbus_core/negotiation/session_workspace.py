"""The workspace of one session: the gate, what is known of each proposal's consequences, and the person who is asked.

`SessionWorkspace` answers the questions of the engine that no agent answers. It writes no source file.

A counterexample is something that a change takes from one agent, computed from the projects before and after it; an objection
about a contract holds if it states one. The gate refuses what the rules call a defect. What is left,
and still breaks a contract, is

- a field that its handler reads and that a publisher no longer sends, sends only sometimes, or sends as something else;
- a topic that it hears and that an agent no longer publishes;
- a call of its own that does not fit the provider's schema any more, also where the finding is ignored;
- a field of a result that it uses and that the provider no longer gives, or gives as something else.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import NamedTuple, Protocol

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.rungs.trial_environment import TreeState
from graphbus_core.editing.rungs.trials import Objection, Trials
from graphbus_core.editing.text.source_text import SourceText, parse, with_lf
from graphbus_core.editing.workspace import Workspace, state_digest
from graphbus_core.errors import EditError, GraphBusError
from graphbus_core.model.agent import AgentDefinition, Call, Subscription
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import (
    CodeChange,
    Consensus,
    Counterexample,
    GateReport,
    Negotiations,
    Proposal,
    ProposalEvaluation,
)
from graphbus_core.model.topics import matches
from graphbus_core.negotiation.agents import TriedProposal
from graphbus_core.negotiation.protocol import (
    ApplyProposal,
    AskEvaluations,
    AskPerson,
    ChangeApplied,
    CheckProposal,
    Evaluated,
    Gated,
    GatedProposal,
    NegotiationStopped,
    PersonReply,
    PersonVerdict,
    Reply,
)
from graphbus_core.negotiation.rule_agent import FindingsCache
from graphbus_core.schema.compatibility import misfit_reason
from graphbus_core.schema.types import UNKNOWN, Field, Schema


class SessionOutcome(NamedTuple):
    """The records of a session, and the workspace that holds every accepted change."""

    negotiations: Negotiations
    workspace: Workspace


class ProposalGate(Protocol):
    """What must be passed before a vote; `editing.gate.Gate` is one, and its `trials` run the tests of objections."""

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        """Run the gate for a proposal, on the workspace as it is now."""


MAX_TESTS = 3
"""The tests of how many evaluators are run for one proposal: of those who were asked first."""


class _GatedChange:
    """A proposal that passed the gate, and the projects without and with it; what the rules find is asked when it is needed."""

    def __init__(
        self, cache: FindingsCache, proposal: Proposal, report: GateReport, before: Project, after: Project
    ) -> None:
        self._cache = cache
        self.proposal = proposal
        self.report = report
        self.before = before
        self.after = after

    @cached_property
    def trial(self) -> TriedProposal:
        """All of it for those who judge."""
        old, new = self._cache.findings_in(self.before), self._cache.findings_in(self.after, self.before)
        were, are = {finding.key for finding in old}, {finding.key for finding in new}
        return TriedProposal(
            proposal=self.proposal,
            report=self.report,
            after=self.after,
            diff="".join(_diffs(self.before, self.after, self.proposal.files).values()),
            added=tuple(finding for finding in new if finding.key not in were),
            mended=tuple(finding for finding in old if finding.key not in are),
        )


class SessionWorkspace:
    """The workspace of one session, and the trials of its proposals.

    Attributes:
        broken: Why the gate or a test failed to judge a change; then the session has no result, and nothing of it is applied.
    """

    def __init__(self, project: Project, gate: ProposalGate, cache: FindingsCache | None = None) -> None:
        self.gate = gate
        self.files = Workspace(project)
        self._cache = cache or FindingsCache()
        self._tried: dict[str, _GatedChange] = {}
        self._may_test: dict[str, list[str]] = {}
        self.broken: GraphBusError | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules find in the workspace as it is now, for agents."""
        return self._cache.findings_in(self.files.project)

    def trial(self, proposal_id: str) -> TriedProposal:
        """Give the consequences of a proposal, on the workspace on which it last passed the gate."""
        return self._tried[proposal_id].trial

    def check(self, question: CheckProposal) -> Reply:
        """Check a proposal at the gate; if the gate itself fails, the session ends."""
        proposal = question.proposal
        try:
            report = self.gate.check(proposal, self.files)
            edges = self._try(proposal, report).graph.edges if report.passed else ()
            merged = self.files.merged_paths(proposal.code_changes) if report.passed else ()
        except GraphBusError as error:
            return self._stop(proposal.proposal_id, error)
        return Gated(proposal.proposal_id, report, edges, merged)

    def _stop(self, proposal_id: str, error: GraphBusError) -> NegotiationStopped:
        self.broken = error
        return NegotiationStopped("error", f"the gate broke down on {proposal_id}: {error.sentence}")

    def _try(self, proposal: Proposal, report: GateReport) -> Project:
        """Keep what the change would lead to, for those who will judge it."""
        before, after = self.files.project, self.files.preview_project(proposal.code_changes)
        self._tried[proposal.proposal_id] = _GatedChange(self._cache, proposal, report, before, after)
        return after

    def apply(self, question: ApplyProposal) -> Reply:
        """Make an accepted change in the workspace."""
        proposal = question.proposal
        before = self.files.project
        refusal = ""
        try:
            self.files.commit(proposal)
        except EditError as error:
            refusal = error.sentence
        after = self.files.project
        return ChangeApplied(
            proposal_id=proposal.proposal_id,
            digest=self.files.digest,
            resolution=_diffs(before, after, proposal.files),
            edges=after.graph.edges,
            refusal=refusal,
        )

    def look_ahead(self, proposals: Iterable[Proposal]) -> None:
        """Prepare the commits of proposals that may all be accepted, in this order, while agents are judging them.

        Nothing is decided: what is rejected, or refused by the gate, leaves unused work behind and no other trace.
        """
        self.files.look_ahead(one for one in proposals if one.proposal_id in self._tried)

    def before_and_after(self, proposal: Proposal) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Give the files of a change by path: as they are, and as they would be; nothing for the latter when it does not fit."""
        before = {path: self.files.file_data(path) for path in proposal.files if self.files.can_change(path)}
        try:
            return before, self.files.preview_files(proposal.code_changes)
        except EditError:
            return before, {}

    def diff(self, proposal: Proposal) -> str:
        """Give the unified diffs of a change against the workspace as it is now."""
        before, after = self.before_and_after(proposal)
        return "".join(unified_diff(path, before[path], data) for path, data in sorted(after.items()))

    def note_evaluators(self, question: AskEvaluations) -> None:
        """Note who is asked about a proposal: the tests of those who are asked first may be run."""
        for review in question.reviews:
            asked = self._may_test.setdefault(review.proposal.proposal_id, [])
            if question.agent not in asked and len(asked) < MAX_TESTS:
                asked.append(question.agent)

    def verify_evidence(self, reply: Evaluated) -> Evaluated | NegotiationStopped:
        """Verify the evidence of votes: only what is computed or run here verifies an objection, never an agent's own claim."""
        votes: list[ProposalEvaluation] = []
        for vote in reply.evaluations:
            try:
                votes.append(self._verify_vote(reply.agent, vote))
            except GraphBusError as error:
                return self._stop(vote.proposal_id, error)
        return msgspec.structs.replace(reply, evaluations=tuple(votes))

    def _verify_vote(self, agent: str, vote: ProposalEvaluation) -> ProposalEvaluation:
        evidence: list[Counterexample] = []
        has_tested = agent not in self._may_test.get(vote.proposal_id, ()) or vote.decision != "reject"
        for item in vote.evidence:
            if item.kind == "contract":
                objection = self._check_contract(agent, vote.proposal_id, item.text)
            elif has_tested:
                objection = Objection(False, "the test was not run")
            else:
                objection, has_tested = self._run_test(vote.proposal_id, item.text), True
            evidence.append(msgspec.structs.replace(item, is_verified=objection.holds, detail=objection.detail))
        doubts = tuple(f"unsubstantiated: {item.detail}" for item in evidence if not item.is_verified)
        if vote.decision == "reject" and not evidence:
            doubts = ("unsubstantiated: it comes without evidence",)
        return msgspec.structs.replace(vote, evidence=tuple(evidence), concerns=(*vote.concerns, *doubts))

    def _check_contract(self, agent: str, proposal_id: str, text: str) -> Objection:
        """An objection about a contract holds if it states what the change takes from its author, or what the rules find."""
        tried = self._tried.get(proposal_id)
        if tried is None:
            return Objection(False, "nothing is known of the change")
        said = " ".join(text.split())
        found = (one.message for one in tried.trial.added if " ".join(one.message.split()) in said)
        facts = (
            one.sentence for one in find_broken_promises(agent, tried.before, tried.after) if one.is_stated_in(said)
        )
        fact = next(chain(found, facts), "")
        return Objection(bool(fact), fact or "neither the rules nor the contracts show such a thing after the change")

    def _run_test(self, proposal_id: str, text: str) -> Objection:
        tried = self._tried.get(proposal_id)
        trials: Trials | None = getattr(self.gate, "trials", None)
        if tried is None or trials is None:
            return Objection(False, "nothing can be run here")
        before = self.files.changed_files()
        after = self.files.changed_files(self.files.preview_files(tried.proposal.code_changes))
        base, head = (
            TreeState(state_digest(side), {path: now for path, (_, now) in side.items()}) for side in (before, after)
        )
        return trials.objections.try_out(base, head, tried.after, text)


def _diffs(before: Project, after: Project, paths: Iterable[str]) -> dict[str, str]:
    """Give the unified diff of every file that is different."""
    texts = ((path, before.source(path).data, after.source(path).data) for path in paths) if after is not before else ()
    return {path: unified_diff(path, old, new) for path, old, new in texts if old != new}


# --- a person in the loop ----------------------------------------------------------------------


class ReviewSheet(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to decide on one change.

    Attributes:
        diff: The unified diffs of all files, against the workspace as it is now.
        texts: Path -> the text of each changed file as it would be, with LF line ends; empty when the change no longer fits.
        agreed: How the agents accepted it; None for one that they rejected.
        reason: Why they rejected it, or why the gate refuses the person's own text; else empty.
    """

    review: GatedProposal
    diff: str
    texts: Mapping[str, str]
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class PersonDecision(msgspec.Struct, frozen=True):
    """The verdict of a person; `texts` are the files as the person wants them, for the verdict `edit`."""

    verdict: PersonVerdict
    reason: str = ""
    texts: Mapping[str, str] = {}


class Reviewer(Protocol):
    """Asks a person. Only an explicit yes accepts a change."""

    def decide(self, sheet: ReviewSheet) -> PersonDecision:
        """Show a change and return the person's verdict on it."""


def ask_person(reviewer: Reviewer, question: AskPerson, workspace: SessionWorkspace) -> PersonReply:
    """Let a person decide on a change, on the workspace as it is now."""
    proposal = question.review.proposal
    before, after = workspace.before_and_after(proposal)
    sheet = ReviewSheet(
        review=question.review,
        diff=workspace.diff(proposal),
        texts={path: _text(data) for path, data in after.items()},
        evaluations=question.evaluations,
        agreed=question.agreed,
        reason=question.reason,
    )
    word = reviewer.decide(sheet)
    own = _with_persons_text(proposal, before, word.texts) if word.verdict == "edit" else None
    return PersonReply(proposal.proposal_id, word.verdict, own, word.reason)


def _with_persons_text(proposal: Proposal, before: Mapping[str, bytes], texts: Mapping[str, str]) -> Proposal:
    """Give the proposal with the person's texts: one replacement for each file that is different then."""
    pairs = ((path, _text(data), with_lf(texts.get(path, _text(data)))) for path, data in before.items())
    edits = tuple(
        CodeChange(
            file_path=path,
            target="",
            change_type="modify",
            operation="search_replace",
            old_code=old,
            new_code=new,
        )
        for path, old, new in pairs
        if old != new
    )
    return proposal.with_changes(edits)


def _text(data: bytes) -> str:
    return with_lf(SourceText(data).text)


# --- what a change takes from one agent --------------------------------------------------------


class BrokenPromise(NamedTuple):
    """One thing that breaks: the topic or `Agent.method`, the field if it is one, and the whole in a sentence."""

    element: str
    field: str
    sentence: str

    def is_stated_in(self, text: str) -> bool:
        """True when a text names the element and the field as whole words."""
        element = rf"(?<![\w/.]){re.escape(self.element)}(?![\w/])"
        rest = re.sub(element, " ", text)
        return rest != text and (not self.field or bool(re.search(rf"(?<!\w){re.escape(self.field)}(?!\w)", rest)))


def find_broken_promises(name: str, before: Project, after: Project) -> tuple[BrokenPromise, ...]:
    """Give what a change breaks for one agent."""
    agent = after.agent(name)
    if agent is None:
        return ()
    found = [
        *_lost_events(agent, before, after),
        *_unfit_calls(agent, before, after),
        *_lost_results(agent, before, after),
    ]
    return tuple(dict.fromkeys(found))


# --- events ----------------------------------------------------------------------------------


def _lost_events(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    for subscription in agent.subscriptions:
        handler = f"{agent.name}.{subscription.method}"
        for old in before.definitions:
            new = after.agent(old.name)
            for topic in dict.fromkeys(item.topic for item in old.publications):
                if new and topic and subscription.topic and matches(subscription.topic, topic):
                    yield from _lost_fields(handler, subscription, topic, old, new)


def _lost_fields(
    handler: str, subscription: Subscription, topic: str, old: AgentDefinition, new: AgentDefinition
) -> Iterator[BrokenPromise]:
    if any(not item.topic for item in new.publications):
        return  # it may be published at a place that cannot be read
    sent = [item.payload for item in new.publications if item.topic == topic]
    if not sent:
        yield BrokenPromise(topic, "", f"{old.name} no longer publishes {topic!r}, which {handler} hears")
    for need in _needs(subscription):
        was = _sent_field([item.payload for item in old.publications if item.topic == topic], need.name)
        change = _change_of(was, sent, need.name) if was and sent else ""
        if change:
            yield BrokenPromise(
                topic, need.name, f"{old.name} {change} {need.name!r} of {topic!r}, which {handler} reads"
            )


def _needs(subscription: Subscription) -> list[Field]:
    """What a handler takes of a payload, however it says so; a read that expects the key to be absent is none."""
    taken = [Field(item.name, item.type) for item in subscription.fields if not item.has_default]
    declared = [field for field in subscription.payload.fields if field.required]
    reads = [Field(item.key, UNKNOWN) for item in subscription.reads if not item.is_optional]
    return list({field.name: field for field in (*reads, *declared, *taken)}.values())


def _sent_field(payloads: list[Schema | None], name: str) -> Field | None:
    """The field as all publications of an agent surely send it."""
    fields = [payload.get(name) if payload else None for payload in payloads]
    return fields[0] if fields and all(field and field.required for field in fields) else None


def _change_of(was: Field, payloads: list[Schema | None], name: str) -> str:
    if any(payload is None or (payload.is_open and payload.get(name) is None) for payload in payloads):
        return ""  # nobody knows
    fields = [payload.get(name) for payload in payloads if payload]
    if not any(fields):
        return "no longer sends"
    if not all(field and field.required for field in fields):
        return "sends only sometimes"
    other = next((field for field in fields if field and misfit_reason(was.type, field.type)), None)
    return f"sends as {other.type} and no longer as {was.type} the field" if other else ""


# --- calls -----------------------------------------------------------------------------------


def _unfit_calls(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    old = before.agent(agent.name)
    known = {fact for call in (old.calls if old else ()) for fact in _unfit(agent.name, call, before)}
    for call in agent.calls:
        yield from (fact for fact in _unfit(agent.name, call, after) if fact not in known)


def _unfit(caller: str, call: Call, project: Project) -> Iterator[BrokenPromise]:
    callee = project.agent(call.agent)
    if callee is None or not call.method:
        return
    element = f"{call.agent}.{call.method}"
    method = callee.method(call.method)
    if method is None or not method.has_schema:
        yield BrokenPromise(element, "", f"{caller} calls {element}, which cannot be called")
        return
    wanted, given = method.input_schema, call.arguments
    for field in wanted.fields if wanted else ():
        own = given.get(field.name)
        reason = misfit_reason(field.type, own.type, is_narrowed=True) if own else None
        if own is None and field.required and not call.has_unknown:
            yield BrokenPromise(element, field.name, f"{element} requires {field.name!r}, which {caller} does not pass")
        elif reason:
            yield BrokenPromise(
                element, field.name, f"{element} does not take the {field.name!r} of {caller}: {reason}"
            )
    for own in given.fields if wanted and not wanted.is_open else ():
        if wanted and own.name not in wanted.names:
            yield BrokenPromise(element, own.name, f"{element} does not take {own.name!r}, which {caller} passes")


def _lost_results(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    words: frozenset[str] | None = None
    for element in dict.fromkeys((call.agent, call.method) for call in agent.calls):
        was, now = (_result(project, *element) for project in (before, after))
        for field in was.fields if was and now and was != now else ():
            words = _words_of(agent, after) if words is None else words
            other = now.get(field.name) if now else None
            if field.name not in words or (other is None and now and now.is_open):
                continue
            name, reason = ".".join(element), misfit_reason(field.type, other.type) if other else ""
            if other is None:
                yield BrokenPromise(name, field.name, f"{name} no longer gives {field.name!r}, which {agent.name} uses")
            elif field.required and not other.required:
                yield BrokenPromise(
                    name, field.name, f"{name} gives {field.name!r} only sometimes, and {agent.name} uses it"
                )
            elif reason:
                yield BrokenPromise(
                    name, field.name, f"{name} gives another {field.name!r} than {agent.name} uses: {reason}"
                )


def _result(project: Project, agent: str, method: str) -> Schema | None:
    callee = project.agent(agent)
    spec = callee.method(method) if callee else None
    return spec.output_schema if spec else None


def _words_of(agent: AgentDefinition, project: Project) -> frozenset[str]:
    """The names of attributes and the texts in a class: what it can use of a result."""
    try:
        tree = parse(textwrap.dedent(project.span_text(agent.span)))
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
