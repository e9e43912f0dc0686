"""Which inputs an agent's answer rests on, and so whether there is a reason to ask it again.

Of a neighbour only its contract counts, not its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from graphbus_core.compiler.project import Project
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.negotiation.agents import AgentView
from graphbus_core.negotiation.answer_format import PROTOCOL_VERSION
from graphbus_core.negotiation.protocol import Proposed

_DIGITS = 16
_ROLES = "proposer evaluator arbiter"


class AgentInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of what an agent's answer rests on.

    Attributes:
        source: Its class.
        neighbours: The agents at the other ends of its edges -> their contracts.
        findings: What the rules find at its end; empty when they find nothing.
        intent: What the person wants, and the goals; empty without any.
        policy: The limits that say what may be proposed, and the version of the prompts.
        model: Who answers in which role.
    """

    source: str
    neighbours: dict[str, str]
    findings: str = ""
    intent: str = ""
    policy: str = ""
    model: str = "rules"


def inputs_of(name: str, project: Project, findings: Iterable[Finding], model: str) -> AgentInputs:
    """Give what the answers of an agent rest on in a project as it is now."""
    definition = project.agent(name)
    settings = project.config.settings
    is_wished = settings.intent or settings.refactoring_goals
    known = ((other, project.agent(other)) for other in sorted(project.graph.neighbours(name)))
    return AgentInputs(
        source=definition.source_digest if definition else "",
        neighbours={other: agent.contract_digest for other, agent in known if agent},
        findings=_digest(sorted(finding.key for finding in findings if finding.agent == name)),
        intent=_digest([settings.intent, *settings.refactoring_goals] if is_wished else []),
        policy=_policy_of(settings.safety),
        model=model,
    )


def describe_models(models: Mapping[str, str]) -> str:
    """Give the models of the roles, each once: `rules`, `a:one`, or `a:one (proposer, arbiter), b:other (evaluator)`."""
    roles: dict[str, list[str]] = {}
    for role in sorted(models, key=_ROLES.find):
        roles.setdefault(models[role], []).append(role)
    if len(roles) < 2:
        return next(iter(roles), "rules")
    return ", ".join(f"{model} ({', '.join(named)})" for model, named in roles.items())


def _policy_of(safety: SafetyConfig) -> str:
    """Give the digest of the limits, but for how long a session may be: that decides about no answer."""
    plain = SafetyConfig()
    timeless = {name: getattr(plain, name) for name in ("max_negotiation_rounds", "convergence_threshold")}
    return _digest([PROTOCOL_VERSION, replace(safety, **timeless)])


def _digest(value: list[Any]) -> str:
    return sha256_hex(msgspec.json.encode(value, order="sorted"))[:_DIGITS] if value else ""


_CHANGES = {
    "source": "its source has changed",
    "findings": "what the rules find at its end has changed",
    "intent": "the intent or the goals have changed",
    "policy": "the safety settings or the prompts have changed",
    "model": "the model has changed from {0} to {1}",
}


def describe_changes(was: AgentInputs, now: AgentInputs) -> Iterator[str]:
    """Say what has changed, a sentence without its full stop for each."""
    for name in sorted({*was.neighbours, *now.neighbours}):
        before, after = was.neighbours.get(name), now.neighbours.get(name)
        if before is None:
            yield f"{name} has become its neighbour"
        elif after is None:
            yield f"{name} is no longer its neighbour"
        elif before != after:
            yield f"the contract of {name} has changed"
    for field, sentence in _CHANGES.items():
        before, after = getattr(was, field), getattr(now, field)
        if before != after:
            yield sentence.format(before, after)


class SettledAgents:
    """The agents that had nothing to propose on their present inputs, in this session or, by the lock, in an earlier one.

    Attributes:
        model: Who answers for the agents.
        failed: Agent -> why it gave no usable answer when it was last asked what it would change.
        has_usable_reply: At least one agent has given a usable answer to that question.
    """

    def __init__(self, settled: Mapping[str, AgentInputs], model: str) -> None:
        self._quiet = dict(settled)
        self.model = model
        self.failed: dict[str, str] = {}
        self.has_usable_reply = False

    def has_settled(self, view: AgentView) -> bool:
        """True if the agent already had nothing to propose on the inputs that it would be asked with."""
        return self.has_settled_on(view.name, self._inputs(view))

    def has_settled_on(self, name: str, inputs: AgentInputs) -> bool:
        """True if the agent had nothing to propose on these inputs."""
        return self._quiet.get(name) == inputs

    def note_reply(self, view: AgentView, reply: Proposed) -> None:
        """Note whether the agent had nothing to propose or could not answer."""
        self.failed.pop(view.name, None)
        if reply.failure:
            self.failed[view.name] = reply.failure
            return
        self.has_usable_reply = True
        if not reply.proposals:
            self._quiet[view.name] = self._inputs(view)

    def _inputs(self, view: AgentView) -> AgentInputs:
        return inputs_of(view.name, view.project, view.findings, self.model)
