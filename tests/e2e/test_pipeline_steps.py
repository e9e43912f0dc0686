"""The scripts of generated pipelines, run by bash in fresh clones, job after job, as a forge would.

Two things are other than on a forge, because there is no network: the step that installs packages only looks that GraphBus is
there, and no package of the system is installed. `gh` is a small program of ours that writes down what it is asked for. The jobs
of a new project do install GraphBus, into an environment that has the packages of others.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from graphbus_core.cli import main
from tests.contracts.test_wheel import copy_distribution, needed
from tests.project_files import write_project
from tests.unit.editing.git_project import commit_files, git, make_repository

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
REQUIREMENTS = f"graphbus @ file:///wheels/graphbus.whl --hash=sha256:{'0' * 64}\n"
INSTALL = "python -m pip install --require-hashes --requirement requirements.txt\n"
PACKAGES = re.compile(r"^(?:sudo )?(?:apt-get|sysctl)\b.*\n", re.MULTILINE)
GH = """\
#!/bin/bash
printf '%s\\n' "$*" >> "$GH_LOG"
if [ "$1" = pr ]; then cat >> "$GH_LOG"; fi
"""
DESK = """
    from graphbus_core import Event, GraphBusNode, subscribe


    class Desk(GraphBusNode):
        def on_ready(self) -> None:
            self.publish("/Note/Taken", {"note_text": "open"})


    class Shelf(GraphBusNode):
        @subscribe("/Note/Taken")
        def on_note(self, event: Event) -> None:
            self.log(event["notetext"])
"""
HOOK = """\
#!/bin/bash
for number in $(seq 0 $((GIT_PUSH_OPTION_COUNT - 1))); do
  name="GIT_PUSH_OPTION_$number"; echo "${!name}"
