"""`graphbus contract diff --reader`: compare the messages of two states of a repository that uses another framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphbus_core.cli import console, formats, task_report
from graphbus_core.cli.reader_states import read_both, read_one
from graphbus_core.contracts.deployed import DeployedComponent, join_messages
from graphbus_core.contracts.tasks import compare_tasks
from graphbus_core.errors import BuildError, UsageError
from graphbus_core.readers.seam import find_reader

_REFUSED = ("check_version", "current", "allow_announced", "both_ways")
"""The options of `contract diff` that are about versions of contracts, or are always on here."""


def diff_with_reader(
    name: str, states: tuple[str, str], paths: Sequence[str], form: str, options: Mapping[str, Any]
) -> int:
    """Compare two states and print the report; return 3 if messages fail and that is not allowed, else 0.

    Raises:
        UsageError: GBE110, an option has no meaning here; GBE171, no such state; GBE185 or GBE186, no such reader.
    """
    for option in _REFUSED:
        if options.get(option):
            flag = f"--{option.replace('_', '-')}"
            message = f"{flag} does not go with --reader, which compares messages both ways and no versions."
            raise UsageError("GBE110", message=message, command="graphbus contract diff", purpose="see its options")
    before, after = read_both(*states, find_reader(name), paths)
    found = compare_tasks(before.messages, after.messages)
    is_allowed = bool(options.get("allow_breaking"))
    report = task_report.TaskReport(name, before.label, after.label, found, after.root, is_allowed)
    print_report(report, form)
    return BuildError.exit_status if report.fails else 0


def can_deploy_with_reader(
    name: str, state: str, paths: Sequence[str], recorded: Sequence[DeployedComponent], component: str
) -> task_report.TaskReport:
    """Compare what runs in an environment with what runs there when a state has replaced a component.

    Raises:
        UsageError: GBE171, no such state; GBE185 or GBE186, no such reader.
    """
    after = read_one(state, find_reader(name), paths)
    rest = join_messages(*(each.messages for each in recorded if each.component != component))
    old = join_messages(*(each.messages for each in recorded))
    revisions = dict.fromkeys(build.revision[:7] for each in recorded for build in each.builds)
    label = f"{recorded[0].environment} ({', '.join(revisions)})" if recorded else "nothing"
    found = compare_tasks(old, join_messages(rest, after.messages))
    return task_report.TaskReport(name, label, after.label, found, after.root)


def print_report(report: task_report.TaskReport, form: str) -> None:
    """Print a report in a format."""
    if form == "json":
        console.emit_json(task_report.as_document(report))
    elif form == "sarif":
        console.emit_json(formats.as_sarif("GraphBus", report.root, task_report.as_remarks(report)))
    elif form == "github":
        console.print_lines(formats.as_github(report.root, task_report.as_remarks(report)))
    else:
        console.print_lines(task_report.as_markdown(report) if form == "markdown" else task_report.as_text(report))
