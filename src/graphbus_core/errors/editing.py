"""Refusals of changes to source text, of promotion and of undo: exit status 4."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE301": Entry("There is no {target} in this file.{suggestion}", "It has: {known}."),
    "GBE302": Entry(
        "{target} is defined {count} times in this file, in the lines {lines}.",
        "Change the class or block around it as a whole, or use search_replace.",
    ),
    "GBE303": Entry("{target} is not the text that this change was written for.", "{nearest}"),
    "GBE304": Entry("The change to {target} changes nothing.", "The file already says this."),
    "GBE305": Entry(
        "The change to {target} also changes something else, near line {line}: {nearest}.",
        "Change one symbol with each edit.",
    ),
    "GBE306": Entry("After the change to {target} the file does not parse: {reason}.", "Near: {nearest}"),
    "GBE307": Entry("The text to replace is not in {target}.", "{nearest}"),
    "GBE308": Entry(
        "The text to replace occurs {count} times in {target}, in the lines {lines}.",
        "Quote more of the lines around it, so that it occurs once.",
    ),
    "GBE309": Entry("The new code for {target} must be {expected}; it is {found}.", "It begins with: {nearest}"),
    "GBE310": Entry("{target} is there already, in line {line}.", "{nearest}"),
    "GBE311": Entry(
        "The new code cannot be written in the file's encoding {encoding}: {reason}.",
        "Use other characters, or save the file as UTF-8 first.",
    ),
    "GBE312": Entry("This file cannot be edited: {reason}.", "Correct the file first; nothing was changed."),
    "GBE313": Entry(
        "The change to {target} does not say which text it was written for.",
        "Give old_code or base_sha256.",
    ),
    "GBE314": Entry("{target} has no single decorator {name} to change: {reason}.", "Its decorators: {nearest}"),
    "GBE315": Entry("{target} shares its block with nothing else: {reason}.", "Change the class or block around it."),
    "GBE316": Entry(
        "This diff cannot be taken: {reason}.",
        "Give a unified diff of existing text files, with lines of context around each change.",
    ),
    "GBE317": Entry(
        "The change was written for an earlier text, and {target} was changed in another way since.",
        "It now reads: {accepted}",
    ),
    "GBE318": Entry(
        "Together with what was accepted since, the change does not parse: {reason}.",
        "It was written for an earlier text: write it for the present one.",
    ),
    "GBE320": Entry(
        "This file was changed while the session went on.",
        "Nothing was written. Build again, so that the agents see its present text.",
    ),
    "GBE321": Entry("{reason}; nothing was changed.", "Make room or give permission, then try again."),
    "GBE322": Entry("This is a link or lies behind one.", "GraphBus changes real files of the project only."),
    "GBE323": Entry("{path} is no file of this project.", "Give paths relative to the project root, without `..`."),
    "GBE324": Entry("Another GraphBus process is writing to this project.", "Wait until it has ended, then try again."),
    "GBE325": Entry(
        "An interrupted change could not be brought to its end: {reason}.",
        "The bytes before and after are in {folder}: put the files right, then remove that folder.",
    ),
    "GBE326": Entry(
        "{session} cannot be undone, because files were changed since: {paths}.",
        "Take those changes back first; nothing was changed.",
    ),
    "GBE327": Entry("There is nothing to undo{of_session}.", "Sessions that can be undone: {known}."),
    "GBE328": Entry(
        "What looks like an interrupted change was not written here by your GraphBus, or was changed since; it is left alone.",
        "Look whether the files that {folder} names are as you want them, then remove that folder.",
    ),
    "GBE329": Entry(
        "{session} cannot be undone, because its journal was not written here by your GraphBus, or was changed since.",
        "Take it back with git, or by hand: what the files were before should be in {folder}.",
    ),
    "GBE330": Entry("This file was changed while it was checked; it was left alone.", "Check again."),
    "GBE331": Entry(
        "The {tier} jail for changed code could not be built: {reason}.",
        "Nothing has run. `graphbus doctor` says which jails there are here.",
    ),
    "GBE332": Entry(
        "This machine is too busy to judge the change: in {wall_s:.0f} s what was tried could use {used_s:.0f} of its"
        " {timeout_s:g} s.",
        "Nothing was refused or written. Try again when less runs here; `--resume` goes on with a negotiation.",
    ),
    "GBE340": Entry(
        "There is no agent in this project.",
        "Go to the folder of a project with agents, or give it with `graphbus -C`.",
    ),
    "GBE341": Entry("The patch for {path} does not apply: {reason}.", "Make it again from the text that is there now."),
    "GBE342": Entry(
        "The patch cannot be read: {reason}.", "Give a unified diff of text files, as `git diff` makes it."
    ),
    "GBE343": Entry("{path} cannot be read: {reason}.", "Give a file that is there, or `-` for standard input."),
    "GBE344": Entry(
        "There is no git repository here, so there is nothing to compare with.",
        "`--patch` and `--new` need no repository.",
    ),
}
