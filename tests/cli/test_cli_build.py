"""`graphbus build` and `graphbus negotiate`: what they say, what they write, and what they leave alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.editing.journal import COMMITTING
from graphbus_core.editing.promotion import promote
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.transcript import load_session
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project

SENDER = """
    from graphbus_core import GraphBusNode

    class Sender(GraphBusNode):
        def send(self) -> None:
            self.publish("/Letter/Sent", {"recipient": "Ada", "weight_g": 12})
    """
READER = """
    from graphbus_core import GraphBusNode, subscribe

    class Reader(GraphBusNode):
        @subscribe("/Letter/Sent")
        def on_letter(self, event):
            self.log(event["recipiant"])
    """
JUDGE = """
    from graphbus_core import GraphBusNode

    class Judge(GraphBusNode):
        IS_ARBITER = True
    """
PYPROJECT = """
    [project]
    name = "post"
    requires-python = ">=3.11"
    [tool.graphbus]
    """


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A post office in which a reader misspells what a sender sends."""
    files = {"sender.py": SENDER, "reader.py": READER, "judge.py": JUDGE, "__init__.py": ""}
    write_project(tmp_path, {"pyproject.toml": PYPROJECT, **{f"agents/{name}": text for name, text in files.items()}})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def healthy_post(post: Path) -> Path:
    write_project(post, {"agents/reader.py": READER.replace("recipiant", "recipient")})
    return post


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sources(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in files(folder).items() if path.endswith(".py")}


# --- without agents -------------------------------------------------------------------------


def test_a_build_sums_up_agents_order_and_artifacts(healthy_post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "agents/"]) == 0
    streams = capsys.readouterr()
    first, *rest = streams.out.splitlines()
    assert first.startswith("✓ Built 3 agents, 1 topic, 1 subscription in ")
    assert rest == ["  order: Sender → Reader → Judge", "✓ Artifacts written to: .graphbus/"]
    assert streams.err == ""
    assert (healthy_post / ".graphbus" / "graph.json").is_file()


