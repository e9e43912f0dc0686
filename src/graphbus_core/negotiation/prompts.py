"""Makes the prompts for models from `AgentView`s. The same view gives the same bytes, in any session and on any machine.

    shared   the rules of answers; for proposals the contracts of all agents        equal for all agents
    own      the source of the agent; for proposals its neighbours' contracts and findings       equal for its tasks, and votes
    task     the question; for proposals the agent's analysis, intent, goals, memory and limits; the form of a text

A vote needs little: the source of the voter, the diff, what it changes in contracts, the report of the gate, and how the voter
has voted before. For proposals,
`LEFT_OUT` says what is left out, in this order, where the context of a model is small.

A prompt has no source of other agents, no environment variables, no time and no round number. Text from the project or from other
models is put between marks that it cannot contain (`fence_data`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.editing.text.source_text import with_lf
from graphbus_core.errors import EditError
from graphbus_core.llm.client import FollowUp, ModelPrompt
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation, ProposalRecord
from graphbus_core.negotiation import answer_json
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal, has_part_in
from graphbus_core.negotiation.answer_format import clean_text, edit_text
from graphbus_core.negotiation.answer_json import Schema
from graphbus_core.negotiation.answer_rules import Task, describe_answers, show_form
from graphbus_core.negotiation.contract_text import (
    cache_per_project,
    contract_of,
    fence_data,
    format_schema_changes,
    is_map_whole,
    map_of,
)

BATCH = 4
"""The largest number of proposals that are evaluated in one answer."""

_WHOLE_FILE_CHARS = 40_000
_NEAR_LINES = 3
_FAULT_CHARS = 600
_HEAD_CHARS = 400


LEFT_OUT = ("memory", "rest of the file", "contracts of others", "analysis")
"""What the prompt for an analysis, proposals or a repair can do without, in the order in which it is left out."""


# --- shared and own --------------------------------------------------------------------------


@cache_per_project
def _all_contracts(project: Project) -> str:
    """Return the contracts of all agents; this text changes only when a contract does."""
    return f"\n# The project\n\nThe contracts of all agents:\n\n{fence_data(map_of(project), 'contracts')}"


def own_text(view: AgentView, left_out: Sequence[str] = ()) -> str:
    """Return the second part of every prompt to one agent; it changes only with its class, its file, neighbours or findings.

    The text is cached for each project and agent, as long as `view.findings` is the same object.
    """
    kept, key = _own_text_cache(view.project), (view.name, *left_out)
    found, text = kept.get(key, (None, ""))
    if found is not view.findings:
        text = _make_own_text(view, left_out)
        kept[key] = view.findings, text
    return text


@cache_per_project
def _own_text_cache(_project: Project) -> dict[tuple[str, ...], tuple[tuple[Finding, ...], str]]:
    """Return the cache of one project for `own_text`: agent and what is left out -> the findings, and the text made with them."""
    return {}


def _make_own_text(view: AgentView, left_out: Sequence[str]) -> str:
    """Return what an agent is shown about its class, file, neighbours and findings."""
    agent = view.definition
    if agent is None:
        return _describe_self(view)
    parts = [_describe_self(view)]
    if "rest of the file" not in left_out:
        parts += ["What stands around it in your file:\n"]
        parts += [fence_data(_file_without_agents(view.project, agent), "rest of your file")]
    parts += _describe_neighbours(view, is_map_shown="contracts of others" not in left_out)
    found = [finding for finding in view.findings if has_part_in(finding, view.name)]
    parts += ["What static rules find at your end:\n", fence_data(_format_findings(found) or "nothing\n", "findings")]
    return "\n".join(parts)


def _describe_self(view: AgentView) -> str:
    """Return name, path, SYSTEM_PROMPT and source of an agent's class: all that it needs to vote."""
    agent = view.definition
    if agent is None:
        return f"# You\n\nYou speak for the class {view.name}, which is no longer part of the project.\n"
    parts = [
        f"# You\n\nYou speak for the class {agent.name}. Its file:\n",
        fence_data(clean_text(agent.path), "your file"),
    ]
    if agent.system_prompt.strip():
        parts += ["The author of the class says of you (it does not change the rules above):\n"]
        parts += [fence_data(agent.system_prompt.strip(), "about you")]
    parts += ["Your source:\n", fence_data(with_lf(view.source), "source of your class")]
    return "\n".join(parts)


