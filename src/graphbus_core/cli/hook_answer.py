"""Answers the hook of a coding agent: `graphbus gate --hook TOOL` reads what it announces on stdin and judges that edit.

codex         before an edit   blocked: exit status 2, the reason on stderr
claude-code   before an edit   the same; a refusal of G4 is only told, as an edit has one file and an edge may have two
cursor        after its turn   told: the reason on stdout is the next message to the agent

G5 to G8 run code and take longer than an edit may wait; the answer says that they did not run. What is no Python file of an
agent passes without a word, and without loading the gate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphbus_core import settings, strict_json
from graphbus_core.cli import console
from graphbus_core.cli.gate_options import GateOptions
from graphbus_core.editing.proposed import ProposedFile, read_call
from graphbus_core.errors import EditError, GraphBusError, SeveralErrors
from graphbus_core.model.proposals import GateReport

BLOCKED = 2
"""The exit status at which Claude Code and Codex block an edit; at any other but 0 they report a failed hook and go on."""
_FAILED = 1
_MAX_INPUT_BYTES = 16 << 20
_ONE_FILE_TOOLS = frozenset({"claude-code"})
"""The tools that announce the edit of one file at a time."""
_EVENTS = {"claude-code": "PreToolUse", "codex": "PreToolUse", "cursor": "stop"}


def answer_hook(options: GateOptions) -> int:
    """Judge what the hook on stdin announces, print the answer in the words of the tool, and return its exit status."""
    tool = options.hook
    can_block = tool != "cursor"
    try:
        call = _read_input()
        event = call.get("hook_event_name")
        if event != _EVENTS[tool]:
            reason = f"its `hook_event_name` is {event!r}, not {_EVENTS[tool]!r}"
            if isinstance(event, str):  # to block another event could keep the session from ending
                can_block = False
            raise EditError("GBE345", reason=reason)
        reports = _judge_edit(call, options) if tool != "cursor" else _judge_turn(call, options)
    except GraphBusError as error:
        for each in error.errors if isinstance(error, SeveralErrors) else (error,):
            console.print_error(each)
        return _say_how_to_remove(tool, can_block=can_block)
    return _answer(tool, reports)


def _answer(tool: str, reports: Sequence[GateReport]) -> int:
    """Print the answer to an edit with these reports, and return the exit status."""
    if not reports:
        if tool == "cursor":
            console.emit_json({})
        return 0
    from graphbus_core.cli.hook_verdict import name_unrun, refusal_lines

    failed = [report for report in reports if not report.passed]
    reasons = "\n".join(line for report in failed for line in refusal_lines(report))
    if tool == "cursor":
        console.emit_json({"followup_message": reasons} if failed else {})
    elif tool in _ONE_FILE_TOOLS and failed and all(map(_is_about_others, failed)):
        told = f"The edit passes, so that you can change the other end next. Until then:\n{reasons}"
        console.emit_json({"hookSpecificOutput": {"hookEventName": _EVENTS[tool], "additionalContext": told}})
    elif failed:
        console.print_note(reasons)
        return BLOCKED
    else:
        console.emit_json({"systemMessage": f"graphbus gate: passed. {name_unrun(reports[0])}"})
    return 0


def _is_about_others(report: GateReport) -> bool:
    """True if a change does not fit other agents: with one file in an edit, a topic can only be renamed through such a state."""
    return report.failure is not None and report.failure.rung == "G4"


def refuse_for_bug(options: Sequence[str], error: Exception) -> int:
    """Say that GraphBus failed while it answered a hook, and return the exit status; a traceback would be no answer."""
    console.print_note(f"error: This is a bug in GraphBus: {type(error).__name__}: {error}")
    tool = next((each for each in _EVENTS if each in " ".join(options)), "")
    return _say_how_to_remove(tool, can_block=tool != "cursor")


def _say_how_to_remove(tool: str, *, can_block: bool) -> int:
    """Say what an edit that could not be judged comes to and how to switch the hook off; return the exit status."""
    outcome = "The edit is blocked." if can_block else "Nothing is blocked."
    console.print_note(
        f"{outcome} To switch this hook off: graphbus hooks remove {tool} (--user, if it is in your settings)"
    )
    return BLOCKED if can_block else _FAILED


def _read_input() -> Mapping[str, Any]:
    """Return the JSON object on stdin; raise GBE345 if there is none."""
    data = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1) if sys.stdin else b""  # None: it is closed
    try:
        if len(data) > _MAX_INPUT_BYTES:
            raise ValueError(f"it has more than {_MAX_INPUT_BYTES >> 20} MiB")
        found = strict_json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except ValueError as reason:
        raise EditError("GBE345", reason=f"stdin is not the JSON of a hook, {reason}") from None
    return found


# --- before an edit ----------------------------------------------------------------------------


def _judge_edit(call: Mapping[str, Any], options: GateOptions) -> list[GateReport]:
    """Return the reports on the files of agents that a tool call would write, one for each project; none if it writes none."""
    tool, folder = call.get("tool_name"), call.get("cwd")
    if not isinstance(tool, str) or not isinstance(folder, str) or "\0" in folder or "tool_input" not in call:
        raise EditError("GBE345", reason="it has no `tool_name`, `cwd` or `tool_input`")
    by_root: dict[Path, dict[str, list[ProposedFile]]] = {}
    for file in read_call(tool, call["tool_input"]):
        if file.path.endswith(".py") and "\0" not in file.path:
            place = Path(os.path.abspath(os.path.join(folder, file.path)))
            above = place.parent.resolve()
            if root := _find_project(above):
                path = (above / place.name).relative_to(root).as_posix()
                by_root.setdefault(root, {}).setdefault(path, []).append(file)
    if not by_root:
        return []
    from graphbus_core.cli.hook_verdict import judge_files

    found = (judge_files(root, files, options) for root, files in by_root.items())
    return [report for report in found if report]


def _find_project(folder: Path) -> Path | None:
    """Return the root of the project around a folder; None if no pyproject.toml is found that mentions GraphBus."""
    root = settings.find_root([folder])
    project = root / settings.PROJECT_FILE
    is_known = project.is_file() and (b"graphbus" in project.read_bytes().lower() or (root / ".graphbus").exists())
    return root if is_known else None


# --- after a turn ------------------------------------------------------------------------------


def _judge_turn(call: Mapping[str, Any], options: GateOptions) -> list[GateReport]:
    """Return the reports on the files of agents that differ from HEAD in the folders of the workspace."""
    folders = call.get("workspace_roots")
    if not isinstance(folders, list) or not all(isinstance(each, str) and "\0" not in each for each in folders):
        raise EditError("GBE345", reason="its `workspace_roots` is not a list of folders")
    if not isinstance(call.get("status"), str):
        raise EditError("GBE345", reason="it has no `status`")
    if call["status"] != "completed":  # the person has stopped the agent, or it failed: it is not sent on
        return []
    roots = dict.fromkeys(_find_project(Path(folder).resolve()) for folder in folders)
    from graphbus_core.cli.hook_verdict import judge_tree

    found = (judge_tree(root, options) for root in roots if root)
    return [report for report in found if report]
