/** Time and filter: pause, go back, step from delivery to delivery. */

/** @import { App } from "./app.js" */
/** @import { Filter } from "./store.js" */
import { button, fill, h, options, part, refill, s, set, write } from "./dom.js";
import { clock, count, counted, rate } from "./format.js";

const HEIGHT = 40;
/** @type {Filter} */
const ALL = { topic: "", agent: "", key: "", failed: false };

export class TimeView {
  /** @type {unknown} */
  #graph = null;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.pause = button("Pause", () => app.togglePause(), { class: "main" });
    this.back = button("◀", () => app.step(-1), { "aria-label": "The delivery before", title: "The delivery before (←)" });
    this.ahead = button("▶", () => app.step(1), { "aria-label": "The delivery after", title: "The delivery after (→)" });
    this.place = h("output.place");
    this.bars = s("path.bars");
    this.faults = s("path.faults");
    this.cursor = s("line.cursor", { y1: 0, y2: HEIGHT });
    this.range = h("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Moment", input: () => this.#scrub() });
    this.figures = h("dl.figures");
    this.filter = h("form.filter", { "aria-label": "Filter", submit: (event) => event.preventDefault(), change: () => this.#filter() });
    const strip = s(
      "svg",
      { viewBox: `0 0 1200 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.bars,
      this.faults,
      this.cursor,
    );
    fill(part("time"), h("span.joined", this.pause, this.back, this.ahead), h("div.strip", strip, this.place, this.range), this.figures, this.filter);
  }

  draw() {
    const { store, route } = this.app;
    if (this.#graph !== store.graph) this.#fillFilter();
    this.#graph = store.graph;
    const isHeld = route.at !== null;
    write(this.pause, !this.app.follows ? "To the end" : isHeld ? "Go on" : "Pause");
    set(this.pause, { disabled: !this.app.follows && !isHeld });
    const record = store.isWhole ? "the whole record" : counted(store.deliveries.length, "delivery of the record", "deliveries of the record");
    write(this.place, route.at !== null ? clock(route.at) : store.isLive ? "the last 2 minutes" : record);
    this.#drawStrip();
    this.#drawFigures();
    this.#showFilter();
  }

  #drawStrip() {
    const { store, route } = this.app;
    const bars = store.bars();
    const most = Math.max(1, ...bars.map((bar) => bar.delivered));
    const outline = (/** @type {(bar: { delivered: number, failed: number }) => number} */ tall) =>
      bars.map((bar, index) => (tall(bar) ? `M${index * 10 + 1} ${HEIGHT}v${-tall(bar)}h8v${tall(bar)}z` : "")).join("");
    const size = (/** @type {number} */ value) => Number((value && Math.max(2, (value / most) * (HEIGHT - 2))).toFixed(1));
    set(this.bars, { d: outline((bar) => size(bar.delivered)) });
    set(this.faults, { d: outline((bar) => (bar.failed ? Math.max(6, size(bar.failed)) : 0)) });
    const [from, to] = store.span();
    const share = route.at === null ? 1 : Math.min(1, Math.max(0, (route.at - from) / (to - from)));
    set(this.cursor, { x1: share * 1200, x2: share * 1200, hidden: route.at === null });
    if (document.activeElement !== this.range || route.at === null) this.range.value = String(share * 1000);
    set(this.range, { "aria-valuetext": route.at === null ? "now" : clock(route.at) });
  }

  #drawFigures() {
    const { store, route } = this.app;
    const sum = store.figures(route.at);
    const failed = Math.round(sum.failed);
    const isOn = route.filter.failed;
    const show = () => this.app.go({ filter: { ...route.filter, failed: !isOn } });
    const entries = [
      ["Deliveries", store.isLive ? `${rate(sum.rate)}/s` : count(sum.delivered)],
      ["Waiting", count(sum.waiting + (route.at === null ? store.queued : 0))],
      ["Dead letters", count(store.letterCount)],
    ];
    const wanted = JSON.stringify([entries, failed, isOn, store.isLive, store.isWhole]);
    if (this.figures.getAttribute("data-wanted") === wanted) return;
    set(this.figures, { "data-wanted": wanted });
    const trouble = button(counted(failed, "failure"), show, {
      "aria-pressed": String(isOn),
      class: failed ? "bad" : "",
      id: "trouble",
      title: "Show only what failed or was retried (e)",
    });
    refill(
      this.figures,
      entries.map(([title, value]) => h("div", h("dt", title), h("dd", value))),
      h("div", h("dt", store.isLive ? "Last minute" : store.isWhole ? "In the record" : "Among these"), h("dd", trouble)),
    );
  }

  #fillFilter() {
    const { topics = [], agents = [] } = this.app.store.graph ?? {};
    const select = (/** @type {string} */ field, /** @type {{ name: string }[]} */ all) =>
      h("select", { name: field }, h("option", { value: "" }, `every ${field}`), options(all.map((each) => each.name)));
    const key = h("input", { name: "key", type: "search", placeholder: "every key", autocomplete: "off", spellcheck: "false" });
    const labelled = (/** @type {string} */ text, /** @type {Element} */ input) => h("label", h("span", text), input);
    const clear = button("Clear", () => this.app.go({ filter: ALL }), { id: "clear" });
    fill(this.filter, labelled("Topic", select("topic", topics)), labelled("Agent", select("agent", agents)), labelled("Key", key), clear);
  }

  #showFilter() {
    const { filter } = this.app.route;
    for (const field of ["topic", "agent", "key"]) {
      const input = /** @type {HTMLInputElement} */ (this.filter.elements.namedItem(field));
      const value = filter[/** @type {"topic"} */ (field)];
      if (input instanceof HTMLSelectElement && value && ![...input.options].some((each) => each.value === value))
        input.append(h("option", { value }, value));
      if (input.value !== value && document.activeElement !== input) input.value = value;
    }
    set(part("clear"), { hidden: JSON.stringify(filter) === JSON.stringify(ALL) });
  }

  #filter() {
    const data = new FormData(this.filter);
    const text = (/** @type {string} */ name) => String(data.get(name) ?? "");
    this.app.go({ filter: { ...this.app.route.filter, topic: text("topic"), agent: text("agent"), key: text("key").trim() } });
  }

  #scrub() {
    const [from, to] = this.app.store.span();
    const share = Number(this.range.value) / 1000;
    this.app.go({ at: share >= 1 ? null : from + share * (to - from), seq: null }, { isStep: true });
  }
}
