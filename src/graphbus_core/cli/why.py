"""`graphbus why FILE:LINE`: which decision wrote a line, who agreed to it and why; or that nobody of GraphBus did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import counted, fact, paint, plain
from graphbus_core.errors import EditError, NegotiationError, Place, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.provenance import Decided, Origin, Vote, decided_files, lines_of, trace
from graphbus_core.settings import find_root, load

_LABEL_WIDTH = 11
_OUT_OF_REACH = "git's history here does not reach back to it"
_ADVICE = (
    "In a shallow clone `git fetch --unshallow` gets the rest of the history; in a partial one `git blame FILE` does."
)

_NUMBER = re.compile(r"[0-9]{1,18}")


@click.command("why", short_help="Tell which decision wrote a line.")
@click.argument("place", metavar="FILE[:LINE]")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def why(place: str, as_json: bool) -> None:
    """Tell which decision wrote a line: who proposed it, why, who agreed. Without LINE, list the lines of every decision.

    Works from the sessions that are kept here; where they are gone, from the commits that `--commit` has made.

    Exit status: 0 done, also when no decision wrote the line; 5 there is no such file or line, or git cannot be
    asked.

    \b
    Examples:
      graphbus why agents/order_processor.py:42
      graphbus why agents/order_processor.py
    """
    written, number = split_place(place)
    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(), settings=load(root))
    path = _in_project(config, written)
    lines, origins = _read(config, path, written)
    if number is None:
        _show_file(path, written, origins, as_json=as_json)
    elif 1 <= number <= len(lines):
        _show_line(path, number, lines[number - 1], origins[number - 1], as_json=as_json)
    else:
        count = counted(len(lines), "line")
        raise NegotiationError("GBE437", where=Place(written), path=written, line=number, count=count)


def split_place(place: str) -> tuple[str, int | None]:
    """Split `FILE:LINE` or `FILE:LINE:COLUMN`; a file that is called so is taken as it is."""
    path, _, number = place.rpartition(":")
    if _exists(place) or not _NUMBER.fullmatch(number):
        return place, None
    outer, _, line = path.rpartition(":")
    if outer and _NUMBER.fullmatch(line) and not _exists(path):
        return outer, int(line)
    return path, int(number)


def _exists(name: str) -> bool:
    with suppress(OSError, ValueError):  # longer than a name can be, or with a NUL in it
        return Path(name).exists()
    return False


def _in_project(config: ResolvedBuild, written: str) -> str:
    path = Path(written)
    for candidate in (Path.cwd() / path, Path(config.root) / path):
        if not _exists(str(candidate)):
            continue
        found, root = candidate.resolve(), Path(config.root).resolve()
        if found.is_file() and found.is_relative_to(root):
            return found.relative_to(root).as_posix()
    raise _unknown(config, written)


def _unknown(config: ResolvedBuild, written: str) -> NegotiationError:
    suggestion = did_you_mean(written, decided_files(config))
    return NegotiationError("GBE436", where=Place(written), path=written, suggestion=suggestion, root=config.root)


def _read(config: ResolvedBuild, path: str, written: str) -> tuple[Sequence[str], Sequence[Origin]]:
    try:
        return lines_of(Path(config.root, path).read_bytes()), trace(config, path)
    except (EditError, OSError) as refused:
        if isinstance(refused, EditError) and refused.code != "GBE312":  # it is no text
            raise
        raise _unknown(config, written) from None


# --- one line ----------------------------------------------------------------------------------


def _show_line(path: str, number: int, text: str, origin: Origin, *, as_json: bool) -> None:
    document = {"path": path, "line": number, "text": text, "origin": origin.kind, "session": origin.session}
    head = (f"{paint(f'{plain(path)}:{number}', 'name')}  {plain(text.strip())}", "")
    lines = (*head, *_nobody(origin), *(line for decided in origin.decisions for line in describe(decided)))
    console.result({**document, "decisions": origin.decisions}, lines, as_json=as_json)
    if origin.kind == "unknown" and not as_json:
        console.say(paint(_ADVICE, "dim"))


def _nobody(origin: Origin) -> Iterator[str]:
    """Say where a line comes from that no decision wrote, or that one of several did."""
    nobody = "No decision of GraphBus wrote this line"
    if origin.kind == "unknown":
        yield f"It is not known which decision wrote this line, if any: {_OUT_OF_REACH}."
    elif origin.kind == "before":
        yield f"{nobody}; it was here before."
    elif origin.kind != "decision":
        yield f"{nobody}; somebody did by hand after session {plain(origin.session)}."
    if len(origin.decisions) > 1:
        yield "One of these decisions; which of them is not known any more."


def describe(decided: Decided) -> Iterator[str]:
    """Give a decision as lines to read."""
    yield f"{paint(decided.proposal, 'strong')}  {plain(decided.title or 'the record of its session is gone')}"
    facts = [
        ("session", decided.session),
        ("by", decided.agent),
        ("intent", decided.intent),
        ("mends", decided.finding),
        ("why", decided.reason),
        *(("said", _vote(vote)) for vote in decided.votes),
        ("consensus", decided.consensus),
        ("gate", decided.gate),
        ("model", decided.model),
        ("commit", decided.commit),
    ]
    for label, value in facts:
        if value:
            yield from fact(label, plain(value), _LABEL_WIDTH)


def _vote(vote: Vote) -> str:
    role = " (ARBITER)" if vote.is_arbiter else ""
    return f"{vote.evaluator}{role} {vote.decision}{f': {vote.reasoning}' if vote.reasoning else ''}"


# --- a whole file ------------------------------------------------------------------------------


def ranges_of(origins: Sequence[Origin]) -> Iterator[tuple[int, int, Origin]]:
    """Join neighbouring lines of one decision, both ends included, and leave out what no decision wrote."""
    first = 1
    for origin, same in groupby(origins):
        count = len(tuple(same))
        if origin.kind == "decision":
            yield first, first + count - 1, origin
        first += count


def _show_file(path: str, written: str, origins: Sequence[Origin], *, as_json: bool) -> None:
    ranges = tuple(ranges_of(origins))
    if as_json:
        listed = [{"first": first, "last": last, "decisions": one.decisions} for first, last, one in ranges]
        console.emit_json({"path": path, "ranges": listed})
        return
    unknown = sum(origin.kind == "unknown" for origin in origins)
    if unknown:
        lines = f"{unknown} of {len(origins)} lines" if unknown < len(origins) else "the lines"
        console.say(f"It is not known which decisions wrote {lines} of {plain(path)}: {_OUT_OF_REACH}.")
        console.say(paint(_ADVICE, "dim"))
    elif not ranges:
        console.out(f"No decision of GraphBus wrote a line of {plain(path)}.")
    if ranges:
        console.table(("LINES", "SESSION", "ID", "AGENT", "WHAT"), [_row(*one) for one in ranges])
        console.say()
        console.say(paint(f"One whole: graphbus why {plain(written)}:{ranges[0][0]}", "dim"))


def _row(first: int, last: int, origin: Origin) -> tuple[str, ...]:
    decisions = origin.decisions
    return (
        str(first) if first == last else f"{first}-{last}",
        plain(origin.session),
        ", ".join(decided.proposal for decided in decisions),
        paint(plain(", ".join(dict.fromkeys(decided.agent for decided in decisions))), "name"),
        plain(decisions[0].title if len(decisions) == 1 else "one of them"),
    )
