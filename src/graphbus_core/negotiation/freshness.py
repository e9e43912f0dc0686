"""Digests of the inputs of an agent's answers. While they are unchanged, an agent that had nothing to propose is not asked again.

The contracts of neighbours are inputs, the bodies of their methods are not.
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
from graphbus_core.negotiation.answer_rules import PROTOCOL_VERSION
from graphbus_core.negotiation.protocol import Proposed

_DIGITS = 16
_ROLE_ORDER = "proposer evaluator arbiter"
_VOTES_OF_RULES = (
    "Rules vote: an accept proves that declared contracts and edges still fit, not that a change makes sense."
)


PROGRAM = "a program"
"""In the inputs of an agent that a program represents, instead of the models."""


class AgentInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of everything that an agent's answer depends on.

    Attributes:
        source: The text of its class.
        neighbours: Name of each agent at the other end of an edge -> digest of its contract.
        findings: Digest of the findings of the rules in its class; empty if there are none.
        intent: Digest of the intent and the goals; empty if there are none.
        policy: Digest of the safety settings and the version of the prompts.
        model: The models by role, as `describe_models` writes them, or `PROGRAM`.
    """

    source: str
    neighbours: dict[str, str]
    findings: str = ""
    intent: str = ""
    policy: str = ""
    model: str = "rules"


def inputs_of(name: str, project: Project, findings: Iterable[Finding], model: str) -> AgentInputs:
    """Return the inputs of an agent's answers in this project; `findings` may include those of other agents."""
    definition = project.agent(name)
    settings = project.config.settings
    model = PROGRAM if name in settings.agents else model
    is_wished = settings.intent or settings.refactoring_goals
    known = ((other, project.agent(other)) for other in sorted(project.graph.neighbours(name)))
    return AgentInputs(
        source=definition.source_digest if definition else "",
        neighbours={other: agent.contract_digest for other, agent in known if agent},
        findings=_digest(sorted(finding.key for finding in findings if finding.agent == name)),
        intent=_digest([settings.intent, *settings.refactoring_goals] if is_wished else []),
        policy=_digest_policy(settings.safety, model),
        model=model,
    )


def describe_models(models: Mapping[str, str]) -> str:
    """Return the models of the roles as text: `rules`, `a:one`, or `a:one (proposer, arbiter), b:other (evaluator)`."""
    roles: dict[str, list[str]] = {}
    for role in sorted(models, key=_ROLE_ORDER.find):
        roles.setdefault(models[role], []).append(role)
    if len(roles) < 2:
        return next(iter(roles), "rules")
    return ", ".join(f"{model} ({', '.join(named)})" for model, named in roles.items())


def describe_rule_votes(models: Mapping[str, str]) -> str:
    """Return what votes prove if rules compute them although a model proposes; empty otherwise.

    Args:
        models: Role -> model; empty if rules fill every role.
    """
    return _VOTES_OF_RULES if models.get("evaluator") == "rules" else ""


_WITHOUT_PROMPTS = 1
"""In the digest of rule agents instead of the version of the prompts, which they do not read."""


def _digest_policy(safety: SafetyConfig, model: str) -> str:
    """Return the digest of the limits without those on the length of a session, on which no answer depends."""
    version = _WITHOUT_PROMPTS if model == "rules" else PROTOCOL_VERSION
    defaults = SafetyConfig()
    timeless = {name: getattr(defaults, name) for name in ("max_negotiation_rounds", "convergence_threshold")}
    return _digest([version, replace(safety, **timeless)])


def _digest(value: list[Any]) -> str:
    """Return the first digits of the digest of a JSON value; empty for an empty list."""
    return sha256_hex(msgspec.json.encode(value, order="sorted"))[:_DIGITS] if value else ""


_CHANGE_SENTENCES = {
    "source": "the source of the agent has changed",
    "findings": "the findings of the rules about the agent have changed",
    "intent": "the intent or the goals have changed",
    "policy": "the safety settings or the prompts have changed",
    "model": "the model has changed from {0} to {1}",
}


def describe_changes(was: AgentInputs, now: AgentInputs) -> Iterator[str]:
    """Yield a sentence without its full stop for each input that has changed."""
    for name in sorted({*was.neighbours, *now.neighbours}):
        before, after = was.neighbours.get(name), now.neighbours.get(name)
        if before is None:
            yield f"{name} has become a neighbour of the agent"
        elif after is None:
            yield f"{name} is no longer a neighbour of the agent"
        elif before != after:
            yield f"the contract of {name} has changed"
    for field, sentence in _CHANGE_SENTENCES.items():
        before, after = getattr(was, field), getattr(now, field)
        if before != after:
            yield sentence.format(before, after)


class SettledAgents:
    """Knows on which inputs each agent had nothing to propose, in this session or, from the lock, in an earlier one.

    Attributes:
        model: The models by role, as text.
        failed: Agent -> why its last reply had no usable answer to the question for proposals.
        has_usable_reply: True if any agent has given a usable answer to that question.
    """

    def __init__(self, settled: Mapping[str, AgentInputs], model: str) -> None:
        self._settled = dict(settled)
        self.model = model
        self.failed: dict[str, str] = {}
        self.has_usable_reply = False

    def has_settled(self, view: AgentView) -> bool:
        """Return whether the agent had nothing to propose on the inputs that its view has now."""
        return self.has_settled_on(view.name, self._inputs_in_view(view))

    def has_settled_on(self, name: str, inputs: AgentInputs) -> bool:
        """Return whether the agent last had nothing to propose, and these are the inputs of that time."""
        return self._settled.get(name) == inputs

    def note_reply(self, view: AgentView, reply: Proposed) -> None:
        """Record a reply to the question for proposals: the agent failed, or had nothing to propose on the inputs of its view."""
        self.failed.pop(view.name, None)
        if reply.failure:
            self.failed[view.name] = reply.failure
            return
        self.has_usable_reply = True
        if not reply.proposals:
            self._settled[view.name] = self._inputs_in_view(view)

    def _inputs_in_view(self, view: AgentView) -> AgentInputs:
        return inputs_of(view.name, view.project, view.findings, self.model)