done > "$GIT_DIR/options.txt"
"""


class Ran(NamedTuple):
    """How a job ended: the status of the first step that failed, and what was written."""

    status: int
    output: str


class Remote(NamedTuple):
    """A bare repository, and a place for clones of it."""

    folder: Path
    bare: Path

    def clone(self, branch: str, depth: int = 1) -> Path:
        """A shallow clone, as a runner makes one."""
        target = self.folder / f"clone-{sum(1 for _ in self.folder.iterdir())}"
        git(self.folder, "clone", "-q", "--depth", str(depth), "--branch", branch, self.bare.as_uri(), str(target))
        return target

    def pull_request(self, files: Mapping[str, str]) -> None:
        """Commit a change on a branch, and the merge that a forge makes of it."""
        work = self.folder / "work"
        git(work, "checkout", "-q", "-B", "change", "main")
        commit_files(work, files, "change")
        git(work, "checkout", "-q", "-B", "merge", "main")
        git(work, "merge", "-q", "--no-ff", "-m", "merge", "change")
        git(work, "push", "-q", "--force", "origin", "change", "merge")
        git(work, "checkout", "-q", "main")


def publish(folder: Path, project: Path, *options: str) -> Remote:
    """Put a project with its generated pipelines into a bare repository."""
    work = make_repository(folder / "work")
    shutil.copytree(
        project, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".graphbus", "__pycache__", ".pytest_cache")
    )
    write_project(work, {"requirements.txt": REQUIREMENTS, ".gitignore": ".graphbus/*\n!.graphbus/negotiation.lock\n"})
    for forge in ("github", "gitlab"):
        assert main(["-C", str(work), "ci", forge, *options]) == 0
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "begin")
    bare = folder / "remote.git"
    git(folder, "clone", "-q", "--bare", str(work), str(bare))
    git(bare, "config", "receive.advertisePushOptions", "true")
    (bare / "hooks" / "post-receive").write_text(HOOK, encoding="utf-8")
    (bare / "hooks" / "post-receive").chmod(0o755)
    git(work, "remote", "add", "origin", str(bare))
    return Remote(folder, bare)


@pytest.fixture
def shop(tmp_path: Path) -> Remote:
    """A shop in which everything fits together."""
    return publish(tmp_path, ROOT / "examples" / "shop")


@pytest.fixture
def desk(tmp_path: Path) -> Remote:
    """Agents with a mistake that they can fix without a model."""
    project = write_project(tmp_path / "desk", {"pyproject.toml": '[project]\nname = "desk"\n', "agents/desk.py": DESK})
    return publish(tmp_path, project, "--negotiate", "--model", "rules", "--max-usd", "0")


def environment(folder: Path, **more: str) -> dict[str, str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GITHUB_", "CI_"))}
    own = {"PATH": f"{folder / 'bin'}:{BIN}:{os.environ['PATH']}", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return {**bare, **own, "GIT_CONFIG_GLOBAL": os.devnull, **more}


def bash(shell: str, script: str, cwd: Path, variables: Mapping[str, str]) -> Ran:
    file = cwd.parent / f"{cwd.name}.sh"
    file.write_text(PACKAGES.sub("", script.replace(INSTALL, "")), encoding="utf-8")
    command = shlex.split(shell.replace("{0}", str(file)))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, cwd=cwd, env=dict(variables), text=True, check=False, **streams)  # type: ignore[call-overload]
    return Ran(done.returncode, done.stdout)


def github_job(clone: Path, file: str, key: str, given: Mapping[str, str] = {}, **more: str) -> Ran:
    """Run the steps of a job; `given` holds what the expressions of the forge stand for."""
    document = yaml.safe_load((clone / ".github" / "workflows" / file).read_text())
    told = clone.parent / f"{clone.name}.output"
    base = environment(clone.parent, GITHUB_OUTPUT=str(told), CI="true", **document["env"], **more)
    output = ""
    for step in document["jobs"][key]["steps"]:
        if "run" not in step:
            continue
        named = {name: given.get(value, value) for name, value in step.get("env", {}).items()}
        assert not [value for value in named.values() if "${{" in value], "an expression that the test does not know"
        ran = bash(document["defaults"]["run"]["shell"], step["run"], clone, {**base, **named})
        output += ran.output
        if ran.status:
            return Ran(ran.status, output)
    return Ran(0, output + (told.read_text() if told.exists() else ""))


def gitlab_job(clone: Path, key: str, **given: str) -> Ran:
    """Run before_script and script in one shell, as the runner does."""
    document: dict[str, Any] = yaml.safe_load((clone / ".gitlab-ci.yml").read_text())
    chain = [document[key]]
    while "extends" in chain[0]:
        chain.insert(0, document[chain[0]["extends"]])
    variables: dict[str, str] = {}
    for each in chain:
        variables |= each.get("variables", {})
    known = {"CI_PROJECT_DIR": str(clone), "CI_SERVER_HOST": "gitlab.example.org", **given}
    resolved = {name: re.sub(r"\$(\w+)", lambda found: known[found[1]], value) for name, value in variables.items()}
    before: list[str] = next((each["before_script"] for each in reversed(chain) if "before_script" in each), [])
    script = "\n".join([*before, *document[key]["script"]]) + "\n"
    return bash("bash {0}", script, clone, environment(clone.parent, CI="true", **known, **resolved))


JOBS = ("check", "build", "frozen", "contract", "test")


def run_all(remote: Remote, forge: str, keys: tuple[str, ...] = JOBS) -> dict[str, Ran]:
    """Run the jobs of a pull request, each in a clone of its own."""
    if forge == "github":
        return {key: github_job(remote.clone("merge", 2), "graphbus.yml", key) for key in keys}
    base = git(remote.bare, "merge-base", "main", "change").strip()
    clones = {key: remote.clone("change", 50) for key in keys}
    return {
        key: gitlab_job(clone, f"graphbus-{key}", CI_MERGE_REQUEST_DIFF_BASE_SHA=base) for key, clone in clones.items()
    }


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_a_harmless_pull_request_is_green(forge: str, shop: Remote) -> None:
    shop.pull_request({"README.md": "A shop.\n"})
    ran = run_all(shop, forge)
    assert {key: each.status for key, each in ran.items()} == dict.fromkeys(JOBS, 0), ran
    assert "nothing was negotiated" in ran["frozen"].output
    assert "passed" in ran["test"].output


@pytest.fixture(params=["github", "gitlab"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Remote]:
    """A forge, and a project that `graphbus init` has made, with what `graphbus ci` writes for it."""
    work = tmp_path / "work"
    assert main(["init", str(work), "--template", "hello"]) == 0
    assert main(["-C", str(work), "ci", request.param]) == 0
    git(work, "init", "-q", "-b", "main")
    git(work, "config", "user.name", "Somebody")
    git(work, "config", "user.email", "somebody@example.com")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "begin")
    git(tmp_path, "clone", "-q", "--bare", str(work), str(tmp_path / "remote.git"))
    git(work, "remote", "add", "origin", str(tmp_path / "remote.git"))
    return request.param, Remote(tmp_path, tmp_path / "remote.git")


def make_environment(folder: Path) -> Path:
    """Make an environment with pip, pytest and what GraphBus needs, but not GraphBus, and give the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    seen: set[str] = set()
    for name in ("pip", "pytest", *needed("pytest", seen), *needed("graphbus", seen)):
        copy_distribution(name, packages)
    return folder / "bin"


