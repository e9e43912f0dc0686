"""Every way in which GraphBus refuses: one code each, with its family, its sentence and its hint.

A failure carries data; its sentence is built from that data and the entry of `REGISTER`:

    raise BuildError("GBE210", where=Place("agents/shop.py", 12), name="OrderProcessor", other="agents/old.py:3")

The family decides the exit status of the command line. Findings of `graphbus check` (GB001 ...) are not failures; their
register is `graphbus_core.compiler.rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple


class Place(NamedTuple):
    """Where something is: a path as the user wrote or would write it, a line and a column that count from 1 (0: not known)."""

    path: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.path, *(str(number) for number in self[1:] if number)])


class Entry(NamedTuple):
    """What the register knows of one code: its sentence and its hint, both templates over the data of the failure."""

    sentence: str
    hint: str


class GraphBusError(Exception):
    """Root of all failures that GraphBus reports; each one is meant for the eyes of its user, without a traceback.

    Attributes:
        code: The entry of `REGISTER`, e.g. `"GBE210"`.
        where: The place to look at, if there is one.
        data: What the sentence was built from.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, code: str, *, where: Place | None = None, **data: object) -> None:
        entry = REGISTER[code]
        self.code = code
        self.where = where
        self.data = data
        self.sentence = entry.sentence.format(**data)
        self.hint = entry.hint.format(**data)
        super().__init__(code, self.sentence)

    @property
    def status(self) -> int:
        """The exit status of the command that fails with it."""
        return self.exit_status

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.sentence} [{self.code}]{hint}"


class UsageError(GraphBusError):
    """The command, its options or its configuration cannot be understood."""

    exit_status = 2


class BuildError(GraphBusError):
    """Source files or the graph that they describe cannot be built."""

    exit_status = 3


class EditError(GraphBusError):
    """A change to source text was refused, or writing it was impossible."""

    exit_status = 4


class NegotiationError(GraphBusError):
    """A negotiation could not be started, continued or looked up."""

    exit_status = 5


class ArtifactError(GraphBusError):
    """The artifacts in `.graphbus/` are missing, damaged, outdated or do not match the source files."""

    exit_status = 6


class RunError(GraphBusError):
    """A graph could not be started, or a call or an event was refused."""

    exit_status = 7


