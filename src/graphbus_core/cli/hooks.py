"""`graphbus hooks`: write the hook that asks the gate into the settings of a coding agent, take it out, or show where it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import click

from graphbus_core import settings, strict_json
from graphbus_core.cli import console
from graphbus_core.cli.console import style
from graphbus_core.cli.gate_options import HOOKED_TOOLS
from graphbus_core.cli.json_text import Steps, insert_item, remove_item
from graphbus_core.errors import EditError, Place

_TIMEOUT_S = 30


class _Settings(NamedTuple):
    """Where a coding agent keeps its hooks, and which one the gate needs.

    Attributes:
        path: The file, below the project or the home folder.
        event: The event of the hook.
        matcher: The tools whose calls are announced; empty if the entries of this file are the hooks themselves.
        version: The version that the file must have; 0 if it has none.
    """

    path: str
    event: str
    matcher: str = ""
    version: int = 0


_SETTINGS: Mapping[str, _Settings] = {
    "claude-code": _Settings(".claude/settings.json", "PreToolUse", "Edit|MultiEdit|Write"),
    "codex": _Settings(".codex/hooks.json", "PreToolUse", "^apply_patch$"),
    "cursor": _Settings(".cursor/hooks.json", "stop", version=1),
}
_TOOL = click.argument("tool", type=click.Choice(HOOKED_TOOLS), metavar="TOOL")
_SCOPE = click.option(
    "--project/--user", "is_of_project", default=True, help="Whose settings: of the project (default)."
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the change and write nothing.")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")


@click.group("hooks", short_help="Let coding agents ask the gate before they edit.")
def hooks() -> None:
    """Let coding agents ask the gate: Claude Code and Codex before each edit, Cursor after each turn.

    \b
    Examples:
      graphbus hooks install claude-code
      graphbus hooks status
    """


@hooks.command("install")
@_TOOL
@_SCOPE
@_DRY_RUN
@_AS_JSON
def install(*, tool: str, is_of_project: bool, dry_run: bool, as_json: bool) -> int:
    """Add the hook to the settings of TOOL (claude-code, codex or cursor), and show what changes. Everything else in the
    file stays as it is.

    Exit status: 0; 4 the settings cannot be read or written.

    \b
    Examples:
      graphbus hooks install claude-code
      graphbus hooks install codex --user --dry-run
    """
    path = _settings_path(tool, is_of_project=is_of_project)
    before = _read_text(path)
    document = _parse(tool, path, before)
    after = before if any(_find_own(tool, document)) else _with_hook(tool, before, document)
    return _finish(tool, path, before, after, dry_run=dry_run, as_json=as_json)


@hooks.command("remove")
@_TOOL
@_SCOPE
@_DRY_RUN
@_AS_JSON
def remove(*, tool: str, is_of_project: bool, dry_run: bool, as_json: bool) -> int:
    """Take the hook out of the settings of TOOL, and show what changes. A file without anything else is removed.

    Exit status: 0; 4 the settings cannot be read or written.

    \b
    Examples:
      graphbus hooks remove claude-code
      graphbus hooks remove codex --user
    """
    path = _settings_path(tool, is_of_project=is_of_project)
    before = after = _read_text(path)
    while steps := next(_find_own(tool, document := _parse(tool, path, after)), None):
        after = remove_item(after, steps) if set(document) - {"version"} != {steps[0]} or len(steps) > 1 else ""
    return _finish(tool, path, before, after, dry_run=dry_run, as_json=as_json)


@hooks.command("status")
@_AS_JSON
def status(*, as_json: bool) -> int:
    """Show in which settings the hook is, and whether `graphbus` is found by who runs it.

    Exit status: 0; 4 the settings cannot be read.

    \b
    Examples:
      graphbus hooks status
      graphbus hooks status --json
    """
    found = [
        {"tool": tool, "path": str(path), "installed": any(_find_own(tool, _parse(tool, path, _read_text(path))))}
        for tool in _SETTINGS
        for path in (_settings_path(tool, is_of_project=True), _settings_path(tool, is_of_project=False))
    ]
    if as_json:
        console.emit_json({"hooks": found, "command": which("graphbus") or ""})
        return 0
    rows = [[str(each["tool"]), "yes" if each["installed"] else "no", str(each["path"])] for each in found]
    console.print_table(["tool", "installed", "settings"], rows)
    _warn_without_command()
    return 0


def _finish(tool: str, path: Path, before: str, after: str, *, dry_run: bool, as_json: bool) -> int:
    """Write the settings if they change, report the change, and return the exit status."""
    from difflib import unified_diff

    changes = before != after
    if changes and not dry_run:
        _write_text(path, after)
    names = (str(path), str(path))
    diff = "\n".join(unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))
    if as_json:
        console.emit_json(
            {"tool": tool, "path": str(path), "changed": changes, "written": changes and not dry_run, "diff": diff}
        )
        return 0
    console.print_diff(diff)
    done = "written" if after else "deleted"
    said = (f"Would be {done}" if dry_run else done.capitalize()) if changes else "Nothing to change"
    console.print_line(f"{style('✓', 'good')} {said}: {console.sanitize(str(path))}")
    _warn_without_command()
    return 0


def _warn_without_command() -> None:
    """Say so if the command of the hook would not be found: the tools then go on without it."""
    if not which("graphbus"):
        console.print_note("warning: `graphbus` is not on PATH; where it is not, the hook does nothing.")


def _settings_path(tool: str, *, is_of_project: bool) -> Path:
    """Return the settings file of a tool, links resolved: it is replaced when it is written, and a link should stay one."""
    above = settings.find_root([Path.cwd()]) if is_of_project else Path.home()
    if tool == "codex" and not is_of_project and (home := os.environ.get("CODEX_HOME")):
        return (Path(home) / "hooks.json").resolve()
    return (above / _SETTINGS[tool].path).resolve()


def _read_text(path: Path) -> str:
    """Return the settings as text; empty if there is no file. Raise GBE346 if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise EditError("GBE346", where=Place(str(path)), reason="it is not UTF-8") from None
    except OSError as error:
        raise EditError("GBE346", where=Place(str(path)), reason=(error.strerror or str(error)).lower()) from None


