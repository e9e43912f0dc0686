/** The graph as it runs: width and colour of a line, and the figures of a node, are what happens now. */

/** @import { App } from "./app.js" */
/** @import { Arrow, Drawing, Spot } from "./layout.js" */
/** @import { Flow } from "./store.js" */
/** @import { GraphPicture, Line } from "contract" */
import { button, fill, h, name, options, part, s, scrolling, set, words, write } from "./dom.js";
import { count, counted, duration, OUTSIDE, rate, shorten } from "./format.js";
import { drawingOf } from "./layout.js";
import { addFlow, still } from "./store.js";

const MOST_LABELS = 16;
const MOST_SHARP = 40;
const MOST_MOVING = 60;
const LETTER = 6.7;
const LEAST_SCALE = 0.82;
const LEAST_ON_A_PHONE = 0.7;
const MARGIN = 16;

/** @typedef {{ arrow: Arrow, path: Element, moving: Element | null, text: Element | null, title: Element }} DrawnArrow */
/** @typedef {{ spot: Spot, group: SVGGElement, figures: Element, load: Element, mark: Element, fault: Element, title: Element }} DrawnSpot */

export class GraphView {
  /** @type {DrawnArrow[]} */
  #arrows = [];
  /** @type {DrawnSpot[]} */
  #spots = [];
  #drawn = "";
  /** @type {GraphPicture | null} */
  #graph = null;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.canvas = scrolling("Drawing of the graph");
    this.canvas.classList.add("canvas");
    this.tools = h("div.tools");
    this.legend = h("ul.legend");
    this.chosen = h("div.chosen");
    this.table = h("tbody");
    this.list = h("div.panel.list");
    const heads = ["Agent", "", "Waiting", "Failed", "Sends to"].map((text) => h("th", { scope: "col" }, text));
    this.rateHead = heads[1];
    const table = scrolling("The graph as a list", h("table", h("thead", h("tr", heads)), this.table));
    const more = [
      h("details.plain", { open: innerWidth > 700 }, h("summary", "Legend"), this.legend),
      h("details.plain", { toggle: () => this.app.invalidate() }, h("summary", "The graph as a list"), table),
    ];
    const drawn = h("div.panel", this.tools, this.canvas, h("div.below", more));
    fill(part("view-graph"), h("h2.unseen", { id: "graph-title" }, "Graph"), h("div.flow", drawn, h("div.side", this.chosen, this.list)));
    for (const kind of ["click", "keydown", "pointerover", "focusin", "pointerout", "focusout"])
      this.canvas.addEventListener(kind, (event) => this.#meet(event));
  }