class SeveralErrors(GraphBusError):  # noqa: N818 - a group, like ExceptionGroup
    """More than one failure of one operation, all of them reported; the first decides the exit status.

    Attributes:
        errors: The failures in the order of their places.
    """

    def __init__(self, errors: Iterable[GraphBusError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__("GBE001", count=len(self.errors))
        self.where = first.where
        self._first = first

    @property
    def status(self) -> int:
        """The exit status of the first failure."""
        return self._first.status

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def raise_all(errors: Iterable[GraphBusError]) -> None:
    """Raise nothing for no failure, the failure itself for one, and `SeveralErrors` for more."""
    found = tuple(errors)
    if len(found) == 1:
        raise found[0]
    if found:
        raise SeveralErrors(found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give `" Did you mean 'x'?"` for the nearest of `known`, or the empty string when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


REGISTER: dict[str, Entry] = {
    "GBE001": Entry("{count} problems were found.", ""),
    # usage and configuration: exit 2
    "GBE101": Entry("{path} does not exist.", "Give a folder or file with your agents, e.g. `graphbus build agents/`."),
    "GBE102": Entry("Unknown key {key!r} in {table}.{suggestion}", "Known keys: {known}."),
    "GBE103": Entry("{key} in {table} must be {expected}, not {got}.", "Correct the value in pyproject.toml."),
    "GBE104": Entry("{path} is not valid TOML: {reason}.", "Correct the file; nothing was read from it."),
    "GBE105": Entry(
        "There is no package {name} here.",
        "Give the dotted name of a package below the working directory, its `src` or sys.path, or give a path.",
    ),
    "GBE106": Entry("{path} is no Python file.", "Give a folder, or a file `.py` with agents."),
    "GBE110": Entry("{message}", "`{command} --help` shows what it takes."),
    "GBE111": Entry(
        "{name!r} cannot be the name of a project: {reason}.", "Choose another folder name, e.g. `my-shop`."
    ),
    "GBE112": Entry(
        "There is something here already.", "Choose a new folder or empty this one; GraphBus never overwrites."
    ),
    "GBE113": Entry(
        "This cannot be written: {reason}.", "Check the permissions and the space on the disk; nothing was left."
    ),
    "GBE114": Entry(
        "{name!r} cannot be the name of a new agent: {reason}.", "Class names look like `ShippingService`."
    ),
    "GBE115": Entry(
        "{topic!r} is no topic.", "Topics look like `/Order/Created`; only --subscribes takes `*` and `**`."
    ),
    "GBE116": Entry("{one} and {other} would both give {method!r} as a method's name.", "Leave one of them out."),
    "GBE117": Entry("There is no agent called {name!r}.{suggestion}", "`graphbus inspect` lists the agents."),
    "GBE118": Entry("This file exists already.", "Choose another name, or remove the file; GraphBus never overwrites."),
    "GBE119": Entry(
        "The output cannot be written: {reason}.",
        "Give stdout another place. Files may have been written already: look before you run the command again.",
    ),
    "GBE120": Entry("There is no rule {name}.{suggestion}", "Codes and prefixes are known: {known}."),
    "GBE130": Entry("`{option} {name}` cannot be understood: {reason}.", "Example: `{option} {example}`."),
    "GBE131": Entry("{option} has no effect without {needed}.", "Add {needed}, or leave {option} out."),
    # reading and the graph: exit 3
    "GBE201": Entry("This file has a syntax error: {reason}.", "Correct it; the other files were still read."),
    "GBE202": Entry(
        "This file is not text in {encoding}: {reason}.",
        "Save it as UTF-8 or declare its encoding in the first line.",
    ),
    "GBE203": Entry(
        "This file has {size_bytes} bytes; GraphBus reads files up to {limit_bytes}.",
        "Exclude it with `exclude` in [tool.graphbus], or split it.",
    ),
    "GBE204": Entry("This file cannot be read: {reason}.", "Check its permissions."),
    "GBE205": Entry(
        "This link leads in a circle or out of the project.",
        "Remove the link or exclude it with `exclude` in [tool.graphbus].",
    ),
    "GBE206": Entry(
        "This file is nested too deeply to be read.",
        "Split its longest expression, or exclude the file with `exclude` in [tool.graphbus].",
    ),
    "GBE210": Entry(
        "Two agents are called {name}; the other one is at {other}.",
        "Agent names are unique in a graph: rename one of the classes.",
    ),
    "GBE211": Entry(
        "{agent} depends on {name}, which is no agent of this graph.{suggestion}",
        "Correct the name in @depends_on, or add the agent.",
    ),
    "GBE212": Entry(
        "The dependencies form a circle: {cycle}.",
        "Remove one @depends_on; events may go round, dependencies may not.",
    ),
    "GBE213": Entry(
        "There is no agent in {paths}.",
        "An agent is a class that derives from GraphBusNode; `graphbus generate agent NAME` writes one.",
    ),
    "GBE214": Entry(
        "{handler} cannot be called with an event.",
        "Take nothing, `event`, `payload`, both, or fields of the payload by name; no *args, none by position only.",
    ),
    "GBE215": Entry(
        "{handler} subscribes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more.",
    ),
    "GBE216": Entry(
        "{agent} publishes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`: letters, digits, `_` and `-` in each segment, and no wildcards.",
    ),
    # changes to source text, promotion and undo: exit 4
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
    "GBE330": Entry("This file was changed while it was checked; it was left alone.", "Check again."),
    # negotiations: exit 5
    "GBE401": Entry(
        "arbiter_agents names {name}, which is no agent of this graph.{suggestion}",
        "Agents: {known}.",
    ),
    "GBE402": Entry(
        "The session {session} is there already.",
        "Ask for another name, or leave `session` empty to get the next free one.",
    ),
    "GBE403": Entry(
        "No negotiation has taken place here yet: there is no session in {folder}.",
        "`graphbus negotiate agents/` or `graphbus build agents/ --enable-agents` runs one.",
    ),
    "GBE404": Entry("There is no session {session}.{suggestion}", "Sessions: {known}."),
    "GBE405": Entry(
        "What was kept of session {session} cannot be read: {reason}.",
        "Delete its folder; sources and artifacts do not depend on it.",
    ),
    "GBE406": Entry("Session {session} has no {kind} {name}.{suggestion}", "It has: {known}."),
    "GBE407": Entry(
        "What was said in session {session} cannot be kept: {reason}; no source file was changed.",
        "Make room or give permission, then negotiate again.",
    ),
    "GBE408": Entry(
        "{session!r} is no name for a session.",
        "Use letters, digits, `-`, `_` and `.`, or leave the name out to get the next free one.",
    ),
    "GBE409": Entry(
        "The changes accepted in session {session} do not pass the gate together ({reason}), so that none was written.",
        "`graphbus inspect-negotiation --session {session}` shows them; negotiate again with fewer rounds.",
    ),
    "GBE410": Entry(
        "The changes of session {session} were written, but its record cannot be renewed: {reason}.",
        "Make room or give permission; `graphbus undo` takes the changes back, `graphbus build` builds with them.",
    ),
    # artifacts: exit 6
    "GBE501": Entry("There are no artifacts here.", "Run `graphbus build` first, or give the folder that it wrote."),
    "GBE502": Entry("{name} cannot be read as an artifact: {reason}.", "Run `graphbus build` again."),
    "GBE503": Entry(
        "These artifacts have the old format {version}; this GraphBus reads format {wanted}.",
        "Run `graphbus build` again.",
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
    "GBE508": Entry("This file is not what it was when the artifacts were built.", "Run `graphbus build` again."),
    "GBE510": Entry(
        "The artifacts cannot be written here: {reason}.",
        "Free some space or correct the permissions; the artifacts from before are still whole.",
    ),
    "GBE511": Entry("There is no agent {name} in these artifacts.{suggestion}", "Agents: {known}."),
    # running: exit 7
    "GBE601": Entry(
        "The module {module} cannot be imported: {reason}.", "Correct the module; the other ones were tried, too."
    ),
    "GBE602": Entry(
        "The module {module} has no agent class {name}.{suggestion}",
        "Run `graphbus build` again if it was renamed; a class that is made conditionally must exist at run time.",
    ),
    "GBE603": Entry(
        "The agent {name} cannot be made: {reason}.",
        "Agents are made without arguments; what one needs it sets up in `on_start`.",
    ),
    "GBE604": Entry(
        "The module {module} should come from {path}, but comes from {found}.",
        "Another module of this name is in the way: rename one of them.",
    ),
    "GBE605": Entry("`on_start` of {name} failed: {reason}.", "Nothing was left running."),
    "GBE606": Entry("There is no entry point {name}: {reason}.", "Write it as package.module:function."),
    "GBE607": Entry("The entry point {name} failed: {reason}.", "The graph was stopped in good order."),
    "GBE610": Entry(
        "{topic!r} cannot be used here: {reason}.", "A topic is `/Segment/Segment`, with letters, digits, `_`, `-`."
    ),
    "GBE611": Entry(
        "The handler {handler} has a signature that cannot be served: {reason}.",
        "See the table of handler signatures in docs/runtime.md.",
    ),
    "GBE612": Entry(
        "A payload must be JSON; {path} is {found}.", "Publish dicts, lists, text, numbers, booleans and None."
    ),
    "GBE613": Entry("The payload has more than {limit} bytes.", "Publish a reference to the data instead of the data."),
    "GBE614": Entry(
        "The payload of {topic} does not fit: {reason}.", "Correct the publisher, or the schema of the topic."
    ),
    "GBE615": Entry("{topic} was published to a bus that is closed.", "Publish before the shutdown begins."),
    "GBE616": Entry("{name} is in no graph and so cannot {what}.", "Connect it: `with connect({name}) as graph: ...`."),
    "GBE617": Entry(
        "{handler} needs the field {field!r}, which the payload of {topic} does not have.",
        "Send the field, or give the parameter a default.",
    ),
    "GBE618": Entry(
        "The call was interrupted before it was done.", "The graph is shutting down, or a handler has ended it."
    ),
    "GBE619": Entry(
        "No agent publishes or hears {topic}.{suggestion}",
        "Build again if it is new, or name it in `external_topics` of [tool.graphbus].",
    ),
    "GBE620": Entry("There is no agent {agent} in this graph.{suggestion}", "Agents: {known}."),
    "GBE621": Entry(
        "{agent} has no method {method} that can be called.{suggestion}",
        "Methods with @schema_method: {known}.",
    ),
    "GBE622": Entry(
        "{agent}.{method} was called with wrong arguments: {reason}.", "Correct the call, or the input_schema."
    ),
    "GBE623": Entry("{agent}.{method} gave a wrong result: {reason}.", "Correct the method, or its output_schema."),
    "GBE624": Entry(
        "{agent} calls {other}, but does not say that it depends on it.",
        'Write @depends_on("{other}") above the class {agent}.',
    ),
    "GBE625": Entry("{agent}.{method} failed: {reason}.", "The graph was stopped in good order; the log says more."),
    "GBE626": Entry("`on_stop` of {name} failed: {reason}.", "The other agents were still stopped."),
    "GBE627": Entry(
        "The graph was told to stop inside one of its handlers.",
        "Let the code that started it stop it; a handler may raise SystemExit.",
    ),
    "GBE628": Entry(
        "A plain `def` cannot wait for a call: everything of its agent runs on the event loop, where results are awaited.",
        "Make the method `async def` and write `await self.call(...)`: the agent has other `async def` methods.",
    ),
    "GBE630": Entry(
        "{count} failed; the first: {subscription} on {topic}: {error}.",
        "The log above says more about each.",
    ),
}
"""Code -> sentence and hint. Codes are public: never reused, never renumbered."""
