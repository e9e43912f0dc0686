"""An agent that asks a model: `prompts.py` makes the prompt, `answers.py` reads the answer.

A malformed answer is sent back once with a list of its faults. If the next one is not usable either, the question has failed,
and the agent makes no proposal or abstains. It keeps no state but the prompts for the last view: its memory is in the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import json
from msgspec.structs import replace

from graphbus_core.errors import ModelError
from graphbus_core.llm.budget import current_bill
from graphbus_core.llm.client import Clients, LLMClient, ModelPrompt, WorstCase, estimate_tokens
from graphbus_core.llm.providers import advice_on_form
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation import answers, prompts
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.answer_json import evaluations_schema, fit_schema, least_room, looks_like_json
from graphbus_core.negotiation.answers import MalformedAnswer
from graphbus_core.negotiation.protocol import AskArbitration, AskEvaluations, AskProposals, AskRepair
from graphbus_core.negotiation.rule_agent import RuleAgent

T = TypeVar("T")

_FAULTS_BYTES = 8_192
"""The largest size of the message that sends an answer back with its faults."""
_MESSAGE_TOKENS = 16
"""Tokens that a message costs besides its text."""
_MESSAGES = 6
"""The largest number of messages in a question."""
_SENT_BACK_TOKENS = _FAULTS_BYTES + 2 * _MESSAGES * _MESSAGE_TOKENS
"""Tokens that a worst case adds for sending an answer back, besides those of the prompt and the answer."""


class _PromptMemo(NamedTuple):
    """The prompts for the last view, each with the function that made it and the arguments of that besides the view."""

    view: AgentView | None = None
    prompts: tuple[tuple[tuple[object, ...], ModelPrompt], ...] = ()


class _Question(NamedTuple):
    """What a model is asked: the function of `prompts` that makes the prompt, with its arguments."""

    client: LLMClient
    make: Callable[..., ModelPrompt]
    view: AgentView
    about: tuple[object, ...] = ()

    @property
    def can_be_shorter(self) -> bool:
        """True if the prompt has parts that can be left out; a vote has none."""
        return self.make in (prompts.ask_analysis, prompts.ask_proposals, prompts.ask_repair)


class _Answer(NamedTuple, Generic[T]):
    """An answer of a model, and what it says; or what makes it malformed."""

    text: str
    result: T | None
    malformed: MalformedAnswer | None = None
    is_cut_off: bool = False

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it; empty if it can be used."""
        return self.malformed.faults if self.malformed else ()