  draw() {
    const { store, route } = this.app;
    if (!store.graph) return;
    const wanted = [route.focus, route.drawing, Math.round(this.canvas.clientWidth / 48)].join("\n");
    if (store.graph !== this.#graph || wanted !== this.#drawn) this.#build(store.graph, wanted);
    const flows = store.lineFlows(store.graph.lines, route.at);
    const agents = flowsOfAgents(store.flows(route.at));
    agents.set(OUTSIDE, still());
    for (const [line, flow] of flows) if (line.source === OUTSIDE) addFlow(agents.get(OUTSIDE) ?? still(), { ...still(), rate: flow.rate }, 1);
    for (const each of this.#arrows) this.#drawArrow(each, flows);
    for (const each of this.#spots) this.#drawSpot(each, agents);
    this.#drawTable(store.graph, agents);
  }

  /** @param {GraphPicture} graph @param {string} wanted */
  #build(graph, wanted) {
    const { route } = this.app;
    this.#graph = graph;
    this.#drawn = wanted;
    const drawing = drawingOf(graph, route, (this.canvas.clientWidth || 900) / this.#leastScale());
    this.#fillTools(graph, drawing);
    fill(this.legend, legend(this.app.store.isLive));
    if (!graph.agents.length) {
      const text = "The artifacts of this graph name no agent. Write a class that inherits from GraphBusNode, then build again.";
      fill(this.canvas, words("No agents", graph.note || text));
      return;
    }
    const svg = this.#svg(drawing);
    fill(this.canvas, svg);
    this.#placeLabels(drawing);
    this.#fit(svg);
    this.#near("");
    this.canvas.scrollTo((this.canvas.scrollWidth - this.canvas.clientWidth) / 2, 0);
  }

  /** @param {Drawing} drawing */
  #svg(drawing) {
    this.#arrows = drawing.arrows.map((arrow) => this.#arrow(arrow, drawing.arrows.length));
    this.#spots = drawing.spots.map((spot, index) => this.#spot(spot, index));
    return s(
      "svg.graph",
      { role: "group", "aria-label": `${counted(drawing.spots.length, "node")}; arrow keys walk`, "data-dense": drawing.arrows.length > MOST_SHARP },
      s("defs", ["idle", "live", "warn", "bad"].map(tip)),
      this.#arrows.map((each) => each.path.parentNode),
      this.#spots.map((each) => each.group),
      this.#arrows.map((each) => each.text),
    );
  }

  #leastScale() {
    return this.canvas.clientWidth < 400 ? LEAST_ON_A_PHONE : LEAST_SCALE;
  }

  /** Give the drawing the size of what is in it. @param {SVGSVGElement} svg */
  #fit(svg) {
    const parts = [...svg.querySelectorAll("rect.box, path.edge, text.label:not([hidden])")].map((each) =>
      /** @type {SVGGraphicsElement} */ (each).getBBox(),
    );
    const [x, y] = [Math.min(...parts.map((each) => each.x)) - MARGIN, Math.min(...parts.map((each) => each.y)) - MARGIN];
    const [right, bottom] = [Math.max(...parts.map((each) => each.x + each.width)), Math.max(...parts.map((each) => each.y + each.height))];
    const box = { x, y, width: right - x + MARGIN, height: bottom - y + MARGIN };
    const scale = Math.min(1.1, Math.max(this.#leastScale(), (this.canvas.clientWidth - 2) / box.width));
    const size = { width: Math.round(box.width * scale), height: Math.round(box.height * scale) };
    set(svg, { viewBox: [box.x, box.y, box.width, box.height].map(Math.round).join(" "), ...size });
  }

  /** @param {Arrow} arrow @param {number} total @returns {DrawnArrow} */
  #arrow(arrow, total) {
    const isEvent = arrow.lines.some((line) => line.kind === "topic");
    const verdicts = new Set(arrow.lines.map((line) => line.verdict));
    const verdict = ["broken", "unknown", "proven"].find((each) => verdicts.has(/** @type {any} */ (each)));
    const path = s("path.edge", { d: arrow.curve, "data-verdict": verdict, "data-kind": isEvent ? "topic" : "call" });
    const moving = isEvent && total <= MOST_MOVING ? s("path.moving", { d: arrow.curve }) : null;
    const hit = s("path.hit", { d: arrow.curve });
    const title = s("title");
    const topics = [...new Set(arrow.lines.map((line) => line.topic).filter(Boolean))];
    const text = total <= MOST_LABELS && topics.length ? s("text.label") : null;
    const choose = () => this.app.go({ filter: { ...this.app.route.filter, topic: topics[0] ?? "", agent: "" } });
    s("g.arrow", topics.length ? { click: choose } : {}, title, path, moving, hit);
    return { arrow, path, moving, text, title };
  }

  /** @param {Spot} spot @param {number} index @returns {DrawnSpot} */
  #spot(spot, index) {
    const { x, y, width, height } = spot;
    const title = s("title");
    const figures = s("text.figures", { x: 0, y: height - 10 });
    const load = s("rect.load", { x: x + 1, y: y + height - 3, width: 0, height: 2, rx: 1 });
    const fault = s("text", { x: x + width - 16, y: y + 1 });
    const mark = s("g.mark", { hidden: true }, s("rect", { x: x + width - 32, y: y - 9, width: 32, height: 18, rx: 9 }), fault);
    const group = s(
      "g.node",
      { role: "button", tabindex: index ? "-1" : "0", "data-name": spot.name, "data-group": spot.isGroup, "data-focus": spot.isFocus },
      title,
      spot.isGroup && s("rect.behind", { x: x + 4, y: y - 4, width, height, rx: 8 }),
      s("rect.box", { x, y, width, height, rx: 8 }),
      load,
      s("svg", { x: x + 12, y, width: width - 16, height }, s("text.name", { x: 0, y: 18 }, spot.name || "(no package)"), figures),
      mark,
    );
    return { spot, group, figures, load, mark, fault, title };
  }

