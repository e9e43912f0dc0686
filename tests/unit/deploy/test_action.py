"""The action for projects that use another framework: as strict tools read it, and with its steps carried out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.editing.git_project import commit_files, git, make_repository

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
TASKS = """from celery import shared_task

@shared_task
def charge(order):
    charge.delay(order)
"""


def zizmor(path: Path) -> list[dict[str, Any]]:
    options = ["--offline", "--no-online-audits", "--persona", "auditor", "--strict-collection", "--format", "json"]
    done = subprocess.run([BIN / "zizmor", *options, path], capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_zizmor_finds_nothing_and_would_find_an_input_in_a_script(tmp_path: Path) -> None:
    assert zizmor(ROOT / "action.yml") == []
    broken = (ROOT / "action.yml").read_text("utf-8").replace('"$READER" "$BASE" --format github', "${{ inputs.base }}")
    (tmp_path / "action.yml").write_text(broken)
    assert {each["ident"] for each in zizmor(tmp_path / "action.yml")} == {"template-injection"}


@pytest.mark.slow
def test_the_schema_of_actions_holds_and_would_not_hold_without_a_shell(tmp_path: Path) -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-actions"]
    assert subprocess.run([*command, ROOT / "action.yml"], capture_output=True, check=False).returncode == 0
    broken = (ROOT / "action.yml").read_text("utf-8").replace("      shell: bash\n", "", 1)
    (tmp_path / "action.yml").write_text(broken)
    assert subprocess.run([*command, tmp_path / "action.yml"], capture_output=True, check=False).returncode == 1


def run_step(name: str, folder: Path, temp: Path) -> subprocess.CompletedProcess[str]:
    """Carry out a step with the defaults of the inputs, as the runner does."""
    [step] = [each for each in ACTION["runs"]["steps"] if each["name"] == name]
    values = {f"${{{{ inputs.{key} }}}}": each["default"] for key, each in ACTION["inputs"].items()}
    given = {key: values[text] for key, text in step["env"].items()}
    environment = os.environ | given | {"RUNNER_TEMP": str(temp), "GITHUB_STEP_SUMMARY": str(temp / "summary.md")}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_steps_report_the_merge_of_a_pull_request_and_fail(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"tasks.py": TASKS})
    git(origin, "switch", "-q", "-c", "mine")
    commit_files(origin, {"tasks.py": TASKS.replace("order)", "order, tenant)")})
    git(origin, "switch", "-q", "main")
    commit_files(origin, {"README.md": "others"})
    git(origin, "merge", "-q", "--no-edit", "mine")
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{origin}", "checkout")  # fetch-depth: 2, as the page says
    (tmp_path / "graphbus" / "bin").mkdir(parents=True)
    (tmp_path / "graphbus" / "bin" / "graphbus").symlink_to(BIN / "graphbus")
    written = run_step("Write the report", tmp_path / "checkout", tmp_path)
    assert (written.returncode, written.stderr) == (0, "")
    assert "✗ tasks.charge: `tenant` was added without a default." in (tmp_path / "summary.md").read_text("utf-8")
    failed = run_step("Fail if messages fail", tmp_path / "checkout", tmp_path)
    assert (failed.returncode, failed.stdout[:26]) == (3, "::error file=tasks.py,line")


def test_the_hook_runs_a_command_that_there_is() -> None:
    hooks = {each["id"]: each for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}
    hook = hooks["graphbus-celery"]
    command = [BIN / "graphbus", *hook["entry"].split()[1:], "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert hook["args"] == ["origin/HEAD"]
    assert all(each["always_run"] for each in hooks.values())  # `types` would skip a commit that only deletes files
