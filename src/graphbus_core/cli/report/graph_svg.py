"""The graph of a session: a drawing for up to a hundred agents, and the same as a list for everybody and every size."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphbus_core.cli.report.layout import NODE_HEIGHT, Box, Drawing, Pair, arrange
from graphbus_core.cli.report.markup import Markup, element, together
from graphbus_core.cli.report.story import Story
from graphbus_core.model.artifacts import Edge, EdgeKind

MOST_DRAWN = 100
_MOST_LABELS = 14
_LETTER_WIDTH, _PADDING, _NARROWEST, _LONGEST_NAME, _LONGEST_LABEL = 7.6, 30, 112, 26, 30
_KINDS: dict[EdgeKind, str] = {"depends_on": "is needed by", "topic": "sends to", "call": "is called by"}
_STRENGTH: tuple[EdgeKind, ...] = ("depends_on", "call", "topic")


def graph(story: Story) -> Markup:
    """Give the drawing with its legend, and the list."""
    if len(story.agents) > MOST_DRAWN or not story.agents:
        reason = f"{len(story.agents)} agents are more than a drawing can show; here they are as a list."
        return together(element("p", reason, class_="quiet"), _list(story))
    unknown = "The artifacts of the last build tell no edges, and the sources could not be read: agents only."
    return together(
        element("p", unknown, class_="quiet") if story.edges is None else None,
        _chooser(story),
        element(
            "div", _drawing(story), class_="scroll canvas", role="region", tabindex=0, aria_label="Drawing of the graph"
        ),
        _legend(story),
        element("details", element("summary", "The graph as a list"), _list(story), class_="plain"),
    )


def _chooser(story: Story) -> Markup | None:
    """What shows the agents of one proposal: works with the script only, and appears with it."""
    if not story.cases:
        return None
    options = [element("option", f"{case.name} {case.title}", value=case.anchor) for case in story.cases]
    label = element("label", "Show the agents of", for_="graph-proposal")
    choice = element("select", element("option", "all proposals", value=""), options, id="graph-proposal")
    return element(
        "p",
        label,
        " ",
        choice,
        element("span", id="graph-said", role="status"),
        class_="chooser",
        data_script=True,
        hidden=True,
    )


def _legend(story: Story) -> Markup:
    kinds = {edge.kind for edge in story.edges or ()}
    texts = {"depends_on": "dependency", "topic": "topic", "call": "call"}
    lines = [element("li", _sample(kind), texts[kind]) for kind in _STRENGTH if kind in kinds]
    roles = (
        element("li", element("span", class_="key changed"), "a change of its own was accepted"),
        element("li", element("span", class_="key judge"), "arbiter"),
    )
    arrows = element("li", "arrows lead from provider to consumer") if kinds else None
    return element("ul", lines, roles, arrows, class_="legend")


def _sample(kind: EdgeKind) -> Markup:
    line = element("path", class_=f"edge {kind}", d="M1 6H31")
    return element("svg", line, width=32, height=12, viewBox="0 0 32 12", aria_hidden="true")


# --- the drawing -------------------------------------------------------------------------------


def _drawing(story: Story) -> Markup:
    together_by_pair: dict[Pair, list[Edge]] = {}
    for edge in story.edges or ():
        together_by_pair.setdefault((edge.source, edge.target), []).append(edge)
    widths = {name: _width(name) for name in story.agents}
    drawn = arrange(story.agents, together_by_pair, widths)
    has_labels = len(together_by_pair) <= _MOST_LABELS
    edges = [_arrow(drawn, pair, edges, story, has_labels=has_labels) for pair, edges in together_by_pair.items()]
    shown = f"{len(story.agents)} agents and {len(story.edges or ())} edges. The list below says the same in words."
    return element(
        "svg",
        element("title", "Agents and edges"),
        element("desc", shown),
        element("defs", _head()),
        element("g", edges),
        element("g", _nodes(story, drawn.boxes)),
        class_="graph",
        role="img",
        width=drawn.width,
        height=drawn.height,
        viewBox=f"0 0 {drawn.width} {drawn.height}",
    )


def _head() -> Markup:
    tip = element("path", d="M0 0L8 4L0 8z", class_="tip")
    return element(
        "marker", tip, id="tip", viewBox="0 0 8 8", refX=7, refY=4, markerWidth=8, markerHeight=8, orient="auto",
        markerUnits="userSpaceOnUse",
    )  # fmt: skip


def _arrow(drawn: Drawing, pair: Pair, edges: Sequence[Edge], story: Story, *, has_labels: bool) -> Markup:
    kind = next(kind for kind in _STRENGTH if any(edge.kind == kind for edge in edges))
    points = drawn.ways[pair]
    numbers = story.agent_numbers
    words = "; ".join(dict.fromkeys(_said(edge) for edge in edges))
    labels = list(dict.fromkeys(edge.label for edge in edges if edge.label))
    label = (
        _shortened(labels[0], _LONGEST_LABEL) + (f" +{len(labels) - 1}" if len(labels) > 1 else "") if labels else ""
    )
    (x0, y0), (x1, y1) = points[len(points) // 2 - 1 : len(points) // 2 + 1]
    text = (
        element("text", label, x=(x0 + x1) // 2, y=(y0 + y1) // 2 - 8, class_="label") if has_labels and label else None
    )
    path = element("path", class_=f"edge {kind}", d=_curve(points), marker_end="url(#tip)")
    return element("g", element("title", words), path, text, data_edge=f"{numbers[pair[0]]} {numbers[pair[1]]}")


def _said(edge: Edge) -> str:
    return f"{edge.source} {_KINDS[edge.kind]} {edge.target}" + (f" ({edge.label})" if edge.label else "")


def _curve(points: Sequence[tuple[int, int]]) -> str:
    """Straight through a layer, in a soft bow from layer to layer."""
    x, y = points[0]
    parts = [f"M{x} {y}"]
    for right, bottom in points[1:]:
        middle = (x + right) // 2
        parts.append(f"H{right}" if bottom == y else f"C{middle} {y} {middle} {bottom} {right} {bottom}")
        x, y = right, bottom
    return "".join(parts)


def _nodes(story: Story, boxes: Mapping[str, Box]) -> Iterator[Markup]:
    changed = {case.proposal.src for case in story.cases if case.record.commit}
    arbiters = set(story.record.arbiters)
    for name in story.agents:
        box = boxes[name]
        roles = ["node", "changed" if name in changed else "", "judge" if name in arbiters else ""]
        rectangle = element(
            "rect", x=box.x, y=box.y, width=box.width, height=NODE_HEIGHT, rx=20 if name in arbiters else 8
        )
        shown = element("text", _shortened(name, _LONGEST_NAME), x=box.x + box.width // 2, y=box.y + NODE_HEIGHT // 2)
        title = element("title", f"{name}{' (arbiter)' if name in arbiters else ''}: {_part(story, name)}")
        yield element(
            "g", title, rectangle, shown, class_=" ".join(filter(None, roles)), data_agent=story.agent_numbers[name]
        )


def _part(story: Story, name: str) -> str:
    made = [case.name for case in story.cases if case.proposal.src == name]
    met = [case.name for case in story.cases if name in case.affected]
    parts = [f"proposed {', '.join(made)}" if made else "", f"affected by {', '.join(met)}" if met else ""]
    return "; ".join(filter(None, parts)) or "no proposal concerns it"


def _width(name: str) -> int:
    return max(_NARROWEST, round(_LETTER_WIDTH * _columns(_shortened(name, _LONGEST_NAME))) + _PADDING)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# --- as a list ---------------------------------------------------------------------------------


def _list(story: Story) -> Markup:
    head = element(
        "tr", (element("th", title, scope="col") for title in ("Agent", "Receives from", "Gives to", "Proposals"))
    )
    rows = [_row(story, name) for name in story.agents]
    table = element("table", element("thead", head), element("tbody", rows))
    return element("div", table, class_="scroll", role="region", tabindex=0, aria_label="The graph as a list")


def _row(story: Story, name: str) -> Markup:
    role = element("span", " arbiter", class_="quiet") if name in story.record.arbiters else None
    receives = (f"{edge.source}{_label(edge)}" for edge in story.edges or () if edge.target == name)
    gives = (f"{edge.target}{_label(edge)}" for edge in story.edges or () if edge.source == name)
    links = [
        element("a", case.name, href=f"#{case.anchor}")
        for case in story.cases
        if name in (case.proposal.src, *case.affected)
    ]
    return element(
        "tr",
        element("th", name, role, scope="row"),
        element("td", _listed(receives)),
        element("td", _listed(gives)),
        element("td", ([link, " "] for link in links)),
    )


def _label(edge: Edge) -> str:
    return f" ({edge.label})" if edge.label else ""


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts)) or "–"