  /** What happens at a node: it is pointed at, chosen, or left with an arrow key. @param {Event} event */
  #meet(event) {
    const spot = this.#spots.find((each) => each.group.contains(/** @type {Node} */ (event.target)))?.spot;
    const key = event instanceof KeyboardEvent ? event.key : "";
    if (key.startsWith("Arrow")) this.#walk(/** @type {KeyboardEvent} */ (event));
    else if (event.type.endsWith("out")) this.#near("");
    else if (spot && (event.type === "click" || ["Enter", " "].includes(key))) {
      event.preventDefault();
      this.#choose(spot);
    } else if (spot && !key) this.#near(spot.name);
  }

  /** @param {Spot} spot */
  #choose(spot) {
    const { route } = this.app;
    if (spot.isGroup) this.app.go({ focus: spot.name });
    else this.app.go({ filter: { ...route.filter, agent: route.filter.agent === spot.name ? "" : spot.name, topic: "" } });
  }

  /** Let the lines of one node stand out; without one, those of the agent that was chosen. @param {string} wanted */
  #near(wanted) {
    const near = wanted || this.app.route.filter.agent;
    for (const { arrow, path } of this.#arrows) {
      const isNear = arrow.source === near || arrow.target === near;
      set(path.parentElement ?? path, { "data-near": near && this.#spots.some((each) => each.spot.name === near) ? String(isNear) : null });
    }
  }

  /** Arrow keys go from a node to the nearest one in their direction. @param {KeyboardEvent} event */
  #walk(event) {
    const turn = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] })[
      event.key
    ];
    const from = this.#spots.find((each) => each.group === document.activeElement);
    if (!turn || !from) return;
    event.preventDefault();
    event.stopPropagation();
    const ahead = this.#spots
      .map((each) => ({ each, far: distance(from.spot, each.spot, turn) }))
      .filter(({ far }) => far < Number.POSITIVE_INFINITY)
      .sort((one, other) => one.far - other.far)[0];
    if (!ahead) return;
    from.group.setAttribute("tabindex", "-1");
    ahead.each.group.setAttribute("tabindex", "0");
    ahead.each.group.focus();
  }

  /** @param {DrawnArrow} drawn @param {Map<Line, Flow>} flows */
  #drawArrow({ arrow, path, moving, text, title }, flows) {
    const sum = still();
    const topics = new Set();
    for (const line of arrow.lines) {
      addFlow(sum, flows.get(line) ?? still(), 1);
      if (line.topic) topics.add(line.topic);
    }
    const state = { "data-width": String(weight(sum.rate)), "data-state": stateOf(sum) };
    set(path, state);
    if (moving) set(moving, state);
    const unit = this.app.store.isLive ? "/s" : " ×";
    const [first = ""] = topics;
    const more = topics.size > 1 ? ` +${topics.size - 1}` : "";
    if (text) write(text, `${shorten(first, 24)}${more}${sum.rate ? `  ${rate(sum.rate)}${unit}` : ""}`);
    const doubts = arrow.lines.map((line) => line.doubt).filter(Boolean);
    const kinds = { topic: "sends to", call: "is called by", depends_on: "is needed by" };
    const facts = arrow.lines.map((line) => `${line.source} ${kinds[line.kind]} ${line.target}${line.topic && ` over ${line.topic}`}`);
    write(title, [...facts, `${rate(sum.rate)}${unit}, ${counted(Math.round(sum.failed), "failure")}`, ...doubts].join("\n"));
  }

  /** @param {DrawnSpot} drawn @param {Map<string, Flow>} agents */
  #drawSpot({ spot, group, figures, load, mark, fault, title }, agents) {
    const sum = still();
    for (const agent of spot.agents) addFlow(sum, agents.get(agent) ?? still(), 1);
    const { filter } = this.app.route;
    const text = [spot.isGroup ? counted(spot.agents.length, "agent") : "", sumText(sum, this.app.store.isLive)].filter(Boolean).join(" · ");
    write(figures, text || (this.app.store.isLive ? "idle" : ""));
    set(load, { width: sum.waiting ? Math.min(1, Math.log10(sum.waiting + 1) / 5) * (spot.width - 2) : 0 });
    set(mark, { hidden: sum.failed < 0.5 });
    write(fault, count(Math.round(sum.failed)));
    const faults = sum.failed ? `, ${counted(Math.round(sum.failed), "failure")}` : "";
    set(group, { "data-state": stateOf(sum), "aria-pressed": String(filter.agent === spot.name) });
    write(title, `${spot.name}: ${text || "idle"}${faults}`);
  }

  /** Each label goes beside its line, to where it covers nothing, or nowhere. @param {Drawing} drawing */
  #placeLabels(drawing) {
    const taken = drawing.spots.map(({ x, y, width, height }) => ({ x: x - 4, y: y - 6, width: width + 8, height: height + 9 }));
    const lines = this.#arrows.map(({ path }) => pointsOf(/** @type {SVGPathElement} */ (path)));
    const isPhone = this.#leastScale() < LEAST_SCALE;
    const [left, right] = [Math.min(...drawing.spots.map(({ x }) => x)), Math.max(...drawing.spots.map(({ x, width }) => x + width))];
    const isInside = (/** @type {Box} */ box) => !isPhone || (box.x >= left && box.x + box.width <= right);
    for (const dot of lines.flat()) taken.push({ x: dot.x - 3, y: dot.y - 3, width: 6, height: 6 });
    this.#arrows.forEach(({ arrow, text }, index) => {
      if (!text) return;
      const [topic = ""] = arrow.lines.map((line) => line.topic).filter(Boolean);
      const width = (Math.min(topic.length, 24) + 8) * LETTER;
      const free = places(lines[index] ?? [], width).find((box) => isInside(box) && !taken.some((other) => overlap(box, other)));
      set(text, { hidden: !free, x: free && free.x + (free.isLeft ? width : 0), y: free && free.y + 12, "data-end": free?.isLeft });
      write(text, `${shorten(topic, 24)}  00.0/s`);
      if (free) taken.push(free);
    });
  }

  /** @param {GraphPicture} graph @param {Drawing} drawing */
  #fillTools(graph, drawing) {
    const { route } = this.app;
    const names = [...graph.agents.map((each) => each.name), ...graph.topics.map((each) => each.name)];
    const find = h("input", {
      type: "search",
      id: "find",
      list: "names",
      placeholder: "Agent or topic",
      "aria-label": "Find an agent or a topic",
      change: (event) => this.#find(event.target.value),
    });
    const isGroups = drawing.spots.some((spot) => spot.isGroup);
    const choice = (/** @type {string} */ text, /** @type {string} */ value, /** @type {boolean} */ isOn) =>
      button(text, () => this.app.go({ drawing: value, focus: "" }), { "aria-pressed": String(isOn) });
    fill(
      this.tools,
      find,
      h("datalist", { id: "names" }, options(names)),
      graph.groups.boxes.some((box) => box.agents.length > 1) &&
        h(
          "span.joined",
          { role: "group", "aria-label": "What is drawn" },
          choice("Agents", "agents", !isGroups && !route.focus),
          choice("Groups", "groups", isGroups && !route.focus),
        ),
      route.focus &&
        h(
          "span.chip",
          "Neighbours of ",
          name(route.focus),
          button("✕", () => this.app.go({ focus: "" }), { "aria-label": "Show the whole graph" }),
        ),
      graph.agents.length > 0 && graph.note && h("span.quiet", graph.note),
    );
  }

  /** @param {string} text */
  #find(text) {
    const graph = this.app.store.graph;
    const wanted = text.trim().toLowerCase();
    if (!graph || !wanted) return;
    const matching = (/** @type {{ name: string }[]} */ all) =>
      all.find((each) => each.name.toLowerCase() === wanted) ?? all.find((each) => each.name.toLowerCase().includes(wanted));
    const agent = matching(graph.agents);
    const topic = matching(graph.topics);
    const { filter } = this.app.route;
    if (agent) this.app.go({ focus: agent.name, filter: { ...filter, agent: agent.name, topic: "" } });
    else if (topic) this.app.go({ filter: { ...filter, topic: topic.name, agent: "" } });
    else this.app.say(`No agent and no topic has “${text}” in its name.`);
  }

  /** @param {GraphPicture} graph @param {Map<string, Flow>} agents */
  #drawTable(graph, agents) {
    if (!this.table.closest("details")?.open) return;
    if (this.rateHead) write(this.rateHead, this.app.store.isLive ? "A second" : "Deliveries");
    const rows = graph.agents.map((agent) => {
      const flow = agents.get(agent.name) ?? still();
      const targets = graph.lines.filter((line) => line.source === agent.name).map((line) => `${line.target}${line.topic && ` (${line.topic})`}`);
      return h(
        "tr",
        h("th", { scope: "row" }, name(agent.name)),
        h("td.number", rate(flow.rate)),
        h("td.number", count(flow.waiting)),
        h("td", { class: flow.failed ? "number bad" : "number" }, count(Math.round(flow.failed))),
        h("td", name(targets.join(", ") || "–")),
      );
    });
    fill(this.table, rows);
  }
}

