"""What a page shows is typed into a real shell, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.terminal import Shell
from scripts.transcript import BLOCK, SessionError

pytestmark = pytest.mark.slow


@pytest.fixture
def typed(tmp_path: Path):
    shell = Shell(tmp_path, tmp_path)
    yield lambda page: BLOCK.sub(shell.type_block, page)
    shell.close()


def console(*lines: str, note: str = "") -> str:
    return "\n".join([*([f"<!-- {note} -->"] if note else []), "```console", *lines, "```", ""])


def test_what_is_shown_is_replaced_by_what_came_out(typed: Callable[[str], str]) -> None:
    assert typed(console("$ echo new", "old")) == console("$ echo new", "new")


def test_the_shell_keeps_its_folder_and_its_variables(typed: Callable[[str], str]) -> None:
    page = "```sh\nmkdir inner    # a comment is not typed\nexport NAME=Ada\n```\n" + console(
        "$ cd inner", "$ echo $NAME", "Ada"
    )
    assert typed(page + console("$ pwd", "~/inner")) == page + console("$ pwd", "~/inner")


def test_what_stands_behind_the_prompt_of_a_program_is_typed_into_it(typed: Callable[[str], str]) -> None:
    asking = """$ python -c 'print("hello " + input("graphbus> "))'"""
    page = console(asking, "graphbus> Ada", "hello Ada")
    assert typed(page) == page


def test_a_hidden_step_is_not_done(typed: Callable[[str], str]) -> None:
    assert typed(console("$ ls", note="run: touch hidden")) == console("$ ls", note="run: touch hidden")


@pytest.mark.parametrize(
    "page",
    [
        console("$ false"),
        console("$ true", note="exit status 3"),
        "```sh\nfalse\n```\n",
        "```sh\nno-such-command\n```\n",
    ],
)
def test_a_command_that_ends_otherwise_than_shown_is_an_error(typed: Callable[[str], str], page: str) -> None:
    with pytest.raises(SessionError, match=r"ended with \d+, not \d"):
        typed(page)


def test_make_test_is_typed_as_a_dry_run_and_its_target_must_be_there(
    typed: Callable[[str], str], tmp_path: Path
) -> None:
    with pytest.raises(SessionError, match="make test"):
        typed("```sh\nmake test\n```\n")
    (tmp_path / "Makefile").write_text("test:\n\ttouch it-was-run\n")
    typed("```sh\nmake test\n```\n")
    assert not (tmp_path / "it-was-run").exists()
