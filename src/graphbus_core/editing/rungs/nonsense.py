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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from graphbus_core.compiler.reading import syntax
from graphbus_core.compiler.reading.bodies import FunctionNode
from graphbus_core.compiler.reading.endings import constant_truth, reaches_end
from graphbus_core.compiler.rules.declared import names_in_annotation
from graphbus_core.editing.rungs.capability.scopes import NameBinding, NameScope, NameScopes, annotations_of
from graphbus_core.editing.rungs.capability.sources import BUILTINS, AnalyzedFile, name_of
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.editing.text.source_text import SourceText, definitions, tokenize_text, with_lf
from graphbus_core.errors import did_you_mean

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)

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

_IDLE_FUNCTIONS = BUILTINS - frozenset(
    {"next", "map", "filter", "setattr", "delattr", "exec", "eval", "input", "open", "compile", "__import__", "super"}
)
"""Functions of Python that change nothing."""
_IDLE_METHODS = frozenset(
    {*("debug", "info", "warning", "error", "exception", "critical", "log"), "sleep", "NotImplementedError"}
    | {*("get", "keys", "values", "items", "copy", "format", "strip", "lower", "upper", "split", "join", "suppress")}
    | {*("capitalize", "casefold", "swapcase", "startswith", "endswith", "removeprefix", "removesuffix", "splitlines")}
    | {*("lstrip", "rstrip", "rsplit", "ljust", "rjust", "zfill", "isoformat", "total_seconds", "expandtabs")}
    | {name for name in dir(str) if name.startswith("is")}
)
"""Names of methods and functions that only log, wait or look something up."""
_IDLE_FOR_OWN = _IDLE_METHODS | {name for kind in (str, tuple, frozenset) for name in dir(kind)}
"""The same for objects that the function has made itself; a `replace` or `index` of another object may change something."""
_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def check_bodies(
    path: str, before: bytes, after: bytes, elsewhere: Iterable[bytes] = (), intended: Collection[str] = ()
) -> Refusal | None:
    """Refuse a function that did something and does nothing now: no statement left, or a constant in place of a result.

    A function whose code has moved to another function of the same name, such as an override, is none; `elsewhere` are the
    other changed files. `intended` are the functions that may be emptied.
    """
    old, new = _functions_in([before]), _functions_in([after])
    moved = {
        each.name for name, each in _functions_in([after, *elsewhere]).items() if name not in old and not is_idle(each)
    }
    for name, function in new.items():
        known = old.get(name)
        is_emptied = known is not None and is_idle(function) and not is_idle(known) and function.name not in moved
        if is_emptied and name not in intended and not is_overload(function):
            message = (
                f"{name} does something now, and would do nothing: its body would be empty, only log, or return the same for "
                "every call. Keep what it does; if nobody needs it, delete it."
            )
            return Refusal("G2.emptied", message, path, function.lineno)
    return None


def _functions_in(files: Iterable[bytes]) -> dict[str, FunctionNode]:
    """Return the functions of some files by qualified name, of several the last; a lambda or constant with a name is one too."""
    found: dict[str, FunctionNode] = {}
    for data in files:
        tree = syntax.parse(data)
        sites = list(definitions(tree))
        classes = ((f"{site.name}.", site.node.body) for site in sites if isinstance(site.node, ast.ClassDef))
        named = [each for prefix, body in [("", tree.body), *classes] for each in _assigned_functions(prefix, body)]
        named += [(site.name, site.node) for site in sites if isinstance(site.node, _FUNCTIONS)]
        found |= sorted(named, key=lambda each: each[1].lineno)
    return found


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


def is_overload(function: FunctionNode) -> bool:
    """True for a signature of `typing.overload`, which has no body."""
    return any(name_of(decorator) == "overload" for decorator in function.decorator_list)


