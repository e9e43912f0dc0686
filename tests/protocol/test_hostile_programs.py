"""Programs that misuse their pipes, their processes or the machine: each is refused with a number, and nothing of it is left.

A program here has few lines of its own; `PRELUDE` is before them. They run in the sandbox, as in a negotiation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.editing.sandboxes.process import ProcessSandbox
from graphbus_core.model.config import AgentProgram, ResolvedBuild
from graphbus_core.model.messages import Event
from graphbus_core.negotiation.gbnp.agent import hello_to
from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.messages import trial_of, view_of
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.sample_question import sample_question_for
from tests.patience import PATIENCE_S
from tests.protocol.test_sessions import PERL, failures_of, negotiate, shop

__all__ = ["shop"]  # a fixture

pytestmark = pytest.mark.slow
PRELUDE = """
import json, os, signal, sys, time
out = os.fdopen(1, "wb", 0)
def read():
    # Return the next request; None at the end.
    for line in iter(sys.stdin.buffer.readline, b""):
        if "id" in (message := json.loads(line)):
            return message
def result(asked):
    params = asked["params"]
    if asked["method"] == "agent/hello":
        return {"protocol": 1, "agent": params["agent"], "capabilities": ["evaluate", "events"]}
    votes = [{"proposal_id": each["proposal"]["proposal_id"], "evaluator": params["view"]["agent"],
              "round": params["view"]["round"], "decision": "accept"} for each in params.get("trials", [])]
    return {"evaluations": votes}
def text(asked, **more):
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result(asked), **more}, ensure_ascii=False).encode()
def serve(send=lambda asked: out.write(text(asked) + b"\\n")):
    while asked := read():
        send(asked)
        if asked["method"] == "agent/bye":
            return
def hello():
    out.write(text(read()) + b"\\n")
def flood(descriptor, piece):
    while True:
        os.write(descriptor, piece * 10_000)
"""
SPLIT = """
def send(asked):
    whole = text(asked, x="ü") + b"\\n"
    at = whole.index(b"\\xc3") + 1
    out.write(whole[:at]); time.sleep(0.1); out.write(whole[at:])
serve(send)
"""
PROPOSER = """
def result(asked):
    params = asked["params"]
    if asked["method"] == "agent/hello":
        return {"protocol": 1, "agent": params["agent"], "capabilities": ["propose"]}
    if asked["method"] == "agent/bye" or params["view"]["history"]:
        return {"proposals": []}
    source = params["view"]["source"]
    method = next(each for each in source["symbols"] if each["target"] == "Orders.place")
    change = {"file_path": source["file_path"], "target": "Orders.place", "change_type": "modify",
              "old_code": method["text"], "new_code": method["text"] + "        return None\\n",
              "base_sha256": method["sha256"], **%r}
    return {"proposals": [{"proposal_id": "a", "round": params["view"]["round"], "src": "Orders", "dst": "Nobody",
                           "intent": "x", "title": "T", "code_change": change}]}
serve()
"""
RIGHT = {
    "answers in two writes, in the middle of a letter": SPLIT,
    "ends its lines with CR and LF": 'serve(lambda asked: out.write(text(asked) + b"\\r\\n"))',
    "leaves a child that holds its output": "if os.fork(): serve()\nelse: time.sleep(600)",
    "leaves a daemon": "if os.fork(): serve()\nelse: os.setsid(); os.closerange(0, 3); time.sleep(600)",
    "logs a megabyte": "hello(); asked = read(); os.write(2, b'x' * 1_000_000); out.write(text(asked) + b'\\n'); serve()",
    "answers with exactly 1 MiB": """
