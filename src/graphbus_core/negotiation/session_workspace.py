"""The workspace of one session: answers the engine's questions that no agent answers, and verifies objections.

It asks the gate, computes the consequences of each proposal, applies accepted ones in memory, and asks the person of a review. It
writes no source file.

An objection about a contract holds if it names a promise that the change breaks for one agent, computed from the project before
and after it. The gate already refuses what the rules call a defect; what it lets pass and still breaks a promise is

- a field that its handler reads and that a publisher no longer sends, sends only sometimes, or sends with another type;
- a topic that it subscribes to and that an agent no longer publishes;
- a call of its own that no longer fits the provider's schema, also if the finding is ignored;
- a field of a result that it uses and that the provider no longer returns, or returns with another type.
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
    """The result of a session: its records, and the workspace with every accepted change."""

    negotiations: Negotiations
    workspace: Workspace


class ProposalGate(Protocol):
    """Checks a proposal before the vote. `editing.gate.Gate` is one; its `trials` also run the tests of objections."""

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        """Return the report on a proposal in the present workspace."""


MAX_TESTS = 3
"""For each proposal, only the tests of so many evaluators are run: of those who are asked first."""


class _GatedChange:
    """A proposal that passed the gate, with the projects without and with it. Findings are computed on first use."""

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
        """The proposal with its consequences, for evaluators and arbiters."""
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
    """The workspace of one session, with the consequences of its proposals.

    Attributes:
        broken: The error with which the gate itself failed; then the session has no result, and none of it is applied.
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
        """The findings of the rules in the present workspace."""
        return self._cache.findings_in(self.files.project)

    def trial(self, proposal_id: str) -> TriedProposal:
        """Return the consequences of a proposal in the workspace in which it last passed the gate."""
        return self._tried[proposal_id].trial

    def check(self, question: CheckProposal) -> Reply:
        """Answer with the gate's report on a proposal; if the gate itself fails, end the session."""
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
        return NegotiationStopped("error", f"the gate itself failed on {proposal_id}: {error.sentence}")

    def _try(self, proposal: Proposal, report: GateReport) -> Project:
        """Keep the projects before and after the change, for its evaluators; return the one after it."""
        before, after = self.files.project, self.files.preview_project(proposal.code_changes)
        self._tried[proposal.proposal_id] = _GatedChange(self._cache, proposal, report, before, after)
        return after

    def apply(self, question: ApplyProposal) -> Reply:
        """Apply an accepted proposal in the workspace."""
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
        """Compute the projects after the commits of these proposals in this order, while models evaluate them.

        This decides nothing: for a proposal that is rejected the work was in vain, and that is all.
        """
        self.files.look_ahead(one for one in proposals if one.proposal_id in self._tried)

    def before_and_after(self, proposal: Proposal) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return path -> bytes of the files before a change, and after it; the latter is empty if the change does not apply."""
        before = {path: self.files.file_data(path) for path in proposal.files if self.files.can_change(path)}
        try:
            return before, self.files.preview_files(proposal.code_changes)
        except EditError:
            return before, {}

    def diff(self, proposal: Proposal) -> str:
        """Return the unified diffs of a change against the workspace as it is now."""
        before, after = self.before_and_after(proposal)
        return "".join(unified_diff(path, before[path], data) for path, data in sorted(after.items()))

    def note_evaluators(self, question: AskEvaluations) -> None:
        """Record which agents evaluate a proposal: tests in their objections run for the first `MAX_TESTS` of them."""
        for review in question.reviews:
            asked = self._may_test.setdefault(review.proposal.proposal_id, [])
            if question.agent not in asked and len(asked) < MAX_TESTS:
                asked.append(question.agent)

    def verify_evidence(self, reply: Evaluated) -> Evaluated | NegotiationStopped:
        """Return the reply with its evidence verified by computing or running it; an agent's own claim never counts."""
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
        """Check an objection about a contract: it holds if it names a broken promise, or a finding that the change causes."""
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
    """Return the unified diff of every file that is different."""
    texts = ((path, before.source(path).data, after.source(path).data) for path in paths) if after is not before else ()
    return {path: unified_diff(path, old, new) for path, old, new in texts if old != new}


# --- a person in the loop ----------------------------------------------------------------------


class ReviewSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person sees to decide on one change.

    Attributes:
        diff: The unified diffs of all files, against the present workspace.
        texts: Path -> the text of each changed file after the change, with LF line ends; empty if it no longer applies.
        agreed: How the agents accepted it; None if they rejected it.
        reason: Why they rejected it, or why the gate refuses the person's own text; else empty.
    """

    review: GatedProposal
    diff: str
    texts: Mapping[str, str]
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class PersonDecision(msgspec.Struct, frozen=True):
    """The decision of a person; for `edit`, `texts` are the files as the person wants them."""

    verdict: PersonVerdict
    reason: str = ""
    texts: Mapping[str, str] = {}


class Reviewer(Protocol):
    """Asks a person. Only an explicit yes accepts a change."""

    def decide(self, sheet: ReviewSheet) -> PersonDecision:
        """Show a change to a person and return the decision."""


def ask_person(reviewer: Reviewer, question: AskPerson, workspace: SessionWorkspace) -> PersonReply:
    """Ask a person to decide on a change to the present workspace."""
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
    """Return the proposal with the person's texts: one replacement for each file that the person has changed."""
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


# --- the promises that a change breaks for one agent --------------------------------------------------------


class BrokenPromise(NamedTuple):
    """A promise that a change breaks: the topic or `Agent.method`, the field if it is about one, and a sentence."""

    element: str
    field: str
    sentence: str

    def is_stated_in(self, text: str) -> bool:
        """Return whether a text names the element and the field as whole words."""
        element = rf"(?<![\w/.]){re.escape(self.element)}(?![\w/])"
        rest = re.sub(element, " ", text)
        return rest != text and (not self.field or bool(re.search(rf"(?<!\w){re.escape(self.field)}(?!\w)", rest)))


def find_broken_promises(name: str, before: Project, after: Project) -> tuple[BrokenPromise, ...]:
    """Return the promises that a change breaks for one agent."""
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
        return  # a computed topic may be this one
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
    """Return the fields that a handler needs: its parameters, required fields of its type, and keys read without a default."""
    taken = [Field(item.name, item.type) for item in subscription.fields if not item.has_default]
    declared = [field for field in subscription.payload.fields if field.required]
    reads = [Field(item.key, UNKNOWN) for item in subscription.reads if not item.is_optional]
    return list({field.name: field for field in (*reads, *declared, *taken)}.values())


def _sent_field(payloads: list[Schema | None], name: str) -> Field | None:
    """Return the field if every publication of the agent certainly sends it."""
    fields = [payload.get(name) if payload else None for payload in payloads]
    return fields[0] if fields and all(field and field.required for field in fields) else None


def _change_of(was: Field, payloads: list[Schema | None], name: str) -> str:
    if any(payload is None or (payload.is_open and payload.get(name) is None) for payload in payloads):
        return ""  # the payload may have the field
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
    """Return the attribute names and text constants in a class: only such fields of a result can it use."""
    try:
        tree = parse(textwrap.dedent(project.span_text(agent.span)))
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
