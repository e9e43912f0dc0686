"""`graphbus conform`: plays conversations with a program, and gives a verdict on each requirement that binds programs.

Each scenario is one start of the program. The conversation notes which requirements an answer has put to the test, so that what
was never tested is not called passed. The random scenarios depend on the seed only.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.negotiation.agents import AgentView, TriedProposal
from graphbus_core.negotiation.gbnp.agent import hello_to
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conversation import Refusal
from graphbus_core.negotiation.gbnp.messages import (
    EVENT,
    HELLO,
    METHODS,
    VERSION,
    Role,
    trial_of,
    view_of,
)
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS

Verdict = Literal["pass", "fail", "not applicable", "never exercised"]
_MOST_SILENCES = 3
"""After this number of scenarios without an answer in time, or without a welcome, no further one is played."""
_LARGE_BYTES = 900_000
_ROUND_TRIPS = 50
_TEXTS = (
    "",
    "plain",
    'quotes " and \\ backslashes',
    "two\nlines\ttab",
    "\u0000\u0007\u001b[31m",
    "Größe, 価格, 🚌",
    "\u2028\u2029\ufeff",
    "</script>",
    "[BREAK]",
)
"""Texts that programs have misread before."""


class Failure(NamedTuple):
    """What a program has done wrong: the requirement, the scenario, the reason, and the last lines of both sides."""

    requirement: str
    scenario: str
    reason: str
    asked: str
    answered: str


class Conformance(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run.

    Attributes:
        agent: The name that the program was given.
        role: What it was asked to do.
        program: What it says that it is.
        capabilities: What it says that it can do.
        seed: The seed of the random scenarios.
        scenarios: How many were played.
        verdicts: Requirement -> verdict.
        failures: One for each scenario in which a requirement was broken.
        join_ms: The time from its start to its first answer, the median of all starts; None without an answer.
        round_trip_ms: The median time of an answer to a small question; None if it was not measured.
    """

    agent: str
    role: Role
    program: str
    capabilities: tuple[str, ...]
    seed: int
    scenarios: int
    verdicts: dict[str, Verdict]
    failures: tuple[Failure, ...]
    join_ms: float | None
    round_trip_ms: float | None

    @property
    def is_conforming(self) -> bool:
        """True if no requirement was broken."""
        return not self.failures


NoteLine = Callable[[Literal["host", "program"], bytes], object]


