"""Pipelines as a strict reviewer and the tools of the field read them: pinned, with few rights, and nothing put into a script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphbus_core.deploy.pipelines import NegotiationJob, PipelinePlan, generate_github, generate_gitlab
from graphbus_core.deploy.render import Files, fill_template
from tests.unit.editing.git_project import commit_files, git, make_repository

WORKFLOW = ".github/workflows/graphbus.yml"
LOOKING = ("check", "build", "frozen", "contract", "test")
NEGOTIATION = ".github/workflows/graphbus-negotiate.yml"
GOLDEN = Path(__file__).parents[2] / "golden" / "pipelines"
BIN = Path(sys.executable).parent
WEEKLY = NegotiationJob("23 4 * * 1", "anthropic:claude-sonnet-5-5", ("ANTHROPIC_API_KEY",), 5.0)
PLANS = {
    "defaults": PipelinePlan(command="graphbus ci FORGE agents", paths=("agents",)),
    "everything": PipelinePlan(
        command="graphbus ci FORGE 'my agents' more --negotiate",
        paths=("my agents", "more"),
        requirements=("requirements.txt", "requirements-dev.txt"),
        has_hashes=False,
        has_git=True,
        installs=("python -m pip install --no-deps --editable .",),
        test=("python", "-m", "pytest", "-q", "tests/it's"),
        python="3.12",
        branch="release/1.x",
        folder="services/shop",
        name="shop",
        environment="eu production",
        has_ledger=True,
        negotiation=WEEKLY._replace(keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY")),
    ),
    "verify": PipelinePlan(command="graphbus ci FORGE --no-image", has_image=False, has_deploy=False),
    "rules": PipelinePlan(
        command="graphbus ci FORGE agents --negotiate --model rules --no-deploy",
        paths=("agents",),
        has_deploy=False,
        negotiation=NegotiationJob("*/30 0-6 1,15 jan-jun mon", "rules", (), 0.0),
    ),
}
VARIANTS = [(forge, name) for forge in ("github", "gitlab") for name in PLANS]


def files_of(forge: str, name: str) -> Files:
    plan = PLANS[name]._replace(command=PLANS[name].command.replace("FORGE", forge))
    if forge == "github":
        return generate_github(plan)
    return generate_gitlab(plan, is_included=name == "rules" or bool(plan.folder))


def documents(forge: str, name: str) -> dict[str, dict[str, Any]]:
    """As data, with the names that they have where a repository holds one project."""
    prefix = PLANS[name].prefix
    plain = {path.replace(prefix, "graphbus"): str(text) for path, text in files_of(forge, name).items()}
    return {path: yaml.safe_load(text.replace(prefix, "graphbus")) for path, text in plain.items()}


def jobs(forge: str, name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for document in documents(forge, name).values():
        entries = document["jobs"] if forge == "github" else document
        found |= {key: job for key, job in entries.items() if isinstance(job, dict) and key != "workflow"}
    return found


def github_steps(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((key, step) for key, job in jobs("github", name).items() for step in job["steps"])


def scripts(forge: str, name: str) -> Iterator[tuple[str, str]]:
    if forge == "github":
        yield from ((f"{key}: {step['name']}", step["run"]) for key, step in github_steps(name) if "run" in step)
        return
    everything = jobs(forge, name)
    for key, job in everything.items():
        begun = job.get("before_script", everything[".graphbus"]["before_script"] if "extends" in job else [])
        if "script" in job:
            yield key, "\n".join([*begun, *job["script"]])


def write_all(folder: Path, files: Files) -> Path:
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(str(text), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("forge", "name"), VARIANTS)
def test_the_files_are_byte_for_byte_those_of_the_golden_folder(forge: str, name: str) -> None:
    """Renewed with GRAPHBUS_RENEW=1; read the difference before it is committed."""
    files = files_of(forge, name)
    folder = GOLDEN / forge / name
    if os.environ.get("GRAPHBUS_RENEW"):
        shutil.rmtree(folder, ignore_errors=True)
        write_all(folder, files)
    there = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert there == files


# --- what the tools of the field say -----------------------------------------------------------


def zizmor(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--offline", "--no-online-audits", "--persona", "auditor", "--strict-collection", "--format", "json"]
    return subprocess.run(
        [BIN / "zizmor", *options, folder / ".github" / "workflows"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", PLANS)
def test_zizmor_finds_nothing_as_the_strictest_of_its_auditors(name: str, tmp_path: Path) -> None:
    done = zizmor(write_all(tmp_path, files_of("github", name)))
    assert (done.returncode, json.loads(done.stdout)) == (0, []), done.stderr


BITES = {
    "a tag": (r"actions/checkout@[0-9a-f]{40}", "actions/checkout@v7", "unpinned-uses"),
    "credentials that stay": ("          persist-credentials: false\n", "          fetch-depth: 1\n", "artipacked"),
    "a value in a script": ("run: graphbus validate", 'run: "echo ${{ github.head_ref }}"', "template-injection"),
    "rights for all": (r"permissions: \{\}", "permissions: write-all", "excessive-permissions"),
    "a trigger with secrets": ("  pull_request: {}", "  pull_request_target: {}", "dangerous-triggers"),
}


@pytest.mark.parametrize("what", BITES)
def test_zizmor_would_find(what: str, tmp_path: Path) -> None:
    pattern, instead, audit = BITES[what]
    text = str(files_of("github", "defaults")[WORKFLOW])
    broken, count = re.subn(pattern, instead, text, count=1)
    assert count == 1
    done = zizmor(write_all(tmp_path, {WORKFLOW: broken}))
    assert done.returncode
    assert audit in {finding["ident"] for finding in json.loads(done.stdout)}


def check_schema(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [BIN / "check-jsonschema", "--builtin-schema", schema, *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("forge", "schema"), [("github", "vendor.github-workflows"), ("gitlab", "vendor.gitlab-ci")])
def test_the_schema_of_the_forge_holds_and_would_not_hold_for_a_broken_file(
    forge: str, schema: str, tmp_path: Path
) -> None:
    written = [
        write_all(tmp_path / name, files_of(forge, name)) / path for name in PLANS for path in files_of(forge, name)
    ]
    done = check_schema(schema, *written)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.yml"
    wrong = ("runs-on:", "runs-in:") if forge == "github" else ("script:\n", "script: 1\n    #")
    broken.write_text(written[0].read_text().replace(*wrong), encoding="utf-8")
    assert check_schema(schema, broken).returncode


@pytest.mark.parametrize(("forge", "name"), VARIANTS)
def test_every_script_is_bash_and_shellcheck_finds_nothing(forge: str, name: str, tmp_path: Path) -> None:
    paths = []
    for number, (_, text) in enumerate(scripts(forge, name)):
        path = tmp_path / f"{number}.sh"
        path.write_text(f"#!/bin/bash\nset -euo pipefail\n{text}\n", encoding="utf-8")
        subprocess.run(["bash", "-n", path], check=True)
        paths.append(path)
    shellcheck = shutil.which("shellcheck")
    if not shellcheck and not os.environ.get("CI"):
        pytest.skip("there is no shellcheck on this machine")
    assert shellcheck, "CI must have shellcheck"
    command = [shellcheck, "--shell=bash", "--norc", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- what a reviewer asks ----------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_every_action_is_pinned_by_its_commit_with_the_version_beside_it(name: str) -> None:
    lines = [line for text in files_of("github", name).values() for line in str(text).splitlines() if "uses:" in line]
    assert lines
    assert [line for line in lines if not re.search(r"uses: [\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line)] == []


@pytest.mark.parametrize("name", PLANS)
def test_every_image_of_gitlab_is_pinned_by_its_digest(name: str) -> None:
    images = [job["image"] for job in jobs("gitlab", name).values() if "image" in job]
    images += [service["name"] for job in jobs("gitlab", name).values() for service in job.get("services", ())]
    assert images
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


@pytest.mark.parametrize("name", PLANS)
def test_the_jobs_of_pull_requests_can_read_and_nothing_else(name: str) -> None:
    workflow = documents("github", name)[WORKFLOW]
    assert workflow["permissions"] == {}
    assert set(workflow["on"]) == {"pull_request", "merge_group", "push"}
    for key in LOOKING:
        found = workflow["jobs"][key]
        assert found["permissions"] == {"contents": "read"}
        assert "secrets." not in json.dumps(found)
        assert "environment" not in found


@pytest.mark.parametrize("name", PLANS)
def test_no_job_of_a_merge_request_has_an_environment_or_names_a_token(name: str) -> None:
    everything = jobs("gitlab", name)
    for key in LOOKING:
        found = {**everything[".graphbus"], **everything[".graphbus-look"], **everything[f"graphbus-{key}"]}
        assert "environment" not in found
        assert not re.search(r"TOKEN|PASSWORD|API_KEY", json.dumps(found))


@pytest.mark.parametrize(("forge", "name"), VARIANTS)
def test_graphbus_is_never_installed_by_its_name(forge: str, name: str) -> None:
    for _, text in scripts(forge, name):
        assert not re.search(r"install(?: -\S+)* ['\"]?graphbus", text)


def test_who_has_the_key_of_a_model_may_not_write_and_who_may_write_has_no_key() -> None:
    found = documents("github", "everything")[NEGOTIATION]["jobs"]
    assert found["negotiate"]["permissions"] == {"contents": "read"}
    assert "secrets.ANTHROPIC_API_KEY" in json.dumps(found["negotiate"])
    assert "secrets.ANTHROPIC_API_KEY" not in json.dumps(found["propose"])
    assert "pip install" not in json.dumps(found["propose"])
    assert found["propose"]["permissions"] == {"contents": "write", "pull-requests": "write"}
    together = jobs("gitlab", "everything")
    assert together["graphbus-negotiate"]["environment"]["name"] != together["graphbus-propose"]["environment"]["name"]
    assert "PUSH_TOKEN" not in json.dumps(together["graphbus-negotiate"])


def test_a_pull_request_is_cancelled_by_the_next_push_and_a_deployment_never() -> None:
    workflow = documents("github", "defaults")[WORKFLOW]
    assert workflow["concurrency"]["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    assert workflow["jobs"]["deploy"]["concurrency"] == {
        "group": "graphbus-deploy-production",
        "cancel-in-progress": False,
    }
    together = jobs("gitlab", "defaults")
    assert together["graphbus-deploy"]["resource_group"] == "production"
    assert not [key for key, job in together.items() if "interruptible" in job]
    rules = [rule for job in together.values() for rule in job.get("rules", ())]
    assert {rule.get("interruptible", False) == ("merge_request_event" in rule["if"]) for rule in rules} == {True}


@pytest.mark.parametrize(("path", "status"), [(".github/workflows/x.yml", 1), ("shop/agents/a.py", 0)])
def test_a_change_of_the_pipeline_is_refused_also_from_a_folder_of_the_repository(
    path: str, status: int, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "repository", {"shop/README.md": "A shop.\n"})
    commit_files(repository, {path: "new\n"})
    git(repository, "bundle", "create", "-q", "shop/negotiation.bundle", "HEAD", "^HEAD~1")
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    script = fill_template("unpack.sh", guarded=":/.github")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=repository / "shop", capture_output=True, check=False
    )
    assert done.returncode == status, done.stderr


def test_a_merge_queue_waits_for_the_jobs_that_need_no_target_branch() -> None:
    found = documents("github", "defaults")[WORKFLOW]["jobs"]
    skipped = {key for key, job in found.items() if "event_name" in str(job.get("if"))}
    assert skipped == {"contract", "image"}


@pytest.mark.parametrize("name", PLANS)
def test_no_gitlab_job_takes_a_cache_or_a_script_from_the_pipeline_that_includes_it(name: str) -> None:
    everything = jobs("gitlab", name)
    for key, job in everything.items():
        chain = [job]
        while "extends" in chain[-1]:
            chain.append(everything[chain[-1]["extends"]])
        assert any(each.get("inherit") == {"default": ["tags"]} for each in chain), key