def test_a_new_project_is_green_with_what_the_command_has_written(
    new: tuple[str, Remote], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge, remote = new
    programs = make_environment(tmp_path_factory.mktemp("environment"))
    monkeypatch.setattr(sys.modules[__name__], "BIN", programs)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_COMPILE", "1")
    remote.pull_request({"README.md": "Hello.\n"})
    ran = run_all(remote, forge)
    assert {key: each.status for key, each in ran.items()} == dict.fromkeys(JOBS, 0), ran
    assert "Successfully installed graphbus" in ran["check"].output
    assert "passed" in ran["test"].output


def broken(remote: Remote, old: str, new: str) -> dict[str, str]:
    """The text of the agent in which something is replaced."""
    for path in sorted((remote.folder / "work" / "agents").rglob("*.py")):
        text = path.read_text()
        if old in text:
            return {path.relative_to(remote.folder / "work").as_posix(): text.replace(old, new)}
    raise AssertionError(f"no agent says {old}")


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_an_agent_that_hears_a_topic_of_nobody_is_red_at_its_line(forge: str, shop: Remote) -> None:
    shop.pull_request(broken(shop, '@subscribe("/Order/Created")', '@subscribe("/Order/Craeted")'))
    [ran] = run_all(shop, forge, ("check",)).values()
    assert ran.status == 3
    assert ("::warning file=agents/" if forge == "github" else "/Order/Craeted") in ran.output


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_a_change_that_lets_others_down_is_red_although_everything_here_fits(forge: str, shop: Remote) -> None:
    shop.pull_request(broken(shop, '"earned"', '"income"'))
    ran = run_all(shop, forge, ("check", "contract"))
    assert (ran["check"].status, ran["contract"].status) == (0, 3)
    assert "AccountsService.balance" in ran["contract"].output


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_a_change_that_lets_others_down_is_green_when_the_version_announces_it(forge: str, shop: Remote) -> None:
    changed = broken(shop, '"earned"', '"income"')
    shop.pull_request({**changed, "pyproject.toml": project_with_version(shop, "0.1.1")})
    [ran] = run_all(shop, forge, ("contract",)).values()
    assert (ran.status, "raise `version` in pyproject.toml from 0.1.1 to at least 0.2.0" in ran.output) == (3, True)
    shop.pull_request({**changed, "pyproject.toml": project_with_version(shop, "0.2.0")})
    [ran] = run_all(shop, forge, ("contract",)).values()
    assert ran.status == 0, ran.output
    assert "AccountsService.balance" in ran.output


def project_with_version(remote: Remote, version: str) -> str:
    text = (remote.folder / "work" / "pyproject.toml").read_text()
    changed, count = re.subn(r'(?m)^version = ".*"$', f'version = "{version}"', text)
    assert count == 1
    return changed


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_a_negotiation_becomes_a_branch_with_commits_lock_and_report(forge: str, desk: Remote) -> None:
    before = git(desk.bare, "rev-parse", "main").strip()
    clone = desk.clone("main")
    said, branch = (propose_on_github if forge == "github" else propose_on_gitlab)(desk, clone, before)
    assert git(desk.bare, "rev-parse", "main").strip() == before, "main is left alone"
    subjects = git(desk.bare, "log", "--format=%s", f"main..{branch}").splitlines()
    assert subjects == [
        "Report how the agents agreed",
        "Lock what the agents agreed on",
        "fix(Shelf): read 'note_text' instead of 'notetext' in Shelf.on_note",
    ]
    assert "GraphBus-Session: S001" in git(desk.bare, "log", "--format=%b", f"main..{branch}")
    files = git(desk.bare, "ls-tree", "-r", "--name-only", branch).splitlines()
    assert {"graphbus-report.html", ".graphbus/negotiation.lock"} <= set(files)
    assert "negotiation.bundle" not in files
    assert branch in said or "merge_request.create" in said
    proved = desk.clone(branch)
    assert github_job(proved, "graphbus.yml", "frozen").status == 0, "the lock that it brings holds"


def propose_on_github(remote: Remote, clone: Path, base: str) -> tuple[str, str]:
    given = {"${{ github.sha }}": base, "${{ secrets.GITHUB_TOKEN }}": "token"}
    ran = github_job(clone, "graphbus-negotiate.yml", "negotiate", given)
    assert ran.status == 0, ran.output
    assert "has_result=true" in ran.output
    fresh = remote.clone("main")
    shutil.copy(clone / "negotiation.bundle", fresh)
    write_project(remote.folder / "bin", {"gh": GH})
    (remote.folder / "bin" / "gh").chmod(0o755)
    log = remote.folder / "gh.log"
    more = {"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1", "GH_LOG": str(log)}
    ran = github_job(fresh, "graphbus-negotiate.yml", "propose", given, **more)
    assert ran.status == 0, ran.output
    said = log.read_text()
    assert "pr create --base main --head graphbus/negotiation-7-1" in said
    assert "graphbus-report.html, in the last commit" in said
    return said, "graphbus/negotiation-7-1"


def propose_on_gitlab(remote: Remote, clone: Path, base: str) -> tuple[str, str]:
    ran = gitlab_job(clone, "graphbus-negotiate", CI_COMMIT_SHA=base)
    assert ran.status == 0, ran.output
    fresh = remote.clone("main")
    shutil.copy(clone / "negotiation.bundle", fresh)
    given = {"CI_PROJECT_URL": remote.bare.as_uri().removesuffix(".git"), "CI_PIPELINE_ID": "9"}
    ran = gitlab_job(fresh, "graphbus-propose", GRAPHBUS_PUSH_TOKEN="token", **given)
    assert ran.status == 0, ran.output
    said = (remote.bare / "options.txt").read_text()
    assert "merge_request.target=main" in said
    return said, "graphbus/negotiation-9"


def test_agents_that_have_settled_propose_nothing_and_a_later_edit_is_not_proved(desk: Remote) -> None:
    base = git(desk.bare, "rev-parse", "main").strip()
    propose_on_gitlab(desk, desk.clone("main"), base)
    git(desk.bare, "update-ref", "refs/heads/main", "refs/heads/graphbus/negotiation-9")
    settled = git(desk.bare, "rev-parse", "main").strip()
    clone = desk.clone("main")
    ran = gitlab_job(clone, "graphbus-negotiate", CI_COMMIT_SHA=settled)
    assert ran.status == 0, ran.output
    assert "The agents have nothing to propose." in ran.output
    assert not (clone / "negotiation.bundle").exists()
    quiet = gitlab_job(clone, "graphbus-propose", CI_PROJECT_URL="unused", CI_PIPELINE_ID="10", GRAPHBUS_PUSH_TOKEN="x")
    assert (quiet.status, "nothing to propose" in quiet.output) == (0, True)
    path = clone / "agents" / "desk.py"
    path.write_text(path.read_text().replace("self.log", "print"))
    assert gitlab_job(clone, "graphbus-frozen").status == 3


def test_a_negotiation_that_changes_the_pipeline_is_not_proposed(desk: Remote) -> None:
    clone = desk.clone("main")
    git(clone, "config", "user.name", "Somebody")
    git(clone, "config", "user.email", "somebody@example.com")
    text = (clone / ".gitlab-ci.yml").read_text()
    commit_files(clone, {".gitlab-ci.yml": f"# mine\n{text}"}, "take over")
    git(clone, "bundle", "create", "-q", "negotiation.bundle", "HEAD", "^HEAD~1")
    fresh = desk.clone("main")
    shutil.copy(clone / "negotiation.bundle", fresh)
    ran = gitlab_job(fresh, "graphbus-propose", CI_PROJECT_URL="unused", CI_PIPELINE_ID="1", GRAPHBUS_PUSH_TOKEN="x")
    assert ran.status == 1
    assert "that is never proposed" in ran.output
    assert not git(desk.bare, "for-each-ref", "refs/heads/graphbus").strip()