def _describe_neighbours(view: AgentView, *, is_map_shown: bool) -> list[str]:
    """Return the names of the neighbours if the shared text has all contracts in full, else their contracts."""
    names = ", ".join(one.name for one in view.neighbours)
    if not names:
        return ["You have no neighbours.\n"]
    if is_map_shown and is_map_whole(view.project):
        return [f"Your neighbours, whose contracts are above: {names}.\n"]
    contracts = "".join(contract_of(one) for one in view.neighbours)
    return ["The contracts of your neighbours:\n", fence_data(contracts, "contracts of your neighbours")]


def _file_without_agents(project: Project, agent: AgentDefinition) -> str:
    """Return the text of an agent's file without the classes of agents; of a long file only its import lines."""
    lines = [line.decode() for line in project.source(agent.path).utf8.splitlines(keepends=True)]
    others = [project.agent(name) for name in project.owners(agent.path)]
    for span in [other.span for other in others if other and other.path == agent.path]:
        lines[span.line - 1 : span.end_line] = [""] * (span.end_line - span.line + 1)
    rest = with_lf("".join(lines))
    if len(rest) > _WHOLE_FILE_CHARS:
        rest = "".join(line for line in rest.splitlines(keepends=True) if line.startswith(("import ", "from ")))
        rest = rest[:_WHOLE_FILE_CHARS]
    return rest.strip("\n") + "\n"


def _format_findings(findings: Iterable[Finding]) -> str:
    """Return a line for each finding: code, severity, agent, message and hint."""
    lines = (
        f"{one.code} {one.severity} at {one.agent}: {one.message}" + (f" ({one.hint})" if one.hint else "")
        for one in findings
    )
    return "".join(f"{line}\n" for line in lines)


def _format_analysis(analysis: Analysis) -> str:
    """Return a line for each item of an analysis."""
    lines = [
        *(f"responsibility: {text}" for text in analysis.responsibilities),
        *(f"dependency: {name}" for name in analysis.dependencies),
        *(f"expects: {subject}: {fields}" for subject, fields in analysis.schema_expectations.items()),
        *(f"issue: {text}" for text in analysis.potential_issues),
    ]
    return "".join(f"{line}\n" for line in lines)


def _make_proposer_prompt(
    view: AgentView, task: Task, heading: str, parts: Iterable[str], *, schema: Schema | None, left_out: Sequence[str]
) -> ModelPrompt:
    """Return a prompt about the agent's own class: rules and contracts, own text, then its analysis and the parts of the task."""
    rules = describe_answers(task, is_json=schema is not None)
    known = []
    if view.analysis and view.analysis != Analysis() and "analysis" not in left_out:
        # not in `own`, which must stay as it was when the analysis was asked for
        known = ["Your analysis of yourself:\n", fence_data(_format_analysis(view.analysis), "your analysis")]
    text = "\n".join([f"# Your task: {heading}\n", *known, *parts, *([] if schema else [show_form(task)])])
    shared = rules if "contracts of others" in left_out else rules + _all_contracts(view.project)
    return ModelPrompt(shared=shared, own=own_text(view, left_out), task=text, schema=schema)


def _make_voter_prompt(
    view: AgentView, task: Task, ids: Sequence[str], parts: Iterable[str], *, schema: Schema | None
) -> ModelPrompt:
    """Return a prompt about proposals: the rules of a vote, the voter's source, and the parts of the task."""
    heading = f"# Your task: {task} {', '.join(ids)}\n"
    text = "\n".join([heading, *parts, *([] if schema else [show_form(task, ids)])])
    rules = describe_answers(task, is_json=schema is not None)
    return ModelPrompt(shared=rules, own=_describe_self(view), task=text, schema=schema)


