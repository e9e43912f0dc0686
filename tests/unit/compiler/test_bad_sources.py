"""Files that cannot be read: one clear error each, with its place, and everything else is still read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from graphbus_core.errors import UsageError
from graphbus_core.model.config import Settings
from tests.project_files import write_project
from tests.reading import HEAD, read_files, read_folder

GOOD = HEAD + "class Good(GraphBusNode): pass\n"


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (HEAD.encode() + b"class (:\n", "GBE201", "bad.py:2:7"),
        (HEAD.encode() + b"def f():\nreturn\n", "GBE201", "bad.py:3:1"),
        (HEAD.encode() + b"x = 1\0\n", "GBE201", "bad.py:2"),
        (HEAD.encode() + b"x = '\xff'\n", "GBE202", "bad.py:2"),
        (b"# coding: ascii\n" + HEAD.encode() + b"x = '\xc3\xa4'\n", "GBE202", "bad.py:3"),
        (b"# coding: klingon\n" + HEAD.encode(), "GBE202", "bad.py:1"),
        (HEAD.encode() + b"x = " + b"(" * 300 + b")" * 300, "GBE201", "bad.py:2:205"),
        (HEAD.encode() + b"x = " + b"-" * 20_000 + b"1", "GBE206", "bad.py"),
        (
            HEAD.encode() + b"class A(GraphBusNode):\n  def f(self, x: " + b"+".join([b"1"] * 900) + b"): pass",
            "GBE206",
            "bad.py",
        ),
        (b"#" * 2_000, "GBE203", "bad.py"),
    ],
)
def test_one_bad_file_is_one_error_and_the_others_are_read(tmp_path: Path, data: bytes, code: str, place: str) -> None:
    project = read_files(tmp_path, {"bad.py": data, "good.py": GOOD}, Settings(max_source_bytes=1_900))
    large = len(data) > 1_900 and code != "GBE203"
    if large:
        project = read_folder(tmp_path)
    assert [(error.code, str(error.where)) for error in project.errors] == [(code, place)]
    assert [agent.name for agent in project.definitions] == ["Good"]


def test_a_declared_encoding_is_honoured(tmp_path: Path) -> None:
    text = f"# coding: latin-1\n{HEAD}class A(GraphBusNode):\n    SYSTEM_PROMPT = 'Grüße'\n"
    project = read_files(tmp_path, {"a.py": text.encode("latin-1")})
    assert project.definitions[0].system_prompt == "Grüße"


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (b"def (", "GBE201", "conf.py:1:5"),
        (b"class (:", "GBE201", "conf.py:1:7"),
        (b"x = 1\0\n", "GBE201", "conf.py:1"),
        (b"\nx = '\xff'\n", "GBE202", "conf.py:2"),
        (b"# coding: klingon\n", "GBE202", "conf.py:1"),
        (b"x = " + b"-" * 20_000 + b"1", "GBE206", "conf.py"),
    ],
)
def test_a_bad_file_that_can_hold_no_agent_is_reported_too(tmp_path: Path, data: bytes, code: str, place: str) -> None:
    write_project(tmp_path, {"good.py": GOOD, "conf.py": data})
    for project in (read_folder(tmp_path, cache=True), read_folder(tmp_path, cache=True)):
        assert [(error.code, str(error.where)) for error in project.errors] == [(code, place)]
        assert [agent.name for agent in project.definitions] == ["Good"]


def test_all_errors_are_collected_in_the_order_of_their_places(tmp_path: Path) -> None:
    project = read_files(
        tmp_path,
        {
            "d.py": HEAD + "@depends_on('Godo')\nclass A(GraphBusNode): pass",
            "c.py": GOOD,
            "b.py": GOOD,
            "a.py": HEAD + "class (",
        },
    )
    assert [(error.code, str(error.where)) for error in project.errors] == [
        ("GBE201", "a.py:2:7"),
        ("GBE210", "c.py:2:7"),
        ("GBE211", "d.py:2:13"),
    ]
    assert "Did you mean 'Good'?" in project.errors[2].sentence
    assert str(project.errors[1].data["other"]) == "b.py:2:7"
    assert [agent.name for agent in project.definitions] == ["A", "Good"]


def test_a_file_that_vanishes_is_reported(tmp_path: Path) -> None:
    project = read_files(tmp_path, {"a.py": GOOD})
    (tmp_path / "a.py").unlink()
    with pytest.raises(Exception, match="cannot be read: no such file") as caught:
        read_folder(tmp_path).source("a.py")
    assert not isinstance(caught.value, UsageError)
    assert project.definitions[0].name == "Good"


@pytest.mark.parametrize(
    ("comment", "ignores"),
    [
        ("# graphbus: ignore", ((2, ()),)),
        ("# graphbus: ignore[GB001]", ((2, ("GB001",)),)),
        ("#graphbus:ignore[ GB001 , GB2 ]", ((2, ("GB001", "GB2")),)),
        ("# graphbus: ignore-file[GB001]", ((0, ("GB001",)),)),
        ("# graphbus: ignore-file", ((0, ()),)),
        ("# ignore", ()),
        ("# graphbus: something else", ()),
        ("'# graphbus: ignore'", ()),
    ],
)
def test_ignore_comments(tmp_path: Path, comment: str, ignores: object) -> None:
    project = read_files(
        tmp_path, {"a.py": f"{HEAD}x = 1  ;{comment}\n" if comment[0] == "'" else f"{HEAD}x = 1  {comment}\n"}
    )
    assert project.ignores("a.py") == ignores
    assert project.ignores("none.py") == ()


def test_a_module_that_cannot_be_read_is_only_unknown_to_those_that_import_it(tmp_path: Path) -> None:
    settings = Settings(max_source_bytes=1_000)
    files = {"kit/large.py": b"TOPIC = '/T'\n" + b"#" * 2_000, "agents/a.py": HEAD + "from kit.large import TOPIC\n"}
    files["agents/a.py"] = (
        str(files["agents/a.py"]) + "class A(GraphBusNode):\n    @subscribe(TOPIC)\n    def f(self): pass\n"
    )
    write_project(tmp_path, files)
    project = read_folder(tmp_path, "agents", settings=settings)
    assert project.errors == ()
    assert [item.topic for item in project.definitions[0].subscriptions] == [""]


def test_half_a_surrogate_pair_is_read_as_a_character_that_can_be_written_down(tmp_path: Path) -> None:
    half = r"\ud800"
    agent = f'''class Odd(GraphBusNode):
    """Says {half}."""

    @schema_method(input_schema={{"{half}": str, "way": Literal["{half}"], "text": "Literal['{half}']"}})
    def take(self, way: "Literal['{half}']" = "{half}"):
        self.publish("/Odd/Said", {{"{half}": 1}})

    @subscribe("/Odd/Said")
    def on_said(self, event):
        return event["{half}"]
'''
    project = read_files(tmp_path, {"odd.py": HEAD + "from typing import Literal\n" + agent, "good.py": GOOD})
    assert {each.name for each in project.definitions} == {"Odd", "Good"}
    written = msgspec.json.encode(project.definitions).decode()
    assert "Says \ufffd." in written
    assert "\\ud800" not in written
