"""`### edit OPERATION PATH TARGET` with its blocks -> `CodeChange`; the old text is filled in from the project.

Incomplete code is refused: `...` or `# rest unchanged` in place of code, diff markers, line numbers. Written to a file, such a
gap would delete the code that it stands for. Weak models often leave code out, and the rest still compiles.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import get_args

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change, symbol_text
from graphbus_core.editing.text.source_text import parse
from graphbus_core.errors import EditError
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import ChangeType, CodeChange, Operation
from graphbus_core.negotiation.answer_format import AnswerBlock, AnswerPart, clean_text

MAX_EDITS = 50

_OPERATIONS: tuple[str, ...] = get_args(Operation)
_KIND: dict[str, ChangeType] = {"add_symbol": "add", "add_import": "add", "delete_symbol": "delete"}
_NEEDS_TARGET = frozenset({"replace_symbol", "add_symbol", "delete_symbol", "set_decorator_argument"})
_DEFINES = frozenset({"replace_symbol", "add_symbol"})
_REPLACES = frozenset({"replace_symbol", "delete_symbol", "set_decorator_argument"})
_QUOTED = re.compile(r"`+([^`]+)`+|(\S+)")


class UnusableEditError(ValueError):
    """An edit cannot be used; the sentence says why, for the model."""


def read_edits(parts: Sequence[AnswerPart], project: Project) -> tuple[CodeChange, ...]:
    """Return the changes of one proposal, each written for the text that the ones before it leave behind.

    Whether a path may be changed and a symbol exists is checked by the gate.

    Raises:
        UnusableEditError: The operation is not known, or code is missing.
    """
    if len(parts) > MAX_EDITS:
        raise UnusableEditError(f"A proposal may have {MAX_EDITS} edits; this one has {len(parts)}.")
    snapshot = _ShownFiles(project)
    return tuple(_whole(snapshot.note(_read_edit(part))) for part in parts)


def _whole(change: CodeChange) -> CodeChange:
    """Return the change if its code is complete; a gap would delete the code that it stands for."""
    where = f"The edit {change.operation} {clean_text(f'{change.file_path} {change.target}', 200)}".rstrip()
    gap = find_gap(change.new_code, change.old_code)
    if gap:
        raise UnusableEditError(
            f"{where} leaves code out: {clean_text(gap, 80)!r}. Write every line of the new code, or change only a few lines"
            " with search_replace."
        )
    marks = find_diff_marks(change.new_code) if change.operation in _DEFINES else ""
    if marks:
        raise UnusableEditError(f"{where} has {marks} in its code. Give the plain code as it shall stand in the file.")
    return change


class _ShownFiles:
    """The files as the author was shown them, with its own earlier edits applied."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._data: dict[str, bytes] = {}

    def data(self, path: str) -> bytes | None:
        """Return the bytes of a file with an agent in it; None for any other file."""
        if path not in self._data and path in self._project.agent_files:
            self._data[path] = self._project.source(path).data
        return self._data.get(path)

    def note(self, change: CodeChange) -> CodeChange:
        """Return the change with the old text, and apply it so that the next edit is read against the result."""
        data = self.data(change.file_path)
        if data is None:
            return change
        try:
            if change.target and (change.operation in _REPLACES or change.operation == "search_replace"):
                change = _with_base(change, symbol_text(data, change.target))
            self._data[change.file_path] = apply_change(data, change)
        except EditError:
            pass  # the gate will refuse it with its code, and the author may repair it
        return change


def _with_base(change: CodeChange, seen: str) -> CodeChange:
    return CodeChange(
        file_path=change.file_path,
        target=change.target,
        change_type=change.change_type,
        operation=change.operation,
        old_code=seen if change.operation in _REPLACES else change.old_code,
        new_code=change.new_code,
        base_sha256=sha256_hex(seen.encode()),
    )


def _read_edit(part: AnswerPart) -> CodeChange:
    words = [quoted or bare for quoted, bare in _QUOTED.findall(part.rest)]
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
    old, new = _code(operation, part.blocks, where)
    return CodeChange(
        file_path=_path(words[1]),
        target=target,
        change_type=_KIND.get(operation, "modify"),
        operation=operation,  # type: ignore[arg-type] # one of them, see above
        old_code=old,
        new_code=new,
    )


def _path(text: str) -> str:
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return text


def _code(operation: str, blocks: Sequence[AnswerBlock], where: str) -> tuple[str, str]:
    if operation == "search_replace":
        return _old_and_new(blocks, where)
    if operation == "delete_symbol":
        return "", ""
    if not blocks or not blocks[-1].text.strip():
        raise UnusableEditError(f"{where} has no code in a fenced block.")
    if len(blocks) > 1:
        raise UnusableEditError(f"{where} has {len(blocks)} blocks of code; give one, the whole new code.")
    return "", _sound(blocks[0].text, where)


def _old_and_new(blocks: Sequence[AnswerBlock], where: str) -> tuple[str, str]:
    """Return old and new text: the blocks with these labels, or two blocks without labels in this order."""
    labelled = {name: [block for block in blocks if name in block.label] for name in ("old", "new")}
    found = [*labelled["old"], *labelled["new"]] or list(blocks)
    is_clear = len(blocks) == 2 and len(found) == 2 and len(labelled["old"]) == len(labelled["new"])
    if not is_clear:
        raise UnusableEditError(f"{where} needs two fenced blocks, ```old and ```new.")
    if not found[0].text.strip():
        raise UnusableEditError(f"{where} has an empty ```old block.")
    return _sound(found[0].text, where), _sound(found[1].text, where)


