"""The remarks on tasks of two builds as text, Markdown, JSON, and remarks for annotations and SARIF. Nothing is printed here."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark
from graphbus_core.contracts.both_ways import Problem
from graphbus_core.contracts.messages import Messages, Unread
from graphbus_core.contracts.tasks import TaskComparison, TaskRemark, TaskVerdict, signature_of
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Severity

CODE, TITLE = "task-breaks", "Messages of another build"
"""The rule of SARIF under which the tasks are listed whose messages fail."""
_MARKS: Mapping[TaskVerdict, tuple[str, console.Role]] = {
    "breaks": ("✗", "bad"),
    "unknown": ("?", "warn"),
    "note": ("~", "warn"),
}
_END = re.compile(r"the (old|new) ([\w.:/-]+)")
"""An end of an edge in the sentences of `misfits`."""
_MOST_PLACES = 3
_MOST_REASONS = 5
_WIDTH = 100


class TaskReport(NamedTuple):
    """What is reported.

    Attributes:
        reader: The name of the reader.
        old: The name of the old state.
        new: The name of the new one.
        found: The comparison.
        root: The folder of the new state on disk; empty for a revision.
        is_allowed: Breaks are no errors.
        is_strict: What is not known fails.
    """

    reader: str
    old: str
    new: str
    found: TaskComparison
    root: str = ""
    is_allowed: bool = False
    is_strict: bool = False

    @property
    def fails(self) -> bool:
        """True if the command fails."""
        is_doubtful = self.is_strict and not self.found.is_known
        return is_doubtful or (self.found.is_breaking and not self.is_allowed)

    def place(self, span: SourceSpan, *, is_new: bool) -> str:
        """Return a place as `path:line`, in the new state relative to the working directory."""
        return (
            f"{os.path.relpath(os.path.join(self.root, span.path)) if is_new and self.root else span.path}:{span.line}"
        )


# --- text -------------------------------------------------------------------------------------


def as_text(report: TaskReport) -> Iterator[str]:
    """Yield the report as text: a remark for each task, then a summary."""
    yield style(sanitize(f"{report.old} → {report.new}, {report.reader}"), "strong")
    yield ""
    for each in report.found.remarks:
        yield from _remark_lines(each, report)
        yield ""
    yield from _summary_lines(report)


def as_markdown(report: TaskReport) -> Iterator[str]:
    """Yield the report for a comment on a pull request, as a code block, so that nothing in it becomes markup."""
    text = "\n".join(part for line in as_text(report) for part in _wrap(click.unstyle(line)))
    fence = "```"
    while fence in text:
        fence += "`"
    yield from ("### Messages that are on their way", "", f"{fence}text", text, fence)


def _wrap(line: str) -> list[str]:
    """Return a line in parts that a comment shows without scrolling; the later parts are indented as the first."""
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line, _WIDTH, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False) or [line]


def _remark_lines(remark: TaskRemark, report: TaskReport) -> Iterator[str]:
    mark = style(*_MARKS[remark.verdict])
    yield f"{mark} {style(sanitize(remark.task), 'strong')}: {sanitize(_differences_of(remark))}."
    lines = [*_signature_lines(remark, report), *_hurt_lines(remark, report), remark.plan]
    yield from (part for line in lines if line for part in _wrap(f"    {sanitize(line)}"))


def _differences_of(remark: TaskRemark) -> str:
    return "; ".join(each.text for each in remark.differences) or "what is sent to it changed"


def _signature_lines(remark: TaskRemark, report: TaskReport) -> Iterator[str]:
    """Yield the old and the new signature with their places."""
    old, new = remark.old, remark.new
    if old:
        yield f"was {signature_of(old)} at {report.place(old.span, is_new=False)}"
    if new:
        yield f"is  {signature_of(new)} at {report.place(new.span, is_new=True)}"


def _hurt_lines(remark: TaskRemark, report: TaskReport) -> Iterator[str]:
    """Yield whose messages fail where, with the reason and the places that send them."""
    if remark.forward:
        yield f"Old messages, retries included, fail on new workers: {_reasons(remark, remark.forward, report, is_new=False)}."
    if remark.back:
        yield f"New messages fail on old workers, also after a rollback: {_reasons(remark, remark.back, report, is_new=True)}."


def _reasons(remark: TaskRemark, problems: Sequence[Problem], report: TaskReport, *, is_new: bool) -> str:
    """Return the reasons of messages that fail, each with the places that send them."""
    places: dict[str, list[str]] = {}
    for each in problems:
        found = places.setdefault(_reason_of(each, remark), [])
        found += [] if (place := report.place(each.sent_at, is_new=is_new)) in found else [place]
    return "; ".join(f"{why} ({_list_places(found)})" for why, found in places.items())


def _reason_of(problem: Problem, remark: TaskRemark) -> str:
    """Return the reason with `the task` and `the code` in place of both names, which the lines around it have."""
    names = {each.channel for each in (remark.old, remark.new) if each}
    return _END.sub(lambda found: f"the {found[1]} {'task' if found[2] in names else 'code'}", problem.why)


def _list_places(places: Sequence[str]) -> str:
    rest = len(places) - _MOST_PLACES
    return ", ".join(places[:_MOST_PLACES]) + (f" and {rest} more" if rest > 0 else "")


def _summary_lines(report: TaskReport) -> Iterator[str]:
    """Yield the number of tasks and sends that were compared, of those that fail, and what is not known."""
    found = report.found
    tasks = {each.channel for side in found.messages for each in side.consumers}
    sends = max(_count_sends(side) for side in found.messages)
    extent = f"{pluralize(len(tasks), 'task')} and {pluralize(sends, 'send')} that the change touches"
    broken = sum(each.verdict == "breaks" for each in found.remarks)
    mark, doubt = (style("✓", "good"), "") if found.is_known else (style("?", "warn"), ", as far as is known")
    if broken:
        yield f"{style('✗', 'bad')} {extent}: messages of {pluralize(broken, 'task')} fail."
    elif not tasks and not sends:
        yield f"{mark} The change touches no task and no send{doubt}."
    else:
        yield f"{mark} {extent}: each build can handle the messages of the other one{doubt}."
    yield from _unknown_lines(report)
    if report.is_strict and not found.is_known:
        yield f"{style('✗', 'bad')} --strict fails for what is not known."


def _count_sends(messages: Messages) -> int:
    """Return the number of sends to tasks that are known."""
    return sum(bool(each.channel) for each in messages.producers)


def _unknown_lines(report: TaskReport) -> Iterator[str]:
    """Yield what could not be read in either state, and how many sends pass arguments that are not known."""
    for name, side, is_new in zip((report.old, report.new), report.found.messages, (False, True), strict=True):
        reasons = _by_reason(side.unread)
        for why, spans in [*reasons.items()][:_MOST_REASONS]:
            places = _list_places([report.place(each, is_new=is_new) for each in spans])
            yield f"{style('?', 'warn')} Not known in {sanitize(f'{name}: {why} ({places})')}."
        if len(reasons) > _MOST_REASONS:
            yield f"{style('?', 'warn')} Not known in {sanitize(name)}: {len(reasons) - _MOST_REASONS} more; --json has all."


def _by_reason(unread: Sequence[Unread]) -> dict[str, list[SourceSpan]]:
    found: dict[str, list[SourceSpan]] = {}
    for each in unread:
        found.setdefault(each.why, []).append(each.span)
    return found


# --- JSON and remarks ---------------------------------------------------------------------------


def as_document(report: TaskReport) -> dict[str, Any]:
    """Return the report for `--json`. Paths are relative to the top of the repository, lines count from 1."""
    found = report.found
    return {
        "reader": report.reader,
        "old": report.old,
        "new": report.new,
        "remarks": [_remark_as_document(each) for each in found.remarks],
        "unread": [
            {"state": state, **_place_as_document(each.span), "why": each.why}
            for state, side in zip(("old", "new"), found.messages, strict=True)
            for each in side.unread
        ],
        "summary": {
            **Counter(dict.fromkeys(_MARKS, 0)) | Counter(each.verdict for each in found.remarks),
            "tasks": len({each.channel for side in found.messages for each in side.consumers}),
            "sends": [_count_sends(side) for side in found.messages],
            "open_sends": [sum(each.is_open or each.has_rest for each in side.producers) for side in found.messages],
        },
    }


def _remark_as_document(remark: TaskRemark) -> dict[str, Any]:
    places = {"was": remark.old, "is": remark.new}
    return {
        "task": remark.task,
        "verdict": remark.verdict,
        "differences": [each._asdict() for each in remark.differences],
        **{
            key: task and {"signature": signature_of(task), **_place_as_document(task.span)}
            for key, task in places.items()
        },
        "old_messages": [_problem_as_document(each) for each in remark.forward],
        "new_messages": [_problem_as_document(each) for each in remark.back],
        "order": remark.order,
        "plan": remark.plan,
    }


def _problem_as_document(problem: Problem) -> dict[str, Any]:
    return {"parameter": problem.field, "why": problem.why, "sent_at": _place_as_document(problem.sent_at)}


def _place_as_document(span: SourceSpan) -> dict[str, Any]:
    return {"path": span.path, "line": span.line}


def as_remarks(report: TaskReport) -> Iterator[Remark]:
    """Yield an annotation for each task whose messages fail or may fail: at the task, or where it is sent if it is gone."""
    levels: Mapping[TaskVerdict, Severity] = {
        "breaks": "warning" if report.is_allowed else "error",
        "unknown": "warning",
        "note": "info",
    }
    for each in report.found.remarks:
        path, region = _place_in_new(each)
        lines = [f"{each.task}: {_differences_of(each)}.", *_hurt_lines(each, report)]
        related = tuple(
            (f"sends it: {problem.why}", problem.sent_at.path, _region_of(problem.sent_at))
            for problem in each.back[:_MOST_PLACES]
        )
        yield Remark(
            levels[each.verdict], CODE, TITLE, "\n".join(lines), each.plan, path, region, related,
            (CODE, each.task, *(found.change for found in each.differences)),
        )  # fmt: skip


def _place_in_new(remark: TaskRemark) -> tuple[str, Mapping[str, int]]:
    """Return the place of a remark in the new state: the changed parameter, the task, or nothing if the task is gone."""
    if remark.new is None:
        return "", {}
    parameter = next((each.parameter for each in remark.differences if each.parameter in remark.new.reads), "")
    span = remark.new.place_of(parameter)
    return span.path, _region_of(span)


def _region_of(span: SourceSpan) -> dict[str, int]:
    return {"startLine": span.line, "endLine": span.end_line}
