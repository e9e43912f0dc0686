"""`--confined` as a person meets it: what is said at the start, the one error of a missing power, and what cannot be confined."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project
from tests.fakes.http_site import BEARER, TOKEN
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.patience import PATIENCE_S
from tests.reading import HEAD

pytestmark = pytest.mark.slow

RATES = f"""{HEAD}
import asyncio
import os
import socket
import subprocess


class Rates(GraphBusNode):
    @subscribe("/Rates/Wanted")
    def on_rates_wanted(self, event):
        socket.create_connection(("api.evil.example", 443))

    @subscribe("/Stream/Wanted")
    async def on_stream_wanted(self, event):
        await asyncio.open_connection("api.evil.example", 443)

    @subscribe("/Report/Wanted")
    async def on_report_wanted(self, event):
        with open("report.txt", "w") as file:
            file.write("x")

    @subscribe("/Program/Wanted")
    def on_program_wanted(self, event):
        subprocess.run(["ls"])

    @subscribe("/Key/Wanted")
    def on_key_wanted(self, event):
        os.environ["BANK_KEY"]

    @subscribe("/Pipe/Wanted")
    def on_pipe_wanted(self, event):
        os.mkfifo("pipe")

    @subscribe("/Library/Wanted")
    def on_library_wanted(self, event):
        try:
            open("/etc/hosts")
        except OSError:
            self.log("went on without it")

    @schema_method(input_schema={{}}, output_schema={{"files": int}})
    def count(self):
        return {{"files": len(os.listdir("/etc"))}}
"""
REPOSITORY = Path(__file__).parents[2]
HTTP = """[project]
name = "rates"
[tool.graphbus]
external_topics = ["/**"]
"""


def built(project: Project, powers: str = "", files: Mapping[str, str] | None = None) -> Path:
    root = project({"pyproject.toml": f"{HTTP}\n{powers}", **(files or {"agents/rates.py": RATES})})
    build_graph(root / "agents")
    return root


def run(root: Path, *words: str, program: tuple[str, ...] = ("-m", "graphbus_core", "run")) -> tuple[int, str, str]:
    command = [sys.executable, *program, *words, "--confined"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")} | {"BANK_KEY": "k"}
    finished = subprocess.run(
        command, cwd=root, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return finished.returncode, finished.stdout, finished.stderr


WANTED = [
    ("/Rates/Wanted", "Rates.on_rates_wanted may not look up api.evil.example", 'network = ["api.evil.example"]'),
    ("/Stream/Wanted", "Rates.on_stream_wanted may not look up api.evil.example", 'network = ["api.evil.example"]'),
    ("/Report/Wanted", "Rates.on_report_wanted may not write report.txt", 'write = ["report.txt"]'),
    ("/Program/Wanted", "Rates.on_program_wanted may not start ls", "processes = true"),
    ("/Key/Wanted", "Rates.on_key_wanted may not read the environment variable BANK_KEY", 'environment = ["BANK_KEY"]'),
]


@pytest.mark.parametrize(("topic", "told", "allowed"), WANTED, ids=[topic for topic, _, _ in WANTED])
def test_a_missing_power_is_one_error_that_says_who_where_and_how_to_allow_it(
    project: Project, topic: str, told: str, allowed: str
) -> None:
    status, _, err = run(built(project), "--publish", topic, "{}")
    assert status == 7
    (line,) = [line for line in err.splitlines() if line.startswith("[ERROR]")]
    assert f"{told}: that needs `{allowed}` in [tool.graphbus.powers]. [GBE651]" in line
    assert "Traceback" not in err
    where = re.search(r"^agents/rates\.py:\d+: error: 1 delivery failed", err, re.MULTILINE)
    assert where, err


def test_what_only_the_kernel_has_seen_is_told_with_what_the_graph_is_bound_to(project: Project) -> None:
    status, _, err = run(built(project), "--publish", "/Pipe/Wanted", "{}")
    assert status == 7
    assert (
        "The operating system refused an operation of Rates.on_pipe_wanted on this line (permission denied), because the "
        "graph runs confined: no network" in err
    )
    assert "[GBE654]" in err


def test_a_call_fails_with_the_same_error(project: Project) -> None:
    status, out, err = run(built(project), "--call", "Rates.count", "{}")
    assert status == 7
    assert "Rates.count may not read /etc" in err
    assert "[GBE651]" in err
    assert out == ""
    assert "[RUNTIME] Ready. Zero LLM calls will be made during execution." in err


def test_a_module_that_acts_while_it_is_imported_does_not_start(project: Project) -> None:
    text = f"{HEAD}\nopen('/etc/hosts')\n\n\nclass Early(GraphBusNode): pass\n"
    status, _, err = run(built(project, files={"agents/early.py": text}))
    assert status == 7
    assert "agents/early.py may not read /etc/hosts" in err


def test_the_first_lines_say_what_the_graph_is_bound_to(project: Project) -> None:
    powers = """[tool.graphbus.powers]