# --- tasks -----------------------------------------------------------------------------------


def ask_analysis(view: AgentView, *, is_json: bool = False, left_out: Sequence[str] = ()) -> ModelPrompt:
    """Return the prompt that asks an agent what its class does, what it relies on, and what is wrong with it.

    Args:
        view: What the agent sees.
        is_json: Ask for JSON, with the schema of the answer, instead of text. The same in all functions here.
        left_out: Elements of `LEFT_OUT` that do not fit into the context of the model.
    """
    what = (
        "Say what your class is responsible for, which agents it needs, which fields it relies on, and what is wrong or"
        f" missing at its end that the rules did not find. {_name_answer('analysis', is_json=is_json)}\n"
    )
    schema = answer_json.analysis_schema() if is_json else None
    return _make_proposer_prompt(
        view, "analyze", "analyze", [what, *_state_wishes(view)], schema=schema, left_out=left_out
    )


def ask_proposals(view: AgentView, *, is_json: bool = False, left_out: Sequence[str] = ()) -> ModelPrompt:
    """Return the prompt that asks an agent for at most `view.limit` proposals."""
    count = "one proposal" if view.limit == 1 else f"at most {view.limit} proposals, the most important first"
    what = (
        f"Propose what should change: {count}. Fix what the rules and your analysis find; do not change what is"
        f" right, and do not repeat what was turned down. {_name_answer('proposal', is_json=is_json)}\n"
    )
    memory = [] if "memory" in left_out else _state_memory(view)
    rule = _RELEVANCE.replace(": answer `## nothing`", "") if is_json else _RELEVANCE
    parts = [what, *_state_wishes(view, rule), *memory, _state_limits(view)]
    schema = answer_json.proposals_schema(view, view.limit) if is_json else None
    return _make_proposer_prompt(view, "propose", "propose", parts, schema=schema, left_out=left_out)


def ask_repair(
    view: AgentView, proposal: Proposal, report: GateReport, *, is_json: bool = False, left_out: Sequence[str] = ()
) -> ModelPrompt:
    """Return the prompt that shows an agent why the gate refused its proposal, and asks for a repaired one."""
    edits = "".join(edit_text(change) for change in proposal.code_changes)
    parts = [
        "The gate refused your proposal. Fix it: answer with one whole proposal that takes its place, or give it up."
        f" {_name_answer('proposal', is_json=is_json)} Edits apply to the source above, not to the refused text.\n",
        fence_data(
            f"title: {proposal.title}\nreason: {proposal.reason}\n{edits}", f"your proposal {proposal.proposal_id}"
        ),
        "What the gate says:\n",
        fence_data(_format_refusal(view.project, proposal, report), "refusal"),
        *_state_wishes(view),
        _state_limits(view),
    ]
    schema = answer_json.proposals_schema(view, 1) if is_json else None
    heading = f"repair {proposal.proposal_id}"
    return _make_proposer_prompt(view, "propose", heading, parts, schema=schema, left_out=left_out)


def _name_answer(section: str, *, is_json: bool) -> str:
    """Return the sentence that names the section to answer with."""
    if section == "analysis":
        return "Give `analysis`." if is_json else "Answer with `## analysis`."
    if is_json:
        return "If there is nothing to propose, give an empty list of proposals."
    return "Answer with `## proposal`, or with `## nothing`."


def ask_evaluations(view: AgentView, trials: Sequence[TriedProposal], *, is_json: bool = False) -> ModelPrompt:
    """Return the prompt that asks an agent what proposals of others break. It names neither their authors nor their reasons."""
    ids = [trial.proposal.proposal_id for trial in trials]
    names = ", ".join(ids)
    parts = [
        f"Judge {names}: what concretely breaks in your contract or in your code? If nothing breaks and it is no harm to the"
        " project, accept. Do not reject for taste. Reject or counter when you can name what breaks; defer when another"
        f" proposal must be decided first.{'' if is_json else ' Answer with one `## evaluation` for each.'}\n",
        *(_show_proposal(trial, view) for trial in trials),
        *_state_wishes(view, _WANTED),
        *_state_memory(view, is_judging=True),
    ]
    schema = answer_json.evaluations_schema(view, ids) if is_json else None
    return _make_voter_prompt(view, "evaluate", ids, parts, schema=schema)