hello(); asked = read(); free = (1 << 20) - 1 - len(text(asked, x=""))
out.write(text(asked, x="y" * free) + b"\\n"); serve()
""",
}
WRONG = {
    "ends without a line end": ("001", "hello(); out.write(text(read()))"),
    "ends hello without a line end": ("001", "out.write(text(read()))"),
    "prints an empty line after each answer": ("001", 'serve(lambda asked: out.write(text(asked) + b"\\n\\n"))'),
    "prints a banner": ("001", 'out.write(b"MyAgent v1 is ready\\n"); serve()'),
    "prints a prompt": ("001", 'out.write(b"> "); serve()'),
    "answers with headers": ("001", 'serve(lambda asked: out.write(b"Content-Length: 9\\r\\n\\r\\n" + text(asked)))'),
    "floods its output with lines": ("001", "hello(); read(); flood(1, b'log\\n')"),
    "floods its output without a line end": ("002", "hello(); read(); flood(1, b'xxxx')"),
    "answers with 20 MB": ("002", 'hello(); out.write(text(read(), x="y" * 20_000_000) + b"\\n"); serve()'),
    "answers in UTF-16": ("003", 'serve(lambda asked: out.write(text(asked).decode().encode("utf-16") + b"\\n"))'),
    "ends in the middle of an answer": ("012", "hello(); out.write(text(read())[:20])"),
    "ends after each answer": ("012", "hello(); asked = read(); out.write(text(asked) + b'\\n')"),
    "ends at once with status 0": ("012", ""),
    "raises": ("012", 'hello(); read(); raise KeyError("x")'),
    "crashes": ("012", "hello(); read(); os.kill(os.getpid(), signal.SIGSEGV)"),
    "dies while a child holds its output": ("012", "hello(); read()\nif os.fork(): os._exit(0)\ntime.sleep(600)"),
    "floods its log": ("012", "hello(); read(); flood(2, b'log\\n')"),
    "fills the disk": (
        "012",
        "hello(); read()\nfor n in range(100_000): open(str(n), 'wb').write(b'x' * 1_000_000)",
    ),
    "fills the memory": ("012", "hello(); read(); held = []\nwhile True: held.append(b'x' * 50_000_000)"),
    "fills the memory with children": (
        "012",
        "hello(); read()\nfor n in range(20): os.fork() or (b'x' * (n + 1) * 20_000_000, time.sleep(600))\ntime.sleep(600)",
    ),
    "answers before it was asked": (
        "013",
        'out.write(text(read()) + b\'\\n\' + b\'{"jsonrpc":"2.0","id":2,"result":{"evaluations":[]}}\\n\'); serve()',
    ),
    "answers before it has read the question": (
        "013",
        "hello(); [0 for _ in iter(lambda: os.read(0, 1), b'\\n')]; os.read(0, 9); "
        'out.write(b\'{"jsonrpc":"2.0","id":2,"result":{"evaluations":[]}}\\n\'); time.sleep(600)',
    ),
    "answers bye twice": (
        "013",
        "serve(lambda asked: out.write((text(asked) + b'\\n') * (1 + (asked['method'] == 'agent/bye'))))",
    ),
    "answers bye twice, the second time in two writes": (
        "013",
        'serve(); t = b\'{"jsonrpc":"2.0","id":4,"result":{}}\\n\'; out.write(t[:9]); time.sleep(0.1); out.write(t[9:])',
    ),
    "stops itself": ("017", "hello(); read(); os.kill(os.getpid(), signal.SIGSTOP)"),
    "answers a byte a second": ("017", "hello()\nfor byte in text(read()): out.write(bytes([byte])); time.sleep(1)"),
    "waits without a line end": ("001", "hello(); out.write(text(read())); time.sleep(600)"),
    "ends its lines with CR": ("001", "hello(); out.write(text(read()) + b'\\r'); time.sleep(600)"),
    "never reads": ("017", "hello(); time.sleep(600)"),
    "closes its input": ("017", "hello(); os.close(0); time.sleep(600)"),
    "starts children without end": ("017", "hello(); read()\nwhile True:\n try: os.fork()\n except OSError: pass"),
    "is aborted after bye": ("081", "serve(); os.abort()"),
    "ignores SIGTERM and stays": ("081", "signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(); time.sleep(600)"),
}
SILENT = {name for name, (number, code) in WRONG.items() if number == "017" or (number == "001" and "600" in code)}
LARGE = {"never reads", "answers before it has read the question"}
"""They are asked more than a pipe holds."""


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = str(tmp_path_factory.mktemp("project"))
    with sample_question_for(ResolvedBuild(root=root, paths=(root,)), "Stock") as sample:
        params = {"view": view_of(sample.view), "trials": [trial_of(sample.trial)]}
        found = msgspec.json.decode(msgspec.json.encode(params))
    return {**found, "view": found["view"] | {"agent": "Stock", "round": 1}}


def number_for(root: Path, code: str, question: Any, sandbox: Any, timeout_s: float) -> str:
    """Return the number of the requirement that a program breaks; empty if it breaks none."""
    (root / "program.py").write_text(PRELUDE + code)
    settings = AgentProgram(command=(sys.executable, "program.py"), timeout_s=timeout_s)
    program = Program(settings, root, sandbox, end_s=2.0 if "600" in code else PATIENCE_S)
    try:
        program.ask("agent/hello", hello_to("Stock", "member"))
        for _ in range(2):
            program.tell("session/event", {"topic": "/Negotiation/Round", "payload": {}})
            program.ask("agent/evaluate", question)
        program.leave("the test is over")
    except BreachError as breach:
        if (
            breach.number == "GBNP-017" and program.conversation.welcome is None
        ):  # the machine is too busy for the limit
            return number_for(root, code, question, sandbox, 2 * timeout_s)
        return breach.number.removeprefix("GBNP-") if breach.side == "program" else "the host"
    finally:
        program.kill()
        assert not list(running(b"program.py"))
    return ""


def running(name: bytes) -> Iterator[int]:
    """Yield the ids of processes with a word in their command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if name in words and state not in "ZX" and int(entry.name) != os.getpid():
            yield int(entry.name)


