"""Edges and changes of contracts as text, Markdown, JSON and annotations of GitHub. Nothing is printed here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.console import counted, one_line, paint, plain
from graphbus_core.cli.formats import ANNOTATION_LEVELS, annotated, annotation
from graphbus_core.contracts.changes import Broken, Change, Effect
from graphbus_core.contracts.edges import Edge, Validation, Verdict
from graphbus_core.contracts.versions import Suggestion
from graphbus_core.errors import GraphBusError
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
_NOBODY = "nobody: nothing in the graph needs it as it was"
_KINDS = {"method": "method", "call": "call", "depends_on": "depends on", "topic": "event", "request": "request"}
_TITLED = frozenset({"schema-known", "schema-unknown", "fields-opened", "fields-closed", "type-changed"})
"""What is said of these kinds is a clause that follows the title."""
_WIDEST = 90
_MOST_EXAMPLE_CHARS = 80


class Comparison(NamedTuple):
    """Two states, what differs between them, what that means for the version, and what the command line allows.

    Attributes:
        root: Of the new state, on disk; empty if it is a revision.
        is_allowed: What breaks somebody does not fail.
        may_announce: A version that is raised far enough would allow it.
        checks_version: A version that is too low fails.
    """

    old: str
    new: str
    changes: tuple[Change, ...]
    suggestion: Suggestion
    root: str = ""
    is_allowed: bool = False
    may_announce: bool = False
    checks_version: bool = False

    def of(self, effect: Effect) -> tuple[Change, ...]:
        """The changes of one effect."""
        return tuple(change for change in self.changes if change.effect == effect)

    @property
    def breaks(self) -> bool:
        """True when it breaks somebody."""
        return bool(self.of("breaking"))

    @property
    def is_version_low(self) -> bool:
        """True when the version fails."""
        return self.checks_version and self.suggestion.is_enough is False

    @property
    def fails(self) -> bool:
        """True when the command fails."""
        return self.is_version_low or (self.breaks and not self.is_allowed)

    @property
    def way_out(self) -> str:
        """What to do if the changes are meant, where a raised version is an answer."""
        if not self.breaks or not self.may_announce or self.is_allowed:
            return ""
        found, least = self.suggestion.found, self.suggestion.least
        if not self.suggestion.current or not found:
            return "If it is meant, it can be announced once pyproject.toml gives a `version`, before and after."
        return f"If it is meant, raise `version` in pyproject.toml from {found} to {least} at least."


def _place(span: SourceSpan, root: str) -> str:
    """A place as seen from the working directory; below no root as the project has it."""
    path = os.path.relpath(os.path.join(root, span.path)) if root else span.path
    return f"{path}:{span.line}"


def _dim_place(span: SourceSpan, root: str) -> str:
    return paint(plain(_place(span, root)), "dim")


def _as_text(comparison: Comparison | None, validation: Validation | None, root: str) -> Iterator[str]:
    """Edges, those that hold left out if there are changes to show; then the changes."""
    if validation:
        lines = [*_edge_lines(validation, root, only_open=comparison is not None)]
        yield from (*lines, "") if lines else ()
        yield _edge_summary(validation)
        yield from ("",) if comparison else ()
    if comparison:
        yield from _change_lines(comparison)


# --- edges ------------------------------------------------------------------------------------


def _edge_title(edge: Edge) -> str:
    """`Pricing → /Price/Set → Board.on_price`, for a method its name."""
    if edge.kind == "method":
        return edge.target
    return " → ".join(filter(None, (edge.source, edge.topic, edge.target)))


def _edge_lines(validation: Validation, root: str, *, only_open: bool) -> Iterator[str]:
    """A line for each edge; below one that does not fit, what was found; with `only_open` none for those that fit."""
    shown = [edge for edge in validation.edges if not (only_open and edge.verdict == "fits")]
    width = min(max((len(_edge_title(edge)) for edge in shown), default=0), _WIDEST)
    told: set[tuple[str, str, str, int]] = set()
    for edge in shown:
        mark, role = MARKS[edge.verdict]
        kind = paint(f"{_KINDS[edge.kind]:<10}", "dim")
        note = f"  {paint(plain(edge.unknown), 'warn')}" if edge.verdict == "unknown" else ""
        where = _dim_place(edge.spans[0], root)
        yield f"{paint(mark, role)} {kind} {plain(_edge_title(edge)):<{width}}  {where}{note}"
        for finding in edge.findings:
            key = (*finding.key, finding.span.line)
            if key not in told or finding.severity == "info":
                yield from _finding_lines(finding, root)
            else:
                yield f"      {paint(finding.code, 'bad')} as above"
            told.add(key)
    for finding in validation.others:
        yield from _finding_lines(finding, root)


def _finding_lines(finding: Finding, root: str) -> Iterator[str]:
    is_note = finding.severity == "info"
    role: console.Role = "name" if is_note else "bad" if finding.severity == "error" else "warn"
    label = f"{paint(finding.code, role)}{' note:' if is_note else ''}"
    yield f"      {label} {plain(finding.message)}  {_dim_place(finding.span, root)}"
    if finding.hint and not is_note:
        yield f"      {paint('help:', 'name')} {plain(finding.hint)}"


def _edge_summary(validation: Validation) -> str:
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


def _change_lines(comparison: Comparison) -> Iterator[str]:
    """What differs, what breaks first, each with those whom it breaks; then the version."""
    yield paint(f"{plain(comparison.old)} → {plain(comparison.new)}", "strong")
    yield ""
    for change in comparison.changes:
        yield from _lines_of(change, comparison.root)
    if comparison.changes:
        mark, role = MARKS["breaking" if comparison.breaks else "compatible"]
        yield ""
        yield f"{paint(mark, role)} {_counts(comparison)}."
    else:
        yield f"{paint('✓', 'good')} No contract has changed."
    yield _version(comparison.suggestion)


def _lines_of(change: Change, root: str) -> Iterator[str]:
    mark, role = MARKS[change.effect]
    is_titled = change.field or change.kind in _TITLED
    title = f"{paint(plain(change.title), 'strong')} " if is_titled else ""
    doubt = "" if change.is_certain else paint(" (not certain)", "warn")
    where = _dim_place(change.span, root if change.is_new_place else "")
    yield f"{paint(mark, role)} {title}{plain(change.why)}{doubt}  {where}"
    if change.effect == "compatible":
        return
    if change.example:
        text = repr(change.example[0])
        shown = text if len(text) <= _MOST_EXAMPLE_CHARS else f"{text[: _MOST_EXAMPLE_CHARS - 3]}..."
        fate = "may come now, and never came before" if change.is_new_value else "was fine, and is refused now"
        yield f"    e.g. {plain(shown)} {fate}"
    if change.breaks_outside:
        yield f"    breaks {_outside(change)}"
    for broken in change.breaks:
        yield f"    {_verb(broken)} {plain(broken.edge)}: {plain(broken.why)}  {_dim_place(broken.span, root)}"
    if change.effect == "settled":
        yield f"    breaks {_NOBODY}"


def _outside(change: Change) -> str:
    """Who may rely on it besides the agents of the graph."""
    if change.place.startswith("/"):
        return "outside: external_topics names it"
    return "outside: it can be called over HTTP and from Python"


def _verb(broken: Broken) -> str:
    """How sure it is."""
    return "breaks" if broken.is_certain else "may break"


def _counts(comparison: Comparison) -> str:
    """`1 change breaks somebody, 2 are compatible`."""
    verbs: dict[Effect, tuple[str, str]] = {
        "breaking": ("breaks somebody", "break somebody"),
        "settled": ("breaks nobody who is left", "break nobody who is left"),
        "compatible": ("is compatible", "are compatible"),
    }
    found = [(len(comparison.of(effect)), forms) for effect, forms in verbs.items()]
    (first, does), *rest = [(number, one if number == 1 else many) for number, (one, many) in found if number]
    return ", ".join([f"{counted(first, 'change')} {does}", *(f"{number} {does}" for number, does in rest)])


def _version(suggestion: Suggestion) -> str:
    """What the version should be, and whether it is high enough already."""
    least, found = suggestion.least, suggestion.found
    if not suggestion.current:
        step = {"none": "stays as it is", "patch": "a patch", "minor": "a minor version", "major": "a major version"}
        return f"Version: {step[suggestion.level]}, because {suggestion.because}."
    if least == suggestion.current:
        return f"Version: {least} stays, because {suggestion.because}."
    enough = f"; {found} is enough" if suggestion.is_enough else ""
    return f"Version: {suggestion.current} → {least} because {suggestion.because}{enough}."


def conclusion(comparison: Comparison) -> Iterator[str]:
    """What the version has to do with the exit status: it is too low, or raising it is an answer to what breaks."""
    suggestion = comparison.suggestion
    if comparison.is_version_low:
        mark = paint("✗", "bad")
        yield f"{mark} pyproject.toml says {suggestion.found}: it has to be {suggestion.least} at least."
    elif comparison.way_out:
        yield comparison.way_out
    elif comparison.breaks and comparison.may_announce:
        mark = paint("✓", "good")
        yield f"{mark} It is announced: pyproject.toml has gone from {suggestion.current} to {suggestion.found}."


# --- Markdown ---------------------------------------------------------------------------------


def _as_markdown(comparison: Comparison | None, validation: Validation | None, root: str) -> Iterator[str]:
    """A comment for a pull request; what comes from sources cannot become markup."""
    yield from ("### Contracts", "")
    if validation is not None:
        yield from _markdown_edges(validation, root)
    if comparison is None:
        return
    said = f"**{_counts(comparison)}**." if comparison.changes else "no contract has changed."
    yield from (f"{_escaped(comparison.old)} → {_escaped(comparison.new)}: {said}", "")
    if comparison.changes:
        yield from ("| | change | whom it breaks |", "|---|---|---|")
        yield from (_markdown_row(change, comparison.root) for change in comparison.changes)
        yield ""
    yield _escaped(_version(comparison.suggestion))


def _markdown_edges(validation: Validation, root: str) -> Iterator[str]:
    unfit = [edge for edge in validation.edges if edge.verdict == "unfit"]
    total, fits = len(validation.edges), validation.count("fits")
    yield f"{fits} of {total} contracts in the graph hold, {validation.count('unknown')} cannot be known."
    yield ""
    for edge in unfit:
        yield f"- ✗ {_code(_edge_title(edge))}"
        for finding in (each for each in edge.findings if each.severity != "info"):
            yield f"  - {finding.code}: {_escaped(finding.message)} ({_code(_place(finding.span, root))})"
    if unfit:
        yield ""


def _markdown_row(change: Change, root: str) -> str:
    title = f"{_code(change.title)} " if change.field or not change.why.startswith(change.place) else ""
    doubt = "" if change.is_certain else " (not certain)"
    where = _code(_place(change.span, root if change.is_new_place else ""))
    broken = "<br>".join(_markdown_broken(change, root))
    return f"| {MARKS[change.effect][0]} | {title}{_escaped(change.why)}{doubt}<br>{where} | {broken} |"


def _markdown_broken(change: Change, root: str) -> Iterator[str]:
    if change.effect == "settled":
        yield _NOBODY
    if change.breaks_outside:
        yield _escaped(_outside(change))
    for broken in change.breaks if change.effect != "compatible" else ():
        doubt = "" if broken.is_certain else "perhaps "
        yield f"{doubt}{_code(broken.edge)}: {_escaped(broken.why)} ({_code(_place(broken.span, root))})"


_MARKUP = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]<>|#"})


def _escaped(text: str) -> str:
    return one_line(text).translate(_MARKUP).replace("&", "&amp;")


def _code(text: str) -> str:
    """Text as code: it cannot leave its backticks nor its cell."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{plain(text).replace(chr(10), ' ').replace('|', chr(92) + '|')}{fence}"


