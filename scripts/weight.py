"""How much there is to read: lines, files, names and function lengths of the source and of its tests.

python scripts/weight.py [ROOT]     another checkout than this one, to compare two
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 600
SMALL_FILE = 100


def modules(folder: Path) -> dict[Path, str]:
    """Path -> text of the Python files below a folder, without templates and sample projects."""
    paths = (path for path in sorted(folder.rglob("*.py")) if not {"templates", "projects"} & {*path.parts})
    return {path: path.read_text(encoding="utf-8") for path in paths}


def public_names(tree: ast.Module) -> list[str]:
    """The functions and classes at the top level of a module that it does not hide."""
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    return [node.name for node in defined if not node.name.startswith("_")]


def function_lengths(trees: Iterable[ast.Module]) -> list[int]:
    """Lines of the functions and methods, docstrings and decorators left out."""
    found = []
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            found.append((body[-1].end_lineno or 0) - body[0].lineno + 2)
    return found


def lines_of(texts: Iterable[str]) -> int:
    """All lines, blank ones and comments too."""
    return sum(text.count("\n") for text in texts)


def words_of_pages(root: Path) -> tuple[int, int]:
    """Words that users are meant to read (README and the pages before the reference section), and of all other pages in docs/."""
    before_reference = (root / "zensical.toml").read_text(encoding="utf-8").partition('"Reference" = [')[0]
    named = re.findall(r'"([\w/-]+\.md)"', before_reference)
    user = {root / "README.md", *(root / "docs" / name for name in named)}
    others = {page for page in (root / "docs").rglob("*.md") if page.parent.name != "api"} - user
    words = [sum(len(page.read_text(encoding="utf-8").split()) for page in pages) for pages in (user, others)]
    return words[0], words[1]


def figures(root: Path) -> dict[str, str]:
    """What -> how much, in the order in which it is printed."""
    source, tests = modules(root / "src" / "graphbus_core"), modules(root / "tests")
    trees = {path: ast.parse(text) for path, text in source.items()}
    lengths = function_lengths(trees.values())
    classes = Counter(node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef))
    shared = [name for name, count in classes.items() if count > 1 and not name.startswith("_")]
    sizes = [text.count("\n") for text in source.values()]
    user_words, reference_words = words_of_pages(root)
    return {
        "source lines": f"{lines_of(source.values())}",
        "source files": f"{len(source)}",
        f"files under {SMALL_FILE} lines": f"{sum(size < SMALL_FILE for size in sizes)}",
        f"files over {LONGEST_FILE} lines": f"{sum(size > LONGEST_FILE for size in sizes)}",
        "public top-level names": f"{sum(len(public_names(tree)) for tree in trees.values())}",
        "class names with several meanings": f"{len(shared)}",
        "function lines, median and p90": f"{median(lengths):.0f} and {quantiles(lengths, n=10)[-1]:.0f}",
        "test lines": f"{lines_of(tests.values())}",
        "test files": f"{len(tests)}",
        "words of user pages": f"{user_words}",
        "words of reference pages": f"{reference_words}",
    }


def main() -> None:
    """Print the figures."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    for what, value in figures(root).items():
        print(f"{what:<36}{value:>12}")


if __name__ == "__main__":
    main()
