/** The list of deliveries beside the graph, and the agent that was chosen in it. */

/** @import { App } from "./app.js" */
/** @import { Delivery } from "contract" */
import { button, fill, h, line, list, name, set, words, write } from "./dom.js";
import { clock, count, counted, duration, short } from "./format.js";
import { flowsOfAgents } from "./graph.js";
import { still } from "./store.js";

const MOST = 80;
const PACE_MS = 1000;

export class DeliveryList {
  #drawn = { when: 0, wanted: "" };

  /** @param {App} app @param {Element} list @param {Element} chosen */
  constructor(app, list, chosen) {
    this.app = app;
    this.chosen = chosen;
    this.said = h("span.quiet");
    this.rows = h("ol.rows", { "aria-label": "Deliveries, newest first" });
    this.foot = h("div.foot");
    fill(list, h("div.head", h("h3", "Deliveries"), this.said), this.rows, this.foot);
  }

  draw() {
    const { store, route } = this.app;
    this.#drawChosen();
    const wanted = JSON.stringify([route.filter, route.at, route.seq, store.isTail, store.isLive]);
    const isSame = wanted === this.#drawn.wanted;
    const isBusy = this.rows.matches(":hover") || this.rows.contains(document.activeElement);
    write(this.said, isSame && isBusy && store.isLive && route.at === null ? "held while you point at it" : this.#summary());
    if (isSame && (isBusy || performance.now() - this.#drawn.when < PACE_MS) && this.rows.childElementCount) return;
    this.#drawn = { when: performance.now(), wanted };
    const found = store.shown(route.filter, route.at, MOST);
    fill(
      this.rows,
      found.map((each) => this.#row(each)),
    );
    fill(this.foot, found.length ? this.#older() : this.#nothing());
  }

  #summary() {
    const { store, route } = this.app;
    const at = route.at === null ? "" : `up to ${clock(route.at)}`;
    return [at, store.leftOut ? `a sample: ${count(store.leftOut)} more are not listed` : ""].filter(Boolean).join(" · ");
  }

  #older() {
    return this.app.store.hasOlder && button("Older deliveries", () => this.app.loadOlder());
  }

  #nothing() {
    const { store, route } = this.app;
    const { filter } = route;
    const isFiltered = Boolean(filter.topic || filter.agent || filter.key || filter.failed);
    if (store.deliveries.length && isFiltered)
      return words(
        filter.failed ? "No trouble here" : "Nothing fits",
        `None of the last ${count(store.deliveries.length)} deliveries fits the filter.`,
        button("Clear the filter", () => this.app.go({ filter: { topic: "", agent: "", key: "", failed: false } })),
        this.#older(),
      );
    if (store.deliveries.length) return words("Nothing yet", "No delivery is older than this moment.", this.#older());
    const hint = store.isLive ? "The first event that is published will be here." : "This record holds no delivery.";
    return words("No events yet", hint);
  }

  /** @param {Delivery} each */
  #row(each) {
    const isHere = this.app.route.seq === each.seq;
    const open = () => this.app.go({ view: "event", id: each.event_id, seq: each.seq, at: each.started, source: "" });
    const content = [
      h("span.what", mark(each), name(each.handler)),
      h("span.took", duration(each.duration_s)),
      h("span.where", name(each.topic), each.key && [" · ", name(each.key)], each.attempt > 1 && ` · attempt\u00a0${each.attempt}`),
      h("span.when", clock(each.started)),
      each.error && h("span.error", each.error),
    ];
    return h("li", button(content, open, { class: "row", "data-outcome": each.outcome, "data-seq": each.seq, "aria-current": isHere && "true" }));
  }

  #drawChosen() {
    const { store, route } = this.app;
    const agent = store.graph?.agents.find((each) => each.name === route.filter.agent);
    const flow = agent && (flowsOfAgents(store.flows(route.at)).get(agent.name) ?? still());
    const wanted = agent ? JSON.stringify([agent.name, route.focus, Math.round(flow?.failed ?? 0), flow?.waiting, flow?.dead]) : "";
    if (this.chosen.getAttribute("data-wanted") === wanted) return;
    set(this.chosen, { "data-wanted": wanted });
    if (!agent || !flow) return fill(this.chosen);
    const facts = line(
      flow.failed && counted(Math.round(flow.failed), "failure"),
      flow.dead && counted(Math.round(flow.dead), "dead letter"),
      flow.waiting && `${count(flow.waiting)} waiting`,
    );
    fill(
      this.chosen,
      h(
        "div.panel.card",
        h(
          "div.head",
          h("h3", name(agent.name)),
          button("✕", () => this.app.go({ filter: { ...route.filter, agent: "" } }), { "aria-label": "Choose no agent" }),
        ),
        h("p.quiet", agent.doc.split("\n")[0]),
        h("p.quiet", h("code", agent.file ? `${agent.file}:${agent.line}` : agent.module), " ", facts),
        agent.note && h("p.warn", agent.note),
        list("ul.handlers", agent.handlers, (each) => {
          const show = () => this.app.go({ view: "event", id: "", seq: null, source: each.name });
          const method = button(h("code", each.name.slice(agent.name.length + 1)), show, { class: "link" });
          return [method, h("span.quiet", " hears ", name(each.topics.join(", ")))];
        }),
        route.focus !== agent.name && button("Show its neighbours", () => this.app.go({ focus: agent.name })),
      ),
    );
  }
}

/** @param {Delivery} each */
function mark(each) {
  const [sign, text] = { done: ["✓", "done"], failed: ["✗", "failed"], interrupted: ["◌", "interrupted"] }[each.outcome] ?? ["?", each.outcome];
  return h("span.sign", { role: "img", "aria-label": text ?? "" }, sign);
}

/** A word for an id that people can compare. @param {string} id */
export const idText = (id) => h("code", { title: id }, short(id));
