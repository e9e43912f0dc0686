"""Sources that only Python 3.12 or 3.13 can read: there they are read rightly, and an older one says what they need."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler import memory
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import BuildConfig
from graphbus_core.schema.types import Type
from graphbus_core.settings import resolve_build
from tests.project_files import write_project
from tests.reading import HEAD, read_files

IS_312 = sys.version_info >= (3, 12)

AGENT = (
    HEAD
    + """\
from typing import TypedDict

class T(TypedDict):
    wrong: str

class Order(TypedDict):
    sku: str

class Box[T](TypedDict):
    inside: T
    order: Order

type Placed = Order
type Maybe = Placed | None
type Many[T] = list[T]
type Topic = "/Not/A/Topic"
type Late = Further

class Base[Order](GraphBusNode):
    def inherited(self, it: Order): ...

class A[T](Base[T]):
    @schema_method(input_schema={"order": Placed}, output_schema={"text": str})
    def place(self, order: Placed):
        self.publish("/Shop/Placed", {"text": f"{f"{order["sku"]}"}, {'\\n'.join([])}"})
        self.publish(Topic, {})
        return {"text": f"{order["sku"]!r:>{3 + len("x")}}"}

    def of_class(self, it: T) -> T: ...
    @schema_method(input_schema={"it": Order}, output_schema=Order)
    def of_method[Order: (int, str)](self, it: Order) -> Order: ...
    def alias(self, it: Maybe): ...
    def generic(self, it: Many[int]): ...
    def bare(self, it: Many): ...
    def late(self, it: Late): ...
    def box(self, it: Box): ...
    def plain(self, it: Order): ...

type Further = int
"""
)


@pytest.fixture
def agent(tmp_path: Path) -> AgentDefinition | None:
    """The agent `A` above; None where this Python cannot read it, which is then what was said."""
    project = read_files(tmp_path, {"module.py": AGENT})
    if IS_312:
        assert [str(error) for error in project.errors if error.code != "GBE214"] == []
        return project.agent("A")
    assert [error.code for error in project.errors] == ["GBE201"]
    assert project.errors[0].code == "GBE201"
    assert str(project.errors[0].where) == "module.py:10:10"
    return None


ORDER = "record Order"
PARAMETERS = [
    ("place", ORDER),
    ("of_class", "unknown T"),
    ("of_method", "unknown Order"),
    ("inherited", "unknown Order"),
    ("alias", f"union({ORDER}, null)"),
    ("generic", "unknown Many[int]"),
    ("bare", "list(unknown T)"),
    ("late", "int"),
    ("plain", ORDER),
]


def told(kind: Type) -> str:
    inner = ", ".join(map(told, kind.args))
    return f"{kind.kind} {kind.name}".strip() + (f"({inner})" if inner else "")


@pytest.mark.parametrize(("name", "expected"), PARAMETERS)
def test_an_annotation_means_what_it_means_to_python(agent: AgentDefinition | None, name: str, expected: str) -> None:
    if agent is not None:
        methods = {method.name: method for method in agent.methods}
        assert told(methods[name].parameters[0].type) == expected


def test_a_decorator_does_not_see_the_type_parameters_of_its_method(agent: AgentDefinition | None) -> None:
    if agent is not None:
        method = {method.name: method for method in agent.methods}["of_method"]
        assert method.input_schema is not None
        assert method.output_schema is not None
        assert told(method.input_schema.fields[0].type) == ORDER
        assert [field.name for field in method.output_schema.fields] == ["sku"]
        assert told(method.returns) == "unknown Order"


def test_the_fields_of_a_class_with_type_parameters_are_those_of_its_own(agent: AgentDefinition | None) -> None:
    if agent is not None:
        box = {method.name: method for method in agent.methods}["box"].parameters[0].type
        assert [(field.name, told(field.type)) for field in box.fields] == [("inside", "unknown T"), ("order", ORDER)]


def test_the_name_of_a_type_is_not_taken_for_its_value(agent: AgentDefinition | None) -> None:
    if agent is not None:
        assert sorted({item.topic for item in agent.publications}) == ["", "/Shop/Placed"]


def test_a_name_that_an_inner_function_binds_as_a_type_is_bound_again() -> None:
    if IS_312:
        [function] = ast.parse("def f(self):\n    T = 1\n    def g[T, *Ts, **P](it: T): ...\n    type X = T\n").body
        assert isinstance(function, ast.FunctionDef)
        body = Body(function, "self")
        assert {name: len(values) for name, values in body.bound.items() if name != "it"} == {
            "T": 2,
            "Ts": 1,
            "P": 1,
            "g": 1,
            "X": 1,
        }


def test_what_one_python_has_read_is_read_again_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, {"agents/a.py": HEAD + "class A(GraphBusNode): pass\n"})
    request = BuildConfig(paths=(str(tmp_path / "agents"),))
    config = resolve_build(request)
    parsed: list[str] = []
    monkeypatch.setattr(ast, "parse", noting(parsed, ast.parse))

    def read() -> tuple[bool, int]:
        parsed.clear()
        is_known = memory.recall_build(config) is not None
        Project.read(config)
        return is_known, len(parsed)

    run_build_pipeline(request)
    assert read() == (True, 0)
    with monkeypatch.context() as other:
        other.setattr(sys, "version_info", (3, sys.version_info.minor + 1, 0, "final", 0))
        assert read() == (False, 1)


def noting(parsed: list[str], parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    def note(*args: object, **options: object) -> ast.AST:
        parsed.append(str(args[1:2]))
        return parse(*args, **options)

    return note
