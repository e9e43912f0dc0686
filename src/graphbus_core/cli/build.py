"""`graphbus build` writes the artifacts, with or without a negotiation; `graphbus negotiate` only negotiates."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.cli import console
from graphbus_core.cli.console import Role, pluralize, sanitize, style
from graphbus_core.errors import UsageError, raise_all
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.findings import Finding, Severity

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--model", default="", metavar="MODEL", help='The model that negotiates: "provider:name", or "rules".'
    ),
    click.option(
        "--voters", default="", metavar="MODEL", help='Who votes and settles disputes, if not the model: e.g. "rules".'
    ),
    click.option("--intent", default="", metavar="TEXT", help="A goal for the agents."),
    click.option("--rounds", type=click.IntRange(min=1), metavar="N", help="Negotiate for at most N rounds."),
    click.option(
        "--max-usd", type=click.FloatRange(min=0), metavar="USD", help="Spend at most this much; 0 means no limit."
    ),
    click.option("--plan", "is_planned", is_flag=True, help="Show what it can cost at most; ask no model."),
    click.option("--review", "is_reviewed", is_flag=True, help="Ask me before each change is committed."),
    click.option("--resume", "is_resumed", is_flag=True, help="Continue the interrupted session."),
    click.option("--commit", "makes_commits", is_flag=True, help="Make a git commit of each accepted proposal."),
    click.option("--dry-run", is_flag=True, help="Show what would change; write nothing."),
    click.option("--view", "is_viewed", is_flag=True, help="Show the negotiation on a page while it goes on."),
    click.option("--no-cache", is_flag=True, help="Ask the model again, also where an earlier answer is stored."),
    click.option("--unsafe-verify", is_flag=True, help="Accept changes that cannot be run or tested."),
)

_NEEDS_AGENTS = (
    *("model", "voters", "intent", "rounds", "max_usd", "is_planned", "is_reviewed", "is_resumed", "makes_commits"),
    *("no_cache", "unsafe_verify", "is_viewed"),
)
"""Parameters of options that have no effect without `--enable-agents`."""


def _negotiation_options(command: F) -> F:
    """Add the options, in the order in which the help shows them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("build", short_help="Write the artifacts; let agents negotiate first.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--enable-agents", is_flag=True, help="Let the agents negotiate and change source files first.")
