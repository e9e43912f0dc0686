"""Which classes are agents, and what is merged into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project_files import write_project
from tests.reading import HEAD, read_agent, read_files, read_folder


@pytest.mark.parametrize(
    "text",
    [
        "from graphbus_core import GraphBusNode\nclass A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode as Node\nclass A(Node): pass",
        "import graphbus_core\nclass A(graphbus_core.GraphBusNode): pass",
        "import graphbus_core as g\nclass A(g.GraphBusNode): pass",
        "import graphbus_core.node\nclass A(graphbus_core.node.GraphBusNode): pass",
        "from graphbus_core import node\nclass A(node.GraphBusNode): pass",
        "from graphbus_core.node import GraphBusNode\nclass A(GraphBusNode): pass",
        "from graphbus_core import *\nclass A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nNode = GraphBusNode\nclass A(Node): pass",
        "try:\n    from graphbus_core import GraphBusNode\n"
        "except ImportError:\n    GraphBusNode = object\nclass A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nif True:\n    class A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\ntry:\n    class A(GraphBusNode): pass\nfinally:\n    pass",
        "from graphbus_core import GraphBusNode\nclass Mixin: pass\nclass A(Mixin, GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nclass _Inner(GraphBusNode): pass\nclass A(_Inner): pass",
        "from graphbus_core import GraphBusNode\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\n"
        "class _Inner(GraphBusNode, Generic[T]): pass\nclass A(_Inner[int]): pass",
    ],
)
def test_a_subclass_of_the_node_is_found_however_it_is_spelled(tmp_path: Path, text: str) -> None:
    project = read_files(tmp_path, {"module.py": text})
    assert [agent.name for agent in project.definitions] == ["A"]


@pytest.mark.parametrize(
    "text",
    [
        "class A: pass",
        "class GraphBusNode: pass\nclass A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nA = GraphBusNode",
        "from graphbus_core import GraphBusNode\ndef make():\n    class A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nclass Outer:\n    class A(GraphBusNode): pass",
        "from other import *\nclass A(GraphBusNode): pass",
        "from graphbus_core import GraphBusNode\nclass A(make(GraphBusNode)): pass",
        "TEXT = 'from graphbus_core import GraphBusNode; class A(GraphBusNode): pass'",
        "import graphbus_core\nclass A(B): pass\nclass B(A): pass",
        "import graphbus_core\nX0 = X1\nX1 = X0\nclass A(X0): pass",
    ],
)
def test_what_only_looks_like_an_agent_is_none(tmp_path: Path, text: str) -> None:
    project = read_files(tmp_path, {"module.py": text})
    assert project.definitions == ()
    assert project.errors == ()


@pytest.mark.parametrize(
    ("name", "bases", "is_agent"),
    [
        ("_Shared", "GraphBusNode", False),
        ("Base", "GraphBusNode", False),
        ("BaseService", "GraphBusNode", False),
        ("Baseline", "GraphBusNode", True),
        ("Service", "GraphBusNode, ABC", False),
        ("Service", "abc.ABC, GraphBusNode", False),
        ("Service", "GraphBusNode", True),
    ],
)
def test_a_class_that_is_only_a_base_is_no_agent(tmp_path: Path, name: str, bases: str, is_agent: bool) -> None:
    text = f"{HEAD}import abc\nfrom abc import ABC\nclass {name}({bases}): pass\nclass Concrete({name}): pass"
    found = {agent.name for agent in read_files(tmp_path, {"module.py": text}).definitions}
    assert found == ({name, "Concrete"} if is_agent else {"Concrete"})


def test_an_agent_that_others_inherit_from_is_an_agent_itself(tmp_path: Path) -> None:
    text = HEAD + "class Service(GraphBusNode): pass\nclass Special(Service): pass"
    assert [agent.name for agent in read_files(tmp_path, {"module.py": text}).definitions] == ["Service", "Special"]


@pytest.mark.parametrize(
    "files",
    [
        {"kit.py": HEAD + "class Base(GraphBusNode): pass", "a.py": "from kit import Base\nclass A(Base): pass"},
        {"kit.py": HEAD + "class Base(GraphBusNode): pass", "a.py": "import kit\nclass A(kit.Base): pass"},
        {"kit.py": HEAD + "class Base(GraphBusNode): pass", "a.py": "import kit as k\nclass A(k.Base): pass"},
        {"kit.py": HEAD + "class Base(GraphBusNode): pass", "a.py": "from kit import *\nclass A(Base): pass"},
        {
            "one.py": "from two import *\n",
            "two.py": "from one import *\n" + HEAD + "class Base(GraphBusNode): pass",
            "a.py": "from one import *\nclass A(Base, Missing): pass",
        },
        {
            "kit.py": "from graphbus_core import GraphBusNode as Node",
            "a.py": "from kit import Node\nclass A(Node): pass",
        },
        {
            "kit/__init__.py": "from kit.node import Base as Renamed",
            "kit/node.py": HEAD + "class Base(GraphBusNode): pass",
            "a.py": "from kit import Renamed\nclass A(Renamed): pass",
        },
        {
            "kit/__init__.py": "from .node import Base",
            "kit/node.py": HEAD + "class Base(GraphBusNode): pass",
            "kit/deep/__init__.py": "",
            "kit/deep/a.py": "from ... import kit\nfrom .. import Base\nclass A(Base): pass",
        },
        {
            "z1.py": "from z2 import Two\nclass BaseOne(Two): pass",
            "z2.py": HEAD + "class Two(GraphBusNode, ABC): pass\nfrom abc import ABC",
            "a.py": "from z1 import BaseOne\nclass A(BaseOne): pass",
        },
        {
            "space/node.py": HEAD + "class Base(GraphBusNode): pass",
            "a.py": "import space.node\nclass A(space.node.Base): pass",
        },
    ],
)
def test_a_base_class_is_followed_through_other_files(tmp_path: Path, files: dict[str, str]) -> None:
    project = read_files(tmp_path, files)
    assert project.errors == ()
    assert [agent.name for agent in project.definitions if agent.name != "Two"] == ["A"]


@pytest.mark.parametrize(
    "text",
    [
        "from kit.base import Shared\nclass A(Shared): pass",
        "from kit import base\nclass A(base.Shared): pass",
        "import kit.base as b\nclass A(b.Shared): pass",
        "from ..kit.base import Shared\nclass A(Shared): pass",
        "from kit.names import Same\nclass A(Same): pass",
    ],
)
def test_a_base_class_outside_of_what_is_built_is_followed_as_well(tmp_path: Path, text: str) -> None:
    shared = HEAD + "class Shared(GraphBusNode):\n    @subscribe('/X')\n    def on_x(self): pass"
    root = write_project(
        tmp_path,
        {
            "kit/base.py": shared,
            "kit/names.py": "from kit.base import Shared as Same",
            "agents/a.py": text,
            "agents/b.py": "",
        },
    )
    if ".." in text:
        root = write_project(tmp_path / "more", {"top/kit/base.py": shared, "top/agents/a.py": text})
    project = read_folder(root, "top/agents" if ".." in text else "agents")
    assert [agent.name for agent in project.definitions] == ["A"]
    assert [item.topic for item in project.definitions[0].subscriptions] == ["/X"]
    assert any(path.endswith("kit/base.py") for path in project.inputs)


def test_members_of_bases_are_merged_and_the_nearest_wins(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        class Mixin:
            @subscribe("/Mixin")
            def on_mixin(self): pass
            def shared(self): "from the mixin"

        @depends_on("B")
        class _Root(GraphBusNode):
            SYSTEM_PROMPT = "root"
            TOPIC = "/Root"
            @subscribe("/Old")
            def on_old(self): pass
            def shared(self): "from the root"
            def say(self): self.publish(self.TOPIC, {"a": 1})

        @depends_on("C", "B")
        class A(Mixin, _Root):
            TOPIC = "/A"
            def on_old(self): pass

        class B(GraphBusNode): pass
        class C(GraphBusNode): pass
        """,
    )
    assert [item.topic for item in agent.subscriptions] == ["/Mixin"]
    assert agent.system_prompt == "root"
    assert agent.method("shared").doc == "from the mixin"  # type: ignore[union-attr]
    assert [item.topic for item in agent.publications] == ["/A"]
    assert {item.name for item in agent.dependencies} == {"B", "C"}


