"""Draws functions and error messages at random, for independent readers to judge; the same seed draws the same.

The first table names functions by file and line: a reader opens that file alone. The second shows error messages as a user
sees them, each from a place that raises it, with examples for what is only known there. `--table FILE` reads verdicts that
were given before, so that a table can be made again without losing them.

    python scripts/draw.py --seed 7 --functions 60 --messages 40 > docs/reading.md
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphbus_core import errors
from graphbus_core.errors.register import REGISTER

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "graphbus_core"
READERS = ("reader 1", "reader 2", "reader 3")
EXAMPLES = {
    "accepted": "def on_order_placed(self, event): ...", "address": "127.0.0.1:8765", "agent": "OrderProcessor",
    "advice": "Set both: `git config user.name ...` and `git config user.email ...`.", "base": "python:3.12-slim",
    "command": "graphbus check", "count": 2, "cycle": "OrderProcessor → Pricing → OrderProcessor", "encoding": "latin-1",
    "edges": "Checkout -> Payments (/Order/Accepted)", "error": "KeyError: 'items'", "event_id": "3f2a91c4",
    "example": "shop:1.4.2", "expected": "a whole number", "factory": "shop.wiring:make", "field": "quantity",
    "file": "requirements.txt", "folder": ".graphbus", "folders": "agents, more_agents", "found": "production",
    "gaps": "files; network and programs", "got": "'twelve'", "handler": "OrderProcessor.on_order_placed",
    "host": "0.0.0.0", "image": "ghcr.io/acme/shop", "key": "max_negotiation_rounds", "kind": "namespace",
    "known": "InventoryService, OrderProcessor", "length": 32, "limit": 1000, "limit_bytes": 1_000_000, "line": 12,
    "lines": "12, 40", "message": "--json and --format sarif contradict each other.", "method": "reserve",
    "middleware": "shop.middleware.measure", "missing": "`version`", "model": "anthropic:claude-sonnet-5-5",
    "module": "agents.orders", "modules": "requests, yaml", "name": "OrderProcessor", "names": "compose.yaml, Dockerfile",
    "namespace": "production", "nearest": "'def reserve(self, sku, qty):'", "needed": "--enable-agents", "number": 12,
    "oldest": 1, "one": "/Order/Created", "option": "--watch", "origin": "https://shop.example.org",
    "other": "InventoryService", "package": "anthropic", "packages": "starlette and uvicorn", "path": "agents/orders.py",
    "paths": "agents/orders.py", "payload": "{}", "place": "agents/orders.py:12", "process": 4711, "program": "kubectl",
    "provider": "anthropic", "reason": "permission denied", "replicas": 2, "requires": ">=3.12",
    "responder": "Pricing.on_price_asked", "revision": "v1.2", "root": "/home/ada/shop", "session": "S001",
    "size_bytes": 2_000_000, "source": "the variable GRAPHBUS_TOKEN", "spec": "anthropic:", "state": "main (1a2b3c4)",
    "status": 1, "subscription": "OrderProcessor.on_order_placed", "suggestion": " Did you mean 'InventoryService'?",
    "table": "[tool.graphbus.safety]", "target": "OrderProcessor.process_order", "tier": "bubblewrap", "timeout_s": 30.0,
    "times": "2 times", "tokens": 250_000, "topic": "/Order/Created", "total": 9, "used_s": 12.0, "value": "'Shop!'",
    "variable": "ANTHROPIC_API_KEY", "version": 2, "wall_s": 240.0, "wanted": 3, "what": "the topic /Price/Set",
    "wheel": "wheels/graphbus-0.1.0-py3-none-any.whl", "which": "old", "who": "Rates.on_rates_wanted",
}  # fmt: skip
"""What a field of a message may hold, where the place that raises it does not say."""
FORMS = {  # what the code hands over by a name of its own, or which has another kind in this message
    "GBE111": {"name": "graphbus", "reason": "GraphBus itself has this name"},
    "GBE112": {"place": "my-shop"},
    "GBE130": {"name": "OrderProcessor.process_order", "example": "OrderProcessor.process_order '{}'"},
    "GBE132": {"other": "--confined", "reason": "a confined graph cannot write artifacts"},
    "GBE160": {"command": "call", "example": "call AGENT.METHOD [DATA]"},
    "GBE221": {"what": "it has never negotiated"},
    "GBE331": {"reason": "bwrap: No permissions to create a new namespace"},
    "GBE422": {"what": "agents/orders.py has changed"},
    "GBE424": {"what": "agents/orders.py"},
    "GBE406": {"kind": "proposal", "name": "P009", "known": "P001, P002", "suggestion": ""},
    "GBE616": {"what": "publish /Order/Created"},
    "GBE630": {"count": "2 deliveries"},
    "GBE643": {"what": "The state of the graph", "reason": "it is damaged (file is not a database)"},
    "GBE644": {"what": "The state of the graph"}, "GBE645": {"what": "The state of the graph"},
    "GBE651": {"what": "look up api.bank.example", "example": 'network = ["api.bank.example"]'},
    "GBE654": {"what": "look up api.bank.example"},
    "GBE671": {"what": "--serve"},
    "GBE696": {"asked": "--only Pricing"},
    "GBE701": {"count": "2 files"}, "GBE706": {"count": "2 files"}, "GBE722": {"count": "1 edge"},
}  # fmt: skip


class Raised(NamedTuple):
    """A place that makes an error: `data` holds the expressions that it hands over."""

    path: Path
    line: int
    code: str
    data: dict[str, ast.expr]


def functions() -> Iterator[tuple[str, int, str]]:
    """Every function and method with its path, line and full name."""
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


def raised() -> dict[str, list[Raised]]:
    """Code -> the places that raise it."""
    found: dict[str, list[Raised]] = {}
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for code in _codes(node) if isinstance(node, ast.Call) and node.args else ():
                data = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
                found.setdefault(code, []).append(Raised(path, node.lineno, code, data))
    return found


def _codes(call: ast.Call) -> list[str]:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name in {"frozenset", "raise_all", "append"}:
        return []
    constants = [part.value for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
    return [value for value in constants if isinstance(value, str) and re.fullmatch(r"GBE\d+", value)]


def _sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts]


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def message(place: Raised) -> str:
    """The message as the command line shows it."""
    text = REGISTER[place.code]
    fields = re.findall(r"(?<!\{)\{(\w+)", text.sentence + text.hint)
    own = FORMS.get(place.code, {})
    data = {name: own.get(name, _example(place.data.get(name), name)) for name in fields}
    numbers = {name: EXAMPLES[name] for name in fields if re.search(rf"\{{{name}:", text.sentence + text.hint)}
    where = own.get("place", EXAMPLES["place"]) if "where" in place.data else None
    error = errors.GraphBusError(place.code, where=errors.Place(str(where)) if where else None, **{**data, **numbers})
    prefix = f"{error.where}: " if error.where else ""
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    return f"{prefix}error: {error.sentence} [{error.code}]{hint}"


def _example(value: ast.expr | None, name: str) -> object:
    """What the code says literally, with examples in the places of what it computes."""
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(str(_part(part)) for part in value.values)
    return EXAMPLES.get(name, name)


def _part(part: ast.expr) -> object:
    if isinstance(part, ast.Constant):
        return part.value
    name = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
    return EXAMPLES.get(name.rpartition(".")[2], name.rpartition(".")[2])


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], verdicts: dict[str, list[str]]) -> Iterator[str]:
    """A Markdown table with a column for each reader, filled from verdicts by the second cell of a row."""
    yield f"| {' | '.join((*headers, *READERS))} |"
    yield f"|{'---|' * (len(headers) + len(READERS))}"
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in row]
        yield f"| {' | '.join((*cells, *verdicts.get(cells[1], [''] * len(READERS))))} |"


def read_verdicts(file: str) -> dict[str, list[str]]:
    """The second cell of each row of a table -> the cells of the readers."""
    lines = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return {row[1].strip(): [cell.strip() for cell in row[-len(READERS) :]] for row in rows if len(row) > len(READERS)}


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--functions", type=int, default=0, metavar="N")
    options.add_argument("--messages", type=int, default=0, metavar="N")
    options.add_argument("--table", default="", metavar="FILE", help="keep the verdicts of this table")
    asked = options.parse_args()
    verdicts, chance = read_verdicts(asked.table), random.Random(asked.seed)
    if asked.functions:
        drawn = sorted(chance.sample(list(functions()), asked.functions))
        print(f"## {asked.functions} functions, seed {asked.seed}\n")
        rows = [(str(number), f"{path}:{line}", f"`{name}`") for number, (path, line, name) in enumerate(drawn, 1)]
        print("\n".join(table(("", "file", "function"), rows, verdicts)), end="\n\n")
    if asked.messages:
        places = raised()
        codes = sorted(chance.sample(sorted(places), asked.messages))
        print(f"## {asked.messages} messages, seed {asked.seed}\n")
        made = [chance.choice(places[code]) for code in codes]
        rows = [(str(n), f"{_shown(each.path)}:{each.line}", message(each)) for n, each in enumerate(made, 1)]
        print("\n".join(table(("", "file", "message"), rows, verdicts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
