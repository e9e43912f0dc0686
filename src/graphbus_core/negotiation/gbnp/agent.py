"""An active agent that a program in any language represents.

The program is asked through `LLMClient`, as a model is: so its answers are recorded, and a replay, a resumed session and the lock
need no program. The prompt is a method and its parameters as JSON; the answer is the result as JSON, or `null` from a program
that does not have the method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from graphbus_core import __version__, strict_json
from graphbus_core.editing.sandboxes.process import Sandbox
from graphbus_core.errors import ModelError
from graphbus_core.llm.client import Completion, LLMClient, ModelPrompt, Progress
from graphbus_core.model.config import AgentProgram
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation
from graphbus_core.model.spending import Price
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.gbnp.answers import BreachError, read_result
from graphbus_core.negotiation.gbnp.conversation import Refusal
from graphbus_core.negotiation.gbnp.messages import (
    EVENT,
    HELLO,
    METHODS,
    SCHEMA_VERSION,
    VERSION,
    ArbitrationQuestion,
    EvaluationQuestion,
    Hello,
    Question,
    RepairQuestion,
    Role,
    trial_of,
    view_of,
)
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.rule_agent import RuleAgent

MOST_FAILURES = 3
"""A program is not asked again after this number of failed questions in a row."""
_MOST_EVENTS = 1000
"""The most events that wait for a program that is not asked meanwhile; later ones are dropped."""


def program_name(agent: str) -> str:
    """Return the name under which the answers of an agent's program are recorded; the command may change, or name folders."""
    return f"program:{agent}"


class ProgramClient(LLMClient):
    """Asks the program of one agent. It is started with the first question, and anew after it has failed.

    Args:
        agent: The name of the agent.
        role: What it is asked to do.
        settings: Its command and its limits.
        root: The project.
        find_sandbox: Returns the sandbox to start it in; None if none works here.
    """

    def __init__(
        self,
        agent: str,
        role: Role,
        settings: AgentProgram,
        root: Path,
        find_sandbox: Callable[[], Sandbox | None],
    ) -> None:
        self.model = program_name(agent)
        self.price: Price | None = Price(0.0, 0.0)
        self._agent = agent
        self._role: Role = role
        self._settings = settings
        self._root = root
        self._find_sandbox = find_sandbox
        # One thread for everything: the sandbox ends a program with the thread that has started it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="graphbus-program")
        self._program: Program | None = None
        self._events: list[dict[str, Any]] = []
        self._failures = 0

    def complete(self, prompt: ModelPrompt, max_output_tokens: int, progress: Progress | None = None) -> Completion:
        """Return the result of the method `prompt.shared` with the parameters `prompt.task`, as JSON.

        Raises:
            ModelError: GBE464, the program has broken a requirement; GBE465, it cannot be started; GBE466, it has failed too
                often; GBE467, it answers with an error.
        """
        result = self._thread.submit(self._answer, prompt.shared, prompt.task).result()
        return Completion(text=msgspec.json.encode(result).decode(), model=self.model, cost_usd=0.0)

    def _answer(self, method: str, params: str) -> Any:
        """Return the result of a method, and count failures; the program is ended after one."""
        if self._failures >= MOST_FAILURES:
            raise ModelError("GBE466", agent=self._agent, count=self._failures)
        self._failures += 1
        try:
            result = self._ask(method, msgspec.json.decode(params))
        except BreachError as breach:
            self._kill()
            if breach.side == "host":  # a question that is too long, or one of which nobody wants the answer any more
                self._failures -= 1
                reason = f"it cannot be asked, {breach.reason} ({breach.number})"
                raise ModelError("GBE467", agent=self._agent, task=method, reason=reason) from None
            raise _as_model_error(self._agent, breach) from None
        self._failures = 0
        return result

    def _ask(self, method: str, params: Any) -> Any:
        """Return the result of a method; None if the program does not have it."""
        program = self._program or self._join()
        self._tell_events(program)
        if METHODS[method].capability not in program.conversation.capabilities:
            return None
        answer = program.ask(method, params)
        if isinstance(answer, Refusal):
            self._failures = 0  # it has answered
            raise ModelError("GBE467", agent=self._agent, task=method, reason=answer.message[:300])
        return answer

    def _tell_events(self, program: Program) -> None:
        """Send the events since the last question, if the program wants them."""
        waiting, self._events = self._events, []
        for event in waiting if "events" in program.conversation.capabilities else ():
            program.tell(EVENT, event)

    def _join(self) -> Program:
        """Start the program, and say hello to it."""
        sandbox = self._find_sandbox()
        if sandbox is None:
            reason, advice = "no sandbox works here", 'Install bubblewrap, or set `isolation = "process"`.'
            raise ModelError("GBE465", program=self._settings.command[0], reason=reason, advice=advice)
        self._program = program = Program(self._settings, self._root, sandbox)
        program.ask(HELLO, hello_to(self._agent, self._role))
        return program

    def note_event(self, topic: str, payload: Any) -> None:
        """Let the program know an event of the session before its next question, if it wants events."""
        if len(self._events) < _MOST_EVENTS:
            self._events.append({"topic": topic, "payload": payload})

    def close(self) -> None:
        """Say farewell to the program, and end it. A question that it is asked now fails."""
        if self._program:
            self._program.stop()
        self._thread.submit(self._leave).result()
        self._thread.shutdown()

    def _leave(self) -> None:
        """Say farewell to the program, and kill what is left of it."""
        with suppress(BreachError):  # it matters to `graphbus conform` only
            if self._program:
                self._tell_events(self._program)
                self._program.leave("the session has ended")
        self._kill()

    def _kill(self) -> None:
        if self._program:
            self._program.kill()
        self._program = None


