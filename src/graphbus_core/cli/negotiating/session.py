"""Runs a build or a negotiation for the command line, and says what happens while it happens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphbus_core import settings
from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.cli import console
from graphbus_core.cli.console import Role, counted, paint, plain
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding, Severity

Say = Callable[[str], None]


def request_of(paths: tuple[str, ...], wished: dict[str, object], **fixed: bool) -> BuildConfig:
    """Give the request that the options of a command make."""
    options = {name: value for name, value in wished.items() if name not in {"no_cache", "is_planned"}}
    return BuildConfig(paths=paths, use_cache=not wished["no_cache"], **options, **fixed)  # type: ignore[arg-type]


def perform(request: BuildConfig, what: str, *, as_json: bool, is_planned: bool = False) -> None:
    """Run a build or a negotiation and say what came of it, or only what it can cost; `what` is `"Build"` or `"Negotiation"`."""
    if is_planned:
        from graphbus_core.cli.negotiating.plan import show_plan

        show_plan(request, as_json=as_json)
        return
    write = console.say if as_json else console.out
    started = time.monotonic()
    result = (
        run_with_agents(request, write) if request.enable_agents else run_build_pipeline(request, on_recovered=_tell)
    )
    seconds = time.monotonic() - started
    if as_json:
        console.emit_json(document(result))
    else:
        show(result, request, what, seconds)


def run_with_agents(request: BuildConfig, write: Say) -> BuildResult:
    """Negotiate, and write each decision as it is made."""
    from graphbus_core.bus import MessageBus
    from graphbus_core.cli.negotiating.live import TOPICS, Live
    from graphbus_core.cli.negotiating.review import console_reviewer
    from graphbus_core.model.messages import Event

    backend = None
    if request.is_reviewed:
        from graphbus_core.negotiation.backend import Backend

        backend = Backend(reviewer=console_reviewer(write))
    live = Live()
    bus = MessageBus(history=0)

    def listen(event: Event) -> None:
        try:
            for line in live.lines(event.topic, event.payload):
                write(line)
            console.status(live.status)
        except OSError:  # stdout takes nothing more; what was asked for is still done
            bus.unsubscribe(subscription)

    subscription = bus.subscribe(TOPICS, listen)
    try:
        return run_build_pipeline(request, bus=bus, on_recovered=_tell, backend=backend)
    except KeyboardInterrupt:
        console.status("")
        console.say(_interrupted(request, live.session))
        raise
    finally:
        console.status("")


def _tell(what: str) -> None:
    console.say(console.plain(what))


def _interrupted(request: BuildConfig, session: str) -> str:
    """Say what Ctrl-C has left: the session is kept, and whether files were changed is what the journal says."""
    from graphbus_core.editing.promotion import fate_of
    from graphbus_core.negotiation.transcript import list_sessions, load_session

    if request.dry_run:
        return "Dry run: no session is kept, and no source file was changed."
    config = settings.resolve_build(request)
    if session not in list_sessions(config.artifacts_dir):
        return "No source file was changed. `--resume` goes on with what was said so far, if anything was."
    commits = load_session(config.artifacts_dir, session).negotiations.completed
    kept = f"Session {console.plain(session)} is kept, with {counted(len(commits), 'accepted proposal')}"
    if fate_of(config, session):
        return f"{kept}; its changes were written: `graphbus undo` takes them back, `graphbus build` builds with them."
    return f"{kept}; no source file was changed. `--resume` goes on with it, `graphbus inspect-negotiation` shows it."


def show(result: BuildResult, request: BuildConfig, what: str, seconds: float) -> None:
    """Write the diffs of a dry run and the"""
    is_plain = result.is_unchanged or not request.enable_agents
    if is_plain:
        _write_lines(built(result, request.paths, seconds))
    elif result.was_dry_run:
        _show_diffs(result)
    else:
        _write_lines(improved(result, request.paths, what))
    if result.was_dry_run:
        _write_lines(spent(result))
        console.out(dry(result))


def _show_diffs(result: BuildResult) -> None:
    console.out()
    for path in sorted(result.diffs):
        console.diff(result.diffs[path])
    console.out()


def _write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        console.out(line)


# --- the outcome as lines to read --------------------------------------------------------------

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
        from graphbus_core.cli.negotiating.live import spent_so_far

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
