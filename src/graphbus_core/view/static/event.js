/** One event: its tree of causes on an axis of time, its payloads if somebody asks, and the source of a handler with its reasons. */

import { idText } from "./deliveries.js";
/** @import { App } from "./app.js" */
/** @import { Row } from "./tree.js" */
/** @import { EventTree, TreeEvent } from "contract" */
import { button, fill, h, list, name, part, refill, s, scrolling, words } from "./dom.js";
import { clock, counted, duration, OUTSIDE } from "./format.js";
import { SourceView } from "./source.js";
import { ask } from "./stream.js";
import { inWords, rowsOf, spanOf } from "./tree.js";

const MOST_ROWS = 300;
const REFRESH_MS = 2000;

export class EventView {
  /** @type {EventTree | null} */
  #tree = null;
  #asked = "";
  #when = 0;
  #withPayloads = false;
  #most = MOST_ROWS;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.body = h("div.panel.tree");
    this.sourceBox = h("div.panel.source", { tabindex: "-1" });
    this.source = new SourceView(app, this.sourceBox);
    fill(part("view-event"), h("h2", { id: "event-title", class: "unseen" }, "Event"), h("div.event", this.body, this.sourceBox));
  }

  draw() {
    const { route } = this.app;
    this.source.draw();
    this.body.hidden = !route.id;
    const wanted = `${route.id}\n${this.#withPayloads}`;
    if (!route.id) return;
    if (wanted !== this.#asked) {
      this.#tree = null;
      fill(this.body, h("p.quiet", "Loading …"));
      this.#load(wanted);
    } else if (this.#isOpen() && performance.now() - this.#when > REFRESH_MS) this.#load(wanted);
    else this.#markRow();
  }

  #isOpen() {
    const tree = this.#tree;
    if (!tree || !this.app.store.isLive) return false;
    return tree.running.length > 0 || tree.planned.length > 0 || this.app.store.now - spanOf(tree)[1] < 5;
  }

  /** @param {string} wanted */
  async #load(wanted) {
    this.#asked = wanted;
    this.#when = performance.now();
    const path = `event/${encodeURIComponent(this.app.route.id)}${this.#withPayloads ? "?payload=1" : ""}`;
    try {
      /** @type {EventTree} */
      const tree = await ask(path);
      if (wanted !== this.#asked || JSON.stringify(tree) === JSON.stringify(this.#tree)) return;
      this.#tree = tree;
      this.#fill(tree);
    } catch (error) {
      if (wanted === this.#asked && !this.#tree) fill(this.body, this.#head(), words("This event is not here", this.app.explain(error).join(" ")));
    }
  }

  #head() {
    const back = button("← Graph", () => this.app.go({ view: "graph", id: "", source: "" }));
    return h("p.crumbs", back);
  }

  /** @param {EventTree} tree */
  #fill(tree) {
    const asked = tree.events.find((each) => each.event_id === tree.event_id);
    const rows = rowsOf(tree);
    const [from, to] = spanOf(tree);
    const { origin } = this.app.store.graph ?? {};
    const more = rows.length - this.#most;
    const heads = h("tr", h("th", { scope: "col" }, "Event and handler"), h("th.axis", { scope: "col" }, axis(to - from)));
    const shown = rows.slice(0, this.#most).map((row) => this.#row(row, from, to));
    const table = h("table.causes", h("thead", heads), h("tbody", shown));
    refill(
      this.body,
      this.#head(),
      h("h3.title", name(asked?.topic || "an event"), " ", idText(tree.event_id)),
      asked &&
        h(
          "p.quiet",
          `${clock(asked.published)} from `,
          name(asked.published_by || asked.src || OUTSIDE),
          asked.key && [" · key ", name(asked.key)],
          ` · ${counted(tree.events.length, "event")} in ${duration(to - from)}`,
        ),
      tree.note && h("p.warn", tree.note),
      h(
        "p.tools",
        button(this.#withPayloads ? "Hide payloads" : "Show payloads", () => this.#turnPayloads(), {
          id: "payloads",
          "aria-pressed": String(this.#withPayloads),
          disabled: !origin?.has_payloads,
        }),
        !origin?.has_payloads && h("span.quiet", "Payloads were not recorded, or this page was opened without its token."),
        origin?.has_payloads && origin.redacted.length > 0 && h("span.quiet", `Never shown: ${origin.redacted.join(", ")}`),
      ),
      scrolling("What the event caused", table),
      more > 0 &&
        button(`${counted(more, "more row")}`, () => {
          this.#most = rows.length;
          this.#fill(tree);
        }),
      key(),
    );
    this.#markRow();
  }

  #turnPayloads() {
    this.#withPayloads = !this.#withPayloads;
    this.app.invalidate();
  }

  /** @param {Row} row @param {number} from @param {number} to */
  #row(row, from, to) {
    const isAsked = row.event.event_id === this.#tree?.event_id;
    const indent = `in in-${Math.min(row.depth, 8)}`;
    if (!row.handler && !row.dead.length) {
      const what = h("span", { class: indent }, h("span.topic", name(row.event.topic || "unknown event")), " ", idText(row.event.event_id));
      const payload = this.#withPayloads && h("tr", h("td", { colspan: 2 }, h("pre.payload", payloadText(row.event))));
      return [h("tr.event-row", { "aria-current": isAsked && "true" }, h("th", { scope: "row" }, what), h("td", bars(row, from, to))), payload];
    }
    const failed = row.attempts.filter((each) => each.error);
    const error = row.dead[0]?.error || failed.at(-1)?.error || row.planned[0]?.error;
    const last = row.attempts.at(-1);
    const show = () => this.app.go({ source: row.handler, seq: last?.seq ?? this.app.route.seq });
    const what = [
      row.handler ? button(name(row.handler), show, { class: "link", title: "Show the source of this handler" }) : "reached no handler",
      last && h("span.quiet", ` ${duration(last.duration_s)}`),
      row.attempts.length > 1 && h("span.warn", ` ${row.attempts.length} attempts`),
      row.dead.length > 0 && h("a.badge.bad", { href: "#letters" }, "dead letter"),
      row.planned.length > 0 && h("span.badge.warn", "waits for a retry"),
      row.isRunning && h("span.badge.live", "running"),
      error && h("span.error", error),
    ];
    const marks = { "data-handler": row.handler, "data-seqs": row.attempts.map((each) => each.seq).join(" ") };
    return h("tr.handler-row", marks, h("th", { scope: "row" }, h("span", { class: indent }, what)), h("td", bars(row, from, to)));
  }

  #markRow() {
    const { seq, source } = this.app.route;
    for (const row of this.body.querySelectorAll("tr[data-handler]")) {
      const isAt = seq !== null && (row.getAttribute("data-seqs") ?? "").split(" ").includes(String(seq));
      row.classList.toggle("at", isAt);
      row.classList.toggle("open", row.getAttribute("data-handler") === source);
    }
  }
}

