"""Turns `### edit OPERATION PATH TARGET` and its code blocks into a `CodeChange`, with the old text from the project.

Incomplete code is refused: `...` or `# rest unchanged` in place of code, diff markers, line numbers. Written to a file, such a
gap would delete the code that it stands for. Weak models often leave code out, and what they write still compiles.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import get_args

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change, complete_definition, symbol_text
from graphbus_core.editing.text.indentation import statements_of
from graphbus_core.editing.text.source_text import parse
from graphbus_core.errors import EditError
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import ChangeType, CodeChange, Operation
from graphbus_core.negotiation.answer_format import AnswerBlock, AnswerPart, clean_text, words_of

MAX_EDITS = 50

_BODY = "replace_body"
"""In an answer: `replace_symbol` with only the statements of a function, so that a model need not repeat the rest."""
_OPERATIONS: tuple[str, ...] = (*get_args(Operation), _BODY)
_CHANGE_TYPES: dict[str, ChangeType] = {"add_symbol": "add", "add_import": "add", "delete_symbol": "delete"}
_NEEDS_TARGET = frozenset({_BODY, "replace_symbol", "add_symbol", "delete_symbol", "set_decorator_argument"})
_TAKES_DEFINITION = frozenset({"replace_symbol", "add_symbol"})
_REPLACES_SYMBOL = frozenset({"replace_symbol", "delete_symbol", "set_decorator_argument"})


class UnusableEditError(ValueError):
    """An edit cannot be used; the message says why, in a sentence for the model."""


def read_edits(parts: Sequence[AnswerPart], project: Project) -> tuple[CodeChange, ...]:
    """Return the changes of one proposal; each applies to the files as the changes before it leave them.

    Whether a path may be changed and whether a symbol exists is not checked here; the gate does that.

    Args:
        parts: The `### edit` parts of an answer.

    Raises:
        UnusableEditError: An edit is malformed, its code is missing or incomplete, or there are more than `MAX_EDITS`.
    """
    if len(parts) > MAX_EDITS:
        raise UnusableEditError(f"A proposal may have {MAX_EDITS} edits; this one has {len(parts)}.")
    files = _EditedFiles(project)
    return tuple(_refuse_incomplete(files.apply(*_read_edit(part))) for part in parts)


def _refuse_incomplete(change: CodeChange) -> CodeChange:
    """Return the change; raise if its code leaves lines out, or if the code of a definition is a diff or a numbered listing."""
    where = f"The edit {change.operation} {clean_text(f'{change.file_path} {change.target}', 200)}".rstrip()
    gap = find_gap(change.new_code, change.old_code)
    if gap:
        raise UnusableEditError(
            f"{where} leaves code out: {clean_text(gap, 80)!r}. Write every line of the new code, or change only a few lines"
            " with search_replace."
        )
    marks = find_diff_marks(change.new_code) if change.operation in _TAKES_DEFINITION else ""
    if marks:
        raise UnusableEditError(f"{where} has {marks} in its code. Give the plain code as it shall stand in the file.")
    return change


class _EditedFiles:
    """The files with agents in them, after the earlier edits of the same proposal."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._data: dict[str, bytes] = {}

    def data(self, path: str) -> bytes | None:
        """Return the present bytes of a file with an agent in it; None for any other file."""
        if path not in self._data and path in self._project.agent_files:
            self._data[path] = self._project.source(path).data
        return self._data.get(path)

    def apply(self, change: CodeChange, is_body: bool) -> CodeChange:
        """Apply the change, so that the next edit is read against the result, and return it with the text that it expects.

        A change that cannot be applied is returned without an error: the gate will refuse it, and the author may repair it.

        Args:
            change: The change.
            is_body: Its new code has only the statements of the function that it replaces.

        Raises:
            UnusableEditError: The statements of a function leave code out, or are for no function of the file.
        """
        data = self.data(change.file_path)
        if data is None:
            return change
        if is_body:
            change = _complete(data, change)
        try:
            if change.target and (change.operation in _REPLACES_SYMBOL or change.operation == "search_replace"):
                is_replaced = change.operation == "replace_symbol"
                change = _with_expected_text(change, symbol_text(data, change.target, has_comment=is_replaced))
            self._data[change.file_path] = apply_change(data, change)
        except EditError:
            pass
        return change


def _complete(data: bytes, change: CodeChange) -> CodeChange:
    """Return a change of a body with its whole function as new code, or as it is if the gate must refuse it.

    Raises:
        UnusableEditError: The statements leave code out, or are for no function of the file.
    """
    gap = find_gap(change.new_code, "")
    if gap:  # checked before, since the rest of the function may hide it
        raise UnusableEditError(f"The edit {_BODY} {change.target} leaves code out: {clean_text(gap, 80)!r}.")
    try:
        return complete_definition(data, change)
    except EditError as error:
        if not _is_broken(change.new_code):
            raise UnusableEditError(f"The edit {_BODY} {change.target} cannot be made. {error.sentence}") from None
        return change