network = ["api.bank.example"]
write = ["reports/"]
read = ["/etc/hosts"]
environment = ["BANK_KEY"]
"""
    root = built(project, powers)
    status, out, _ = run(root, "--publish", "/Key/Wanted", "{}")
    assert status == 0
    assert out.splitlines()[1:3] == [
        "[RUNTIME] Confined: network to api.bank.example, no programs, environment variables BANK_KEY; reads /etc/hosts in "
        "addition to the project; writes only to .graphbus/state, reports/.",
        "[RUNTIME] Not enforced here: the declared hosts, for native code.",
    ]
    assert (root / "reports").is_dir()


def test_a_place_to_write_that_is_not_there_is_refused_before_anything_starts(project: Project) -> None:
    status, out, err = run(built(project, '[tool.graphbus.powers]\nwrite = ["reports"]\n'))
    assert (status, out) == (7, "")
    assert "The powers allow the graph to write to 'reports', but this path cannot be used" in err
    assert "[GBE653]" in err


def kernel_without(*missing: str) -> tuple[str, ...]:
    """A program that runs a graph on a kernel that lacks these: a filter before ours says that their calls are not there."""
    return (
        "-c",
        "import os, sys; from graphbus_core.confinement import calls, kernel; "
        "calls._NUMBERS.update(landlock=(444, 444), seccomp=(317, 277)); machine = os.uname().machine; "
        f"rules = [calls.CallRule(name, calls.ENOSYS) for name in {missing!r}]; kernel.give_up_privileges(); "
        "assert kernel.install_filter(machine, calls.compile_filter(machine, rules)); "
        "from graphbus_core.runtime import main; sys.exit(main(sys.argv[1:]))",
    )


def test_where_nothing_can_be_enforced_no_graph_starts(project: Project) -> None:
    status, out, err = run(built(project), program=kernel_without("landlock", "seccomp"))
    assert (status, out) == (7, "")
    assert "A confined graph cannot run on this machine, because the kernel cannot restrict files" in err
    assert "[GBE652]" in err


@pytest.mark.parametrize(
    ("missing", "gap"),
    [
        ("landlock", "files (this kernel has no Landlock)"),
        ("seccomp", f"network and programs (no seccomp for {os.uname().machine} here)"),
    ],
)
def test_what_the_kernel_lacks_is_said_and_python_code_is_held_nevertheless(
    project: Project, missing: str, gap: str
) -> None:
    main_text = """
        import socket, subprocess

        def run(graph):
            for deed in (
                lambda: open("x", "w"),
                lambda: open("/etc/hosts"),
                lambda: socket.create_connection(("127.0.0.1", 1)),
                lambda: subprocess.run(["true"]),
            ):
                try:
                    deed()
                except PermissionError as error:
                    print(error)
        """
    root = built(project, files={"agents/rates.py": RATES, "main.py": main_text})
    status, out, err = run(root, "--entrypoint", "main:run", program=kernel_without(missing))
    assert status == 0, err
    assert f"[RUNTIME] Not enforced here: {gap}." in out
    assert out.count("[GBE651]") == 4


@pytest.mark.parametrize("program", [("-m", "graphbus_core", "run"), ("-m", "graphbus_core.runtime")])
def test_a_served_graph_answers_and_stays_bound(project: Project, program: tuple[str, ...]) -> None:
    root = built(project)
    serve = ["--serve", "--port", "0"] if program[-1] == "run" else ["--serve", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, *program, "--confined", *serve, "--health", "0"],
        cwd=root,
        env={name: value for name, value in os.environ.items() if not name.startswith("COV")}
        | {"GRAPHBUS_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr
        lines = [process.stderr.readline(), process.stderr.readline()]
        ports = {line.split()[1]: int(match[1]) for line in lines if (match := re.search(r":(\d+)/", line))}
        connection = http.client.HTTPConnection("127.0.0.1", ports["Listening"], timeout=PATIENCE_S)
        connection.request("POST", "/call/Rates/count", "{}", BEARER | {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 500
        connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, (out, err)
    assert "Rates.count may not read /etc" in err


def test_a_confined_graph_keeps_its_state_and_its_dead_letters(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "examples" / "orders", tmp_path / "orders", ignore=shutil.ignore_patterns(".graphbus"))
    assert main(["build", str(tmp_path / "orders" / "orders")]) == 0

    status, out, err = run(tmp_path / "orders", "--entrypoint", "orders.main:load")

    assert status == 0, err
    assert "revenue 13250.00" in out
    assert "GBE6" not in err


@pytest.mark.parametrize("program", [("-m", "graphbus_core", "run"), ("-m", "graphbus_core.runtime")])
def test_a_confined_graph_connects_to_the_ledger_that_its_environment_names_and_to_nothing_else(
    program: tuple[str, ...], project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main_text = "def ask(graph):\n    graph.publish('/Rates/Wanted', {})\n    graph.settle()\n"
    root = built(project, files={"agents/rates.py": RATES, "agents/main.py": main_text})
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        monkeypatch.setenv("GRAPHBUS_LEDGER", server.url("rates"))
        status, _, err = run(root, "--entrypoint", "agents.main:ask", program=program)
        assert list((tmp_path / "nats").rglob("GB_rates"))
    assert "Rates.on_rates_wanted may not look up api.evil.example" in err
    assert status == 7  # as for any handler that fails
    assert "GBE659" not in err


def test_powers_are_compared_with_what_the_code_uses(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = built(project, '[tool.graphbus.powers]\nnetwork = ["*"]\nprocesses = true\n')
    monkeypatch.chdir(root)
    assert main(["powers", "agents", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert {use["power"] for use in found["undeclared"]} == {"write", "environment"}
    assert found["unused"] == []
    assert main(["powers", "agents"]) == 3
    assert "agents/rates.py:" in capsys.readouterr().out