def sandbox_of(kind: Literal["jail", "process"], root: Path) -> Any:
    found = choose_sandbox("jail", root) if kind == "jail" else ProcessSandbox()
    assert found
    return found


@pytest.mark.parametrize("name", WRONG)
def test_a_hostile_program_is_refused_for_the_requirement_that_it_breaks(tmp_path, question, name):
    number, code = WRONG[name]
    asked = question | {"view": question["view"] | {"intent": "x" * 300_000}} if name in LARGE else question
    limit_s = 2.0 if name in SILENT else PATIENCE_S
    assert number_for(tmp_path, code, asked, sandbox_of("jail", tmp_path), limit_s) == number


@pytest.mark.parametrize(
    "name", ["dies while a child holds its output", "fills the disk", "fills the memory", "floods its log"]
)
def test_without_isolation_the_same_limits_hold(tmp_path, question, name):
    assert number_for(tmp_path, WRONG[name][1], question, ProcessSandbox(), PATIENCE_S) == WRONG[name][0]


@pytest.mark.parametrize("name", RIGHT)
def test_an_unusual_program_that_keeps_the_rules_is_heard(tmp_path, question, name):
    assert number_for(tmp_path, RIGHT[name], question, sandbox_of("jail", tmp_path), PATIENCE_S) == ""


def test_a_program_that_closes_its_output_is_told_from_one_that_ends(tmp_path, question):
    """Without isolation only: in the sandbox another process holds the pipe, and the time runs out."""
    program = tmp_path / "program.py"
    program.write_text("import os, time; os.close(1); time.sleep(600)")
    started = Program(
        AgentProgram(command=(sys.executable, str(program)), timeout_s=PATIENCE_S), tmp_path, ProcessSandbox(), 1.0
    )
    try:
        with pytest.raises(BreachError, match="GBNP-012: it closed its output"):
            started.ask("agent/hello", hello_to("Stock", "member"))
    finally:
        started.kill()


@pytest.mark.parametrize(
    "name",
    ["ends without a line end", "answers before it was asked", "fills the memory", "floods its log", "prints a banner"],
)
def test_in_a_session_it_costs_its_own_turns_only(shop, name):
    number, code = WRONG[name]
    (shop / "programs" / "program.py").write_text(PRELUDE + code)
    heard: list[Event] = []
    hostile = AgentProgram(command=(sys.executable, "programs/program.py"), timeout_s=PATIENCE_S)
    negotiate(shop, heard, Orders=PERL, Stock=hostile)
    assert any(f"GBNP-{number}" in reason for reason in failures_of(heard, "Stock"))
    assert failures_of(heard, "Orders") == []
    assert heard[-1].topic == "/Negotiation/Finished"
    assert not list(running(str(shop / "programs" / "program.py").encode()))


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"base_sha256": "0" * 64}, "G1.stale"),
        ({"file_path": "pyproject.toml"}, "G0.not-agent-file"),
        ({"target": "Stock.on_placed", "operation": "delete_symbol", "change_type": "delete"}, "G0.audience"),
        ({"new_code": "def place(self, order_id, sku, amount):\n    __import__('os').system('id')\n"}, "G3"),
    ],
)
def test_an_edit_beyond_its_right_is_refused_by_the_gate_and_the_session_goes_on(shop, change, refused):
    """`dst` names an agent that does not exist, so the protocol cannot know whose file it is."""
    (shop / "programs" / "program.py").write_text(PRELUDE + PROPOSER % (change,))
    heard: list[Event] = []
    negotiate(shop, heard, Orders=AgentProgram(command=(sys.executable, "programs/program.py")))
    reports = [str(event.payload) for event in heard if event.topic == "/Negotiation/Gated"]
    assert any(refused in report for report in reports), reports
    assert heard[-1].topic == "/Negotiation/Finished"
    assert "on_placed" in (shop / "shop" / "agents.py").read_text()
