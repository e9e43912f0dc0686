"""What a person or an editor reads while `graphbus dev` or `graphbus run --watch` runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from graphbus_core.cli import console, formats
from graphbus_core.cli.running.development import Development, Saved
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.errors import GraphBusError
from graphbus_core.model.findings import Finding

_MOST_NAMES = 4


class TextNarrator:
    """Writes lines for a person.

    Args:
        development: What is built.
        write: Where text goes; errors of a graph that runs go to stderr.
        clears: Clear the terminal before what a save has to say.
        is_at_a_prompt: Ctrl-C cancels a line, and does not end the command.
    """

    def __init__(
        self,
        development: Development,
        write: Callable[[str], None] = console.out,
        *,
        clears: bool = False,
        is_at_a_prompt: bool = False,
    ) -> None:
        self._development = development
        self.write = write
        self._clears = clears
        self._is_at_a_prompt = is_at_a_prompt

    def ready(self, saved: Saved, lines: Sequence[str]) -> None:
        """Show that the graph runs for the first time, and what is wrong with it."""
        took = console.paint(f"(ready in {saved.seconds * 1000:.0f} ms)", "dim")
        how_to_end = "" if self._is_at_a_prompt else " Ctrl-C ends it."
        watching = f"Watching {console.plain(self._development.shown_paths)} {took}.{how_to_end}"
        self._show([*_finding_text(saved.new, self._development.project), *lines, watching])

    def saved(self, saved: Saved, *, is_running: bool) -> None:
        """Show what came of a save; after an error the old code keeps running, or nothing does."""
        if self._clears:
            console.clear()
        self._show(_text_of(saved, self._development, is_running=is_running))

    def ended(self, status: int) -> None:
        """Show that the graph has ended by itself, and that the next save starts it again."""
        self._show([f"The graph has ended with status {status}: waiting for a save that starts it again."])

    def failed(self, errors: Sequence[GraphBusError]) -> None:
        """Show errors of a graph that has started before."""
        for error in errors:
            console.error(error)

    def stopped(self) -> None:
        """Show that somebody has ended the command."""
        self._show(["\nStopped."])

    def _show(self, lines: Iterable[str]) -> None:
        self.write("\n".join(lines))
        console.flush()


class JsonNarrator:
    """Writes one JSON object per line to stdout, for editors."""

    def ready(self, saved: Saved, lines: Sequence[str]) -> None:
        """Write that the graph runs for the first time, and what is wrong with it."""
        found = _findings_of(saved.new)
        self._write({"event": "ready", "agents": saved.agents, "findings": found, "seconds": round(saved.seconds, 4)})

    def saved(self, saved: Saved, *, is_running: bool) -> None:
        """Write what came of a save."""
        if saved.errors and not is_running:
            self._write({"event": "waiting", "errors": list(map(console.describe, saved.errors))})
        else:
            self._write(_document_of(saved))

    def ended(self, status: int) -> None:
        """Write that the graph has ended by itself."""
        self._write({"event": "ended", "status": status})

    def failed(self, errors: Sequence[GraphBusError]) -> None:
        """Show errors of a graph that has started before, to a person."""
        for error in errors:
            console.error(error)

    def stopped(self) -> None:
        """Write that somebody has ended the command."""
        self._write({"event": "stopped"})

    @staticmethod
    def _write(document: object) -> None:
        console.out(msgspec.json.encode(document).decode())
        console.flush()


def _text_of(saved: Saved, development: Development, *, is_running: bool) -> Iterator[str]:
    """Show errors and new findings with their places, what is mended, and one line that sums up.

    Args:
        saved: What came of the save.
        development: What was built.
        is_running: The old code keeps running after an error.
    """
    root = development.root
    for error in saved.errors:
        yield from _error_text(error, root)
    yield from _finding_text(saved.new, development.project)
    for finding in saved.gone:
        place = console.plain(f"{_shown(finding.span.path, root)}:{finding.span.line}")
        mended = f"{console.paint('✓', 'good')} {console.paint('mended', 'good')}"
        yield f"{mended} {place} {finding.code} {console.plain(finding.message)}"
    yield from _summary(saved, root, is_running=is_running)


def _error_text(error: GraphBusError, root: str) -> Iterator[str]:
    """Show a refusal as every command does, with its place as seen from the working directory."""
    place = ""
    if error.where:
        place = f"{console.plain(str(error.where._replace(path=_shown(error.where.path, root))))}: "
    code = console.paint(f"[{error.code}]", "dim")
    yield f"{console.paint(place, 'strong')}{console.paint('error:', 'bad')} {console.plain(error.sentence)} {code}"
    if error.hint:
        yield f"  {console.paint('hint:', 'name')} {console.plain(error.hint)}"


def _finding_text(findings: Sequence[Finding], read: Callable[[], Project]) -> Iterator[str]:
    """Show findings as `graphbus check` does."""
    if not findings:
        return
    project = read()
    report = formats.Report(
        findings=tuple(findings),
        errors=(),
        root=project.config.root,
        source=project.source,
        fix_of=lambda finding: rules.fix_for(finding, project),
    )
    for finding in findings:
        yield from formats.finding_lines(finding, report)


def _document_of(saved: Saved) -> dict[str, Any]:
    """The same as one JSON object; paths are relative to the project root."""
    return {
        "event": "failed" if saved.errors else "reloaded",
        "saved": saved.paths,
        "seconds": round(saved.seconds, 4),
        "errors": [console.describe(error) for error in saved.errors],
        "new": _findings_of(saved.new),
        "gone": _findings_of(saved.gone),
        "added": saved.added,
        "removed": saved.removed,
        "is_mended": saved.is_mended,
    }


def _findings_of(found: Sequence[Finding]) -> list[dict[str, object]]:
    """Findings as JSON has them."""
    return [
        {
            "code": each.code,
            "severity": each.severity,
            "agent": each.agent,
            "message": each.message,
            "hint": each.hint,
            "path": each.span.path,
            "line": each.span.line,
            "column": each.span.column + 1,
        }
        for each in found
    ]


def _summary(saved: Saved, root: str, *, is_running: bool) -> Iterator[str]:
    took = console.paint(f"in {saved.seconds * 1000:.0f} ms", "dim")
    what = f"saved {console.plain(_named([_shown(path, root) for path in saved.paths]))} -> "
    if saved.errors and is_running:
        yield f"{what}{console.paint('the old code keeps running', 'bad')} {took}"
    elif saved.errors:
        yield "Nothing runs: waiting for a save that mends this."
    elif saved.paths:
        mended = f"{console.paint('mended', 'good')}, " if saved.is_mended else ""
        agents = (("added", saved.added), ("removed", saved.removed))
        changes = "".join(
            f", {verb} {console.paint(console.plain(_named(names)), 'name')}" for verb, names in agents if names
        )
        yield f"{what}{mended}checked, built, restarted{changes} {took}"


def _named(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"


def _shown(path: str, root: str) -> str:
    """A path of the project as seen from the working directory; one outside of it stays what it is."""
    whole = os.path.join(root, path)
    return os.path.relpath(whole) if whole.startswith(f"{root}{os.sep}") else path
