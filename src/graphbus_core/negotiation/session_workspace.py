"""The workspace of one session: answers the questions of the engine that are not for agents, and verifies objections.

It runs the gate, computes the consequences of each proposal, applies accepted ones in memory, and asks a person in a review. It
writes no source file.

An agent may object that a change breaks its contract. The objection holds if it names a promise to that agent which the change
breaks; this is computed from the project before and after the change. The gate already refuses what the rules report as an
error. It does not refuse these broken promises:

- a publisher no longer sends a field that the agent's handler reads, sends it only sometimes, or with another type;
- an agent no longer publishes a topic to which the agent subscribes;
- a call in the agent no longer fits the schema of the called method, and the finding about it is ignored by a comment;
- a called method no longer returns a field of its result that the agent uses, or returns it with another type.
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
from graphbus_core.errors.machine_paths import remove_paths
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
"""The number of evaluators of one proposal whose tests are run: the first ones that are asked."""


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
    def diffs(self) -> dict[str, str]:
        """Path -> unified diff of each file that the proposal changes."""
        return _diff_projects(self.before, self.after, self.proposal.files)

    @cached_property
    def trial(self) -> TriedProposal:
        """The proposal with its consequences, for evaluators and arbiters."""
        old, new = self._cache.findings_in(self.before), self._cache.findings_in(self.after, self.before)
        were, are = {finding.key for finding in old}, {finding.key for finding in new}
        return TriedProposal(
            proposal=self.proposal,
            report=self.report,
            after=self.after,
            diff="".join(self.diffs.values()),
            added=tuple(finding for finding in new if finding.key not in were),
            removed=tuple(finding for finding in old if finding.key not in are),
        )


class SessionWorkspace:
    """The workspace of one session, with the consequences of its proposals.

    Attributes:
        files: The virtual source files with every commit so far.
        broken: The error with which the gate itself failed, after which nothing of the session is applied; None if it did not.
    """

    def __init__(self, project: Project, gate: ProposalGate, cache: FindingsCache | None = None) -> None:
        self.gate = gate
        self.files = Workspace(project)
        self._cache = cache or FindingsCache()
        self._tried: dict[str, _GatedChange] = {}
        self._diffs_of_refused: dict[str, dict[str, str]] = {}
        self._diffs_voted_on: dict[str, dict[str, str]] = {}
        self._evaluators_with_tests: dict[str, list[str]] = {}
        self.broken: GraphBusError | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the rules in the present workspace."""
        return self._cache.findings_in(self.files.project)

    def trial(self, proposal_id: str) -> TriedProposal:
        """Return a proposal with its consequences in the workspace in which it last passed the gate; else raise KeyError."""
        return self._tried[proposal_id].trial

    def trial_for_voter(self, proposal_id: str) -> TriedProposal:
        """Return the same as `trial`, and keep its diffs for the record: later checks of the gate may be on other files."""
        self._diffs_voted_on[proposal_id] = self._tried[proposal_id].diffs
        return self.trial(proposal_id)

    def diffs_for_record(self, negotiations: Negotiations) -> dict[str, dict[str, str]]:
        """Return the `diffs` of the session's record, see there."""
        found: dict[str, dict[str, str]] = {}
        for record in negotiations.records:
            name, commit = record.proposal.proposal_id, record.commit
            diffs = self._diffs_voted_on.get(name) or self._diffs_of_refused.get(name)
            if not diffs and name in self._tried:
                diffs = self._tried[name].diffs
            if diffs and not (commit and commit.resolution == diffs):
                found[name] = diffs
        return found

    def check(self, question: CheckProposal) -> Reply:
        """Return the gate's report on a proposal; if the gate itself fails, set `broken` and return the end of the session."""
        proposal = question.proposal
        try:
            report = self.gate.check(proposal, self.files)
            edges = self._keep_projects(proposal, report).graph.edges if report.passed else ()
            merged = self.files.merged_paths(proposal.code_changes) if report.passed else ()
            if not report.passed:
                self._diffs_of_refused[proposal.proposal_id] = self._diffs_now(proposal)
        except GraphBusError as error:
            return self._stop_on_error(proposal.proposal_id, error)
        return Gated(proposal.proposal_id, report, edges, merged)

    def _stop_on_error(self, proposal_id: str, error: GraphBusError) -> NegotiationStopped:
        """Set `broken` to the error with which the gate failed, and return the reply that ends the session."""
        self.broken = error
        return NegotiationStopped("error", f"the gate itself failed on {proposal_id}: {remove_paths(error.sentence)}")

    def _keep_projects(self, proposal: Proposal, report: GateReport) -> Project:
        """Keep the projects before and after a change, for `trial`, and return the project after it."""
        before, after = self.files.project, self.files.preview_project(proposal.code_changes)
        self._tried[proposal.proposal_id] = _GatedChange(self._cache, proposal, report, before, after)
        return after

    def apply(self, question: ApplyProposal) -> Reply:
        """Apply an accepted proposal in the workspace. If its edits no longer fit the files, the reply has a `refusal`."""
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
            resolution=_diff_projects(before, after, proposal.files),
            edges=after.graph.edges,
            refusal=refusal,
        )

    def look_ahead(self, proposals: Iterable[Proposal]) -> None:
        """Compute the projects after commits of these proposals in this order, while models still evaluate them.

        The results are only cached: if a proposal is rejected, its result is not used.
        """
        self.files.look_ahead(one for one in proposals if one.proposal_id in self._tried)

    def before_and_after(self, proposal: Proposal) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return path -> bytes of the changed files before a change, and path -> bytes after it.

        The second mapping is empty if the edits do not fit the files.
        """
        before = {path: self.files.file_data(path) for path in proposal.files if self.files.can_change(path)}
        try:
            return before, self.files.preview_files(proposal.code_changes)
        except EditError:
            return before, {}

    def diff(self, proposal: Proposal) -> str:
        """Return the unified diffs of a change against the present workspace; empty if its edits do not fit the files."""
        return "".join(self._diffs_now(proposal).values())

    def _diffs_now(self, proposal: Proposal) -> dict[str, str]:
        """Return path -> unified diff of a change against the workspace as it is now; empty if the change does not apply."""
        before, after = self.before_and_after(proposal)
        return {path: unified_diff(path, before[path], data) for path, data in sorted(after.items())}

    def note_evaluators(self, question: AskEvaluations) -> None:
        """Note the first `MAX_TESTS` evaluators of each proposal: only the tests in their objections are run."""
        for review in question.reviews:
            asked = self._evaluators_with_tests.setdefault(review.proposal.proposal_id, [])
            if question.agent not in asked and len(asked) < MAX_TESTS:
                asked.append(question.agent)

    def verify_evidence(self, reply: Evaluated) -> Evaluated | NegotiationStopped:
        """Return the reply with every piece of evidence verified: by the contracts before and after the change, or by a test.

        If the gate fails while a test is run, set `broken` and return the end of the session.
        """
        votes: list[ProposalEvaluation] = []
        for vote in reply.evaluations:
            try:
                votes.append(self._verify_vote(reply.agent, vote))
            except GraphBusError as error:
                return self._stop_on_error(vote.proposal_id, error)
        return msgspec.structs.replace(reply, evaluations=tuple(votes))

    def _verify_vote(self, agent: str, vote: ProposalEvaluation) -> ProposalEvaluation:
        """Return a vote with its evidence verified, and a concern for each piece of evidence that does not hold.

        At most one test is run, and only for a reject by one of the first `MAX_TESTS` evaluators. A reject without evidence gets
        a concern too.
        """
        evidence: list[Counterexample] = []
        may_test = agent in self._evaluators_with_tests.get(vote.proposal_id, ()) and vote.decision == "reject"
        for item in vote.evidence:
            if item.kind == "contract":
                objection = self._check_contract_objection(agent, vote.proposal_id, item.text)
            elif may_test:
                objection, may_test = self._run_test(vote.proposal_id, item.text), False
            else:
                objection = Objection(False, "the test was not run")
            evidence.append(msgspec.structs.replace(item, is_verified=objection.holds, detail=objection.detail))
        doubts = tuple(f"unsubstantiated: {item.detail}" for item in evidence if not item.is_verified)
        if vote.decision == "reject" and not evidence:
            doubts = ("unsubstantiated: it comes without evidence",)
        return msgspec.structs.replace(vote, evidence=tuple(evidence), concerns=(*vote.concerns, *doubts))

    def _check_contract_objection(self, agent: str, proposal_id: str, text: str) -> Objection:
        """Check an objection: it holds if it quotes a finding that the change causes, or names a promise that it breaks."""
        tried = self._tried.get(proposal_id)
        if tried is None:
            return Objection(False, "nothing is known of the change")
        claim = " ".join(text.split())
        found = (one.message for one in tried.trial.added if " ".join(one.message.split()) in claim)
        facts = (
            one.sentence for one in find_broken_promises(agent, tried.before, tried.after) if one.is_stated_in(claim)
        )
        fact = next(chain(found, facts), "")
        return Objection(bool(fact), fact or "neither the rules nor the contracts show such a thing after the change")

    def _run_test(self, proposal_id: str, text: str) -> Objection:
        """Run a test from an objection without and with the change. The objection holds if it fails only with the change."""
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


def _diff_projects(before: Project, after: Project, paths: Iterable[str]) -> dict[str, str]:
    """Return path -> unified diff, for each of these files whose bytes differ between two projects."""
    texts = ((path, before.source(path).data, after.source(path).data) for path in paths) if after is not before else ()
    return {path: unified_diff(path, old, new) for path, old, new in texts if old != new}


# --- a person in the loop ----------------------------------------------------------------------


class ReviewSheet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person sees to decide on one change.

    Attributes:
        diff: The unified diffs of all files, against the present workspace.
        texts: Path -> the text of each changed file after the change, with LF line ends; empty if it no longer applies.
        agreed: How the agents accepted it; None if they rejected it.
        reason: Why the agents rejected it, or why the gate refuses the text that the person has written; else empty.
    """

    review: GatedProposal
    diff: str
    texts: Mapping[str, str]
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class PersonDecision(msgspec.Struct, frozen=True):
    """The decision of a person; for `edit`, `texts` is path -> the text of the file that the person wants."""

    verdict: PersonVerdict
    reason: str = ""
    texts: Mapping[str, str] = {}


