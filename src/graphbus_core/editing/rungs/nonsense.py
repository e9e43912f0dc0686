"""Rung G2, second part: code that compiles and cannot be meant. All of it is computed from the texts before and after a change.

    no-effect   the syntax trees are equal but for docstrings                          `check_effect`
    marks       lines of the format of an answer stand in the code                     `check_marks`
    undefined   a name is used that nothing defines (G3 refuses unknown attributes)    `check_names`
    emptied     a function that did something does nothing, or returns a constant      `check_bodies`

Only what the change brings counts: what was in the old text already is left alone.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from graphbus_core.compiler.reading import syntax
from graphbus_core.compiler.reading.bodies import FunctionNode
from graphbus_core.compiler.rules.declared import names_in_annotation
from graphbus_core.editing.rungs.capability.scopes import NameBinding, NameScope, NameScopes, annotations_of
from graphbus_core.editing.rungs.capability.sources import BUILTINS, AnalyzedFile, name_of
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.rungs.effects import follow, is_generator
from graphbus_core.editing.text.source_text import SourceText, definitions, tokenize_text, with_lf
from graphbus_core.errors import did_you_mean

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# --- no effect ---------------------------------------------------------------------------------------


def check_effect(contents: Mapping[str, tuple[bytes, bytes]]) -> Refusal | None:
    """Refuse a change after which each file has the same syntax tree but for docstrings; `contents`: path -> old, new bytes."""
    if any(_dump_without_docstrings(before) != _dump_without_docstrings(after) for before, after in contents.values()):
        return None
    message = "Only comments, docstrings or layout would change, so that the code would do exactly what it does now."
    return Refusal("G2.no-effect", message, next(iter(contents), ""))


def _dump_without_docstrings(data: bytes) -> str:
    """Return a text that is equal for files with the same syntax tree but for docstrings."""
    tree = syntax.parse(data)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                each for each in node.body if not _is_constant_statement(each) and not isinstance(each, ast.Pass)
            ]
    return ast.dump(tree)


def _is_constant_statement(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# --- marks of the answer format ------------------------------------------------------------------------

_OPERATION = "(?:replace_body|replace_symbol|add_symbol|delete_symbol|set_decorator_argument|add_import|search_replace)"
_MARK = re.compile(
    rf"#{{2,6}} (?:edit {_OPERATION}\b.*|proposal(?: \d+)?:?|nothing|analysis|(?:evaluation|decision) P\d+:?"
    r"|evidence (?:test|contract))|<<(?:data \w+: .*|end \w+)>>|[`~]{3,}(?:old|new)"
)
"""A whole line of an answer or of a prompt; a heading has two `#` or more, since one makes an ordinary comment."""
_THOUGHT = re.compile(r"</?(?:think|thinking|reasoning)>")
"""A tag around the reasoning of a model; a constant for a prompt may hold one, a comment or docstring has no use for it."""


def check_marks(path: str, before: bytes, after: bytes) -> Refusal | None:
    """Refuse code in which a comment, or a line of a longer string, is a line of an answer and not of a program."""
    known = Counter(line for _, line in _find_marks(before, path))
    for number, line in _find_marks(after, path):
        known[line] -= 1
        if known[line] < 0:
            message = f"The line {line!r} belongs to the form of an answer, not to the code. End the block before it."
            return Refusal("G2.marks", message, path, number)
    return None


def _find_marks(data: bytes, path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is a comment or part of a longer string, and nothing but a mark."""
    text = with_lf(SourceText(data, path).text)
    lines = text.split("\n")
    for token in tokenize_text(text):
        (first, column), (last, _) = token.start, token.end
        begins_line = not lines[first - 1][:column].strip()
        marks = (_MARK, _THOUGHT) if begins_line else (_MARK,)
        if token.type == tokenize.COMMENT:
            found = token.string.strip()
            if begins_line and _is_mark(found, marks) | _is_mark(found[1:].strip(), marks):
                yield first, found
        elif last > first and token.type != tokenize.NEWLINE:
            inside = range(first if begins_line else first + 1, last + 1)
            numbered = ((number, lines[number - 1].strip()) for number in inside)
            yield from ((number, line) for number, line in numbered if _is_mark(line, marks))


