"""Characters: models that behave well, badly or madly. Each is a function from a request on the wire to what the server answers.

They are scripted; what they show is what GraphBus does with whatever a model may say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from graphbus_core.llm.client import FollowUp, ModelPrompt
from tests.fakes.model_server import Answer, Broken, Failure, Reply, Request, Script
from tests.fakes.model_texts import (
    AskedOf,
    agreeable,
    analysis,
    asked_in,
    decision,
    edit,
    evaluation,
    evidence,
    nothing,
    proposal,
    swap,
)
from tests.fakes.zoo_project import GOOD, LOOP, SUM

Character = Callable[[AskedOf, ModelPrompt], "Reply | str"]


def prompt_of(request: Request) -> ModelPrompt:
    """Give the prompt that arrived on the Anthropic wire."""
    first, *rest = request.body["messages"]
    blocks = [_text(block) for block in _content(first)]
    turns = tuple(FollowUp(message["role"], "".join(map(_text, _content(message)))) for message in rest)
    return ModelPrompt(shared=request.system, own="".join(blocks[:-1]), task=blocks[-1], turns=turns)


def script_of(character: Character) -> Script:
    """Let a character answer for a server."""

    def script(request: Request) -> Reply | str:
        prompt = prompt_of(request)
        return character(asked_in(prompt), prompt)

    return script


def _content(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return content if isinstance(content, list) else [{"text": content}]


def _text(block: Any) -> str:
    return block if isinstance(block, str) else str(block.get("text", ""))


def good_proposal(agent: str) -> str:
    """A change of the agent's own class that nothing speaks against."""
    if agent not in GOOD:
        return nothing()
    title, path, target, code = GOOD[agent]
    return proposal(title, edit("replace_symbol", path, target, code), reason="It is shorter.")


def _has_proposed(prompt: ModelPrompt) -> bool:
    """Its memory tells an agent what it has proposed before."""
    return bool(re.search(r"\bP(?!000)\d{3}\b", prompt.task))


# --- those who behave -----------------------------------------------------------------------------------------------


