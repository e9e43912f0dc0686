"""Rung G8: a changed handler or method is called with made-up values that fit its contract, on a fresh agent, in the sandbox.

It is refused when a plain value makes it raise, or when its result does not fit its schema, where it was right
without the change. Only what nobody means counts (a wrong name, attribute, type or key): code may refuse a value with a `raise`.
What depends on other agents, files or the network is not tried: a false alarm is worse than a miss.

Values are plain ones, as a user of the contract would send them, and odd ones that the type allows, too; always the same for a
type. What is unknown has no sample, and nothing that needs one is tried.
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
"""Type -> a plain value, then odd ones."""
_DEEPEST = 4


class NoSample(Exception):  # noqa: N818 - it is an answer, not a failure
    """The type does not say what a value looks like."""


def plain_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Give a plain mapping with every field, then, if some may be missing, one without those.

    Raises:
        NoSample: A required field has a type that says nothing.
    """
    found = {
        field.name: sample_values(field.type)[0] for field in schema.fields if field.required or _has_sample(field.type)
    }
    needed = {field.name: found[field.name] for field in schema.fields if field.required}
    return [found] if len(needed) == len(schema.fields) else [found, needed]


def unusual_payloads(schema: Schema) -> list[dict[str, Json]]:
    """Give plain mappings in which one field at a time has a rare value."""
    whole = plain_payloads(schema)[0]
    known = [field for field in schema.fields if field.name in whole]
    return [{**whole, field.name: value} for field in known for value in sample_values(field.type)[1:]]


def sample_values(of: Type, depth: int = 0) -> list[Json]:
    """Give a plain value and then odd ones.

    Raises:
        NoSample: The type does not say what a value looks like, or it goes on without end.
    """
    if depth > _DEEPEST:
        raise NoSample
    if of.kind in ("str", "literal") and of.name:  # a method is called as it is, and may want the object, or the member
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
"""What a process that makes calls may use; one that computes all the time ends itself after 10 s."""
_SOON_S = 3.0
"""What comes to its end later than this without the change may be called slow with it, but not endless."""
_Functions = dict[str, ast.FunctionDef | ast.AsyncFunctionDef]


class _Attempt(NamedTuple):
    """One method to be called with some values; the first `plain_count` are plain, the others odd."""

    agent: AgentDefinition
    method: str
    topic: str
    shape: str
    values: tuple[dict[str, Json], ...]
    plain_count: int
    output: Schema | None

    def as_call(self) -> list[Json]:
        """What the process in the sandbox is told."""
        kind = "event" if self.topic else "call"
        return [self.agent.module, self.agent.name, self.method, kind, self.topic, self.shape, list(self.values)]

    def __str__(self) -> str:
        return f"{self.agent.name}.{self.method}"


_Answers = list[list[Json]]