def _as_model_error(agent: str, breach: BreachError) -> ModelError:
    return ModelError("GBE464", agent=agent, requirement=breach.number, reason=breach.reason, text=breach.text)


def hello_to(agent: str, role: Role) -> Hello:
    """Return the parameters of the first request to a program."""
    host = f"graphbus {__version__}"
    return Hello(protocol=VERSION, schema=SCHEMA_VERSION, host=host, agent=agent, role=role)


class ForeignAgent:
    """An active agent that asks a program. `ActiveAgent` describes its methods.

    Every question raises ModelError if there is no answer; see `ProgramClient.complete`. A method that the program does not have
    is answered as by an agent with nothing to say.

    Args:
        name: The name of the agent.
        client: The program, with its answers recorded, or only the record.
    """

    def __init__(self, name: str, client: LLMClient, *, is_arbiter: bool = False) -> None:
        self.name = name
        self.is_arbiter = is_arbiter
        self._client = client

    def analyze(self, view: AgentView) -> Analysis:
        """Return the analysis of the program; that of the rules if it makes none."""
        answer = self._ask("agent/analyze", Question(view=view_of(view)))
        return answer if answer is not None else RuleAgent(self.name).analyze(view)

    def propose(self, view: AgentView) -> Sequence[Proposal]:
        """Return the proposals of the program."""
        answer = self._ask("agent/propose", Question(view=view_of(view)))
        return answer.proposals if answer else ()

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Return the repaired proposal of the program; None if it gives up."""
        answer = self._ask("agent/repair", RepairQuestion(view=view_of(view), proposal=proposal, report=report))
        return answer.proposal if answer else None

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Sequence[ProposalEvaluation]:
        """Return the votes of the program."""
        question = EvaluationQuestion(view=view_of(view), trials=tuple(map(trial_of, trials)))
        answer = self._ask("agent/evaluate", question)
        return answer.evaluations if answer else ()

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Return the decision of the program.

        Raises:
            ModelError: GBE467, it does not have this method; or as `ProgramClient.complete`.
        """
        seen, asked = view_of(view), trial_of(trial)
        question = ArbitrationQuestion(view=seen, trial=asked, evaluations=tuple(evaluations), reason=trial.dispute)
        answer = self._ask("agent/arbitrate", question)
        if answer is None:
            reason = "it is not among its capabilities"
            raise ModelError("GBE467", agent=self.name, task="agent/arbitrate", reason=reason)
        decision: ProposalEvaluation = answer.evaluation
        return replace(decision, is_arbiter=True)

    def _ask(self, method: str, params: msgspec.Struct) -> Any:
        """Return the result as an instance of its class; None if the program does not have the method.

        It is checked here again: what is replayed comes from a file.
        """
        task = msgspec.json.encode(params)
        answer = self._client.complete(ModelPrompt(shared=method, task=task.decode()), 0)
        result = strict_json.loads(answer.text)
        if result is None:
            return None
        try:
            return read_result(method, msgspec.json.decode(task), result)
        except BreachError as breach:
            raise _as_model_error(self.name, breach) from None
