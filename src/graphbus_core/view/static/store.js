/** What the page knows of a graph. Its memory is bounded: the last deliveries, and exact counts of the last minutes. */

/** @import { Counts, Delivery, DeliveryPage, GraphPicture, Line, Tick } from "contract" */
import { agentOf } from "./format.js";

export const RING = 2000;
export const SECONDS = 180;
const WINDOW_S = 5;
const RECENT_S = 60;
const BARS = 120;

/** What one handler has got from one topic in a second, and what waited for it at its end. */
/** @typedef {{ delivered: number, failed: number, dead: number, retrying: number, waiting: number, lag_s: number }} Sums */
/** @typedef {{ second: number, delivered: number, failed: number, handlers: Map<string, Sums> }} Bin */
/** @typedef {Sums & { rate: number }} Flow */
/** @typedef {{ topic: string, agent: string, key: string, failed: boolean }} Filter */
/** @typedef {{ from: number, delivered: number, failed: number }} Bar */

/** @returns {Flow} */
export const still = () => ({ delivered: 0, failed: 0, dead: 0, retrying: 0, waiting: 0, lag_s: 0, rate: 0 });

/** The name under which the server counts. @param {string} handler @param {string} topic */
const countKey = (handler, topic) => `${handler} <- ${topic}`;

/** Whether somebody who looks for trouble wants to see a delivery. @param {Delivery} each */
export const isTrouble = (each) => each.outcome !== "done" || each.attempt > 1;

/** @param {Delivery} each @param {Filter} filter */
export function fits(each, filter) {
  const ends = [each.handler, agentOf(each.handler), each.published_by, agentOf(each.published_by)];
  return (
    (!filter.failed || isTrouble(each)) &&
    (!filter.topic || each.topic === filter.topic) &&
    (!filter.key || each.key === filter.key) &&
    (!filter.agent || ends.includes(filter.agent))
  );
}

export class Store {
  /** @type {GraphPicture | null} */
  graph = null;
  /** Oldest first. @type {Delivery[]} */
  deliveries = [];
  /** By second, oldest first. @type {Bin[]} */
  bins = [];
  leftOut = 0;
  queued = 0;
  deadLetters = 0;
  /** How many dead letters were kept, and how many the server had counted, when the list was loaded. */
  letters = { kept: 0, counted: 0 };
  /** The oldest delivery that the server can still give is older than those here. */
  hasOlder = false;
  /** The newest deliveries are here; otherwise some of the past. */
  isTail = true;
  /** @type {Set<number>} */
  #seen = new Set();
  /** @type {Map<string, Counts>} */
  #totals = new Map();
  #clock = { told: 0, when: 0 };

  get isLive() {
    return this.graph?.origin.is_live ?? false;
  }

  /** The time of the server, in seconds since the epoch: what it has told, and what has passed since. */
  get now() {
    if (!this.isLive || !this.#clock.told) return this.deliveries.at(-1)?.started ?? this.#clock.told;
    return this.#clock.told + (performance.now() - this.#clock.when) / 1000;
  }

  /** Everything that the server can give is here. */
  get isWhole() {
    return this.isTail && !this.hasOlder;
  }

  get letterCount() {
    return this.letters.kept + this.deadLetters - this.letters.counted;
  }

  /** Forget what happened: another server, or the same one started again. */
  clear() {
    this.forgetDeliveries();
    this.bins = [];
    this.#totals.clear();
    this.#clock = { told: 0, when: 0 };
    this.leftOut = this.queued = this.deadLetters = 0;
    this.letters = { kept: 0, counted: 0 };
  }

  forgetDeliveries() {
    this.deliveries = [];
    this.#seen.clear();
    this.isTail = true;
  }

  /** Count from here on: what happened while nothing was heard belongs to no second. */
  rebase() {
    this.#totals.clear();
  }

  /** Take the newest deliveries, and keep what has come since. @param {DeliveryPage} page */
  renew(page) {
    const since = this.deliveries.filter((each) => each.seq > page.newest);
    this.forgetDeliveries();
    this.add([...page.deliveries, ...since]);
    this.hasOlder = page.has_older;
  }

  /** @param {Tick} tick */
  take(tick) {
    this.#clock = { told: Math.max(tick.at, this.#clock.told), when: performance.now() };
    this.leftOut += tick.left_out;
    this.queued = tick.queued;
    this.deadLetters = tick.dead_letters;
    const bin = this.#bin(Math.floor(tick.at));
    for (const [key, counts] of Object.entries(tick.handlers)) this.#count(bin, key, counts);
    if (this.isTail) this.add(tick.deliveries);
  }

  /**
   * Add what is more than last time; the first counts of a handler are from before the page was opened.
   * @param {Bin} bin @param {string} key @param {Counts} counts
   */
  #count(bin, key, counts) {
    const before = this.#totals.get(key);
    this.#totals.set(key, counts);
    const sums = bin.handlers.get(key) ?? still();
    bin.handlers.set(key, Object.assign(sums, waits(counts)));
    if (!before) return;
    sums.delivered += counts.delivered - before.delivered;
    sums.failed += counts.failed - before.failed;
    sums.dead += counts.dead - before.dead;
    bin.delivered += counts.delivered - before.delivered;
    bin.failed += counts.failed - before.failed;
  }

