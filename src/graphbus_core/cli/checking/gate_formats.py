"""What the gate says of a change, as text, JSON and SARIF 2.1.0. Nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from graphbus_core import __version__
from graphbus_core.cli import console
from graphbus_core.cli.checking.formats import counted
from graphbus_core.editing.rungs.codes import CODES
from graphbus_core.model.proposals import GateReport, RungResult

NAMES = {
    "G0": "scope",
    "G1": "apply",
    "G2": "parse",
    "G3": "capability",
    "G4": "contract",
    "G5": "import",
    "G6": "tests",
    "G7": "checks",
    "G8": "smoke",
}
_HINTS = {
    "G0.path": "Give the path as the project spells it.",
    "G0.not-agent-file": "Name it with --allow if this change may touch it.",
    "G0.unjudged": "Name it with --allow if you know what it does, or change it in a commit of its own.",
    "G0.protected": "Name it with --allow; what `protected_files` of the settings protects stays protected.",
    "G0.size": "Split the change, or raise the limit in [tool.graphbus.gate].",
    "G3.import": "Add the package to the project first, or set allow_external_dependencies.",
    "G3.prompt": "Change prompts in a commit of their own.",
    "G3.arbiter": "Change who decides in a commit of its own.",
    "G4.agents": "Name the file with --allow if agents may come or go in it.",
    "G4.edge": "Keep the subscription, or let the publisher stop first.",
    "G4.unknown": "Write keys, topics and arguments as constants, or declare the payload with @publishes.",
    "G6.tests": "A changed test does not help: the tests from before decide first.",
}
_BY_RUNG = {
    "G3": "Code that was there already may go on doing it; this change may not begin.",
    "G4": "Change the other end of the edge in the same change.",
    "G5": "Import it yourself: python -c 'import ...'.",
}
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Judged(NamedTuple):
    """A report and what it is about.

    Attributes:
        report: What the rungs say.
        files: What was judged.
        base: With what it was compared.
        others: Documents that differ, which nobody judges.
        root: The project root, absolute.
        words: Rung -> what tried code has said there; only a person's terminal shows it.
    """

    report: GateReport
    files: tuple[str, ...]
    base: str
    others: tuple[str, ...]
    root: str
    words: Mapping[str, str] = MappingProxyType({})


def hint_of(rung: RungResult) -> str:
    """Say what to do about a refusal; empty when its message says it."""
    if rung.status != "failed" or rung.code.endswith(".unverified"):
        return "--unsafe-verify lets it pass." if rung.status == "failed" else ""
    return _HINTS.get(rung.code) or _BY_RUNG.get(rung.rung, "")


# --- text -------------------------------------------------------------------------------------


def as_text(judged: Judged) -> Iterator[str]:
    """One line for each rung, what to do, what else changes, and a summary."""
    if not judged.files:
        yield f"{console.paint('✓', 'good')} Nothing to judge: no Python file differs from {judged.base}."
        yield from _not_judged(judged)
        return
    yield f"{counted(len(judged.files), 'file')} against {judged.base}: {console.plain(', '.join(judged.files))}"
    for rung in judged.report.rungs:
        yield from _rung_lines(rung)
        words = judged.words.get(rung.rung, "").splitlines()
        yield from (f"      {console.paint('|', 'dim')} {console.plain(line)}" for line in words)
    for change in judged.report.schema_changes:
        yield f"  {console.paint('~', 'warn')} {console.plain(change.method)}: its contract changes, and no edge breaks."
    yield from _not_judged(judged)
    failure = judged.report.failure
    if failure is None:
        yield f"{console.paint('✓ Passed', 'good')} {_climbed(judged.report)}"
    else:
        yield f"{console.paint('✗ Refused', 'bad')} by {failure.rung} {NAMES.get(failure.rung, '')}. Nothing was written."


def _rung_lines(rung: RungResult) -> Iterator[str]:
    marks: dict[str, tuple[str, console.Role]] = {
        "passed": ("✓", "good"),
        "failed": ("✗", "bad"),
        "not_run": ("-", "warn"),
    }
    mark, role = marks[rung.status]
    name = f"{rung.rung} {NAMES.get(rung.rung, '')}"
    place = f"{rung.path}:{rung.line}" if rung.line else rung.path
    first, *more = rung.message.splitlines() or [""]
    said = [
        console.paint(rung.code, role) if rung.code else "",
        console.paint(console.plain(place), "strong") if place else "",
    ]
    parts = [part for part in (*said, console.plain(first)) if part]
    head = f"  {console.paint(mark, role)} {name}"
    yield f"{head}{' ' * (14 - len(name))} {'  '.join(parts)}" if parts else head
    yield from (f"      {console.plain(line)}" for line in more)
    hint = hint_of(rung)
    if hint:
        yield f"      {console.paint('hint:', 'name')} {hint}"


def _not_judged(judged: Judged) -> Iterator[str]:
    if judged.others:
        shown = ", ".join(judged.others[:5]) + (f" and {len(judged.others) - 5} more" if len(judged.others) > 5 else "")
        yield f"  {console.paint('-', 'dim')} not judged, and not there when it was tried: {console.plain(shown)}"


def _climbed(report: GateReport) -> str:
    skipped = [rung.rung for rung in report.rungs if rung.status == "not_run"]
    unverified = [rung.code for rung in report.rungs if rung.code and rung.status == "not_run"]
    said = f"{counted(len(report.rungs) - len(skipped), 'rung')}"
    said += f"; not run: {', '.join(skipped)}" if skipped else ""
    return f"{said}.{' Not verified: ' + ', '.join(unverified) + '.' if unverified else ''}"


# --- JSON -------------------------------------------------------------------------------------


def as_json(judged: Judged) -> dict[str, Any]:
    """One document; paths are relative to `root`, lines count from 1 (0: the file as a whole)."""
    return {
        "root": judged.root,
        "base": judged.base,
        "passed": judged.report.passed,
        "files": list(judged.files),
        "not_judged": list(judged.others),
        "rungs": [
            {
                "rung": rung.rung,
                "name": NAMES.get(rung.rung, ""),
                "status": rung.status,
                "code": rung.code,
                "path": rung.path,
                "line": rung.line,
                "message": rung.message,
                "hint": hint_of(rung),
            }
            for rung in judged.report.rungs
        ],
        "contract_changes": [change.method for change in judged.report.schema_changes],
    }


# --- SARIF ------------------------------------------------------------------------------------


def as_sarif(judged: Judged) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run: refusals are errors, what passes unverified are warnings."""
    from urllib.parse import quote

    found = [rung for rung in judged.report.rungs if rung.code]
    codes = sorted({rung.code for rung in found})
    driver = {
        "name": "GraphBus gate",
        "semanticVersion": __version__,
        "rules": [
            {
                "id": code,
                "name": "".join(word.capitalize() for word in code.replace(".", "-").split("-")),
                "shortDescription": {"text": CODES.get(code, code)},
                "defaultConfiguration": {"level": "error"},
            }
            for code in codes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": f"file://{quote(judged.root)}/"}},
        "invocations": [{"executionSuccessful": True}],
        "results": [_sarif_result(rung, codes.index(rung.code), judged) for rung in found],
    }
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_result(rung: RungResult, index: int, judged: Judged) -> dict[str, Any]:
    from urllib.parse import quote

    location: dict[str, Any] = {
        "artifactLocation": {"uri": quote(rung.path or judged.files[0]), "uriBaseId": "SRCROOT"},
        "region": {"startLine": rung.line or 1},
    }
    return {
        "ruleId": rung.code,
        "ruleIndex": index,
        "level": "error" if rung.status == "failed" else "warning",
        "message": {"text": f"{rung.message} {hint_of(rung)}".strip()},
        "locations": [{"physicalLocation": location}],
    }
