"""`graphbus ci`: what it reads of a project, what it writes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graphbus_core import __version__
from graphbus_core.cli import main
from tests.project_files import write_project
from tests.unit.editing.git_project import git, make_repository

Streams = pytest.CaptureFixture[str]
GRAPHBUS = Path(sys.executable).with_name("graphbus")
HASH = f"--hash=sha256:{'0' * 64}"
PINNED = f"graphbus @ https://wheels.example.org/graphbus.whl {HASH}\npytest==9.2.0 \\\n    {HASH}\n"
AGENT = """
    from graphbus_core import GraphBusNode


    class Greeter(GraphBusNode):
        def on_ready(self) -> None:
            self.publish("/Greeted", {})
"""
WORKFLOW = Path(".github/workflows/graphbus.yml")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_repository(
        tmp_path / "shop",
        {
            "pyproject.toml": '[project]\nname = "shop"\nrequires-python = ">=3.11"\n',
            "requirements.txt": PINNED,
            "agents/greeter.py": AGENT,
        },
    )
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


def refusal(streams: Streams, *arguments: str) -> str:
    streams.readouterr()
    assert main(["ci", *arguments]) in {2, 8}
    return streams.readouterr().err


def test_a_forge_alone_is_enough(shop: Path, capsys: Streams) -> None:
    assert main(["ci", "github"]) == 0
    text = (shop / WORKFLOW).read_text()
    assert text.startswith("# Written by `graphbus ci github agents`")
    assert "run: graphbus check agents --format github" in text
    assert "pip install --require-hashes --requirement requirements.txt" in text
    assert not (shop / ".github/workflows/graphbus-negotiate.yml").exists()
    err = capsys.readouterr().err
    assert "then set the variable GRAPHBUS_DEPLOY to true" in err
    assert main(["ci", "github", "--check"]) == 0


def test_the_command_in_the_file_writes_the_same_file_again(shop: Path) -> None:
    write_project(shop, {"ci.txt": PINNED, "more/greeter2.py": AGENT.replace("Greeter", "Second")})
    options = ["--requirements", "ci.txt", "--install", "echo 'a b'", "--python", "3.12", "--branch", "trunk"]
    options += ["--environment", "eu", "--no-deploy", "--negotiate", "--schedule", "5 4 * * *", "--model", "rules"]
    assert main(["ci", "github", "agents", "more/greeter2.py", *options, "--max-usd", "2.5"]) == 0
    written = (shop / WORKFLOW).read_bytes()
    command = written.decode().splitlines()[0].removeprefix("# Written by `").partition("`")[0]
    assert "--schedule '5 4 * * *' --model rules --max-usd 2.5" in command
    done = subprocess.run(
        ["bash", "-c", f'graphbus() {{ "{GRAPHBUS}" "$@"; }}; {command} --check'],
        check=False,
    )
    assert done.returncode == 0


def test_other_content_is_kept_and_overwritten_only_with_force_and_a_diff(shop: Path, capsys: Streams) -> None:
    write_project(shop, {WORKFLOW.as_posix(): "name: mine\n"})
    assert "[GBE701]" in refusal(capsys, "github")
    assert (shop / WORKFLOW).read_text() == "name: mine\n"
    assert main(["ci", "github", "--diff"]) == 0
    assert "-name: mine" in capsys.readouterr().out
    assert "[GBE706]" in refusal(capsys, "github", "--check")
    assert main(["ci", "github", "--force"]) == 0
    assert "-name: mine" in capsys.readouterr().err
    assert "name: GraphBus" in (shop / WORKFLOW).read_text()


def test_a_pipeline_of_somebody_else_is_left_alone_and_includes_ours(shop: Path, capsys: Streams) -> None:
    assert main(["ci", "gitlab"]) == 0
    assert "a privileged runner" in capsys.readouterr().err
    assert main(["ci", "gitlab"]) == 0, "our own file is written again"
    write_project(shop, {".gitlab-ci.yml": "lint:\n  script: make lint\n"})
    capsys.readouterr()
    assert main(["ci", "gitlab"]) == 0
    assert (shop / ".gitlab-ci.yml").read_text().startswith("lint:")
    assert (shop / ".gitlab" / "graphbus.yml").is_file()
    assert "- local: .gitlab/graphbus.yml" in capsys.readouterr().err


def test_a_project_in_a_folder_of_its_repository_writes_to_the_top_and_works_below(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(
        shop / "services" / "Mail Out", {"pyproject.toml": "", "requirements.txt": PINNED, "agents/a.py": AGENT}
    )
    monkeypatch.chdir(shop / "services" / "Mail Out")
    assert main(["ci", "github"]) == 0
    text = (shop / ".github/workflows/graphbus-mail-out.yml").read_text()
    assert "working-directory: services/Mail Out" in text
    assert "cache-dependency-path: |\n            services/Mail Out/requirements.txt" in text
    assert main(["ci", "gitlab"]) == 0
    assert "cd 'services/Mail Out'" in (shop / ".gitlab/graphbus-mail-out.yml").read_text()


def test_projects_whose_folders_are_called_alike_are_told_apart_by_a_name(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    for folder in ("one/api", "two/api", "店"):
        write_project(shop / folder, {"pyproject.toml": "", "requirements.txt": PINNED, "agents/a.py": AGENT})
    monkeypatch.chdir(shop / "one" / "api")
    assert main(["ci", "github"]) == 0
    monkeypatch.chdir(shop / "two" / "api")
    assert "[GBE701]" in refusal(capsys, "github"), "that of the other is not overwritten"
    assert main(["ci", "github", "--name", "second-api"]) == 0
    assert "agents --name second-api`" in (shop / ".github/workflows/graphbus-second-api.yml").read_text()
    monkeypatch.chdir(shop / "店")
    assert "pass a name with --name" in refusal(capsys, "github")
    assert not (shop / WORKFLOW).exists(), "it would have the name of the project at the top"


FOLDERS_THAT_A_FORGE = ["cost$HOME", "a[b]", "c*", "#d", "back\\slash", "end "]


def test_folders_that_a_forge_would_read_as_something_else_are_refused(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    for folder in FOLDERS_THAT_A_FORGE:
        write_project(shop / folder, {"pyproject.toml": "", "requirements.txt": PINNED, "agents/a.py": AGENT})
        monkeypatch.chdir(shop / folder)
        assert "cannot be used in a pipeline as a path" in refusal(capsys, "github")


def test_a_repository_without_main_ships_from_the_branch_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, {"requirements.txt": PINNED, "agents/a.py": AGENT})
    git(tmp_path, "init", "-q", "-b", "master")
    monkeypatch.chdir(tmp_path)
    assert main(["ci", "github"]) == 0
    text = (tmp_path / WORKFLOW).read_text()
    assert "--branch master`" in text, "the command writes the same again where the branch cannot be seen"
    assert "refs/heads/master" in text


# --- where GraphBus comes from -----------------------------------------------------------------


@pytest.mark.parametrize("forge", ["github", "gitlab"])
@pytest.mark.parametrize("template", ["shop", "hello", "news", "blank"])
def test_a_new_project_has_its_pipeline_without_another_file(
    template: str, forge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", str(tmp_path / "new"), "--template", template]) == 0
    monkeypatch.chdir(tmp_path / "new")
    git(tmp_path / "new", "init", "-q", "-b", "main")
    assert main(["ci", forge]) == 0
    wheel = Path(f".{forge}/graphbus/graphbus-{__version__}-py3-none-any.whl")
    assert wheel.is_file()
    text = (WORKFLOW if forge == "github" else Path(".gitlab-ci.yml")).read_text()
    assert f'python -m pip install --requirement "$listed" pytest {wheel}\n' in text
    assert "requirements.txt" not in text
    assert main(["ci", forge, "--check"]) == 0


def test_a_wheel_that_git_would_leave_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    write_project(tmp_path, {"pyproject.toml": "", "agents/a.py": AGENT, ".gitignore": "*.whl\n"})
    git(tmp_path, "init", "-q", "-b", "main")
    monkeypatch.chdir(tmp_path)
    assert main(["ci", "github"]) == 0
    assert "`git add --force .github/graphbus/graphbus-" in capsys.readouterr().err
    (tmp_path / ".gitignore").unlink()
    assert main(["ci", "github"]) == 0
    assert "git add --force" not in capsys.readouterr().err


LISTED = """
    [project]
    name = "mail"
    dependencies = ["graphbus @ https://wheels.example.org/graphbus.whl", "httpx>=0.28"]
    [dependency-groups]
    dev = ["hypothesis", {include-group = "more"}]
    more = ["ruff"]
    [tool.graphbus.gate]
    test_command = ["make", "test"]
