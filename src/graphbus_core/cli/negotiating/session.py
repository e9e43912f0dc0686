"""Runs a build or a negotiation for the command line, and says what happens while it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from graphbus_core import settings
from graphbus_core.build import BuildResult, run_build_pipeline
from graphbus_core.cli import console
from graphbus_core.cli.negotiating import summary
from graphbus_core.model.config import BuildRequest

Say = Callable[[str], None]


def request_of(paths: tuple[str, ...], wished: dict[str, object], **fixed: bool) -> BuildRequest:
    """Give the request that the options of a command make."""
    options = {name: value for name, value in wished.items() if name not in {"no_cache", "is_planned"}}
    return BuildRequest(paths=paths, use_cache=not wished["no_cache"], **options, **fixed)  # type: ignore[arg-type]


def perform(request: BuildRequest, what: str, *, as_json: bool, is_planned: bool = False) -> None:
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
        console.emit_json(summary.document(result))
    else:
        show(result, request, what, seconds)


def run_with_agents(request: BuildRequest, write: Say) -> BuildResult:
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


def _interrupted(request: BuildRequest, session: str) -> str:
    """Say what Ctrl-C has left: the session is kept, and whether files were changed is what the journal says."""
    from graphbus_core.cli.negotiating.live import counted
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


def show(result: BuildResult, request: BuildRequest, what: str, seconds: float) -> None:
    """Write the diffs of a dry run and the summary."""
    is_plain = result.is_unchanged or not request.enable_agents
    if is_plain:
        _write_lines(summary.built(result, request.paths, seconds))
    elif result.was_dry_run:
        _show_diffs(result)
    else:
        _write_lines(summary.improved(result, request.paths, what))
    if result.was_dry_run:
        _write_lines(summary.spent(result))
        console.out(summary.dry(result))


def _show_diffs(result: BuildResult) -> None:
    console.out()
    for path in sorted(result.diffs):
        console.diff(result.diffs[path])
    console.out()


def _write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        console.out(line)
