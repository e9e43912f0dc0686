"""docs/names-in-the-seeds.md, executed: each row of its table is looked up in the code, the command line and a real build."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import click
import pytest

from graphbus_core.build import BUILD
from graphbus_core.runtime import PIPELINE
from tests.commands import ALL
from tests.project_files import write_project

PAGE = Path(__file__).parents[2] / "docs" / "names-in-the-seeds.md"
NAMES = Path(__file__).with_name("names_in_the_seeds.txt")
ROW = re.compile(r"\| (00[012](?: [^|]+)?) \| (.+?) \| (.+) \|")
CODED = re.compile(r"`([^`]+)`")
COMMANDS = dict(ALL)
STAGES = {*BUILD.names, *PIPELINE.names}
FILES = {
    "pyproject.toml": """
        [project]
        name = "post"
        requires-python = ">=3.11"
        [tool.graphbus.gate]
        isolation = "process"
        """,
    "agents/__init__.py": "",
    "agents/sender.py": """
        from graphbus_core import GraphBusNode

        class Sender(GraphBusNode):
            def send(self) -> None:
                self.publish("/Letter/Sent", {"recipient": "Ada"})
        """,
    "agents/reader.py": """
        from graphbus_core import GraphBusNode, subscribe

        class Reader(GraphBusNode):
            @subscribe("/Letter/Sent")
            def on_letter(self, event):
                self.log(event["recipiant"])
        """,
    "agents/judge.py": """
        from graphbus_core import GraphBusNode

        class Judge(GraphBusNode):
            IS_ARBITER = True
        """,
}


class Row(NamedTuple):
    """A row of the table: where a seed prints a name, the name, and where it is."""

    seed: str
    printed: str
    where: str


class Session(NamedTuple):
    """A negotiation and a run of a real project: its folder, and all that both have printed."""

    root: Path
    output: str


def rows() -> list[Row]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [Row(*found.groups()) for line in lines if (found := ROW.fullmatch(line))]


ROWS = rows()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    root = write_project(tmp_path_factory.mktemp("post"), FILES)
    commands = [
        ["build", "agents/", "--enable-agents", "--model", "rules"],
        ["run", "--publish", "/Letter/Sent", '{"recipient": "Ada"}'],
    ]
    said = ""
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "graphbus_core", *command], cwd=root, capture_output=True, text=True, check=False
        )
        said += done.stdout + done.stderr
        assert done.returncode == 0, said
    return Session(root, said)


# --- what a row may say ----------------------------------------------------------------------------


def wrong_path(text: str, _session: Session) -> str:
    path, _, parameters = text.partition("(")
    try:
        found = _resolve(path)
    except (ImportError, AttributeError) as error:
        return f"{path} is not there: {error}"
    wanted = {name.strip() for name in parameters.rstrip(")").split(",") if name.strip()}
    missing = wanted - inspect.signature(found).parameters.keys() if wanted else ()
    return f"{path} does not take {sorted(missing)}" if missing else ""


def _resolve(path: str) -> Any:
    """Give what a dotted path names; a field of a class without a default value counts as there."""
    owner, _, name = path.rpartition(".")
    try:
        return resolve_name(path)
    except (ImportError, AttributeError):
        fields = {name for each in inspect.getmro(resolve_name(owner)) for name in inspect.get_annotations(each)}
        if name not in fields:
            raise
        return None


def wrong_command(text: str, _session: Session) -> str:
    program, *words = text.split()
    if program != "graphbus":
        return f"{program} is not our program"
    names = next((tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in COMMANDS), ())
    if not names:
        return f"there is no command {words[0]}"
    command, rest = COMMANDS[names], words[len(names) :]
    try:
        # click keeps the help option that it makes first, so it must be the one that all commands have.
        command.make_parser(click.Context(command, help_option_names=["-h", "--help"])).parse_args(rest)
    except click.ClickException as error:
        return error.format_message()
    return ""


def wrong_module(text: str, session: Session) -> str:
    _, _, module, *options = text.split()
    command = [sys.executable, "-m", module, "--help"]
    told = subprocess.run(command, cwd=session.root, capture_output=True, text=True, check=False).stdout
    return "" if all(option in told.split() for option in options) else f"{module} does not take {options}"


def wrong_output(text: str, session: Session) -> str:
    return "" if text in session.output else f"the session does not print {text!r}:\n{session.output}"


def wrong_file(text: str, session: Session) -> str:
    return "" if (session.root / text).is_file() else f"{text} is not written"


def wrong_key(text: str, session: Session) -> str:
    name, _, path = text.partition(": ")
    document = json.loads((session.root / ".graphbus" / name).read_bytes())
    found = list(_values(document, path.split(".")))
    if path.endswith(".diff") and not any(str(value).startswith("--- a/") for value in found):
        return f"{text} holds no diff"
    return "" if found else f"{text} is not in the artifact"


def _values(value: Any, steps: list[str]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    name, many, _ = steps[0].partition("[]")
    if isinstance(value, dict) and name in value:
        for each in value[name] if many else [value[name]]:
            yield from _values(each, steps[1:])


def wrong_stage(text: str, _session: Session) -> str:
    return "" if text in STAGES else f"there is no stage {text}"


CHECKS: dict[str, Callable[[str, Session], str]] = {
    "": wrong_path,
    "command ": wrong_command,
    "module ": wrong_module,
    "prints ": wrong_output,
    "writes ": wrong_file,
    "key ": wrong_key,
    "stage ": wrong_stage,
}


def problems_of(where: str, session: Session) -> list[str]:
    """Say what is wrong with the last cell of a row; a cell that says nothing that can be checked is wrong, too."""
    reason = where.removeprefix("not: ")
    if reason != where:
        return [] if len(reason.split()) > 5 else ["the reason is too short"]
    word, _, rest = where.partition("`")
    check, texts = CHECKS.get(word), CODED.findall(f"`{rest}")
    if check is None or not texts:
        return [f"{where!r} cannot be checked"]
    return [problem for text in texts if (problem := check(text, session))]


# --- the table ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_row_of_the_table_is_true(session: Session) -> None:
    found = [f"{row.printed}: {problem}" for row in ROWS for problem in problems_of(row.where, session)]
    assert found == []


def test_the_table_has_every_name_that_the_seeds_print() -> None:
    printed = " ".join(row.printed for row in ROWS)
    names = [line.partition(" ")[2] for line in NAMES.read_text(encoding="utf-8").splitlines()]
    assert len(names) > 200
    assert [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", printed)] == []


def test_each_line_of_the_table_is_a_row() -> None:
    table = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(ROWS) == len(table) - 2, "the head and the line below it are no rows"


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [
        "`graphbus_core.model.proposals.Proposal.no_such_field`",
        "`graphbus_core.model.proposals.Proposal(no_such_field)`",
        "`graphbus_core.no_such_module.Name`",
        "command `graphbus dance`",
        "command `graphbus build --no-such-option`",
        "module `python -m graphbus_core.build --no-such-option`",
        "prints `no such line`",
        "writes `.graphbus/no_such_file.json`",
        "key `negotiations.json: last.completed[].no_such_key`",
        "stage `NO_SUCH_STAGE`",
        "not: because",
        "somewhere in the code",
        "",
    ],
)
def test_a_row_that_is_not_true_is_found(session: Session, where: str) -> None:
    assert problems_of(where, session)
