/** The part of the page's state that is in its address: what is shown, and from where it is looked at. A link to it is permanent. */

/** @import { Filter } from "./store.js" */

/** @typedef {"graph" | "event" | "letters" | "negotiation" | "compare"} View */
/**
 * `id`: the event; `source`: the handler whose text is shown; `at`: the time at which the page stands still, null if it follows;
 * `seq`: the delivery at which it stands; `focus`: the agent or group whose neighbours are shown; `drawing`: agents or groups.
 * @typedef {{
 *   view: View, id: string, source: string, filter: Filter, at: number | null, seq: number | null, focus: string, drawing: string,
 *   left: string, right: string, session: string
 * }} Route
 */

/** @type {View[]} */
export const VIEWS = ["graph", "event", "letters", "negotiation", "compare"];
const TEXTS = /** @type {const} */ (["id", "source", "focus", "drawing", "left", "right", "session"]);
const FILTERS = /** @type {const} */ (["topic", "agent", "key"]);

/** @param {string} hash @returns {Route} */
export function read(hash) {
  const [view = "", query = ""] = hash.replace(/^#/, "").split("?");
  const given = new URLSearchParams(query);
  const text = (/** @type {string} */ name) => given.get(name) ?? "";
  return {
    view: VIEWS.find((each) => each === view) ?? "graph",
    id: text("id"),
    source: text("source"),
    filter: { topic: text("topic"), agent: text("agent"), key: text("key"), failed: given.has("failed") },
    at: number(given.get("at")),
    seq: number(given.get("seq")),
    focus: text("focus"),
    drawing: text("drawing"),
    left: text("left"),
    right: text("right"),
    session: text("session"),
  };
}

/** @param {string | null} text */
const number = (text) => (text && Number.isFinite(Number(text)) ? Number(text) : null);

/** @param {Route} route */
export function link(route) {
  const query = new URLSearchParams();
  for (const name of TEXTS) if (route[name]) query.set(name, route[name]);
  for (const name of FILTERS) if (route.filter[name]) query.set(name, route.filter[name]);
  if (route.filter.failed) query.set("failed", "1");
  if (route.at !== null) query.set("at", route.at.toFixed(6));
  if (route.seq !== null) query.set("seq", String(route.seq));
  return `#${route.view}${query.size ? `?${query}` : ""}`;
}
