"""Whatever a model or a file writes into a session, it stays text in the report of it."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from graphbus_core.cli.report.page import render_page
from graphbus_core.cli.report.story import Story
from graphbus_core.model.artifacts import Edge
from graphbus_core.negotiation.transcript import SessionRecord, TranscriptEvent
from tests.fakes.told_sessions import EDGES, eventful_record, eventful_transcript
from tests.thoroughness import examples

CLOSED = {"decision", "status", "change_type", "operation", "consensus_type", "kind", "estimated_risk"}
"""Keys whose values are one of a closed set: nothing free can stand there."""

ATTACKS = (
    "<script>alert(1)</script>", "</style><script>x</script>", "</script>", "<!--", "-->", "]]>", '"><img src=x onerror=x>',
    "' onfocus='x", "&lt;b&gt;", "&#60;b&#62;", "<svg/onload=x>", "</details></main>", "`${x}`", "\x00<b>", "\u202e<b>", "<b",
    "javascript:x", "{{7*7}}", "\ud800<b>", "\x0b\x0c\x85", "</title>", "<plaintext>", "<textarea>", "?>", "<?php",
)  # fmt: skip
HOSTILE = st.one_of(
    st.sampled_from(ATTACKS),
    st.text(st.sampled_from("<>/\"'&;!-=#abxs \x00\u202e\u2028"), min_size=1, max_size=30),
    st.text(min_size=1, max_size=20).filter(lambda text: "\n" not in text),
)


class Parts(HTMLParser):
    """Every element with the names of its attributes; marks within lines depend on the text: left out."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.others: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "mark" or attrs:
            self.elements[tag, tuple(name for name, _ in attrs)] += 1

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)


def spoilt(value: Any, with_text: str, key: str = "", path: tuple[str, ...] = ()) -> Any:
    """The same value with a text before and behind every free text in it; the same text is spoilt in the same way."""
    if isinstance(value, dict):
        is_data = key in ("costs", "models", "base", "resolution")
        return {
            spoilt(name, with_text) if is_data else name: spoilt(
                item, with_text, "" if is_data else name, (*path, name)
            )
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [spoilt(item, with_text, key, path) for item in value]
    is_free = isinstance(value, str) and value and key not in CLOSED and path[-2:] != ("ending", "reason")
    if not is_free or "schema" in " ".join(path):
        return value
    if "\n" in value:  # lines stay lines: of a difference their first character counts
        return value.replace("\n", f"{with_text}\n")
    return f"{with_text}{value}{with_text}"


def story(with_text: str) -> Story:
    record = msgspec.convert(spoilt(msgspec.to_builtins(eventful_record()), with_text), SessionRecord)
    names = {name: spoilt(name, with_text) for edge in EDGES for name in (edge.source, edge.target)}
    edges = [Edge(names[edge.source], names[edge.target], edge.kind, f"{with_text}{edge.label}") for edge in EDGES]
    said = [TranscriptEvent(event.topic, spoilt(event.payload, with_text)) for event in eventful_transcript()]
    return Story(record, edges, said, "written")


PLAIN = Parts(render_page(story("x")).decode())


@examples(12)
@given(HOSTILE)
@example("</style><script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
@example("\ud800<b>")
def test_no_text_of_a_session_makes_an_element_or_an_attribute(text: str) -> None:
    made = Parts(render_page(story(text)).decode("ascii"))
    assert made.elements == PLAIN.elements
    assert made.others == []


@examples(10)
@given(HOSTILE)
def test_the_facts_are_one_document_in_ascii_whatever_they_hold(text: str) -> None:
    assert json.loads(json.dumps(story(text).facts()))["proposals"]
