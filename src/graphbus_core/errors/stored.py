"""Refusals of artifacts: exit status 6."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE501": Entry("There are no artifacts here.", "Run `graphbus build` first, or give the folder that it wrote."),
    "GBE502": Entry("{name} cannot be read as an artifact: {reason}.", "Run `graphbus build` again."),
    "GBE503": Entry(
        "These artifacts have the old format {version}; this GraphBus reads format {wanted}.",
        "`graphbus migrate` brings them to the new one; `graphbus build` makes them again.",
    ),
    "GBE504": Entry(
        "These artifacts have format {version}; this GraphBus reads format {wanted}.",
        "Upgrade GraphBus to the version that wrote them, or run `graphbus build` again.",
    ),
    "GBE505": Entry("The artifact {name} is missing.", "Run `graphbus build` again."),
    "GBE506": Entry(
        "{name} is not what the manifest says: it was edited, or a build was interrupted.",
        "Run `graphbus build` again; artifacts are not edited by hand.",
    ),
    "GBE507": Entry("{name} cannot be opened: {reason}.", "Check the permissions of the artifact folder."),
    "GBE508": Entry(
        "This file is not what it was when the artifacts were built.",
        "Run `graphbus build` again if you know the change.",
    ),
    "GBE510": Entry(
        "The artifacts cannot be written here: {reason}.",
        "Free some space, correct the permissions or remove the link; the artifacts from before are still whole.",
    ),
    "GBE511": Entry("There is no agent {name} in these artifacts.{suggestion}", "Agents: {known}."),
    "GBE512": Entry(
        "What agents import is read from the sources for format {wanted}, and this file is not what the artifacts describe.",
        "Run `graphbus build`: the artifacts are out of date in any case.",
    ),
    "GBE513": Entry(
        "There is no way from format {version} to that of today; the oldest format that can be brought here is {oldest}.",
        "Run `graphbus build` again.",
    ),
    "GBE514": Entry(
        "{name} has {size_bytes:,} bytes, and no artifact is larger than {limit_bytes:,}.",
        "Give the folder that `graphbus build` wrote, or run `graphbus build` again.",
    ),
    "GBE515": Entry(
        "This bytecode names no time of its source, so that Python could run it whatever the source says.",
        "Remove the file; Python makes it again from the source.",
    ),
    "GBE516": Entry(
        "This file is, or lies behind, a link that leaves the project: nobody can say what it will be.",
        "Put the file itself into the project, or install what it belongs to.",
    ),
}
