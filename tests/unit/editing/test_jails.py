"""What gets out of a jail: nothing. Each way out is tried for real, in each jail that there is here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbus_core.editing import sandboxes
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes import TIERS, choose, describe, jails, obstacle
from graphbus_core.editing.sandboxes.jails import Jail, Tier, reach
from graphbus_core.editing.sandboxes.process import Finished, Limits, ProcessSandbox
from graphbus_core.errors import EditError
from graphbus_core.model.config import GateConfig
from tests.patience import PATIENCE_S
from tests.unit.editing.shop_project import Shop, code_of

pytestmark = pytest.mark.slow

TRY = """
import os, sys
for path in sys.argv[2:] or [""]:
    try:
        exec(sys.argv[1])
        print("out")
    except OSError as error:
        print("kept in", type(error).__name__)
"""


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    why = obstacle(found)
    if why and not os.environ.get("CI"):
        pytest.skip(f"no {found} here: {why}")
    assert not why, f"CI must have every jail; {found}: {why}"
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A copy in which something may be tried; outside of it lies what must not be seen."""
    with tempfile.TemporaryDirectory(prefix="graphbus-test-") as home:
        inner = Path(home, "project", "copy")
        inner.mkdir(parents=True)
        Path(home, "project", "secret.txt").write_text("a secret")
        Path(home, "outside.txt").write_text("a secret")
        yield inner


def run(tier: Tier, folder: Path, code: str, *arguments: str, **limits: int | float) -> Finished:
    wanted = Limits(**{"timeout_s": 20.0, **limits})  # type: ignore[arg-type]
    return Jail(tier).run([sys.executable, "-c", code, *arguments], folder, limits=wanted)


def attempts(tier: Tier, folder: Path, line: str, *paths: str) -> dict[str, str]:
    """Run a line for each path in one process; what came of it."""
    done = run(tier, folder, TRY, line, *paths)
    said = done.stdout.splitlines()
    assert len(said) == len(paths), done
    return dict(zip(paths, said, strict=True))


def attempt(tier: Tier, folder: Path, line: str, path: str = "") -> str:
    return attempts(tier, folder, line, path)[path]


# --- what it may do ------------------------------------------------------------------------------


def test_it_runs_in_its_copy_with_a_home_and_the_packages_of_this_python(tier: Tier, folder: Path) -> None:
    code = """
import os, ssl, tempfile, socket, threading, multiprocessing, msgspec, graphbus_core
from pathlib import Path
Path("made").write_text("x")
Path.home().joinpath("y").write_text("y")
tempfile.NamedTemporaryFile().write(b"z")
multiprocessing.Lock()
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname()).sendall(b"hello")
print(os.getcwd(), listener.accept()[0].recv(5), os.listdir(), os.path.exists(os.devnull))
"""
    done = run(tier, folder, code)

    assert done.stdout == f"{folder} b'hello' ['made'] True\n", done
    assert (folder / "made").read_text() == "x"


@pytest.mark.parametrize("home", ["home", ".", "project"])
def test_it_has_a_home_wherever_that_lies(tier: Tier, folder: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder.parents[1] / home
    monkeypatch.setenv("HOME", str(place))
    code = "from pathlib import Path; home = Path.home(); print(home, home.joinpath('y').write_text('y'))"

    done = run(tier, folder, code)

    assert done.stdout == f"{place.resolve()} 1\n", done
    assert not (place / "y").exists()


def test_a_jail_that_cannot_be_entered_is_no_verdict_on_the_command(
    tier: Tier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jails, "call_filter", lambda _machine: b"no filter")

    with pytest.raises(EditError) as caught:
        run(tier, folder, "print('out')")
    assert caught.value.code == "GBE331"


def test_output_errors_and_exit_status_come_back(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert done[:4] == Finished(3, "out\n", "err\n", False)[:4]


def test_a_signal_that_ends_it_is_told(tier: Tier, folder: Path) -> None:
    assert run(tier, folder, "import os; os.kill(os.getpid(), 11)").returncode == -11


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("./plain", 126)])
def test_a_program_that_cannot_be_run(tier: Tier, folder: Path, program: str, status: int) -> None:
    (folder / "plain").write_text("x")

    assert Jail(tier).run([program], folder, limits=Limits(timeout_s=20)).returncode == status


