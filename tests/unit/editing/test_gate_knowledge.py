"""Rung G4: a change after which less is known of an edge than before is refused; what can still be read is not."""

from __future__ import annotations

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate, GateRun
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.model.config import ResolvedBuild, Settings
from tests.project_files import write_project

DESK = """
    import copy
    import json
    import logging
    from typing import Any, TypedDict
    from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe

    NEWS = "/News/Written"
    logger = logging.getLogger(__name__)

    class Story(TypedDict):
        title: str
        words: int

    @publishes("/News/Counted", {"words": int, "tags": list[str]})
    @depends_on("Press")
    class Desk(GraphBusNode):
        def write(self, title: str, tail: str, extra: dict) -> None:
            news = {"title": title, "words": 3}
            self.publish(NEWS, news)
            self.publish("/News/Counted", {"words": 3, "tags": ["a"]})
            self.call("Press", "print_story", title=title, words=3)

        @schema_method(input_schema={"title": str}, output_schema={"title": str, "words": int})
        def read(self, title: str) -> dict:
            return {"title": title, "words": 3}

        @schema_method(input_schema={}, output_schema={"titles": list[str]})
        def titles(self) -> dict[str, list[str]]:
            return {"titles": ["a"]}
"""
PRESS = """
    import copy
    import json
    import logging
    from dataclasses import dataclass
    from typing import Any
    from graphbus_core import GraphBusNode, schema_method, subscribe

    HEARD = "/News/Written"
    logger = logging.getLogger(__name__)

    @dataclass
    class Counted:
        words: int
        tags: list[str]

    class Press(GraphBusNode):
        @subscribe("/News/Written")
        def on_written(self, event) -> None:
            self.title = event.payload["title"]

        @subscribe(HEARD)
        def on_payload(self, payload: dict) -> None:
            self.words = payload["words"]

        @subscribe("/News/Counted")
        def on_counted(self, counted: Counted) -> None:
            self.count = counted.words

        @subscribe("/News/Counted")
        def on_fields(self, words: int, tags: list[str]) -> None:
            self.count = words

        @schema_method(input_schema={"title": str, "words": int}, output_schema={"pages": int})
        def print_story(self, title: str, words: int) -> dict:
            return {"pages": words}

        @schema_method()
        def guess(self) -> dict:
            return json.loads("{}")
"""
FILES = {"pyproject.toml": "", "agents/desk.py": DESK, "agents/press.py": PRESS}

SENT = "self.publish(NEWS, news)"
DECLARED = '@publishes("/News/Counted", {"words": int, "tags": list[str]})'
CALL = 'self.call("Press", "print_story", title=title, words=3)'
READ = '@schema_method(input_schema={"title": str}, output_schema={"title": str, "words": int})'
RETURN = 'return {"title": title, "words": 3}'
TITLE = 'self.title = event.payload["title"]'
WORDS = 'self.words = payload["words"]'
PRINT = '@schema_method(input_schema={"title": str, "words": int}, output_schema={"pages": int})'

