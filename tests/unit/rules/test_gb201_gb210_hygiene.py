"""GB201, GB202 and GB210: annotations that the schema implies, and input that nobody looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.errors import GraphBusError
from tests.checking import apply_fix, assert_marked, fixed, found, only_finding, read, text_of

MISSING = {
    "a parameter": """
class A(GraphBusNode):
    @schema_method({"x": int, "y": str})
    def f(self, x, y: str): ...  #! GB201
""",
    "a result": """
class A(GraphBusNode):
    @schema_method({}, {"x": int})  #! GB202
    def f(self):
        return {"x": 1}
""",
}
THERE = {
    "a result that is not known": """
class A(GraphBusNode):
    @schema_method({}, {"x": int})
    def f(self):
        return self.g()
    def g(self): ...
""",
    "a handler, whose annotations decide how it is called": """
class A(GraphBusNode):
    @subscribe("/X")
    @schema_method({"x": dict})
    def f(self, x): ...
""",
}


@pytest.mark.parametrize("text", [*MISSING.values(), *THERE.values()], ids=[*MISSING, *THERE])
def test_annotations_that_follow_from_the_schema_are_missed(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB201", "GB202")
    assert all(each.severity == "info" for each in rules.check(read(tmp_path, text), select=["GB2"]))


ANNOTATED = {
    "plain": ("int", "x", "x: int"),
    "generic": ("list[str]", "x", "x: list[str]"),
    "a choice": ("str | None", "x", "x: str | None"),
    "a default": ("int", "x=1", "x: int = 1"),
    "a default with blanks": ("int", "x = 1", "x: int = 1"),
    "a default of None": ("list", "x=None", "x: list | None = None"),
    "a default of None for a choice": ("list | None", "x=None", "x: list | None = None"),
    "keyword only": ("int", "*, x", "*, x: int"),
    "a class of the module": ("Item", "x", "x: Item"),
    "a typing name": ("Optional[str]", "x", "x: Optional[str]"),
}


@pytest.mark.parametrize(("kind", "before", "after"), ANNOTATED.values(), ids=ANNOTATED)
def test_a_parameter_gets_the_type_as_the_schema_spells_it(tmp_path: Path, kind: str, before: str, after: str) -> None:
    head = "from typing import Optional, TypedDict\nclass Item(TypedDict):\n    sku: str\n"
    text = f'{head}class A(GraphBusNode):\n    @schema_method({{"x": {kind}}})\n    def f(self, {before}): ...  # x\n'
    project = read(tmp_path, text)
    assert text_of(fixed(project, "GB201")) == text.replace(f"self, {before})", f"self, {after})")
    assert only_finding(project, "GB201").is_fix_safe


@pytest.mark.parametrize(
    ("kind", "surroundings"),
    [
        ('"integer"', ""),
        ("list", "    def list(self): ...\n"),
        ("Item", "    Item = dict\n"),
        ("{'a': int}", ""),
        ("[str]", ""),
    ],
)
def test_a_type_that_means_something_else_in_the_signature_is_not_written(
    tmp_path: Path, kind: str, surroundings: str
) -> None:
    head = "from typing import TypedDict\nclass Item(TypedDict):\n    sku: str\n"
    text = f'{head}class A(GraphBusNode):\n    @schema_method({{"x": {kind}}})\n    def f(self, x): ...\n{surroundings}'
    assert not any(each.is_fixable for each in rules.check(read(tmp_path, text), select=["GB201"]))


DEFAULTS_THAT_FIT = [("int", "3"), ("bool", "False"), ("str", "'a'"), ("str", "None"), ("list[str]", "None")]
DEFAULTS_THAT_MAY_NOT = [
    *(
        ("list[str]", "()"),
        ("dict[str, int]", "{**OTHER}"),
        ("str", "0"),
        ("int", "1.5"),
        ("int", "True"),
        ("str", "b''"),
    ),
    *(("str | int", "1.5"), ("str", "..."), ("str", "OTHER"), ("list", "other()"), ("Literal['a', 'b']", "'c'")),
]


@pytest.mark.parametrize(
    ("kind", "default", "is_fixable"),
    [*((*pair, True) for pair in DEFAULTS_THAT_FIT), *((*pair, False) for pair in DEFAULTS_THAT_MAY_NOT)],
)
def test_an_annotation_is_only_written_where_the_default_fits(
    tmp_path: Path, kind: str, default: str, is_fixable: bool
) -> None:
    head = "from typing import Literal, TypedDict\nclass Item(TypedDict):\n    sku: str\n"
    text = f'{head}class A(GraphBusNode):\n    @schema_method({{"x": {kind}}})\n    def f(self, *, x={default}): ...\n'
    assert only_finding(read(tmp_path, text), "GB201").is_fixable == is_fixable


RESULTS = {
    "one line": ("def f(self): return {'x': 1}", "def f(self) -> dict[str, Any]: return {'x': 1}"),
    "a comment": (
        "def f(self, y=(1, ')')):  # )\n        return {'x': 1}",
        "def f(self, y=(1, ')')) -> dict[str, Any]:  # )\n        return {'x': 1}",
    ),
    "several lines": (
        "async def f(\n        self,  # é )\n        y=1,\n    ):\n        return {'x': 1}",
        "async def f(\n        self,  # é )\n        y=1,\n    ) -> dict[str, Any]:\n        return {'x': 1}",
    ),
}


@pytest.mark.parametrize(("before", "after"), RESULTS.values(), ids=RESULTS)
def test_a_result_gets_its_annotation_and_any_is_imported(tmp_path: Path, before: str, after: str) -> None:
    text = f'class A(GraphBusNode):\n    @schema_method({{}}, {{"x": int}})\n    {before}\n'
    project = read(tmp_path, text)
    done = fixed(project, "GB202")
    assert after in text_of(done)
    assert done.source("agents.py").text.count("from typing import Any\n") == 1
    assert only_finding(project, "GB202").is_fix_safe


PLAIN = 'class A(GraphBusNode):\n    @schema_method({}, {"x": int})\n    def f(self):\n        return {"x": 1}\n'


def test_no_annotation_is_written_where_dict_means_something_else(tmp_path: Path) -> None:
    text = f"{PLAIN}    def dict(self): ...\n"
    assert not only_finding(read(tmp_path, text), "GB202").is_fixable


def test_no_annotation_is_written_where_a_comment_may_hold_the_bracket(tmp_path: Path) -> None:
    text = PLAIN.replace("def f(self)", "def f(\n        self,\n        y=1,  # one (1)\n    )")
    assert not only_finding(read(tmp_path, text), "GB202").is_fixable


UNCHECKED = """
class A(GraphBusNode):
    @schema_method({"x": int, "y": float, "z": Foreign}, {"sum": float})
    def f(self, x: int, y: float = 1.0, z=None) -> dict:
        \"\"\"Add.\"\"\"
        # both
        return {"sum": x + y}