"""


def test_a_project_that_lists_graphbus_brings_no_copy_of_it(shop: Path, capsys: Streams) -> None:
    (shop / "requirements.txt").unlink()
    write_project(shop, {"pyproject.toml": LISTED})
    assert main(["ci", "github"]) == 0
    assert not (shop / ".github" / "graphbus").exists()
    script = (shop / WORKFLOW).read_text()
    assert 'python -m pip install --requirement "$listed"\n' in script
    begin = script.index("          import tomllib")
    reader = textwrap.dedent(script[begin : script.index("          END")])
    told = subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["graphbus @ https://wheels.example.org/graphbus.whl", "httpx>=0.28", "hypothesis"]
    write_project(
        shop, {"pyproject.toml": LISTED.replace("graphbus @ https://wheels.example.org/graphbus.whl", "graphbus")}
    )
    capsys.readouterr()
    said = refusal(capsys, "github")
    assert "pyproject.toml" in said
    assert "[GBE739]" in said


def test_a_project_below_the_top_takes_the_copy_of_graphbus_from_there(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(shop / "services" / "mail", {"pyproject.toml": "", "agents/a.py": AGENT})
    monkeypatch.chdir(shop / "services" / "mail")
    assert main(["ci", "github"]) == 0
    text = (shop / ".github/workflows/graphbus-mail.yml").read_text()
    assert f"pytest ../../.github/graphbus/graphbus-{__version__}-py3-none-any.whl\n" in text
    assert (shop / ".github/graphbus").is_dir()


def test_without_a_file_that_says_what_to_install_nothing_is_written(shop: Path, capsys: Streams) -> None:
    (shop / "requirements.txt").unlink()
    (shop / "pyproject.toml").unlink()
    said = refusal(capsys, "github")
    assert "requirements.txt does not exist" in said
    assert "pytest > requirements.txt" in said, "the command that writes it can be copied"
    assert "other.txt does not exist" in refusal(capsys, "github", "--requirements", "other.txt")
    assert not (shop / ".github").exists()


THE_PACKAGE_OF_SOMEBODY = [
    "graphbus",
    "graphbus==0.1.0",
    "GraphBus[llm]>=0.1",
    "graphbus ; python_version > '3'",
    "graphbus~=1.0  # ours",
]


def test_the_package_of_somebody_else_is_never_installed(shop: Path, capsys: Streams) -> None:
    for line in THE_PACKAGE_OF_SOMEBODY:
        write_project(shop, {"requirements.txt": f"# what we need\npytest\n{line}\n"})
        err = refusal(capsys, "github")
        assert "requirements.txt:3: error: " in err
        assert "[GBE739]" in err


GRAPHBUS_FROM_A_KNOWN = [
    f"graphbus==0.1.0 {HASH}\n",
    "graphbus @ https://wheels.example.org/graphbus.whl\n",
    "./wheels/graphbus.whl\n",
    "--no-index\ngraphbus==0.1.0\n",
    "graphbus-plugins==1\n",
    "-r base.txt\n",
]


def test_graphbus_from_a_known_place_is_installed(shop: Path) -> None:
    for text in GRAPHBUS_FROM_A_KNOWN:
        write_project(shop, {"requirements.txt": text, "base.txt": f"-r requirements.txt\ngraphbus==0.1.0 {HASH}\n"})
        assert main(["ci", "github", "--force"]) == 0


def test_without_hashes_it_says_who_decides_what_is_installed(shop: Path, capsys: Streams) -> None:
    write_project(shop, {"requirements.txt": PINNED + "httpx\n"})
    assert main(["ci", "github"]) == 0
    assert "requirements.txt: not all requirements have hashes" in capsys.readouterr().err
    text = (shop / WORKFLOW).read_text()
    assert "--require-hashes" not in text
    assert "# Without hashes, the package index decides what is installed." in text


# --- what is refused ---------------------------------------------------------------------------


WHAT_MAKES_NO_PIPELINE = [
    (["githb"], "Did you mean 'github'?"),
    (["github", "--branch", "release/*"], "is not a valid branch name"),
    (["github", "--environment", "a:b"], "is not a valid environment name"),
    (["github", "--negotiate", "--schedule", "@weekly"], "is not a valid schedule: it must have five fields"),
    (["github", "--schedule", "5 4 * * *"], "--schedule has no effect without --negotiate"),
    (["github", "--negotiate", "--model", "nobody:x"], "There is no model provider named 'nobody'"),
    (["github", "--python", "2.7"], "no pinned base image for Python 2.7"),
    (["github", "--install", "echo ${{ secrets.KEY }}"], "cannot be used in a pipeline as a command"),
    (["github", "nowhere"], "nowhere does not exist"),
    (["github", "/tmp"], "cannot be used in a pipeline as a path"),
    (["github", "--max-usd", "-1", "--negotiate"], "-1"),
    (["github", "--max-usd", "nan", "--negotiate"], "nan is not a valid limit in dollars"),
    (["github", "--name", "My Shop"], "is not a valid project name"),
]


def test_what_makes_no_pipeline_is_refused(shop: Path, capsys: Streams) -> None:
    for arguments, said in WHAT_MAKES_NO_PIPELINE:
        assert said in refusal(capsys, *arguments)
        assert not (shop / ".github").exists()


# --- the negotiation ---------------------------------------------------------------------------


def test_the_model_of_the_settings_negotiates_with_the_keys_of_all_roles(shop: Path, capsys: Streams) -> None:
    text = '[tool.graphbus.llm]\nmodel = "openai:gpt-x"\narbiter = "anthropic:claude-y"\n'
    write_project(shop, {"pyproject.toml": text})
    assert main(["ci", "github", "--negotiate"]) == 0
    written = (shop / ".github/workflows/graphbus-negotiate.yml").read_text()
    assert "run: graphbus negotiate agents --max-usd 5 --commit\n" in written, (
        "--model would take the arbiter's place, too"
    )
    assert 'OPENAI_API_KEY: "${{ secrets.OPENAI_API_KEY }}"' in written
    assert 'ANTHROPIC_API_KEY: "${{ secrets.ANTHROPIC_API_KEY }}"' in written
    assert "give the environment negotiation OPENAI_API_KEY and ANTHROPIC_API_KEY" in capsys.readouterr().err
