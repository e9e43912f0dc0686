"""What ✓ proves of a handler: every line here is judged, and run as well. No line that fails when it runs may be proven."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from graphbus_core.compiler import rules
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.contracts.edges import validate_contracts
from graphbus_core.testing import run_graph
from tests.reading import read_files

_HEAD = """
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypedDict
import json
import math
import msgspec
from graphbus_core import Event, GraphBusNode, subscribe

class LineDict(TypedDict):
    sku: str
    qty: int

class OrderDict(TypedDict):
    id: str
    total: float
    note: str | None
    line: LineDict
    lines: list[LineDict]
    tags: list[str]
    loose: dict[str, Any]

@dataclass
class LineData:
    sku: str
    qty: int
    def label(self) -> str: return f"{self.sku}!"
    @property
    def size(self) -> int: return self.qty

@dataclass
class OrderData:
    id: str
    total: float
    note: str | None
    line: LineData
    lines: list[LineData]
    tags: list[str]
    loose: dict[str, Any]

class LineStruct(msgspec.Struct):
    sku: str
    qty: int
    def label(self) -> str: return f"{self.sku}!"
    @property
    def size(self) -> int: return self.qty

class OrderStruct(msgspec.Struct):
    id: str
    total: float
    note: str | None
    line: LineStruct
    lines: list[LineStruct]
    tags: list[str]
    loose: dict[str, Any]

class Box:
    def __init__(self): self.held = []
    def put(self, line): self.held.append(line[KEY] if isinstance(line, dict) else line.skuu)

KEY = "skuu"
def show(*values): return values
def sku_by_key(line): return line["sku"]
def sku_by_name(line): return line.sku
def skuu_by_key(line): return line["skuu"]
def skuu_by_name(line): return line.skuu
def one_more(number): return number + 1

class Shop(GraphBusNode):
    @subscribe("/Go")
    def go(self) -> None:
        self.publish("/Order", {
            "id": "a", "total": 1.5, "note": None, "line": {"sku": "x", "qty": 2}, "lines": [{"sku": "x", "qty": 2}],
            "tags": ["t"], "loose": {"sku": "x"},
        })
"""
_HANDLER = """
class Books(GraphBusNode):
    count = 0

    @subscribe("/Order")
    def on_order(self, {signature}) -> None:
        {line}

    def add(self, number): self.count += number
    def keep(self): show(self.kept["skuu"] if isinstance(self.kept, dict) else self.kept.skuu)
"""
_MAPPING, _OBJECT = 'o["{}"]', "o.{}"
STYLES: Mapping[str, tuple[str, str, str, str]] = {
    "TypedDict": ("o: OrderDict", _MAPPING, '["{}"]', "key"),
    "dict": ("o: dict[str, Any]", _MAPPING, '["{}"]', "key"),
    "event": ("o: Event", _MAPPING, '["{}"]', "key"),
    "dataclass": ("o: OrderData", _OBJECT, ".{}", "name"),
    "Struct": ("o: OrderStruct", _OBJECT, ".{}", "name"),
    "fields": (
        "id: str, total: float, note: str | None, line: LineDict, lines: list[LineDict], tags: list[str], loose: dict[str, Any]",
        "{}",
        '["{}"]',
        "key",
    ),
}
"""Style -> the parameters of the handler, how it reads a field and a part of it, and the ending of helpers for such parts.

