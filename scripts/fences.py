"""Fenced blocks that are drawn when the documentation is built; `zensical.toml` names these functions.

```console    a terminal session: its copy button copies the commands, without prompts and output
```text       output, formats, layouts: no copy button
```diagram    boxes and arrows made of characters: becomes an SVG
```graph      the folder of a project: its agents and their edges become an SVG
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pymdownx.superfences import SuperFencesException

from graphbus_core.compiler.project import Project
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.view.layout import Box, Pair, Way, curve_of, lay_out_graph, node_width
from scripts.transcript import commands

ROOT = Path(__file__).resolve().parent.parent

WIDTH, HEIGHT = 8, 18
"""Pixels of one character in a diagram."""
REACHES = {
    "─": "lr", "│": "tb", "┌": "rb", "┐": "lb", "└": "rt", "┘": "lt",
    "├": "trb", "┤": "tlb", "┬": "lrb", "┴": "lrt", "┼": "lrtb",
}  # fmt: skip
"""Character -> the sides of its cell to which it draws a line from the middle: left, right, top, bottom."""
SIDES = {"l": (0, HEIGHT / 2), "r": (WIDTH, HEIGHT / 2), "t": (WIDTH / 2, 0), "b": (WIDTH / 2, HEIGHT)}
HEADS = {
    "▶": "M0 9H4M4 5L12 9L4 13Z", "◀": "M8 9H4M4 5L-4 9L4 13Z", "▲": "M4 18V1M0 1L4 -8L8 1Z", "▼": "M4 0V17M0 17L4 26L8 17Z",
}  # fmt: skip
"""Character -> the arrow that reaches the middle of the next cell, where the border of a box is."""
MARKS = (
    (re.compile(r"^((?:<[^>]*>)* *)✓", re.MULTILINE), r'\1<span class="passed">✓</span>'),
    (re.compile(r"^((?:<[^>]*>)* *)(✗|error:)", re.MULTILINE), r'\1<span class="refused">\2</span>'),
    (re.compile(r"\b(GB\d{3})\b(?=[ :])"), r'<span class="refused">\1</span>'),
)
"""Signs and codes in output -> the same with a class to colour them."""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
    'markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z"/></marker></defs>'
)
LABEL = re.compile(rf"[^\s{''.join([*REACHES, *HEADS])}]+(?: [^\s{''.join([*REACHES, *HEADS])}]+)*")


def console(source: str, _language: str, _class: str, _options: object, md: Any, **kwargs: Any) -> str:
    """A highlighted session inside an element with the attribute that the theme's copy button reads."""
    copied = "\n".join(command.text for command in commands(source))
    drawn = _highlighted(source, "console", md, kwargs)
    for sign, coloured in MARKS:
        drawn = sign.sub(coloured, drawn)
    return f'<div data-copy="{html.escape(copied)}">{drawn}</div>'


def text(source: str, _language: str, _class: str, _options: object, md: Any, **kwargs: Any) -> str:
    """A block inside an element whose class tells the theme to add no copy button."""
    return f'<div class="no-copy">{_highlighted(source, "text", md, kwargs)}</div>'


def diagram(source: str, *_: object, **__: object) -> str:
    """Characters as an inline SVG in the colour of the text, so that it fits both colour schemes."""
    lines = source.splitlines()
    width, height = max(map(len, lines)) * WIDTH, len(lines) * HEIGHT
    drawn = "".join(part for row, line in enumerate(lines) for part in _drawn(line, row * HEIGHT))
    return (
        f'<div class="drawing" tabindex="0"><svg viewBox="0 0 {width} {height}" style="width: 100%; max-width: {width}px" '
        f'fill="currentColor" font-family="monospace" font-size="13">{drawn}</svg></div>'
    )


def graph(source: str, *_: object, **__: object) -> str:
    """The agents of a project in this repository, laid out as in the view, with arrows from provider to consumer."""
    folder = ROOT / source.strip()
    project = Project.read(ResolvedBuild(root=str(folder), paths=(str(folder),), settings=Settings()), cache=False)
    labels: dict[Pair, dict[str, None]] = defaultdict(dict)
    for edge in project.graph.edges:
        labels[edge.source, edge.target][edge.label] = None
    names = list(project.graph.nodes)
    if not names:
        raise SuperFencesException(f"there is no agent to draw in {folder}")  # any other exception is swallowed
    drawn = lay_out_graph(names, labels, {name: node_width(name, 60, 30) for name in names})
    parts = [_arrow(drawn.ways[pair], ", ".join(filter(None, labels[pair]))) for pair in labels]
    parts += [_node(name, box) for name, box in drawn.boxes.items()]
    title = f"{len(names)} agents: {', '.join(names)}"
    return (
        f'<div class="drawing graph" tabindex="0"><svg viewBox="0 0 {drawn.width} {drawn.height}" '
        f'style="max-width: {drawn.width}px" role="img" aria-label="{html.escape(title)}">{TIP}{"".join(parts)}</svg></div>'
    )


def _arrow(way: Way, label: str) -> str:
    (x, y), (right, bottom) = way
    text = f'<text class="label" x="{(x + right) // 2}" y="{(y + bottom) // 2 - 9}">{html.escape(label)}</text>'
    return f'<path d="{curve_of(way)}" marker-end="url(#tip)"/>{text}'


def _node(name: str, box: Box) -> str:
    rect = f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8"/>'
    return f'{rect}<text x="{box.x + box.width // 2}" y="{box.middle}">{html.escape(name)}</text>'


def _highlighted(source: str, language: str, md: Any, kwargs: dict[str, Any]) -> str:
    block: str = md.preprocessors["fenced_code_block"].highlight(source, language, {}, md, **kwargs)
    return block


def _drawn(line: str, top: int) -> Iterator[str]:
    """The lines, arrow heads and labels of one row of characters."""
    for column, character in enumerate(line):
        left = column * WIDTH
        if character in HEADS:
            yield f'<path transform="translate({left} {top})" d="{HEADS[character]}" stroke="currentColor"/>'
        for side in REACHES.get(character, ""):
            x, y = SIDES[side]
            middle = f'x1="{left + WIDTH / 2:g}" y1="{top + HEIGHT / 2:g}"'
            yield f'<line {middle} x2="{left + x:g}" y2="{top + y:g}" stroke="currentColor"/>'
    for label in LABEL.finditer(line):
        length = len(label[0]) * WIDTH
        place = f'x="{label.start() * WIDTH}" y="{top + 13}" textLength="{length}"'
        yield f"<text {place}>{html.escape(label[0])}</text>"