@_negotiation_options
@click.option("--force", is_flag=True, help="Build even if nothing has changed; ask every agent.")
@click.option("--frozen", "is_frozen", is_flag=True, help="Ask no model; fail unless the lock covers the sources.")
@click.option("--strict", "is_strict", is_flag=True, help="Fail as `graphbus check --strict` does, after the build.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def build(*, paths: tuple[str, ...], as_json: bool, enable_agents: bool, is_strict: bool, **options: Any) -> int:
    """Read the agents in PATH (files or folders) and write the graph to .graphbus/. Your code is read, not run.

    With --enable-agents the agents negotiate first: they propose changes, every change is verified (your tests run on
    a copy in a sandbox), the affected agents vote, and accepted changes are written to the source files. `graphbus undo`
    restores them.

    `graphbus negotiate` does only the second part: it changes the source files and writes no artifacts.

    Exit status: 0 done; 2 wrong usage or settings; 3 the agents cannot be read or form no valid graph, the lock does
    not cover them (--frozen), or something is wrong or not proven (--strict); 4 a change could not be written; 5 the
    negotiation failed; 130 interrupted, and nothing was written.

    \b
    Examples:
      graphbus build agents/
      graphbus build agents/ --enable-agents
      graphbus build agents/ --enable-agents --dry-run
      graphbus build agents/ --enable-agents --model ollama:qwen3-coder --plan
      graphbus build agents/ --frozen
    """
    if not enable_agents:
        spellings = {parameter.name: parameter.opts[0] for parameter in build.params}
        unused = (spellings[name] for name, value in options.items() if name in _NEEDS_AGENTS and value)
        raise_all(UsageError("GBE131", option=option, needed="--enable-agents") for option in unused)
    _run_request(paths, options, "Build", as_json=as_json, enable_agents=enable_agents)
    if not is_strict:
        return 0
    from graphbus_core.cli.check import check_strictly

    return check_strictly(paths)


@click.command("negotiate", short_help="Let the agents change the code; write no artifacts.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@_negotiation_options
@click.option("--force", is_flag=True, help="Ask every agent, also those without new inputs.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def negotiate(*, paths: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Let the agents in PATH (files or folders) propose changes and vote on them, and write the accepted ones to the
    source files. `graphbus undo` takes them back.

    `graphbus build --enable-agents` does the same and then writes the artifacts, which this command leaves alone.

    Exit status: 0 done, also when nothing was accepted; 2 wrong usage or settings; 3 the agents cannot be read; 4 a
    change could not be written; 5 the negotiation failed; 130 interrupted, and nothing was written.

    \b
    Examples:
      graphbus negotiate agents/ --rounds 3
      graphbus negotiate agents/ --rounds 3 --dry-run
      graphbus negotiate agents/ --intent "typed payloads everywhere"
    """
    _run_request(paths, options, "Negotiation", as_json=as_json, enable_agents=True, emit_artifacts=False)


def _run_request(paths: tuple[str, ...], options: dict[str, Any], title: str, *, as_json: bool, **fixed: Any) -> None:
    """Run a build or a negotiation and print its result under the title; with `--plan` print only what it can cost."""
    is_planned, no_cache, is_viewed = (options.pop(name) for name in ("is_planned", "no_cache", "is_viewed"))
    request = BuildConfig(paths=paths, use_cache=not no_cache, **options, **fixed)
    if is_planned:
        from graphbus_core.cli.plan import show_plan

        show_plan(request, as_json=as_json)
        return
    started = time.monotonic()
    if request.enable_agents:
        write = console.print_note if as_json else console.print_line
        result = _run_with_agents(request, write, is_viewed=is_viewed)
    else:
        result = run_build_pipeline(request, on_recovered=_print_recovery)
    if as_json:
        console.emit_json(_as_document(result))
    elif result.is_unchanged or not request.enable_agents:
        console.print_lines(_build_lines(result, paths, time.monotonic() - started))
    elif not result.was_dry_run:
        console.print_lines(_negotiation_lines(result, paths, title))
    if result.was_dry_run and not as_json:
        console.print_lines(_dry_run_lines(result))
    if result.failure:
        raise result.failure


def _run_with_agents(request: BuildConfig, write: Callable[[str], None], *, is_viewed: bool) -> BuildResult:
    """Run a build with a negotiation; each decision is printed as soon as it is made, and shown on a page if `is_viewed`."""
    from graphbus_core.bus import MessageBus
    from graphbus_core.cli.live import TOPICS, NegotiationLines
    from graphbus_core.model.messages import Event

    backend = None
    if request.is_reviewed:
        from graphbus_core.cli.review import console_reviewer
        from graphbus_core.negotiation.backend import Backend

        backend = Backend(reviewer=console_reviewer(write))
    live = NegotiationLines()
    bus = MessageBus(history=0)

    def listen(event: Event) -> None:
        """Print the lines that an event completes; stop if stdout cannot be written to."""
        try:
            for line in live.lines(event.topic, event.payload):
                write(line)
            console.show_status(live.status)
        except OSError:  # stdout cannot be written to: the negotiation goes on, and nothing more is printed
            bus.unsubscribe(subscription)

    subscription = bus.subscribe(TOPICS, listen)
    try:
        with _show_on_page(request, bus.subscribe) if is_viewed else nullcontext():
            return run_build_pipeline(request, bus=bus, on_recovered=_print_recovery, backend=backend)
    except KeyboardInterrupt:
        console.show_status("")
        console.print_note(_describe_interruption(request, live.session))
        raise
    finally:
        console.show_status("")


@contextmanager
def _show_on_page(request: BuildConfig, subscribe: Callable[[str, Callable[..., None]], object]) -> Iterator[None]:
    """Within the block, show the negotiation on a page, and print its address; `subscribe` is that of its bus.

    Raises:
        GraphBusError: The project cannot be read, or a package or a free port is missing.
    """
    from graphbus_core import settings
    from graphbus_core.hosting.serving.companion import serve_pages
    from graphbus_core.model.config import ServeConfig
    from graphbus_core.view.building import BuildSource
    from graphbus_core.view.negotiation import TOPICS
    from graphbus_core.view.pages import ViewPages

    source = BuildSource(settings.resolve_build(request))
    subscribe(TOPICS, source.listen)
    source.pulse.start()
    with serve_pages(ViewPages(source), ServeConfig(port=0), "--view") as address:
        console.print_note(f"View at {address}")
        yield


def _print_recovery(note: str) -> None:
    console.print_note(sanitize(note))


def _describe_interruption(request: BuildConfig, session: str) -> str:
    """Return a sentence on the state after Ctrl-C: whether the session is kept, and whether source files were changed."""
    from graphbus_core import settings
    from graphbus_core.editing.promotion import fate_of
    from graphbus_core.negotiation.transcript import list_sessions, load_session

    if request.dry_run:
        return "Dry run: no session is kept, and no source file was changed."
    config = settings.resolve_build(request)
    if session not in list_sessions(config.artifacts_dir):
        return "No source file was changed. `--resume` continues the negotiation if any answers were recorded."
    commits = load_session(config.artifacts_dir, session).negotiations.completed
    kept = f"Session {sanitize(session)} is kept, with {pluralize(len(commits), 'accepted proposal')}"
    if fate_of(config, session):
        return f"{kept}; its changes were written: `graphbus undo` takes them back, `graphbus build` builds with them."
    return f"{kept}; no source file was changed. `--resume` continues it, `graphbus inspect-negotiation` shows it."


# --- the result as text --------------------------------------------------------------

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}
_TICK = style("✓", "good")
_SHOWN_ORDER = 12
"""How many names of the activation order are shown at most."""


def _build_lines(result: BuildResult, paths: Sequence[str], seconds: float) -> Iterator[str]:
    """Summarize a build without agents."""
    agents, topics, subscriptions = result.tally.agents, result.tally.topics, result.tally.subscriptions
    counts = f"{pluralize(agents, 'agent')}, {pluralize(topics, 'topic')}, {pluralize(subscriptions, 'subscription')}"
    if result.locked:
        yield f"{_TICK} The lock covers {pluralize(result.locked, 'agent')}: each has settled on its present inputs"
    if result.is_unchanged:
        yield f"{_TICK} Nothing has changed since the last build: {counts} ({_format_seconds(seconds)})"
    else:
        yield f"{_TICK} {'Read' if result.was_dry_run else 'Built'} {counts} in {_format_seconds(seconds)}"
        order = result.artifacts.graph.activation_order
        shown = [style(sanitize(name), "name") for name in order[:_SHOWN_ORDER]]
        shown += [f"{len(order) - _SHOWN_ORDER} more"] if len(order) > _SHOWN_ORDER else []
        yield f"  order: {' → '.join(shown)}"
    yield from _finding_lines(result.findings, paths)
    if not result.is_unchanged:
        yield from _artifact_lines(result)


def _negotiation_lines(result: BuildResult, paths: Sequence[str], title: str) -> Iterator[str]:
    """Summarize a build or negotiation with agents; the title is `"Build"` or `"Negotiation"`."""
    changed = {change.path: change.proposals for change in result.applied}
    for path, proposals in changed.items():
        accepted = style(f"({', '.join(proposals)})", "dim")
        yield f"  {_TICK} Modified: {sanitize(path)} {accepted}"
    completed = result.negotiations.completed if result.negotiations else ()
    titles = {commit.proposal_id: commit.title for commit in completed}
    for proposal, commit in _git_commits(result).items():
        yield f"  {_TICK} Committed: {commit[:10]} {sanitize(titles.get(proposal, ''))} {style(f'({proposal})', 'dim')}"
    yield ""
    yield f"{_TICK} {title} complete — {pluralize(len(changed), 'file')} improved by agents"
    yield from _cost_lines(result)
    yield from _artifact_lines(result)
    yield from _finding_lines(result.findings, paths)
    if changed and not result.config.emit_artifacts:
        yield f"  {' '.join(['graphbus build', *paths])} renews the artifacts"
    if changed:
        yield style("  Who agreed to what: graphbus inspect-negotiation; as a page: graphbus report", "dim")
        yield style("  Take it back: graphbus undo", "dim")


def _dry_run_lines(result: BuildResult) -> Iterator[str]:
    """Show what a dry run would have written, and what it cost."""
    if result.config.enable_agents and not result.is_unchanged:
        yield ""
        for path in sorted(result.diffs):
            yield from console.diff_lines(result.diffs[path])
        yield ""
    yield from _cost_lines(result)
    yield f"Dry run: nothing was written. {pluralize(len(result.diffs), 'file')} would change."


def _git_commits(result: BuildResult) -> Mapping[str, str]:
    """Return the git commits that were made, in order: proposal -> commit ID."""
    if not (result.negotiations and result.applied and result.config.makes_commits):
        return {}
    from graphbus_core.negotiation.apply import load_commits

    made = load_commits(result.config.artifacts_dir, result.negotiations.session)
    return made.commits if made else {}


def _cost_lines(result: BuildResult) -> Iterator[str]:
    """Yield a line on what the models cost; nothing if no model was asked."""
    cost = result.spent
    if cost.requests:
        import msgspec

        from graphbus_core.cli.live import spent_so_far

        cached = f", {cost.cached} from the cache" if cost.cached else ""
        amounts = spent_so_far({**msgspec.structs.asdict(cost), "tokens": cost.usage.total_tokens})
        yield f"  Asked: {amounts} in {pluralize(cost.requests, 'request')}{cached}"


def _artifact_lines(result: BuildResult) -> Iterator[str]:
    """Yield a line on where the artifacts were written; nothing if none were."""
    if _has_written(result):
        yield f"{_TICK} Artifacts written to: {_relative_folder(Path(result.config.artifacts_dir))}"


def _has_written(result: BuildResult) -> bool:
    return result.config.emit_artifacts and not result.was_dry_run


def _finding_lines(findings: Sequence[Finding], paths: Sequence[str]) -> Iterator[str]:
    """Yield a line with the number of findings and the command that shows them; nothing if there are none."""
    if findings:
        counts = Counter(finding.severity for finding in findings)
        listed = ", ".join(pluralize(counts[severity], noun) for severity, noun in _NOUNS.items() if counts[severity])
        role: Role = "warn" if counts["error"] + counts["warning"] else "dim"
        yield f"  {style(f'{listed}:', role)} {' '.join(['graphbus check', *paths])}"


def _as_document(result: BuildResult) -> dict[str, object]:
    """Return the result as `--json` prints it."""
    negotiations = result.negotiations
    return {
        "is_unchanged": result.is_unchanged,
        "locked": result.locked,
        "was_dry_run": result.was_dry_run,
        "artifacts": _relative_folder(Path(result.config.artifacts_dir)) if _has_written(result) else None,
        "agents": [agent.name for agent in result.artifacts.agents.agents],
        "topics": [topic.name for topic in result.artifacts.topics.topics],
        "activation_order": result.artifacts.graph.activation_order,
        "findings": result.findings,
        "negotiation": {"session": negotiations.session, "ending": negotiations.ending} if negotiations else None,
        "spent": result.spent,
        "modified": result.applied,
        "git_commits": _git_commits(result),
        "diffs": result.diffs,
    }


def _format_seconds(seconds: float) -> str:
    """Format a duration: `38 ms`, `1.2 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _relative_folder(folder: Path) -> str:
    """Return a folder with `/` at its end: relative if it is in the working directory, otherwise unchanged."""
    here = Path.cwd().resolve()
    return f"{folder.relative_to(here) if folder.is_relative_to(here) else folder}/"
