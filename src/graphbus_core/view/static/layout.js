/** What is drawn of a graph: its agents as the server has laid them out, its groups, or one of them with its neighbours. */

/** @import { GraphPicture, Line } from "contract" */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @typedef {Box & { name: string, agents: string[], isGroup: boolean, isFocus: boolean }} Spot */
/** Lines from one spot to another that are drawn as one. @typedef {{ source: string, target: string, lines: Line[], curve: string }} Arrow */
/** @typedef {{ spots: Spot[], arrows: Arrow[] }} Drawing */

export const MOST_AGENTS = 24;
const LONGEST = 26;
const LETTER = 8;
const ASIDE = { gap: 28, layer: 200 };
const DOWN = { gap: 36, layer: 64, height: 46 };
const PARALLEL = 16;
const BACKWARDS = 12;
const DETOURS = [0, 0.5, -0.5, 1, -1, 1.5, -1.5, 2, -2];
const STEPS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/**
 * @param {GraphPicture} graph
 * @param {{ focus: string, drawing: string }} route a focus is an agent or a group; "agents", "groups", or empty: what is readable
 * @param {number} room the width that a drawing may have
 * @returns {Drawing}
 */
export function drawingOf(graph, { focus, drawing }, room) {
  const group = graph.groups.boxes.find((each) => each.name === focus && each.agents.length > 0);
  const agent = graph.agents.find((each) => each.name === focus);
  const isLarge = graph.agents.length > MOST_AGENTS && graph.groups.boxes.length > 1;
  if (agent || group) return neighbours(graph, agent ? [agent.name] : (group?.agents ?? []), room);
  if ((drawing || (isLarge ? "groups" : "agents")) === "agents") return fitted(layersOf(graph.agents.map(spotOf)), graph.lines, room);
  const spots = graph.groups.boxes.map((box) => ({ ...spotOf(box), agents: box.agents, isGroup: box.agents.length > 0 }));
  return fitted(layersOf(spots), graph.lines, room);
}

/** @param {Box & { name: string }} box @returns {Spot} */
const spotOf = ({ x, y, width, height, name }) => ({ x, y, width, height, name, agents: [name], isGroup: false, isFocus: false });

/** The layers of a drawing of the server: what stands above each other. @param {Spot[]} spots */
function layersOf(spots) {
  const places = [...new Set(spots.map((spot) => spot.x))].sort((one, other) => one - other);
  return places.map((x) => spots.filter((spot) => spot.x === x).sort((one, other) => one.y - other.y));
}

/**
 * Three layers: who sends to the agents, they themselves, who receives from them.
 * @param {GraphPicture} graph @param {string[]} agents @param {number} room
 */
function neighbours(graph, agents, room) {
  const own = new Set(agents);
  const lines = graph.lines.filter((line) => own.has(line.source) || own.has(line.target));
  const before = new Set(lines.filter((line) => !own.has(line.source)).map((line) => line.source));
  const after = new Set(lines.filter((line) => !own.has(line.target)).map((line) => line.target));
  const layers = [[...before], agents, [...after].filter((name) => !before.has(name))].filter((layer) => layer.length);
  const boxed = (/** @type {string} */ name) => ({
    ...spotOf({ x: 0, y: 0, width: Math.max(150, Math.min(name.length, LONGEST) * LETTER + 24), height: DOWN.height, name }),
    isFocus: own.has(name),
  });
  return fitted(
    layers.map((layer) => layer.map(boxed)),
    lines,
    room,
  );
}

/**
 * The layers beside each other, or below each other where they would be wider than the room.
 * @param {Spot[][]} layers @param {Line[]} lines @param {number} room
 * @returns {Drawing}
 */
function fitted(layers, lines, room) {
  const aside = placed(layers, false);
  const down = placed(layers, true);
  const isDown = aside.width > room && down.width < aside.width;
  const { spots } = isDown ? down : aside;
  return { spots, arrows: arrowsOf(spots, lines, isDown) };
}

