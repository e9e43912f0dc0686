"""GB005: requests and the one handler that answers them; GB311: options of subscriptions that cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.model.config import Settings
from tests.checking import assert_marked, only_finding, read

ASKER = (
    'class Asker(GraphBusNode):\n    def ask(self):\n        return self.request("/Stock/Asked", {"sku": "mug"})%s\n'
)
ANSWER = 'class %s(GraphBusNode):\n    @subscribe("%s")\n    def on_asked(self, event):\n        return {"left": event["sku"]}\n'
COMPUTED = """
import os
class Stock(GraphBusNode):
    @subscribe(os.environ["TOPIC"])
    def on_asked(self, event):
        return {}
"""
MARK = "  #! GB005"

REQUESTS = {
    "one answer": ASKER % "" + ANSWER % ("Stock", "/Stock/Asked"),
    "handlers of patterns that hear it, too": ASKER % ""
    + ANSWER % ("Stock", "/Stock/Asked")
    + ANSWER % ("Shelf", "/Stock/*")
    + ANSWER % ("Audit", "/**"),
    "handlers of patterns only": ASKER % MARK + ANSWER % ("Stock", "/Stock/*"),
    "another that gives nothing": ASKER % ""
    + ANSWER % ("Stock", "/Stock/Asked")
    + (ANSWER % ("Log", "/Stock/Asked")).replace("event):", "event) -> None:"),
    "no answer": ASKER % MARK,
    "a misspelled answer": ASKER % MARK + ANSWER % ("Stock", "/Stock/Askd"),
    "two answers": ASKER % MARK + ANSWER % ("Stock", "/Stock/Asked") + ANSWER % ("Shelf", "/Stock/Asked"),
    "an answer that may be anywhere": ASKER % "" + COMPUTED,
    "an answer of a bus": ASKER % "" + "def serve(bus):\n    bus.subscribe('/Stock/Asked', print)\n",
    "a computed topic": 'class Asker(GraphBusNode):\n    def ask(self, name):\n        return self.request(f"/Stock/{name}")\n',
    "itself": """
class Asker(GraphBusNode):
    def ask(self):
        return self.request("/Stock/Asked", {"sku": "mug"})  #! GB005

    @subscribe("/Stock/Asked")
    def on_asked(self, event):
        return {"left": event["sku"]}
""",
}


@pytest.mark.parametrize("text", REQUESTS.values(), ids=REQUESTS)
def test_a_request_has_exactly_one_answer(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB005")


def test_a_request_that_is_answered_outside_is_no_finding(tmp_path: Path) -> None:
    assert_marked(tmp_path, ASKER % "", "GB005", "GB002", settings=Settings(external_topics=("/Stock/*",)))


def test_the_likely_topic_is_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, REQUESTS["a misspelled answer"]), "GB005")
    assert finding.hint == "Did you mean '/Stock/Askd'? Give one agent a handler of it that returns the answer."


def test_those_who_answer_are_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, REQUESTS["two answers"]), "GB005")
    assert "which Shelf.on_asked and Stock.on_asked answer" in finding.message
    assert [each.agent for each in finding.related] == ["Shelf", "Stock"]


def test_handlers_of_patterns_are_said_to_hear_only(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, REQUESTS["handlers of patterns only"]), "GB005")
    assert "which only handlers of patterns receive" in finding.message


def test_what_a_request_sends_is_compared_with_what_the_handler_reads(tmp_path: Path) -> None:
    text = ASKER % "" + ANSWER.replace('event["sku"]}', 'event["skuu"]}  #! GB003') % ("Stock", "/Stock/Asked")
    assert_marked(tmp_path, text.replace("  #! GB003}", "}  #! GB003"), "GB003")


def test_a_request_without_answer_is_not_reported_twice(tmp_path: Path) -> None:
    assert_marked(tmp_path, ASKER % MARK)


def handler(options: str, word: str = "def", mark: str = "  #! GB311") -> str:
    return f'class A(GraphBusNode):\n    @subscribe("/X"{options}){mark}\n    {word} on_x(self, event):\n        ...\n'


OPTIONS = {
    "nothing": handler("", mark=""),
    "all that can be": handler(", retries=3, backoff=0.5, timeout=2.5, concurrency=8", "async def", ""),
    "retries of a plain def": handler(", retries=3, retry_on=OSError", mark=""),
    "what is computed": handler(", retries=len('abc'), timeout=float('1')", mark=""),
    "fewer than no retries": handler(", retries=-1"),
    "half a retry": handler(", retries=1.5"),
    "a backoff into the past": handler(", backoff=-0.1"),
    "no time": handler(", timeout=0", "async def"),
    "no concurrency": handler(", concurrency=0", "async def"),
    "a plain def with a timeout": handler(", timeout=2"),
    "a plain def with concurrency": handler(", concurrency=2"),
}


@pytest.mark.parametrize("text", OPTIONS.values(), ids=OPTIONS)
def test_options_that_cannot_be_kept_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB311")
