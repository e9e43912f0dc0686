"""An agent that asks a model: `prompts.py` makes the prompt, `answers.py` reads the answer.

A malformed answer is sent back once with a list of its faults. If the next one is not usable either, the question has failed: no
proposal, or an abstention. The agent keeps no state except the prompts of the last question; its memory is part of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Clients, LLMClient, ModelPrompt, WorstCase, estimate_tokens
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation import answers, prompts
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.answers import MalformedAnswer
from graphbus_core.negotiation.protocol import AskArbitration, AskEvaluations, AskProposals, AskRepair
from graphbus_core.negotiation.rule_agent import RuleAgent

T = TypeVar("T")

_FAULTS_BYTES = 8_192
"""An upper bound on the message that sends an answer back."""
_MESSAGE_TOKENS = 16
"""Tokens of a message besides its text."""
_MESSAGES = 6
_SENT_BACK_TOKENS = _FAULTS_BYTES + 2 * _MESSAGES * _MESSAGE_TOKENS
"""Tokens that a worst case adds for sending an answer back, besides the prompt and the answer."""


class _Made(NamedTuple):
    """The prompts of the last question, each with the function and the arguments that made it."""

    view: AgentView | None = None
    prompts: tuple[tuple[Callable[..., ModelPrompt], tuple[object, ...], ModelPrompt], ...] = ()


class ModelAgent:
    """See `ActiveAgent` for what its methods promise.

    Attributes:
        max_output_tokens: The longest answer that is asked for.
        max_prompt_tokens: The longest prompt that is sent, at four bytes a token; 0: any.
    """

    def __init__(
        self,
        name: str,
        clients: Clients,
        *,
        is_arbiter: bool = False,
        max_output_tokens: int = 8192,
        max_prompt_tokens: int = 0,
    ) -> None:
        self.name = name
        self.is_arbiter = is_arbiter
        self.max_output_tokens = max_output_tokens
        self.max_prompt_tokens = max_prompt_tokens
        self._clients = clients
        self._made = _Made()

    def analyze(self, view: AgentView) -> Analysis:
        """Return the facts of the rules, complemented by the analysis of the model."""
        facts = RuleAgent(self.name).analyze(view)
        said = self._ask(self._clients.proposer, self._prompt(prompts.ask_analysis, view), answers.read_analysis)
        known = {definition.name for definition in view.project.definitions} - {self.name}
        return Analysis(
            responsibilities=said.responsibilities or facts.responsibilities,
            dependencies=_joined(facts.dependencies, (name for name in said.dependencies if name in known)),
            schema_expectations={**said.schema_expectations, **facts.schema_expectations},
            potential_issues=_joined(facts.potential_issues, said.potential_issues),
        )

    def propose(self, view: AgentView) -> tuple[Proposal, ...]:
        """Ask for changes."""
        prompt = self._prompt(prompts.ask_proposals, view)
        return self._ask(self._clients.proposer, prompt, lambda text: answers.read_drafts(text, view))

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Ask for a repaired proposal; None if the model gives up."""
        prompt = self._prompt(prompts.ask_repair, view, proposal, report)
        return self._ask(self._clients.proposer, prompt, lambda text: answers.read_repair(text, view, proposal))

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        """Ask for evaluations, a few proposals at a time; usable ones count even if others in the answer are malformed."""
        return tuple(vote for batch in _batches(trials) for vote in self._judge(view, batch))

    def _judge(self, view: AgentView, batch: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        prompt = self._prompt(_ask_evaluations, view, *batch)
        return self._ask(
            self._clients.evaluator,
            prompt,
            lambda text: answers.read_evaluations(text, view, batch),
            lambda malformed: malformed.usable or None,
        )

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Ask for a decision."""
        prompt = self._prompt(prompts.ask_decision, view, trial, evaluations)
        word = self._ask(self._clients.arbiter, prompt, lambda text: answers.read_decision(text, view, trial))
        return replace(word, is_arbiter=True)

    def worst_case(self, question: object, view: AgentView, trials: Sequence[TriedProposal]) -> WorstCase:
        """Return the worst case of an answer: one token for each byte of the prompt, and every answer sent back once.

        Args:
            question: A question of the protocol; anything else stands for the analysis.
            view: What the agent would see.
            trials: The proposals that the question is about.
        """
        bounds = [self._bound(prompt) for prompt in self._prompts(question, view, trials)]
        return WorstCase(*(sum(numbers) for numbers in zip(*bounds, strict=True)))

    def _prompts(self, question: object, view: AgentView, trials: Sequence[TriedProposal]) -> Iterator[ModelPrompt]:
        if isinstance(question, AskEvaluations):
            yield from (self._prompt(_ask_evaluations, view, *batch) for batch in _batches(trials))
        elif isinstance(question, AskArbitration):
            yield self._prompt(prompts.ask_decision, view, trials[0], question.evaluations)
        elif isinstance(question, AskRepair):
            yield self._prompt(prompts.ask_repair, view, question.proposal, question.report)
        elif isinstance(question, AskProposals):
            yield self._prompt(prompts.ask_proposals, view)
        else:
            yield self._prompt(prompts.ask_analysis, view)

    def _prompt(self, make: Callable[..., ModelPrompt], view: AgentView, *about: object) -> ModelPrompt:
        """Return the prompt; the same question reuses it, so that its worst case is computed for the text that is sent."""
        made = self._made
        known = made.prompts if made.view is view else ()
        for maker, subject, prompt in known:
            if maker is make and len(subject) == len(about) and all(map(is_, subject, about)):
                return prompt
        prompt = make(view, *about)
        self._made = _Made(view, (*known, (make, about, prompt)))
        return prompt

    def _bound(self, prompt: ModelPrompt) -> WorstCase:
        if self._excess(prompt):
            return WorstCase()
        asked = sum(len(text.encode(errors="replace")) for text in (prompt.shared, prompt.own, prompt.task))
        sent_back = (
            2 * self.max_output_tokens + _SENT_BACK_TOKENS
        )  # an answer may have more tokens when it is read again
        return WorstCase(requests=2, input_tokens=2 * asked + sent_back, output_tokens=2 * self.max_output_tokens)

    def _ask(
        self,
        client: LLMClient,
        prompt: ModelPrompt,
        read: Callable[[str], T],
        rest: Callable[[MalformedAnswer], T | None] = lambda _malformed: None,
    ) -> T:
        """Ask, and ask once more after a malformed answer; `rest` returns the usable part of a second malformed one.

        Raises:
            ModelError: GBE460, the second answer is not usable either; GBE461, the model refuses; GBE462, the prompt is too long.
                What the client raises.
        """
        excess = self._excess(prompt)
        if excess:
            raise ModelError("GBE462", agent=self.name, tokens=excess, limit=self.max_prompt_tokens)
        text, said = self._answer(client, prompt, read)
        if isinstance(said, MalformedAnswer):
            text, said = self._answer(client, prompts.ask_again(prompt, text, said.faults), read)
        if not isinstance(said, MalformedAnswer):
            return said
        usable = rest(said)
        if usable is not None:
            return usable
        raise ModelError("GBE460", model=client.model, reason=" ".join(said.faults))

    def _excess(self, prompt: ModelPrompt) -> int:
        """Return the tokens of a prompt that is too long; 0 for one that is not."""
        tokens = estimate_tokens(prompt.shared, prompt.own, prompt.task)
        return tokens if 0 < self.max_prompt_tokens < tokens else 0

    def _answer(
        self, client: LLMClient, prompt: ModelPrompt, read: Callable[[str], T]
    ) -> tuple[str, T | MalformedAnswer]:
        completion = client.complete(prompt, self.max_output_tokens)
        if completion.stop == "refusal":
            raise ModelError("GBE461", model=client.model)
        if completion.stop == "length":
            fault = f"It was cut off after {self.max_output_tokens} tokens: it is too long."
            return completion.text, MalformedAnswer([fault])
        try:
            return completion.text, read(completion.text)
        except MalformedAnswer as malformed:
            return completion.text, malformed


def _ask_evaluations(view: AgentView, *batch: TriedProposal) -> ModelPrompt:
    return prompts.ask_evaluations(view, batch)


def _batches(trials: Sequence[TriedProposal]) -> Iterator[Sequence[TriedProposal]]:
    for start in range(0, len(trials), prompts.BATCH):
        yield trials[start : start + prompts.BATCH]


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))