/** @param {Map<string, Flow>} flows @returns {Map<string, Flow>} */
export function flowsOfAgents(flows) {
  /** @type {Map<string, Flow>} */
  const agents = new Map();
  for (const [key, flow] of flows) {
    const handler = key.split(" <- ")[0] ?? "";
    const agent = handler.slice(0, handler.lastIndexOf(".")) || handler;
    const sum = agents.get(agent) ?? still();
    agents.set(agent, sum);
    addFlow(sum, flow, 1);
  }
  return agents;
}

/** @param {Flow} sum @param {boolean} isLive */
function sumText(sum, isLive) {
  const parts = [sum.rate && (isLive ? `${rate(sum.rate)}/s` : counted(sum.rate, "delivery", "deliveries"))];
  if (sum.waiting) parts.push(`${count(sum.waiting)} waiting${sum.lag_s >= 1 ? ` ${duration(sum.lag_s)}` : ""}`);
  if (sum.retrying) parts.push(`${count(sum.retrying)} to retry`);
  return parts.filter(Boolean).join(" · ");
}

/** The class of a width: one more for each power of ten. @param {number} value */
const weight = (value) => (value <= 0 ? 0 : Math.min(5, Math.max(1, Math.floor(Math.log10(value)) + 2)));

/** @param {Flow} sum */
const stateOf = (sum) => (sum.failed >= 0.5 || sum.dead ? "bad" : sum.retrying ? "warn" : sum.rate ? "live" : "idle");

