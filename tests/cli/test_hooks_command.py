"""`graphbus hooks`: it changes nothing in somebody's settings but its own entry, and takes exactly that back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.cli import main
from graphbus_core.cli.json_text import insert_item, remove_item

TOOLS = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json", "cursor": ".cursor/hooks.json"}
OTHERS = """{
    "$schema": "https://example.org/x.json",
    "permissions": {"allow": ["Bash(ls *)"], "deny": []},

    "hooks": {
        "PostToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "ruff format"}]}],
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [{"type": "command", "command": "audit \\u00fc"}]
            }
        ]
    },
    "env": {"A": "ü"}
}"""
FORMS = {
    "other hooks": OTHERS,
    "CRLF": OTHERS.replace("\n", "\r\n") + "\r\n",
    "tabs": OTHERS.replace("    ", "\t") + "\n",
    "no hooks": '{\n  "env": {"A": "1"}\n}\n',
    "one line": '{"env": {"A": "1"}}',
    "one line with hooks": '{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": []}], "Stop": []}, "env": {}}',
    "the hook of another tool": '{"hooks": {"PreToolUse": [{"hooks": [{"command": "graphbus gate --hook claude-code-x"}]}]}}',
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root, home = tmp_path / "shop", tmp_path / "home"
    for folder in (root / "agents", home):
        folder.mkdir(parents=True)
    (root / "pyproject.toml").write_text("")
    monkeypatch.chdir(root / "agents")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("scope", ["--project", "--user"])
def test_what_is_installed_can_be_removed_without_a_trace(
    tool: str, scope: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project if scope == "--project" else project.parent / "home"
    path = root / TOOLS[tool]
    assert main(["hooks", "install", tool, scope]) == 0
    written = path.read_bytes()
    event = json.loads(written)["hooks"]["stop" if tool == "cursor" else "PreToolUse"]
    assert f"graphbus gate --hook {tool}" in json.dumps(event)
    assert main(["hooks", "install", tool, scope]) == 0
    assert path.read_bytes() == written, "the second time changes nothing"
    assert main(["hooks", "remove", tool, scope]) == 0
    assert not path.exists()
    assert f"✓ Deleted: {path}" in capsys.readouterr().out
    assert main(["hooks", "remove", tool, scope]) == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_rest_of_the_settings_keeps_every_byte(form: str, project: Path) -> None:
    path = write(project / TOOLS["claude-code"], FORMS[form])
    assert main(["hooks", "install", "claude-code"]) == 0
    text = path.read_bytes().decode()
    found, before = json.loads(text), json.loads(FORMS[form])
    assert found["hooks"]["PreToolUse"].pop()["matcher"] == "Edit|MultiEdit|Write"
    assert found == {**before, "hooks": {"PreToolUse": [], **before.get("hooks", {})}}
    same = next(at for at, pair in enumerate(zip(f"{FORMS[form]}\0", text, strict=False)) if len({*pair}) == 2)
    assert text.endswith(FORMS[form][same:]), "one piece is added, and nothing else differs"
    assert ("\r\n" in FORMS[form]) == ("\r\n" in text)
    assert main(["hooks", "remove", "claude-code"]) == 0
    assert path.read_bytes().decode() == FORMS[form]


@pytest.mark.parametrize(
    "command", ["graphbus gate --hook claude-code --allow 'a/*'", "~/bin/graphbus gate --hook claude-code"]
)
def test_an_entry_that_somebody_has_changed_is_found_and_its_neighbour_stays(command: str, project: Path) -> None:
    own, other = {"command": command}, {"command": "audit"}
    path = write(project / TOOLS["claude-code"], json.dumps({"hooks": {"PreToolUse": [{"hooks": [own, other]}]}}))
    assert main(["hooks", "install", "claude-code"]) == 0
    assert main(["hooks", "remove", "claude-code"]) == 0
    assert json.loads(path.read_text()) == {"hooks": {"PreToolUse": [{"hooks": [other]}]}}


def test_a_dry_run_shows_the_change_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(project / TOOLS["claude-code"], OTHERS)
    assert main(["hooks", "install", "claude-code", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert '+                "matcher": "Edit|MultiEdit|Write",' in out
    assert path.read_text() == OTHERS
    assert main(["hooks", "install", "claude-code", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], document["written"], document["path"]) == (True, False, str(path))


def test_status_lists_where_the_hook_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["hooks", "install", "codex", "--user"])
    capsys.readouterr()
    assert main(["hooks", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["path"] for each in found["hooks"] if each["installed"]] == [
        str(project.parent / "home" / TOOLS["codex"])
    ]
    assert len(found["hooks"]) == 6


def test_it_says_when_the_command_would_not_be_found(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert main(["hooks", "status"]) == 0
    assert "`graphbus` is not on PATH" in capsys.readouterr().err
    command = project / "graphbus"
    command.write_text("")
    command.chmod(0o755)
    assert main(["hooks", "status"]) == 0
    assert "PATH" not in capsys.readouterr().err


UNREADABLE = {
    "no JSON": ("claude-code", "{ // settings\n}", "line 1, column 3"),
    "a key twice": ("claude-code", '{"hooks": {}, "hooks": {}}', "appears twice"),
    "a list": ("codex", "[]", "not a JSON object"),
    "hooks of another form": ("codex", '{"hooks": []}', "`hooks` is not an object"),
    "an event of another form": ("claude-code", '{"hooks": {"PreToolUse": {}}}', "a list `PreToolUse`"),
    "another version": ("cursor", '{"version": 2, "hooks": {}}', "its version is 2"),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("command", ["install", "remove"])
def test_settings_that_cannot_be_understood_are_left_alone(
    command: str, case: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, text, reason = UNREADABLE[case]
    path = write(project / TOOLS[tool], text)
    assert main(["hooks", command, tool]) == 4
    err = capsys.readouterr().err
    assert "[GBE346]" in err
    assert reason in err
    assert path.read_text() == text


def test_settings_that_cannot_be_written_are_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".codex").symlink_to("/proc/nowhere")  # where nobody can create a folder
    assert main(["hooks", "install", "codex"]) == 4
    assert "[GBE346]" in capsys.readouterr().err


def test_settings_that_are_a_folder_are_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / TOOLS["codex"]).mkdir(parents=True)
    assert main(["hooks", "install", "codex"]) == 4
    assert "is a directory" in capsys.readouterr().err


def test_a_link_to_settings_elsewhere_stays_a_link(project: Path) -> None:
    path = project / TOOLS["codex"]
    path.parent.mkdir()
    path.symlink_to(write(project.parent / "dotfiles" / "hooks.json", '{"hooks": {"Stop": []}}'))
    assert main(["hooks", "install", "codex"]) == 0
    assert path.is_symlink()
    assert "graphbus" in path.read_text()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    document=st.dictionaries(st.text(), VALUES, min_size=1, max_size=4),
    indent=st.sampled_from([None, 1, 2, "\t"]),
    comma=st.sampled_from([",", ", ", " ,", " , "]),
    value=VALUES,
)
def test_what_is_added_can_be_taken_back(
    document: dict[str, Any], indent: int | str | None, comma: str, value: Any
) -> None:
    text = json.dumps(document, indent=indent, separators=(comma, " : "), ensure_ascii=False)
    key = "new" + max(document, key=len)
    fuller = insert_item(text, (), value, key)
    assert json.loads(fuller) == {**document, key: value}
    assert remove_item(fuller, (key,)) == text
    first = next(iter(document))
    assert json.loads(remove_item(fuller, (first,))) == {
        name: each for name, each in {**document, key: value}.items() if name != first
    }
    if isinstance(document[first], list):
        longer = insert_item(text, (first,), value)
        assert json.loads(longer)[first] == [*document[first], value]
        assert json.loads(remove_item(longer, (first, 0)))[first] == [*document[first], value][1:]
