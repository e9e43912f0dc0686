/** An event and everything that follows from it, as rows on one axis of time. */

/** @import { DeadLetter, Delivery, EventTree, Planned, TreeEvent } from "contract" */

/**
 * An event, or a handler that gets it: all its attempts, the one that is planned, and its dead letter.
 * @typedef {{ depth: number, event: TreeEvent, handler: string, attempts: Delivery[], planned: Planned[], dead: DeadLetter[], isRunning: boolean }} Row
 */

/** @param {EventTree} tree @returns {Row[]} */
export function rowsOf(tree) {
  /** @type {Row[]} */
  const rows = [];
  const caused = grouped(tree.events, (each) => each.causation_id);
  const attempts = grouped(tree.deliveries, (each) => each.event_id);
  const known = new Set(tree.events.map((each) => each.event_id));
  const done = new Set();

  /** @param {TreeEvent} event @param {number} depth */
  const add = (event, depth) => {
    if (done.has(event.event_id)) return;
    done.add(event.event_id);
    rows.push({ depth, event, handler: "", attempts: [], planned: [], dead: [], isRunning: false });
    const effects = caused.get(event.event_id) ?? [];
    const own = attempts.get(event.event_id) ?? [];
    for (const handler of handlersOf(tree, event, own)) {
      rows.push(handlerRow(tree, event, handler, own, depth + 1));
      for (const each of effects) if (each.published_by === handler) add(each, depth + 2);
    }
    for (const each of effects) add(each, depth + 1);
  };
  for (const each of tree.events) if (!known.has(each.causation_id)) add(each, 0);
  for (const each of tree.events) add(each, 0);
  return rows;
}

/** The handlers of an event, in the order in which they began. @param {EventTree} tree @param {TreeEvent} event @param {Delivery[]} own */
function handlersOf(tree, event, own) {
  const isOwn = (/** @type {{ event_id: string }} */ each) => each.event_id === event.event_id;
  return new Set([
    ...own.map((each) => each.handler),
    ...tree.running.filter(([id]) => id === event.event_id).map(([, handler]) => handler),
    ...tree.planned.filter(isOwn).map((each) => each.handler),
    ...tree.dead_letters.filter(isOwn).map((each) => each.handler),
  ]);
}

/** @param {EventTree} tree @param {TreeEvent} event @param {string} handler @param {Delivery[]} own @param {number} depth @returns {Row} */
function handlerRow(tree, event, handler, own, depth) {
  const isOwn = (/** @type {{ event_id: string, handler: string }} */ each) => each.event_id === event.event_id && each.handler === handler;
  return {
    depth,
    event,
    handler,
    attempts: own.filter(isOwn),
    planned: tree.planned.filter(isOwn),
    dead: tree.dead_letters.filter(isOwn),
    isRunning: tree.running.some(([id, name]) => id === event.event_id && name === handler),
  };
}

/** The first and the last moment of a tree. @param {EventTree} tree @returns {[number, number]} */
export function spanOf(tree) {
  const starts = [...tree.events.map((each) => each.published), ...tree.deliveries.map((each) => each.started)].filter((each) => each > 0);
  const ends = [
    ...tree.deliveries.map((each) => each.started + each.duration_s),
    ...tree.planned.map((each) => each.at),
    ...tree.dead_letters.map((each) => each.at),
  ];
  const first = starts.reduce((one, other) => Math.min(one, other), starts[0] ?? 0);
  const last = ends.reduce((one, other) => Math.max(one, other), first + 1e-6);
  return [first, Math.max(last, ...starts.slice(-1))];
}

/**
 * What a row means, in words.
 * @param {Row} row @param {(seconds: number) => string} duration
 */
export function inWords({ event, attempts, planned, dead, isRunning }, duration) {
  const first = attempts[0];
  const parts = first && event.published ? [`waited ${duration(Math.max(0, first.started - event.published))}`] : [];
  for (const each of attempts)
    parts.push(`${each.outcome === "done" ? "ran" : each.outcome} ${each.outcome === "done" ? "" : "after "}${duration(each.duration_s)}`);
  if (isRunning) parts.push("is running");
  for (const each of planned) parts.push(`attempt ${each.attempt} is planned`);
  if (dead.length) parts.push("became a dead letter");
  return parts.join(", ");
}

/**
 * @template T
 * @param {T[]} all @param {(each: T) => string} keyOf
 * @returns {Map<string, T[]>}
 */
function grouped(all, keyOf) {
  const found = new Map();
  for (const each of all) {
    const key = keyOf(each);
    found.set(key, [...(found.get(key) ?? []), each]);
  }
  return found;
}