  /**
   * Add deliveries, each once; what does not fit leaves at the other end.
   * @param {Delivery[]} found @param {boolean} [isPast] they are older than what is here
   */
  add(found, isPast = false) {
    const fresh = found.filter((each) => !this.#seen.has(each.seq));
    for (const each of fresh) this.#seen.add(each.seq);
    this.deliveries = isPast ? [...fresh, ...this.deliveries] : this.deliveries.concat(fresh);
    const over = Math.max(0, this.deliveries.length - RING);
    const gone = isPast ? this.deliveries.splice(RING) : this.deliveries.splice(0, over);
    for (const each of gone) this.#seen.delete(each.seq);
    if (over && isPast) this.isTail = false;
    else if (over) this.hasOlder = true;
  }

  /**
   * The deliveries up to a time that fit a filter, newest first.
   * @param {Filter} filter @param {number | null} at @param {number} most
   */
  shown(filter, at, most) {
    const found = [];
    for (let index = this.deliveries.length - 1; index >= 0 && found.length < most; index -= 1) {
      const each = this.deliveries[index];
      if (each && (at === null || each.started <= at) && fits(each, filter)) found.push(each);
    }
    return found;
  }

  /**
   * The delivery before or after another one, among those that fit; the last one if there is no other.
   * @param {Filter} filter @param {number | null} seq @param {-1 | 1} step
   */
  beside(filter, seq, step) {
    const fitting = this.deliveries.filter((each) => fits(each, filter) || each.seq === seq);
    const place = seq === null ? -1 : fitting.findIndex((each) => each.seq === seq);
    return place < 0 ? fitting.at(-1) : fitting[place + step];
  }

  /**
   * What each handler gets from each topic at a time: a rate where the graph is alive, the number so far in a record.
   * @param {number | null} at
   * @returns {Map<string, Flow>}
   */
  flows(at) {
    /** @type {Map<string, Flow>} */
    const flows = new Map();
    const now = at ?? (this.isLive ? this.now : Number.POSITIVE_INFINITY);
    // What happened before the page was opened was not counted by it.
    for (const each of this.deliveries) if (each.started < this.#counted) addOne(flows, each, now - each.started, this.isLive);
    if (!this.isLive) return flows;
    for (const bin of this.bins) addBin(flows, bin, now - bin.second);
    // What waits in front of a handler that stands still is told once, maybe long ago.
    if (at === null) for (const [key, counts] of this.#totals) Object.assign(flowOf(flows, key), waits(counts));
    return flows;
  }

  /** All flows together. @param {number | null} at */
  figures(at) {
    const sum = still();
    for (const flow of this.flows(at).values()) addFlow(sum, flow, 1);
    return sum;
  }

  /** What the page can go back over, as bars of equal length. @returns {Bar[]} */
  bars() {
    const [from, to] = this.span();
    const length = (to - from) / BARS;
    /** @type {Bar[]} */
    const bars = Array.from({ length: BARS }, (_, index) => ({ from: from + index * length, delivered: 0, failed: 0 }));
    /** @param {number} when @param {number} delivered @param {number} failed */
    const put = (when, delivered, failed) => {
      const bar = bars[Math.min(BARS - 1, Math.max(0, Math.floor((when - from) / length)))];
      if (bar) Object.assign(bar, { delivered: bar.delivered + delivered, failed: bar.failed + failed });
    };
    for (const each of this.deliveries)
      if (each.started >= from && each.started < this.#counted) put(each.started, 1, Number(each.outcome !== "done"));
    if (this.isLive) for (const bin of this.bins) if (bin.second >= from) put(bin.second, bin.delivered, bin.failed);
    return bars;
  }

  /** From this second on the counts of the server are known. */
  get #counted() {
    return (this.isLive && this.bins[0]?.second) || Number.POSITIVE_INFINITY;
  }

  /** The first and the last time that the page can go back to. @returns {[number, number]} */
  span() {
    if (this.isLive) return [Math.floor(this.now) + 1 - BARS, Math.floor(this.now) + 1];
    const first = this.deliveries[0]?.started ?? 0;
    return [first, Math.max(this.deliveries.at(-1)?.started ?? 0, first + 0.001)];
  }

  /**
   * What each line of the drawing carries: the count of a handler is split between the lines that lead to it as the sample is.
   * @param {Line[]} lines @param {number | null} at
   * @returns {Map<Line, Flow>}
   */
  lineFlows(lines, at) {
    const found = new Map(lines.map((line) => [line, still()]));
    const sample = this.deliveries.slice(-500);
    for (const [key, flow] of this.flows(at)) {
      const [handler = "", topic = ""] = key.split(" <- ");
      const fitting = lines.filter((line) => line.handlers.includes(handler) && matches(topic, line.topic));
      const recent = sample.filter((each) => each.handler === handler && matches(topic, each.topic));
      for (const line of fitting) {
        const own = recent.filter((each) => each.topic === line.topic && agentOf(each.published_by) === line.source);
        const sum = found.get(line);
        if (sum) addFlow(sum, flow, recent.length ? own.length / recent.length : 1 / fitting.length);
      }
    }
    return found;
  }

  /** @param {number} second @returns {Bin} */
  #bin(second) {
    const last = this.bins.at(-1);
    if (last && last.second >= second) return last;
    const bin = { second, delivered: 0, failed: 0, handlers: new Map() };
    this.bins.push(bin);
    this.bins.splice(0, Math.max(0, this.bins.length - SECONDS));
    return bin;
  }
}

/**
 * Whether a subscription, which may be a pattern, gets the events of a topic.
 * @param {string} subscribed @param {string} topic
 */
function matches(subscribed, topic) {
  if (subscribed === topic || !subscribed.includes("*")) return subscribed === topic;
  const parts = subscribed.split("*").map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(topic);
}

/** @param {Map<string, Flow>} flows @param {Bin} bin @param {number} age */
function addBin(flows, bin, age) {
  if (age < 0) return;
  for (const [key, sums] of bin.handlers) {
    const flow = flowOf(flows, key);
    if (age <= WINDOW_S) flow.rate += sums.delivered / WINDOW_S;
    if (age <= RECENT_S) addFlow(flow, sums, 1);
    Object.assign(flow, waits(sums));
  }
}

/** What waits, which is a state and no count. @param {Counts} counts */
const waits = ({ retrying, waiting, lag_s }) => ({ retrying, waiting, lag_s });

/** @param {Map<string, Flow>} flows @param {Delivery} each @param {number} age @param {boolean} isLive */
function addOne(flows, each, age, isLive) {
  if (age < 0 || (isLive && age > RECENT_S)) return;
  const flow = flowOf(flows, countKey(each.handler, each.topic));
  flow.delivered += 1;
  flow.failed += Number(each.outcome !== "done");
  flow.rate += isLive ? Number(age <= WINDOW_S) / WINDOW_S : 1;
}

/** @param {Map<string, Flow>} flows @param {string} key */
function flowOf(flows, key) {
  const found = flows.get(key) ?? still();
  flows.set(key, found);
  return found;
}

/** @param {Flow} sum @param {Sums & { rate?: number }} more @param {number} share */
export function addFlow(sum, more, share) {
  sum.delivered += more.delivered * share;
  sum.failed += more.failed * share;
  sum.dead += more.dead * share;
  sum.retrying += more.retrying * share;
  sum.waiting += more.waiting * share;
  sum.rate += (more.rate ?? 0) * share;
  sum.lag_s = Math.max(sum.lag_s, more.lag_s);
}
