"""The terminal sessions of the documentation are run, and a difference is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.transcript import SessionError, rerun

SCRIPT = Path(__file__).parents[3] / "scripts" / "transcript.py"

pytestmark = pytest.mark.slow


def console(*lines: str, note: str = "") -> str:
    return "\n".join([*([f"<!-- {note} -->"] if note else []), "```console", *lines, "```", ""])


def test_the_output_of_a_command_replaces_what_the_document_shows() -> None:
    assert rerun(console("$ echo new", "old")) == console("$ echo new", "new")


def test_text_around_the_blocks_and_blocks_of_other_languages_stay() -> None:
    text = "# Title\n\n```sh\n$ exit 1\n```\n\n" + console("$ echo a", "a") + "\nThe end.\n"
    assert rerun(text) == text


def test_a_difference_in_durations_alone_is_none() -> None:
    text = console(
        "$ echo '3 passed in 0.12s, then 1.5 ms and 2 seconds'", "3 passed in 9.99s, then 7 ms and 3 seconds"
    )
    assert rerun(text) == text


@pytest.mark.parametrize(
    "shown", [("1", "...", "5"), ("...", "4", "5"), ("1", "..."), ("...",), ("1", "2", "...", "3", "4", "5")]
)
def test_lines_may_be_left_out(shown: tuple[str, ...]) -> None:
    text = console("$ seq 5", *shown)
    assert rerun(text) == text


@pytest.mark.parametrize("shown", [("2", "...", "5"), ("...", "3"), ("1", "...", "6", "...", "5")])
def test_what_is_not_left_out_must_be_there_in_this_order(shown: tuple[str, ...]) -> None:
    assert rerun(console("$ seq 5", *shown)) == console("$ seq 5", "1", "2", "3", "4", "5")


def test_a_block_with_a_file_is_written_and_seen_by_later_commands() -> None:
    text = "<!-- file: a/b.txt -->\n```text\nhello\n```\n" + console("$ cd a", "$ cat b.txt", "hello")
    assert rerun(text) == text


def test_a_note_belongs_to_the_block_that_follows_and_to_no_other() -> None:
    text = "<!-- file: a.txt -->\n```text\none\n```\n\n<!-- file: b.txt -->\n```text\ntwo\n```\n"
    text += console("$ cat a.txt b.txt", "one", "two")
    assert rerun(text) == text


def test_blocks_share_one_folder_whose_name_is_not_shown() -> None:
    text = console("$ mkdir inner", "$ cd inner") + console("$ pwd", "~/inner")
    assert rerun(text) == text


def test_a_command_goes_on_behind_a_backslash() -> None:
    text = console("$ echo one \\", "    two", "one two")
    assert rerun(text) == text


@pytest.mark.parametrize(
    ("body", "note"),
    [("$ exit 3", ""), ("$ true", "exit status 3"), ("$ exit 2", "exit status 3")],
    ids=["0", "3", "3 for 2"],
)
def test_an_unexpected_exit_status_is_an_error(body: str, note: str) -> None:
    with pytest.raises(SessionError, match=r"ended with \d"):
        rerun(console(body, note=note))


def test_an_expected_exit_status_belongs_to_the_last_command() -> None:
    text = console("$ true", "$ exit 3", note="exit status 3")
    assert rerun(text) == text


def test_a_preparation_is_run_and_not_shown() -> None:
    text = console("$ cat a.txt", "prepared", note="run: echo prepared > a.txt")
    assert rerun(text) == text


def test_a_preparation_that_fails_is_an_error() -> None:
    with pytest.raises(SessionError, match="`false` ended with 1"):
        rerun(console("$ true", note="run: false"))


def test_a_block_that_is_not_run_stays() -> None:
    text = console("$ exit 3", note="not run")
    assert rerun(text) == text


@pytest.mark.parametrize(("shown", "status"), [("right", 0), ("wrong", 1)])
def test_a_check_compares_and_leaves_the_document_alone(shown: str, status: int, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(console("$ echo right", shown))
    finished = subprocess.run([sys.executable, SCRIPT, "--check", page], capture_output=True, text=True, check=False)
    assert finished.returncode == status
    assert page.read_text() == console("$ echo right", shown)
    assert ("+right" in finished.stdout) == bool(status)


def test_without_a_check_the_document_is_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(console("$ echo right", "wrong"))
    subprocess.run([sys.executable, SCRIPT, page], check=True)
    assert page.read_text() == console("$ echo right", "right")
