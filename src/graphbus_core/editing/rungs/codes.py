"""Every reason for which the gate refuses, in one place: stable codes that go back to the proposer and into docs/gate.md."""

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
    "G0.path": "The path is absolute, leaves the project, or is written in another way than the file is.",
    "G0.not-agent-file": "The file is none with an agent, or a base class of one, in it.",
    "G0.protected": "The file is protected: by `protected_files`, or as a test, configuration, secret or lock file.",
    "G0.link": "The file is a link or lies behind one.",
    "G0.audience": "The file or class belongs to an agent that is neither the proposer nor named in `dst` or `affects`.",
    "G0.unjudged": "A file changes that no rung can judge, and that is no document.",
    "G0.size": "The change is larger than `max_file_size_bytes` or `max_changed_lines` allows.",
    "G0.empty": "The proposal has no change.",
    "G1.not-found": "What is to be changed is not in the file.",
    "G1.ambiguous": "What is to be changed is in the file more than once.",
    "G1.stale": "The change was written for another text than the present one.",
    "G1.conflict": "The change was written for an earlier text and contradicts what was accepted since.",
    "G1.no-change": "The change changes nothing.",
    "G1.touches-more": "The change touches something beside its target.",
    "G1.malformed": "The new code is not what the operation needs, or is there already.",
    "G1.parse": "The file does not parse after the change.",
    "G2.version": "The code does not parse for the oldest Python of the project.",
    "G2.compile": "The code does not compile.",
    "G2.encoding": "The file is not UTF-8, or has characters that Python reads otherwise than people and tools do.",
    "G2.size": "The code is too large or nested too deeply to be judged.",
    "G3.import": "A package is imported that the project does not use, or everything of a module.",
    "G3.exec": "Code is run from text or data, or modules are loaded by computed name.",
    "G3.reflection": "Attributes are reached by computed or internal names, or a module becomes a value.",
    "G3.process": "Processes, signals or the interpreter itself are controlled.",
    "G3.network": "The network is used.",
    "G3.native": "Native code is called or raw memory used.",
    "G3.files": "Files or folders are written, moved or removed.",
    "G3.read": "Files or folders are read.",
    "G3.environment": "Environment variables are read or changed.",
    "G3.decorator": "A decorator is added that is not known to be harmless.",
    "G3.base": "A base class or metaclass is added that is not known to be harmless.",
    "G3.patch": "Something that belongs to another module, class or object is changed.",
    "G3.node": "Something of GraphBus is used or replaced beyond the public interface of a node.",
    "G3.unknown": "Something is used that is not known to be harmless and that the file did not use before.",
    "G3.arbiter": "Who is an arbiter is changed.",
    "G3.prompt": "A system prompt is changed.",
    "G3.suppression": "A comment is added that silences a check.",
    "G3.url": "An address of a server is added.",
    "G3.secret": "Something that looks like a key or password is added.",
    "G3.unicode": "Characters are added that are invisible, change the direction of text or imitate others.",
    "G4.agents": "An agent appears, disappears or can no longer be read.",
    "G4.finding": "The rules find something that they did not find before.",
    "G4.edge": "An agent no longer hears what another one still says to it.",
    "G4.unknown": "What was known of an edge before, and could be checked, is unknown after the change.",
    "G4.undeclared": "Other contracts change than the proposal declares.",
    "G5.import": "A module does not import in the sandbox.",
    "G5.nodes": "The modules define other agents than their text shows.",
    "G5.timeout": "Importing uses more than `timeout_s`.",
    "G5.unverified": "Nobody can tell whether the changed module imports: it did not before, or nothing can be tried.",
    "G6.tests": "A test that passed before does not pass any more.",
    "G6.collection": "A test file cannot be collected that could be before.",
    "G6.tampered": "The record of the test run contradicts itself, or what is said of tests does not follow what they expect.",
    "G6.timeout": "The tests use more than `timeout_s`, which they did not before.",
    "G6.unverified": "Nobody can tell what the tests say: without the change they cannot be run to their end either.",
    "G7.checks": "A command of `checks` finds something that it did not find before.",
    "G7.unverified": "A command of `checks` is missing or does not come to its end, without the change either.",
    "G8.raises": "A changed handler or method raises for a plain event or call, for which it did not before.",
    "G8.output": "A changed method gives a result that does not fit its schema, where it did before.",
    "G8.timeout": "A changed handler or method does not come to its end, where it did before.",
    "G8.unverified": "A changed handler or method cannot be tried.",
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
"""Why an edit did not apply -> code of the gate; all others are `G1.malformed`."""


class Refusal(NamedTuple):
    """Why a rung refuses.

    Attributes:
        message: For everybody, models and records included: nothing in it was said by tried code.
        told: What tried code has said, for the person alone.
    """

    code: str
    message: str
    path: str = ""
    line: int = 0
    output: str = ""


def refusal_of_edit(error: EditError) -> Refusal:
    """Give the problem of an edit that does not apply, with the nearest lines."""
    where = error.where
    message = f"{error.sentence} {error.hint}".strip()
    return Refusal(
        _APPLY_CODES.get(error.code, "G1.malformed"), message, where.path if where else "", where.line if where else 0
    )