def _write_text(path: Path, text: str) -> None:
    """Replace the settings; an empty text removes the file. Raise GBE346 if that is not possible."""
    from graphbus_core.store.writing import write_atomic

    try:
        if text:
            write_atomic(path, text.encode("utf-8"))
        else:
            path.unlink()
    except OSError as error:
        raise EditError("GBE346", where=Place(str(path)), reason=(error.strerror or str(error)).lower()) from None


def _parse(tool: str, path: Path, text: str) -> dict[str, Any]:
    """Return the settings; raise GBE346 if they are not JSON or do not have the form that the tool documents."""
    wanted = _SETTINGS[tool]
    try:
        document = strict_json.loads(text) if text else {}
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        if wanted.version and document.get("version", wanted.version) != wanted.version:
            raise ValueError(f"its version is {document['version']!r}, and only {wanted.version} is known")
        listed = document.get("hooks", {})
        if not isinstance(listed, dict) or not isinstance(listed.get(wanted.event, []), list):
            raise ValueError(f"`hooks` is not an object with a list `{wanted.event}`")
    except ValueError as reason:
        raise EditError("GBE346", where=Place(str(path)), reason=str(reason)) from None
    return document


def _command(tool: str) -> str:
    return f"graphbus gate --hook {tool}"


def _with_hook(tool: str, text: str, document: Mapping[str, Any]) -> str:
    """Return the settings with the hook of the gate."""
    wanted = _SETTINGS[tool]
    hook: dict[str, Any] = {"command": _command(tool), "timeout": _TIMEOUT_S}
    entry = {"matcher": wanted.matcher, "hooks": [{"type": "command", **hook}]} if wanted.matcher else hook
    if not text:
        version = f'  "version": {wanted.version},\n' if wanted.version else ""
        text, document = f'{{\n{version}  "hooks": {{}}\n}}\n', {"hooks": {}}
    if "hooks" not in document:
        return insert_item(text, (), {wanted.event: [entry]}, "hooks")
    if wanted.event not in document["hooks"]:
        return insert_item(text, ("hooks",), [entry], wanted.event)
    return insert_item(text, ("hooks", wanted.event), entry)


def _find_own(tool: str, document: Mapping[str, Any]) -> Iterator[Steps]:
    """Yield what to remove for each hook of the gate: the hook, or the outermost thing around it that holds nothing else."""
    wanted = _SETTINGS[tool]
    entries = document.get("hooks", {}).get(wanted.event, [])
    for index, entry in enumerate(entries):
        found = entry.get("hooks") if wanted.matcher and isinstance(entry, dict) else [entry]
        inner = found if isinstance(found, list) else []
        for place, hook in enumerate(inner):
            if _is_own(tool, hook):
                steps: Steps = ("hooks", wanted.event, index, "hooks", place)
                steps = steps[:3] if len(inner) == 1 else steps
                steps = steps[:2] if len(steps) == 3 and len(entries) == 1 else steps
                yield steps[:1] if len(steps) == 2 and len(document["hooks"]) == 1 else steps


def _is_own(tool: str, hook: object) -> bool:
    """True for a hook that runs the gate for this tool, also by its path or with further options."""
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and re.match(rf"(?:\S*/)?{_command(tool)}(?: |$)", command) is not None
