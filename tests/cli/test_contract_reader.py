"""`graphbus contract diff --reader celery` in repositories as they are, and in every format."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.project_files import write_project
from tests.unit.editing.git_project import commit_files, git, make_repository

TASKS = """
from celery import shared_task

@shared_task
def charge(order_id, amount):
    return order_id

@shared_task
def refund(order_id):
    return order_id
"""
VIEWS = """
from shop.tasks import charge

def pay(order):
    charge.delay(order.id, order.total)
"""
CHANGED = {
    "shop/tasks.py": TASKS.replace("amount)", "amount, currency)"),
    "shop/views.py": VIEWS.replace("order.total", 'order.total, currency="EUR"'),
}
BIN = Path(sys.executable).parent


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a task and a send, on main; the working directory is its top."""
    root = make_repository(tmp_path / "repo", {"shop/__init__.py": "", "shop/tasks.py": TASKS, "shop/views.py": VIEWS})
    monkeypatch.chdir(root)
    return root


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit status, and what was printed in either stream."""
    status = main(["contract", "diff", "--reader", "celery", *arguments])
    done = capsys.readouterr()
    return status, done.out + done.err


# --- what it says ------------------------------------------------------------------------------


def test_a_change_that_breaks_is_told_with_both_places_and_the_steps(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(repository, CHANGED)
    status, text = compared(capsys, "main")
    text = " ".join(text.split())
    assert status == 3
    for part in (
        "✗ shop.tasks.charge: `currency` was added without a default.",
        "was charge(order_id, amount) at shop/tasks.py:",
        "is charge(order_id, amount, currency) at shop/tasks.py:",
        "Old messages, retries included, fail on new workers: the new task needs 'currency'",
        "New messages fail on old workers, also after a rollback: the old task does not take 'currency'",
        "(shop/views.py:4)",
        "first give `currency` a default and deploy that to all workers",
    ):
        assert part in text


def test_every_format_has_the_task_and_the_same_status(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(repository, CHANGED)
    found = {form: compared(capsys, "main", "--format", form) for form in ("json", "github", "markdown", "sarif")}
    assert {status for status, _ in found.values()} == {3}
    document = json.loads(found["json"][1])
    assert (document["summary"]["breaks"], document["remarks"][0]["order"]) == (1, "two steps")
    assert found["github"][1].startswith("::error file=shop/tasks.py,line=")
    assert "```text" in found["markdown"][1]
    assert max(map(len, found["markdown"][1].splitlines())) <= 100
    result = json.loads(found["sarif"][1])["runs"][0]["results"][0]
    assert result["ruleId"] == "task-breaks"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "shop/tasks.py"


def test_allowed_breaks_are_warnings_and_end_well(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(repository, CHANGED)
    status, text = compared(capsys, "main", "--allow-breaking", "--format", "github")
    assert (status, text[:9]) == (0, "::warning")


def test_a_change_that_breaks_nothing_says_how_far_it_looked(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(repository, {"shop/tasks.py": TASKS.replace("return order_id", "return None")})
    assert compared(capsys, "main")[1].splitlines()[-1] == (
        "✓ 2 tasks and 1 send that the change touches: each build can handle the messages of the other one."
    )
    assert compared(capsys, "main", "--path", "docs")[1].splitlines()[-1] == "✓ The change touches no task and no send."


def test_a_schedule_that_goes_on_sending_a_removed_task_is_told(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = 'BEAT_SCHEDULE = {"nightly": {"task": "shop.tasks.refund", "schedule": 9, "args": (1,)}}\n'
    commit_files(repository, {"shop/settings.py": schedule})
    write_project(repository, {"shop/tasks.py": TASKS.replace("@shared_task\ndef refund", "def refund")})
    status, text = compared(capsys, "main")
    assert status == 3
    assert "✗ shop.tasks.refund: was removed, and is sent still." in text
    assert "shop/settings.py:1" in text


def test_two_folders_are_compared_without_git(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write_project(tmp_path / "old", {"shop/tasks.py": TASKS, "shop/views.py": VIEWS})
    new = write_project(tmp_path / "new", {"shop/tasks.py": TASKS, "shop/views.py": VIEWS, **CHANGED})
    assert compared(capsys, str(old), str(new))[0] == 3
    assert compared(capsys, str(old), str(old))[0] == 0


# --- which states ------------------------------------------------------------------------------


def test_it_starts_where_the_branch_left_the_other_one(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "switch", "-q", "-c", "mine")
    commit_files(repository, {"README.md": "mine"})
    git(repository, "switch", "-q", "main")
    commit_files(repository, CHANGED)
    git(repository, "switch", "-q", "mine")
    status, text = compared(capsys, "main")
    assert (status, text.splitlines()[0].startswith("where HEAD left main (")) == (0, True)
    assert compared(capsys, "mine", "main")[0] == 3


def test_a_constant_that_names_a_task_in_another_file_counts(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = TASKS.replace("@shared_task\ndef charge", "@shared_task(name=CHARGE)\ndef charge")
    tasks = f"from shop.names import CHARGE\n{named}"
    commit_files(repository, {"shop/names.py": 'CHARGE = "charge"\n', "shop/tasks.py": tasks})
    write_project(repository, {"shop/names.py": 'CHARGE = "payments.charge"\n'})
    status, text = compared(capsys, "main")
    assert (status, "✗ charge: is called payments.charge now" in text) == (3, True)


def test_a_merge_is_compared_with_each_of_its_parents(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "switch", "-q", "-c", "mine")
    commit_files(repository, CHANGED)
    git(repository, "switch", "-q", "main")
    commit_files(repository, {"README.md": "others"})
    git(repository, "merge", "-q", "--no-edit", "mine")
    assert (compared(capsys, "HEAD^1")[0], compared(capsys, "HEAD^2")[0]) == (3, 0)


def test_files_that_git_does_not_know_yet_count(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(repository, {"shop/admin.py": VIEWS.replace("pay", "again").replace(", order.total", "")})
    status, text = compared(capsys, "main")
    assert status == 3
    assert "✗ shop.tasks.charge: a new send fits neither the old nor the new task." in text
    assert "Correct this send; no order of deploys helps." in text


def test_a_folder_below_the_top_sees_the_whole_repository(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(repository, CHANGED)
    monkeypatch.chdir(repository / "shop")
    status, text = compared(capsys, "main")
    assert (status, "at tasks.py:" in text) == (3, True)


def test_what_is_deployed_is_asked_as_well(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(*options: str) -> tuple[int, str]:
        status = main(["contract", "can-deploy", "--to", "production", "--reader", "celery", *options])
        return status, capsys.readouterr().out

    assert main(["deployed", "record", "production", "--reader", "celery"]) == 0
    assert "runs in production." in capsys.readouterr().out
    assert ask()[0] == 0
    write_project(repository, CHANGED)
    status, text = ask()
    assert (status, "✗ shop.tasks.charge: `currency` was added" in text) == (3, True)
    assert ask("main")[0] == 0
    assert ask("--allow-breaking", "--json")[0] == 0
    assert ask("--only", "Shop")[0] == 2
    assert (ask("main")[0], ask("main", "--strict")[0]) == (0, 0)
    sender = write_project(
        repository.parent / "web",
        {"web.py": "from celery import current_app\ncurrent_app.send_task('shop.tasks.refund', (1,))\n"},
    )  # another component, which only knows the name
    assert (
        main(["deployed", "record", "production", "--reader", "celery", "--build", str(sender), "--component", "web"])
        == 0
    )
    capsys.readouterr()
    write_project(repository, {"shop/tasks.py": TASKS.replace("refund(order_id)", "refund(order_id, reason)")})
    status, text = ask()
    assert (status, "✗ shop.tasks.refund: `reason` was added" in text) == (3, True)
    write_project(repository, {"shop/tasks.py": f"{TASKS}def torn(:\n"})
    assert (ask()[0], "--strict" in ask()[1]) == (0, False)
    status, text = ask("--strict", "--allow-breaking")
    assert (status, text.endswith("✗ --strict fails for what is not known.\n")) == (3, True)


# --- bad input ---------------------------------------------------------------------------------


def test_no_repository_no_commit_and_no_reader_are_told(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, text = compared(capsys, "nowhere")
    assert (status, "the repository has no such commit" in text) == (2, True)
    status, text = compared(capsys, "main", "--reader", "selery")
    assert (status, "Did you mean 'celery'?" in text) == (2, True)
    status, text = compared(capsys, "main", "--check-version")
    assert (status, "does not go with --reader" in text) == (2, True)
    (tmp_path / "bare").mkdir()
    monkeypatch.chdir(tmp_path / "bare")
    status, text = compared(capsys, "main")
    assert (status, "there is no git repository with a working tree here" in text) == (2, True)


def test_a_shallow_clone_says_that_it_lacks_the_common_ancestor(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "checkout", "-qb", "feature")
    commit_files(repository, CHANGED)
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", f"file://{repository}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    status, text = compared(capsys, "main")
    assert status == 3
    assert "origin/main, whose common ancestor with HEAD this shallow clone does not have (" in text


def test_a_shallow_clone_says_that_it_is_one(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_files(repository, CHANGED)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    status, text = compared(capsys, "HEAD~1")
    assert (status, "this clone is shallow" in text) == (2, True)


@pytest.mark.parametrize("broken", ["old", "new"])
def test_a_file_that_does_not_parse_is_unknown_and_its_tasks_are_not_gone(
    broken: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = {"shop/tasks.py": TASKS + "def torn(:\n"}
    if broken == "old":
        commit_files(repository, torn)
        write_project(repository, {"shop/tasks.py": TASKS})
    else:
        write_project(repository, torn)
    status, text = compared(capsys, "HEAD")
    assert status == 0
    assert "✓" not in text
    assert "was removed" not in text
    assert "cannot read the file: invalid syntax (shop/tasks.py:10)" in text


@pytest.mark.parametrize(("imported", "mark"), [("other", "✓"), ("charge", "?")])
def test_a_file_that_does_not_parse_and_did_not_change_matters_if_it_may_send_a_changed_task(
    imported: str, mark: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit_files(repository, {"shop/torn.py": f"from shop.tasks import {imported}\ndef torn(:\n"})
    write_project(repository, {"shop/tasks.py": TASKS.replace("return order_id", "return None")})
    assert f"{mark} 2 tasks" in compared(capsys, "HEAD")[1]


def test_a_task_that_is_defined_twice_takes_what_is_not_known(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = '\n@shared_task(name="shop.tasks.charge")\ndef other(order_id):\n    pass\n'
    write_project(repository, {"shop/tasks.py": TASKS + twice})
    status, text = compared(capsys, "main")
    assert status == 0
    assert "✓" not in text
    assert "shop.tasks.charge is defined twice" in text


def test_a_name_that_is_computed_is_unknown(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = TASKS.replace("@shared_task\ndef charge", "@shared_task(name=PREFIX + '.charge')\ndef charge")
    commit_files(repository, {"shop/tasks.py": named})
    write_project(repository, {"shop/tasks.py": named.replace("return order_id", "return None")})
    status, text = compared(capsys, "main")
    assert (status, "✓" in text) == (0, False)
    assert "the name of the task is computed (shop/tasks.py:" in text


def test_a_task_of_another_package_is_unknown(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(repository, {"shop/settings.py": 'SCHEDULE = {"a": {"task": "mailer.send", "schedule": 9}}\n'})
    status, text = compared(capsys, "main")
    assert (status, "✓" in text) == (0, False)
    assert "no task is named mailer.send here (shop/settings.py:1)" in text


def test_a_submodule_that_changed_is_unknown(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_repository(tmp_path / "other", {"jobs.py": TASKS})
    person = {"GIT_ALLOW_PROTOCOL": "file"}
    git(repository, "submodule", "add", "-q", str(other), "jobs", **person)
    git(repository, "commit", "-qm", "jobs")
    commit_files(other, {"jobs.py": "pass"}, "changed")
    git(repository / "jobs", "pull", "-q", **person)
    for revision in ("HEAD", "HEAD~1"):  # not committed, then committed
        status, text = compared(capsys, revision)
        assert (status, "✓" in text) == (0, False)
        assert "a submodule that has changed" in text
        git(repository, "commit", "-qam", "newer jobs", "--allow-empty")


def test_nothing_of_the_project_is_imported(repository: Path) -> None:
    commit_files(repository, {"shop/tasks.py": TASKS + "open('imported', 'w').close()\n", "celery.py": "1 / 0\n"})
    write_project(repository, CHANGED)
    command = [BIN / "graphbus", "contract", "diff", "--reader", "celery", "HEAD"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert not (repository / "imported").exists()


def test_a_link_in_place_of_a_file_is_unknown(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "shop/tasks.py").rename(repository / "shop/jobs.txt")
    (repository / "shop/tasks.py").symlink_to("jobs.txt")
    status, text = compared(capsys, "main")
    assert (status, "✓" in text, "was removed" in text) == (0, False, False)
    assert "a symbolic link that has changed, which is not followed (shop/tasks.py:1)" in text


def test_a_link_to_another_folder_is_unknown(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "a symbolic link that has changed, which is not followed (shared:1)"
    commit_files(repository, {"lib/v1/jobs.py": TASKS, "lib/v2/jobs.py": CHANGED["shop/tasks.py"]})
    (repository / "shared").symlink_to("lib/v1")
    git(repository, "add", "shared")
    git(repository, "commit", "-qm", "shared")
    assert "symbolic link" not in compared(capsys, "HEAD")[1]
    (repository / "shared").unlink()
    assert said in compared(capsys, "HEAD")[1]
    (repository / "shared").symlink_to("lib/v2")
    for revision in ("HEAD", "HEAD~1"):  # not committed, then committed
        status, text = compared(capsys, revision)
        assert (status, "✓" in text, said in text) == (0, False, True)
        git(repository, "commit", "-qam", "newer jobs", "--allow-empty")
    assert said in compared(capsys, "HEAD~2", "HEAD")[1]


def test_a_link_among_two_folders_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "new"):
        write_project(tmp_path / name, {"shop/tasks.py": TASKS, "shop/views.py": VIEWS, f"lib/{name}/jobs.py": ""})
        (tmp_path / name / "shared").symlink_to(f"lib/{name}")
    status, text = compared(capsys, str(tmp_path / "old"), str(tmp_path / "new"))
    assert (status, "✓" in text, "a symbolic link that has changed" in text) == (0, False, True)


def test_a_package_hides_the_module_beside_it(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(repository, {"shop/tasks/__init__.py": CHANGED["shop/tasks.py"]})
    status, text = compared(capsys, "main")
    assert (status, "✗ shop.tasks.charge: `currency` was added" in text) == (3, True)


def test_a_second_definition_in_another_file_is_no_new_task(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = 'from celery import shared_task\n\n@shared_task(name="shop.tasks.charge")\ndef other(a, b, c):\n    pass\n'
    write_project(repository, {"shop/two.py": twice})
    status, text = compared(capsys, "main")
    assert (status, "✓" in text, "is new" in text) == (0, False, False)
    assert "shop.tasks.charge is defined twice" in text


def test_a_merge_is_compared_with_either_parent_also_in_another_work_tree(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "switch", "-qc", "feature")
    commit_files(repository, CHANGED)
    git(repository, "switch", "-q", "main")
    commit_files(repository, {"README.md": "shop"})
    git(repository, "merge", "-q", "--no-edit", "feature")
    git(repository, "worktree", "add", "-q", str(tmp_path / "other"), "HEAD")
    monkeypatch.chdir(tmp_path / "other")
    assert compared(capsys, "HEAD^1")[0] == 3
    assert compared(capsys, "HEAD^2")[0] == 0
    git(tmp_path, "clone", "-q", "--bare", str(repository), "bare")
    monkeypatch.chdir(tmp_path / "bare")
    status, text = compared(capsys, "HEAD^1")
    assert (status, "no git repository with a working tree here" in text) == (2, True)