def test_a_build_of_nothing_new_says_so_and_leaves_every_file_as_it_is(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "agents/"]) == 0
    before = {path: path.stat().st_mtime_ns for path in (post / ".graphbus").glob("*.json")}
    capsys.readouterr()
    assert main(["build", "agents/"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("✓ Nothing has changed since the last build: 3 agents, 1 topic, 1 subscription (")
    assert rest == ["  1 error: graphbus check agents/"]
    assert {path: path.stat().st_mtime_ns for path in (post / ".graphbus").glob("*.json")} == before


def test_a_dry_run_without_agents_writes_nothing(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(post)
    assert main(["build", "agents/", "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("✓ Read 3 agents")
    assert shown[-1] == "Dry run: nothing was written. 0 files would change."
    assert {path: content for path, content in files(post).items() if "/cache/" not in path} == before


def test_with_json_a_build_is_one_document(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "agents/", "--json"]) == 0
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert document["agents"] == document["activation_order"] == ["Sender", "Reader", "Judge"]
    assert document["topics"] == ["/Letter/Sent"]
    assert document["artifacts"] == ".graphbus/"
    assert [finding["code"] for finding in document["findings"]] == ["GB003"]
    assert (document["is_unchanged"], document["negotiation"], document["modified"]) == (False, None, [])
    assert streams.err == ""
    assert main(["build", "agents/", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_unchanged"] is True


def test_every_broken_file_is_reported_and_no_artifact_is_written(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(
        post,
        {
            "agents/one.py": "class One(GraphBusNode:\n",
            "agents/two.py": b"class Two(GraphBusNode):\n    name = '\xff'\n",
        },
    )
    assert main(["build", "agents/"]) == 3
    streams = capsys.readouterr()
    assert "agents/one.py:1" in streams.err
    assert "agents/two.py" in streams.err
    assert streams.out == ""
    assert not (post / ".graphbus" / "graph.json").exists()


@pytest.mark.parametrize("command", ["build", "negotiate"])
def test_a_path_that_does_not_exist_is_refused(command: str, post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "agentz/"]) == 2
    assert "[GBE101]" in capsys.readouterr().err


# --- with agents ----------------------------------------------------------------------------

AGREED = [
    "Sender, Reader negotiate; Judge settles what they cannot.",
    "Round 1",
    "[AGENT] Reader: \"I propose to read 'recipient' instead of 'recipiant' in Reader.on_letter\" (P001)",
    '[AGENT] Sender: "Accepted',
    "[ARBITER] Consensus (1/1). Committing.",
    "  ✓ Modified: agents/reader.py (P001)",
    "✓ Build complete — 1 file improved by agents",
    "✓ Artifacts written to: .graphbus/",
]


@pytest.mark.slow
def test_a_build_with_agents_shows_who_negotiates_what_they_say_and_what_came_of_it(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "agents/", "--enable-agents"]) == 0
    streams = capsys.readouterr()
    lines = streams.out.splitlines()
    assert lines[0].startswith("Rules, not a model, negotiate")
    positions = [next(i for i, line in enumerate(lines) if line.startswith(wanted)) for wanted in AGREED]
    assert positions == sorted(positions)
    assert "\x1b" not in streams.out + streams.err
    assert 'event["recipient"]' in (post / "agents" / "reader.py").read_text()


@pytest.mark.slow
def test_a_dry_run_with_agents_shows_the_diff_and_writes_nothing(
    post: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(post)
    assert main(["build", "agents/", "--enable-agents", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert '-        self.log(event["recipiant"])' in lines
    assert '+        self.log(event["recipient"])' in lines
    assert lines[-1] == "Dry run: nothing was written. 1 file would change."
    assert not any("Modified" in line or "Artifacts written" in line for line in lines)
    assert {path: content for path, content in files(post).items() if "/cache/" not in path} == before
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["build", "agents/", "--enable-agents", "--dry-run"]) == 0
    assert '\x1b[32m+        self.log(event["recipient"])\x1b[0m' in capsys.readouterr().out


@pytest.mark.slow
def test_with_json_the_negotiation_is_talk_and_the_document_is_alone_on_stdout(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "agents/", "--enable-agents", "--json"]) == 0
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert document["negotiation"]["ending"]["reason"] == "convergence"
    assert [change["path"] for change in document["modified"]] == ["agents/reader.py"]
    assert "recipient" in document["diffs"]["agents/reader.py"]
    assert document["findings"] == []
    assert "[ARBITER] Consensus (1/1). Committing." in streams.err


@pytest.mark.slow
def test_what_cannot_be_verified_is_refused_with_what_to_do_unless_it_is_allowed(
    post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(post, {"pyproject.toml": PYPROJECT + '    [tool.graphbus.gate]\n    test_command = ["false"]\n'})
    before = sources(post)
    assert main(["negotiate", "agents/"]) == 0
    out = capsys.readouterr().out
    assert "[GATE] Refused by G6.unverified: Even without the change, the test command fails (exit status 1)" in out
    assert "set test_command in [tool.graphbus.gate]" in out
    assert "--unsafe-verify" in out
    assert sources(post) == before
    assert main(["negotiate", "agents/", "--unsafe-verify"]) == 0
    out = capsys.readouterr().out
    assert "Unverified changes are let through: --unsafe-verify" in out
    assert "[GATE] Not verified (G6.unverified): Even without the change, the test command fails" in out
    assert 'event["recipient"]' in (post / "agents" / "reader.py").read_text()


@pytest.mark.slow
def test_negotiate_changes_the_sources_and_no_artifact(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "agents/"]) == 0
    artifacts = {path: path.read_bytes() for path in (post / ".graphbus").glob("*.json")}
    capsys.readouterr()
    assert main(["negotiate", "agents/", "--rounds", "3", "--intent", "spell it right"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "✓ Negotiation complete — 1 file improved by agents" in lines
    assert "  graphbus build agents/ renews the artifacts" in lines
    assert 'event["recipient"]' in (post / "agents" / "reader.py").read_text()
    assert {path: path.read_bytes() for path in (post / ".graphbus").glob("*.json")} == artifacts
    assert main(["undo"]) == 0
    assert 'event["recipiant"]' in (post / "agents" / "reader.py").read_text()


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_stop_a_negotiation(post: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "graphbus_core", "negotiate", "agents/"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
    assert 'event["recipient"]' in (post / "agents" / "reader.py").read_text()


def interrupt(command: str, until: str) -> tuple[int, str, str]:
    """Run a negotiation, press Ctrl-C when the tests of the project run after this line; give status, output and talk."""
    arguments = [sys.executable, "-u", "-m", "graphbus_core", *command.split()]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        while until not in "".join(lines[-1:]):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        wait_for_pytest(process.pid)
        process.send_signal(signal.SIGINT)
        out, talk = process.communicate(timeout=PATIENCE_S)
    return process.returncode, "".join(lines) + out, talk


def wait_for_pytest(process: int) -> None:
    """Wait until a process or what it has started runs pytest."""

    def runs(pid: str) -> bool:
        with suppress(OSError):  # it has ended
            if b"pytest" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
            return any(runs(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return False

    assert comes_true(lambda: runs(str(process)))


SLOW_WHEN_BOTH_ARE_FIXED = """
    import time
    from pathlib import Path

    def test_letters():
        fixed = "recipient" in Path("agents/reader.py").read_text(), "weight_g" in Path("agents/other.py").read_text()
        if all(fixed):
            time.sleep(1000)
    """


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_accepted_in_the_session_and_says_that_nothing_was_written(post: Path) -> None:
    write_project(post, {"agents/other.py": READER.replace("Reader", "Other").replace("recipiant", "wieght_g")})
    write_project(post, {"tests/test_post.py": SLOW_WHEN_BOTH_ARE_FIXED})
    before = sources(post)
    status, out, talk = interrupt("build agents/ --enable-agents", "Committing.")
    assert status == 130
    assert sources(post) == before
    assert not (post / ".graphbus" / "graph.json").exists()
    assert "Stopped by hand" in out
    assert "Session S001 is kept, with 1 accepted proposal; no source file was changed." in talk
    assert talk.endswith("Interrupted.\n")
    record = load_session(post / ".graphbus")
    assert record.negotiations.ending.reason == "manual"
    assert [one.status for one in record.negotiations.records].count("accepted") == 1
    assert not record.is_applied
    assert main(["undo"]) == 4


def test_a_promotion_that_was_interrupted_is_ended_and_told(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted_promotion(post)
    assert main(["build", "agents/"]) == 0
    assert capsys.readouterr().err == "An interrupted promote of S001 was completed.\n"
    assert main(["build", "agents/"]) == 0
    assert capsys.readouterr().err == ""


def test_check_ends_an_interrupted_promotion_before_it_judges(post: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupted_promotion(post, is_complete=False)
    assert main(["check", "agents/", "--json"]) == 3
    streams = capsys.readouterr()
    assert [finding["code"] for finding in json.loads(streams.out)["findings"]] == ["GB003"]
    assert streams.err == "An interrupted promote of S001 was taken back.\n"
    assert 'event["recipiant"]' in (post / "agents" / "reader.py").read_text()


def interrupted_promotion(root: Path, *, is_complete: bool = True) -> None:
    """A journal as kill -9 leaves it: all files are new, or only one of two."""
    contents = {}
    for name, change in (("reader", (b"recipiant", b"recipient")), ("sender", (b"12", b"13"))):
        old = (root / f"agents/{name}.py").read_bytes()
        contents[f"agents/{name}.py"] = (old, old.replace(*change))
    promote(ResolvedBuild(root=str(root), paths=()), contents, "S001")
    if not is_complete:
        (root / "agents/sender.py").write_bytes(contents["agents/sender.py"][0])
    folder = root / ".graphbus/journal/0001-S001"
    folder.rename(folder.with_name(folder.name + COMMITTING))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--rounds", "3"], "--rounds"),
        (["--intent", "typed payloads"], "--intent"),
        (["--unsafe-verify"], "--unsafe-verify"),
        (["--unsafe-verify", "--rounds", "3"], "--rounds"),
    ],
)
def test_what_only_agents_can_do_is_refused_without_agents(
    options: list[str], named: str, post: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(post)
    assert main(["build", "agents/", *options]) == 2
    talk = capsys.readouterr().err
    assert f"error: {named} has no effect without --enable-agents. [GBE131]" in talk
    assert f"hint: Add --enable-agents, or leave {named} out." in talk
    assert files(post) == before


# --- words ----------------------------------------------------------------------------------
