"""What came of a build or a negotiation, as lines to read: pure functions from the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphbus_core.build import BuildResult
from graphbus_core.cli.console import Role, paint, plain
from graphbus_core.cli.negotiating.live import counted, spent_so_far
from graphbus_core.model.findings import Finding, Severity

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_TICK = paint("✓", "good")
_SHOWN_ORDER = 12
"""So many names of the order are read by a person."""


def built(result: BuildResult, paths: Sequence[str], seconds: float) -> Iterator[str]:
    """Sum up a build without agents."""
    agents, topics, heard = result.tally.agents, result.tally.topics, result.tally.subscriptions
    counts = f"{counted(agents, 'agent')}, {counted(topics, 'topic')}, {counted(heard, 'subscription')}"
    if result.locked:
        yield f"{_TICK} The lock covers {counted(result.locked, 'agent')}: each has settled on its present inputs"
    if result.is_unchanged:
        yield f"{_TICK} Nothing has changed since the last build: {counts} ({elapsed(seconds)})"
        yield from left_over(result.findings, paths)
        return
    yield f"{_TICK} {'Read' if result.was_dry_run else 'Built'} {counts} in {elapsed(seconds)}"
    order = result.artifacts.graph.activation_order
    shown = [paint(plain(name), "name") for name in order[:_SHOWN_ORDER]]
    yield f"  order: {' → '.join(shown)}{f' → {len(order) - _SHOWN_ORDER} more' if len(order) > _SHOWN_ORDER else ''}"
    yield from left_over(result.findings, paths)
    yield from written(result)


def improved(result: BuildResult, paths: Sequence[str], what: str) -> Iterator[str]:
    """Sum up what agents did; `what` is `"Build"` or `"Negotiation"`."""
    changed = {change.path: change.proposals for change in result.applied}
    for path, proposals in changed.items():
        accepted = paint(f"({', '.join(proposals)})", "dim")
        yield f"  {_TICK} Modified: {plain(path)} {accepted}"
    yield from _committed(result)
    yield ""
    yield f"{_TICK} {what} complete — {counted(len(changed), 'file')} improved by agents"
    yield from spent(result)
    yield from written(result)
    yield from left_over(result.findings, paths)
    if changed and not result.config.emit_artifacts:
        yield f"  {_command('build', paths)} renews the artifacts"
    if changed:
        yield paint("  Who agreed to what: graphbus inspect-negotiation; as a page: graphbus report", "dim")
        yield paint("  Take it back: graphbus undo", "dim")


def _committed(result: BuildResult) -> Iterator[str]:
    """Name the git commits, if there are any."""
    titles = {
        commit.proposal_id: commit.title for commit in (result.negotiations.completed if result.negotiations else ())
    }
    for proposal, commit in git_commits(result).items():
        yield f"  {_TICK} Committed: {commit[:10]} {plain(titles.get(proposal, ''))} {paint(f'({proposal})', 'dim')}"


def git_commits(result: BuildResult) -> Mapping[str, str]:
    """Give the git commits that were made: proposal -> id, in their order."""
    if not (result.negotiations and result.applied and result.config.makes_commits):
        return {}
    from graphbus_core.negotiation.committing import load_commits

    made = load_commits(result.config.artifacts_dir, result.negotiations.session)
    return made.commits if made else {}


def spent(result: BuildResult) -> Iterator[str]:
    """Say what the models have cost, if any was asked."""
    cost = result.spent
    if cost.requests:
        cached = f", {cost.cached} from the cache" if cost.cached else ""
        told = spent_so_far({**msgspec.structs.asdict(cost), "tokens": cost.usage.total_tokens})
        yield f"  Asked: {told} in {counted(cost.requests, 'request')}{cached}"


def dry(result: BuildResult) -> str:
    """Say that nothing was written, and how much would have been."""
    return f"Dry run: nothing was written. {counted(len(result.diffs), 'file')} would change."


def written(result: BuildResult) -> Iterator[str]:
    """Say where the artifacts are, if there are any."""
    if _has_written(result):
        yield f"{_TICK} Artifacts written to: {shown_folder(Path(result.config.artifacts_dir))}"


def _has_written(result: BuildResult) -> bool:
    return result.config.emit_artifacts and not result.was_dry_run


def left_over(findings: Sequence[Finding], paths: Sequence[str]) -> Iterator[str]:
    """Count the findings and point to where they are explained."""
    if not findings:
        return
    counts = Counter(finding.severity for finding in findings)
    listed = ", ".join(counted(counts[severity], noun) for severity, noun in _NOUNS.items() if counts[severity])
    role: Role = "warn" if counts["error"] + counts["warning"] else "dim"
    yield f"  {paint(f'{listed}:', role)} {_command('check', paths)}"


def _command(name: str, paths: Sequence[str]) -> str:
    return " ".join(["graphbus", name, *paths])


def document(result: BuildResult) -> dict[str, object]:
    """Give the result as `--json` shows it."""
    negotiations = result.negotiations
    return {
        "is_unchanged": result.is_unchanged,
        "locked": result.locked,
        "was_dry_run": result.was_dry_run,
        "artifacts": shown_folder(Path(result.config.artifacts_dir)) if _has_written(result) else None,
        "agents": [agent.name for agent in result.artifacts.agents.agents],
        "topics": [topic.name for topic in result.artifacts.topics.topics],
        "activation_order": result.artifacts.graph.activation_order,
        "findings": result.findings,
        "negotiation": {"session": negotiations.session, "ending": negotiations.ending} if negotiations else None,
        "spent": result.spent,
        "modified": result.applied,
        "git_commits": git_commits(result),
        "diffs": result.diffs,
    }


def elapsed(seconds: float) -> str:
    """Give a duration for people: `38 ms`, `1.2 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def shown_folder(folder: Path) -> str:
    """Give a folder relative to the working directory where it is below it."""
    here = Path.cwd().resolve()
    return f"{folder.relative_to(here) if folder.is_relative_to(here) else folder}/"
