"""The reader of Celery: tasks, and the places that send them in each form of Celery. The signature of a task is its schema.

    scopes, packages -> evaluate (what may this expression be?) -> sends (who sends what) -> messages

What depends on the run is unknown: a task that is looked up, arguments that are passed on. Tests send nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from graphbus_core.contracts.messages import Consumer, Messages, Producer, Unread
from graphbus_core.model.agent import SourceSpan
from graphbus_core.readers.celery.evaluate import Evaluator
from graphbus_core.readers.celery.sends import Send, Sends
from graphbus_core.readers.celery.values import SOMETHING, ModuleValue, NamedTask, Task, Text, Value
from graphbus_core.readers.scopes import Binding, Imported, Module, defaults_of
from graphbus_core.readers.seam import Project
from graphbus_core.schema.types import ANY, UNKNOWN, Field, Type

_WORDS = re.compile(
    rb"celery|\.delay|apply_async|\.task\b|shared_task|send_task|schedule|\.s\(|\.si\(|\.signature\(|\.subtask\(|Task\b"
)
"""A file without any of these words neither defines nor sends a task."""
_NAMING = re.compile(rb"(?:\bname\s*=|send_task\(|signature\(|subtask\()\s*([A-Za-z_][\w.]*)")
"""A place that may name a task by a constant."""
_CONSTANT = re.compile(rb"^[ \t]*([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?=[ \t]*\(?['\"]", re.MULTILINE)
"""An assignment of a string."""
_MAKING = re.compile(rb"(?:return|=|partial\(|^[ \t]+@)[^\n]*(?:shared_task|\.task)\b", re.MULTILINE)
"""A place that may make a decorator of the project by which it defines tasks."""
_COMPUTED = re.compile(rb"send_task\(\s*[^\"'\s)]")
_MAKERS = frozenset({"task", "shared_task", "periodic_task", "register_task"})
_TEST = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_tests?|conftest)\.py$")


def read(project: Project) -> Messages:
    """Return the tasks of a project and what is sent to them."""
    return _Reading(project).messages()


class _Reading:
    """One reading of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._evaluator = Evaluator(project)
        self._sends = Sends(self._evaluator)
        self._tasks: dict[SourceSpan, Task] = {}
        self._searched: set[str] = set()
        paths = project.paths if project.focus is None else project.paths & project.focus
        self._focus = {path for path in paths if self._is_imported(path)}

    def messages(self) -> Messages:
        """Return what is in the focus, and everything that is sent to the tasks in it."""
        if self._project.focus is not None:
            self._focus |= self._find_named_by_constants()
        for path in sorted(self._focus):
            is_read = self._project.focus is not None or self._has_tasks(path)  # what has changed may pass on any task
            if is_read and (module := self._evaluator.module(path)):
                self._tasks.update((task.span, task) for task in self._tasks_in(module))
                self._sends.read(module)
        wanted = {*self._tasks, *(each.name for each in self._tasks.values())}
        if self._project.focus is not None:
            self._read_senders()
        else:
            self._read_users()
        found = self._sends.finish()
        found += [
            Send(NamedTask(name), SOMETHING, span, "named") for name, span in self._sends.mentioned if name in wanted
        ]
        sends = [each for each in found if each.span.path in self._focus or _key_of(each.task) in {*wanted, ""}]
        sends.sort(key=lambda each: (each.span.path, each.span.line, each.span.column))
        self._tasks.update((each.task.span, each.task) for each in sends if isinstance(each.task, Task))
        self._find_named({each.task.name for each in sends if isinstance(each.task, NamedTask)})
        producers = tuple(map(self._producer, sends))
        return Messages(producers, tuple(self._consumers()), tuple(self._unread(sends)))

    def _read_users(self) -> None:
        """Read the files without a word of Celery that pass on a task."""
        names = "|".join(sorted({task.label for task in self._tasks.values()}))
        passed = re.compile(rf"[(=,]\s*(?:\w+\.)*(?:{names or '(?!)'})\s*[,)]".encode())
        for path in sorted(self._focus):
            is_left = not self._has_tasks(path) and passed.search(self._project.text(path))
            if is_left and (module := self._evaluator.module(path)):
                self._sends.read(module)

    def _has_tasks(self, path: str) -> bool:
        """True if a file may define or send tasks, also by the decorators of the project."""
        text = self._project.text(path)
        return bool(_WORDS.search(text) or (b"@" in text and self._own_decorators.search(text)))

    @cached_property
    def _own_decorators(self) -> re.Pattern[bytes]:
        """Matches the use of a decorator by which the project defines tasks."""
        names: set[str] = set()
        for path in self._project.paths:
            text = self._project.text(path)
            is_likely = (
                (b"shared_task" in text or b".task" in text) and self._is_imported(path) and _MAKING.search(text)
            )
            if is_likely and (module := self._evaluator.module(path)):
                names |= {*self._decorators_in(module)}
        return re.compile(rf"@[\w.]*\b({'|'.join(sorted(names)) or '(?!)'})\b".encode())

    def _decorators_in(self, module: Module) -> Iterator[str]:
        """Yield the names of a module that define tasks."""
        this = ModuleValue(self._evaluator.packages.stem_of(module.scope.path))
        for name in module.scope.bindings:
            for value in self._evaluator.member(this, name):
                if any(self._evaluator.definitions.decorators_of(value)):
                    yield name

    def _find_named_by_constants(self) -> set[str]:
        """Return the files that may name a task by a constant of a file in the focus, whose value may have changed."""
        texts = map(self._project.text, self._focus)
        constants = {name for text in texts for name in _CONSTANT.findall(text)}
        others = (path for path in self._project.paths - self._focus if self._is_imported(path))
        return {path for path in others if constants and self._names_task_by(constants, path)}

    def _names_task_by(self, constants: set[bytes], path: str) -> bool:
        """True if a file names a task by one of these constants, such as in `@app.task(name=Names.CHARGE)`."""
        text = self._project.text(path)
        is_likely = b"task(" in text or b"signature(" in text  # quicker than the pattern
        return is_likely and any(found.rpartition(b".")[2] in constants for found in _NAMING.findall(text))

    def _is_imported(self, path: str) -> bool:
        """True for the files that are part of the program: no tests, and no module beside a package of the same name."""
        packages = self._evaluator.packages
        return not _TEST.search(path) and packages.path_of(packages.stem_of(path)) == path

    # --- tasks ---

    def _tasks_in(self, module: Module) -> Iterator[Task]:
        """Yield the tasks that a file defines."""
        for node, scope in module.scopes.items():
            if scope.at is None:
                continue
            if isinstance(node, ast.ClassDef):
                yield from self._evaluator.definitions.tasks_of_class(scope)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
                yield from _only_tasks(self._evaluator.definitions.definition(node, scope.at))
        for node, point in module.sites:
            if isinstance(node, ast.Call) and _MAKERS & {*_names_in(node.func)}:
                yield from _only_tasks(self._evaluator.values(node, point))

    def _read_senders(self) -> None:
        """Read the files outside of the focus that mention a task of it, under any name that a file gives it."""
        names = {name for task in self._tasks.values() for name in (task.label, task.name.rpartition(".")[2])} - {""}
        for path in sorted(self._focus):
            if module := self._read_already(path):
                names |= {*self._aliases(module, names)}
        left = {path for path in self._project.paths if path not in self._focus and self._is_imported(path)}
        searched: set[str] = set()
        while names - searched:
            words = [name.encode() for name in sorted(names - searched)]
            searched |= names
            for path in [each for each in sorted(left) if self._mentions(each, words) or self._computes_names(each)]:
                left.discard(path)
                self._searched.add(path)
                if module := self._evaluator.module(path):
                    names |= {*self._aliases(module, names)}
                    self._sends.read(module, names)

    def _find_named(self, names: set[str]) -> None:
        """Find the tasks that are only named by a send: in the module that the name begins with, else where the name is given."""
        packages = self._evaluator.packages
        for name in sorted(names - {each.name for each in self._tasks.values()}):
            module, _, label = name.rpartition(".")
            stem = packages.find(module, "") if module else None
            found = [*_only_tasks(self._evaluator.member(ModuleValue(stem), label))] if stem else []
            for path in [] if found else self._files_that_name(name):
                read = self._evaluator.module(path)
                found += self._tasks_in(read) if read else ()
            self._tasks.update((each.span, each) for each in found if each.name == name)

    def _files_that_name(self, name: str) -> list[str]:
        """Return the files in which a text is, and those that name a task by a constant with that text."""
        imported = [path for path in sorted(self._project.paths) if self._is_imported(path)]
        found = [path for path in imported if self._mentions(path, [name.encode()])]
        constants = {each for path in found for each in _CONSTANT.findall(self._project.text(path))}
        return found + [path for path in imported if path not in found and self._names_task_by(constants, path)]

    def _mentions(self, path: str, words: list[bytes]) -> bool:
        text = self._project.text(path)
        return any(word in text for word in words)

    def _computes_names(self, path: str) -> bool:
        """True if a file sends a task whose name is no literal."""
        text = self._project.text(path)
        return b"send_task(" in text and bool(_COMPUTED.search(text))

    def _read_already(self, path: str) -> Module | None:
        return self._evaluator.module(path) if _WORDS.search(self._project.text(path)) else None

    def _aliases(self, module: Module, names: set[str]) -> Iterator[str]:
        """Yield the further names of a module for a task of the focus, or for its name in messages; `names` are known."""
        full_names = {task.name for task in self._tasks.values()}
        this = ModuleValue(self._evaluator.packages.stem_of(module.scope.path))
        for name, bindings in module.scope.bindings.items():
            if name not in names and any(_may_stand_for(each, names | full_names) for each in bindings):
                for value in self._evaluator.member(this, name):
                    is_name = isinstance(value, Text) and value.text in full_names
                    if is_name or (isinstance(value, Task) and value.span in self._tasks):
                        yield name

    # --- messages ---

    def _producer(self, send: Send) -> Producer:
        arguments = send.arguments
        return Producer(
            kind="task", channel=_key_of(send.task), name=self._evaluator.packages.name_of(send.span.path), span=send.span,
            given=Type("record", fields=tuple(Field(name, ANY) for name in arguments.keywords)),
            positional=(ANY,) * arguments.positional, is_open=arguments.is_open, has_rest=arguments.has_rest, how=send.how,
        )  # fmt: skip

    def _consumers(self) -> Iterator[Consumer]:
        """Yield each task once; of one that is defined twice in different ways, it is not known what it takes."""
        for same in self._definitions().values():
            first = min(same, key=lambda each: each.span.path in self._focus)  # the other build may have that one, too
            yield (
                replace(first, wanted=UNKNOWN, positions=(), is_closed=False, takes_rest=True)
                if _differ(same)
                else first
            )

    def _definitions(self) -> dict[str, list[Consumer]]:
        """Return name -> its definitions."""
        found: dict[str, list[Consumer]] = {}
        for task in self._tasks.values():
            consumer = self._consumer(task)
            found.setdefault(consumer.channel, []).append(consumer)
        return found

    def _consumer(self, task: Task) -> Consumer:
        return Consumer(
            kind="task", channel=_key_of(task), name=_key_of(task), span=task.span, is_whole=not task.is_opaque,
            options=dict(task.options) | ({"decorators": ", ".join(task.wrappers)} if task.wrappers else {}),
            **_takes(task),
        )  # fmt: skip

    def _unread(self, sends: Iterable[Send]) -> Iterator[Unread]:
        """Yield what could not be read: files of the focus, sends to an unknown task, and tasks whose name is computed."""
        names = {each.name for each in self._tasks.values()}
        version = ".".join(map(str, sys.version_info[:2]))
        for path, (why, line) in sorted(self._evaluator.unreadable.items()):
            if path in self._focus or path in self._searched:
                yield Unread(SourceSpan(path, line, 0, line, 0), f"Python {version} cannot read the file: {why}")
        for each in sends:
            if each.task is None and each.span.path in self._focus:
                yield Unread(each.span, each.why)
            elif isinstance(each.task, NamedTask) and each.task.name not in names:
                yield Unread(each.span, f"no task is named {each.task.name} here")
        for task in self._tasks.values():
            if not task.name:
                yield Unread(task.span, "the name of the task is computed")
        for name, same in self._definitions().items():
            if _differ(same):
                yield Unread(same[-1].span, f"{name} is defined twice, and it is not known which one is used")