class Reviewer(Protocol):
    """Asks a person, for example in a terminal. Only an explicit yes accepts a change."""

    def decide(self, sheet: ReviewSheet) -> PersonDecision:
        """Show a change to a person and return the decision."""


def ask_person(reviewer: Reviewer, question: AskPerson, workspace: SessionWorkspace) -> PersonReply:
    """Ask a person to decide on a change to the present workspace, and return the reply for the engine."""
    proposal = question.review.proposal
    before, after = workspace.before_and_after(proposal)
    sheet = ReviewSheet(
        review=question.review,
        diff=workspace.diff(proposal),
        texts={path: _decode_text(data) for path, data in after.items()},
        evaluations=question.evaluations,
        agreed=question.agreed,
        reason=question.reason,
    )
    decision = reviewer.decide(sheet)
    edited = _replace_by_person_edits(proposal, before, decision.texts) if decision.verdict == "edit" else None
    return PersonReply(proposal.proposal_id, decision.verdict, edited, decision.reason)


def _replace_by_person_edits(proposal: Proposal, before: Mapping[str, bytes], texts: Mapping[str, str]) -> Proposal:
    """Return the proposal with the edits of a person: one for each changed file, which replaces its whole text.

    `before` is path -> bytes without the change, `texts` is path -> the text that the person wants. A file that is missing in
    `texts` is not changed.
    """
    pairs = ((path, _decode_text(data), with_lf(texts.get(path, _decode_text(data)))) for path, data in before.items())
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


