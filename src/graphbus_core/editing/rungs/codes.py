"""Every reason for which the gate refuses a change: stable codes, which proposers receive and docs/gate.md lists."""

from __future__ import annotations

from typing import NamedTuple

from graphbus_core.errors import EditError

RUNGS = {
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
"""Rung -> its name."""

CODES: dict[str, str] = {
    "G0.path": "The path is absolute, leaves the project, or is not spelled as the project has it.",
    "G0.not-agent-file": "The file defines no agent and no base class of one.",
    "G0.protected": "The file is protected: by `protected_files`, or as a test, configuration, secret or lock file.",
    "G0.link": "The file is a symbolic link or lies in a folder that is one.",
    "G0.audience": "The file or class belongs to an agent that is neither the proposer nor named in `dst` or `affects`.",
    "G0.unjudged": "A file changes that no rung can check and that is not a document.",
    "G0.size": "The change is larger than `max_file_size_bytes` or `max_changed_lines` allows.",
    "G0.empty": "The proposal has no change.",
    "G1.not-found": "The target of the change is not in the file.",
    "G1.ambiguous": "The target of the change is in the file more than once.",
    "G1.stale": "The change was written for another text than the present one.",
    "G1.conflict": "The change was written for an earlier text and conflicts with what was accepted since.",
    "G1.no-change": "The change changes nothing.",
    "G1.touches-more": "The change affects code outside of its target.",
    "G1.malformed": "The new code does not fit the operation, or is already in the file.",
    "G1.parse": "The file does not parse after the change.",
    "G2.version": "The code does not parse for the oldest Python of the project.",
    "G2.compile": "The code does not compile.",
    "G2.encoding": "The file is not UTF-8, or Python reads some of its characters differently from people and other tools.",
    "G2.size": "The code is too large or nested too deeply to be checked.",
    "G2.no-effect": "Only comments, docstrings or layout change.",
    "G2.marks": "A line of the code belongs to the form of an answer, such as `### edit` or `<<end ...>>`.",
    "G2.undefined": "A name is used that nothing defines, and that the file did not use before.",
    "G2.emptied": "A function that did something does nothing now, only logs, or returns the same for every call.",
    "G3.import": "A package is imported that the project does not use, or a module with `*`.",
    "G3.exec": "Code is run from text or data, or modules are loaded by computed names.",
    "G3.reflection": "Attributes are reached by computed or internal names, or a module is used as a value.",
    "G3.process": "Processes, signals or the interpreter itself are controlled.",
    "G3.network": "The network is used.",
    "G3.native": "Native code is called or raw memory used.",
    "G3.files": "Files or folders are written, moved or removed.",
    "G3.read": "Files or folders are read.",
    "G3.environment": "Environment variables are read or changed.",
    "G3.decorator": "A decorator is added that is not known to be harmless.",
    "G3.base": "A base class or metaclass is added that is not known to be harmless.",
    "G3.patch": "Something that belongs to another module, class or object is changed.",
    "G3.node": "Parts of GraphBus beyond the public interface of a node are used or replaced.",
    "G3.unknown": "Something is used that is not known to be harmless and that the file did not use before.",
    "G3.arbiter": "An agent becomes an arbiter or stops being one.",
    "G3.prompt": "A system prompt is changed.",
    "G3.suppression": "A comment is added that silences a check.",
    "G3.url": "An address of a server is added.",
    "G3.secret": "Text that looks like a key or password is added.",
    "G3.unicode": "Characters are added that are invisible, change the direction of text or imitate others.",
    "G4.agents": "An agent appears, disappears or can no longer be read.",
    "G4.finding": "The rules of `graphbus check` find something that they did not find before.",
    "G4.edge": "An agent no longer subscribes to a topic that another one still publishes.",
    "G4.dropped": "A handler does nothing of what it did, and the proposal does not declare that.",
    "G4.unknown": "A payload, schema or call that could be checked before can no longer be determined from the text.",
    "G4.undeclared": "Contracts change that the proposal does not declare.",
    "G5.import": "A module does not import in the sandbox.",
    "G5.nodes": "The modules define other agents than their text shows.",
    "G5.timeout": "Importing takes longer than `timeout_s`.",
    "G5.unverified": "Importing the changed module cannot be checked: it failed before the change too, or nothing can run here.",
    "G6.tests": "A test that passed before no longer passes.",
    "G6.collection": "A test file can no longer be collected.",
    "G6.tampered": "The record of the test run contradicts itself, or test results do not depend on what the tests expect.",
    "G6.timeout": "The tests take longer than `timeout_s`, which they did not before.",
    "G6.unverified": "The tests prove nothing: they do not run to their end without the change either.",
    "G7.checks": "A command of `checks` reports something that it did not report before.",
    "G7.unverified": "A command of `checks` is missing or does not end, without the change either.",
    "G8.raises": "A changed handler or method raises for an ordinary event or call; it did not before.",
    "G8.output": "A changed method returns a result that does not fit its schema; before, it did fit.",
    "G8.timeout": "A changed handler or method does not end for an ordinary event or call; before, it did.",
    "G8.untried": "Nothing is refused, but no changed handler or method could be tried: each needs others or cannot be made.",
    "G8.unverified": "A changed handler or method cannot be called to try it.",
}
"""Code -> what it means. The part before the dot is the rung."""

_APPLY_CODES: dict[str, str] = {
    "GBE301": "G1.not-found",
    "GBE302": "G1.ambiguous",
    "GBE303": "G1.stale",
    "GBE304": "G1.no-change",
    "GBE305": "G1.touches-more",
    "GBE306": "G1.parse",
    "GBE307": "G1.not-found",
    "GBE308": "G1.ambiguous",
    "GBE313": "G1.stale",
    "GBE317": "G1.conflict",
    "GBE318": "G1.conflict",
}
"""Error of an edit that does not apply -> code of the gate; all others are `G1.malformed`."""


class Refusal(NamedTuple):
    """Why a rung refuses a change.

    Attributes:
        code: A key of `CODES`.
        message: Safe to show to models and to keep in records: it contains no output of project code.
        line: The line, or 0.
        output: What project code printed or raised, for the user only.
    """

    code: str
    message: str
    path: str = ""
    line: int = 0
    output: str = ""


def refusal_of_edit(error: EditError) -> Refusal:
    """Return the refusal for an edit that does not apply."""
    where = error.where
    message = f"{error.sentence} {error.hint}".strip()
    return Refusal(
        _APPLY_CODES.get(error.code, "G1.malformed"), message, where.path if where else "", where.line if where else 0
    )