/** @param {TreeEvent} event */
const payloadText = (event) => event.payload_note || JSON.stringify(event.payload, null, 2);

/** Waiting is a thin line, running a bar, a dead letter a cross. @param {Row} row @param {number} from @param {number} to */
function bars(row, from, to) {
  const at = (/** @type {number} */ when) => Math.min(1, Math.max(0, (when - from) / (to - from))) * 98 + 1;
  const percent = (/** @type {number} */ value) => `${value.toFixed(2)}%`;
  const line = (/** @type {string} */ kind, /** @type {number} */ start, /** @type {number} */ end) =>
    s("line", { class: kind, x1: percent(at(start)), x2: percent(at(end)), y1: 10, y2: 10 });
  /** @type {Element[]} */
  const drawn = [];
  let before = row.event.published;
  for (const each of row.attempts) {
    if (before) drawn.push(line(each.attempt > 1 ? "pause" : "wait", before, each.started));
    const width = Math.max(0.6, at(each.started + each.duration_s) - at(each.started));
    drawn.push(
      s("rect", { class: `run ${each.outcome}`, x: percent(Math.min(99.4, at(each.started))), y: 4, width: percent(width), height: 12, rx: 2 }),
    );
    before = each.started + each.duration_s;
  }
  for (const each of row.planned) {
    if (each.at) drawn.push(line("pause", before, each.at), s("circle.planned", { cx: percent(at(each.at)), cy: 10, r: 4 }));
  }
  if (row.isRunning)
    drawn.push(line("wait", before, to), s("rect.run.running", { x: percent(at(before)), y: 4, width: percent(99 - at(before)), height: 12, rx: 2 }));
  for (const each of row.dead) drawn.push(s("text.cross", { x: percent(Math.min(97, at(each.at))), y: 15 }, "✕"));
  if (!row.handler && !row.dead.length && row.event.published)
    drawn.push(s("circle.birth", { cx: percent(at(row.event.published)), cy: 10, r: 3.5 }));
  return s(
    "svg.lane",
    {
      role: "img",
      "aria-label": inWords(row, duration) || `published ${duration(Math.max(0, row.event.published - from))} after the root`,
      width: "100%",
      height: 20,
    },
    drawn,
  );
}

/** @param {number} length */
function axis(length) {
  const marks = [0, 0.25, 0.5, 0.75, 1];
  return s(
    "svg",
    { width: "100%", height: 16, role: "img", "aria-label": `An axis of ${duration(length)}` },
    marks.map((share) =>
      s(
        "text",
        {
          x: `${share * 98 + 1}%`,
          y: 12,
          "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
          class: share === 0.25 || share === 0.75 ? "minor" : "",
        },
        share ? duration(length * share) : "0",
      ),
    ),
  );
}

function key() {
  const sample = (/** @type {Element} */ drawn) => s("svg", { width: 26, height: 14, viewBox: "0 -3 26 20", "aria-hidden": "true" }, drawn);
  const bar = (/** @type {string} */ kind) => sample(s("rect", { class: `run ${kind}`, x: 1, y: 2, width: 24, height: 11, rx: 2 }));
  const line = (/** @type {string} */ kind) => sample(s("line", { class: kind, x1: 0, x2: 26, y1: 8, y2: 8 }));
  const entries = [
    [line("wait"), "waits"],
    [bar("done"), "runs"],
    [bar("failed"), "failed"],
    [line("pause"), "waits for a retry"],
    [sample(s("text.cross", { x: 8, y: 13 }, "✕")), "dead letter"],
  ];
  return list("ul.legend", entries, (entry) => entry, { "aria-label": "Legend" });
}
