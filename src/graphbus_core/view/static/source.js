/** The source of a handler, and the decisions that wrote its lines. */

/** @import { App } from "./app.js" */
/** @import { Decision, SourceText } from "contract" */
import { button, fill, h, name, scrolling, words } from "./dom.js";
import { ask } from "./stream.js";

export class SourceView {
  #asked = "";

  /** @param {App} app @param {HTMLElement} box */
  constructor(app, box) {
    this.app = app;
    this.box = box;
  }

  draw() {
    const { source } = this.app.route;
    this.box.hidden = !source;
    if (source === this.#asked) return;
    this.#asked = source;
    if (source) this.#load(source);
  }

  /** @param {string} handler */
  async #load(handler) {
    fill(this.box, this.#head(handler, ""), h("p.quiet", "Loading …"));
    try {
      /** @type {SourceText} */
      const text = await ask(`source/${encodeURIComponent(handler)}`);
      if (handler === this.#asked) this.#fill(text);
    } catch (error) {
      if (handler === this.#asked) fill(this.box, this.#head(handler, ""), words("The source is not here", this.app.explain(error).join(" ")));
    }
    if (handler === this.#asked) this.box.focus({ preventScroll: innerWidth > 1100 });
  }

  /** @param {string} handler @param {string} place */
  #head(handler, place) {
    const close = () => this.app.go(this.app.route.id ? { source: "" } : { source: "", view: "graph" });
    return [
      h("div.head", h("h3", name(handler)), button("✕", close, { "aria-label": "Close the source" })),
      place && h("p", h("code", { id: "place" }, place)),
    ];
  }

  /** @param {SourceText} text */
  #fill(text) {
    const line = text.failing[0] ?? text.first;
    const margin = Math.min(...text.lines.filter((each) => each.trim()).map((each) => each.length - each.trimStart().length));
    fill(
      this.box,
      this.#head(text.name, text.file && `${text.file}:${line}`),
      text.note && h("p.warn", text.note),
      text.lines.length > 0 &&
        scrolling(
          `Source of ${text.name}`,
          h(
            "ol.code",
            text.lines.map((each, index) => this.#line(text, each.slice(margin), text.first + index)),
          ),
        ),
      h("h4", "Why these lines"),
      text.why.length ? h("ul.why", text.why.map(decision)) : h("p.quiet", "No recorded negotiation wrote one of these lines: people did."),
    );
  }

  /** @param {SourceText} text @param {string} line @param {number} number */
  #line(text, line, number) {
    const isFailing = text.failing.includes(number);
    const reason = text.why.find((each) => each.first <= number && number <= each.last);
    return h(
      "li",
      { class: [isFailing && "failing", reason && "reasoned"].filter(Boolean).join(" ") },
      h("b", number),
      h("span", line || " "),
      isFailing && h("i", "failed here"),
      reason && !isFailing && number === reason.first && h("i", reason.proposal),
    );
  }
}

/** @param {Decision} each */
function decision(each) {
  const lines = each.first === each.last ? `line ${each.first}` : `lines ${each.first} to ${each.last}`;
  return h(
    "li",
    h("p", h("b", each.proposal), " ", each.title),
    h("p.quiet", `${lines}, by `, name(each.agent), ` in session ${each.session}`, each.commit && [", commit ", h("code", each.commit.slice(0, 10))]),
    each.reason && h("p", each.reason),
    each.consensus && h("p.quiet", each.consensus),
    each.votes.length > 0 &&
      h(
        "ul.votes",
        each.votes.map((vote) =>
          h(
            "li",
            h("span", { class: `decision ${vote.decision}` }, vote.decision),
            " ",
            name(vote.evaluator),
            vote.is_arbiter && " (arbiter)",
            vote.reason && h("span.quiet", ` ${vote.reason}`),
          ),
        ),
      ),
  );
}