def _is_broken(statements: str) -> bool:
    """Return whether the statements of a function do not parse."""
    try:
        statements_of(textwrap.indent(textwrap.dedent(statements), "    "))
    except SyntaxError:
        return True
    return False


def _with_expected_text(change: CodeChange, seen: str) -> CodeChange:
    """Return the change with the digest of its target's text `seen`, which becomes `old_code` if it replaces the target."""
    return CodeChange(
        file_path=change.file_path,
        target=change.target,
        change_type=change.change_type,
        operation=change.operation,
        old_code=seen if change.operation in _REPLACES_SYMBOL else change.old_code,
        new_code=change.new_code,
        base_sha256=sha256_hex(seen.encode()),
    )


def _read_edit(part: AnswerPart) -> tuple[CodeChange, bool]:
    """Return the change that one `### edit` part describes, without `base_sha256`, and whether its code is only a body.

    Raises:
        UnusableEditError: The heading or the blocks do not have the form that the operation needs.
    """
    words = words_of(part.rest)
    operation = words[0].lower().replace("-", "_").rstrip(":") if words else ""
    if any("diff" in block.label or "patch" in block.label for block in part.blocks):
        raise UnusableEditError("A diff is no edit. Give the whole new definition, or a few lines with search_replace.")
    if operation not in _OPERATIONS:
        known = ", ".join(_OPERATIONS)
        raise UnusableEditError(
            f"{clean_text(operation, 80) or 'nothing'!r} is no operation of an edit; there are {known}."
        )
    where = f"The edit {operation} {clean_text(' '.join(words[1:]), 200)}".rstrip()
    if len(words) < 2:
        raise UnusableEditError(f"{where} does not name its file.")
    target = "" if operation == "add_import" else "".join(words[2:3]).removesuffix("()")
    if operation in _NEEDS_TARGET and not target:
        raise UnusableEditError(f"{where} does not name its symbol, e.g. `Class.method`.")
    if len(words) > 3:
        raise UnusableEditError(f"{where} names more than a file and a symbol.")
    old, new = _read_code(operation, part.blocks, where)
    change = CodeChange(
        file_path=_strip_dot_slash(words[1]),
        target=target,
        change_type=_CHANGE_TYPES.get(operation, "modify"),
        operation="replace_symbol" if operation == _BODY else operation,  # type: ignore[arg-type] # one of _OPERATIONS
        old_code=old,
        new_code=new,
    )
    return change, operation == _BODY


def _strip_dot_slash(text: str) -> str:
    """Return a path without `./` at its beginning."""
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return text


def _read_code(operation: str, blocks: Sequence[AnswerBlock], where: str) -> tuple[str, str]:
    """Return old and new code from the blocks of an edit; only search_replace has old code, and delete_symbol has neither."""
    if operation == "search_replace":
        return _read_old_and_new(blocks, where)
    if operation == "delete_symbol":
        return "", ""
    if not blocks or not blocks[-1].text.strip():
        raise UnusableEditError(f"{where} has no code in a fenced block.")
    if len(blocks) > 1:
        raise UnusableEditError(f"{where} has {len(blocks)} blocks of code; give one, the whole new code.")
    return "", _refuse_lone_surrogates(blocks[0].text, where)


def _read_old_and_new(blocks: Sequence[AnswerBlock], where: str) -> tuple[str, str]:
    """Return the text of the blocks ```old and ```new, or of two blocks without these labels in this order."""
    labelled = {name: [block for block in blocks if name in block.label] for name in ("old", "new")}
    found = [*labelled["old"], *labelled["new"]] or list(blocks)
    is_clear = len(blocks) == 2 and len(found) == 2 and len(labelled["old"]) == len(labelled["new"])
    if not is_clear:
        raise UnusableEditError(f"{where} needs two fenced blocks, ```old and ```new.")
    if not found[0].text.strip():
        raise UnusableEditError(f"{where} has an empty ```old block.")
    return _refuse_lone_surrogates(found[0].text, where), _refuse_lone_surrogates(found[1].text, where)


def _refuse_lone_surrogates(code: str, where: str) -> str:
    """Return the code; raise if it contains half of a surrogate pair, which cannot be encoded as UTF-8."""
    try:
        code.encode()
    except UnicodeEncodeError:
        raise UnusableEditError(f"{where} has code with characters that are none.") from None
    return code


# --- code that a model has left out -----------------------------------------------------


