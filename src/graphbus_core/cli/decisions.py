"""Commands on decisions of agents: `graphbus why` shows which one wrote a line, `undo` reverts a session, `replay` repeats it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import labelled_lines, pluralize, sanitize, style
from graphbus_core.errors import EditError, NegotiationError, Place, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.provenance import KnownDecision, LineOrigin, decided_files, lines_of, trace_lines


@click.command("replay", short_help="Repeat a session from its record, and compare.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option("--verify", is_flag=True, help="Exit with status 5 if anything differs.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def replay(session: str, verify: bool, as_json: bool) -> None:
    """Repeat SESSION, by default the one in .graphbus/negotiation.lock, and compare its record, files and artifacts.

    The answers come from the record, so no model is asked; the gate works in a copy of the project, so nothing is
    written. In a fresh clone the lock is enough.

    `graphbus dlq replay` is something else: it delivers failed events again.

    Exit status: 0 done; 3 the lock cannot be read; 5 there is no such session, it cannot be repeated, or with
    --verify something differs.

    \b
    Examples:
      graphbus replay --verify
      graphbus replay S001
    """

    from graphbus_core.negotiation.replay import replay_session as run_again

    done = run_again(_load_config(), session)
    answers = pluralize(done.requests, "recorded answer")
    lines = [f"Replayed {sanitize(done.session)} from {done.source}: {answers}, no model asked."]
    lines += [f"  {sanitize(path)}" for path in done.files]
    lines += [style(f"  different: {sanitize(difference)}", "warn") for difference in done.differences]
    if not done.differences:
        lines.append(f"{style('✓', 'good')} Record, files and artifacts are the same, byte for byte.")
    console.print_result({**done._asdict(), "is_identical": not done.differences}, lines, as_json=as_json)
    if verify and done.differences:
        raise NegotiationError("GBE424", session=done.session, what=done.differences[0])


def _load_config() -> ResolvedBuild:
    """Return the configuration for a build of the whole project around the working directory."""
    root = settings.find_root([Path.cwd()])
    return ResolvedBuild(root=str(root), paths=(str(root),), settings=settings.load(root))


@click.command("undo", short_help="Take back what a negotiation changed.")
@click.argument("session", default="", metavar="[SESSION]")
@click.option("--dry-run", is_flag=True, help="Show what would be restored; restore nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def undo(session: str, dry_run: bool, as_json: bool) -> None:
    """Restore the source files as they were before a negotiation: the last one, or SESSION.

    Nothing is restored if one of the files was changed since. Artifacts stay as they are: run `graphbus build`
    afterwards. Git commits stay too: the command names those of the session, for `git revert`.

    Exit status: 0 done; 4 there is nothing to undo, or a file was changed since.

    \b
    Examples:
      graphbus undo
      graphbus undo S001 --dry-run
    """
    from graphbus_core.build import end_interrupted
    from graphbus_core.editing import promotion

    config = _load_config()
    for note in () if dry_run else end_interrupted(config, writes_sources=True):
        console.print_note(sanitize(note))
    session = promotion.last_session(config, session)
    files = promotion.undo(config, session, dry_run=dry_run)
    commits = _find_commits(config, session)
    done = "Would restore" if dry_run else f"{style('✓', 'good')} Restored"
    document = {"session": session, "dry_run": dry_run, "files": files, "git_commits": commits}
    console.print_result(document, (f"{done}: {sanitize(file.path)}" for file in files), as_json=as_json)
    if not (dry_run or as_json):
        console.print_note(f"{sanitize(session)} is undone. The artifacts are those from before: run `graphbus build`.")
        if commits:
            ids = " ".join(commit[:10] for commit in commits.values())
            console.print_note("Its git commits stay in the history. Commit the restored files;")
            console.print_note(
                f"or discard these changes with `git restore`, and revert the commits instead: git revert {ids}"
            )


def _find_commits(config: ResolvedBuild, session: str) -> dict[str, str]:
    """Return the Git commits of the session in the history of HEAD, the last one first: proposal -> commit ID."""
    from graphbus_core.editing.git import Repository
    from graphbus_core.negotiation.apply import load_commits

    with suppress(NegotiationError):  # the files are restored even if git fails
        made = load_commits(config.artifacts_dir, session)
        repository = Repository.find(config.root) if made else None
        if made and repository:
            return {key: one for key, one in reversed(made.commits.items()) if repository.is_on_head(one)}
    return {}


_OUT_OF_REACH = "git's history here does not reach back to it"
_FETCH_HISTORY = "In a shallow clone `git fetch --unshallow` gets the rest; in a partial one `git blame FILE` does."
_PLACE = re.compile(r"(.+?):([0-9]{1,9})(?::[0-9]{1,9})?", re.DOTALL)


@click.command("why", short_help="Show which decision of a session wrote a line.")
@click.argument("place", metavar="FILE[:LINE]")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def why(place: str, as_json: bool) -> None:
    """Show which decision of a negotiation wrote a line: who proposed it, why, and who agreed. Without LINE, list the
    lines of every decision in the file.

    The answer comes from the stored sessions, or else from the commits that `--commit` made. `graphbus
    inspect-negotiation` starts from a session instead of a line.

    Exit status: 0 done, also when no decision wrote the line; 5 there is no such file or line, or git failed.

    \b
    Examples:
      graphbus why agents/order_processor.py:42
      graphbus why agents/order_processor.py
    """
    match = None if _exists(place) else _PLACE.fullmatch(place)  # a file may have a name like `a.py:3`
    name, number = (match[1], int(match[2])) if match else (place, None)
    config = _load_config()
    path = _find_in_project(config, name)
    try:
        lines, origins = lines_of(Path(config.root, path).read_bytes()), trace_lines(config, path)
    except (EditError, OSError) as refused:
        if isinstance(refused, EditError) and refused.code != "GBE312":  # not a text file
            raise
        raise _unknown_file_error(config, name) from None
    if number is None:
        _print_file_ranges(path, name, origins, as_json=as_json)
    elif 1 <= number <= len(lines):
        _print_line_origin(path, number, lines[number - 1], origins[number - 1], as_json=as_json)
    else:
        count = pluralize(len(lines), "line")
        raise NegotiationError("GBE437", where=Place(name), line=number, count=count)


def _exists(path: str) -> bool:
    """True if there is a file or folder with this name; False also for a text that cannot be a path."""
    with suppress(OSError, ValueError):  # the name is too long, or contains NUL
        return Path(path).exists()
    return False


def _find_in_project(config: ResolvedBuild, name: str) -> str:
    """Return the path of a file relative to the project; the name is relative to the working directory or the project.

    Raises:
        NegotiationError: GBE436, there is no such file in the project.
    """
    root = Path(config.root).resolve()
    for candidate in (Path.cwd() / name, root / name):
        found = candidate.resolve() if _exists(str(candidate)) else root
        if found.is_file() and found.is_relative_to(root):
            return found.relative_to(root).as_posix()
    raise _unknown_file_error(config, name)


def _unknown_file_error(config: ResolvedBuild, name: str) -> NegotiationError:
    """Return GBE436, with a suggestion from the files that decisions have changed."""
    suggestion = did_you_mean(name, decided_files(config))
    return NegotiationError("GBE436", where=Place(name), suggestion=suggestion, root=config.root)


# --- one line ----------------------------------------------------------------------------------


def _print_line_origin(path: str, number: int, text: str, origin: LineOrigin, *, as_json: bool) -> None:
    """Print a line with the decisions that may have written it, or where else it comes from."""
    document = {"path": path, "line": number, "text": text, "origin": origin.kind, "session": origin.session}
    head = (f"{style(f'{sanitize(path)}:{number}', 'name')}  {sanitize(text.strip())}", "")
    lines = (
        *head,
        *_explain_origin(origin),
        *(line for decided in origin.decisions for line in _decision_lines(decided)),
    )
    console.print_result({**document, "decisions": origin.decisions}, lines, as_json=as_json)
    if origin.kind == "unknown" and not as_json:
        console.print_note(style(_FETCH_HISTORY, "dim"))


def _explain_origin(origin: LineOrigin) -> Iterator[str]:
    """Yield a sentence if no decision wrote the line, if several may have written it, or if its origin is not known."""
    nobody = "No decision of GraphBus wrote this line"
    if origin.kind == "unknown":
        yield f"It is not known which decision wrote this line, if any: {_OUT_OF_REACH}."
    elif origin.kind == "before":
        yield f"{nobody}; it was here before."
    elif origin.kind != "decision":
        yield f"{nobody}; it was changed by hand after session {sanitize(origin.session)}."
    if len(origin.decisions) > 1:
        yield "One of these decisions wrote it; which one is no longer known."


def _decision_lines(decided: KnownDecision) -> Iterator[str]:
    """Yield a decision as lines of text."""
    yield f"{style(decided.proposal, 'strong')}  {sanitize(decided.title or 'the record of its session is gone')}"
    votes = (f"{vote.evaluator} {vote.decision}: {vote.reasoning}".removesuffix(": ") for vote in decided.votes)
    facts = [
        ("session", decided.session),
        ("by", decided.agent),
        ("intent", decided.intent),
        ("fixes", decided.finding),
        ("why", decided.reason),
        *(("said", vote) for vote in votes),
        ("consensus", decided.consensus),
        ("gate", decided.gate),
        ("model", decided.model),
        ("commit", decided.commit),
    ]
    for label, value in facts:
        if value:
            yield from labelled_lines(label, sanitize(value), 11)


# --- a whole file ------------------------------------------------------------------------------


def _ranges_of(origins: Sequence[LineOrigin]) -> Iterator[tuple[int, int, LineOrigin]]:
    """Yield first line, last line and origin of each run of lines with the same decision."""
    for origin, same in groupby(enumerate(origins, 1), key=itemgetter(1)):
        numbers = [number for number, _ in same]
        if origin.kind == "decision":
            yield numbers[0], numbers[-1], origin


def _print_file_ranges(path: str, name: str, origins: Sequence[LineOrigin], *, as_json: bool) -> None:
    """Print the ranges of lines with their decisions; `path` is relative to the project, the name is as it was typed."""
    ranges = tuple(_ranges_of(origins))
    if as_json:
        listed = [{"first": first, "last": last, "decisions": one.decisions} for first, last, one in ranges]
        console.emit_json({"path": path, "ranges": listed})
        return
    unknown = sum(origin.kind == "unknown" for origin in origins)
    if unknown:
        console.print_note(
            f"It is not known which decisions wrote {pluralize(unknown, 'line')} of {sanitize(path)}: {_OUT_OF_REACH}."
        )
        console.print_note(style(_FETCH_HISTORY, "dim"))
    elif not ranges:
        console.print_line(f"No decision of GraphBus wrote a line of {sanitize(path)}.")
    if ranges:
        console.print_table(("LINES", "SESSION", "ID", "AGENT", "WHAT"), [_range_row(*one) for one in ranges])
        console.print_note()
        console.print_note(style(f"All about one of them: graphbus why {sanitize(name)}:{ranges[0][0]}", "dim"))


def _range_row(first: int, last: int, origin: LineOrigin) -> tuple[str, ...]:
    """Return the cells of a range of lines: lines, session, proposals, agents, and the title if there is only one proposal."""
    decisions = origin.decisions
    return (
        str(first) if first == last else f"{first}-{last}",
        sanitize(origin.session),
        ", ".join(decided.proposal for decided in decisions),
        style(sanitize(", ".join(dict.fromkeys(decided.agent for decided in decisions))), "name"),
        sanitize(decisions[0].title if len(decisions) == 1 else "one of them"),
    )