/** @param {Spot[][]} layers @param {boolean} isDown */
function placed(layers, isDown) {
  const { gap } = isDown ? DOWN : ASIDE;
  const lengths = layers.map((layer) => layer.reduce((sum, spot) => sum + gap + (isDown ? spot.width : spot.height), -gap));
  const longest = Math.max(0, ...lengths);
  /** @type {Spot[]} */
  const spots = [];
  let depth = 0;
  layers.forEach((layer, index) => {
    let place = (longest - (lengths[index] ?? 0)) / 2;
    for (const spot of layer) {
      spots.push({ ...spot, ...(isDown ? { x: place, y: depth, height: DOWN.height } : { x: depth, y: place }) });
      place += gap + (isDown ? spot.width : spot.height);
    }
    depth += isDown ? DOWN.height + DOWN.layer : Math.max(...layer.map((spot) => spot.width)) + ASIDE.layer;
  });
  return { spots, width: isDown ? longest : depth - ASIDE.layer };
}

/**
 * @param {Spot[]} spots @param {Line[]} lines @param {boolean} isDown
 * @returns {Arrow[]}
 */
function arrowsOf(spots, lines, isDown) {
  const homes = new Map(spots.flatMap((spot) => spot.agents.map((agent) => [agent, spot])));
  for (const spot of spots) homes.set(spot.name, spot);
  const isMerged = spots.some((spot) => spot.isGroup) || spots.length > MOST_AGENTS;
  /** @type {Map<string, Arrow[]>} */
  const pairs = new Map();
  for (const line of lines) {
    const [source, target] = [homes.get(line.source)?.name, homes.get(line.target)?.name];
    if (!source || !target || (isMerged && source === target)) continue;
    const pair = pairs.get(`${source}\n${target}`) ?? [];
    pairs.set(`${source}\n${target}`, pair);
    if (isMerged && pair[0]) pair[0].lines.push(line);
    else pair.push({ source, target, lines: [line], curve: "" });
  }
  for (const pair of pairs.values()) {
    pair.forEach((arrow, index) => {
      const [from, to] = [homes.get(arrow.source), homes.get(arrow.target)];
      if (from && to) arrow.curve = curve(from, to, isDown, (index - (pair.length - 1) / 2) * PARALLEL, spots);
    });
  }
  return [...pairs.values()].flat();
}

/**
 * A curve that leads around the boxes between its ends, where it can.
 * @param {Spot} from @param {Spot} to @param {boolean} isDown @param {number} shift @param {Spot[]} spots
 */
function curve(from, to, isDown, shift, spots) {
  // Along the layers is `a`, across them `c`; drawn downwards a is y, otherwise x.
  const flat = (/** @type {Spot} */ { x, y, width, height }) =>
    isDown ? { a: y, c: x, deep: height, wide: width } : { a: x, c: y, deep: width, wide: height };
  const [start, end] = [flat(from), flat(to)];
  const point = (/** @type {number} */ a, /** @type {number} */ c) => (isDown ? `${round(c)} ${round(a)}` : `${round(a)} ${round(c)}`);
  const aside = shift + (start.a > end.a ? BACKWARDS : 0);
  const [c1, c2] = [start.c + start.wide / 2 + aside, end.c + end.wide / 2 + aside];
  if (start.a === end.a) {
    const [edge, out] = [start.a + start.deep, start.a + start.deep + 36 + Math.abs(c1 - c2) * 0.08];
    return `M${point(edge, c1)}C${point(out, c1)} ${point(out, c2)} ${point(edge, c2)}`;
  }
  // A line that leads backwards stands aside, so that it does not cover one in the other direction.
  const [a1, a2] = start.a > end.a ? [start.a, end.a + end.deep] : [start.a + start.deep, end.a];
  const others = spots.filter((spot) => spot !== from && spot !== to).map(flat);
  const middle = (a1 + a2) / 2;
  const paths = DETOURS.map((detour) => detour * (isDown ? 180 : 90)).map((far) => [c1, c1 + far, c2 + far, c2]);
  const isFree = (/** @type {number[]} */ path) =>
    STEPS.every((at) => {
      const [a, c] = [bezier(at, a1, middle, middle, a2), bezier(at, ...path)];
      return !others.some((box) => a > box.a - 6 && a < box.a + box.deep + 6 && c > box.c - 6 && c < box.c + box.wide + 6);
    });
  const [, out = c1, into = c2] = paths.find(isFree) ?? [];
  return `M${point(a1, c1)}C${point(middle, out)} ${point(middle, into)} ${point(a2, c2)}`;
}

/** @param {number} t @param {number[]} points */
function bezier(t, ...[p = 0, q = 0, r = 0, s = 0]) {
  const u = 1 - t;
  return u * u * u * p + 3 * u * u * t * q + 3 * u * t * t * r + t * t * t * s;
}

/** @param {number} value */
const round = (value) => Number(value.toFixed(1));
