"""What sources name and an image would lack: files with data, and modules that no `import` statement leads to.

The artifacts know what is imported. What a text names is only found when it runs, and in production that is too late. Nothing is
run here: a text counts if it is the name of a file of the project.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.deploy.image import ImagePlan

_FILE = re.compile(r"(?:\./)?[\w@+~%-][\w .@+~%-]*(?:/[\w@+~%-][\w .@+~%-]*)*/?")
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?::[A-Za-z_][\w.]*)?")
_LONGEST = 200
_BY_NAME = ("import_module", "__import__")


class LeftOut(NamedTuple):
    """A file or folder of the project, and the first line that names it."""

    path: str
    source: str
    line: int


def find_left_out(root: Path, plan: ImagePlan, import_roots: Sequence[str]) -> list[LeftOut]:
    """Return each file that is left out once, sorted by name."""
    found: dict[str, LeftOut] = {}
    for source in _sources(root, plan):
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


def _sources(root: Path, plan: ImagePlan) -> Iterator[str]:
    """All that is Python: what the artifacts know, and what was included, which no build has read."""
    yield from (path for path in (*plan.sources, *plan.includes) if path.endswith(".py"))
    for folder in plan.includes:
        if folder.endswith("/"):
            yield from sorted(path.relative_to(root).as_posix() for path in (root / folder).rglob("*.py"))


def _names(tree: ast.Module, source: str, import_roots: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield a line, and the files that may be meant there."""
    folder = os.path.dirname(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST:
            if module := _MODULE.fullmatch(node.value):
                yield node.lineno, _files_of(module[1], import_roots)
            if _FILE.fullmatch(node.value):
                yield node.lineno, [os.path.join(folder, node.value), node.value]
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            yield from ((node.lineno, _files_of(name, import_roots)) for name in _imported(node, source))


def _imported(node: ast.Import | ast.ImportFrom | ast.Call, source: str) -> Iterator[str]:
    """Yield the modules that a statement or a call imports; a relative one by its path from the top of the project."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = source.split("/")[: -node.level] if node.level else []
        first = ".".join([*above, *([node.module] if node.module else [])])
        yield from (first, *(f"{first}.{each.name}" for each in node.names))
    elif node.args and getattr(node.func, "attr", getattr(node.func, "id", "")) in _BY_NAME:
        name = getattr(node.args[0], "value", None)
        if isinstance(name, str) and name.isidentifier():
            yield name


def _files_of(module: str, import_roots: Sequence[str]) -> list[str]:
    path = module.replace(".", "/")
    return [os.path.join(top, name) for top in ("", *import_roots) for name in (f"{path}.py", f"{path}/__init__.py")]


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
    beside = {each.rpartition("/")[0] for each in plan.sources if each.endswith(".py")} - {""}
    own = (f"{plan.folder}/", f"{plan.artifacts}/", *(each for each in plan.includes if each.endswith("/")))
    is_named = path in (*plan.sources, *plan.includes, plan.requirements)
    return is_named or f"{path}/".startswith(own) or (path.endswith(".py") and path.rpartition("/")[0] in beside)
