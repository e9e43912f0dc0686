"""A program that represents an agent and has every capability; `agent.py FAULT` breaks one requirement on purpose.

`FAULTS` names each fault with the requirement that it breaks. Only the standard library is used, as in any foreign program.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
CAPABILITIES = ["analyze", "propose", "repair", "evaluate", "arbitrate", "events"]
FAULTS = {
    "prints a greeting": "GBNP-001",
    "answers over two lines": "GBNP-001",
    "answers with a list": "GBNP-001",
    "answers with 2 MB": "GBNP-002",
    "answers in Latin-1": "GBNP-003",
    "answers with half of a surrogate pair": "GBNP-003",
    "answers with NaN": "GBNP-004",
    "answers with an integer of 90 bits": "GBNP-004",
    "writes a name twice": "GBNP-005",
    "nests 100 deep": "GBNP-006",
    "forgets jsonrpc": "GBNP-007",
    "sends a notification": "GBNP-008",
    "dies in the middle": "GBNP-012",
    "ends after hello": "GBNP-012",
    "answers twice": "GBNP-013",
    "answers with another id": "GBNP-014",
    "answers with the id as text": "GBNP-014",
    "answers with result and error": "GBNP-015",
    "answers with neither": "GBNP-015",
    "answers with an error without a code": "GBNP-016",
    "hangs": "GBNP-017",
    "answers an unknown method": "GBNP-018",
    "refuses unknown members": "GBNP-019",
    "speaks a later version": "GBNP-021",
    "speaks version true": "GBNP-021",
    "has another name": "GBNP-022",
    "has numbers as capabilities": "GBNP-023",
    "needs an analysis first": "GBNP-025",
    "has a number as its name": "GBNP-027",
    "analyzes with a text": "GBNP-030",
    "proposes a text": "GBNP-040",
    "proposes for another agent": "GBNP-041",
    "proposes for another round": "GBNP-042",
    "proposes too much": "GBNP-043",
    "proposes the same id twice": "GBNP-044",
    "proposes a counter": "GBNP-045",
    "changes a file outside": "GBNP-046",
    "changes a file with a backslash": "GBNP-046",
    "changes the file of another agent": "GBNP-047",
    "has a short digest": "GBNP-048",
    "repairs into nothing": "GBNP-050",
    "repairs under another id": "GBNP-051",
    "evaluates without a list": "GBNP-060",
    "evaluates what was not asked": "GBNP-061",
    "evaluates twice": "GBNP-062",
    "evaluates for another agent": "GBNP-063",
    "evaluates for another round": "GBNP-064",
    "abstains in words": "GBNP-065",
    "is too confident": "GBNP-066",
    "counters without a proposal": "GBNP-067",
    "accepts with a counter": "GBNP-067",
    "claims verified evidence": "GBNP-068",
    "calls itself the arbiter": "GBNP-068",
    "decides nothing": "GBNP-070",
    "defers as an arbiter": "GBNP-071",
    "decides about another proposal": "GBNP-072",
    "answers an event": "GBNP-080",
    "stays after bye": "GBNP-081",
    "ends with status 3": "GBNP-081",
    "stays without input": "GBNP-083",
    "says bye with null": "GBNP-084",
}
FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
state = {"name": "", "was_analyzed": False}


def hello(params: Message) -> Message:
    state["name"] = params["agent"]
    welcome: Message = {
        "protocol": 1,
        "agent": params["agent"],
        "capabilities": CAPABILITIES,
        "program": "complete 1.0",
    }
    wrong: dict[str, Message] = {
        "speaks a later version": {"protocol": 2},
        "speaks version true": {"protocol": True},
        "has another name": {"agent": "Somebody"},
        "has numbers as capabilities": {"capabilities": [1]},
        "has a number as its name": {"program": 7},
    }
    return welcome | wrong.get(FAULT, {})


def analyze(params: Message) -> Any:
    state["was_analyzed"] = True
    return "fine" if FAULT == "analyzes with a text" else {"responsibilities": ["To be complete."]}


def proposal_for(view: Message, name: str) -> Message:
    """Return a proposal that adds a method to the agent's class, broken as `FAULT` says."""
    agent, path = state["name"], (view["files"] or ["agents.py"])[0]
    code = f"def complete_{name}(self) -> str:\n    return {name!r}\n"
    change = {"file_path": path, "target": f"{agent}.complete_{name}", "change_type": "add", "operation": "add_symbol"}
    others = [each["path"] for each in view["neighbours"] if each["path"] not in view["files"]]
    wrong_change: dict[str, Message] = {
        "changes a file outside": {"file_path": "../other.py"},
        "changes a file with a backslash": {"file_path": "agents\\other.py"},
        "changes the file of another agent": {"file_path": [*others, "other.py"][0]},
        "has a short digest": {"base_sha256": "abc"},
    }
    wrong: dict[str, Message] = {
        "proposes for another agent": {"src": "Somebody"},
        "proposes for another round": {"round": view["round"] + 1},
        "proposes a counter": {"parent": "P001"},
    }
    return {
        "proposal_id": name,
        "round": view["round"],
        "src": agent,
        "intent": "complete",
        "title": "Add a method",
        "code_change": {**change, "new_code": code, **wrong_change.get(FAULT, {})},
        **wrong.get(FAULT, {}),
    }


