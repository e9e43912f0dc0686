"""`graphbus init`: what a new project holds, and what is refused."""

from __future__ import annotations

import ast
import json
import resource
import tomllib
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.cli.init import NEXT_STEPS

EXAMPLES = Path(__file__).parents[2] / "examples"
MADE_ELSEWHERE = {".graphbus", "__pycache__", ".pytest_cache", "digest.md"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["init", *arguments]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    return streams.err


@pytest.mark.parametrize("template", NEXT_STEPS)
def test_a_new_project_is_python_toml_and_a_readme_without_blanks_left(template: str, here: Path) -> None:
    assert main(["init", "my-project", "--template", template]) == 0
    made = files(here / "my-project")
    assert {"pyproject.toml", "README.md", ".gitignore"} <= set(made)
    for path, content in made.items():
        assert b"${" not in content
        assert content.endswith(b"\n")
        if path.endswith(".py"):
            ast.parse(content)
    settings = tomllib.loads(made["pyproject.toml"].decode())
    assert settings["project"]["name"] == "my-project"
    assert "intent" not in settings["tool"]["graphbus"]
    assert made["README.md"].startswith(b"# my-project\n")


@pytest.mark.parametrize(("template", "example"), [("hello", "hello_graphbus"), ("news", "news")])
def test_a_template_and_the_example_that_it_is_made_from_do_not_drift_apart(
    template: str, example: str, here: Path
) -> None:
    assert main(["init", "my-project", "--template", template]) == 0
    made = files(here / "my-project")
    shown = {
        path: content for path, content in files(EXAMPLES / example).items() if not MADE_ELSEWHERE & {*Path(path).parts}
    }
    assert set(made) - {".gitignore"} == set(shown) - {".gitignore"}, "run scripts/templates.py"
    told_apart = {"README.md", "pyproject.toml", ".gitignore"}
    assert {path: made[path] for path in shown if path not in told_apart} == {
        path: content for path, content in shown.items() if path not in told_apart
    }
    tools = [tomllib.loads(each["pyproject.toml"].decode())["tool"] for each in (made, shown)]
    assert tools[0] == tools[1]


def test_the_shop_is_the_default_and_has_its_four_agents(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my-shop"]) == 0
    agents = {path.stem for path in (here / "my-shop" / "agents").glob("*.py")}
    assert agents == {"__init__", "arbiter", "inventory", "notification", "order_processor"}
    shown = capsys.readouterr().out
    assert "✓ Made my-shop" in shown
    assert "cd my-shop" in shown
    assert "graphbus build agents/ --enable-agents" in shown


@pytest.mark.parametrize("intent", ['say "please"', "back\\slash", "two\nlines\tand a tab", "\x7f\x01 ü $name ${x}"])
def test_the_intent_is_kept_as_it_was_typed(intent: str, here: Path) -> None:
    assert main(["init", "my-shop", "--intent", intent]) == 0
    settings = tomllib.loads((here / "my-shop" / "pyproject.toml").read_text())
    assert settings["tool"]["graphbus"]["intent"] == intent


def test_an_intent_that_is_no_text_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[GBE113]" in refusal(capsys, "my-shop", "--intent", "\udcff")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["my shop", "-shop", "shöp", ".shop", "a" * 65, "GraphBus_Core", "sh$op", "a\nb"])
def test_a_name_that_python_projects_cannot_have_is_refused(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "[GBE111]" in refusal(capsys, "--", name)
    assert list(here.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused_and_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my-shop").mkdir()
    (here / "my-shop" / "notes.txt").write_text("mine")
    assert "my-shop: error: The destination already exists and is not an empty folder. [GBE112]" in refusal(
        capsys, "my-shop"
    )
    assert files(here) == {"my-shop/notes.txt": b"mine"}


def test_an_empty_folder_may_be_the_one_that_one_is_in(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "my-shop").mkdir()
    monkeypatch.chdir(here / "my-shop")
    assert main(["init", "."]) == 0
    assert Path("agents/order_processor.py").is_file()
    assert "cd " not in capsys.readouterr().out
    assert [path.name for path in here.iterdir()] == ["my-shop"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_disk_that_takes_no_more_leaves_nothing_behind(
    is_there: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_there:
        (here / "my-shop").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        status = main(["init", "my-shop"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 2
    assert "[GBE113]" in capsys.readouterr().err
    assert files(here) == {}
    assert [path.name for path in here.iterdir()] == ["my-shop"] * is_there


def test_json_says_what_was_made(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "work/my-shop", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["template"] == "shop"
    assert document["files"] == sorted(files(here / "work/my-shop"))


@pytest.mark.parametrize("template", list(NEXT_STEPS))
def test_a_new_project_asks_no_index_for_the_package_of_somebody_else(template: str, tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "my-project"), "--template", template]) == 0
    project = tomllib.loads((tmp_path / "my-project" / "pyproject.toml").read_text())["project"]
    assert not [each for each in project["dependencies"] if each.startswith("graphbus")]