def _is_mark(line: str, marks: Iterable[re.Pattern[str]]) -> bool:
    return any(mark.fullmatch(line) for mark in marks)


# --- undefined names -----------------------------------------------------------------------------------

_MODULE_NAMES = BUILTINS | {"__path__", "__annotations__", "__module__", "__qualname__", "__cached__", "WindowsError"}
_NO_VALUE = "`except ... as` and `del` end a name, and annotations and `if TYPE_CHECKING:` are for type checkers only."
_DEFINING_CALLS = frozenset({"exec", "globals"})
"""Functions that may define names which no statement shows."""


def check_names(old: AnalyzedFile | None, new: AnalyzedFile) -> Refusal | None:
    """Refuse names that nothing in the file defines; `old`: the file before, None if there was none.

    A name that the old text uses without a definition is left alone: something outside of the file defines it.
    """
    known = {name for name, *_ in _undefined_names(old)} if old else set()
    for name, node, is_bound in _undefined_names(new):
        if name not in known:
            similar = did_you_mean(name, new.scopes.module.bindings.keys() - {name})
            what = (
                f"The name {name!r} has no value here: {_NO_VALUE}"
                if is_bound
                else f"Nothing defines the name {name!r}."
            )
            hint = similar or f" Define or import {name}, or do without it."
            return Refusal("G2.undefined", f"{what}{hint}", new.path, node.lineno)
    return None


def _undefined_names(file: AnalyzedFile) -> list[tuple[str, ast.expr, bool]]:
    """Return each name that is read and has no value there, with its first place, and whether something binds it elsewhere."""
    if any(name in _DEFINING_CALLS and scope.find(name) is None for name, _, scope in file.scopes.loads):
        return []
    tried = _nodes_that_may_fail(file)
    parameters = {parameter.name for node in file.nodes for parameter in getattr(node, "type_params", ())}
    for_checkers = _typing_names(file)
    shown = _nodes_that_only_checkers_read(file) if for_checkers else set()
    found: dict[str, tuple[str, ast.expr, bool]] = {}
    for name, node, scope in (*file.scopes.loads, *_names_in_annotations(file)):
        bound = scope.find(name) or []
        is_bound = any(_gives_value(binding, node) for binding in bound)
        if name in for_checkers and bound == file.scopes.module.bindings[name]:
            is_bound = node in shown
        is_known = is_bound or name in _MODULE_NAMES or name in parameters or node in tried
        if not is_known and not any(_may_export(file, module, name) for module in file.scopes.module.stars):
            found.setdefault(name, (name, node, bool(bound)))
    return sorted(found.values(), key=lambda each: each[1].lineno)


def _gives_value(binding: NameBinding, node: ast.expr) -> bool:
    """True if a name that this binding binds has a value at a place; after `except ... as`, Python deletes it."""
    handler = binding.handler
    return binding.has_value and (handler is None or handler.lineno <= node.lineno <= (handler.end_lineno or 0))


def _typing_names(file: AnalyzedFile) -> set[str]:
    """Return the names of a module that are bound below `if TYPE_CHECKING:` only, so that they have no value at run time."""
    blocks = (node for node in file.tree.body if isinstance(node, ast.If) and name_of(node.test) == "TYPE_CHECKING")
    inside = NameScopes(ast.Module([statement for block in blocks for statement in block.body], [])).module.bindings
    return {name for name, bound in inside.items() if len(bound) == len(file.scopes.module.bindings[name])}


