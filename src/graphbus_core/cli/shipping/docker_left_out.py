"""What sources speak of and an image would lack: files with data, and modules that only a name leads to.

The artifacts know what is imported by a statement. What a text names is found when it runs, and in production that is too late.
Nothing is run here: a text that is the name of a file of the project counts.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.deploy.image.plan import ImagePlan

_FILE = re.compile(r"(?:\./)?[\w@+~%-][\w .@+~%-]*(?:/[\w@+~%-][\w .@+~%-]*)*/?")
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?::[A-Za-z_][\w.]*)?")
_LONGEST = 200
_BY_NAME = ("import_module", "__import__")


class LeftOut(NamedTuple):
    """A file or folder of the project, and the first line that speaks of it."""

    path: str
    source: str
    line: int


def find_left_out(root: Path, plan: ImagePlan, import_roots: Sequence[str]) -> list[LeftOut]:
    """Give each once, by its name."""
    found: dict[str, LeftOut] = {}
    for source in _modules(root, plan):
        try:
            tree = parse((root / source).read_bytes(), source)
        except (SyntaxError, ValueError, OSError):
            continue  # a run says so; here it is only not read
        for line, names in _names(tree, source, import_roots):
            there = (os.path.normpath(name) for name in names)
            path = next((path for path in there if _is_of_the_project(root, path)), "")
            if path and not _is_taken(path, plan):
                found.setdefault(path, LeftOut(path, source, line))
    return sorted(found.values())


def _modules(root: Path, plan: ImagePlan) -> Iterator[str]:
    """All that is Python: what the artifacts know, and what was included, which nobody has looked at before."""
    yield from (path for path in (*plan.sources, *plan.includes) if path.endswith(".py"))
    for folder in plan.includes:
        if folder.endswith("/"):
            yield from sorted(path.relative_to(root).as_posix() for path in (root / folder).rglob("*.py"))


def _names(tree: ast.Module, source: str, import_roots: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Give line, and the files that may be meant there."""
    folder = os.path.dirname(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST:
            if module := _MODULE.fullmatch(node.value):
                yield node.lineno, list(_files_of([module[1]], import_roots))
            if _FILE.fullmatch(node.value):
                yield node.lineno, [os.path.join(folder, node.value), node.value]
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)):
            yield from ((node.lineno, list(_files_of([name], import_roots))) for name in _imported(node, source))


def _imported(node: ast.Import | ast.ImportFrom | ast.Call, source: str) -> Iterator[str]:
    """The modules that a statement, or a call, imports; a relative one as a path."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = "/".join(source.split("/")[: -node.level]) if node.level else ""
        first = ".".join(filter(None, (above.replace("/", "."), node.module)))
        yield from (first, *(f"{first}.{each.name}" for each in node.names))
    elif node.args and getattr(node.func, "attr", getattr(node.func, "id", "")) in _BY_NAME:
        name = getattr(node.args[0], "value", None)
        if isinstance(name, str) and re.fullmatch(r"\w+", name):
            yield name


def _files_of(modules: Iterable[str], import_roots: Sequence[str]) -> Iterator[str]:
    """A path that came of a relative import begins at the top of the project already."""
    for module in modules:
        path = module.replace(".", "/")
        for top in ("", *import_roots):
            yield from (os.path.join(top, f"{path}.py"), os.path.join(top, path, "__init__.py"))


def _is_of_the_project(root: Path, path: str) -> bool:
    """True for a file, and for a folder with data: one with modules is named like much else."""
    if any(part.startswith(".") for part in path.split("/")):
        return False
    try:
        inside = [each for each in os.listdir(root / path) if not each.startswith(".")]
    except NotADirectoryError:
        return True
    except (OSError, ValueError):
        return False
    return bool(inside) and not any(each.endswith(".py") or each == "__pycache__" for each in inside)


def _is_taken(path: str, plan: ImagePlan) -> bool:
    """True for what the ignore file lets through, and for what this command writes."""
    folder, _, _ = path.rpartition("/")
    beside = {each.rpartition("/")[0] for each in plan.sources if each.endswith(".py")} - {""}
    own = (f"{plan.folder}/", f"{plan.artifacts}/", *(each for each in plan.includes if each.endswith("/")))
    is_named = path in (*plan.sources, *plan.includes, plan.requirements)
    return is_named or f"{path}/".startswith(own) or (path.endswith(".py") and folder in beside)
