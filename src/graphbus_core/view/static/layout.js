/** What is drawn of a graph: its agents as the server has laid them out, its groups, or one of them with its neighbours. */

/** @import { GraphPicture, Line } from "contract" */
import { shorten } from "./format.js";

/** @typedef {{ x: number, y: number, width: number, height: number }} Box */
/** @typedef {Box & { name: string, agents: string[], isGroup: boolean, isFocus: boolean }} Spot */
/** All lines from one spot to another. @typedef {{ source: string, target: string, lines: Line[], curve: string }} Arrow */
/** @typedef {{ width: number, height: number, spots: Spot[], arrows: Arrow[] }} Drawing */

export const MOST_AGENTS = 24;
const HEIGHT = 44;
const GAP = 28;
const COLUMN_GAP = 200;
const MARGIN = 24;
const LETTER = 8;
const LONGEST = 26;

/**
 * @param {GraphPicture} graph @param {string} focus the name of an agent or a group, or empty
 * @param {string} drawing "agents", "groups", or empty: what is readable
 * @returns {Drawing}
 */
export function drawingOf(graph, focus, drawing) {
  const group = graph.groups.boxes.find((each) => each.name === focus && each.agents.length > 0);
  const agent = graph.agents.find((each) => each.name === focus);
  if (agent) return neighbours(graph, [agent.name]);
  if (group) return neighbours(graph, [...group.agents]);
  const isLarge = graph.agents.length > MOST_AGENTS && graph.groups.boxes.length > 1;
  return (drawing || (isLarge ? "groups" : "agents")) === "groups" ? ofGroups(graph) : ofAgents(graph);
}

/** @param {GraphPicture} graph @returns {Drawing} */
function ofAgents(graph) {
  const spots = graph.agents.map((each) => spotOf(each.name, each));
  return {
    width: graph.width,
    height: graph.height,
    spots,
    arrows: arrowsOf(
      graph.lines,
      (name) => name,
      (line) => line.curve,
    ),
  };
}

/** @param {GraphPicture} graph @returns {Drawing} */
function ofGroups({ groups, lines }) {
  const spots = groups.boxes.map((box) => ({ ...spotOf(box.name, box), agents: box.agents, isGroup: true }));
  const homes = new Map(groups.boxes.flatMap((box) => box.agents.map((agent) => [agent, box.name])));
  const curves = new Map(groups.lines.map((line) => [`${line.source}\n${line.target}`, line.curve]));
  const arrows = arrowsOf(
    lines,
    (name) => homes.get(name) ?? "",
    (_, source, target) => curves.get(`${source}\n${target}`) ?? "",
  );
  return { width: groups.width, height: groups.height, spots, arrows: arrows.filter((arrow) => arrow.curve) };
}

/** @param {string} name @param {Box} box @returns {Spot} */
const spotOf = (name, { x, y, width, height }) => ({
  x,
  y,
  width,
  height,
  name,
  agents: [name],
  isGroup: false,
  isFocus: false,
});

/**
 * Three columns: who sends to the agents, they themselves, who receives from them.
 * @param {GraphPicture} graph @param {string[]} agents
 * @returns {Drawing}
 */
function neighbours(graph, agents) {
  const own = new Set(agents);
  const lines = graph.lines.filter((line) => own.has(line.source) || own.has(line.target));
  const before = new Set(lines.map((line) => line.source).filter((name) => !own.has(name)));
  const after = new Set(lines.map((line) => line.target).filter((name) => !own.has(name) && !before.has(name)));
  const columns = [[...before], agents, [...after]].filter((column) => column.length);
  const tallest = Math.max(...columns.map((column) => column.length));
  /** @type {Spot[]} */
  const spots = [];
  let x = MARGIN;
  for (const column of columns) {
    const width = Math.max(150, ...column.map((name) => shorten(name, LONGEST).length * LETTER + 24));
    const top = MARGIN + ((tallest - column.length) * (HEIGHT + GAP)) / 2;
    column.forEach((name, index) => {
      const box = { x, y: top + index * (HEIGHT + GAP), width, height: HEIGHT };
      spots.push({ ...spotOf(name, box), isFocus: own.has(name) });
    });
    x += width + COLUMN_GAP;
  }
  const boxes = new Map(spots.map((spot) => [spot.name, spot]));
  const arrows = arrowsOf(
    lines,
    (each) => each,
    (_, source, target) => curve(boxes.get(source), boxes.get(target)),
  );
  return { width: x - COLUMN_GAP + MARGIN + 40, height: MARGIN * 2 + tallest * (HEIGHT + GAP) - GAP, spots, arrows };
}

/** @param {Box | undefined} from @param {Box | undefined} to */
function curve(from, to) {
  if (!from || !to) return "";
  const [y, bottom] = [from.y + from.height / 2, to.y + to.height / 2];
  const [right, left] = [from.x + from.width, to.x];
  if (from.x < to.x) return `M${right} ${y}C${(right + left) / 2} ${y} ${(right + left) / 2} ${bottom} ${left} ${bottom}`;
  if (from.x > to.x)
    return `M${from.x} ${y + 10}C${from.x - 70} ${y + 10} ${to.x + to.width + 70} ${bottom + 10} ${to.x + to.width} ${bottom + 10}`;
  return `M${right} ${y}C${right + 60} ${y} ${right + 60} ${bottom} ${right} ${bottom}`;
}

/**
 * @param {Line[]} lines @param {(agent: string) => string} spotNameOf
 * @param {(line: Line, source: string, target: string) => string} curveOf
 * @returns {Arrow[]}
 */
function arrowsOf(lines, spotNameOf, curveOf) {
  /** @type {Map<string, Arrow>} */
  const arrows = new Map();
  for (const line of lines) {
    const [source, target] = [spotNameOf(line.source), spotNameOf(line.target)];
    const key = `${source}\n${target}`;
    const arrow = arrows.get(key) ?? { source, target, lines: [], curve: curveOf(line, source, target) };
    arrow.lines.push(line);
    arrows.set(key, arrow);
  }
  return [...arrows.values()];
}