def propose(params: Message) -> Message:
    view = params["view"]
    names = [f"draft{number}" for number in range(view["limit"] if view["definition"] else 0)]
    if FAULT == "proposes too much":
        names = [f"draft{number}" for number in range(view["limit"] + 1)]
    if FAULT == "proposes the same id twice":
        names = ["draft"] * view["limit"]
    if FAULT == "proposes a text":
        return {"proposals": ["Add a method"]}
    return {"proposals": [proposal_for(view, name) for name in names]}


def repair(params: Message) -> Message:
    if FAULT == "repairs into nothing":
        return {}
    if FAULT == "repairs under another id":
        return {"proposal": params["proposal"] | {"proposal_id": "P999"}}
    return {"proposal": params["proposal"]}


def vote_on(name: str, view: Message, decision: str) -> Message:
    """Return an evaluation, broken as `FAULT` says."""
    agent = state["name"]
    vote: Message = {"proposal_id": name, "evaluator": agent, "round": view["round"], "decision": decision}
    vote |= {"confidence": 0.5, "reasoning": "It is complete.", "impact_assessment": {"estimated_risk": "low"}}
    if decision == "counter":
        vote["counter_proposal"] = proposal_for(view, "counter") | {"parent": name}
    wrong: dict[str, Message] = {
        "evaluates for another round": {"round": view["round"] + 1},
        "abstains in words": {"decision": "abstain"},
        "is too confident": {"confidence": 1.5},
        "accepts with a counter": {
            "decision": "accept",
            "counter_proposal": proposal_for(view, "c") | {"parent": name},
        },
        "claims verified evidence": {"evidence": [{"kind": "contract", "text": "No.", "is_verified": True}]},
        "calls itself the arbiter": {"is_arbiter": True},
    }
    return vote | wrong.get(FAULT, {})


def evaluate(params: Message) -> Message:
    view, decisions = params["view"], ("accept", "reject", "counter", "defer")
    names = [trial["proposal"]["proposal_id"] for trial in params["trials"]]
    wrong: dict[str, Message] = {
        "evaluates what was not asked": {"proposal_id": "P998"},
        "evaluates for another agent": {"evaluator": "Somebody"},
        "counters without a proposal": {"decision": "counter", "counter_proposal": None},
    }
    votes = [vote_on(name, view, decisions[number % 4]) | wrong.get(FAULT, {}) for number, name in enumerate(names)]
    if FAULT == "evaluates without a list":
        return {"evaluations": {}}
    return {"evaluations": votes * 2 if FAULT == "evaluates twice" else votes}


def arbitrate(params: Message) -> Message:
    if FAULT == "decides nothing":
        return {"evaluation": None}
    about = "P998" if FAULT == "decides about another proposal" else params["trial"]["proposal"]["proposal_id"]
    decision = "defer" if FAULT == "defers as an arbiter" else "accept"
    return {"evaluation": vote_on(about, params["view"], decision)}