def test_more_can_be_made_readable(tier: Tier, folder: Path) -> None:
    shown = folder.parent / "secret.txt"
    command = [sys.executable, "-c", f"print(open({str(shown)!r}).read())"]

    done = Jail(tier).run(command, folder, limits=Limits(timeout_s=20), readable=[shown])

    assert done.stdout == "a secret\n"


# --- what it must not read -------------------------------------------------------------------------


def test_files_beside_the_copy_and_in_the_home_cannot_be_read(
    tier: Tier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder.parents[1] / "home"
    monkeypatch.setenv("HOME", str(home))
    secrets = [home / ".ssh/id_test", home / ".aws/test", folder / "../secret.txt", folder / "../../outside.txt"]
    for secret in secrets[:2]:
        secret.parent.mkdir(parents=True)
        secret.write_text("a secret")
    paths = [str(secret) for secret in secrets]

    read = attempts(tier, folder, "open(path).read()", *paths)
    listed = attempts(
        tier,
        folder,
        "assert {*os.listdir(path)} <= {'copy', 'project', 'home'}",
        str(folder.parent),
        str(folder.parents[1]),
    )

    for path in paths:
        assert read[path].startswith("kept in"), path
    assert set(listed.values()) == {"out"}


def test_what_is_private_to_the_system_cannot_be_read(tier: Tier, folder: Path) -> None:
    paths = ("/etc/shadow", "/var/log", "/run", str(Path.home() / ".profile"), "/sys", "/boot", "/proc/1/environ")
    line = "(os.listdir if os.path.isdir(path) else lambda path: open(path).read())(path)"

    for path, said in attempts(tier, folder, line, *paths).items():
        assert said.startswith("kept in"), path


def test_keys_in_the_environment_are_absent(tier: Tier, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")

    done = run(tier, folder, "import os; print(dict(os.environ)); print(open('/proc/self/environ').read())")

    assert "HOME" in done.stdout
    assert "secret" not in done.stdout


def test_a_link_that_leads_out_leads_nowhere(tier: Tier, folder: Path) -> None:
    aims = ("/etc/hostname", "../../secret.txt", "../../../outside.txt")
    for number, aim in enumerate(aims):
        (folder / f"link{number}").symlink_to(aim)

    for path, said in attempts(tier, folder, "open(path).read()", "link0", "link1", "link2").items():
        assert said.startswith("kept in"), path


def test_other_processes_cannot_be_seen_nor_looked_into(tier: Tier, folder: Path) -> None:
    seen = run(tier, folder, "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))").stdout

    assert [seen.startswith("[1, "), len(seen.split())] == [True, 2], seen
    ways = (
        "os.listdir('/proc/1/fd')",
        "open('/proc/1/fd/1', 'w')",
        "open('/proc/1/mem', 'rb')",
        "os.kill(os.getppid() + 10, 9)",
    )
    for way, said in attempts(tier, folder, "exec(path)", *ways).items():
        assert said.startswith("kept in"), way


def test_tracing_the_first_process_is_refused(tier: Tier, folder: Path) -> None:
    code = "import ctypes; print(ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0))"

    assert run(tier, folder, code).stdout == "-1\n"


# --- what it must not change -----------------------------------------------------------------------


def test_nothing_can_be_written_outside_of_the_copy(tier: Tier, folder: Path) -> None:
    beside = ("../secret.txt", "../../new.txt")  # there, below /tmp, the jail has folders of its own
    others = ("/usr/new", "/etc/new", "/new", "/dev/new", "/var/tmp/new")

    said = attempts(tier, folder, "open(path, 'w').write('spoilt')", *beside, *others)

    for path in others:
        assert said[path].startswith("kept in"), path
    assert (folder.parent / "secret.txt").read_text() == "a secret"
    assert not (folder.parent.parent / "new.txt").exists()


def test_the_packages_of_this_python_cannot_be_written(tier: Tier, folder: Path) -> None:
    import graphbus_core

    assert attempt(tier, folder, "open(path, 'a')", str(graphbus_core.__file__)).startswith("kept in")


def test_what_it_leaves_in_the_temporary_folder_is_gone(tier: Tier, folder: Path) -> None:
    name = f"graphbus-left-{os.getpid()}"

    assert attempt(tier, folder, f"open('/tmp/{name}', 'w').write('x')") == "out"
    assert not Path("/tmp", name).exists()


# --- the network -------------------------------------------------------------------------------------


def test_a_server_on_this_machine_cannot_be_reached(tier: Tier, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = f"__import__('socket').create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        assert attempt(tier, folder, line).startswith("kept in")


def test_a_server_far_away_cannot_be_reached(tier: Tier, folder: Path) -> None:
    assert attempt(tier, folder, "__import__('socket').create_connection(('192.0.2.1', 80), 2)").startswith("kept in")


@pytest.mark.parametrize("is_abstract", [True, False])
def test_a_local_socket_cannot_be_reached(tier: Tier, folder: Path, is_abstract: bool) -> None:
    name = "\0graphbus-test" if is_abstract else str(folder.parent / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        line = f"__import__('socket').socket(1).connect({name!r})"
        assert attempt(tier, folder, line).startswith("kept in")


# --- limits ------------------------------------------------------------------------------------------


def test_a_fork_bomb_is_bounded(tier: Tier, folder: Path) -> None:
    code = """
import os, time
made = 0
try:
    while made < 600:
        if os.fork() == 0:
            time.sleep(30)
        made += 1
except OSError:
    pass
print(made, flush=True)
os._exit(0)
"""
    done = run(tier, folder, code, processes=40)

    assert 0 < int(done.stdout) < (60 if os.geteuid() == 0 else 600)


def test_a_memory_hog_is_stopped(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, "x = bytearray(900_000_000); print('had it')", memory_mb=400)

    assert "MemoryError" in done.stderr


@pytest.mark.parametrize("place", [".", "/tmp", "/dev/shm"])
def test_a_disk_filler_is_stopped(tier: Tier, folder: Path, place: str) -> None:
    code = """
import sys, time
block = b"x" * 1_000_000
for number in range(3000):
    with open(f"{sys.argv[1]}/f{number % 2000}", "wb") as file:
        for _ in range(4): file.write(block)
    time.sleep(0.001)
print("filled it")
"""
    done = run(tier, folder, code, place, disk_mb=20)

    assert done.returncode != 0
    assert "filled it" not in done.stdout
    assert ("it wrote more than 20 MB" if place == "." else "No space left") in done.stderr


def test_a_large_file_is_stopped(tier: Tier, folder: Path) -> None:
    assert run(tier, folder, "open('f', 'wb').write(b'x' * 3_000_000)", file_size_mb=1).returncode != 0
    assert (folder / "f").stat().st_size <= 1 << 20


def test_a_flood_of_output_is_cut(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, "print('x' * 3_000_000)", output_bytes=1000)

    assert len(done.stdout) == 1000


def test_a_hanging_command_is_ended_in_time(tier: Tier, folder: Path) -> None:
    done = run(tier, folder, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)", timeout_s=1.0)

    assert done.timed_out


@pytest.mark.parametrize("timeout_s", [1.0, 20.0], ids=["hangs", "ends"])
def test_a_daemon_does_not_outlive_it(tier: Tier, folder: Path, timeout_s: float) -> None:
    mark = f"graphbus-daemon-{os.getpid()}-{timeout_s:g}-{tier}"
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvpe(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]], {})
    os._exit(0)
time.sleep(0.4 if sys.argv[2] == "ends" else 60)
"""
    run(tier, folder, code, mark, "ends" if timeout_s > 2 else "hangs", timeout_s=timeout_s)

    assert not running(mark)


def running(mark: str) -> bool:
    found = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return any(mark in line and "time.sleep(60)" in line for line in found.splitlines())


def test_it_ends_when_we_are_killed(tier: Tier, folder: Path) -> None:
    mark = f"graphbus-orphan-{os.getpid()}-{tier}"
    ours = f"""
import sys
from pathlib import Path
from graphbus_core.editing.sandboxes.jails import Jail
from graphbus_core.editing.sandboxes.process import Limits
Jail({tier!r}).run([sys.executable, "-c", "import time; time.sleep(60)", {mark!r}], Path({str(folder)!r}), limits=Limits())
"""
    parent = subprocess.Popen([sys.executable, "-c", ours])
    deadline = time.monotonic() + PATIENCE_S
    while not running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(mark)
    parent.kill()
    parent.wait()
    while running(mark) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not running(mark)


def test_it_has_no_terminal_and_no_rights(tier: Tier, folder: Path) -> None:
    assert attempt(tier, folder, "open('/dev/tty', 'w')").startswith("kept in")
    status = run(tier, folder, "print(open('/proc/self/status').read())").stdout
    wanted = {"NoNewPrivs": "1", "CapEff": "0" * 16, "CapPrm": "0" * 16, "CapAmb": "0" * 16}
    assert (
        wanted.items()
        <= {name: value.strip() for name, _, value in (s.partition(":") for s in status.splitlines())}.items()
    )
    assert run(tier, folder, "import os; print(os.getuid())").stdout != "0\n"


# --- which one ---------------------------------------------------------------------------------------


def test_the_real_project_stays_hidden_even_where_it_is_installed_from_its_sources(tmp_path: Path) -> None:
    shown = [place for _, place in reach(Path(__file__).parents[3], ()).reads]

    assert str(Path(__file__).parents[3]) not in shown
    assert not any(str(Path.home()) == place or place == "/" for place in shown)


def test_a_jail_that_cannot_be_built_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(EditError, match="could not be built: no room") as caught:
        Jail("bubblewrap").run(["true"], tmp_path, limits=Limits())

    assert caught.value.code == "GBE331"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without jails."""
    monkeypatch.setattr(sandboxes, "obstacle", lambda tier: f"no {tier}")


def test_the_best_jail_is_taken_or_what_the_settings_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "obstacle", lambda tier: "" if tier == "landlock" else "not installed")

    assert getattr(choose("jail"), "tier", "") == "landlock"
    assert isinstance(choose("process"), ProcessSandbox)
    assert describe() == "changed code runs in a jail (landlock)"


@pytest.mark.usefixtures("nowhere")
def test_where_there_is_no_jail_nothing_runs_and_nothing_passes(tmp_path: Path) -> None:
    assert choose("jail") is None
    assert "bubblewrap: no bubblewrap; landlock: no landlock" in describe()
    for settings, passed in ((GateConfig(), False), (GateConfig(allow_unverified=True), True)):
        shop = Shop(tmp_path / str(passed), with_tests=True, gate=settings)
        marker = tmp_path / "ran"
        shop.gate = Gate(shop.project, shop.config, choose("jail"))
        report = shop.replace("2.5 * count", "count * 2.5")
        assert report.passed == passed
        assert "G5.unverified" in [rung.code for rung in report.rungs]
        assert "Install bubblewrap" in str(report)
        assert not marker.exists()
    assert code_of(report) == ""


def test_a_jail_that_is_not_there_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    obstacle.cache_clear()
    with monkeypatch.context() as here:
        here.setattr(shutil, "which", lambda name: None)
        assert obstacle("bubblewrap") == "the program bwrap is not installed"
    obstacle.cache_clear()
    with monkeypatch.context() as here:
        here.setattr(sys, "platform", "darwin")
        assert obstacle("landlock") == "it needs Linux"
    obstacle.cache_clear()


def test_a_jail_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho Creating new namespace failed >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    obstacle.cache_clear()
    with monkeypatch.context() as here:
        here.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert "Creating new namespace failed" in obstacle("bubblewrap")
    obstacle.cache_clear()
