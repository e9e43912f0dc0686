"""Rung G8: each changed handler and method is called in the sandbox with sample values that fit its contract, on a new agent.

A change is refused if an ordinary value makes the method raise, or if the result does not fit its schema, and neither was so
without the change. Only errors that nobody intends count (a wrong name, attribute, type or key): code may refuse a value with a
`raise` statement. Methods that need other agents, files or the network are not tried: a false alarm is worse than a miss.

Samples are ordinary values, as a user of the contract would send, and then unusual ones that the type allows as well. They are
always the same for a type. A value of unknown type has no sample, and methods that need one are not tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from signal import SIGPROF
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading import syntax
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.made_up_events import make_payloads
from graphbus_core.editing.rungs.trial_environment import (
    NotRun,
    PassedWithNote,
    ProjectFiles,
    RaisedError,
    RungVerdict,
    SourceLine,
    TreeState,
    TrialEnvironment,
    changed_paths,
    error_name,
)
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Subscription
from graphbus_core.schema.json import Json
from graphbus_core.schema.types import STR, Schema, Type
from graphbus_core.schema.validation import problems_of

_VALUES: dict[str, list[Json]] = {
    "bool": [True, False],
    "int": [3, 0, -1, 1],
    "float": [12.5, 0.0, -0.5, 7],
    "str": ["sample", "", "Größe ✓", "  x  "],
    "null": [None],
}
"""Type -> an ordinary value, then unusual ones."""
_MAX_DEPTH = 4


class NoSample(Exception):  # noqa: N818 - control flow, not a failure
    """There is no sample value for a type."""


def plain_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Return payloads of ordinary values: one with all fields, and if some are optional, one with the required fields only.

    Optional fields without sample values are left out.

    Raises:
        NoSample: A required field has a type without sample values.
    """
    found = {
        field.name: sample_values(field.type)[0] for field in schema.fields if field.required or _has_sample(field.type)
    }
    needed = {field.name: found[field.name] for field in schema.fields if field.required}
    return [found] if len(needed) == len(schema.fields) else [found, needed]


def unusual_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Return payloads in which one field has an unusual value and the others ordinary ones; raises like `plain_payloads`."""
    whole = plain_payloads(schema)[0]
    known = [field for field in schema.fields if field.name in whole]
    return [{**whole, field.name: value} for field in known for value in sample_values(field.type)[1:]]


def sample_values(of: Type, depth: int = 0) -> list[Json]:
    """Return an ordinary value of a type, then unusual ones. `depth` counts the types around it.

    Raises:
        NoSample: The type does not say what a value looks like, or is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise NoSample
    if of.kind in ("str", "literal") and of.name:  # the method may want the object or Enum member, not its JSON text
        raise NoSample
    if of.kind in _VALUES:
        return _VALUES[of.kind]
    if of.kind == "literal" and of.values:
        return list(of.values)
    if of.kind == "list" and of.args:
        return [[sample_values(of.args[0], depth + 1)[0]], []]
    if of.kind == "dict" and len(of.args) == 2 and of.args[0] == STR:
        return [{"sample": sample_values(of.args[1], depth + 1)[0]}, {}]
    if of.kind == "union":
        kinds = sorted(of.args, key=lambda arg: arg.kind == "null")
        return [sample_values(kinds[0], depth + 1)[0], *([None] if kinds[-1].kind == "null" else [])]
    if of.kind == "record" and of.fields:
        return [{field.name: sample_values(field.type, depth + 1)[0] for field in of.fields if field.required}]
    raise NoSample


def _has_sample(of: Type) -> bool:
    """True if `sample_values` knows a value of this type."""
    try:
        sample_values(of)
    except NoSample:
        return False
    return True


_MAX_UNUSUAL_VALUES = 24
LONGEST_S = 20.0
"""The time limit of a process that makes calls; `graphbus_trial.py` ends itself after 10 s of processor time."""
_FAST_S = 3.0
"""If the calls took longer than this without the change, a timeout with it proves nothing."""
_Methods = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]


