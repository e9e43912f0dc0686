"""The inputs of an agent's answers as digests: while they are unchanged, there is no reason to ask it again.

Of a neighbour only the contract is an input, not the bodies of its methods.
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
    """Digests of everything that an agent's answer depends on.

    Attributes:
        source: The text of its class.
        neighbours: Name of each agent at the other end of an edge -> digest of its contract.
        findings: The findings of the rules about it; empty without any.
        intent: The intent and the goals of the person; empty without any.
        policy: The limits on proposals, and the version of the prompts.
        model: The models by role, as text.
    """

    source: str
    neighbours: dict[str, str]
    findings: str = ""
    intent: str = ""
    policy: str = ""
    model: str = "rules"


def inputs_of(name: str, project: Project, findings: Iterable[Finding], model: str) -> AgentInputs:
    """Return the inputs of an agent's answers in this project."""
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
    """Return the models of the roles as text: `rules`, `a:one`, or `a:one (proposer, arbiter), b:other (evaluator)`."""
    roles: dict[str, list[str]] = {}
    for role in sorted(models, key=_ROLES.find):
        roles.setdefault(models[role], []).append(role)
    if len(roles) < 2:
        return next(iter(roles), "rules")
    return ", ".join(f"{model} ({', '.join(named)})" for model, named in roles.items())


def _policy_of(safety: SafetyConfig) -> str:
    """Return the digest of the limits, except those on the length of a session, on which no answer depends."""
    plain = SafetyConfig()
    timeless = {name: getattr(plain, name) for name in ("max_negotiation_rounds", "convergence_threshold")}
    return _digest([PROTOCOL_VERSION, replace(safety, **timeless)])


def _digest(value: list[Any]) -> str:
    return sha256_hex(msgspec.json.encode(value, order="sorted"))[:_DIGITS] if value else ""


_CHANGES = {
    "source": "its source has changed",
    "findings": "the findings of the rules about it have changed",
    "intent": "the intent or the goals have changed",
    "policy": "the safety settings or the prompts have changed",
    "model": "the model has changed from {0} to {1}",
}


def describe_changes(was: AgentInputs, now: AgentInputs) -> Iterator[str]:
    """Yield what has changed, a sentence without its full stop for each."""
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
    """Keeps which agents had nothing to propose on which inputs, in this session or, by the lock, in an earlier one.

    Attributes:
        model: The models by role, as text.
        failed: Agent -> why its last answer to the question for proposals was not usable.
        has_usable_reply: At least one agent has answered that question usably.
    """

    def __init__(self, settled: Mapping[str, AgentInputs], model: str) -> None:
        self._quiet = dict(settled)
        self.model = model
        self.failed: dict[str, str] = {}
        self.has_usable_reply = False

    def has_settled(self, view: AgentView) -> bool:
        """Return whether the agent had nothing to propose on exactly these inputs of its view."""
        return self.has_settled_on(view.name, self._inputs(view))

    def has_settled_on(self, name: str, inputs: AgentInputs) -> bool:
        """Return whether the agent had nothing to propose on these inputs."""
        return self._quiet.get(name) == inputs

    def note_reply(self, view: AgentView, reply: Proposed) -> None:
        """Record whether the agent had nothing to propose, or could not answer."""
        self.failed.pop(view.name, None)
        if reply.failure:
            self.failed[view.name] = reply.failure
            return
        self.has_usable_reply = True
        if not reply.proposals:
            self._quiet[view.name] = self._inputs(view)

    def _inputs(self, view: AgentView) -> AgentInputs:
        return inputs_of(view.name, view.project, view.findings, self.model)