"""


def test_input_that_is_never_looked_at_is_only_reported_when_asked_for(tmp_path: Path) -> None:
    project = read(tmp_path, UNCHECKED)
    assert found(project) == []
    assert found(project, "GB210") == [("agents.py", 3, "GB210")]
    assert [each.code for each in rules.check(project, all_fixable=True)] == ["GB210"]


def test_a_guard_is_put_at_the_top_of_the_body(tmp_path: Path) -> None:
    after = fixed(read(tmp_path, UNCHECKED), "GB210")
    assert text_of(after) == UNCHECKED.removeprefix("\n").replace(
        "        # both\n",
        "        if not isinstance(x, int):\n"
        '            raise TypeError(f"x must be int, not {type(x).__name__}")\n'
        "        if y is not None and not isinstance(y, (int, float)):\n"
        '            raise TypeError(f"y must be float, not {type(y).__name__}")\n'
        "        # both\n",
    )


@pytest.mark.parametrize(
    "body",
    [
        "assert x > 0",
        "if x < 0: raise ValueError(x)",
        "self.validate(x)",
        "return {'sum': 1.0 if x else 2.0}",
        "match x:\n            case _: pass",
        "require_positive(x)",
    ],
)
def test_input_that_is_looked_at_counts_as_validated(tmp_path: Path, body: str) -> None:
    text = f'class A(GraphBusNode):\n    @schema_method({{"x": int}})\n    def f(self, x: int):\n        {body}\n'
    assert found(read(tmp_path, text), "GB210") == []


@pytest.mark.parametrize("body", ["return x", "'''Only text.'''"])
def test_a_guard_has_no_place_in_a_body_without_a_line_of_its_own(tmp_path: Path, body: str) -> None:
    text = f'class A(GraphBusNode):\n    @schema_method({{"x": int}})\n    def f(self, x: int): {body}\n'
    assert not only_finding(read(tmp_path, text), "GB210").is_fixable


@pytest.mark.parametrize("name", ["int", "isinstance", "TypeError"])
def test_a_guard_is_not_written_where_its_names_mean_something_else(tmp_path: Path, name: str) -> None:
    text = f'{name} = 1\nclass A(GraphBusNode):\n    @schema_method({{"x": "integer"}})\n    def f(self, x):\n        return x\n'
    assert not any(each.is_fixable for each in rules.check(read(tmp_path, text), select=["GB210"]))


def test_the_guard_works(tmp_path: Path) -> None:
    project = apply_fix(before := read(tmp_path, UNCHECKED), rules.fix_for(only_finding(before, "GB210"), before))
    names: dict[str, object] = {"Foreign": str}
    exec(compile(project.source("agents.py").text, "agents.py", "exec"), names)
    agent = names["A"]()  # type: ignore[operator]
    assert agent.f(1) == {"sum": 2.0}
    with pytest.raises(TypeError, match="x must be int, not str"):
        agent.f("1")
    assert not issubclass(TypeError, GraphBusError)