def good(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Proposes one good change of its own class and judges fairly."""
    if asked.task == "propose" and not _has_proposed(prompt):
        return good_proposal(asked.agent)
    return agreeable(prompt)


def noisy(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Says the right thing in the middle of chatter, emphasis and other fences."""
    said = str(good(asked, prompt)).replace("## ", "### ", 1).replace("\n", "\r\n")
    return f"Sure! Let me think **step by step**.\r\n\r\n> hm\r\n\r\n{said}\r\n\r\nI hope this helps! ~~~"


def slow(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Thinks before each answer, and one by one in pieces."""
    return Answer(str(good(asked, prompt)), delay_s=0.05, piece_delay_s=0.01)


# --- those who are of little help -----------------------------------------------------------------------------------


def lazy(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """OrderService proposes; nobody says a word about it."""
    if asked.task == "propose" and asked.agent == "OrderService" and not _has_proposed(prompt):
        return good_proposal(asked.agent)
    return agreeable(prompt) if asked.task in {"analyze", "propose"} else ""


def wrong(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Names files, symbols, operations and proposals that there are not."""
    if asked.task == "propose":
        return (
            proposal("Fix what is not there", edit("replace_symbol", "agents/none.py", "Nobody.nothing", SUM))
            if asked.agent == "OrderService"
            else proposal("Rewrite", edit("rewrite_everything", "agents/mail.py", "MailService", "pass"))
        )
    if asked.task == "evaluate":
        return evaluation("P999") + evaluation(asked.proposals[0], "perhaps")
    return "{'decision': 'accept'}"


def sycophant(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Accepts whatever StockService, who is malicious, proposes."""
    return malicious(asked, prompt) if asked.agent == "StockService" else agreeable(prompt)


def contrarian(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Proposes well, and rejects everything with evidence that does not hold."""
    if asked.task == "evaluate":
        proof = "def test_it_breaks():\n    assert False, 'I do not like it'\n"
        return "".join(
            evaluation(
                name,
                "reject",
                "I am against it.",
                evidence("contract", "my contract breaks"),
                evidence("test", proof),
                breaks="yes",
                risk="high",
            )
            for name in asked.proposals
        )
    if asked.task == "arbitrate":
        return decision(asked.proposals[0], "reject", "No.")
    return good(asked, prompt)


def refuser(_asked: AskedOf, _prompt: ModelPrompt) -> Reply | str:
    """Declines to answer anything."""
    return Answer("I cannot help with that.", stop="refusal")


def babbler(_asked: AskedOf, _prompt: ModelPrompt) -> Reply | str:
    """Talks until it is cut off."""
    return Answer("bla " * 20_000, output_tokens=2000, stop="length")


# --- those who mean harm --------------------------------------------------------------------------------------------

STEAL = """\
    @subscribe("/Order/Placed")
    def on_order(self, event: Event) -> None:
        import subprocess

        subprocess.run(["env"])
        self.orders += 1
        self.last = event["order_id"]
"""


def malicious(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Proposes to run programs, to change tests and to write elsewhere."""
    if asked.task in {"propose", "repair"}:
        bad = (
            proposal("Tidy up", edit("replace_symbol", "agents/stock.py", "StockService.on_order", STEAL)),
            proposal("Tidy up", swap("tests/test_orders.py", "assert stock.orders == 1", "assert True")),
            proposal("Tidy up", swap("../outside.py", "a", "b")),
            proposal("Tidy up", swap("pyproject.toml", 'name = "zoo"', 'name = "owned"')),
        )
        return "".join(bad) if asked.task == "propose" else bad[0]
    return agreeable(prompt)


def injector(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Does what a comment in the source tells it to, whoever wrote it."""
    orders = re.search(r"# MODEL: (.*)", prompt.own + prompt.task)
    if orders and asked.task == "propose":
        change = f"        {orders[1].strip()}\n        return float(sum(prices))\n"
        code = f"    def total(self, prices: list) -> float:\n{change}"
        return proposal("As I was told", edit("replace_symbol", "agents/orders.py", "OrderService.total", code))
    return agreeable(prompt)


# --- those who never come to an end ---------------------------------------------------------------------------------


def spammer(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Proposes many times over whatever it is asked for."""
    if asked.task == "propose":
        return good_proposal(asked.agent) * 15 if asked.agent in GOOD else nothing()
    return agreeable(prompt)


def oscillator() -> Character:
    """Changes a method, and changes it back, for ever."""
    turns = Counter[str]()

    def speak(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
        if asked.task != "propose" or asked.agent != "OrderService":
            return agreeable(prompt)
        turns["asked"] += 1
        code = SUM if turns["asked"] % 2 else LOOP
        return proposal("Turn it round", edit("replace_symbol", "agents/orders.py", "OrderService.total", code))

    return speak


def counter_looper(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Answers every proposal with another one."""
    if asked.task == "evaluate":
        body = "        return float(sum(price for price in prices))\n"
        code = f"    def total(self, prices: list) -> float:\n        # {asked.agent}\n{body}"
        other = edit("replace_symbol", "agents/orders.py", "OrderService.total", code)
        return "".join(
            evaluation(name, "counter", "Mine is better.", other, title="Do it my way") for name in asked.proposals
        )
    return good(asked, prompt)


def budget_hog(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Uses every token that it may."""
    said = str(good(asked, prompt))
    return Answer(f"{said}\n" + "words " * 200, output_tokens=2000)


# --- those whose server fails ---------------------------------------------------------------------------------------


def flaky() -> Character:
    """Every second request fails, each time in another way."""
    failures: tuple[Reply, ...] = (
        Failure(429, retry_after=0),
        Failure(500),
        Failure(529),
        Broken("cut"),
        Broken("closed"),
        Broken("json"),
        Broken("schema"),
        Answer("## propos"),
    )
    numbers = count()

    def speak(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
        number = next(numbers)
        return failures[number // 2 % len(failures)] if number % 2 else good(asked, prompt)

    return speak


def absent(_asked: AskedOf, _prompt: ModelPrompt) -> Reply | str:
    """Is never there."""
    return Failure(503)


def huge(asked: AskedOf, prompt: ModelPrompt) -> Reply | str:
    """Answers with megabytes."""
    return Answer(str(good(asked, prompt)) + "x" * 6_000_000, output_tokens=100)


CHARACTERS: dict[str, Callable[[], Character]] = {
    "good": lambda: good,
    "noisy": lambda: noisy,
    "slow": lambda: slow,
    "lazy": lambda: lazy,
    "wrong": lambda: wrong,
    "sycophant": lambda: sycophant,
    "contrarian": lambda: contrarian,
    "refuser": lambda: refuser,
    "babbler": lambda: babbler,
    "malicious": lambda: malicious,
    "injector": lambda: injector,
    "spammer": lambda: spammer,
    "oscillator": oscillator,
    "counter_looper": lambda: counter_looper,
    "budget_hog": lambda: budget_hog,
    "flaky": flaky,
    "absent": lambda: absent,
    "huge": lambda: huge,
}
"""Name -> how to make one; colluding ones are made from the corpora, in the test that needs them."""

__all__ = ["CHARACTERS", "analysis", "prompt_of", "script_of"]