/** @param {string} state */
const tip = (state) =>
  s(
    "marker",
    { id: `tip-${state}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto", markerUnits: "userSpaceOnUse" },
    s("path.tip", { "data-state": state, d: "M0 0L8 4L0 8z" }),
  );

/** Points along a line, its ends left out. @param {SVGPathElement} path */
function pointsOf(path) {
  const length = path.getTotalLength();
  return Array.from({ length: 25 }, (_, index) => path.getPointAtLength((length * (index + 1)) / 26));
}

/** Where a label may go: the middle of its line first, and to the right of it before the left. @param {DOMPoint[]} points @param {number} width */
function places(points, width) {
  const near = [...points.keys()].sort((one, other) => Math.abs(one - 12) - Math.abs(other - 12)).map((index) => points[index]);
  const at = (/** @type {number} */ right, /** @type {number} */ down, isLeft = false) =>
    near.flatMap((dot) => (dot ? [{ x: dot.x + right, y: dot.y + down, isLeft }] : []));
  const beside = [9, 22, 36].flatMap((far) => [...at(far, -8), ...at(-width - far, -8, true)]);
  const found = [...beside, ...at(-width / 2, -20), ...at(-width / 2, 5)];
  return found.map((each) => ({ ...each, width, height: 15 }));
}

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @param {Box} one @param {Box} other */
const overlap = (one, other) =>
  one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

/** @param {Spot} from @param {Spot} to @param {[number, number]} turn */
function distance(from, to, [across, down]) {
  const [x, y] = [to.x + to.width / 2 - from.x - from.width / 2, to.y - from.y];
  const ahead = x * across + y * down;
  return ahead <= 1 ? Number.POSITIVE_INFINITY : ahead + 2 * Math.abs(x * down + y * across);
}

/** @param {boolean} isLive */
function legend(isLive) {
  const sample = (/** @type {Record<string, string>} */ state) =>
    s("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" }, s("path.edge.plain", { d: "M1 6H29", ...state }));
  const wide = ["under 1", "1", "10", "100", "1,000"].map((text, index) => [{ "data-width": String(index + 1), "data-state": "live" }, text]);
  /** @type {[Record<string, string>, string][]} */
  const entries = [
    [{ "data-width": "1", "data-state": "idle" }, "idle"],
    [{ "data-width": "2", "data-state": "warn" }, "waits for a retry"],
    [{ "data-width": "2", "data-state": "bad" }, isLive ? "failed in the last minute" : "failed"],
    [{ "data-width": "1", "data-state": "idle", "data-verdict": "unknown" }, "not proven to fit"],
    [{ "data-width": "1", "data-state": "idle", "data-verdict": "broken" }, "does not fit"],
    [{ "data-width": "1", "data-state": "idle", "data-kind": "call" }, "call or need"],
  ];
  return [
    h(
      "li",
      isLive ? "events a second:" : "deliveries:",
      wide.map(([state, text]) => [sample(/** @type {any} */ (state)), String(text)]),
    ),
    entries.map(([state, text]) => h("li", sample(state), text)),
    isLive && h("li", h("span.key-load"), "events that wait"),
  ];
}
