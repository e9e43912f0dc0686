/** Dead letters: what was given up, why, and what comes of another try. */

/** @import { App } from "./app.js" */
/** @import { DeadLetter, DeadLetterList, Replayed, ReplayReport } from "contract" */
import { button, fill, h, list as items, name, part, refill, words } from "./dom.js";
import { clock, count, counted } from "./format.js";
import { order } from "./stream.js";

/** So many are listed: the list is drawn again when another one comes. */
const MOST = 100;
const REASONS = {
  handler: "the handler raised an exception",
  hops: "the causal chain was too long",
  tree: "its root had too many descendants",
  full: "the queue was full",
  closed: "the bus was closed",
  gone: "the handler was unsubscribed",
  unfinished: "processes ended while they handled it",
};

export class LettersView {
  /** @type {DeadLetterList | null} */
  #list = null;
  /** @type {Map<string, Replayed>} */
  #replayed = new Map();
  /** The letters that were replayed: the server may not keep them. @type {Map<string, DeadLetter>} */
  #kept = new Map();
  #asked = -1;
  #isBusy = false;

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.body = h("div");
    fill(part("view-letters"), h("h2", { id: "letters-title" }, "Dead letters"), this.body);
  }

  /** Forget what is known, as after a restart. */
  reset() {
    this.#asked = -1;
    this.#replayed.clear();
    this.#kept.clear();
  }

  draw() {
    if (this.app.store.deadLetters !== this.#asked && !this.#isBusy) this.#load();
  }

  /** Load the list once, for its length. */
  count() {
    if (this.#asked < 0) this.#load();
  }

  #load() {
    this.#asked = this.app.store.deadLetters;
    return this.app.show(this.body, "dead-letters", "The dead letters are not here", (/** @type {DeadLetterList} */ list) => {
      this.#list = list;
      this.app.store.letters = { kept: list.total, counted: list.counted };
      this.app.invalidate();
      this.#fill(list);
    });
  }

  /** @param {DeadLetterList} list */
  #fill(list) {
    const known = new Map([...this.#kept, ...list.letters.map((each) => /** @type {const} */ ([each.id, each]))]);
    const letters = [...known.values()].sort((one, other) => other.at - one.at);
    if (!letters.length) {
      fill(this.body, words("No dead letters", list.note || "Every event has reached its handlers so far, or waits for another attempt."));
      return;
    }
    const open = list.letters.length;
    refill(
      this.body,
      h(
        "p.tools",
        button(`Replay ${open === 1 ? "it" : `all ${count(list.total)}`}`, () => this.#confirm([], list.total), {
          class: "main",
          id: "replay-all",
          disabled: !list.may_replay || !open,
        }),
        h(
          "span.quiet",
          list.may_replay
            ? "A replay gives the event to its handler once more."
            : "To replay, open the page with the link that the server prints: it holds the token.",
        ),
      ),
      list.note && h("p.warn", list.note),
      list.total > MOST && h("p.quiet", `The newest ${MOST} of ${count(list.total)}; `, h("code", "graphbus dlq ls"), " lists all."),
      items("ul.letters", letters.slice(0, MOST), (each) => this.#letter(each, list.may_replay)),
    );
  }

  /** @param {DeadLetter} each @param {boolean} mayReplay */
  #letter(each, mayReplay) {
    const came = this.#replayed.get(each.id);
    return h(
      "li.panel.letter",
      { "data-letter": each.id, "data-came": came?.outcome ?? "" },
      h(
        "div.head",
        h("h3", name(each.handler || "no handler"), h("span.quiet", " got ", name(each.topic))),
        came?.outcome !== "handled" &&
          button("Replay", () => this.#confirm([each], 1), {
            id: `replay ${each.id}`,
            disabled: !mayReplay,
            "aria-label": `Replay ${each.topic} to ${each.handler}`,
          }),
      ),
      h("p.error", each.error || REASONS[each.reason]),
      h(
        "p.quiet",
        `${clock(each.at)} · ${REASONS[each.reason]}${each.attempts > 1 ? ` in each of ${each.attempts} attempts` : ""}${each.replays ? ` · replayed ${each.replays} ×` : ""}`,
        each.place && [" · ", h("code", each.place)],
      ),
      h(
        "p.tools",
        h("a", { href: this.app.linkTo({ view: "event", id: each.event_id, source: "", at: null, seq: null }) }, "Its event"),
        each.handler &&
          h("a", { href: this.app.linkTo({ view: "event", id: each.event_id, source: each.handler, at: null, seq: null }) }, "The line"),
        each.traceback &&
          h(
            "details.plain",
            { id: `traceback ${each.id}` },
            h("summary", { id: `open ${each.id}` }, "Traceback"),
            h("pre.scroll", { tabindex: "0" }, each.traceback),
          ),
      ),
      came && h("dl.turn", h("div", h("dt", "Before"), h("dd.bad", came.before)), h("div", h("dt", "After"), after(came))),
    );
  }

  /** @param {DeadLetter[]} letters none: all of them @param {number} total */
  async #confirm(letters, total) {
    const [one] = letters;
    const what = one
      ? [name(one.topic), " goes to ", name(one.handler), " once more."]
      : [`${counted(total, "event")} go to their handlers once more.`];
    const text = ["What a handler did before it failed may happen twice, such as a payment or a mail."];
    if (!(await this.app.confirm(one ? "Replay this event?" : `Replay ${counted(total, "event")}?`, [h("p", what), h("p.quiet", text)], "Replay")))
      return;
    await this.#replay(letters);
  }

  /** @param {DeadLetter[]} letters */
  async #replay(letters) {
    this.#isBusy = true;
    const chosen = letters.length ? letters : (this.#list?.letters ?? []);
    try {
      /** @type {ReplayReport} */
      const report = await order("dead-letters/replay", { ids: letters.map((each) => each.id), every: !letters.length, confirmed: true });
      for (const each of chosen) this.#kept.set(each.id, each);
      for (const each of report.replayed) this.#replayed.set(each.id, each);
      const handled = report.replayed.filter((each) => each.outcome === "handled").length;
      this.app.say(`${handled} of ${counted(report.replayed.length, "event")} handled.`);
    } catch (error) {
      this.app.say(this.app.explain(error).join(" "));
    }
    this.#isBusy = false;
    await this.#load();
  }
}

/** @param {Replayed} came */
function after(came) {
  if (came.outcome === "handled") return h("dd.good", "handled");
  if (came.outcome === "gone") return h("dd.warn", "it was not there any more");
  return h("dd.bad", `failed again: ${came.after}`);
}
