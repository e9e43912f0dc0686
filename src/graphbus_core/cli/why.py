"""`graphbus why FILE:LINE`: which decision wrote a line, who agreed to it and why; or that nobody of GraphBus did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import folded, paint, plain
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


class _Range(NamedTuple):
    """Neighbouring lines of one origin, both ends included."""

    first: int
    last: int
    origin: Origin


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
        count = f"{len(lines)} line{'s' * (len(lines) != 1)}"
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
    if as_json:
        document = {"path": path, "line": number, "text": text, "origin": origin.kind, "session": origin.session}
        console.emit_json({**document, "decisions": origin.decisions})
        return
    console.out(f"{paint(f'{plain(path)}:{number}', 'name')}  {plain(text.strip())}")
    console.out()
    if origin.kind != "decision":
        console.out(_nobody(origin))
    if origin.kind == "unknown":
        console.say(paint(_ADVICE, "dim"))
    if len(origin.decisions) > 1:
        console.out("One of these decisions; which of them is not known any more.")
    for decided in origin.decisions:
        for line in describe(decided):
            console.out(line)


def _nobody(origin: Origin) -> str:
    """Say where a line comes from that no decision wrote."""
    if origin.kind == "unknown":
        return f"It is not known which decision wrote this line, if any: {_OUT_OF_REACH}."
    nobody = "No decision of GraphBus wrote this line"
    if origin.kind == "before":
        return f"{nobody}; it was here before."
    return f"{nobody}; somebody did by hand after session {plain(origin.session)}."


def describe(decided: Decided) -> Iterator[str]:
    """Give a decision as lines to read."""
    yield f"{paint(decided.proposal, 'strong')}  {plain(decided.title or 'the record of its session is gone')}"
    facts = {
        "session": decided.session,
        "by": decided.agent,
        "intent": decided.intent,
        "mends": decided.finding,
        "why": decided.reason,
    }
    for label, value in facts.items():
        if value:
            yield from _fact(label, plain(value))
    for vote in decided.votes:
        yield from _fact("said", _vote(vote))
    outcome = {"consensus": decided.consensus, "gate": decided.gate, "model": decided.model, "commit": decided.commit}
    for label, value in outcome.items():
        if value:
            yield from _fact(label, plain(value))


def _fact(label: str, value: str) -> Iterator[str]:
    return folded(f"  {paint(f'{label}:'.ljust(_LABEL_WIDTH), 'dim')} ", value, _LABEL_WIDTH + 3)


def _vote(vote: Vote) -> str:
    role = " (ARBITER)" if vote.is_arbiter else ""
    said = f": {vote.reasoning}" if vote.reasoning else ""
    return plain(f"{vote.evaluator}{role} {vote.decision}{said}")


# --- a whole file ------------------------------------------------------------------------------


def ranges_of(origins: Sequence[Origin]) -> Iterator[_Range]:
    """Join neighbouring lines of one decision, and leave out what no decision wrote."""
    first = 1
    for origin, same in groupby(origins):
        count = len(tuple(same))
        if origin.kind == "decision":
            yield _Range(first, first + count - 1, origin)
        first += count


def _show_file(path: str, written: str, origins: Sequence[Origin], *, as_json: bool) -> None:
    ranges = tuple(ranges_of(origins))
    if as_json:
        console.emit_json(
            {
                "path": path,
                "ranges": [{"first": one.first, "last": one.last, "decisions": one.origin.decisions} for one in ranges],
            }
        )
        return
    unknown = sum(origin.kind == "unknown" for origin in origins)
    if unknown:
        lines = f"{unknown} of {len(origins)} lines" if unknown < len(origins) else "the lines"
        console.say(f"It is not known which decisions wrote {lines} of {plain(path)}: {_OUT_OF_REACH}.")
        console.say(paint(_ADVICE, "dim"))
    if not ranges:
        if not unknown:
            console.out(f"No decision of GraphBus wrote a line of {plain(path)}.")
    else:
        console.table(("LINES", "SESSION", "ID", "AGENT", "WHAT"), [_row(one) for one in ranges])
        console.say()
        console.say(paint(f"One whole: graphbus why {plain(written)}:{ranges[0].first}", "dim"))


def _row(one: _Range) -> tuple[str, ...]:
    decisions = one.origin.decisions
    return (
        str(one.first) if one.first == one.last else f"{one.first}-{one.last}",
        plain(one.origin.session),
        ", ".join(decided.proposal for decided in decisions),
        paint(plain(", ".join(dict.fromkeys(decided.agent for decided in decisions))), "name"),
        plain(decisions[0].title if len(decisions) == 1 else "one of them"),
    )
