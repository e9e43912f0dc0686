"""Draws functions and error messages at random, for independent readers to judge; the same seed draws the same.

The first table names functions by file and line: a reader opens that file alone. The second shows error messages as a user sees
them, with a place that raises each. Their data comes from `draw_examples.json`, one example for each code. `--table FILE` keeps
the verdicts of an earlier table for the rows that are drawn again.

    python scripts/draw.py --seed 7 --functions 60 --messages 40 > docs/reading.md
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from graphbus_core.errors import GraphBusError

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "graphbus_core"
EXAMPLES = json.loads((ROOT / "scripts" / "draw_examples.json").read_text(encoding="utf-8"))
READERS = ("reader 1", "reader 2", "reader 3")
VERDICTS = "Each reader writes `clear`, or `unclear:` and why."


def find_functions() -> Iterator[tuple[str, int, str]]:
    """Every function and method: path, line and full name."""
    for path in _sources():
        yield from _functions_of(ast.parse(path.read_text(encoding="utf-8")), _shown(path), "")


def _functions_of(node: ast.AST, path: str, above: str) -> Iterator[tuple[str, int, str]]:
    for child in ast.iter_child_nodes(node):
        name = f"{above}{getattr(child, 'name', '')}"
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield path, child.lineno, name
        elif isinstance(child, ast.ClassDef):
            yield from _functions_of(child, path, f"{name}.")
        else:
            yield from _functions_of(child, path, above)


def find_raised() -> dict[str, list[str]]:
    """Code -> `path:line` of the places that name it, in the order of the files; the register itself is no such place."""
    found: dict[str, list[str]] = {}
    for path in _sources():
        if path.parent.name != "errors":
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for code in re.findall(r'"(GBE\d{3})"', line):
                    found.setdefault(code, []).append(f"{_shown(path)}:{number}")
    return found


def _sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts]


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def render_message(code: str) -> str:
    """The message of a code as the command line shows it."""
    data = dict(EXAMPLES[code])
    where = data.pop("where")
    error = GraphBusError(code, **data)
    return f"{where}{': ' if where else ''}error: {error.sentence} [{code}]\n  hint: {error.hint}"


def make_table(headers: Sequence[str], rows: Iterable[Sequence[str]], verdicts: dict[str, list[str]]) -> Iterator[str]:
    """A Markdown table with a column for each reader; verdicts belong to the last cell of a row."""
    yield f"| {' | '.join((*headers, *READERS))} |"
    yield f"|{'---|' * (len(headers) + len(READERS))}"
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in row]
        yield f"| {' | '.join((*cells, *verdicts.get(cells[-1], [''] * len(READERS))))} |"


def read_verdicts(text: str) -> dict[str, list[str]]:
    """What was judged -> the verdicts of the readers, from tables that were made before."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) > len(READERS)]
    return {row[-len(READERS) - 1]: row[-len(READERS) :] for row in cells}


def draw(seed: int, functions: int, messages: int, verdicts: dict[str, list[str]]) -> Iterator[str]:
    """The tables as lines of Markdown."""
    chance = random.Random(seed)
    yield from (f"# What readers understand\n\nDrawn by `scripts/draw.py` with the seed {seed}. {VERDICTS}", "")
    if functions:
        drawn = sorted(chance.sample(list(find_functions()), functions))
        rows = [(str(number), f"{path}:{line}", f"`{name}`") for number, (path, line, name) in enumerate(drawn, 1)]
        yield from (f"## {functions} functions", "", *make_table(("", "place", "function"), rows, verdicts), "")
    if messages:
        places = find_raised()
        codes = sorted(chance.sample(sorted(places), messages))
        rows = [
            (str(number), chance.choice(places[code]), render_message(code)) for number, code in enumerate(codes, 1)
        ]
        yield from (f"## {messages} messages", "", *make_table(("", "place", "message"), rows, verdicts))


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--functions", type=int, default=0, metavar="N")
    options.add_argument("--messages", type=int, default=0, metavar="N")
    options.add_argument("--table", type=Path, metavar="FILE", help="keep the verdicts of this table")
    asked = options.parse_args()
    verdicts = read_verdicts(asked.table.read_text(encoding="utf-8")) if asked.table else {}
    print("\n".join(draw(asked.seed, asked.functions, asked.messages, verdicts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
