"""What may get into a pipeline, and what is refused: branches, schedules, environments, paths, versions of Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphbus_core.deploy.pipelines.plan import (
    check_branch,
    check_cron,
    check_environment,
    check_plain,
    choose_python,
)
from graphbus_core.errors import DeployError


def code_of(action: Callable[..., object], *arguments: str) -> str:
    with pytest.raises(DeployError) as refused:
        action(*arguments)
    return refused.value.code


@pytest.mark.parametrize(
    "cron",
    ["* * * * *", "0 0 1 1 0", "59 23 31 12 7", "*/15 8-18 * * mon-fri", "5,35 4 1,15 JAN,jul SUN", "0-30/10 * * * *"],
)
def test_a_schedule_of_five_fields_is_taken(cron: str) -> None:
    assert check_cron(f"  {cron.replace(' ', '  ')} ") == cron


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 0 * * * *", "6 fields"),
        ("@daily", "1 fields"),
        ("60 * * * *", "'60' is no minute"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * 13 *", "'13' is no month"),
        ("* * * * 8", "'8' is no day of the week"),
        ("* * * mon *", "'mon' is no month"),
        ("5/10 * * * *", "'5/10' is no minute"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("*/ * * * *", "'*/' is no minute"),
        ("9-5 * * * *", "'9-5' is no minute"),
        ("1, * * * *", "'' is no minute"),
        ("-1 * * * *", "'-1' is no minute"),
        ("? * * * *", "'?' is no minute"),
        ("٣ * * * *", "is no minute"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field_that_is_wrong(cron: str, said: str) -> None:
    with pytest.raises(DeployError, match="GBE703") as refused:
        check_cron(cron)
    assert said in refused.value.sentence


@pytest.mark.parametrize("branch", ["main", "release/1.x", "a_b-c", "v1.0"])
def test_the_name_of_a_branch_is_taken(branch: str) -> None:
    assert check_branch(branch) == branch


@pytest.mark.parametrize(
    "branch",
    ["", "*", "HEAD", "refs/heads/main", "release/**", "!main", "a b", "-x", "a..b", "a/", "/a", "a//b",
     "x.lock", "x.", ".x", "a'b", "$(x)", "a\n", "ä" * 3, "x" * 201],
)  # fmt: skip
def test_what_is_no_branch_or_a_pattern_is_refused(branch: str) -> None:
    assert code_of(check_branch, branch) == "GBE703"


@pytest.mark.parametrize("name", ["production", "eu-west/prod 1", "Prod_2.0"])
def test_the_name_of_an_environment_is_taken(name: str) -> None:
    assert check_environment(name) == name


@pytest.mark.parametrize("name", ["", " x", "x ", "a:b", "${{ x }}", "x" * 64, "a\nb"])
def test_what_is_no_environment_is_refused(name: str) -> None:
    assert code_of(check_environment, name) == "GBE703"


@pytest.mark.parametrize("text", ["agents", "my agents", "ä/ö.txt", "a'b", "a & b", "x#y"])
def test_one_line_of_text_may_stand_in_a_script(text: str) -> None:
    assert check_plain(text, "path") == text


@pytest.mark.parametrize("text", ["", "a\nb", "a\rb", "x\x00", "\x1b[0m", "a\u2028b", "${{ secrets.KEY }}", "--option",
                                  "$HOME", "a*", "a?", "[a]", "{a,b}", "a\\b", "#a", "!a", "~a", " a", "a "])  # fmt: skip
def test_what_a_forge_or_a_shell_would_take_for_something_else_is_refused(text: str) -> None:
    assert code_of(check_plain, text, "path") == "GBE737"


def test_a_command_may_begin_with_a_hyphen_but_a_path_may_not() -> None:
    assert check_plain("-x", "command") == "-x"


@pytest.mark.parametrize(
    ("wanted", "requires", "chosen"),
    [
        ("", "", "3.11"),
        ("", ">=3.11", "3.11"),
        ("", ">=3.12,<3.14", "3.12"),
        ("", "~=3.14", "3.14"),
        ("3.11", "", "3.11"),
        ("3.12", ">=3.11", "3.12"),
        ("3.14", ">=3.12,!=3.13.*", "3.14"),
    ],
)
def test_the_python_of_the_jobs_is_that_of_the_image_unless_another_is_wanted(
    wanted: str, requires: str, chosen: str
) -> None:
    assert choose_python(wanted, requires) == chosen


@pytest.mark.parametrize(
    ("wanted", "requires", "code"),
    [("3.10", "", "GBE713"), ("3", "", "GBE713"), ("", "<3.11", "GBE713"), ("3.11", ">=3.12", "GBE738")],
)
def test_a_python_that_there_is_not_or_that_the_project_forbids_is_refused(
    wanted: str, requires: str, code: str
) -> None:
    assert code_of(choose_python, wanted, requires) == code