def _nodes_that_only_checkers_read(file: AnalyzedFile) -> set[ast.AST]:
    """Return the nodes in annotations and other types, which Python need not evaluate, and those below TYPE_CHECKING."""
    found: set[ast.AST] = set()
    for node in file.nodes:
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "type_params", ())]
        is_guarded = isinstance(node, ast.If | ast.IfExp) and "TYPE_CHECKING" in ast.dump(node.test)
        parts += [node] if is_guarded or type(node).__name__ == "TypeAlias" else []
        found.update(inner for part in parts if part for inner in ast.walk(part))
    return found


def _names_in_annotations(file: AnalyzedFile) -> Iterator[tuple[str, ast.expr, NameScope]]:
    """Yield name, place and scope of each name in the annotations of functions, also where an annotation is a string."""
    for node in file.nodes:
        if isinstance(node, _FUNCTIONS):
            scope = file.scopes.of[id(node)].parent or file.scopes.module
            for place in filter(None, [*annotations_of(node.args), node.returns]):
                yield from ((name, place, scope) for name in names_in_annotation(place))


def _may_export(file: AnalyzedFile, module: str, name: str) -> bool:
    """True if `from module import *` may define a name: the module is not of the project, or binds it, or has a star itself."""
    other = file.project.module(module)
    return other is None or name in other.scopes.module.bindings or bool(other.scopes.module.stars)


def _nodes_that_may_fail(file: AnalyzedFile) -> set[ast.AST]:
    """Return the nodes inside of `try` blocks that catch a NameError."""
    return {
        inner
        for block in file.nodes
        if isinstance(block, ast.Try)
        and any(each.type and "NameError" in ast.dump(each.type) for each in block.handlers)
        for statement in block.body
        for inner in ast.walk(statement)
    }


# --- bodies that do nothing ----------------------------------------------------------------------------

_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


class _Definition(NamedTuple):
    """A function with its class, if it is a method."""

    node: FunctionNode
    owner: ast.ClassDef | None


def check_bodies(
    old: AnalyzedFile, new: AnalyzedFile, elsewhere: Iterable[AnalyzedFile] = (), intended: Collection[str] = ()
) -> Refusal | None:
    """Refuse a function that did something and does nothing now, because nothing that can run takes effect.

    A function whose code has moved to another function of the same name, such as an override, is none.

    Args:
        old: The file before.
        new: The file after.
        elsewhere: The other changed files.
        intended: The functions that may be emptied.
    """
    before, after = _functions_in(old), _functions_in(new)
    concerned = _concerned(old, new, after)
    moved = {
        each.node.name
        for file in (new, *elsewhere)
        for name, each in _functions_in(file).items()
        if name not in before and not is_idle(file, each.node, each.owner)
    }
    for name, function in after.items():
        known = before.get(name)
        is_free = name not in concerned or name in intended or function.node.name in moved or is_overload(function.node)
        if known and not is_free and _is_emptied(old, known, new, function):
            message = (
                f"{name} does something now, and would do nothing: nothing that can run in its body would take effect, or it "
                "would return the same for every call. Keep what it does; if nobody needs it, delete it."
            )
            return Refusal("G2.emptied", message, new.path, function.node.lineno)
    return None


def _functions_in(file: AnalyzedFile) -> dict[str, _Definition]:
    """Return the functions of a file by qualified name, of several the last; a lambda or constant with a name is one too."""
    sites = list(definitions(file.tree))
    classes = {site.name: site.node for site in sites if isinstance(site.node, ast.ClassDef)}
    blocks = [("", file.tree.body), *((f"{name}.", node.body) for name, node in classes.items())]
    named = [each for prefix, body in blocks for each in _assigned_functions(prefix, body)]
    named += [(site.name, site.node) for site in sites if isinstance(site.node, _FUNCTIONS)]
    named.sort(key=lambda each: each[1].lineno)
    return {name: _Definition(node, classes.get(name.rpartition(".")[0])) for name, node in named}


