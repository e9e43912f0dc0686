/** The source of a handler, and the decisions that wrote its lines. */

/** @import { App } from "./app.js" */
/** @import { Decision, SourceText, Vote } from "contract" */
import { button, fill, h, list, name, scrolling } from "./dom.js";

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
    const isWanted = () => handler === this.#asked;
    const body = h("div", h("p.quiet", "Loading …"));
    fill(this.box, this.#head(handler, ""), body);
    const show = (/** @type {SourceText} */ text) => this.#fill(text);
    await this.app.show(body, `source/${encodeURIComponent(handler)}`, "The source is not here", show, isWanted);
    if (isWanted()) this.box.focus({ preventScroll: innerWidth > 1100 });
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
          list("ol.code", text.lines, (each, index) => this.#line(text, each.slice(margin), text.first + index)),
        ),
      h("h4", "Why these lines"),
      list("ul.why", text.why, decision) || h("p.quiet", "No recorded negotiation wrote one of these lines: people did."),
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
    voteList(each.votes),
  );
}

/** @param {Vote[]} votes */
export const voteList = (votes) =>
  list("ul.votes", votes, (each) => [
    h(`span.decision.${each.decision}`, each.decision),
    [" ", name(each.evaluator), each.is_arbiter && " (arbiter)"],
    h("span.quiet", ` ${each.reason}`),
  ]);
