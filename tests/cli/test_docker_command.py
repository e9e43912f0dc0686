"""`graphbus docker`: what is written, what is refused, and what an engine is asked to do. The engine here only takes notes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project
from tests.patience import PATIENCE_S

FILES: dict[str, str | bytes] = {
    "pyproject.toml": """
        [project]
        name = "The Shop"
        version = "1.4.2+local"
        requires-python = ">=3.12,<3.13"

        [tool.graphbus.runtime]
        grace_s = 20.5
        """,
    "agents/__init__.py": "",
    "agents/orders.py": """
        from agents import prices
        from graphbus_core import GraphBusNode, schema_method

        class Orders(GraphBusNode):
            @schema_method(input_schema={}, output_schema={"total": int})
            def total(self) -> dict[str, int]:
                return {"total": prices.ALL}
        """,
    "agents/prices.py": "ALL = 7\n",
    "agents/rates.json": "{}",
    ".env": "SECRET=1\n",
}
WRITTEN = [".dockerignore", "Dockerfile", "docker/graphbus.toml", "docker/requirements.txt"]
NOTES = "notes.txt"
ENGINE = """#!/bin/sh
printf '%s' "$0" | sed 's,.*/,,' >> "$NOTES"
printf ' %s' "$@" >> "$NOTES"
printf '\\n' >> "$NOTES"
case "$1" in
  version|info) [ -z "$SILENT" ] || { echo 'Cannot connect to the engine. Is it running?' >&2; exit 1; }; echo 28.0 ;;
  build) [ -z "$SLOW" ] || { trap 'echo ended >> "$NOTES"; exit 143' TERM HUP; echo begun >&2; while :; do :; done; }
    echo 'step 1 of 1'; exit "${FAILS:-0}" ;;
  run) echo 'the graph says hello'; exit "${FAILS:-0}" ;;
esac
"""


class Terminal:
    """A shell in the folder of a project: PATH has the engines that were installed here, and nothing else that could be one."""

    def __init__(self, root: Path, programs: Path) -> None:
        self.root = root
        self.programs = programs
        self._notes = programs / NOTES
        self.variables: dict[str, str] = {}
        for name in ("sed",):
            (programs / name).symlink_to(Path("/usr/bin" if Path(f"/usr/bin/{name}").exists() else "/bin") / name)

    def install(self, name: str) -> None:
        path = self.programs / name
        path.write_text(ENGINE)
        path.chmod(0o755)

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        self._notes.unlink(missing_ok=True)
        kept = {name: value for name, value in os.environ.items() if name.startswith("COV")}
        env = {**kept, "PATH": str(self.programs), "NOTES": str(self._notes), **self.variables}
        command = [sys.executable, "-m", "graphbus_core", "docker", *words]
        return subprocess.run(
            command, cwd=self.root, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """The same in a group of its own, and do not wait."""
        env = {"PATH": str(self.programs), "NOTES": str(self._notes), **self.variables}
        command = [sys.executable, "-m", "graphbus_core", "docker", *words]
        return subprocess.Popen(
            command, cwd=self.root, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    @property
    def notes(self) -> str:
        return self._notes.read_text()

    @property
    def asked(self) -> list[str]:
        """What engines were asked to do, after whether they are there."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [line for line in lines if line.split()[1] not in ("version", "info")]


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", "/nowhere")
    build_graph("agents")
    return root


@pytest.fixture
def terminal(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(shop, tmp_path_factory.mktemp("programs"))


def files_of(root: Path) -> list[str]:
    made = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} - set(FILES)
    return sorted(path for path in made if not path.startswith((".graphbus/", "docker/graphbus_runtime")))