In the lines below, `<id>` stands for the field `id`, `@sku` for `["sku"]` or `.sku`, and `by_` for the helper of the style.
"""

SOUND = [
    "show(<line>@sku, <tags>)",
    "show(sku_by_(<line>))",
    "for each in <lines>: show(each@sku)",
    "show([each@sku.upper() for each in <lines>])",
    "line = <line>; show(line@sku)",
    'self.publish("/Out", {"line": <line>, "tags": <tags>})',
    'show(<loose>["sku"])',
    'show(<id> + "x", <id> * 2, <id>.upper(), <id>[:1], <id>.strip().lower())',
    "show(<total> + 1, 2 * <total>, -<total>, <total> > 1, round(<total>, 1), math.floor(<total>))",
    "show(f'{<total>:.2f}', [f'{<id>}'])",
    'show("t" in <tags>, len(<tags>), ",".join(<tags>), <tags> + ["u"], "%s is %.1f" % (<id>, <total>))',
    "if <note>: show(<note>.upper())",
    "if <note> is None: return\n        show(<note>.upper())",
    'show(<note>.upper() if <note> else "")',
    'show((<note> or "").upper())',
    "note = <note>\n        if note is not None: show(note.upper())",
    "show(one_more(<total>)); self.add(<total>)",
    "state = {<id>: <total>}; show(state[<id>])",
]
WRONG = [
    "show(skuu_by_(<line>))",
    "show(sorted(<lines> * 2, key=skuu_by_))",
    "show(list(map(skuu_by_, <lines>)))",
    "self.kept = <line>; self.keep()",
    "Box().put(<line>)",
    "for _, each in enumerate(<lines>): show(each@skuu)",
    'box = {"line": <line>}; show(box["line"]@skuu)',
    "first, second = <line>, 1; show(first@skuu)",
    "line = <line> if <id> else <line>; show(line@skuu)",
    "show((lambda each: each@skuu)(<line>))",
    'show(<loose>["skuu"])',
    'show(itemgetter("skuu")(<loose>))',
    "show(<line>())",
    "first, second = <tags>",
    "show(<id> + 1)",
    'show(<id> - "x")',
    "show(<id> * 1.5)",
    "show(<id> * <total>)",
    "show(<id> > 1)",
    "show(0 < <id> < 2)",
    "show(-<id>)",
    "show(<note>.upper())",
    'show(<note> + "x")',
    "show(len(<note>))",
    "show(<total>.upper())",
    "show(<id>.uper())",
    "for each in <total>: show(each)",
    "show([each + 1 for each in <tags>])",
    'show("x" in <total>)',
    "show(1 in <id>)",
    "show(int(<id>))",
    "show(float(<id>))",
    "show(sum(<tags>))",
    'show(",".join(<lines>))',
    "show(f'{<id>:.2f}')",
    'show("%d" % <id>)',
    'show("%d %s" % (<id>, <id>))',
    "show(<total>[0])",
    "show(<tags>[5])",
    "show({<tags>: 1})",
    "show(one_more(<id>))",
    "self.add(<id>)",
    "number = 1; number += <id>",
    "text = <id>; show(text + 1)",
    "show((<id> or 1) + 1)",
    "show(math.sqrt(<id>))",
    "show(json.loads(<id>))",
    "show((lambda each: each + 1)(<id>))",
]
CASES = [(style, line) for style in STYLES for line in (*SOUND, *WRONG)]


def _files(style: str, line: str) -> dict[str, str]:
    signature, field, part, ending = STYLES[style]
    line = re.sub(r"@(\w+)", lambda found: part.format(found[1]), line.replace("by_", f"by_{ending}"))
    line = re.sub(r"<(\w+)>", lambda found: field.format(found[1]), line)
    return {"agents.py": _HEAD + _HANDLER.format(signature=signature, line=line)}


def _verdict(root: Path, style: str, line: str) -> str:
    project = read_files(root, _files(style, line))
    findings = rules.check(project)
    edges = validate_contracts(Wiring(project), findings).edges
    return next(each.verdict for each in edges if each.target == "Books.on_order")


@pytest.mark.parametrize(("style", "line"), [(style, line) for style in STYLES for line in SOUND])
def test_what_the_types_allow_is_proven(tmp_path: Path, style: str, line: str) -> None:
    assert _verdict(tmp_path, style, line) == "proven"


@pytest.mark.parametrize(("style", "line"), [(style, line) for style in STYLES for line in WRONG])
def test_what_the_types_do_not_allow_is_not_proven(tmp_path: Path, style: str, line: str) -> None:
    assert _verdict(tmp_path, style, line) != "proven"


def _imported(root: Path, style: str, line: str) -> ModuleType:
    path = root / "agents.py"
    path.write_text(_files(style, line)["agents.py"])
    spec = spec_from_file_location("proof", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_lines_work_or_fail_as_they_are_listed(tmp_path: Path) -> None:
    for number, (style, line) in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert _works(_imported(folder, style, line)) == (line in SOUND), (style, line)


def _works(module: ModuleType) -> bool:
    with run_graph(module.Shop, module.Books, on_error="isolate") as graph:
        graph.publish("/Go", {})
        graph.settle()
        return not graph.dead_letters()