def _assigned_functions(prefix: str, body: list[ast.stmt]) -> Iterator[tuple[str, FunctionNode]]:
    """Yield name and function for each statement `name = lambda ...` or `name = CONSTANT` of a block."""
    for statement in body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Lambda | ast.Constant):
            args, result = (value.args, value.body) if isinstance(value, ast.Lambda) else (_NO_ARGUMENTS, value)
            for target in getattr(statement, "targets", None) or [getattr(statement, "target", None)]:
                if isinstance(target, ast.Name):
                    function = ast.FunctionDef(name=target.id, args=args, body=[ast.Return(result)], decorator_list=[])
                    yield prefix + target.id, ast.copy_location(function, statement)


def _concerned(old: AnalyzedFile, new: AnalyzedFile, functions: Mapping[str, _Definition]) -> set[str]:
    """Return the functions that the change of a file may concern: changed ones, and what names one of them, in as many steps."""
    known = Counter(map(ast.dump, _parts_of(old.tree)))
    parts = {name: _names_in(function.node) for name, function in functions.items()}
    changed = {name for each in _parts_of(new.tree) if not known[ast.dump(each)] for name in _bound_by(each)}
    count = -1
    while count != len(changed):
        count = len(changed)
        changed |= {functions[name].node.name for name, names in parts.items() if not names.isdisjoint(changed)}
    return {name for name, function in functions.items() if function.node.name in changed}


def _parts_of(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module and of its classes."""
    waiting: list[ast.stmt] = list(tree.body)
    for statement in waiting:
        yield statement
        waiting += statement.body if isinstance(statement, ast.ClassDef) else []


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module or class defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    else:
        yield from _names_in(statement)


def _names_in(node: ast.AST) -> set[str]:
    """Return the names and attributes in a node."""
    found = {
        getattr(each, "id", "") or getattr(each, "attr", "") or getattr(each, "name", "") for each in ast.walk(node)
    }
    return found | {each.asname or each.name for each in ast.walk(node) if isinstance(each, ast.alias)}


def is_overload(function: FunctionNode) -> bool:
    """True for a signature of `typing.overload`, which has no body."""
    return any(name_of(decorator) == "overload" for decorator in function.decorator_list)


def is_idle(file: AnalyzedFile, function: FunctionNode, owner: ast.ClassDef | None = None) -> bool:
    """True if calling a function changes and refuses nothing, and its result does not depend on its arguments."""
    course = follow(file, function, owner)
    return not (course.acts or course.refuses or course.returns)


def _is_emptied(old: AnalyzedFile, known: _Definition, new: AnalyzedFile, function: _Definition) -> bool:
    """True if a function did something that counts, and nothing takes its place."""
    does = follow(new, function.node, function.owner)
    kept = does.acts or does.returns or does.refuses
    is_lazy = is_generator(function.node) and not is_generator(known.node)
    if kept and not is_lazy and does.acts:
        return False
    did = follow(old, known.node, known.owner)
    if not (did.acts or did.returns or did.refuses):
        return False
    is_procedure = did.acts and not did.gives_result
    decorators = {name_of(each) for each in function.node.decorator_list}
    if is_lazy and is_procedure and not decorators & {"contextmanager", "asynccontextmanager", "fixture"}:
        return True  # whoever called it for its effect only makes a generator now
    if does.acts or (does.returns and not is_procedure):
        return False
    if does.returns:
        return not _is_result_used(new, function.node.name)
    return not (does.refuses and did.refuses)


def _is_result_used(file: AnalyzedFile, name: str) -> bool:
    """True if some code of a file uses what a function of this name returns."""
    calls = [node for node in file.nodes if isinstance(node, ast.Call) and name_of(node) == name]
    dropped = {id(node.value) for node in file.nodes if isinstance(node, ast.Expr)}
    dropped |= {
        id(node.value.value) for node in file.nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Await)
    }
    return any(id(call) not in dropped for call in calls)
