"""Answers of models as text, and what a prompt asks of whom: for models that are functions.

def speak(prompt):
    asked = asked_in(prompt)
    if asked.task == "evaluate":
        return "".join(evaluation(name, "accept") for name in asked.proposals)
    return nothing()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from graphbus_core.llm.client import Clients, Completion, LLMClient, ModelPrompt, ScriptedClient
from graphbus_core.negotiation.answer_format import fence_code

Speak = Callable[[ModelPrompt], str | Completion]


class AskedOf(NamedTuple):
    """Who is asked for what.

    Attributes:
        task: `"analyze"`, `"propose"`, `"repair"`, `"evaluate"` or `"arbitrate"`.
        agent: The name of the class.
        proposals: The numbers that the task names, in its order.
        path: The file of the agent's class.
        attempt: 1, or 2 when a malformed answer was sent back.
    """

    task: str
    agent: str
    proposals: tuple[str, ...]
    path: str
    attempt: int


def asked_in(prompt: ModelPrompt) -> AskedOf:
    """Read from a prompt which agent is asked for what."""
    task = re.match(r"# Your task: (\w+) ?(.*)", prompt.task)
    agent = re.search(r"^You speak for the class (\w+)(?:\. Its file:\n\n<<data .*\n(.+)\n)?", prompt.own, re.MULTILINE)
    if not task or not agent:
        raise AssertionError(f"this is no prompt of ours: {prompt.task[:80]!r}")
    proposals = tuple(re.findall(r"P\d{3,}", task[2]))
    return AskedOf(task[1], agent[1], proposals, agent[2] or "", 1 + len(prompt.turns) // 2)


def data_in(prompt: ModelPrompt, what: str) -> str:
    """Give the first piece of data of a kind in a prompt, e.g. `"source of your class"` or `"diff of P001"`."""
    whole = "\n".join([prompt.shared, prompt.own, prompt.task])
    found = re.search(rf"^<<data (\w+): {re.escape(what)}>>\n(.*?)^<<end \1>>$", whole, re.MULTILINE | re.DOTALL)
    if not found:
        raise AssertionError(f"there is no data {what!r} in this prompt")
    return found[2]


def without_data(text: str) -> str:
    """Give a part of a prompt without the material of the project: our own words, and what the person wants."""
    return re.sub(r"^<<data (\w+): .*?^<<end \1>>$", "", text, flags=re.MULTILINE | re.DOTALL)


def analysis(*responsibilities: str, dependency: Sequence[str] = (), issue: Sequence[str] = ()) -> str:
    """Write `## analysis`."""
    lines = [f"responsibility: {text}" for text in responsibilities or ("does its work",)]
    lines += [f"dependency: {name}" for name in dependency]
    lines += [f"issue: {text}" for text in issue]
    return "## analysis\n" + "".join(f"{line}\n" for line in lines)


def proposal(
    title: str,
    *edits: str,
    intent: str = "refactor",
    reason: str = "It is better so.",
    dst: str = "",
    affects: Sequence[str] = (),
    depends_on: Sequence[str] = (),
    priority: int = 0,
) -> str:
    """Write `## proposal` with its edits."""
    lines = [f"title: {title}", f"intent: {intent}", f"reason: {reason}"]
    lines += [f"dst: {dst}"] if dst else []
    lines += [f"affects: {', '.join(affects)}"] if affects else []
    lines += [f"priority: {priority}"] if priority else []
    lines += [f"depends on: {', '.join(depends_on)}"] if depends_on else []
    return "## proposal\n" + "".join(f"{line}\n" for line in lines) + "".join(edits)


def edit(operation: str, path: str, target: str = "", code: str = "") -> str:
    """Write `### edit` of a symbol or an import."""
    heading = f"### edit {operation} {path} {target}".rstrip()
    return f"{heading}\n" + (fence_code("python", code) if code else "")


def swap(path: str, old: str, new: str, target: str = "") -> str:
    """Write `### edit search_replace`."""
    heading = f"### edit search_replace {path} {target}".rstrip()
    return f"{heading}\n{fence_code('old', old)}{fence_code('new', new)}"


def diff_edit(path: str, diff: str) -> str:
    """Write an edit as a diff, which models are told not to do."""
    return f"### edit search_replace {path}\n{fence_code('diff', diff)}"


def nothing() -> str:
    """Write `## nothing`."""
    return "## nothing\n"


def evaluation(
    proposal_id: str,
    decision: str = "accept",
    reasoning: str = "Nothing breaks on my side.",
    *parts: str,
    confidence: float = 0.9,
    concern: Sequence[str] = (),
    title: str = "",
    reason: str = "",
    breaks: str = "no",
    risk: str = "low",
) -> str:
    """Write `## evaluation`; `parts` are evidence, and edits of a counter-proposal."""
    lines = [f"decision: {decision}", f"confidence: {confidence}", f"reasoning: {reasoning}"]
    lines += [f"risk: {risk}", f"breaks: {breaks}"]
    lines += [f"concern: {text}" for text in concern]
    lines += [f"title: {title}"] if title else []
    lines += [f"reason: {reason}"] if reason else []
    return f"## evaluation {proposal_id}\n" + "".join(f"{line}\n" for line in lines) + "".join(parts)


def evidence(kind: str, text: str) -> str:
    """Write `### evidence`."""
    return f"### evidence {kind}\n{fence_code('python', text)}"


def decision(proposal_id: str, word: str = "accept", reasoning: str = "It is right.") -> str:
    """Write `## decision`."""
    return f"## decision {proposal_id}\ndecision: {word}\nreasoning: {reasoning}\n"


def agreeable(prompt: ModelPrompt) -> str:
    """Answer every question with the least: proposes nothing and accepts everything."""
    asked = asked_in(prompt)
    if asked.task == "analyze":
        return analysis()
    if asked.task == "evaluate":
        return "".join(evaluation(name) for name in asked.proposals)
    return decision(asked.proposals[0]) if asked.task == "arbitrate" else nothing()


def clients_of(speak: Speak) -> Clients:
    """One scripted model in all roles."""
    client: LLMClient = ScriptedClient(speak)
    return Clients(client, client, client)


class Recorder:
    """A model that keeps every prompt and answers with a function."""

    def __init__(self, speak: Speak = agreeable) -> None:
        self.prompts: list[ModelPrompt] = []
        self.answers: list[str | Completion] = []
        self._speak = speak

    def __call__(self, prompt: ModelPrompt) -> str | Completion:
        self.prompts.append(prompt)
        self.answers.append(self._speak(prompt))
        return self.answers[-1]

    def of(self, task: str, agent: str = "") -> list[ModelPrompt]:
        """The prompts of one task, to one agent if it is named."""
        asked = [(asked_in(prompt), prompt) for prompt in self.prompts]
        return [prompt for one, prompt in asked if one.task == task and agent in {"", one.agent}]
