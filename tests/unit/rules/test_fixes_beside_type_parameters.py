"""Fixes of methods and classes with type parameters, which only Python 3.12 and newer can read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from tests.checking import fixed, only_finding, read, text_of

IS_312 = sys.version_info >= (3, 12)
ITEM = "from typing import TypedDict\nclass Item(TypedDict):\n    sku: str\n"


def readable(root: Path, text: str | Mapping[str, str]) -> Project | None:
    """The project; None where this Python cannot read it, which is then what was said."""
    project = read(root, text)
    said = [str(error) for error in project.errors]
    assert said or IS_312
    assert said == [] or not IS_312
    return project if IS_312 else None


def method(schemas: str, signature: str, body: str = "...", head: str = "class A(GraphBusNode):") -> str:
    return f"{ITEM}{head}\n    @schema_method({schemas})\n    def {signature}: {body}\n"


FIXED = {
    "the annotation of a parameter": (
        *("GB201", '{"x": int}'),
        *("f[T: (int, str)](self, x)", "f[T: (int, str)](self, x: int)"),
    ),
    "a type of the module": (
        *("GB201", '{"x": Item}'),
        *("f[T](self, x)", "f[T](self, x: Item)"),
    ),
}


@pytest.mark.parametrize(("code", "schemas", "before", "after"), FIXED.values(), ids=FIXED)
def test_a_method_with_type_parameters_is_fixed_like_others(
    tmp_path: Path, code: str, schemas: str, before: str, after: str
) -> None:
    body = "return {'x': 1}" if code == "GB202" else "..."
    if project := readable(tmp_path, method(schemas, before, body)):
        assert f"def {after}: {body}" in text_of(fixed(project, code))


REFUSED = {
    "a parameter of the method is a type": ("GB201", '{"x": Item}', "f[Item](self, x)"),
    "a parameter of the method is a builtin": ("GB201", '{"x": int}', "f[int](self, x)"),
    "the result": ("GB202", '{}, {"x": int}', "f[dict](self)"),
    "the decorator does not know it": ("GB102", '{"y": int}', "f[T](self, y: int, x: list[T])"),
    "the name is that of a type": ("GB101", '{"quantity": int}', "f[quantity](self, quantiti: int)"),
}


@pytest.mark.parametrize(("code", "schemas", "signature"), REFUSED.values(), ids=REFUSED)
def test_nothing_is_written_that_would_name_another_type(
    tmp_path: Path, code: str, schemas: str, signature: str
) -> None:
    body = "return {'x': 1}" if code == "GB202" else "..."
    if project := readable(tmp_path, method(schemas, signature, body)):
        assert not only_finding(project, code).is_fixable