class ModelAgent:
    """An active agent that asks models, one for each role. `ActiveAgent` describes its methods.

    Every question raises ModelError if there is no usable answer: GBE460, GBE461, GBE462, or an error of the client.

    Attributes:
        max_output_tokens: The largest number of tokens of one answer.
        max_prompt_tokens: The largest number of tokens of a prompt, estimated at four bytes a token; 0: no limit.
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
        self._memo = _PromptMemo()

    def analyze(self, view: AgentView) -> Analysis:
        """Return the facts of the rules, complemented by the analysis of the model."""
        facts = RuleAgent(self.name).analyze(view)
        question = _Question(self._clients.proposer, prompts.ask_analysis, view)
        answer = self._ask_until_usable(question, answers.read_analysis)
        known = {definition.name for definition in view.project.definitions} - {self.name}
        return Analysis(
            responsibilities=answer.responsibilities or facts.responsibilities,
            dependencies=_join_unique(facts.dependencies, (name for name in answer.dependencies if name in known)),
            schema_expectations={**answer.schema_expectations, **facts.schema_expectations},
            potential_issues=_join_unique(facts.potential_issues, answer.potential_issues),
        )

    def propose(self, view: AgentView) -> tuple[Proposal, ...]:
        """Ask for proposals."""
        question = _Question(self._clients.proposer, prompts.ask_proposals, view)
        return self._ask_until_usable(question, lambda text: answers.read_drafts(text, view))

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Ask for a repaired proposal; None if the model gives up."""
        question = _Question(self._clients.proposer, prompts.ask_repair, view, (proposal, report))
        return self._ask_until_usable(question, lambda text: answers.read_repair(text, view, proposal))

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        """Ask for evaluations, a few proposals at a time; usable ones count even if others in the same answer are malformed."""
        return tuple(vote for batch in self._batches(view, trials) for vote in self._evaluate_batch(view, batch))

    def _batches(self, view: AgentView, trials: Sequence[TriedProposal]) -> Iterator[Sequence[TriedProposal]]:
        """Yield as many proposals at a time as one answer has room for, at most `prompts.BATCH`."""
        one = least_room(evaluations_schema(view, ["P000"])) if trials else 1
        size = min(max(self.max_output_tokens // one, 1), prompts.BATCH)
        for start in range(0, len(trials), size):
            yield trials[start : start + size]

    def _evaluate_batch(self, view: AgentView, batch: Sequence[TriedProposal]) -> tuple[ProposalEvaluation, ...]:
        """Ask one question about some proposals. If the second answer is malformed too, return its usable evaluations."""
        question = _Question(self._clients.evaluator, _make_evaluation_prompt, view, tuple(batch))
        return self._ask_until_usable(
            question,
            lambda text: answers.read_evaluations(text, view, batch),
            lambda malformed: malformed.usable or None,
        )

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Ask for the decision on a dispute."""
        question = _Question(self._clients.arbiter, prompts.ask_decision, view, (trial, evaluations))
        decision = self._ask_until_usable(question, lambda text: answers.read_decision(text, view, trial))
        return replace(decision, is_arbiter=True)

    def worst_case(self, question: object, view: AgentView, trials: Sequence[TriedProposal]) -> WorstCase:
        """Return the most that a question can use: one token for each byte of its prompts, and every answer sent back once.

        Args:
            question: A question of the protocol; anything else stands for the analysis.
            view: What the agent would see.
            trials: The proposals that the question is about.
        """
        bounds = [self._worst_case_of(each) for each in self._questions_of(question, view, trials)]
        return WorstCase(*(sum(numbers) for numbers in zip(*bounds, strict=True)))

    def _questions_of(self, question: object, view: AgentView, trials: Sequence[TriedProposal]) -> Iterator[_Question]:
        """Yield what the models are asked for a question of the protocol; any other object stands for the analysis."""
        proposer, evaluator, arbiter = self._clients
        if isinstance(question, AskEvaluations):
            for batch in self._batches(view, trials):
                yield _Question(evaluator, _make_evaluation_prompt, view, tuple(batch))
        elif isinstance(question, AskArbitration):
            yield _Question(arbiter, prompts.ask_decision, view, (trials[0], question.evaluations))
        elif isinstance(question, AskRepair):
            yield _Question(proposer, prompts.ask_repair, view, (question.proposal, question.report))
        elif isinstance(question, AskProposals):
            yield _Question(proposer, prompts.ask_proposals, view)
        else:
            yield _Question(proposer, prompts.ask_analysis, view)

    def _make_prompt(self, question: _Question, *, is_json: bool) -> ModelPrompt:
        """Return the prompt of a question. If it is too long, what it can do without is left out, see `prompts.LEFT_OUT`."""
        shorter = range(len(prompts.LEFT_OUT) + 1 if question.can_be_shorter else 1)
        for count in shorter:
            options = {"left_out": prompts.LEFT_OUT[:count]} if count else {}
            prompt = self._make_once(question, is_json=is_json, **options)
            if not self._tokens_if_too_long(prompt):
                break
        return prompt

    def _make_once(self, question: _Question, **options: object) -> ModelPrompt:
        """Return a prompt, made once for each view: its worst case is computed before the same text is sent.

        Arguments are compared by identity.
        """
        made, key = self._memo, (question.make, *question.about, *options.values())
        known = made.prompts if made.view is question.view else ()
        for other, prompt in known:
            if len(other) == len(key) and all(one is two or one == two for one, two in zip(other, key, strict=True)):
                return prompt
        prompt = question.make(question.view, *question.about, **options)
        if prompt.schema is not None:
            prompt = replace(prompt, schema=fit_schema(prompt.schema, self.max_output_tokens))
        self._memo = _PromptMemo(question.view, (*known, (key, prompt)))
        return prompt

    def _worst_case_of(self, question: _Question) -> WorstCase:
        """Return the most that a question can use; nothing if its prompt is too long, because it is then not sent.

        A model that takes a schema may have to be asked for text after all.
        """
        prompt = self._make_prompt(question, is_json=False)
        if self._tokens_if_too_long(prompt):
            return WorstCase()
        made = [prompt, self._make_prompt(question, is_json=True)] if question.client.takes_schema else [prompt]
        asked = max(_count_bytes(each) for each in made)
        # Twice the answer: as input of the second request it may have more tokens than as output of the first.
        sent_back = 2 * self.max_output_tokens + _SENT_BACK_TOKENS
        return WorstCase(requests=2, input_tokens=2 * asked + sent_back, output_tokens=2 * self.max_output_tokens)

    def _ask_until_usable(
        self,
        question: _Question,
        read: Callable[[str], T],
        salvage: Callable[[MalformedAnswer], T | None] = lambda _malformed: None,
    ) -> T:
        """Ask, and ask once more if the answer is malformed; return what `read` makes of the answer.

        A server that ignores the schema, so that its model answers with something else than JSON, is asked again for text.

        Args:
            question: What to ask.
            read: Parses an answer, and raises MalformedAnswer.
            salvage: Returns the usable part of a second malformed answer, None if there is none.

        Raises:
            ModelError: GBE460, the second answer is not usable either; GBE461, the model refuses; GBE462, the prompt is too long;
                or an error of the client.
        """
        client = question.client
        prompt, answer = self._ask_first(question, read)
        asked = [prompt]
        if answer.faults:
            current_bill().note_unusable(" ".join(answer.faults))
            if prompt.schema is not None and not looks_like_json(answer.text):
                prompt = self._make_prompt(question, is_json=False)
            else:
                prompt = prompts.ask_again(prompt, answer.text, answer.faults, is_cut_off=answer.is_cut_off)
            asked.append(prompt)
            answer = self._ask_once(client, prompt, read)
        if answer.malformed is None:
            return answer.result  # type: ignore[return-value] # there is one unless the answer is malformed
        current_bill().note_unusable(" ".join(answer.faults), is_last=True)
        usable = salvage(answer.malformed)
        if usable is not None:
            return usable
        for request in asked:
            client.reject(request, self.max_output_tokens)
        advice = advice_on_form(client.model)
        if answer.is_cut_off:
            advice = "Raise `max_output_tokens` in [tool.graphbus.llm], or choose another model."
        raise ModelError("GBE460", model=client.model, reason=" ".join(answer.faults), advice=advice)

    def _ask_first(self, question: _Question, read: Callable[[str], T]) -> tuple[ModelPrompt, _Answer[T]]:
        """Ask for JSON if the model takes a schema, else or if it refuses for text; return the prompt and the answer."""
        client = question.client
        if client.takes_schema:
            prompt = self._make_prompt(question, is_json=True)
            if not self._tokens_if_too_long(prompt):
                try:
                    return prompt, self._ask_once(client, prompt, read)
                except ModelError as error:
                    if error.code != "GBE459" or error.is_final:
                        raise
        prompt = self._make_prompt(question, is_json=False)
        tokens = self._tokens_if_too_long(prompt)
        if tokens:
            limit = (
                f"`max_prompt_tokens` allows {self.max_prompt_tokens}, besides {self.max_output_tokens} for the answer"
            )
            raise ModelError("GBE462", model=client.model, tokens=f"about {tokens}", limit=limit)
        return prompt, self._ask_once(client, prompt, read)

    def _tokens_if_too_long(self, prompt: ModelPrompt) -> int:
        """Return the estimated tokens of a prompt if they exceed `max_prompt_tokens`, else 0."""
        tokens = estimate_tokens(prompt.shared, prompt.own, prompt.task)
        return tokens if 0 < self.max_prompt_tokens < tokens else 0

    def _ask_once(self, client: LLMClient, prompt: ModelPrompt, read: Callable[[str], T]) -> _Answer[T]:
        """Ask once, and return the answer, usable or not.

        Raises:
            ModelError: GBE461, the model refuses; or an error of the client.
        """
        completion = client.complete(prompt, self.max_output_tokens)
        if completion.stop == "refusal":
            client.reject(prompt, self.max_output_tokens)
            raise ModelError("GBE461", model=client.model)
        if completion.stop == "length":
            fault = f"The answer was cut off at the limit of {self.max_output_tokens} tokens."
            return _Answer(completion.text, None, MalformedAnswer([fault]), is_cut_off=True)
        try:
            return _Answer(completion.text, read(completion.text))
        except MalformedAnswer as malformed:
            return _Answer(completion.text, None, malformed if prompt.schema is None else malformed.for_json())


def _make_evaluation_prompt(view: AgentView, *batch: TriedProposal, is_json: bool = False) -> ModelPrompt:
    """Return the prompt about proposals, as separate arguments because `_make_once` compares each by identity."""
    return prompts.ask_evaluations(view, batch, is_json=is_json)


def _count_bytes(prompt: ModelPrompt) -> int:
    """Return the bytes of a prompt and of its schema, which some servers count as input."""
    schema = len(json.encode(prompt.schema)) if prompt.schema is not None else 0
    return schema + sum(len(text.encode(errors="replace")) for text in (prompt.shared, prompt.own, prompt.task))


def _join_unique(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *second]))