def test_the_facts_of_a_class(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        '''
        PROMPT = "I am "
        class A(GraphBusNode):
            """What A does.

                More.

            Ends.
            """
            SYSTEM_PROMPT = PROMPT + f"{'the'} judge."
            IS_ARBITER = True
        ''',
    )
    assert agent.doc == "What A does.\n\n    More.\n\nEnds."
    assert agent.system_prompt == "I am the judge."
    assert agent.is_arbiter
    assert (agent.module, agent.path, agent.bases) == ("module", "module.py", ("GraphBusNode",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'plain'", "plain"),
        ("'''\n    two\n    lines\n    '''", "two\nlines"),
        ("dedent('''\n    two\n    lines\n    ''')", "two\nlines"),
        ("'  blank ends '.strip()", "blank ends"),
        ("'a' 'b'", "ab"),
        ("make_prompt()", ""),
        ("make_prompt('x')", ""),
        ("dedent(make_prompt())", ""),
        ("'number ' + 1", ""),
        ("open('prompt.txt').read()", ""),
    ],
)
def test_a_prompt_is_text_that_is_always_the_same(tmp_path: Path, value: str, expected: str) -> None:
    text = f"from textwrap import dedent\nclass A(GraphBusNode):\n    SYSTEM_PROMPT = {value}\n"
    assert read_agent(tmp_path, text).system_prompt == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('@depends_on("B")', ["B"]),
        ('@depends_on("B", C)', ["B", "C"]),
        ("@depends_on(B)\n@depends_on(C)", ["B", "C"]),
        ("@depends_on(B, 'B')", ["B"]),
        ("NAME = 'B'\n@depends_on(NAME)", ["B"]),
        ("import elsewhere\n@depends_on(elsewhere.Far)", ["Far"]),
        ("@depends_on(find())", []),
        ("@depends_on(['B', C])", ["B", "C"]),
        ("def local(): pass\n@depends_on(local)", []),
    ],
)
def test_dependencies_are_names_or_classes(tmp_path: Path, written: str, expected: list[str]) -> None:
    text = f"{HEAD}class B(GraphBusNode): pass\nclass C(GraphBusNode): pass\n{written}\nclass A(GraphBusNode): pass"
    agent = read_files(tmp_path, {"module.py": text}).agent("A")
    assert agent is not None
    assert [item.name for item in agent.dependencies] == expected