class Kit:
    """Plays scenarios with a program.

    Args:
        agent: The name of the agent.
        role: What the program is asked to do.
        sample: What the agent sees, and a proposal to judge; the questions are made from them.
        start: Starts the program; it is given a function to call with each line.
        note_line: Called with the scenario, who speaks, and each line.
    """

    def __init__(
        self,
        agent: str,
        role: Role,
        sample: tuple[AgentView, TriedProposal],
        start: Callable[[NoteLine], Program],
        *,
        note_line: Callable[[str, str, bytes], object] = lambda _scenario, _side, _line: None,
    ) -> None:
        self.agent = agent
        self.role: Role = role
        self._start = start
        self._note_line = note_line
        self.view: dict[str, Any] = _plain(view_of(sample[0])) | {"agent": agent, "round": 1, "limit": 2}
        self.trial: dict[str, Any] = _plain(trial_of(sample[1]))
        self.joins_ms: list[float] = []
        self.round_trips_ms: list[float] = []
        self.exercised: set[str] = set()
        self.failures: list[Failure] = []
        self.capabilities: tuple[str, ...] = ()
        self.program = ""

    def run(self, seed: int, examples: int, on_scenario: Callable[[str], object] = lambda _name: None) -> Conformance:
        """Play all scenarios, and return the verdicts.

        Args:
            seed: Chooses the random conversations.
            examples: How many of them are played.
            on_scenario: Called with the name of each scenario before it is played.

        Raises:
            ModelError: GBE465, the program cannot be started.
        """
        played = 0
        for name, play in self._scenarios(seed, examples):
            on_scenario(name)
            played += 1
            self._play(name, play)
            silences = sum(each.requirement in ("GBNP-017", "GBNP-083") for each in self.failures)
            if max(silences, played - len(self.joins_ms)) >= _MOST_SILENCES:
                break
        return Conformance(
            agent=self.agent,
            role=self.role,
            program=self.program,
            capabilities=self.capabilities,
            seed=seed,
            scenarios=played,
            verdicts=self._give_verdicts(),
            failures=tuple(self.failures),
            join_ms=_median(self.joins_ms),
            round_trip_ms=_median(self.round_trips_ms),
        )

    def _give_verdicts(self) -> dict[str, Verdict]:
        """Return the verdict on each requirement that binds programs."""
        broken = {failure.requirement for failure in self.failures}
        found: dict[str, Verdict] = {}
        for number, requirement in REQUIREMENTS.items():
            if requirement.side != "host":
                is_needed = not requirement.needs or requirement.needs in self.capabilities
                unproven: Verdict = "never exercised" if is_needed else "not applicable"
                found[number] = "pass" if number in self.exercised else unproven
                found[number] = "fail" if number in broken else found[number]
        return found

    def _play(self, name: str, play: Callable[[Program], object]) -> None:
        """Play one scenario with a new start of the program, and note what it has proven or broken."""
        last = {"host": b"", "program": b""}

        def note_line(side: Literal["host", "program"], line: bytes) -> None:
            last[side] = line
            self._note_line(name, side, line)

        start_s = perf_counter()
        program = self._start(note_line)
        try:
            if play is not _newer_host:
                program.ask(HELLO, hello_to(self.agent, self.role))
                self.joins_ms.append((perf_counter() - start_s) * 1e3)
            if program.conversation.welcome:
                self.capabilities = program.conversation.welcome.capabilities
                self.program = program.conversation.welcome.program
            play(program)
        except BreachError as breach:
            asked, answered = (_shorten(last[side]) for side in ("host", "program"))
            self.failures.append(Failure(breach.number, name, breach.reason, asked, answered))
        finally:
            self.exercised |= program.conversation.exercised
            program.kill()

    # --- scenarios ---

    def _scenarios(self, seed: int, examples: int) -> Iterator[tuple[str, Callable[[Program], object]]]:
        """Yield name and conversation of each scenario. The later ones depend on what the program said in the first."""
        yield "hello and bye", _leave
        yield "hello to a newer host", _newer_host
        yield "the input ends without a bye", Program.end_input
        yield "a session", self._session
        for method in self._questions():
            yield f"{method} comes first", partial(self._ask_once, method)
            yield f"{method} with unknown members", partial(self._ask_once, method, is_wider=True)
        yield "an unknown method", self._ask_unknown
        yield "a change that removes the class", self._without_class
        yield "a question of 900 kB", self._large
        yield "JSON in other words", self._rewritten
        yield "many small questions", self._many
        for number in range(examples):
            source = random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable, no secret
            yield f"random conversation {number}", partial(self._random, source)

    def _questions(self) -> dict[str, dict[str, Any]]:
        """Return method -> parameters of one question of each kind that the program answers."""
        view, trial = self.view, self.trial
        other = trial["proposal"] | {"proposal_id": "P002"}
        report = trial["report"] | {"proposal_id": "P001", "passed": False}
        failed = {"rung": "G3", "status": "failed", "code": "G3.import", "message": "It cannot be imported."}
        change = trial["proposal"]["code_change"] | {
            "target": f"{self.agent}._name_in_log",
            "file_path": view["files"][0],
        }
        own = trial["proposal"] | {"src": self.agent, "dst": None, "affects": [], "code_change": change}
        vote = {"proposal_id": "P001", "evaluator": "Other", "round": 1, "decision": "reject", "reasoning": "No."}
        known = {
            "agent/analyze": {"view": view | {"round": 0, "limit": 0, "analysis": None}},
            "agent/propose": {"view": view},
            "agent/repair": {"view": view, "proposal": own, "report": report | {"rungs": [failed]}},
            "agent/evaluate": {"view": view, "trials": [trial, trial | {"proposal": other}]},
            "agent/arbitrate": {"view": view, "trial": trial, "evaluations": [vote], "reason": "one vote each"},
        }
        return {name: params for name, params in known.items() if METHODS[name].capability in self.capabilities}

    def _session(self, program: Program) -> None:
        """Analyze, propose, repair what was proposed, vote, decide, hear events, and leave."""
        questions = self._questions()
        for method, params in questions.items():
            self._tell(program, "/Negotiation/Round", {"round": 1})
            answer = program.ask(method, params)
            if method == "agent/propose" and not isinstance(answer, Refusal) and "repair" in self.capabilities:
                for proposal in answer.proposals:
                    asked = questions["agent/repair"] | {"proposal": _plain(proposal)}
                    program.ask("agent/repair", asked)
        self._tell(program, "/Negotiation/Finished", {})
        _leave(program)

    def _tell(self, program: Program, topic: str, payload: Mapping[str, Any]) -> None:
        if "events" in self.capabilities:
            program.tell(EVENT, {"topic": topic, "payload": payload})

    def _ask_once(self, method: str, program: Program, *, is_wider: bool = False) -> None:
        """Ask one question; with `is_wider` it has members that a later version may have."""
        params = self._questions().get(method)  # none if the program says something else about itself at each start
        if params and is_wider:
            params = {"x_later": {"a": [1]}, **params, "view": params["view"] | {"x_later": None}}
        if params:
            program.ask(method, params)
        _leave(program)

    def _ask_unknown(self, program: Program) -> None:
        program.ask("agent/x_later", {"view": self.view})
        for method, params in self._questions().items():
            program.ask(method, params)
        _leave(program)

    def _without_class(self, program: Program) -> None:
        """Ask an agent whose class is gone, that has no neighbours and may propose nothing."""
        nothing: dict[str, Any] = {
            "definition": None,
            "source": None,
            "files": [],
            "neighbours": [],
            "findings": [],
            "limit": 0,
        }
        others = {name: params for name, params in self._questions().items() if name != "agent/repair"}
        for method, params in others.items():
            shorter = params | {"view": params["view"] | nothing} | ({"trials": []} if "trials" in params else {})
            program.ask(method, shorter)
        _leave(program)

    def _large(self, program: Program) -> None:
        for method, params in self._questions().items():
            filler = "x" * (_LARGE_BYTES - len(msgspec.json.encode(params)))
            program.ask(method, params | {"view": params["view"] | {"intent": filler}})
        _leave(program)

    def _rewritten(self, program: Program) -> None:
        """Ask with spaces between the tokens, escapes for all letters beyond ASCII, and members in another order."""
        number = 1
        for method, params in self._questions().items():
            number += 7
            view = dict(reversed((params["view"] | {"intent": "Größe, 価格, 🚌"}).items()))
            message = {"params": params | {"view": view}, "method": method, "id": number, "jsonrpc": "2.0"}
            line = json.dumps(message, separators=(" , ", " : ")).encode() + b"\n"
            program.exchange(line)
        _leave(program)

    def _many(self, program: Program) -> None:
        """Ask quickly one after another; the time of each answer is measured."""
        questions = list(self._questions().items())
        for number in range(_ROUND_TRIPS if questions else 0):
            start_s = perf_counter()
            program.ask(*questions[number % len(questions)])
            self.round_trips_ms.append((perf_counter() - start_s) * 1e3)
        _leave(program)

    def _random(self, source: random.Random, program: Program) -> None:
        """Ask in random order, with random texts, rounds, limits and names."""
        questions = list(self._questions().items())
        for _ in range(source.randint(1, 6) if questions else 0):
            method, params = source.choice(questions)
            round_, view = source.randint(1, 99), dict(params["view"])
            view |= {"round": round_, "limit": source.randint(0, 3), "intent": source.choice(_TEXTS)}
            view |= {"goals": source.sample(_TEXTS, source.randint(0, 3))}
            for name in ("neighbours", "findings", "conflicts"):
                view[name] = [each for each in view[name] if source.random() < 0.5]
            changed = params | {"view": view}
            if "trials" in params:
                names = source.sample(range(1, 200), source.randint(0, 4))
                changed["trials"] = [self._random_trial(source, f"P{name:03}", round_) for name in names]
            elif "trial" in params:
                changed["trial"] = self._random_trial(source, f"P{source.randint(1, 200):03}", round_)
            elif "proposal" in params:
                changed["proposal"] = params["proposal"] | {
                    "proposal_id": f"P{source.randint(1, 200):03}",
                    "round": round_,
                }
            self._tell(program, source.choice(("/Negotiation/Round", "/x_later")), {"round": round_})
            program.ask(method, changed)
        _leave(program)

    def _random_trial(self, source: random.Random, name: str, round_: int) -> dict[str, Any]:
        texts = {field: source.choice(_TEXTS) for field in ("title", "reason", "intent")}
        proposal = self.trial["proposal"] | texts | {"proposal_id": name, "round": round_}
        return self.trial | {"proposal": proposal, "no_longer": source.sample(_TEXTS, 2)}


def _leave(program: Program) -> None:
    program.leave("the conversation is over")


def _newer_host(program: Program) -> None:
    """Say hello as a host that speaks a later version, too."""
    hello = _plain(hello_to("Stock", "member"))
    program.ask(HELLO, hello | {"protocol": VERSION + 6, "schema": "7.0"})
    _leave(program)


def _plain(value: object) -> Any:
    """Return a struct as plain JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _median(found: Iterable[float]) -> float | None:
    ordered = sorted(found)
    return round(ordered[len(ordered) // 2], 3) if ordered else None


def _shorten(line: bytes) -> str:
    """Return a line as text, cut off in the middle if it is long."""
    text = line.decode(errors="replace").rstrip("\n")
    return text if len(text) <= 400 else f"{text[:250]} ... {text[-150:]}"
