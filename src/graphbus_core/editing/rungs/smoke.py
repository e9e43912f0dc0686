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
from graphbus_core.editing.rungs.trial_environment import (
    NotRun,
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
_DEEPEST = 4


class NoSample(Exception):  # noqa: N818 - an answer, not a failure
    """There is no sample value for a type."""


def plain_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Return a mapping with an ordinary value for every field and, if some are optional, one with the required fields only.

    Raises:
        NoSample: A required field has a type without sample values.
    """
    found = {
        field.name: sample_values(field.type)[0] for field in schema.fields if field.required or _has_sample(field.type)
    }
    needed = {field.name: found[field.name] for field in schema.fields if field.required}
    return [found] if len(needed) == len(schema.fields) else [found, needed]


def unusual_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Return mappings in which one field at a time has an unusual value and the others ordinary ones."""
    whole = plain_payloads(schema)[0]
    known = [field for field in schema.fields if field.name in whole]
    return [{**whole, field.name: value} for field in known for value in sample_values(field.type)[1:]]


def sample_values(of: Type, depth: int = 0) -> list[Json]:
    """Return an ordinary value of a type, then unusual ones.

    Raises:
        NoSample: The type does not say what a value looks like, or is nested too deeply.
    """
    if depth > _DEEPEST:
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
    try:
        sample_values(of)
    except NoSample:
        return False
    return True


_MOST_VALUES = 24
LONGEST_S = 20.0
"""The time limit of a process that makes calls; `graphbus_trial.py` ends itself after 10 s of processor time."""
_SOON_S = 3.0
"""If calls took longer than this without the change, a timeout with it proves nothing."""
_Functions = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]


class _Attempt(NamedTuple):
    """One method to call with some values; the first `plain_count` are ordinary, the others unusual.

    Attributes:
        topic: For a handler, the topic of its events; empty for a method.
        shape: For a handler, the shape of its signature.
        output: The schema of a method's result, if it has one.
    """

    agent: AgentDefinition
    method: str
    topic: str
    shape: str
    values: tuple[dict[str, Json], ...]
    plain_count: int
    output: Schema | None

    def as_call(self) -> list[Json]:
        """Return the entry of `calls` for `graphbus_trial.py`."""
        kind = "event" if self.topic else "call"
        return [self.agent.module, self.agent.name, self.method, kind, self.topic, self.shape, list(self.values)]

    def __str__(self) -> str:
        return f"{self.agent.name}.{self.method}"


_Answers = list[list[Json]]