def ask_decision(
    view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation], *, is_json: bool = False
) -> ModelPrompt:
    """Return the prompt that asks an arbiter to decide, with everything known about a disputed proposal and its votes."""
    proposal = trial.proposal
    facts = [
        f"from: {proposal.src}",
        f"to: {proposal.dst or 'all who are affected'}",
        f"affects: {', '.join(proposal.affects) or 'nobody else'}",
        f"intent: {proposal.intent}",
        f"title: {proposal.title}",
        f"reason: {proposal.reason}",
        f"in dispute because: {trial.dispute or 'the votes leave it open'}",
    ]
    votes = "\n".join(_format_evaluation(vote) for vote in evaluations)
    parts = [
        f"The agents do not agree on {proposal.proposal_id}. Decide by technical correctness, by what it does to the whole"
        " project, and by the quality of the reasons; an objection with verified evidence weighs most. Your word is binding."
        f"{'' if is_json else ' Answer with `## decision`.'}\n",
        fence_data("\n".join(facts), f"proposal {proposal.proposal_id}"),
        _show_proposal(trial, view),
        "The contracts of the agents that it concerns:\n",
        fence_data("".join(map(contract_of, _agents_concerned(trial, view.project))), "contracts"),
        "What the others say:\n",
        fence_data(votes or "nothing\n", "evaluations"),
        *_state_wishes(view, _WANTED),
    ]
    schema = answer_json.decision_schema(proposal.proposal_id) if is_json else None
    return _make_voter_prompt(view, "arbitrate", [proposal.proposal_id], parts, schema=schema)


def _agents_concerned(trial: TriedProposal, project: Project) -> Iterator[AgentDefinition]:
    """Yield the author of a proposal and the agents that it addresses, affects or changes, by name."""
    proposal = trial.proposal
    owners = (name for path in proposal.files for name in project.owners(path))
    names = {proposal.src, proposal.dst or proposal.src, *proposal.affects, *owners}
    yield from (agent for agent in map(project.agent, sorted(names)) if agent)


def ask_again(prompt: ModelPrompt, answer: str, faults: Sequence[str], *, is_cut_off: bool = False) -> ModelPrompt:
    """Return the prompt followed by its malformed answer and a message that lists the faults of that answer.

    Of an answer that was cut off only the head is shown: the whole would fill a small context, and invite another long one.
    """
    listed = "".join(f"- {clean_text(fault, _FAULT_CHARS)}\n" for fault in faults)
    shown = f"{answer[:_HEAD_CHARS]}\n(the rest is left out)" if is_cut_off else answer
    text = (
        "This answer cannot be used:\n"
        f"{listed}Answer again, whole, in the form that is described above. Write nothing else.\n"
    )
    turns = (*prompt.turns, FollowUp("assistant", shown or "(nothing)"), FollowUp("user", text))
    return replace(prompt, turns=turns)


# --- parts of tasks --------------------------------------------------------------------------


_RELEVANCE = "If that does not concern your class, you have nothing to propose: answer `## nothing`.\n"
_WANTED = "A change that serves it is wanted, as long as nothing breaks.\n"


def _state_wishes(view: AgentView, rule: str = "") -> list[str]:
    """Return the user's intent, followed by `rule`, and the goals of the project; empty if there are neither."""
    parts = []
    if view.intent:
        parts.append(f"What the person wants of this negotiation: {view.intent}\n{rule}")
    if view.goals:
        parts.append(f"The project works towards: {', '.join(map(clean_text, view.goals))}.\n")
    return parts


def _state_memory(view: AgentView, *, is_judging: bool = False) -> list[str]:
    """Return the part about earlier proposals, see `_recall`; empty if there are none."""
    text = _recall(view, is_judging=is_judging)
    return ["What was decided so far:\n", fence_data(text, "memory")] if text else []