def _decode_text(data: bytes) -> str:
    """Return source bytes as text with LF line ends; raise EditError if they cannot be decoded."""
    return with_lf(SourceText(data).text)


# --- the promises that a change breaks for one agent --------------------------------------------------------


class BrokenPromise(NamedTuple):
    """A promise that a change breaks.

    Attributes:
        element: The topic or `Agent.method`.
        field: The field of its payload, arguments or result; empty if it is about the whole element.
        sentence: What is broken, for people.
    """

    element: str
    field: str
    sentence: str

    def is_stated_in(self, text: str) -> bool:
        """Return whether a text names the element and the field as whole words."""
        element = rf"(?<![\w/.]){re.escape(self.element)}(?![\w/])"
        rest = re.sub(element, " ", text)
        return rest != text and (not self.field or bool(re.search(rf"(?<!\w){re.escape(self.field)}(?!\w)", rest)))


def find_broken_promises(name: str, before: Project, after: Project) -> tuple[BrokenPromise, ...]:
    """Return the promises to one agent that a change breaks; empty if the change removes the agent."""
    agent = after.agent(name)
    if agent is None:
        return ()
    found = [
        *_find_lost_events(agent, before, after),
        *_find_newly_unfit_calls(agent, before, after),
        *_find_lost_results(agent, before, after),
    ]
    return tuple(dict.fromkeys(found))