def test_without_an_engine_the_files_are_written_and_the_status_says_that_there_is_no_image(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docker", "build"]) == 8
    assert files_of(shop) == WRITTEN
    said = capsys.readouterr()
    assert "written      Dockerfile\n" in said.out
    assert "docker or podman was not found on PATH. [GBE704]" in said.err
    assert "`docker build --tag the-shop:1.4.2-local .`" in said.err
    assert main(["docker", "build", "--no-build"]) == 0
    assert "GBE704" not in capsys.readouterr().err


def test_the_document_of_a_build_without_an_engine_comes_with_the_status(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docker", "build", "--json"]) == 8
    document = json.loads(capsys.readouterr().out)
    assert (document["is_built"], document["files"]["Dockerfile"]) == (False, "new")


def test_an_engine_on_path_builds_the_image(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    terminal.install("podman")
    for name, value in {"PATH": str(terminal.programs), "NOTES": str(terminal.programs / NOTES)}.items():
        monkeypatch.setenv(name, value)
    assert main(["docker", "build", "--tag", "shop:2"]) == 0
    assert capfd.readouterr().out.endswith("built        shop:2\n")
    assert (terminal.programs / NOTES).read_text().splitlines()[-1] == "podman build --format docker --tag shop:2 ."
    monkeypatch.setenv("SILENT", "1")
    assert main(["docker", "build"]) == 8
    said = capfd.readouterr().err
    assert "[GBE715]" in said
    assert "Cannot connect to the engine" in said


def test_a_list_of_requirements_that_is_no_text_is_refused(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "pins.txt").write_bytes(b"\xff\xfe")
    assert main(["docker", "build", "--no-build", "--requirements", "pins.txt"]) == 8
    said = capsys.readouterr().err
    assert "[GBE714]" in said
    assert "it is not UTF-8 text" in said


def test_only_what_a_run_needs_is_let_through(shop: Path) -> None:
    assert main(["docker", "build", "--no-build"]) == 0
    ignored = (shop / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {"!agents/*.py", "!pyproject.toml", "!.graphbus/manifest.json"} <= set(ignored)
    assert not any("json" in line and line.startswith("!agents") for line in ignored)
    assert "FROM docker.io/library/python:3.12." in (shop / "Dockerfile").read_text()


def test_the_files_say_which_command_writes_them_again(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "pins.txt").write_text("")
    words = ["--requirements", "pins.txt", "--include", "agents/rates.json", "--serve", "--python", "3.12"]
    assert main(["docker", "build", "--no-build", *words]) == 0
    again = (shop / "Dockerfile").read_text().split("`")[1]
    assert again == ("graphbus docker build --requirements pins.txt --python 3.12 --include agents/rates.json --serve")
    assert main([*again.split()[1:], "--check"]) == 0
    assert main(["docker", "build", "--no-build", "--optional", "a\nRUN evil"]) == 8
    assert "[GBE714]" in capsys.readouterr().err


A_FOLDER_WHOSE_NAME = ["--from=libraries", "<<EOF", "st*r", "it's", "back\\slash", "do$lar", " first", "last "]


def test_a_folder_whose_name_a_dockerfile_would_misread_makes_no_image(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in A_FOLDER_WHOSE_NAME:
        (shop / name).mkdir()
        (shop / name / "text").write_text("")
        assert main(["docker", "build", "--no-build", "--include", f"./{name}"]) == 8
        assert "[GBE714]" in capsys.readouterr().err
    assert not (shop / "Dockerfile").exists()


def test_a_dockerfile_of_the_user_is_not_overwritten(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "Dockerfile").write_text("FROM scratch\n")
    assert main(["docker", "build"]) == 8
    assert files_of(shop) == ["Dockerfile"]
    assert main(["docker", "build", "--diff"]) == 0
    assert "-FROM scratch\n" in capsys.readouterr().out
    assert main(["docker", "build", "--check"]) == 8
    assert "[GBE706]" in capsys.readouterr().err
    assert main(["docker", "build", "--no-build", "--force"]) == 0
    assert "overwritten  Dockerfile" in capsys.readouterr().out


A_REFUSAL_HAS_ITS = [
    (["nowhere"], 6, "GBE501"),
    (["--tag", "No Tag"], 8, "GBE703"),
    (["--python", "3.9"], 8, "GBE713"),
    (["--base", "python:3.13"], 8, "GBE712"),
    (["--requirements", "nowhere.txt"], 8, "GBE714"),
    (["--include", "/etc/hostname"], 8, "GBE714"),
    (["--include", "."], 8, "GBE714"),
    (["--tag", "shop@sha256:" + "0" * 64], 8, "GBE703"),
    (["--base", "a", "--python", "3.12"], 2, "GBE132"),
    (["--run"], 8, "GBE704"),
    (["--engine", "podman"], 8, "GBE704"),
    (["--run", "--no-build"], 2, "GBE132"),
    (["--run", "--json"], 2, "GBE132"),
]


def test_a_refusal_has_its_code_and_writes_nothing(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, status, code in A_REFUSAL_HAS_ITS:
        assert main(["docker", "build", *words]) == status
        assert f"[{code}]" in capsys.readouterr().err
        assert files_of(shop) == []


def test_artifacts_that_are_older_than_their_sources_make_no_image(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("agents/orders.py", "agents/prices.py"):
        (shop / path).write_text((shop / path).read_text() + "# later\n")
    assert main(["docker", "build"]) == 6
    told = capsys.readouterr().err
    assert told.count("[GBE508]") == 2
    assert files_of(shop) == []


def test_agents_that_import_packages_need_them_pinned(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(FILES["agents/orders.py"]).replace("from agents import prices", "import msgspec, requests, yaml")
    root = project({**FILES, "agents/orders.py": source})
    monkeypatch.chdir(root)
    build_graph("agents")
    assert main(["docker", "build", "--no-build"]) == 8
    assert "not pinned to a version: requests, yaml. [GBE710]" in capsys.readouterr().err
    lines = "".join(f"{name}==1 --hash=sha256:{'0' * 64}\n" for name in ("requests", "pyyaml", "msgspec"))
    (root / "requirements.txt").write_text(lines)
    assert main(["docker", "build", "--no-build", "--requirements", "requirements.txt"]) == 0
    assert "--requirement=requirements.txt" in (root / "Dockerfile").read_text()
    assert "msgspec requests yaml\n" in (root / "Dockerfile").read_text()
    assert "!requirements.txt" in (root / ".dockerignore").read_text()
    assert "msgspec" not in (root / "docker" / "requirements.txt").read_text()
    assert main(["docker", "build", "--diff", "--optional", "yaml", "--optional", "requests"]) == 0
    assert "+    python -m pip" not in capsys.readouterr().out


def test_what_the_settings_ask_for_is_installed(shop: Path) -> None:
    pyproject = shop / "pyproject.toml"
    pyproject.write_text(pyproject.read_text() + 'tracing = true\nledger = "nats://nats:4222"\n')
    assert main(["docker", "build", "--no-build", "--serve"]) == 0
    installed = (shop / "docker" / "requirements.txt").read_text()
    assert all(
        f"\n{name}==" in installed for name in ("msgspec", "starlette", "uvicorn", "opentelemetry-api", "nats-py")
    )
    assert installed.count("\ntyping-extensions==") == 1
    assert "networkx" not in installed


def test_an_image_for_a_ledger_on_nats_that_only_the_cluster_names(shop: Path) -> None:
    assert main(["docker", "build", "--no-build", "--nats"]) == 0
    assert "\nnats-py==" in (shop / "docker" / "requirements.txt").read_text()
    assert "graphbus docker build --nats`" in (shop / "Dockerfile").read_text()


@pytest.mark.slow
class TestWithAnEngine:
    def test_an_engine_that_does_not_answer_is_none(self, terminal: Terminal) -> None:
        terminal.install("docker")
        terminal.variables["SILENT"] = "1"
        done = terminal.type("build")
        assert (done.returncode, terminal.asked) == (8, [])
        assert "its engine does not answer: Cannot connect to the engine. [GBE715]" in done.stderr
        assert "[GBE715]" in terminal.type("build", "--run", "--force").stderr
        assert "[GBE715]" in terminal.type("run").stderr

    def test_who_ends_the_command_ends_the_build(self, terminal: Terminal) -> None:
        terminal.install("docker")
        terminal.variables["SLOW"] = "1"
        with terminal.begin("build") as process:
            try:
                assert process.stderr is not None
                assert any(line == "begun\n" for line in process.stderr)
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=PATIENCE_S)
            finally:
                if process.poll() is None:  # or its build would go on for ever
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGTERM
        assert terminal.notes.endswith("\nended\n")

    def test_a_run_has_as_few_rights_as_it_needs(self, terminal: Terminal) -> None:
        terminal.install("docker")
        done = terminal.type("build", "--run", "--serve")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "the graph says hello")
        assert terminal.asked[0] == "docker build --tag the-shop:1.4.2-local ."
        assert "step 1 of 1" in done.stderr
        started = terminal.asked[1]
        for words in (
            "--rm --init --read-only --tmpfs /tmp:rw,noexec,nosuid,nodev,size=64m",
            "--user 65532:65532 --cap-drop ALL --security-opt no-new-privileges",
            "--volume the-shop-state:/var/lib/graphbus",
            "--publish 127.0.0.1:8080:8080 --publish 127.0.0.1:8765:8765 --env GRAPHBUS_TOKEN",
            "--stop-timeout 26 the-shop:1.4.2-local",
        ):
            assert words in started

    def test_the_status_of_a_run_is_that_of_the_container(self, terminal: Terminal) -> None:
        terminal.install("docker")
        terminal.variables["FAILS"] = "7"
        assert "failed with exit status 7. [GBE705]" in terminal.type("build", "--run").stderr
        done = terminal.type("run", "--tag", "ghcr.io/acme/shop:2", "--port", "9090", "--", "--entrypoint", "main:run")
        assert done.returncode == 7
        assert "--publish 127.0.0.1:9090:8080" in terminal.asked[0]
        assert "--volume shop-state:" in terminal.asked[0]
        assert terminal.asked[0].endswith(" ghcr.io/acme/shop:2 --health 0.0.0.0:8080 --entrypoint main:run")