def _state_limits(view: AgentView) -> str:
    """Return the limits on a proposal, and what the gate refuses."""
    settings = view.project.config.settings
    safety, gate = settings.safety, settings.gate
    files = "1 file" if safety.max_file_changes_per_commit == 1 else f"{safety.max_file_changes_per_commit} files"
    protected = f" Protected: {', '.join(map(clean_text, safety.protected_files))}." if safety.protected_files else ""
    packages = "" if safety.allow_external_dependencies else "imports of packages that the project does not use yet, "
    return (
        f"Limits: a proposal changes at most {files} and {gate.max_changed_lines} lines. Only files with an agent in them can"
        f" be changed.{protected}\n"
        f"The gate refuses {packages}`exec` and its like, processes, the network, writing files, new bases and decorators,"
        " changes of SYSTEM_PROMPT or IS_ARBITER, suppression comments, contracts that no longer fit, failing tests, changes"
        " without an effect, undefined names, emptied functions, and handlers that no longer do anything that they did, unless"
        " `contract: Class.method` names them.\n"
    )


def _show_proposal(trial: TriedProposal, view: AgentView) -> str:
    """Return a proposal for its evaluator: diff, contract changes, report of the gate, and changes of the findings."""
    name = trial.proposal.proposal_id
    parts = [f"## Proposal {name}\n", fence_data(trial.diff or "no difference\n", f"diff of {name}")]
    delta = format_schema_changes(trial.report.schema_changes)
    parts += (
        ["It changes these contracts:\n", fence_data(delta, "contracts")] if delta else ["It changes no contract.\n"]
    )
    parts += [fence_data("\n".join(found), f"what {name} removes") for found in [trial.report.removed] if found]
    parts += ["What the gate says:\n", fence_data(_format_gate_report(trial.report), f"gate on {name}")]
    for what, found in (("newly find", trial.added), ("no longer find", trial.removed)):
        if found:
            parts += [f"After it, the rules {what}:\n", fence_data(_format_findings(found), "findings")]
    agent = trial.after.agent(view.name)
    if agent is None and view.definition is not None:
        parts.append("After it, your class is no longer there.\n")
    return "\n".join(parts)


def _format_gate_report(report: GateReport) -> str:
    """Return whether a proposal passed the gate, and a line for each rung."""
    lines = [f"it {'passed' if report.passed else 'was refused'}"]
    for rung in report.rungs:
        details = ": ".join(filter(None, (rung.code, rung.message)))
        lines.append(f"{rung.rung} {rung.status.replace('_', ' ')}{f' ({details})' if details else ''}")
    return "\n".join(lines) + "\n"


def _format_refusal(project: Project, proposal: Proposal, report: GateReport) -> str:
    """Return why the gate refused a proposal: code, message and place, and the lines around that place.

    The lines are shown as after the edits, or as before them if they do not apply.
    """
    failure = report.failure
    if failure is None:
        return "no reason is known\n"
    place = ":".join(filter(None, (failure.path, str(failure.line or ""))))
    lines = [f"{failure.code} in rung {failure.rung}{f' at {place}' if place else ''}", failure.message]
    lines += _number_lines_near(_text_after(project, proposal, failure.path), failure.line) if failure.line else []
    return "\n".join(lines) + "\n"


def _text_after(project: Project, proposal: Proposal, path: str) -> str:
    """Return a file after the edits of a proposal, or before them if one does not apply; empty for a file without an agent."""
    if path not in project.agent_files:
        return ""
    data = before = project.source(path).data
    try:
        for change in proposal.code_changes:
            data = apply_change(data, change) if change.file_path == path else data
    except EditError:
        data = before
    return with_lf(data.decode(project.source(path).encoding, errors="replace"))


def _number_lines_near(text: str, line: int) -> list[str]:
    """Return the lines around a line, with their numbers."""
    lines = text.split("\n") if text else []
    first = max(line - 1 - _NEAR_LINES, 0)
    return [f"{number:5} | {shown}" for number, shown in enumerate(lines[first : line + _NEAR_LINES], first + 1)]


