"""Which image a project builds on."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from graphbus_core.deploy.image import check_base
from graphbus_core.deploy.names import DEFAULT_PYTHON, choose_python
from graphbus_core.errors import DeployError

DIGEST = f"@sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("requires", "version"),
    [
        ("", "3.11"),
        (">=3.11", "3.11"),
        (">=3.12", "3.12"),
        (">=3.11, !=3.11.*", "3.12"),
        ("==3.12.*", "3.12"),
        ("~=3.12.1", "3.12"),
        (">3.13.99", "3.14"),
        ("!=3.11.17", "3.12"),
        ("nonsense", "3.11"),
    ],
)
def test_the_default_is_taken_where_the_project_allows_it(requires: str, version: str) -> None:
    assert choose_python("", requires) == version


def test_the_default_is_the_python_that_graphbus_is_tested_with() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    assert pyproject["tool"]["mypy"]["python_version"] == DEFAULT_PYTHON
    assert f">={DEFAULT_PYTHON}" == pyproject["project"]["requires-python"]


def test_a_version_that_was_asked_for_is_taken_if_the_project_allows_it() -> None:
    assert choose_python("3.13", ">=3.11") == "3.13"
    assert choose_python("3.14", ">=3.12,!=3.13.*") == "3.14"
    with pytest.raises(DeployError, match="GBE738"):
        choose_python("3.11", ">=3.13")


@pytest.mark.parametrize(("python", "requires"), [("3.10", ""), ("3", ""), ("", "<3.11")])
def test_there_is_no_image_for_every_python(python: str, requires: str) -> None:
    with pytest.raises(DeployError, match=r"GBE713") as refusal:
        choose_python(python, requires)
    assert "3.11, 3.12, 3.13, 3.14" in (refusal.value.hint or "")


def test_another_base_must_have_a_digest() -> None:
    assert check_base(f"ghcr.io/acme/python:3.13{DIGEST}", may_float=False)
    with pytest.raises(DeployError, match="GBE712"):
        check_base("ghcr.io/acme/python:3.13", may_float=False)
    assert check_base("ghcr.io/acme/python:3.13", may_float=True)
    with pytest.raises(DeployError, match="GBE703"):
        check_base("No Image", may_float=True)
