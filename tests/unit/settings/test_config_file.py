"""The file that GRAPHBUS_CONFIG or `--config` names: it goes before the project, key by key, and is judged as strictly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from graphbus_core import cli, settings
from graphbus_core.cli import COMMANDS, CommandEntry, main
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.model.config import BuildConfig, RuntimeConfig
from graphbus_core.negotiation.sessions import digest_of_settings
from tests.patience import PATIENCE_S
from tests.project_files import write_project

PROJECT = """\
[tool.graphbus]
exclude = ["old/*"]
external_topics = ["/Outside/*"]
[tool.graphbus.runtime]
history = 7
state_dir = "state"
[tool.graphbus.runtime.serve]
port = 1234
allowed_hosts = ["one", "two"]
[tool.graphbus.llm.providers.office]
base_url = "https://models.example.org/v1"
input_usd = 2
"""
PLACE = """\
[runtime]
state_dir = "/var/lib/graphbus"
[runtime.serve]
allowed_hosts = ["three"]
[llm.providers.office]
input_usd = 3
"""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a command of the test's own into the table."""

    def add(function: Callable[[], object]) -> None:
        monkeypatch.setitem(COMMANDS, "probe", CommandEntry(f"{__name__}:probe", "A command of a test.", "Run"))
        monkeypatch.setattr(sys.modules[__name__], "probe", click.Command("probe", callback=function), raising=False)

    return add


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", {"pyproject.toml": PROJECT})