LOST = [
    # payloads
    (SENT, "self.publish(NEWS, dict(extra))"),
    (SENT, "self.publish(NEWS, dict(news, **extra))"),
    (SENT, "self.publish(NEWS, {**news, **extra})"),
    (SENT, "self.publish(NEWS, news | extra)"),
    (SENT, "news.update(extra)\n            self.publish(NEWS, news)"),
    (SENT, "self.publish(NEWS, self.filled(news))"),
    (SENT, "self.publish(NEWS, json.loads(json.dumps(news)))"),
    (SENT, "self.publish(NEWS, {key: value for key, value in news.items() if value})"),
    (SENT, "self.publish(NEWS, dict(news.items()))"),
    (SENT, "self.publish(NEWS, dict(zip(news, news.values())))"),
    (SENT, "self.publish(NEWS, news if title else extra)"),
    (SENT, "self.publish(NEWS, (lambda: news)())"),
    (SENT, "for each in [news]:\n                self.publish(NEWS, each)"),
    (SENT, "self.news = news\n            self.publish(NEWS, self.news)"),
    (SENT, "news = extra or news\n            self.publish(NEWS, news)"),
    (SENT, "news[tail] = 1\n            self.publish(NEWS, news)"),
    (SENT, "news[title] = news.pop('title')\n            self.publish(NEWS, news)"),
    (SENT, "self.publish(*(NEWS, news))"),
    (SENT, "self.publish(NEWS, **{'payload': news})"),
    (SENT, "self.publish(NEWS, news)\n            self.publish(NEWS, extra)"),
    (SENT, "self.publish(NEWS, vars(self))"),
    (SENT, "self.publish(NEWS, self.call('Press', 'guess'))"),
    (SENT, "self.publish(NEWS, {'title': title, 'words': 3, **self.call('Press', 'guess')})"),
    # topics
    (SENT, "self.publish(f'/News/{tail}', news)"),
    (SENT, "self.publish(NEWS + tail, news)"),
    (SENT, "self.publish(getattr(self, tail), news)"),
    (SENT, "self.publish({'a': NEWS}[tail], news)"),
    (SENT, "for topic in [str(NEWS)]:\n                self.publish(topic, news)"),
    (SENT, "publish = self.publish\n            publish(tail, news)\n            self.publish(tail, news)"),
    # declarations
    (DECLARED, '@publishes("/News/Counted")'),
    (DECLARED, '@publishes("/News/Counted", {"words": int, "tags": list})'),
    (DECLARED, '@publishes("/News/Counted", {"words": Any, "tags": list[str]})'),
    (DECLARED, '@publishes("/News/Counted", json.loads("{}"))'),
    # calls
    (CALL, 'self.call("Press", "print_story", **extra)'),
    (CALL, 'self.call("Press", "print_story", title=title, **extra)'),
    (CALL, "self.call('Press', tail, title=title, words=3)"),
    (CALL, "self.call(tail, 'print_story', title=title, words=3)"),
    (CALL, "self.call('Press', 'print_story', title=title, **self.call('Press', 'guess'))"),
    # methods
    (READ, "@schema_method()"),
    (READ, '@schema_method(input_schema={"title": str})'),
    (READ, '@schema_method(input_schema=json.loads("{}"), output_schema={"title": str, "words": int})'),
    (READ, '@schema_method(input_schema={"title": Any}, output_schema={"title": str, "words": int})'),
    (READ, '@schema_method(input_schema={"title": str}, output_schema={"title": str, "words": Any})'),
    (READ, ""),
    (RETURN, "return dict(self.found)"),
    (RETURN, "return self.found"),
    (RETURN, "return self.call('Press', 'guess')"),
    (RETURN, "return {'title': title, **self.call('Press', 'guess')}"),
    (RETURN, 'found = {"title": title}\n            found.update(self.found)\n            return found'),
    (RETURN, 'return json.loads("{}")'),
    (RETURN, 'if title:\n                return {"title": title, "words": 3}\n            return self.found'),
    ("def titles(self) -> dict[str, list[str]]:", "def titles(self) -> Any:"),
    ("def titles(self) -> dict[str, list[str]]:", "def titles(self):"),
    # handlers
    (TITLE, "self.show(**event.payload)"),
    (TITLE, "found = dict(event.payload)\n            self.title = found[NEWS]"),
    (TITLE, "self.title = self.pick(event.payload)"),
    (TITLE, "self.title = self.pick(event)"),
    (TITLE, "for key in event.payload:\n                self.title = event.payload[key]"),
    (TITLE, 'self.title = getattr(event, "pay" + "load")["title"]'),
    (TITLE, "self.title = list(event.payload.values())[0]"),
    (TITLE, "self.title = {**event.payload}"),
    (TITLE, "self.title = event.payload"),
    (TITLE, "self.title = event.payload[self.key]"),
    (WORDS, "self.words = payload.pop(self.key)"),
    (WORDS, "payload = payload or {}\n            self.words = payload[self.key]"),
    (WORDS, "self.words = json.dumps(payload)"),
    (WORDS, "self.take(payload)"),
    ("def on_counted(self, counted: Counted)", "def on_counted(self, counted)"),
    ("def on_counted(self, counted: Counted)", "def on_counted(self, counted: Any)"),
    ("def on_fields(self, words: int, tags: list[str])", "def on_fields(self, words, tags)"),
    ("def on_fields(self, words: int, tags: list[str])", "def on_fields(self, words: int, tags: list)"),
    ("def on_fields(self, words: int, tags: list[str])", "def on_fields(self, **words)"),
    ('@subscribe("/News/Written")', "@subscribe(str(HEARD))"),
]
KEPT = [
    (SENT, "self.publish(NEWS, {key: value for key, value in news.items()})"),
    (SENT, "self.publish(NEWS, dict(news))"),
    (SENT, "self.publish(NEWS, dict(news, by='x'))"),
    (
        SENT,
        "pages = self.call('Press', 'print_story', title=title, words=3)['pages']\n"
        "            self.publish(NEWS, {'title': title, 'words': pages})",
    ),
    (SENT, "self.publish(NEWS, {**news})"),
    (SENT, "self.publish(NEWS, {**news, 'by': 'x'})"),
    (SENT, "self.publish(NEWS, news.copy())"),
    (SENT, "self.publish(NEWS, copy.copy(news))"),
    (SENT, "self.publish(NEWS, copy.deepcopy(news))"),
    (SENT, "self.publish(NEWS, news | {'by': 'x'})"),
    (SENT, "self.log(str(news))\n            self.publish(NEWS, news)"),
    (SENT, "logger.info('written: %s', title)\n            self.publish(NEWS, news)"),
    (SENT, "topic = NEWS\n            self.publish(topic, news)"),
    (SENT, "self.publish('/News/Written', {'title': title, 'words': len(title)})"),
    (SENT, "sent = dict(news)\n            self.publish(NEWS, sent)"),
    (SENT, "if title:\n                self.publish(NEWS, news)"),
    (CALL, "words = 4\n            self.call('Press', 'print_story', title=title, words=words)"),
    (CALL, "given = {'title': title, 'words': 3}\n            self.call('Press', 'print_story', **given)"),
    (CALL, "self.call('Press', 'print_story', **{'title': title, 'words': 3})"),
    (RETURN, 'found = {"title": title, "words": 3}\n            return found'),
    (
        RETURN,
        'if not title:\n                return {"title": "", "words": 0}\n            return {"title": title, "words": 3}',
    ),
    (TITLE, 'payload = event.payload\n            self.title = payload["title"]'),
    (TITLE, 'logger.info("heard %s", event.payload)\n            self.title = event.payload["title"]'),
    (TITLE, 'self.log(f"heard {event.payload}")\n            self.title = event.payload["title"]'),
    (TITLE, 'self.title = event.payload.get("title", "")'),
    (TITLE, 'print(event.payload)\n            self.title = event.payload["title"]'),
    (WORDS, 'logger.debug("heard %r", payload)\n            self.words = payload["words"]'),
    (WORDS, 'if "words" in payload:\n                self.words = payload["words"]'),
    ("def on_fields(self, words: int, tags: list[str])", "def on_fields(self, words: float, tags: list[str])"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = write_project(tmp_path_factory.mktemp("news"), FILES)
    return Project.read(ResolvedBuild(root=str(root), paths=(str(root),), settings=Settings()), cache=False)


def climb(project: Project, old: str, new: str) -> Refusal | None:
    """Give what G4 says of a change."""
    path = next(path for path in project.agent_files if old in project.source(path).utf8.decode())
    before = project.source(path).utf8
    assert before.count(old.encode()) == 1, old
    contents = {path: (before, before.replace(old.encode(), new.replace("\n    ", "\n").encode()))}
    problem = GateRun(Gate(project, project.config, None), project, contents, {}, contents).check_contract(())
    assert problem is None or isinstance(problem, Refusal)
    return problem


@pytest.mark.parametrize(("old", "new"), LOST)
def test_what_was_known_and_becomes_unknown_is_refused(project: Project, old: str, new: str) -> None:
    problem = climb(project, old, new)

    assert problem is not None
    assert problem.code in ("G4.unknown", "G4.edge", "G4.finding"), problem
    assert problem.line


@pytest.mark.parametrize(("old", "new"), KEPT)
def test_what_can_still_be_read_passes(project: Project, old: str, new: str) -> None:
    assert climb(project, old, new) is None