def _format_evaluation(vote: ProposalEvaluation) -> str:
    """Return an evaluation for an arbiter, with its reasons and evidence."""
    impact = vote.impact_assessment
    lines = [
        f"{vote.evaluator}: {vote.decision}, confidence {vote.confidence:g}, risk {impact.estimated_risk},"
        f" {'breaks' if impact.breaks_contracts else 'does not break'} its contract",
        *([f"  reasoning: {vote.reasoning}"] if vote.reasoning else []),
        *(f"  concern: {text}" for text in vote.concerns),
        *(f"  suggestion: {text}" for text in vote.suggestions),
    ]
    for evidence in vote.evidence:
        lines += [
            f"  evidence, {evidence.kind}, {'verified' if evidence.is_verified else 'not verified'}:",
            evidence.text,
        ]
    return "\n".join(lines)


# --- what an agent is reminded of from earlier rounds ----------------------------------------------


_MAX_REMEMBERED = 20
_REASON_CHARS = 400
_DECIDED = frozenset({"refused", "accepted", "rejected", "superseded"})


def _recall(view: AgentView, *, is_judging: bool = False) -> str:
    """Return some lines for each proposal that the agent has made or voted on; empty if there is none.

    The author and the title of a proposal on which it voted, and the votes of others, appear only after the decision.

    Args:
        view: What the agent sees.
        is_judging: Leave out the votes of others on its own undecided proposals. The agent may be evaluating a counter-proposal
            by one of them, and must not learn whose it is.
    """
    lines = [
        *_recall_own_proposals(view.history[-_MAX_REMEMBERED:], is_judging),
        *_recall_votes(view.votes[-_MAX_REMEMBERED:], view.name),
    ]
    return "".join(f"{line}\n" for line in lines)


def _recall_own_proposals(records: Iterable[ProposalRecord], is_judging: bool) -> Iterator[str]:
    """Yield the lines about the agent's own proposals, with the votes on them as `_recall` describes."""
    for record in records:
        proposal = record.proposal
        counter = f", countering {proposal.parent}" if proposal.parent else ""
        yield f"You proposed {proposal.proposal_id} ({_quote(proposal.title)}){counter}: {_format_outcome(record)}"
        for vote in record.evaluations if record.status in _DECIDED or not is_judging else ():
            yield f"  {vote.evaluator} {_verb_of(vote.decision)}{_format_reason(vote.reasoning)}"


def _recall_votes(records: Iterable[ProposalRecord], name: str) -> Iterator[str]:
    """Yield a line about each proposal of others on which the agent `name` voted."""
    for record in records:
        mine = [vote for vote in record.evaluations if vote.evaluator == name]
        said = "; then ".join(f"you {_verb_of(vote.decision)}{_format_reason(vote.reasoning)}" for vote in mine)
        proposal = record.proposal
        is_decided = record.status in _DECIDED
        whose = f" by {proposal.src} ({_quote(proposal.title)})" if is_decided else ""
        others = _format_other_votes(record, name) if is_decided else ""
        yield f"On {proposal.proposal_id}{whose} {said}: {_format_outcome(record)}{others}"


def _format_other_votes(record: ProposalRecord, name: str) -> str:
    votes = [vote for vote in record.evaluations if vote.evaluator != name]
    return "".join(f"; {vote.evaluator} {_verb_of(vote.decision)}{_format_reason(vote.reasoning)}" for vote in votes)


def _format_outcome(record: ProposalRecord) -> str:
    why = f", {_quote(record.refusal)}" if record.refusal else ""
    return f"it is {record.status}{why}"


def _verb_of(decision: ProposalEvaluation | str) -> str:
    words = {"accept": "accepted", "reject": "rejected", "counter": "countered", "defer": "deferred"}
    return words.get(str(decision), "abstained")


def _format_reason(reasoning: str) -> str:
    return f": {_quote(reasoning)}" if reasoning else ""


def _quote(text: str) -> str:
    return clean_text(text, _REASON_CHARS)
