"""Edges and changes of contracts for people: text for terminals, Markdown for pull requests. Nothing is printed here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.console import counted, paint, plain
from graphbus_core.contracts.changes import Broken, Change, Effect
from graphbus_core.contracts.edges import Edge, Validation, Verdict
from graphbus_core.contracts.versions import Suggestion
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding

MARKS: dict[Verdict | Effect, tuple[str, console.Role]] = {
    "fits": ("✓", "good"),
    "unfit": ("✗", "bad"),
    "unknown": ("?", "warn"),
    "compatible": ("✓", "good"),
    "breaking": ("✗", "bad"),
    "settled": ("~", "warn"),
}
NOBODY = "nobody: nothing in the graph needs it as it was"
_KINDS = {"method": "method", "call": "call", "depends_on": "depends on", "topic": "event", "request": "request"}
_WIDEST = 90
_MOST_EXAMPLE_CHARS = 80


class Comparison(NamedTuple):
    """Two states, what differs between them and what that means for the version.

    Attributes:
        root: Of the new state, on disk; empty if it is a revision.
    """

    old: str
    new: str
    changes: tuple[Change, ...]
    suggestion: Suggestion
    root: str = ""

    def of(self, effect: Effect) -> tuple[Change, ...]:
        """The changes of one effect."""
        return tuple(change for change in self.changes if change.effect == effect)

    @property
    def breaks(self) -> bool:
        """True when somebody is let down."""
        return bool(self.of("breaking"))


def place(span: SourceSpan, root: str) -> str:
    """A place as seen from the working directory; below no root as the project has it."""
    path = os.path.relpath(os.path.join(root, span.path)) if root else span.path
    return f"{path}:{span.line}"


# --- edges ------------------------------------------------------------------------------------


def edge_title(edge: Edge) -> str:
    """`Pricing → /Price/Set → Board.on_price`, for a method its name."""
    if edge.kind == "method":
        return edge.target
    return " → ".join(filter(None, (edge.source, edge.topic, edge.target)))


def edge_lines(validation: Validation, root: str, *, only_open: bool = False) -> Iterator[str]:
    """A line for each edge; below one that does not fit, what was found; with `only_open` none for those that fit."""
    shown = [edge for edge in validation.edges if not (only_open and edge.verdict == "fits")]
    width = min(max((len(edge_title(edge)) for edge in shown), default=0), _WIDEST)
    told: set[tuple[str, str, str, int]] = set()
    for edge in shown:
        yield _edge_line(edge, root, width)
        for finding in edge.findings:
            key = (*finding.key, finding.span.line)
            if key not in told or finding.severity == "info":
                yield from _finding_lines(finding, root)
            else:
                yield f"      {paint(finding.code, 'bad')} as above"
            told.add(key)
    for finding in validation.others:
        yield from _finding_lines(finding, root)


def _edge_line(edge: Edge, root: str, width: int) -> str:
    mark, role = MARKS[edge.verdict]
    kind = paint(f"{_KINDS[edge.kind]:<10}", "dim")
    where = paint(plain(place(edge.spans[0], root)), "dim")
    note = f"  {paint(plain(edge.unknown), 'warn')}" if edge.verdict == "unknown" else ""
    return f"{paint(mark, role)} {kind} {plain(edge_title(edge)):<{width}}  {where}{note}"


def _finding_lines(finding: Finding, root: str) -> Iterator[str]:
    is_note = finding.severity == "info"
    role: console.Role = "name" if is_note else "bad" if finding.severity == "error" else "warn"
    label = f"{paint(finding.code, role)}{' note:' if is_note else ''}"
    yield f"      {label} {plain(finding.message)}  {paint(plain(place(finding.span, root)), 'dim')}"
    if finding.hint and not is_note:
        yield f"      {paint('help:', 'name')} {plain(finding.hint)}"


def edge_summary(validation: Validation) -> str:
    """`12 of 14 contracts hold, 1 does not, 1 cannot be known.`"""
    total = len(validation.edges)
    if not total:
        return f"{paint('✓', 'good')} There is no method with a schema and no edge: nothing to validate."
    fits, unfit, unknown = (validation.count(each) for each in ("fits", "unfit", "unknown"))
    mark, role = MARKS["fits" if validation.holds else "unfit"]
    rest = [f"{unfit} {'does' if unfit == 1 else 'do'} not"] if unfit else []
    rest += [f"{unknown} cannot be known"] if unknown else []
    contracts = counted(total, "contract")
    first = f"{fits} of {contracts} hold{'s' if fits == 1 else ''}" if rest else f"{contracts} hold{'s' * (total == 1)}"
    return f"{paint(mark, role)} {', '.join([first, *rest])}."


# --- changes ----------------------------------------------------------------------------------


def change_lines(comparison: Comparison) -> Iterator[str]:
    """What differs, what breaks first, each with those whom it lets down; then the version."""
    yield paint(f"{plain(comparison.old)} → {plain(comparison.new)}", "strong")
    yield ""
    for change in comparison.changes:
        yield from _change_lines(change, comparison.root)
    if comparison.changes:
        yield ""
    yield from _verdict(comparison, paint)


def _change_lines(change: Change, root: str) -> Iterator[str]:
    mark, role = MARKS[change.effect]
    doubt = "" if change.is_certain else paint(" (not certain)", "warn")
    where = f"  {paint(plain(place(change.span, root if change.is_new_place else '')), 'dim')}"
    yield f"{paint(mark, role)} {said(change, lambda text: paint(plain(text), 'strong'))}{doubt}{where}"
    if change.effect == "compatible":
        return
    if change.example:
        fate = "may come now, and never came before" if change.is_new_value else "was fine, and is refused now"
        yield f"    e.g. {plain(shown(change.example[0]))} {fate}"
    if change.breaks_outside:
        yield f"    breaks {outside(change)}"
    for broken in change.breaks:
        where = paint(plain(place(broken.span, root)), "dim")
        yield f"    {verb(broken)} {plain(broken.edge)}: {plain(broken.why)}  {where}"
    if change.effect == "settled":
        yield f"    breaks {NOBODY}"


def said(change: Change, strong: Callable[[str], str]) -> str:
    """The change in one sentence: where something speaks of a field, its title comes first."""
    if change.path or change.kind in (
        "schema-known",
        "schema-unknown",
        "fields-opened",
        "fields-closed",
        "type-changed",
    ):
        return f"{strong(change.title)} {plain(change.why)}"
    return plain(change.why)


def shown(value: object) -> str:
    """A value as Python writes it, cut."""
    text = repr(value)
    return text if len(text) <= _MOST_EXAMPLE_CHARS else f"{text[: _MOST_EXAMPLE_CHARS - 3]}..."


def outside(change: Change) -> str:
    """Who may rely on it besides the agents of the graph."""
    if change.place.startswith("/"):
        return "outside: external_topics names it"
    return "outside: it can be called over HTTP and from Python"


def verb(broken: Broken) -> str:
    """How sure it is."""
    return "breaks" if broken.is_certain else "may break"


def _verdict(comparison: Comparison, painted: Callable[[str, console.Role], str]) -> Iterator[str]:
    if not comparison.changes:
        yield f"{painted('✓', 'good')} No contract has changed."
    else:
        mark, role = MARKS["breaking" if comparison.breaks else "compatible"]
        yield f"{painted(mark, role)} {counts(comparison)}."
    yield from version_lines(comparison.suggestion)


def counts(comparison: Comparison) -> str:
    """`1 change breaks somebody, 2 are compatible`."""
    breaking, settled, compatible = (len(comparison.of(each)) for each in ("breaking", "settled", "compatible"))
    verbs = (
        (breaking, "breaks somebody", "break somebody"),
        (settled, "breaks nobody who is left", "break nobody who is left"),
        (compatible, "is compatible", "are compatible"),
    )
    there = [(number, one if number == 1 else many) for number, one, many in verbs if number]
    return ", ".join(f"{number if at else counted(number, 'change')} {does}" for at, (number, does) in enumerate(there))


def version_lines(suggestion: Suggestion) -> Iterator[str]:
    """What the version should be, and whether it is high enough already."""
    least, found = suggestion.least, suggestion.found
    if not suggestion.current:
        step = {"none": "stays as it is", "patch": "a patch", "minor": "a minor version", "major": "a major version"}
        yield f"Version: {step[suggestion.level]}, because {suggestion.because}."
    elif least == suggestion.current:
        yield f"Version: {least} stays, because {suggestion.because}."
    elif suggestion.is_enough:
        yield f"Version: {suggestion.current} → {least} because {suggestion.because}; {found} is enough."
    else:
        yield f"Version: {suggestion.current} → {least} because {suggestion.because}."


# --- Markdown ---------------------------------------------------------------------------------


def as_markdown(comparison: Comparison | None, validation: Validation | None, root: str) -> Iterator[str]:
    """A comment for a pull request; what comes from sources cannot become markup."""
    yield "### Contracts"
    yield ""
    if validation is not None:
        yield from _markdown_edges(validation, root)
    if comparison is None:
        return
    yield f"{_escaped(comparison.old)} → {_escaped(comparison.new)}: " + (
        f"**{counts(comparison)}**." if comparison.changes else "no contract has changed."
    )
    yield ""
    if comparison.changes:
        yield from ("| | change | whom it breaks |", "|---|---|---|")
        yield from (_markdown_row(change, comparison.root) for change in comparison.changes)
        yield ""
    yield from map(_escaped, version_lines(comparison.suggestion))


def _markdown_edges(validation: Validation, root: str) -> Iterator[str]:
    unfit = [edge for edge in validation.edges if edge.verdict == "unfit"]
    total, fits = len(validation.edges), validation.count("fits")
    yield f"{fits} of {total} contracts in the graph hold, {validation.count('unknown')} cannot be known."
    yield ""
    for edge in unfit:
        yield f"- ✗ {_code(edge_title(edge))}"
        yield from (
            f"  - {finding.code}: {_escaped(finding.message)} ({_code(place(finding.span, root))})"
            for finding in edge.findings
            if finding.severity != "info"
        )
    if unfit:
        yield ""


def _markdown_row(change: Change, root: str) -> str:
    text = said_in_markdown(change)
    where = place(change.span, root if change.is_new_place else "")
    return f"| {MARKS[change.effect][0]} | {text}<br>{_code(where)} | {'<br>'.join(_let_down(change, root))} |"


def said_in_markdown(change: Change) -> str:
    """The change in one sentence, without paint."""
    title = f"{_code(change.title)} " if change.path or not change.why.startswith(change.place) else ""
    doubt = "" if change.is_certain else " (not certain)"
    return f"{title}{_escaped(change.why)}{doubt}"


def _let_down(change: Change, root: str) -> Iterator[str]:
    if change.effect == "settled":
        yield NOBODY
    if change.breaks_outside:
        yield _escaped(outside(change))
    for broken in change.breaks if change.effect != "compatible" else ():
        doubt = "" if broken.is_certain else "perhaps "
        yield f"{doubt}{_code(broken.edge)}: {_escaped(broken.why)} ({_code(place(broken.span, root))})"


_MARKUP = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#"})


def _escaped(text: str) -> str:
    return plain(text).replace("\n", " ").translate(_MARKUP).replace("&", "&amp;")


def _code(text: str) -> str:
    """Text as code: it cannot leave its backticks nor its cell."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{plain(text).replace(chr(10), ' ').replace('|', chr(92) + '|')}{fence}"


def written(lines: Iterable[str]) -> None:
    """Write lines to stdout."""
    for line in lines:
        console.out(line)