class _Attempt(NamedTuple):
    """One method to call with some values; the first `plain_count` are ordinary, the others unusual.

    Attributes:
        topic: For a handler, the topic of its events; empty for a method.
        shape: For a handler, the shape of its signature.
        output: The schema of a method's result, if it has one.
        is_made_up: The events are made up from what the handler reads: they prove something only all together.
    """

    agent: AgentDefinition
    method: str
    topic: str
    shape: str
    values: tuple[dict[str, Json], ...]
    plain_count: int
    output: Schema | None
    is_made_up: bool = False

    def as_call(self) -> list[Json]:
        """Return the entry of `calls` for `graphbus_trial.py`."""
        kind = "event" if self.topic else "call"
        return [self.agent.module, self.agent.name, self.method, kind, self.topic, self.shape, list(self.values)]

    def __str__(self) -> str:
        return f"{self.agent.name}.{self.method}"


_Reports = list[list[Json]]


class SmokeTrials:
    """Rung G8 of one session. The verdict for a pair of states is cached."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._known: dict[tuple[str, str], RungVerdict] = {}
        self._attempts: dict[tuple[str, str], list[_Attempt]] = {}  # digests of both states -> the attempts
        self._kept_reports: dict[tuple[str, str], list[Json]] = {}

    def calls(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[Json]:
        """Return the calls that G8 makes for a change, so that the process which imports the modules for G5 can make them."""
        return [attempt.as_call() for attempt in self._find_attempts(base, head, before, after)]

    def keep_answers(self, base: TreeState, head: TreeState, reports: list[Json]) -> None:
        """Keep the reports on these calls for `check`, so that they are not made again."""
        self._kept_reports[base.digest, head.digest] = reports

    def _find_attempts(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[_Attempt]:
        """Return the attempts for a change; computed once."""
        key = (base.digest, head.digest)
        if key not in self._attempts:
            found = _plan_attempts(before, after, changed_paths(base, head))
            self._attempts[key] = [attempt for attempt in found if attempt.values]
        return self._attempts[key]

    def check(self, base: TreeState, head: TreeState, before: Project, after: Project) -> RungVerdict:
        """Return the verdict of G8 for the change from `base` to `head`."""
        attempts = self._find_attempts(base, head, before, after)
        if not attempts:
            return NotRun("No handler or method has changed that can be called with sample values.")
        key = (base.digest, head.digest)
        if key not in self._known:
            self._known[key] = self._compare_calls(attempts, (base, before), (head, after))
        return self._known[key]

    def _compare_calls(
        self, attempts: list[_Attempt], base: tuple[TreeState, Project], head: tuple[TreeState, Project]
    ) -> RungVerdict:
        """Refuse a change if a call fails with it and returns normally without it.

        All calls are made with the change, unless their reports were kept; without it, only those of failing methods.
        """
        kept = self._kept_reports.pop((base[0].digest, head[0].digest), None)
        new = self._make_calls(*head, attempts)[0] if kept is None else _split_reports(kept, attempts)
        files = self._environment.files_in(head[0])
        suspects = [number for number, attempt in enumerate(attempts) if _find_faults(attempt, new[number], files)]
        old, used_s = self._make_calls(*base, [attempts[number] for number in suspects]) if suspects else ([], 0.0)
        for number, before in zip(suspects, old, strict=True):
            wrong, known = (_find_faults(attempts[number], reports, files) for reports in (new[number], before))
            could = {index for index, report in enumerate(before) if report[0] == "ok"}
            if attempts[number].is_made_up and not could <= wrong.keys():
                continue
            for index in sorted(wrong.keys() - known.keys()):
                is_slow = wrong[index].code == "G8.timeout" and used_s > _FAST_S  # it proves nothing
                if before[index : index + 1] and before[index][0] == "ok" and not is_slow:
                    return wrong[index]
        untried = [attempt for attempt, reports in zip(attempts, new, strict=True) if not _is_tried(reports)]
        return _note_untried(untried, len(attempts))

    def _make_calls(self, state: TreeState, project: Project, attempts: list[_Attempt]) -> tuple[list[_Reports], float]:
        """Make the calls in a state; return the reports for each attempt, and the seconds that the process used.

        If the process ends early, the last report is `["hangs", ""]` or `["ends", ""]`, and there are none for later calls.
        """
        calls = [attempt.as_call() for attempt in attempts]
        run = self._environment.run_trial(state, project.index.import_roots, calls=calls, longest_s=LONGEST_S)
        reports = list(run.reports)
        if ["end"] not in reports:
            hangs = run.done.timed_out or run.done.returncode == -SIGPROF
            reports.append(["hangs" if hangs else "ends", ""])
        return _split_reports(reports, attempts), run.done.used_s


def _is_tried(reports: _Reports) -> bool:
    """True if a call ran to its end or to an error of its own; False if each needed something that the sandbox does not have."""
    return any(kind != "needs" or detail not in ("an agent", "NeedsMoreError") for kind, detail in reports)


def _note_untried(untried: list[_Attempt], count: int) -> RungVerdict:
    """Return the verdict on a change that nothing speaks against: how many of its handlers and methods could not be tried."""
    names = ", ".join(dict.fromkeys(map(str, untried)))
    why = "cannot be made or needs another agent"
    if len(untried) == count:
        return NotRun(f"Nothing could be tried: {names} {why}.", "G8.untried")
    return PassedWithNote(f"{len(untried)} of {count} could not be tried: {names} {why}.") if untried else None


def _split_reports(reports: list[Json], attempts: list[_Attempt]) -> list[_Reports]:
    """Return the reports of a process split by attempt, one for each value; fewer for the last ones if it ended early."""
    left = [report for report in reports if isinstance(report, list) and len(report) == 2]
    found = []
    for attempt in attempts:
        found.append(left[: len(attempt.values)])
        left = left[len(attempt.values) :]
    return found


def _find_faults(attempt: _Attempt, reports: _Reports, files: ProjectFiles) -> dict[int, Refusal]:
    """Return index of the value -> refusal, for each report on an attempt that shows a fault.

    It is a fault if the method hangs, ends the process, raises for an ordinary value, or returns a result that does not fit its
    schema. For an unusual value it may raise.
    """
    found: dict[int, Refusal] = {}
    method = attempt.agent.method(attempt.method)
    path, line = attempt.agent.path, method.span.line if method else attempt.agent.span.line
    find_errors = partial(problems_of, attempt.output) if attempt.output else lambda value: ()
    for index, (kind, detail) in enumerate(reports):
        value = attempt.values[index]
        if kind == "hangs":
            found[index] = Refusal("G8.timeout", f"{attempt} does not end for {value}.", path, line)
        elif kind == "ends":
            found[index] = Refusal("G8.raises", f"{attempt} ends the process for {value}.", path, line)
        elif kind == "raises" and index < attempt.plain_count:
            found[index] = _refusal_of_error(attempt, value, detail, files)
        elif kind == "ok" and not attempt.topic and find_errors(detail):
            wrong = "; ".join(str(problem) for problem in find_errors(detail)[:3])
            message = f"{attempt} returns a result that does not fit its schema for {value}."
            found[index] = Refusal("G8.output", message, path, line, wrong)
    return found


def _refusal_of_error(attempt: _Attempt, value: Json, detail: Json, files: ProjectFiles) -> Refusal:
    """Return the refusal for a call that raises, without anything in the reported `detail` that project code could forge."""
    try:
        error = msgspec.convert(detail, RaisedError)
    except msgspec.ValidationError:
        error = RaisedError("")
    method = attempt.agent.method(attempt.method)
    place = files.last_known_line(error.steps)
    if not place.path:
        place = SourceLine(attempt.agent.path, method.span.line if method else attempt.agent.span.line)
    message = f"{attempt} raises {error_name(error.name)} for {value}; without the change it does not."
    return Refusal("G8.raises", message, place.path, place.line, str(error))


# --- which methods have changed, and how they are called ---------------------------------------------


def _plan_attempts(before: Project, after: Project, paths: set[str]) -> Iterator[_Attempt]:
    """Yield the attempts for the changed methods and handlers of agents in these files; new agents are left out."""
    known = {agent.name: agent for agent in before.definitions}
    for agent in after.definitions:
        if agent.path in paths and agent.name in known:
            old, new = before.source(known[agent.name].path).data, after.source(agent.path).data
            changed = _find_changed_methods(agent.name, old, new)
            for name in sorted(changed):
                yield from _find_method_attempts(agent, name)
                yield from _find_handler_attempts(known[agent.name], agent, name, after)


def _find_method_attempts(agent: AgentDefinition, name: str) -> Iterator[_Attempt]:
    """Yield an attempt for a method whose input schema is known completely; nothing for any other method."""
    method = agent.method(name)
    schema = method.input_schema if method else None
    if method and schema is not None and not schema.is_open and _needs_only_required_fields(method, schema):
        usual, rare = _make_payloads(schema)
        yield _Attempt(agent, name, "", "", (*usual, *rare), len(usual), method.output_schema)


def _needs_only_required_fields(method: MethodSpec, schema: Schema) -> bool:
    """True if the required fields of a schema, passed by keyword, are enough to call the method."""
    needed = {each.name for each in method.parameters if not each.has_default and not each.kind.startswith("var_")}
    return needed <= {field.name for field in schema.fields if field.required} and all(
        each.kind != "positional_only" for each in method.parameters
    )


def _find_handler_attempts(
    old: AgentDefinition, agent: AgentDefinition, name: str, project: Project
) -> Iterator[_Attempt]:
    """Yield an attempt for each subscription of a handler, with payloads as the publishers of the topic send them.

    For a topic that no agent publishes, the payloads are made up from what the handler reads before and after the change.
    """
    for subscription in (each for each in agent.subscriptions if each.method == name and each.shape != "invalid"):
        schema = _payload_schema(subscription, project)
        usual = _make_payloads(schema)[0] if schema is not None and subscription.shape != "typed" else []
        is_made_up = not usual and _is_from_outside(subscription.topic, project)
        if is_made_up:
            was = [each for each in old.subscriptions if (each.method, each.topic) == (name, subscription.topic)]
            usual = make_payloads([*was, subscription], _values_of_declared_fields([*was, subscription])) if was else []
        values = tuple(usual)
        yield _Attempt(agent, name, subscription.topic, subscription.shape, values, len(values), None, is_made_up)


def _is_from_outside(topic: str, project: Project) -> bool:
    """True for a topic, no pattern, that no agent of the project publishes."""
    known = next((each for each in project.graph.topics if each.name == topic), None)
    return known is not None and "*" not in topic and not known.publishers


def _values_of_declared_fields(handlers: list[Subscription]) -> dict[str, Json]:
    """Return key -> an ordinary value, for the fields that a handler declares with a type that has samples."""
    schemas = [each.declared_schema for each in handlers if each.declared_schema]
    fields = [field for schema in schemas for field in schema.fields if _has_sample(field.type)]
    return {field.name: sample_values(field.type)[0] for field in reversed(fields)}


def _payload_schema(subscription: Subscription, project: Project) -> Schema | None:
    """Return the payload schema that the publishers of a topic agree on; None for a pattern or an unknown payload."""
    topic = next((topic for topic in project.graph.topics if topic.name == subscription.topic), None)
    schema = topic.schema if topic and "*" not in topic.name else None
    return schema if schema and not schema.is_open else None


def _make_payloads(schema: Schema) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """Return ordinary and unusual payloads; both empty if a required field has a type without sample values."""
    try:
        return plain_payloads(schema), unusual_payloads(schema)[:_MAX_UNUSUAL_VALUES]
    except NoSample:
        return [], []


def _find_changed_methods(name: str, before: bytes, after: bytes) -> set[str]:
    """Return the methods of a class that have changed, or that use a changed or new method through `self`; no new methods.

    They may use it directly or through other methods.
    """
    old, new = _find_methods(name, before), _find_methods(name, after)
    changed = {method for method in new if method in old and ast.dump(old[method]) != ast.dump(new[method])}
    added = new.keys() - old.keys()
    touched = changed | added
    while True:  # add the methods that use a touched one, until there are no more
        more = {
            each for each, function in new.items() if each not in touched and _names_used_on_self(function) & touched
        }
        if not more:
            return touched - added
        touched |= more


def _find_methods(name: str, data: bytes) -> _Methods:
    """Return the methods in the body of a class by name; empty if the file has no such class."""
    for node in ast.walk(syntax.parse(data)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {}


def _names_used_on_self(function: ast.AST) -> set[str]:
    """Return the names that a method uses as attributes of `self`."""
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