def _may_stand_for(binding: Binding, names: set[str]) -> bool:
    """True for `import NAME as other`, `other = a.NAME`, `other = "NAME"` and `other = app.task(function)`."""
    node = binding.node
    if isinstance(node, Imported):
        return node.name in names
    if isinstance(node, ast.Constant):
        return node.value in names
    return isinstance(node, ast.Call) or (isinstance(node, ast.expr) and bool(names & {*_names_in(node)}))


def _only_tasks(values: Iterable[Value]) -> Iterator[Task]:
    return (each for each in values if isinstance(each, Task))


def _names_in(node: ast.expr) -> Iterator[str]:
    """Yield the names in `a.b(...)`."""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            yield node.attr
        node = node.value if isinstance(node, ast.Attribute) else node.func
    if isinstance(node, ast.Name):
        yield node.id


def _differ(same: Sequence[Consumer]) -> bool:
    """True if definitions of a task take different arguments."""
    return len({(each.wanted, each.positions, each.is_closed, each.takes_rest) for each in same}) > 1


def _key_of(task: Task | NamedTask | None) -> str:
    """Return the name of a task; of one whose name is computed, where it is."""
    if isinstance(task, Task) and not task.name:
        return f"{task.span.path}:{task.label}"
    return task.name if task else ""


def _takes(task: Task) -> dict[str, Any]:
    """Return what a task takes, as the fields of a `Consumer`; a parameter that is only positional gets the name `x /`."""
    node = task.scope.node if task.scope else None
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {"takes_rest": True}
    given, defaults = node.args, defaults_of(node.args)
    named = [*((each, f"{each.arg} /") for each in given.posonlyargs), *((each, each.arg) for each in given.args)]
    by_position = named[task.is_bound :]
    every = [*by_position, *((each, each.arg) for each in given.kwonlyargs)]
    fields = tuple(Field(name, ANY, each not in defaults) for each, name in every)
    return {
        "wanted": Type("record", fields=fields),
        "positions": tuple(name for _, name in by_position),
        "is_closed": given.kwarg is None,
        "takes_rest": given.vararg is not None,
        "reads": {name: _span_of(each, task.span.path) for each, name in every},
    }


def _span_of(node: ast.arg, path: str) -> SourceSpan:
    return SourceSpan(path, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