_LEFT_OUT = r"(?:rest|remainder|remaining|existing|other|previous|original|same|unchanged|current|your|more)"
_CODE_WORD = (
    r"(?:code|class|function|methods?|body|implementation|logic|lines?|file|definitions?|imports?|parts?|stuff|as)"
)
_REMAINS = r"(?:is|are|remains?|stays?|goes|as|was)?\s*(?:the\s+)?(?:here|unchanged|same|before|above|omitted|is|it)?"
_PLACEHOLDER = re.compile(
    rf"#+\s*(?:(?:\.{{3}}|…)\s*|[\[(<]\s*)?(?:keep\s+|the\s+|all\s+|with\s+)*"
    rf"(?:{_LEFT_OUT}(?:\s+of)?(?:\s+the|\s+this)?(?:\s+{_LEFT_OUT})?(?:\s+{_CODE_WORD}){{1,3}}\s*{_REMAINS}(?:\s+(?:before|above|here|was|is))?"
    r"|(?:the\s+)?(?:rest|remainder|everything\s+else)\s*(?:is|remains?|stays?)?\s*(?:unchanged|the\s+same|as\s+(?:is|before)|omitted)"
    r"|(?:unchanged|no\s+changes?(?:\s+(?:here|needed))?|same\s+as\s+(?:before|above)|code\s+omitted|omitted(?:\s+for\s+brevity)?))"
    r"\s*(?:\.{3}|…|[\])>])?\s*[.:]?\s*",
    re.IGNORECASE,
)
_DOTTED = re.compile(rf"#+[ ]?(?:\.{{3}}|…)(?:.*\b{_LEFT_OUT}\b.*|\s*)", re.IGNORECASE)
"""A comment with three dots and nothing else, or with one of `_LEFT_OUT` after the dots."""
_PLACEHOLDERS = (_PLACEHOLDER, _DOTTED, re.compile("…"))
_MAX_LINE_CHARS = 100
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DOTS = ("...", "…")
_NUMBERED = re.compile(r"\s*\d+\s?[|:]")


def find_gap(code: str, old: str) -> str:
    """Return the first line that stands for omitted code; empty if the code is complete.

    Args:
        code: The new code, which a model has written.
        old: The code that it replaces; a placeholder that this already has is allowed.
    """
    before = {line.strip() for line in old.splitlines()}
    for line in code.splitlines():
        bare = line.strip()
        if len(bare) <= _MAX_LINE_CHARS and bare not in before and any(one.fullmatch(bare) for one in _PLACEHOLDERS):
            return bare
    return _find_bare_dots(code, old)


def find_diff_marks(code: str) -> str:
    """Return `"line numbers"` or `"the marks of a diff"` if code looks so and cannot be parsed as Python; else empty."""
    lines = [line for line in code.splitlines() if line.strip()]
    is_numbered = bool(lines) and all(_NUMBERED.match(line) for line in lines)
    is_diff = any(line.startswith(("+", "@@")) for line in lines) and all(line[0] in "+-@ \\" for line in lines)
    if not (is_numbered or is_diff) or _parse_fragment(code) is not None:
        return ""
    return "line numbers" if is_numbered else "the marks of a diff"


def _find_bare_dots(code: str, old: str) -> str:
    """Return the `...` that stands for omitted code; empty if there is none.

    It does so among other statements, or as the whole body of a definition that had a real body in the old code. In code that
    cannot be parsed, any line with nothing but dots counts.
    """
    if not any(dots in code for dots in _DOTS):
        return ""
    tree, old_tree = _parse_fragment(code), _parse_fragment(old)
    if any(line.strip() in _DOTS for line in old.splitlines()):
        return ""  # the old code has such a line too, so it is not a gap
    if tree is None:
        return next((line.strip() for line in code.splitlines() if line.strip() in _DOTS), "")
    implemented = {name for name, body in _iterate_bodies(old_tree) if not _is_stub(body)} if old_tree else set()
    for name, body in [("", tree.body), *_iterate_bodies(tree)]:
        if name and name in implemented and _is_stub(body):
            return "..."
        if any(map(_is_dots, body)) and not _is_stub(body):
            return "..."
    return ""


def _iterate_bodies(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield (name, statements) for every block below a node; the name is qualified for the body of a definition, else empty."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{node.name}" if isinstance(node, _DEFINITIONS) else prefix
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield (name if field == "body" and isinstance(node, _DEFINITIONS) else ""), value
        yield from _iterate_bodies(node, name)


def _is_dots(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _is_stub(body: list[ast.stmt]) -> bool:
    """Return whether a body has only `...`, with or without a docstring before it."""
    first = body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    rest = body[1:] if has_docstring else body
    return len(rest) == 1 and _is_dots(rest[0])


def _parse_fragment(code: str) -> ast.Module | None:
    """Return the syntax tree of a definition or of some lines of one, indented or not; None if it cannot be parsed."""
    _first, _, rest = code.partition("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest.split("\n") if line.strip()), default=0)
    for text in (code, " " * indent + code):  # a model may have dropped the indent of the first line only
        with suppress(SyntaxError):
            return parse(textwrap.dedent(text))
    return None