# --- events ----------------------------------------------------------------------------------


def _find_lost_events(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    """Yield the topics and fields that publishers sent to the agent's handlers before the change, and no longer send."""
    for subscription in agent.subscriptions:
        handler = f"{agent.name}.{subscription.method}"
        for old in before.definitions:
            new = after.agent(old.name)
            for topic in dict.fromkeys(item.topic for item in old.publications):
                if new and topic and subscription.topic and matches(subscription.topic, topic):
                    yield from _find_lost_fields(handler, subscription, topic, old, new)


def _find_lost_fields(
    handler: str, subscription: Subscription, topic: str, old: AgentDefinition, new: AgentDefinition
) -> Iterator[BrokenPromise]:
    """Yield what one publisher no longer sends to one handler on a topic: the whole event, or fields that the handler needs.

    `old` is the publisher before the change, `new` after it.
    """
    if any(not item.topic for item in new.publications):
        return  # one of its topics is computed at run time, and may be this one
    sent = [item.payload for item in new.publications if item.topic == topic]
    if not sent:
        yield BrokenPromise(topic, "", f"{old.name} no longer publishes {topic!r}, which {handler} hears")
    for need in _find_needed_fields(subscription):
        was = _find_certain_field([item.payload for item in old.publications if item.topic == topic], need.name)
        change = _describe_field_change(was, sent, need.name) if was and sent else ""
        if change:
            yield BrokenPromise(
                topic, need.name, f"{old.name} {change} {need.name!r} of {topic!r}, which {handler} reads"
            )


def _find_needed_fields(subscription: Subscription) -> list[Field]:
    """Return the fields that a handler needs.

    They are its parameters without a default, the required fields of its payload type, and the keys that it reads without a
    default. For a field that occurs several times, the first of these three gives the type.
    """
    parameters = [Field(item.name, item.type) for item in subscription.fields if not item.has_default]
    declared = [field for field in subscription.payload.fields if field.required]
    reads = [Field(item.key, UNKNOWN) for item in subscription.reads if not item.is_optional]
    return list({field.name: field for field in (*reads, *declared, *parameters)}.values())  # the last one wins


def _find_certain_field(payloads: list[Schema | None], name: str) -> Field | None:
    """Return the field of this name, with its type in the first payload, if every payload certainly has it; else None.

    A payload of None is not known.
    """
    fields = [payload.get(name) if payload else None for payload in payloads]
    return fields[0] if fields and all(field and field.required for field in fields) else None


def _describe_field_change(was: Field, payloads: list[Schema | None], name: str) -> str:
    """Return a verb phrase that says how these payloads no longer send a field as before.

    Empty if they send it as before, or may do so. `was` is the field before the change; a payload of None is not known.
    """
    if any(payload is None or (payload.is_open and payload.get(name) is None) for payload in payloads):
        return ""  # this payload is not fully known, so it may have the field
    fields = [payload.get(name) for payload in payloads if payload]
    if not any(fields):
        return "no longer sends"
    if not all(field and field.required for field in fields):
        return "sends only sometimes"
    misfit = next((field for field in fields if field and misfit_reason(was.type, field.type)), None)
    return f"sends as {misfit.type} and no longer as {was.type} the field" if misfit else ""


# --- calls -----------------------------------------------------------------------------------


def _find_newly_unfit_calls(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    """Yield each misfit between a call of an agent and the called method after the change, unless it existed before."""
    old = before.agent(agent.name)
    known = {fact for call in (old.calls if old else ()) for fact in _find_misfits_of_call(agent.name, call, before)}
    for call in agent.calls:
        yield from (fact for fact in _find_misfits_of_call(agent.name, call, after) if fact not in known)


def _find_misfits_of_call(caller: str, call: Call, project: Project) -> Iterator[BrokenPromise]:
    """Yield each misfit between one call and the method that it calls.

    Nothing is yielded if the called agent does not exist, or if the method name is not known before run time.
    """
    callee = project.agent(call.agent)
    if callee is None or not call.method:
        return
    element = f"{call.agent}.{call.method}"
    method = callee.method(call.method)
    if method is None or not method.has_schema:
        yield BrokenPromise(element, "", f"{caller} calls {element}, which cannot be called")
        return
    declared, passed = method.input_schema, call.arguments
    for field in declared.fields if declared else ():
        own = passed.get(field.name)
        reason = misfit_reason(field.type, own.type, is_narrowed=True) if own else None
        if own is None and field.required and not call.has_unknown:
            yield BrokenPromise(element, field.name, f"{element} requires {field.name!r}, which {caller} does not pass")
        elif reason:
            yield BrokenPromise(
                element, field.name, f"{element} does not take the {field.name!r} of {caller}: {reason}"
            )
    for own in passed.fields if declared and not declared.is_open else ():
        if declared and own.name not in declared.names:
            yield BrokenPromise(element, own.name, f"{element} does not take {own.name!r}, which {caller} passes")


def _find_lost_results(agent: AgentDefinition, before: Project, after: Project) -> Iterator[BrokenPromise]:
    """Yield each result field that the agent uses and that a called method no longer returns, or not as before.

    A field counts as used if its name occurs in the class as an attribute or in a text.
    """
    words: frozenset[str] | None = None  # computed only if a result has changed
    for element in dict.fromkeys((call.agent, call.method) for call in agent.calls):
        was, now = (_result_schema(project, *element) for project in (before, after))
        for field in was.fields if was and now and was != now else ():
            words = _attributes_and_texts_in(agent, after) if words is None else words
            other = now.get(field.name) if now else None
            if field.name not in words or (other is None and now and now.is_open):
                continue  # not used, or an open schema may still have it
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


def _result_schema(project: Project, agent: str, method: str) -> Schema | None:
    """Return the schema of a method's result; None if the method or its schema is not known."""
    callee = project.agent(agent)
    spec = callee.method(method) if callee else None
    return spec.output_schema if spec else None


def _attributes_and_texts_in(agent: AgentDefinition, project: Project) -> frozenset[str]:
    """Return the attribute names and texts in a class, by one of which a field of a result must be read."""
    try:
        tree = parse(textwrap.dedent(project.span_text(agent.span)))
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