def is_idle(function: FunctionNode) -> bool:
    """True if calling a function changes nothing, and its result does not depend on its arguments."""
    live = list(live_nodes(function.body))
    tainted = _names_from_arguments(function, live)
    own = {node.id for node in live if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - tainted
    if any(_acts(node, tainted, own) for node in live if node not in function.body or not isinstance(node, ast.Raise)):
        return False
    results = {ast.dump(node.value or ast.Constant(None)) for node in live if isinstance(node, ast.Return)}
    if reaches_end(function.body):
        results.add(ast.dump(ast.Constant(None)))
    return len(results) < 2 or not any(_depends(_condition_of(node), tainted) for node in live)


def _acts(node: ast.AST, tainted: set[str], own: set[str]) -> bool:
    """True for a node that changes something, raises, or returns a value that depends on the arguments.

    Args:
        node: A node of the function's body.
        tainted: The names whose values depend on the arguments.
        own: The other local names; to change what they hold is no effect.
    """
    if isinstance(node, ast.Call):
        return not is_idle_call(node, tainted, own)
    if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        root: ast.AST = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        return not (isinstance(root, ast.Name) and root.id in own)
    if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Assert | ast.Await):
        value = node.test if isinstance(node, ast.Assert) else node.value
        return _depends(value, tainted) and not (isinstance(node, ast.Await) and isinstance(value, ast.Call))
    return isinstance(node, ast.Raise | ast.Global | ast.Nonlocal)


def is_idle_call(call: ast.Call, tainted: set[str], own: Set[str] = frozenset()) -> bool:
    """True for a call that only logs, looks something up, or makes an object of constants; the arguments as for `_acts`."""
    name = name_of(call)
    if name[:1].isupper() and name not in BUILTINS:
        return not any(_depends(each, tainted) for each in (*call.args, *(each.value for each in call.keywords)))
    if isinstance(call.func, ast.Name):
        return name in _IDLE_FUNCTIONS or name in _IDLE_METHODS
    is_own = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in ("self", "cls")
    root = _root_of(call.func)
    if isinstance(root, ast.Constant | ast.JoinedStr):
        return True
    is_made_here = isinstance(root, ast.Name) and root.id in own | {"str", "repr", "bytes"}
    return name in (_IDLE_FOR_OWN if is_made_here else _IDLE_METHODS) and (name == "log" or not is_own)


def _root_of(node: ast.AST) -> ast.AST:
    """Return the expression with which a chain such as `name.strip()[0].upper` begins."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _condition_of(node: ast.AST) -> ast.AST | None:
    """Return the part of a statement that decides which of its blocks run; None for a statement without blocks."""
    if isinstance(node, ast.Try | ast.TryStar):
        return node
    return getattr(node, "test", None) or getattr(node, "subject", None) or getattr(node, "iter", None)


def _depends(node: ast.AST | None, names: set[str]) -> bool:
    """True if an expression reads one of these names."""
    return node is not None and any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def live_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of a body that can run with it: not those after a `return`, below `if False`, or in inner functions."""
    for statement in body:
        if not _is_constant_statement(statement):
            yield from _live_below(statement)
        if not reaches_end([statement]):
            return


def _live_below(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, _SCOPES):
        return
    skipped = _field_that_never_runs(node)
    for field, value in ast.iter_fields(node):
        if field != skipped and isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from live_nodes(value)
        elif field != skipped:
            for child in value if isinstance(value, list) else [value]:
                yield from _live_below(child) if isinstance(child, ast.AST) else ()
                if isinstance(node, ast.BoolOp) and constant_truth(child) is isinstance(node.op, ast.Or):
                    break  # the operands after it are never evaluated


def _field_that_never_runs(node: ast.AST) -> str:
    """Return the field with the block that a constant condition keeps from running; empty if every block can run."""
    if isinstance(node, ast.For) and constant_truth(node.iter) is False:
        return "body"
    truth = constant_truth(node.test) if isinstance(node, ast.If | ast.While | ast.IfExp) else None
    return "" if truth is None else "orelse" if truth else "body"


def _names_from_arguments(function: FunctionNode, live: list[ast.AST]) -> set[str]:
    """Return the parameters of a function, and the local names whose values come from them."""
    found = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    count = -1
    while count != len(found):
        count = len(found)
        for node in live:
            value = getattr(node, "iter", None) or getattr(node, "context_expr", None) or getattr(node, "value", None)
            if isinstance(value, ast.AST) and _depends(value, found):
                bound = [
                    getattr(node, "target", None),
                    getattr(node, "optional_vars", None),
                    *getattr(node, "targets", []),
                ]
                names = (each for target in filter(None, bound) for each in ast.walk(target))
                found |= {each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return found