def test_spans_cover_what_they_name(tmp_path: Path) -> None:
    text = HEAD + "# ünïcode\n\n@depends_on('B')\nclass  A ( GraphBusNode ):\n    x = 'ä'; y = 1\n"
    text += "    @subscribe('/ü')\n    def f(self): pass\nclass B(GraphBusNode): pass\n"

    project = read_files(tmp_path, {"module.py": text})
    agent = project.agent("A")
    assert agent is not None
    assert project.span_text(agent.name_span) == "A"
    assert project.span_text(agent.span).startswith("@depends_on('B')\nclass  A (")
    assert project.span_text(agent.span).endswith("pass")
    assert project.span_text(agent.methods[0].span) == "@subscribe('/ü')\n    def f(self): pass"
    assert project.span_text(agent.subscriptions[0].span) == "'/ü'"
    assert project.span_text(agent.dependencies[0].span) == "'B'"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbf# first\n", "utf-8"),
        (b"# -*- coding: latin-1 -*-\n# \xe4\n", "latin-1"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n# \x80\n", "cp1252"),
        (b"x = 1\n# coding: latin-1\n", "utf-8"),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_spans_hold_in_every_encoding_and_with_every_line_end(
    tmp_path: Path, data: bytes, expected: str, newline: bytes
) -> None:
    body = HEAD.encode() + b"class A(GraphBusNode):\n    def f(self): pass; self.publish('/T', {'k': 1})\n"
    project = read_files(tmp_path, {"module.py": (data + body).replace(b"\n", newline)})
    assert project.errors == ()
    agent = project.definitions[0]
    source = project.source("module.py")
    assert (source.encoding, source.newline.encode()) == (expected, newline)
    assert project.span_text(agent.publications[0].span) == "'/T'"
    assert project.span_text(agent.name_span) == "A"


def test_digests_tell_a_changed_body_from_a_changed_contract(tmp_path: Path) -> None:
    def digests(method: str) -> tuple[str, str]:
        agent = read_agent(tmp_path, "class A(GraphBusNode):\n" + method)
        return agent.source_digest, agent.contract_digest

    first = digests("    @schema_method({'x': int}, {'y': int})\n    def f(self, x): return {'y': x}\n")
    same_contract = digests("    @schema_method({'x': int}, {'y': int})\n    def f(self, x): return {'y': x + 1}\n")
    other_contract = digests("    @schema_method({'x': int}, {'z': int})\n    def f(self, x): return {'z': x}\n")
    moved = digests("    # moved\n    @schema_method({'x': int}, {'y': int})\n    def f(self, x): return {'y': x}\n")
    assert first[0] != same_contract[0]
    assert first[1] == same_contract[1] == moved[1]
    assert other_contract[1] != first[1]


def test_methods_in_conditional_blocks_are_read(tmp_path: Path) -> None:
    agent = read_agent(
        tmp_path,
        """
        class A(GraphBusNode):
            if True:
                @subscribe("/X")
                def on_x(self): pass
            else:
                def other(self): pass
            def handle_event(self, topic, payload): pass
        """,
    )
    assert [spec.name for spec in agent.methods] == ["on_x", "other", "handle_event"]
    assert [item.topic for item in agent.subscriptions] == ["/X"]
