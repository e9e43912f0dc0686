"""One order flow of three steps, in GraphBus and in LangGraph, without a model and with one: what a request takes.

The model is scripted: a server on this machine that answers yes after 200 ms. docs/compare.md shows the three programs.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from peers import QUIET, environment
from side_by_side import PROGRAMS, Program, running
from stopwatch import ROOT, Row, medians, report

FLOWS = Path(__file__).parent / "flows"
OURS, THEIRS, ASKING = "graphbus_flow", "langgraph_flow", "langgraph_model_flow"
LATENCY_S = 0.2
ROUNDS = 9


class Model(BaseHTTPRequestHandler):
    """Answers every question with yes, and counts them."""

    asked = 0

    def do_POST(self) -> None:
        """Wait, then answer as a chat completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        time.sleep(LATENCY_S)
        answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def scripted_model() -> Iterator[str]:
    """Serve on this machine; gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def lines_of_code(path: Path) -> int:
    """Lines that are neither empty nor a comment nor a docstring."""
    text = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    silent: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            silent.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(
        1 for number, line in lines if line.strip() and not line.lstrip().startswith("#") and number not in silent
    )


def program(flow: str, python: Path, model: str) -> Program:
    """The program that runs one flow."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return Program(python, PROGRAMS / "requests_of.py", ROOT, inherited | QUIET | {"MODEL_URL": model}, (flow,))


def main() -> list[Row]:
    """Measure and print."""
    binaries = environment("LangGraph")
    if binaries is None:
        return report("An order flow", [])
    pythons = {OURS: Path(sys.executable), THEIRS: binaries / "python", ASKING: binaries / "python"}
    with scripted_model() as model, ExitStack() as stack:
        children = {
            flow: stack.enter_context(running(program(flow, python, model))) for flow, python in pythons.items()
        }
        took = medians({flow: lambda it=child: it.take_s("request") for flow, child in children.items()}, ROUNDS)
    lines = {flow: lines_of_code(FLOWS / f"{flow}.py") for flow in pythons}
    asked = "LangGraph, one step asks a model that answers in 200 ms"
    rows = [
        Row("a request, 3 steps", took[OURS], took[THEIRS], "LangGraph"),
        Row("a request, 3 steps", took[OURS], took[ASKING], asked),
        Row("lines of code", lines[OURS], lines[THEIRS], "LangGraph", unit="lines"),
        Row("lines of code", lines[OURS], lines[ASKING], asked, unit="lines"),
    ]
    return report("An order flow", rows)


if __name__ == "__main__":
    main()