# --- JSON -------------------------------------------------------------------------------------------


_FINDING = ("message", "hint")
_EDGE = ("kind", "source", "topic", "target", "verdict", "unknown")
_CHANGE = ("kind", "effect", "place", "part", "field", "before", "after", "why", "is_certain")


def document(
    comparison: Comparison | None, validation: Validation | None, root: str, errors: Sequence[GraphBusError]
) -> dict[str, Any]:
    """All edges with their verdicts and all changes; paths are relative to the project root, lines count from 1."""
    changes = _changes_document(comparison) if comparison else None
    if validation is None:
        return changes or {}
    return {
        "root": root,
        "edges": [
            {
                **_fields(edge, _EDGE),
                "places": [_at_line(span) for span in edge.spans],
                "findings": [_finding(each) for each in edge.findings],
            }
            for edge in validation.edges
        ],
        "others": [_finding(finding) for finding in validation.others],
        "summary": {verdict: validation.count(verdict) for verdict in ("fits", "unfit", "unknown")},
        "errors": [console.describe(error) for error in errors],
        "comparison": changes,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**_fields(finding, ("code", "severity")), **_at_line(finding.span), **_fields(finding, _FINDING)}


def _fields(of: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _at_line(span: SourceSpan) -> dict[str, Any]:
    return {"path": span.path, "line": span.line}


def _changes_document(comparison: Comparison) -> dict[str, Any]:
    """All changes, and what the version should be; `breaks` is about this graph, `outside` about others."""
    suggestion = comparison.suggestion
    return {
        "old": comparison.old,
        "new": comparison.new,
        "changes": [_change(change) for change in comparison.changes],
        "summary": {effect: len(comparison.of(effect)) for effect in ("breaking", "settled", "compatible")},
        "version": {
            "level": suggestion.level,
            "current": suggestion.current or None,
            "suggested": suggestion.least or None,
            "found": suggestion.found or None,
            "is_enough": suggestion.is_enough,
            "because": suggestion.because,
        },
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        **_fields(change, _CHANGE),
        "outside": change.breaks_outside,
        "breaks": [
            {**_fields(each, ("edge", "agent")), **_at_line(each.span), **_fields(each, ("why", "is_certain"))}
            for each in change.breaks
        ],
        "example": list(change.example) if _is_json(change.example) else [],
        "at": {**_at_line(change.span), "state": "new" if change.is_new_place else "old"},
    }


def _is_json(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)


# --- GitHub -----------------------------------------------------------------------------------


def _for_github(comparison: Comparison | None, validation: Validation | None, root: str) -> Iterator[str]:
    """Annotations for the lines of a pull request."""
    if validation:
        yield from _edge_annotations(validation, root)
    if comparison:
        yield from _change_annotations(comparison)


def _edge_annotations(validation: Validation, root: str) -> Iterator[str]:
    """One for each finding at its line, with the first edge that it concerns."""
    edges = [(_edge_title(edge), finding) for edge in validation.edges for finding in edge.findings]
    told: set[tuple[str, str]] = set()
    for title, finding in [*edges, *(("", finding) for finding in validation.others)]:
        key = (_place(finding.span, root), finding.message)
        if key not in told:
            told.add(key)
            at, head = _at(finding.span, root), f"{finding.code} {title}".rstrip()
            yield annotation(ANNOTATION_LEVELS[finding.severity], at, head, [finding.message, finding.hint])


def _change_annotations(comparison: Comparison) -> Iterator[str]:
    """An error for each change that breaks somebody, beside the change, and a warning at each line that it breaks.

    What is allowed to break somebody is a warning itself. The version and what to do come last.
    """
    level, root = "warning" if comparison.is_allowed else "error", comparison.root
    for change in comparison.of("breaking"):
        lines = [change.why, *([f"Breaks {_outside(change)}."] if change.breaks_outside else [])]
        lines += [
            f"{_verb(each).capitalize()} {each.edge}: {each.why} ({annotated(root, each.span.path)}:{each.span.line})."
            for each in change.breaks
        ]
        at = _at(change.span, root) if change.is_new_place else {}
        yield annotation(level, at, f"Contract broken: {change.title}", lines)
        for broken in change.breaks:
            title = f"{'Broken' if broken.is_certain else 'Perhaps broken'} by {change.title}"
            yield annotation("warning", _at(broken.span, root), title, [f"{broken.edge}: {broken.why}"])
    suggestion = comparison.suggestion
    if suggestion.is_enough is False:
        text = f"{suggestion.current} → {suggestion.least} because {suggestion.because}"
        yield annotation("error" if comparison.checks_version else "notice", {}, "Version", [text])
    if comparison.way_out:
        yield annotation("notice", {}, "If it is meant", [comparison.way_out])


def _at(span: SourceSpan, root: str) -> dict[str, Any]:
    return {"file": annotated(root, span.path), "line": span.line, "endLine": span.end_line}


FORMS: Mapping[str, Callable[[Comparison | None, Validation | None, str], Iterator[str]]] = {
    "text": _as_text,
    "markdown": _as_markdown,
    "github": _for_github,
}
