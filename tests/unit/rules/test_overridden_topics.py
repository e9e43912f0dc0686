"""Topics by `self.TOPIC`: known while the attribute is one plain constant, unknown as soon as anything else may set it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.checking import found, read

BASE = """
class Base(GraphBusNode):
    TOPIC = "/Base/Out"
    def emit(self): self.publish(self.TOPIC, {"a": 1})
    def on_start(self): pass
class One(Base):
    TOPIC = "/One/Out"
class OneSink(GraphBusNode):
    @subscribe("/One/Out")
    def hear(self, event): self.log(event["a"])
"""
SINK = """
class Sink(GraphBusNode):
    @subscribe("/Two/Out")
    def hear(self, event): self.log(event["a"])
"""


@pytest.mark.parametrize(
    "body",
    [
        "def __init__(self):\n    super().__init__()\n    self.TOPIC = '/Two/Out'",
        "def on_start(self): self.TOPIC = '/Two/Out'",
        "def on_start(this): this.TOPIC: str = '/Two/Out'",
        "def on_start(self): setattr(self, 'TOPIC', '/Two/Out')",
        "def on_start(self):\n    for key, value in CONFIG: setattr(self, key, value)",
        "def on_start(self): self.__dict__.update(CONFIG)",
        "def on_start(self): vars(self).update(CONFIG)",
        "def on_start(self): type(self).TOPIC = '/Two/Out'",
        "def on_start(self): Two.TOPIC = '/Two/Out'",
        "def on_start(self): self.TOPIC, self.x = '/Two/Out', 1",
        "@property\ndef TOPIC(self): return '/Two/Out'",
        "@property\ndef x(self):\n    self.TOPIC = '/Two/Out'",
        "def __init_subclass__(cls): cls.TOPIC = '/Two/Out'",
        "for TOPIC in ('/Two/Out',): pass",
        "if CONFIG: TOPIC = '/Two/Out'",
        "try: TOPIC = CONFIG['topic']\nexcept KeyError: TOPIC = '/Two/Out'",
        "with open('topic') as TOPIC: pass",
        "TOPIC = CONFIG['topic']",
        "TOPIC = '/Old'\nTOPIC = '/Two/Out'",
        "from topics import TWO as TOPIC",
    ],
)
def test_an_attribute_that_may_be_something_else_is_not_known(tmp_path: Path, body: str) -> None:
    project = read(tmp_path, f"{BASE}class Two(Base):\n{indent(body, '    ')}\n{SINK}")
    assert found(project, "GB001", "GB002", "GB003") == []
    two = project.agent("Two")
    assert two is not None
    assert [item.topic for item in two.publications] == [""]


def test_what_an_inherited_method_sends_is_known_for_each_subclass(tmp_path: Path) -> None:
    project = read(
        tmp_path,
        """
        class BaseEcho(GraphBusNode):
            OUT = "/Echo"
            def say(self): self.publish(self.OUT, {self.KEY: 1})
        class Left(BaseEcho):
            KEY = "left"
        class Right(BaseEcho):
            KEY = "right"
        class Sink(GraphBusNode):
            @subscribe("/Echo")
            def hear(self, event): self.log(event["left"] or event["right"])
        """,
    )
    assert found(project, "GB003") == []
