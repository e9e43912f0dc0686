"""`graphbus gate --hook`: the answer to what coding agents announce, in the forms that their documentation shows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import settings
from graphbus_core.cli import hook_answer, main
from graphbus_core.editing import foreign
from graphbus_core.editing.gate import check_file, judge_change
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

SHOP = """
from graphbus_core import GraphBusNode, schema_method, subscribe


class Shop(GraphBusNode):
    SYSTEM_PROMPT = "I sell."

    @schema_method(input_schema={"count": int}, output_schema={"total": float})
    def sell(self, count: int) -> dict:
        self.publish("/Shop/Sold", {"count": count})
        return {"total": 2.5 * count}
"""
BOOKS = """
from graphbus_core import GraphBusNode, subscribe


class Books(GraphBusNode):
    SYSTEM_PROMPT = "I count."

    @subscribe("/Shop/Sold")
    def on_sold(self, event) -> None:
        self.log(event["count"])
"""
FILES = {
    "pyproject.toml": '[project]\nname = "shop"\ndependencies = ["graphbus"]\n',
    "agents/__init__.py": "",
    "agents/shop.py": SHOP,
    "agents/books.py": BOOKS,
    "lib/money.py": "def cents(value):\n    return value\n",
    "notes.txt": "Buy mugs.\n",
}
POWER = "import subprocess\n"
YOURS = "(--user, if it is in your settings)"
UNRUN = "Not run: G5 import, G6 tests, G7 checks, G8 smoke."


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "shop", FILES)
    monkeypatch.chdir(root)
    return root


def announce(root: Path, tool_name: str, **tool_input: Any) -> dict[str, Any]:
    """What Claude Code and Codex send before a tool call, with the fields of their documentation."""
    return {
        "session_id": "abc123",
        "transcript_path": "transcript.jsonl",
        "cwd": str(root),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool_name,
        "tool_input": tool_input,
        "tool_use_id": "toolu_01ABC123",
    }


def end_of_turn(*roots: Path, **fields: Any) -> dict[str, Any]:
    """What Cursor sends when its agent has ended a turn."""
    return {
        "conversation_id": "c", "generation_id": "g", "model": "m", "hook_event_name": "stop", "cursor_version": "1.7.2",
        "workspace_roots": [str(root) for root in roots], "user_email": None, "transcript_path": None,
        "status": "completed", "loop_count": 0, **fields,
    }  # fmt: skip


def run_hook(tool: str, call: object, cwd: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run the hook as the tools do: a process of its own with JSON on stdin."""
    data = call if isinstance(call, bytes) else json.dumps(call).encode()
    command = [sys.executable, "-m", "graphbus_core", "gate", "--hook", tool, *options]
    return subprocess.run(command, input=data, capture_output=True, cwd=cwd, check=False)


def answer(
    tool: str, call: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, str]:
    """The same in this process: exit status, stdout and stderr."""
    data = call if isinstance(call, bytes) else json.dumps(call).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    status = main(["gate", "--hook", tool, *options])
    return status, *capsys.readouterr()


@pytest.mark.slow
def test_claude_code_is_kept_from_writing_a_file_that_takes_a_power(shop: Path) -> None:
    path = shop / "agents" / "shop.py"
    done = run_hook("claude-code", announce(shop, "Write", file_path=str(path), content=POWER + SHOP), shop)
    assert done.returncode == 2, done.stderr
    assert done.stdout == b""
    assert b"G3 capability, G3.process, agents/shop.py:1" in done.stderr
    assert b"Not run: G4 contract, G5 import" in done.stderr
    assert path.read_text() == SHOP.removeprefix("\n"), "a hook writes nothing"


@pytest.mark.slow
def test_codex_is_kept_from_a_patch_that_breaks_an_edge(shop: Path) -> None:
    patch = (
        "*** Begin Patch\n*** Update File: agents/shop.py\n@@ class Shop(GraphBusNode):\n"
        '-        self.publish("/Shop/Sold", {"count": count})\n+        self.publish("/Shop/Gone", {"count": count})\n'
        "*** End Patch\n"
    )
    done = run_hook("codex", announce(shop, "apply_patch", command=patch), shop)
    assert done.returncode == 2, done.stderr
    assert b"G4 contract" in done.stderr
    both = patch.replace("*** End Patch", "*** Update File: agents/books.py\n@@\n-    @subscribe(\"/Shop/Sold\")\n"
                         "+    @subscribe(\"/Shop/Gone\")\n*** End Patch")  # fmt: skip
    done = run_hook("codex", announce(shop, "apply_patch", command=both), shop)
    assert (done.returncode, done.stderr) == (0, b"")
    assert UNRUN in json.loads(done.stdout)["systemMessage"]


