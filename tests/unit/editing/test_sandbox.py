"""What a child process of the gate can do, and what ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from graphbus_core.editing.sandboxes.process import Finished, Limits, ProcessSandbox

pytestmark = pytest.mark.slow


def run(code: str, folder: Path, *arguments: str, **limits: int | float) -> Finished:
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

    assert result[:4] == Finished(3, "out\n", "err\n", False)[:4]


def test_it_runs_in_the_folder_and_reads_no_input(tmp_path: Path) -> None:
    result = run("import os, sys; print(os.getcwd(), repr(sys.stdin.read()))", tmp_path)

    assert result.stdout.split() == [str(tmp_path.resolve()), "''"]


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


def test_more_variables_can_be_given(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['EXTRA'])"]

    result = ProcessSandbox().run(command, tmp_path, limits=Limits(timeout_s=20), environment={"EXTRA": "yes"})

    assert result.stdout == "yes\n"


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


def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    result = run("import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(5)", tmp_path)

    assert result.returncode == 5
    assert not result.timed_out


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


def test_without_a_memory_limit_it_may_have_more(tmp_path: Path) -> None:
    assert run("x = bytearray(500_000_000); print('had it')", tmp_path, memory_mb=0).stdout == "had it\n"


def test_a_large_file_is_stopped(tmp_path: Path) -> None:
    result = run("open('f', 'wb').write(b'x' * 3_000_000)", tmp_path, file_size_mb=1)

    assert result.returncode != 0
    assert (tmp_path / "f").stat().st_size <= 1 << 20


def test_a_busy_loop_uses_no_more_processor_time_than_its_wall_time(tmp_path: Path) -> None:
    result = run("import resource; print(*resource.getrlimit(resource.RLIMIT_CPU))", tmp_path, timeout_s=7.0)

    assert result.stdout.split() == ["8", "8"]


def test_no_core_is_dumped(tmp_path: Path) -> None:
    assert run("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))", tmp_path).stdout == "(0, 0)\n"


def test_the_number_of_processes_is_limited(tmp_path: Path) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"

    assert 0 < int(run(code, tmp_path, processes=50).stdout) < 50 + len(os.listdir("/proc")) + 50


def test_a_signal_that_ends_it_is_told(tmp_path: Path) -> None:
    result = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)

    assert result.returncode == -signal.SIGSEGV
    assert not result.timed_out


def test_a_program_that_is_missing_gives_127(tmp_path: Path) -> None:
    result = ProcessSandbox().run(["no-such-program"], tmp_path, limits=Limits(timeout_s=5))

    assert result.returncode == 127
    assert "no-such-program" in result.stderr


def test_a_folder_without_permissions_is_removed_but_no_link_is_followed() -> None:
    """In a child that is not root, because nothing is forbidden to root."""
    code = """
import os, sys
from pathlib import Path
from graphbus_core.editing.sandboxes.process import remove_tree
if os.getuid() == 0:
    os.setuid(65534)
folder, outside = Path(sys.argv[1], "a"), Path(sys.argv[1], "outside")
(folder / "b").mkdir(parents=True)
(folder / "b" / "f").touch()
outside.mkdir(mode=0o500)
(folder / "link").symlink_to(outside)
(folder / "b").chmod(0)
folder.chmod(0)
remove_tree(folder)
print(folder.exists(), oct(outside.stat().st_mode))
"""
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o777)
        done = subprocess.run([sys.executable, "-c", code, home], capture_output=True, text=True, check=True)

    assert done.stdout == "False 0o40500\n"
