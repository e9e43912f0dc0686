/** Numbers and times as people read them. */

/**
 * A duration: `840\u00a0µs`, `12.4\u00a0ms`, `3.10 s`, `2 min 5 s`.
 * @param {number} seconds
 */
export function duration(seconds) {
  if (seconds < 0.001) return `${digits(seconds * 1e6)}\u00a0µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)}\u00a0ms`;
  if (seconds < 60) return `${digits(seconds)}\u00a0s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** @param {number} value */
const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

/**
 * A count: `17`, `1,204`, `38.2k`.
 * @param {number} value
 */
export const count = (value) => (value < 10_000 ? value.toLocaleString("en") : `${digits(value / 1000)}k`);

/**
 * A rate in a second: `0.2`, `14`, `5.10k`.
 * @param {number} value
 */
export const rate = (value) => (value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(Math.round(value)));

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/**
 * The time of the day, with milliseconds.
 * @param {number} seconds since the epoch
 */
export const clock = (seconds) => `${CLOCK.format(seconds * 1000)}.${String(Math.floor((seconds % 1) * 1000)).padStart(3, "0")}`;

/**
 * `1 agent`, `2 agents`.
 * @param {number} value
 * @param {string} noun
 * @param {string} [many] where that is not the noun with an s
 */
export const counted = (value, noun, many = `${noun}s`) => `${count(value)} ${value === 1 ? noun : many}`;

/** @param {string} text @param {number} longest */
export const shorten = (text, longest) => (text.length <= longest ? text : `${text.slice(0, longest - 1)}…`);

/**
 * The beginning of an id, as `graphbus trace` shows it.
 * @param {string} id
 */
export const short = (id) => id.slice(0, 8);

/**
 * The agent of `Agent.method`.
 * @param {string | null} handler
 */
export const agentOf = (handler) => (handler ? handler.slice(0, handler.lastIndexOf(".")) || handler : OUTSIDE);

/** The source of what no agent has published. */
export const OUTSIDE = "(outside)";