def test_claude_code_can_rename_a_topic_edit_by_edit_and_is_told_what_is_left(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for name in ("shop", "books"):
        path = shop / "agents" / f"{name}.py"
        renamed = path.read_text().replace("/Shop/Sold", "/Shop/Gone")
        call = announce(shop, "Write", file_path=str(path), content=renamed)
        status, out, err = answer("claude-code", call, monkeypatch, capsys)
        assert (status, err) == (0, "")
        shown[name] = json.loads(out)
        path.write_text(renamed)
    told = shown["shop"]["hookSpecificOutput"]
    assert told["hookEventName"] == "PreToolUse"
    assert "permissionDecision" not in told, "to allow would skip the question to the person"
    assert "G4 contract" in told["additionalContext"]
    assert list(shown["books"]) == ["systemMessage"]


@pytest.mark.slow
def test_cursor_is_told_after_its_turn_what_to_correct(shop: Path, tmp_path: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words], cwd=shop, check=True)
    done = run_hook("cursor", end_of_turn(shop), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{}\n", b"")
    (shop / "agents" / "shop.py").write_text(POWER + SHOP)
    (shop / "pyproject.toml").write_text('[project]\nname = "graphbus-shop"\n')  # not the hook's affair
    done = run_hook("cursor", end_of_turn(shop), tmp_path)
    assert done.returncode == 0
    assert "G3.process" in json.loads(done.stdout)["followup_message"]
    done = run_hook("cursor", end_of_turn(shop, status="aborted"), tmp_path)
    assert json.loads(done.stdout) == {}, "who has stopped the agent does not want it to go on"


EDITS = {
    "Edit": {"old_string": "2.5 * count", "new_string": "eval(count)"},
    "Edit of each": {"old_string": "count}", "new_string": "eval(count)}", "replace_all": True},
    "MultiEdit": {
        "edits": [
            {"old_string": "2.5 *", "new_string": "3.5 *"},
            {"old_string": "3.5 * count", "new_string": "eval(count)"},
        ]
    },
    "Write": {"content": SHOP.replace("2.5 * count", "eval(count)")},
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_every_form_of_an_edit_is_judged(
    name: str, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = announce(
        shop, name.partition(" ")[0], file_path=str(shop / "lib" / ".." / "agents" / "shop.py"), **EDITS[name]
    )
    status, out, err = answer("claude-code", call, monkeypatch, capsys)
    assert (status, out) == (2, ""), err
    assert err.startswith("graphbus gate refuses this: G")


SILENT = {
    "a tool that is no edit": ("Bash", {"command": "rm -rf agents"}),
    "no Python": ("Write", {"file_path": "notes.txt", "content": "x"}),
    "Python without an agent": ("Write", {"file_path": "lib/money.py", "content": POWER}),
    "a new file": ("Write", {"file_path": "agents/new.py", "content": POWER}),
    "a file that does not exist": ("Edit", {"file_path": "agents/no.py", "old_string": "a", "new_string": "b"}),
    "a path outside of the project": ("Write", {"file_path": "/shop.py", "content": POWER}),
    "a path above the project": ("Write", {"file_path": "../../agents/shop.py", "content": POWER}),
    "a path that is none": ("Write", {"file_path": "\0.py", "content": POWER}),
    "a path that is too long": ("Write", {"file_path": "a" * 5000 + ".py", "content": POWER}),
    "the same text": ("Write", {"file_path": "agents/books.py", "content": BOOKS.removeprefix("\n")}),
    "a patch of other files": ("apply_patch", {"command": "*** Begin Patch\n*** Add File: x.py\n+x\n*** End Patch"}),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_no_agent_passes_without_a_word(
    name: str, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, arguments = SILENT[name]
    assert answer("claude-code", announce(shop, tool, **arguments), monkeypatch, capsys) == (0, "", "")


def test_a_patch_may_change_a_file_in_two_sections(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = "*** Update File: agents/shop.py\n@@\n"
    patch = f'{section}-        return {{"total": 2.5 * count}}\n+        return {{"total": eval(count)}}\n'
    patch = f"*** Begin Patch\n{patch}{section}+LIMIT = 3\n*** End Patch"
    status, _, err = answer("codex", announce(shop, "apply_patch", command=patch), monkeypatch, capsys)
    assert status == 2
    assert "G3.exec" in err


def test_a_project_that_does_not_mention_graphbus_is_not_read(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = announce(shop, "Write", file_path="agents/shop.py", content=POWER + SHOP)
    assert answer("codex", call, monkeypatch, capsys)[0] == 2
    (shop / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    assert answer("codex", call, monkeypatch, capsys) == (0, "", "")


def test_a_file_that_allow_names_is_judged(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = announce(shop, "Write", file_path="lib/money.py", content=POWER)
    status, _, err = answer("claude-code", call, monkeypatch, capsys, "--allow", "lib/*")
    assert status == 2
    assert "G3.process" in err


UNUSABLE: dict[str, tuple[object, str]] = {
    "nothing": (b"", "line 1, column 1"),
    "garbage": (b"PreToolUse!", "line 1, column 1"),
    "no UTF-8": (b'{"a": "\xff"}', "not UTF-8"),
    "NaN": (b'{"a": NaN}', "NaN is not a number"),
    "a key twice": (b'{"cwd": "/a", "cwd": "/b"}', "appears twice"),
    "deep nesting": (b"[" * 100_000, "nested more than"),
    "half a surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "20 MB": (b'{"a": "' + b"x" * 20_000_000 + b'"}', "more than 16 MiB"),
    "a list": ([], "not a JSON object"),
    "another version": ({"event": "pre_tool_use", "tool": "Write"}, "`hook_event_name` is None"),
    "no tool": ({"hook_event_name": "PreToolUse", "cwd": "/"}, "no `tool_name`"),
    "a tool of another type": ({"hook_event_name": "PreToolUse", "cwd": "/", "tool_name": 1, "tool_input": 1}, "tool_name"),
    "a folder that is none": ({**announce(Path("/"), "Write", file_path="a.py", content=""), "cwd": "\0"}, "`cwd`"),
    "an input of another type": (announce(Path("/"), "Write") | {"tool_input": "x"}, "`file_path`"),
    "no content": (announce(Path("/"), "Write", file_path="a.py"), "`content`"),
    "edits of another type": (announce(Path("/"), "MultiEdit", file_path="a.py", edits={}), "`edits`"),
    "no patch": (announce(Path("/"), "apply_patch", command="git apply"), "*** Begin Patch"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_understood_blocks_the_edit_and_says_how_to_remove_the_hook(
    name: str, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call, reason = UNUSABLE[name]
    status, out, err = answer("claude-code", call, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert "[GBE345]" in err
    assert reason in err
    assert err.endswith(
        "The edit is blocked. To switch this hook off: graphbus hooks remove claude-code (--user, if it is in your settings)\n"
    )


@pytest.mark.parametrize("arguments", [{"old_string": "no such"}, {"old_string": "count"}, {"old_string": ""}])
def test_an_edit_that_does_not_fit_the_file_is_blocked(
    arguments: dict[str, str], shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = announce(shop, "Edit", file_path="agents/shop.py", new_string="x", **arguments)
    status, _, err = answer("claude-code", call, monkeypatch, capsys)
    assert status == 2
    said = "is not in the file" if arguments["old_string"] in ("", "no such") else "is in the file"
    assert f"`old_string` {said}" in err


@pytest.mark.parametrize(
    ("tool", "call"),
    [
        ("claude-code", {"hook_event_name": "Stop"}),  # 2 would keep the session from ending
        ("codex", {"hook_event_name": "UserPromptSubmit"}),
        ("cursor", {"hook_event_name": "preToolUse"}),
        ("cursor", b"garbage"),
        ("cursor", {"hook_event_name": "stop", "status": "completed", "workspace_roots": "/"}),
        ("cursor", {"hook_event_name": "stop", "workspace_roots": []}),
    ],
)
def test_another_event_is_an_error_that_blocks_nothing(
    tool: str, call: object, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = answer(tool, call, monkeypatch, capsys)
    assert (status, out) == (1, "")
    assert err.endswith(f"Nothing is blocked. To switch this hook off: graphbus hooks remove {tool} {YOURS}\n")


@pytest.mark.slow
def test_settings_that_cannot_be_read_block_the_edit(shop: Path) -> None:
    (shop / "pyproject.toml").write_text('[tool.graphbus]\nno_such_key = "a"\n')
    done = run_hook("claude-code", announce(shop, "Write", file_path="agents/shop.py", content=""), shop)
    assert done.returncode == 2
    assert b"[GBE102]" in done.stderr
    assert b"graphbus hooks remove claude-code" in done.stderr


def test_a_bug_blocks_the_edit_without_a_traceback(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(hook_answer, "_judge_edit", fail)
    status, out, err = answer("codex", announce(shop, "Write"), monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "error: This is a bug in GraphBus: ZeroDivisionError: a bug",
        f"The edit is blocked. To switch this hook off: graphbus hooks remove codex {YOURS}",
    ]


@pytest.mark.parametrize("option", ["--staged", "--base-tests", "--unsafe-verify", "--json", "--format=sarif"])
def test_the_hook_takes_no_option_that_it_would_ignore(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--hook", "codex", option]) == 2
    assert "contradict each other" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("2.5 * count", "3.5 * count"),
        ("2.5 * count", "3.5 * count("),
        ("2.5 * count", "nowhere(count)"),
        ("2.5 * count", "eval(count)"),
        ("/Shop/Sold", "/Shop/Gone"),
        ("class Shop", "class Stall"),
    ],
)
def test_the_verdict_is_that_of_the_gate(old: str, new: str, shop: Path) -> None:
    """The whole gate on the same text gives the same results for the rungs that the hook runs."""
    text = SHOP.removeprefix("\n").replace(old, new)
    whole = check_file(shop, "agents/shop.py", text)
    change = foreign.change_of_files(shop, settings.load(shop), {"agents/shop.py": text.encode()})
    read = judge_change(change, runs_code=False)
    assert [rung for rung in read.rungs if rung.status != "not_run"] == list(whole.rungs[:5])
    assert read.passed == whole.passed