class SmokeTrials:
    """Rung G8 of one session. The verdict for a pair of states is cached."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._known: dict[tuple[str, str], RungVerdict] = {}
        self._attempts: dict[tuple[str, str], list[_Attempt]] = {}
        self._heard: dict[tuple[str, str], list[Json]] = {}

    def calls(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[Json]:
        """Return the calls for a change, for a process of another rung that can make them on the way."""
        return [attempt.as_call() for attempt in self._planned(base, head, before, after)]

    def keep_answers(self, base: TreeState, head: TreeState, said: list[Json]) -> None:
        """Keep the reports on these calls for `check`, so that they are not made again."""
        self._heard[base.digest, head.digest] = said

    def _planned(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[_Attempt]:
        """Return the attempts for a change; computed once."""
        key = (base.digest, head.digest)
        if key not in self._attempts:
            found = _attempts(before, after, changed_paths(base, head))
            self._attempts[key] = [attempt for attempt in found if attempt.values]
        return self._attempts[key]

    def check(self, base: TreeState, head: TreeState, before: Project, after: Project) -> RungVerdict:
        """Return the verdict of G8 for the change from `base` to `head`."""
        attempts = self._planned(base, head, before, after)
        if not attempts:
            return NotRun("No handler or method has changed that can be called with sample values.")
        key = (base.digest, head.digest)
        if key not in self._known:
            self._known[key] = self._compare(attempts, (base, before), (head, after))
        return self._known[key]

    def _compare(
        self, attempts: list[_Attempt], base: tuple[TreeState, Project], head: tuple[TreeState, Project]
    ) -> Refusal | None:
        """Make the calls with the change, and those that fail also without it; return what fails only with the change."""
        heard = self._heard.pop((base[0].digest, head[0].digest), None)
        now = self._make_calls(*head, attempts)[0] if heard is None else _split_by_attempt(heard, attempts)
        files = self._environment.files_in(head[0])
        suspects = [number for number, attempt in enumerate(attempts) if _find_problems(attempt, now[number], files)]
        then, used_s = self._make_calls(*base, [attempts[number] for number in suspects]) if suspects else ([], 0.0)
        for number, said in zip(suspects, then, strict=True):
            wrong, known = (_find_problems(attempts[number], answers, files) for answers in (now[number], said))
            for index in sorted(wrong.keys() - known.keys()):
                is_slow = wrong[index].code == "G8.timeout" and used_s > _SOON_S
                if said[index : index + 1] and said[index][0] == "ok" and not is_slow:
                    return wrong[index]
        return None

    def _make_calls(self, state: TreeState, project: Project, attempts: list[_Attempt]) -> tuple[list[_Answers], float]:
        """Make the calls in a state; return the reports for each attempt, as far as there are any, and the time used."""
        calls = [attempt.as_call() for attempt in attempts]
        heard = self._environment.run_trial(state, project.index.import_roots, calls=calls, longest_s=LONGEST_S)
        said = list(heard.said)
        if ["end"] not in said:
            hangs = heard.done.timed_out or heard.done.returncode == -SIGPROF
            said.append(["hangs" if hangs else "ends", ""])
        return _split_by_attempt(said, attempts), heard.done.used_s


def _split_by_attempt(said: list[Json], attempts: list[_Attempt]) -> list[_Answers]:
    """Split the reports of a process by attempt; the last attempts have fewer if the process ended early."""
    left = [each for each in said if isinstance(each, list) and len(each) == 2]
    found = []
    for attempt in attempts:
        found.append(left[: len(attempt.values)])
        left = left[len(attempt.values) :]
    return found


def _find_problems(attempt: _Attempt, said: _Answers, files: ProjectFiles) -> dict[int, Refusal]:
    """Return what is wrong with an attempt: index of the value -> refusal."""
    found: dict[int, Refusal] = {}
    method = attempt.agent.method(attempt.method)
    path, line = attempt.agent.path, method.span.line if method else attempt.agent.span.line
    is_good = partial(problems_of, attempt.output) if attempt.output else lambda value: ()
    for index, (kind, detail) in enumerate(said):
        value = attempt.values[index]
        if kind == "hangs":
            found[index] = Refusal("G8.timeout", f"{attempt} does not end for {value}.", path, line)
        elif kind == "ends":
            found[index] = Refusal("G8.raises", f"{attempt} ends the process for {value}.", path, line)
        elif kind == "raises" and index < attempt.plain_count:
            found[index] = _refusal_of_error(attempt, value, detail, files)
        elif kind == "ok" and not attempt.topic and is_good(detail):
            wrong = "; ".join(str(problem) for problem in is_good(detail)[:3])
            message = f"{attempt} returns a result that does not fit its schema for {value}."
            found[index] = Refusal("G8.output", message, path, line, wrong)
    return found


def _refusal_of_error(attempt: _Attempt, value: Json, detail: Json, files: ProjectFiles) -> Refusal:
    """Return the refusal for a call that raises, with only those facts that the project code cannot forge."""
    try:
        error = msgspec.convert(detail, RaisedError)
    except msgspec.ValidationError:
        error = RaisedError("")
    method = attempt.agent.method(attempt.method)
    spot = files.last_known_line(error.steps)
    if not spot.path:
        spot = SourceLine(attempt.agent.path, method.span.line if method else attempt.agent.span.line)
    said = f"{attempt} raises {error_name(error.name)} for {value}; without the change it does not."
    return Refusal("G8.raises", said, spot.path, spot.line, str(error))


# --- which methods have changed, and how they are called ---------------------------------------------


def _attempts(before: Project, after: Project, paths: set[str]) -> Iterator[_Attempt]:
    """Yield the attempts for the changed methods and handlers of agents in the given files."""
    known = {agent.name: agent for agent in before.definitions}
    for agent in after.definitions:
        if agent.path in paths and agent.name in known:
            old, new = before.source(known[agent.name].path).data, after.source(agent.path).data
            changed = _changed_methods(agent.name, old, new)
            for name in sorted(changed):
                yield from _method_attempts(agent, name)
                yield from _handler_attempts(agent, name, after)


def _method_attempts(agent: AgentDefinition, name: str) -> Iterator[_Attempt]:
    method = agent.method(name)
    schema = method.input_schema if method else None
    if method and schema is not None and not schema.is_open and _takes_fields(method, schema):
        usual, rare = _values(schema)
        yield _Attempt(agent, name, "", "", (*usual, *rare), len(usual), method.output_schema)


def _takes_fields(method: MethodSpec, schema: Schema) -> bool:
    """True if the method can be called by keyword with the required fields of its schema."""
    needed = {each.name for each in method.parameters if not each.has_default and not each.kind.startswith("var_")}
    return needed <= {field.name for field in schema.fields if field.required} and all(
        each.kind != "positional_only" for each in method.parameters
    )


def _handler_attempts(agent: AgentDefinition, name: str, project: Project) -> Iterator[_Attempt]:
    for subscription in agent.subscriptions:
        if subscription.method == name and subscription.shape not in ("invalid", "typed"):
            schema = _payload_schema(subscription, project)
            usual = _values(schema)[0] if schema is not None else []
            yield _Attempt(agent, name, subscription.topic, subscription.shape, tuple(usual), len(usual), None)


def _payload_schema(subscription: Subscription, project: Project) -> Schema | None:
    """Return the payload schema that the publishers of a topic agree on; None for a pattern or an unknown payload."""
    topic = next((topic for topic in project.graph.topics if topic.name == subscription.topic), None)
    schema = topic.schema if topic and "*" not in topic.name else None
    return schema if schema and not schema.is_open else None


def _values(schema: Schema) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """Return ordinary and unusual values; both empty if a type has no sample."""
    try:
        return plain_payloads(schema), unusual_payloads(schema)[:_MOST_VALUES]
    except NoSample:
        return [], []


def _changed_methods(name: str, before: bytes, after: bytes) -> set[str]:
    """Return the methods of a class whose code has changed, or that use a changed or new one through `self`."""
    old, new = _functions(name, before), _functions(name, after)
    changed = {each for each in new if each in old and ast.dump(old[each]) != ast.dump(new[each])}
    fresh = new.keys() - old.keys()
    touched = changed | fresh
    while True:
        more = {each for each, function in new.items() if each not in touched and _own_calls(function) & touched}
        if not more:
            return touched - fresh
        touched |= more


def _functions(name: str, data: bytes) -> _Functions:
    """Return the methods of a class by name."""
    for node in ast.walk(syntax.parse(data)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {}


def _own_calls(function: ast.AST) -> set[str]:
    """Return the names that a method uses as attributes of `self`."""
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
