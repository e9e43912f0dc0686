"""What came of a save, as lines to read and as JSON. Nothing is printed here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from graphbus_core.cli import console
from graphbus_core.cli.checking import formats
from graphbus_core.cli.running.development import Saved
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import fix_for
from graphbus_core.errors import GraphBusError
from graphbus_core.model.findings import Finding

_MOST_NAMES = 4


def lines(saved: Saved, root: str, read: Callable[[], Project]) -> Iterator[str]:
    """Show errors and new findings with their places, what is mended, and one line that sums up.

    Args:
        saved: What came of it.
        root: The project root, absolute.
        read: Gives the project, to quote its lines.
    """
    for error in saved.errors:
        yield from error_lines(error, root)
    yield from finding_lines(saved.new, read)
    for finding in saved.gone:
        place = console.plain(f"{_shown(finding.span.path, root)}:{finding.span.line}")
        mended = f"{console.paint('✓', 'good')} {console.paint('mended', 'good')}"
        yield f"{mended} {place} {finding.code} {console.plain(finding.message)}"
    for note in saved.notes:
        yield f"  {console.paint('note:', 'name')} {console.plain(note)}"
    yield _summary(saved, root)


def finding_lines(findings: Sequence[Finding], read: Callable[[], Project]) -> Iterator[str]:
    """Show findings as `graphbus check` does."""
    if not findings:
        return
    project = read()
    report = formats.Report(
        findings=tuple(findings),
        errors=(),
        root=project.config.root,
        source=project.source,
        fix_of=lambda finding: fix_for(finding, project),
    )
    for finding in findings:
        yield from formats.finding_lines(finding, report)


def error_lines(error: GraphBusError, root: str) -> Iterator[str]:
    """Show a refusal as every command does, with its place as seen from the working directory."""
    place = ""
    if error.where:
        place = f"{console.plain(str(error.where._replace(path=_shown(error.where.path, root))))}: "
    code = console.paint(f"[{error.code}]", "dim")
    yield f"{console.paint(place, 'strong')}{console.paint('error:', 'bad')} {console.plain(error.sentence)} {code}"
    if error.hint:
        yield f"  {console.paint('hint:', 'name')} {console.plain(error.hint)}"


def _summary(saved: Saved, root: str) -> str:
    what = (
        f"saved {console.plain(_named([_shown(path, root) for path in saved.paths]))}"
        if saved.paths
        else "looked again"
    )
    took = console.paint(f"in {saved.seconds * 1000:.0f} ms", "dim")
    if saved.errors or saved.reloaded is None:
        return f"{what} -> {console.paint('the old code keeps running', 'bad')} {took}"
    mended = f"{console.paint('mended', 'good')}, " if saved.is_mended else ""
    return f"{what} -> {mended}checked, built, {_done(saved)} {took}"


def _done(saved: Saved) -> str:
    """`reloaded Till, restarted Counter`: who runs new code, and who came and went."""
    reloaded = saved.reloaded
    if reloaded is None:
        return ""
    parts = (
        ("reloaded", [name for name in reloaded.replaced if name not in reloaded.restarted]),
        ("restarted", reloaded.restarted),
        ("added", reloaded.added),
        ("removed", reloaded.removed),
    )
    told = [f"{verb} {console.paint(console.plain(_named(names)), 'name')}" for verb, names in parts if names]
    if not told and reloaded.modules:
        told = [f"reloaded {console.plain(_named(reloaded.modules))}, which no agent uses"]
    return ", ".join(told) or "nothing to reload"


def _named(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"


def _shown(path: str, root: str) -> str:
    """A path of the project as seen from the working directory; one outside of it stays what it is."""
    whole = os.path.join(root, path)
    return os.path.relpath(whole) if whole.startswith(f"{root}{os.sep}") else path


def document(saved: Saved) -> dict[str, object]:
    """The same as one JSON object; paths are relative to the project root."""
    reloaded = saved.reloaded
    return {
        "event": "failed" if saved.errors else "reloaded",
        "saved": saved.paths,
        "seconds": round(saved.seconds, 4),
        "errors": [console.describe(error) for error in saved.errors],
        "new": findings(saved.new),
        "gone": findings(saved.gone),
        "is_mended": saved.is_mended,
        "notes": saved.notes,
        **({} if reloaded is None else {name: getattr(reloaded, name) for name in reloaded._fields if name != "notes"}),
    }


def findings(found: Iterable[Finding]) -> list[dict[str, object]]:
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