def _sound(code: str, where: str) -> str:
    """Return the code if it can be encoded; half of a surrogate pair cannot."""
    try:
        code.encode()
    except UnicodeEncodeError:
        raise UnusableEditError(f"{where} has code with characters that are none.") from None
    return code


# --- code that a model has not written out -----------------------------------------------------


_WHAT = r"(?:rest|remainder|remaining|existing|other|previous|original|same|unchanged|current|your|more)"
_CODE = r"(?:code|class|function|methods?|body|implementation|logic|lines?|file|definitions?|imports?|parts?|stuff|as)"
_STANDS = r"(?:is|are|remains?|stays?|goes|as|was)?\s*(?:the\s+)?(?:here|unchanged|same|before|above|omitted|is|it)?"
_PLACEHOLDER = re.compile(
    rf"#+\s*(?:(?:\.{{3}}|…)\s*|[\[(<]\s*)?(?:keep\s+|the\s+|all\s+|with\s+)*"
    rf"(?:{_WHAT}(?:\s+of)?(?:\s+the|\s+this)?(?:\s+{_WHAT})?(?:\s+{_CODE}){{1,3}}\s*{_STANDS}(?:\s+(?:before|above|here|was|is))?"
    r"|(?:the\s+)?(?:rest|remainder|everything\s+else)\s*(?:is|remains?|stays?)?\s*(?:unchanged|the\s+same|as\s+(?:is|before)|omitted)"
    r"|(?:unchanged|no\s+changes?(?:\s+(?:here|needed))?|same\s+as\s+(?:before|above)|code\s+omitted|omitted(?:\s+for\s+brevity)?))"
    r"\s*(?:\.{3}|…|[\])>])?\s*[.:]?\s*",
    re.IGNORECASE,
)
_DOTTED = re.compile(rf"#+[ ]?(?:\.{{3}}|…)(?:.*\b{_WHAT}\b.*|\s*)", re.IGNORECASE)
"""`# ...` alone, or followed by a word for the code that is left out."""
_PLACEHOLDERS = (_PLACEHOLDER, _DOTTED, re.compile("…"))
_LONGEST = 100
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DOTS = ("...", "…")
_NUMBERED = re.compile(r"\s*\d+\s?[|:]")


def find_gap(code: str, old: str) -> str:
    """Return the first line that stands for code left out; empty if the code is complete.

    Args:
        code: The code of the model.
        old: The code that it replaces; lines that it already had are allowed.
    """
    before = {line.strip() for line in old.splitlines()}
    for line in code.splitlines():
        bare = line.strip()
        if len(bare) <= _LONGEST and bare not in before and any(one.fullmatch(bare) for one in _PLACEHOLDERS):
            return bare
    return _bare_dots(code, old)


def find_diff_marks(code: str) -> str:
    """Return what code that cannot be parsed looks like: a diff, or a listing with line numbers; empty if neither."""
    lines = [line for line in code.splitlines() if line.strip()]
    is_numbered = bool(lines) and all(_NUMBERED.match(line) for line in lines)
    is_diff = any(line.startswith(("+", "@@")) for line in lines) and all(line[0] in "+-@ \\" for line in lines)
    if not (is_numbered or is_diff) or _tree(code) is not None:
        return ""
    return "line numbers" if is_numbered else "the marks of a diff"


def _bare_dots(code: str, old: str) -> str:
    """`...` among other statements, or as the body of what had one."""
    if not any(dots in code for dots in _DOTS):
        return ""
    tree, old_tree = _tree(code), _tree(old)
    if any(line.strip() in _DOTS for line in old.splitlines()):
        return ""  # it was there before
    if tree is None:
        return next((line.strip() for line in code.splitlines() if line.strip() in _DOTS), "")
    whole = {name for name, body in _bodies(old_tree) if not _is_stub(body)} if old_tree else set()
    for name, body in [("", tree.body), *_bodies(tree)]:
        if name and name in whole and _is_stub(body):
            return "..."
        if any(map(_is_dots, body)) and not _is_stub(body):
            return "..."
    return ""


def _bodies(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield every block of statements; that of a definition with its qualified name, others without one."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{node.name}" if isinstance(node, _DEFINITIONS) else prefix
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield (name if field == "body" and isinstance(node, _DEFINITIONS) else ""), value
        yield from _bodies(node, name)


def _is_dots(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _is_stub(body: list[ast.stmt]) -> bool:
    """Nothing but `...`, after a docstring perhaps."""
    first = body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    rest = body[1:] if has_docstring else body
    return len(rest) == 1 and _is_dots(rest[0])


def _tree(code: str) -> ast.Module | None:
    """The tree of a definition or of a few lines out of one; None when it cannot be parsed."""
    _first, _, rest = code.partition("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest.split("\n") if line.strip()), default=0)
    for text in (code, " " * indent + code):  # the blanks before a first line may be missing
        with suppress(SyntaxError):
            return parse(textwrap.dedent(text))
    return None