METHODS: dict[str, Callable[[Message], Any]] = {
    "agent/hello": hello,
    "agent/analyze": analyze,
    "agent/propose": propose,
    "agent/repair": repair,
    "agent/evaluate": evaluate,
    "agent/arbitrate": arbitrate,
    "agent/bye": lambda _params: None if FAULT == "says bye with null" else {},
}
KNOWN = {"view", "proposal", "report", "trials", "trial", "evaluations", "reason"}


def answer_to(message: Message) -> Message:
    """Return the answer to a request, with faults of the envelope."""
    method, answer = message["method"], {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params", {})
    is_question = method.startswith("agent/") and method not in ("agent/hello", "agent/bye")
    if method not in METHODS:
        if FAULT == "answers an unknown method":
            return answer | {"result": {}}
        code = {} if FAULT == "answers with an error without a code" else {"code": -32601}
        return answer | {"error": {**code, "message": f"there is no {method}"}}
    if FAULT == "refuses unknown members" and is_question and set(params) - KNOWN:
        return answer | {"error": {"code": -32602, "message": "unknown members"}}
    if FAULT == "needs an analysis first" and is_question and method != "agent/analyze" and not state["was_analyzed"]:
        return answer | {"error": {"code": 1, "message": "analyze first"}}
    answer["result"] = METHODS[method](params)
    wrong: dict[str, Message] = {
        "answers with another id": {"id": message["id"] + 1},
        "answers with the id as text": {"id": str(message["id"])},
        "answers with result and error": {"error": {"code": 1, "message": "no"}},
    }
    answer |= wrong.get(FAULT, {})
    if FAULT == "answers with neither":
        del answer["result"]
    if FAULT == "forgets jsonrpc":
        del answer["jsonrpc"]
    return answer


def as_lines(answer: Message) -> bytes:
    """Return the bytes of an answer, with faults of the text."""
    text = json.dumps(answer, ensure_ascii=False)
    inner = text[:-1]
    wrong = {
        "prints a greeting": f"Hello!\n{text}",
        "answers over two lines": json.dumps(answer, indent=1),
        "answers with a list": f"[{text}]",
        "answers with 2 MB": f'{inner}, "x": "{"y" * 2_000_000}"}}',
        "answers with half of a surrogate pair": f'{inner}, "x": "\\ud800"}}',
        "answers with NaN": f'{inner}, "x": NaN}}',
        "answers with an integer of 90 bits": f'{inner}, "x": {1 << 90}}}',
        "writes a name twice": f'{inner}, "jsonrpc": "2.0"}}',
        "nests 100 deep": f'{inner}, "x": {"[" * 100}{"]" * 100}}}',
        "answers twice": f"{text}\n{text}",
        "sends a notification": f'{{"jsonrpc": "2.0", "method": "agent/log", "params": {{}}}}\n{text}',
        "answers in Latin-1": f'{inner}, "x": "Größe"}}',
    }
    return f"{wrong.get(FAULT, text)}\n".encode("latin-1" if FAULT == "answers in Latin-1" else "utf-8")


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            if FAULT == "answers an event":
                sys.stdout.write('{"jsonrpc": "2.0", "id": null, "result": {}}\n')
                sys.stdout.flush()
            continue
        is_hello = message["method"] == "agent/hello"
        if FAULT == "hangs" and not is_hello:
            time.sleep(60)
        answer = as_lines(answer_to(message))
        if FAULT == "dies in the middle" and not is_hello:
            sys.stdout.buffer.write(answer[:20])
            sys.stdout.flush()
            sys.exit("it breaks")
        sys.stdout.buffer.write(answer)
        sys.stdout.flush()
        if FAULT == "ends after hello" and is_hello:
            sys.exit(0)
        if message["method"] == "agent/bye":
            if FAULT == "stays after bye":
                time.sleep(60)
            sys.exit(3 if FAULT == "ends with status 3" else 0)
    if FAULT == "stays without input":
        time.sleep(60)


if __name__ == "__main__":
    main()