def name_file(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, name: str = "place.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv(settings.CONFIG_VARIABLE, str(path))
    return path


def refused(root: Path) -> list[tuple[str, str, int, str]]:
    """Code, file, line and sentence of each error."""
    with pytest.raises(GraphBusError) as caught:
        settings.load(root)
    errors = caught.value.errors if isinstance(caught.value, SeveralErrors) else (caught.value,)
    return [
        (e.code, Path(e.where.path).name if e.where else "", e.where.line if e.where else 0, e.sentence) for e in errors
    ]


def test_a_key_of_the_place_takes_that_of_the_project_away_and_all_others_stay(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(monkeypatch, tmp_path, PLACE)
    found = settings.load(project)
    assert found.exclude == ("old/*",)
    assert found.external_topics == ("/Outside/*",)
    assert (found.runtime.history, found.runtime.state_dir) == (7, "/var/lib/graphbus")
    assert (found.runtime.serve.port, found.runtime.serve.allowed_hosts) == (1234, ("three",))
    office = found.llm.providers["office"]
    assert (office.base_url, office.input_usd) == ("https://models.example.org/v1", 3)


def test_a_run_sees_the_place_also_where_the_project_has_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(monkeypatch, tmp_path, "[runtime]\nstate_dir = '/var/lib/graphbus'\n")
    for text in ({}, {"pyproject.toml": "[project]\nname = 'x'\n"}, {"pyproject.toml": PROJECT}):
        root = write_project(tmp_path / f"p{len(str(text))}", {".graphbus/x": "", **text})
        monkeypatch.chdir(root)
        assert settings.resolve_run(RuntimeConfig(artifacts=".graphbus")).state_dir == "/var/lib/graphbus"


def test_the_request_goes_before_the_place(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_file(monkeypatch, tmp_path, "[runtime]\nvalidation = 'off'\n[safety]\nmax_negotiation_rounds = 4\n")
    run = settings.resolve_run(RuntimeConfig(artifacts=str(project / ".graphbus"), validation="warn"))
    assert run.settings.validation == "warn"
    build = settings.resolve_build(BuildConfig(paths=(str(project),), rounds=9))
    assert build.settings.safety.max_negotiation_rounds == 9


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("place.toml", "intent = 'mine'\n"),
        ("pyproject.toml", "[project]\nname = 'x'\n[tool.graphbus]\nintent = 'mine'\n"),
        ("other.toml", "[tool.black]\n[tool.graphbus]\nintent = 'mine'\n"),
    ],
)
def test_both_spellings_are_understood(
    name: str, text: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(monkeypatch, tmp_path, text, name)
    assert settings.load(project).intent == "mine"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_changes_nothing(
    text: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = settings.load(project)
    name_file(monkeypatch, tmp_path, text)
    assert settings.load(project) == without


def test_an_empty_variable_names_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.CONFIG_VARIABLE, "")
    assert settings.load(project).runtime.history == 7


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        ("[runtime]\nhistroy = 1\n", "GBE102", 2, "Unknown key 'histroy' in [runtime]. Did you mean 'history'?"),
        ("intnet = 'x'\n", "GBE102", 1, "in the settings. Did you mean 'intent'?"),
        ("[runtimes]\n", "GBE102", 1, "Did you mean 'runtime'?"),
        ("[tool.graphbsu]\n", "GBE102", 1, "Unknown key 'tool'"),
        ("\n[runtime]\nhistory = 'x'\n", "GBE103", 3, "history in [runtime] must be a whole number, not 'x'."),
        ("artifacts = '/tmp'\n", "GBE103", 1, "must be a folder inside the project"),
        (
            "[llm.providers.home]\ninput_usd = 1\n",
            "GBE144",
            1,
            "The required key `base_url` is missing in [llm.providers.home].",
        ),
        ("runtime = 3\n", "GBE103", 1, "runtime in the settings must be a table, not 3."),
        ("[runtime\n", "GBE104", 1, "This file is not valid TOML"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_file_and_line(  # noqa: PLR0917
    text: str, code: str, line: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_file(monkeypatch, tmp_path, text)
    ((found_code, file, found_line, sentence),) = refused(tmp_path / "project")
    assert (found_code, file, found_line) == (code, "place.toml", line)
    assert words in sentence


def test_mistakes_of_project_and_place_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path / "project", {"pyproject.toml": "[tool.graphbus]\nintnet = ''\n"})
    name_file(monkeypatch, tmp_path, "\nexlude = []\n")
    assert [found[:3] for found in refused(root)] == [("GBE102", "pyproject.toml", 2), ("GBE102", "place.toml", 2)]


def test_a_file_that_is_not_there_is_never_passed_over(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, reason in ((tmp_path / "missing.toml", "no such file or directory"), (tmp_path, "is a directory")):
        monkeypatch.setenv(settings.CONFIG_VARIABLE, str(path))
        assert refused(project) == [("GBE161", "", 0, f"The settings file {path} cannot be read: {reason}.")]
        with pytest.raises(GraphBusError, match="GBE161"):
            settings.resolve_run(RuntimeConfig(artifacts=str(project / ".graphbus")))


def test_the_digest_of_the_settings_sees_it(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of_settings(settings.load(project))
    name_file(monkeypatch, tmp_path, "external_topics = ['/Elsewhere/*']\n")
    assert digest_of_settings(settings.load(project)) != before


# --- graphbus --config ----------------------------------------------------------------------


def test_the_option_goes_before_the_variable_and_ends_with_the_command(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., None]
) -> None:
    seen: list[tuple[str, str]] = []
    command(lambda: seen.append((settings.load(project).intent, os.environ[settings.CONFIG_VARIABLE])))
    before = name_file(monkeypatch, tmp_path, "intent = 'of the variable'\n")
    given = tmp_path / "given.toml"
    given.write_text("intent = 'of the option'\n", encoding="utf-8")
    assert main(["--config", str(given), "probe"]) == 0
    assert seen == [("of the option", str(given))]
    assert os.environ[settings.CONFIG_VARIABLE] == str(before)
    monkeypatch.delenv(settings.CONFIG_VARIABLE)
    assert main(["--config", str(given), "probe"]) == 0
    assert settings.CONFIG_VARIABLE not in os.environ


@pytest.mark.parametrize(
    "words", [["-C", "{folder}", "--config", "given.toml"], ["--config", "given.toml", "-C", "{folder}"]]
)
def test_the_file_is_looked_for_where_the_command_works(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., None]
) -> None:
    monkeypatch.delenv(settings.CONFIG_VARIABLE, raising=False)
    seen: list[str] = []
    command(lambda: seen.append(os.environ[settings.CONFIG_VARIABLE]))
    (tmp_path / "given.toml").touch()
    assert main([*(word.format(folder=tmp_path) for word in words), "probe"]) == 0
    assert seen == [str(tmp_path / "given.toml")]


def test_a_file_that_is_not_there_is_refused_before_the_command_begins(
    tmp_path: Path, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda: pytest.fail("it began"))
    assert main(["--config", str(tmp_path / "missing.toml"), "probe"]) == 2
    assert "missing.toml' does not exist. [GBE110]" in capsys.readouterr().err


def test_the_variable_has_one_name() -> None:
    assert cli.CONFIG_VARIABLE == settings.CONFIG_VARIABLE


@pytest.mark.slow
def test_a_deployed_graph_reads_it(tmp_path: Path) -> None:
    from graphbus_core import build_graph

    agent = "from graphbus_core import GraphBusNode\n\n\nclass Hello(GraphBusNode):\n    pass\n"
    root = write_project(
        tmp_path / "project", {"agents/hello.py": agent, "main.py": "def run(graph):\n    print(graph.grace_s)\n"}
    )
    build_graph(root / "agents")
    place = tmp_path / "place.toml"
    environment = os.environ | {settings.CONFIG_VARIABLE: str(place)}
    command = [sys.executable, "-m", "graphbus_core.runtime", "--entrypoint", "main:run"]

    def run(text: str) -> subprocess.CompletedProcess[str]:
        place.write_text(text, encoding="utf-8")
        return subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    assert run("[runtime]\ngrace_s = 3.5\n").stdout.splitlines()[-1] == "3.5"
    wrong = run("[runtime]\ngrace = 3\n")
    assert wrong.returncode == 2
    assert f"{place}:2: Unknown key 'grace' in [runtime]." in wrong.stderr
