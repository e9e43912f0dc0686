"""What a child process of the gate can do, and what ends it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes import usage
from graphbus_core.editing.sandboxes.process import FinishedProcess, Limits, ProcessSandbox, remove_tree

pytestmark = pytest.mark.slow


def run(code: str, folder: Path, *arguments: str, **limits: int | float) -> FinishedProcess:
    wanted = Limits(**{"timeout_s": 20.0, **limits})  # type: ignore[arg-type]
    return ProcessSandbox().run([sys.executable, "-c", code, *arguments], folder, limits=wanted)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_output_errors_and_exit_status_come_back(tmp_path: Path) -> None:
    result = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    bounds = run(
        "import os, resource as r; print(r.getrlimit(r.RLIMIT_CPU)[0], r.getrlimit(r.RLIMIT_CORE)[0], flush=True); os.abort()",
        tmp_path,
        timeout_s=7.0,
    )

    assert result[:4] == FinishedProcess(3, "out\n", "err\n", False)[:4]
    assert (bounds.stdout, bounds.returncode) == ("8 0\n", -signal.SIGABRT)
    assert ProcessSandbox().run(["no-such-program"], tmp_path, limits=Limits(timeout_s=5)).returncode == 127


def test_keys_and_other_variables_are_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")

    result = run("import os; print(*sorted(os.environ))", tmp_path)

    allowed = {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "TMPDIR", "PWD", "SHLVL", "_", "OLDPWD"}
    allowed |= {"PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "INVOCATION_ID"}
    assert set(result.stdout.split()) <= allowed
    assert "secret" not in result.stdout


def test_home_is_an_empty_folder_that_is_removed_afterwards(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; h = pathlib.Path.home(); print(h, *os.listdir(h)); (h / 'd').mkdir(); (h / 'd').chmod(0)"
    )

    home, *content = run(code, tmp_path).stdout.split()

    assert content == ["tmp"]
    assert not Path(home).exists()


def test_a_hanging_command_is_ended_in_time(tmp_path: Path) -> None:
    result = run(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(1000)",
        tmp_path,
        timeout_s=1.0,
    )

    assert result.timed_out
    assert result.returncode == -signal.SIGKILL
    assert result.stdout == "on\n"


def test_a_command_that_closes_its_output_and_hangs_is_ended_in_time(tmp_path: Path) -> None:
    result = run("import os, time; os.close(1); os.close(2); time.sleep(1000)", tmp_path, timeout_s=1.0)

    assert result.timed_out


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"], ids=["in its group", "a daemon in a session of its own"])
@pytest.mark.parametrize("ends", ["time.sleep(1000)", "pass"], ids=["parent hangs", "parent ends"])
def test_what_it_has_started_ends_with_it(leave: str, ends: str, tmp_path: Path) -> None:
    code = f"""
import os, time
heard, told = os.pipe()
child = os.fork()
if child == 0:
    {leave}
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(told, b"x")
        time.sleep(1000)
    time.sleep(1000)
os.read(heard, 1)
{ends}
"""
    result = run(code, tmp_path, timeout_s=2.0)

    grandchild = int(result.stdout.split()[0])
    assert not is_alive(grandchild)


def test_a_flood_of_output_is_cut_and_does_not_block(tmp_path: Path) -> None:
    code = "import sys\nfor _ in range(400): sys.stdout.write('x' * 10000); sys.stderr.write('y' * 10000)"

    result = run(code, tmp_path, output_bytes=5000)

    assert result.returncode == 0
    assert result.stdout == "x" * 5000
    assert result.stderr == "y" * 5000


def test_a_memory_hog_is_stopped(tmp_path: Path) -> None:
    result = run("x = bytearray(900_000_000); print('had it')", tmp_path, memory_mb=400)

    assert result.returncode != 0
    assert "MemoryError" in result.stderr
    assert "had it" not in result.stdout


def test_a_large_file_is_stopped(tmp_path: Path) -> None:
    result = run("open('f', 'wb').write(b'x' * 3_000_000)", tmp_path, file_size_mb=1)

    assert result.returncode != 0
    assert (tmp_path / "f").stat().st_size <= 1 << 20


# --- the disk: no trick hides what is written, and whatever is left can be removed -----------------------

DEEP = """
import os
for step in range(3000):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
open("last", "w").write("hello")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "copy"
    made.mkdir()
    return made


def test_folders_nested_deeper_than_a_path_can_be_long_are_removed(folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        exec(DEEP)
        os._exit(0)
    os.waitpid(child, 0)
    assert list(folder.iterdir())

    remove_tree(folder)

    assert not folder.exists()


def test_unreadable_folders_and_links_are_removed_and_what_links_lead_to_stays(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir(mode=0o500)
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "a").chmod(0)

    remove_tree(folder)

    assert not folder.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_folders_too_deep_to_be_weighed_end_the_command(folder: Path) -> None:
    code = f"{DEEP}\nimport time; time.sleep(20)"

    done = ProcessSandbox().run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=10))

    remove_tree(folder)
    assert "it wrote more than" in done.stderr
    assert not done.timed_out


def test_empty_files_count(folder: Path) -> None:
    code = "import time\nfor step in range(2000): open(str(step), 'w').close()\ntime.sleep(20)"

    done = ProcessSandbox().run([sys.executable, "-c", code], folder, limits=Limits(timeout_s=10, disk_mb=4))

    assert "it wrote more than" in done.stderr


def test_files_without_a_name_fill_the_disk_only_as_far_as_some_of_it_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(folder)
    monkeypatch.setattr(usage, "_KEPT_FREE", (disk.f_bavail * disk.f_frsize, 0))
    rooms = iter([(1000, 1000), *[(400, 1000)] * 1000])
    monkeypatch.setattr(usage, "_free_space", lambda folders: next(rooms))

    done = ProcessSandbox().run(
        [sys.executable, "-c", "import time; time.sleep(20)"], folder, limits=Limits(timeout_s=10)
    )

    assert "it wrote more than" in done.stderr
    assert not done.timed_out