class SmokeTrials:
    """The calls of one session; a change from one state to another is not tried again."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self._known: dict[tuple[str, str], RungVerdict] = {}
        self._attempts: dict[tuple[str, str], list[_Attempt]] = {}
        self._heard: dict[tuple[str, str], list[Json]] = {}

    def calls(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[Json]:
        """Give what a process in the sandbox is told to call."""
        return [attempt.as_call() for attempt in self._planned(base, head, before, after)]

    def keep_answers(self, base: TreeState, head: TreeState, said: list[Json]) -> None:
        """Take the answers to these calls, so that they need not be made again."""
        self._heard[base.digest, head.digest] = said

    def _planned(self, base: TreeState, head: TreeState, before: Project, after: Project) -> list[_Attempt]:
        key = (base.digest, head.digest)
        if key not in self._attempts:
            found = _attempts(before, after, changed_paths(base, head))
            self._attempts[key] = [attempt for attempt in found if attempt.values]
        return self._attempts[key]

    def check(self, base: TreeState, head: TreeState, before: Project, after: Project) -> RungVerdict:
        """Call what has changed; only where something is wrong, call it without the change, too."""
        attempts = self._planned(base, head, before, after)
        if not attempts:
            return NotRun("No handler or method has changed for which a call can be made up.")
        key = (base.digest, head.digest)
        if key not in self._known:
            self._known[key] = self._compare(attempts, (base, before), (head, after))
        return self._known[key]

    def _compare(
        self, attempts: list[_Attempt], base: tuple[TreeState, Project], head: tuple[TreeState, Project]
    ) -> Refusal | None:
        """Call with the change, and where something is wrong, without it."""
        heard = self._heard.pop((base[0].digest, head[0].digest), None)
        now = self._try(*head, attempts)[0] if heard is None else _by_attempt(heard, attempts)
        files = self._environment.files_in(head[0])
        suspects = [number for number, attempt in enumerate(attempts) if _problems(attempt, now[number], files)]
        then, used_s = self._try(*base, [attempts[number] for number in suspects]) if suspects else ([], 0.0)
        for number, said in zip(suspects, then, strict=True):
            wrong, known = (_problems(attempts[number], answers, files) for answers in (now[number], said))
            for index in sorted(wrong.keys() - known.keys()):
                is_slow = wrong[index].code == "G8.timeout" and used_s > _SOON_S
                if said[index : index + 1] and said[index][0] == "ok" and not is_slow:
                    return wrong[index]
        return None

    def _try(self, state: TreeState, project: Project, attempts: list[_Attempt]) -> tuple[list[_Answers], float]:
        """Give the answers for each attempt, as far as they were given, and the time that was used."""
        calls = [attempt.as_call() for attempt in attempts]
        heard = self._environment.run_trial(state, project.index.import_roots, calls=calls, longest_s=LONGEST_S)
        said = list(heard.said)
        if ["end"] not in said:
            hangs = heard.done.timed_out or heard.done.returncode == -SIGPROF
            said.append(["hangs" if hangs else "ends", ""])
        return _by_attempt(said, attempts), heard.done.used_s


def _by_attempt(said: list[Json], attempts: list[_Attempt]) -> list[_Answers]:
    """Give the answers for each attempt, as far as they were given."""
    left = [each for each in said if isinstance(each, list) and len(each) == 2]
    found = []
    for attempt in attempts:
        found.append(left[: len(attempt.values)])
        left = left[len(attempt.values) :]
    return found


def _problems(attempt: _Attempt, said: _Answers, files: ProjectFiles) -> dict[int, Refusal]:
    """Give what is wrong, by the number of the value."""
    found: dict[int, Refusal] = {}
    method = attempt.agent.method(attempt.method)
    path, line = attempt.agent.path, method.span.line if method else attempt.agent.span.line
    is_good = partial(problems_of, attempt.output) if attempt.output else lambda value: ()
    for index, (kind, detail) in enumerate(said):
        value = attempt.values[index]
        if kind == "hangs":
            found[index] = Refusal("G8.timeout", f"{attempt} does not come to its end for {value}.", path, line)
        elif kind == "ends":
            found[index] = Refusal("G8.raises", f"{attempt} ends the process for {value}.", path, line)
        elif kind == "raises" and index < attempt.plain_count:
            found[index] = _raised(attempt, value, detail, files)
        elif kind == "ok" and not attempt.topic and is_good(detail):
            wrong = "; ".join(str(problem) for problem in is_good(detail)[:3])
            message = f"{attempt} gives a result that does not fit its schema for {value}."
            found[index] = Refusal("G8.output", message, path, line, wrong)
    return found


def _raised(attempt: _Attempt, value: Json, detail: Json, files: ProjectFiles) -> Refusal:
    """Say what was raised, and where, as far as that can be known without the code that raised it."""
    try:
        error = msgspec.convert(detail, RaisedError)
    except msgspec.ValidationError:
        error = RaisedError("")
    method = attempt.agent.method(attempt.method)
    spot = files.last(error.steps)
    if not spot.path:
        spot = SourceLine(attempt.agent.path, method.span.line if method else attempt.agent.span.line)
    said = f"{attempt} raises {error_name(error.name)} for {value}, not without the change."
    return Refusal("G8.raises", said, spot.path, spot.line, str(error))


# --- what has changed, and how it is called ---------------------------------------------------------


def _attempts(before: Project, after: Project, paths: set[str]) -> Iterator[_Attempt]:
    known = {agent.name: agent for agent in before.definitions}
    for agent in after.definitions:
        if agent.path in paths and agent.name in known:
            old, new = before.source(known[agent.name].path).data, after.source(agent.path).data
            changed = _changed_methods(agent.name, old, new)
            for name in sorted(changed):
                yield from _of_method(agent, name)
                yield from _of_handler(agent, name, after)


def _of_method(agent: AgentDefinition, name: str) -> Iterator[_Attempt]:
    method = agent.method(name)
    schema = method.input_schema if method else None
    if method and schema is not None and not schema.is_open and _takes(method, schema):
        usual, rare = _values(schema)
        yield _Attempt(agent, name, "", "", (*usual, *rare), len(usual), method.output_schema)


def _takes(method: MethodSpec, schema: Schema) -> bool:
    """True when the fields of the schema are just what must be given."""
    needed = {each.name for each in method.parameters if not each.has_default and not each.kind.startswith("var_")}
    return needed <= {field.name for field in schema.fields if field.required} and all(
        each.kind != "positional_only" for each in method.parameters
    )


def _of_handler(agent: AgentDefinition, name: str, project: Project) -> Iterator[_Attempt]:
    for subscription in agent.subscriptions:
        if subscription.method == name and subscription.shape not in ("invalid", "typed"):
            schema = _payload_schema(subscription, project)
            usual = _values(schema)[0] if schema is not None else []
            yield _Attempt(agent, name, subscription.topic, subscription.shape, tuple(usual), len(usual), None)


def _payload_schema(subscription: Subscription, project: Project) -> Schema | None:
    """Give what the topic's publishers agree on; None for a pattern and where nobody says."""
    topic = next((topic for topic in project.graph.topics if topic.name == subscription.topic), None)
    schema = topic.schema if topic and "*" not in topic.name else None
    return schema if schema and not schema.is_open else None


def _values(schema: Schema) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """Give plain and odd values; none where a type does not say enough."""
    try:
        return plain_payloads(schema), unusual_payloads(schema)[:_MOST_VALUES]
    except NoSample:
        return [], []


def _changed_methods(name: str, before: bytes, after: bytes) -> set[str]:
    """Give the methods of a class that read otherwise, or call such a one on `self`, directly or not."""
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
    for node in ast.walk(syntax.parse(data)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {}


def _own_calls(function: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
