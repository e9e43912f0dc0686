"""Refusals of what leaves the project, images, manifests, pipelines, and of the programs that take it: exit status 8."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE701": Entry(
        "{count} would be overwritten, with other content: {names}.",
        "Compare with --diff; write with --force, which shows what changes, or to another folder with --output.",
    ),
    "GBE702": Entry(
        "{path} cannot be written: {reason}.", "Nothing was written. Correct that, or give another --output."
    ),
    "GBE703": Entry(
        "{value} is no {kind}: {reason}.",
        "For example: {example}.",
    ),
    "GBE704": Entry("{program} was not found.", "Install it, or {otherwise}."),
    "GBE705": Entry("{command} has ended with status {status}.", "What it says stands above."),
    "GBE706": Entry(
        "{count} would differ from what is generated: {names}.", "Run the same command without --check, with --force."
    ),
}
