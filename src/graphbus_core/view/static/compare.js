/** Two traces or two builds side by side: what is published differently. */

/** @import { App } from "./app.js" */
/** @import { Choice, Comparison } from "contract" */
import { fill, h, name, part, words } from "./dom.js";

const KINDS = { added: "only right", removed: "only left", count: "how often", fields: "fields", handlers: "handlers", failures: "failures" };

export class CompareView {
  #asked = "?";

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.body = h("div");
    fill(part("view-compare"), h("h2", { id: "compare-title" }, "Compare"), this.body);
  }

  /** Ask again when the page is opened again. */
  reset() {
    this.#asked = "?";
  }

  draw() {
    const { left, right } = this.app.route;
    const wanted = new URLSearchParams({ left, right }).toString();
    if (wanted === this.#asked) return;
    this.#asked = wanted;
    const isWanted = () => wanted === this.#asked;
    this.app.show(this.body, `compare?${wanted}`, "This cannot be compared", (/** @type {Comparison} */ found) => this.#fill(found), isWanted);
  }

  /** @param {Comparison} found */
  #fill(found) {
    if (found.choices.length < 2) {
      const hint = ["Give two traces or two builds: ", h("code", "graphbus view old/trace.jsonl trace.jsonl"), "."];
      fill(this.body, words("Nothing to compare", found.note || hint));
      return;
    }
    fill(
      this.body,
      h("p.tools", this.#choice("left", "Left", found.choices, found.left), this.#choice("right", "Right", found.choices, found.right)),
      found.note && h("p.warn", found.note),
      found.left && found.right && this.#result(found),
    );
  }

  /** @param {"left" | "right"} side @param {string} title @param {Choice[]} choices @param {string} chosen */
  #choice(side, title, choices, chosen) {
    const options = choices.map((each) => h("option", { value: each.name, selected: each.name === chosen }, each.title));
    const choose = (/** @type {any} */ event) => this.app.go({ [side]: event.target.value });
    return h(
      "label",
      h("span", title),
      h("select", { name: side, change: choose }, h("option", { value: "", selected: !chosen }, "choose"), options),
    );
  }

  /** @param {Comparison} found */
  #result(found) {
    const titleOf = (/** @type {string} */ wanted) => found.choices.find((each) => each.name === wanted)?.title ?? wanted;
    const rows = found.differences.map((each) =>
      h(
        "tr",
        { "data-kind": each.kind },
        h("th", { scope: "row" }, name(each.topic), h("span.quiet", each.text)),
        h("td", h("span.badge", KINDS[each.kind])),
        h("td", h("span.side-name.quiet", titleOf(found.left), ": "), each.left || "–"),
        h("td", h("span.side-name.quiet", titleOf(found.right), ": "), each.right || "–"),
      ),
    );
    return [
      rows.length
        ? h(
            "table.differences",
            h(
              "thead",
              h(
                "tr",
                ["Topic", "What differs", titleOf(found.left), titleOf(found.right)].map((text) => h("th", { scope: "col" }, name(text))),
              ),
            ),
            h("tbody", rows),
          )
        : words("No difference", "Both sides publish the same."),
      found.same.length > 0 && h("p.quiet", "Without a difference: ", name(found.same.join(", "))),
    ];
  }
}
