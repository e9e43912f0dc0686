"""Code that a model has not written out: `...` and `# rest unchanged` where code should stand, diff markers, line numbers.

Written to a file it would delete what it stands for. Weak models do it often, and what is left compiles. Pure.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress

from graphbus_core.editing.text.source_text import parse

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
"""`# ...` with nothing behind it, or with a word that says what is left out."""
_PLACEHOLDERS = (_PLACEHOLDER, _DOTTED, re.compile("…"))
_LONGEST = 100
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DOTS = ("...", "…")
_NUMBERED = re.compile(r"\s*\d+\s?[|:]")


def left_out(code: str, old: str) -> str:
    """Give the first line of code that stands for code that is not there; empty when there is none.

    Args:
        code: What a model has written.
        old: What it takes the place of: a line that was there before is no sign of haste.
    """
    before = {line.strip() for line in old.splitlines()}
    for line in code.splitlines():
        bare = line.strip()
        if len(bare) <= _LONGEST and bare not in before and any(one.fullmatch(bare) for one in _PLACEHOLDERS):
            return bare
    return _bare_dots(code, old)


def marked(code: str) -> str:
    """Say of code that cannot be parsed what else its lines look like: a diff, or a listing; empty when neither."""
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
        return ""  # it was there before, or the quoted text leaves lines out and so may the new one
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
    """Give every block of statements; that of a definition with its qualified name, others without one."""
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
