"""What may get into a pipeline, and what is refused: branches, schedules, environments, paths and commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphbus_core.deploy.pipelines import check_cron, check_ref_name, check_script_text
from graphbus_core.errors import DeployError


def check_path(text: str) -> str:
    return check_script_text(text, "path")


def check_command(text: str) -> str:
    return check_script_text(text, "command")


@pytest.mark.parametrize(
    "cron",
    ["* * * * *", "0 0 1 1 0", "59 23 31 12 7", "*/15 8-18 * * mon-fri", "5,35 4 1,15 JAN,jul SUN", "0-30/10 * * * *"],
)
def test_a_schedule_of_five_fields_is_taken(cron: str) -> None:
    assert check_cron(f"  {cron.replace(' ', '  ')} ") == cron


@pytest.mark.parametrize("cron", ["", "* * * *", "0 0 * * * *", "@daily", "*/0 * * * *", "1, * * * *", "٣ * * * *"])
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    with pytest.raises(DeployError, match="GBE703"):
        check_cron(cron)


def check_branch(text: str) -> str:
    return check_ref_name(text, "branch")


def check_environment(text: str) -> str:
    return check_ref_name(text, "environment")


TAKEN: list[tuple[Callable[..., str], str]] = [
    *((check_branch, text) for text in ("main", "release/1.x", "a_b-c", "v1.0")),
    *((check_environment, text) for text in ("production", "eu-west/prod 1", "Prod_2.0")),
    *((check_path, text) for text in ("agents", "my agents", "ä/ö.txt", "a'b", "a & b", "x#y")),
    (check_command, "-x"),
]
NO_BRANCHES = (
    "", "*", "HEAD", "refs/heads/main", "release/**", "!main", "a b", "-x", "a..b", "a/", "/a", "a//b",
    "x.lock", "x.", ".x", "a'b", "$(x)", "a\n", "ä" * 3, "x" * 201,
)  # fmt: skip
NO_ENVIRONMENTS = ("", " x", "x ", "a:b", "${{ x }}", "x" * 64, "a\nb")
NO_COMMANDS = ("", "a\nb", "a\rb", "x\x00", "\x1b[0m", "a\u2028b", "${{ secrets.KEY }}")
NO_PATHS = ("--option", "$HOME", "a*", "a?", "[a]", "{a,b}", "a\\b", "#a", "!a", "~a", " a", "a ")
REFUSED = [
    *((check_branch, text, "GBE703") for text in NO_BRANCHES),
    *((check_environment, text, "GBE703") for text in NO_ENVIRONMENTS),
    *((check_command, text, "GBE737") for text in NO_COMMANDS),
    *((check_path, text, "GBE737") for text in (*NO_COMMANDS, *NO_PATHS)),
]


@pytest.mark.parametrize(("check", "text"), TAKEN)
def test_what_may_stand_in_a_pipeline_is_taken(check: Callable[..., str], text: str) -> None:
    assert check(text) == text


@pytest.mark.parametrize(("check", "text", "code"), REFUSED)
def test_what_a_forge_or_a_shell_would_take_for_something_else_is_refused(
    check: Callable[..., str], text: str, code: str
) -> None:
    with pytest.raises(DeployError, match=code):
        check(text)
