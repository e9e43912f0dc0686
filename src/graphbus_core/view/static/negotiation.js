/** A negotiation: proposals that climb the gate, the votes on them, and what it has cost. */

/** @import { App } from "./app.js" */
/** @import { Cost, NegotiationPicture, ProposalPicture, Rung } from "contract" */
import { fill, h, name, part, s, words } from "./dom.js";
import { count, counted } from "./format.js";
import { ask } from "./stream.js";

const SIGNS = { passed: "✓", failed: "✗", not_run: "–", waiting: "…" };
const STAGES = { proposed: "proposed", gate: "at the gate", votes: "agents vote", arbiter: "the arbiter decides", decided: "" };

export class NegotiationView {
  #isStale = true;
  #asked = "";
  /** Proposals that somebody has opened. @type {Set<string>} */
  #open = new Set();

  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.body = h("div");
    fill(part("view-negotiation"), h("h2", { id: "negotiation-title" }, "Negotiation"), this.body);
  }

  /** It has gone on. */
  reset() {
    this.#isStale = true;
  }

  draw() {
    const { session } = this.app.route;
    if (!this.#isStale && session === this.#asked) return;
    this.#isStale = false;
    this.#asked = session;
    this.#load(session);
  }

  /** @param {string} session */
  async #load(session) {
    try {
      /** @type {NegotiationPicture} */
      const picture = await ask(`negotiation${session ? `?session=${encodeURIComponent(session)}` : ""}`);
      if (session === this.#asked) this.#fill(picture);
    } catch (error) {
      fill(this.body, words("The negotiation is not here", this.app.explain(error).join(" ")));
    }
  }

  /** @param {NegotiationPicture} picture */
  #fill(picture) {
    if (picture.state === "none") {
      const hint = ["Start one with ", h("code", "graphbus build agents/ --enable-agents --view"), ": its proposals appear here as they are made."];
      fill(this.body, words("No negotiation", picture.note || hint, picture.note ? h("p", hint) : null, this.#sessions(picture)));
      return;
    }
    const isRunning = picture.state === "running";
    fill(
      this.body,
      h(
        "div.summary",
        h(
          "p.tools",
          h("b", picture.session),
          h("span", { class: `badge ${isRunning ? "live" : ""}` }, isRunning ? `round ${picture.round}` : "ended"),
          picture.backend && h("span.quiet", picture.backend),
          this.#sessions(picture),
        ),
        picture.intent && h("p", h("b", "Intent: "), picture.intent),
        h("p.activity", picture.activity || picture.ending),
        picture.note && h("p.warn", picture.note),
      ),
      cost(picture.cost),
      h(
        "ol.proposals",
        picture.proposals.map((each) => this.#proposal(each)),
      ),
      !picture.proposals.length && words("No proposal yet", isRunning ? "The agents read the code first." : "No agent made a proposal."),
      picture.notes.length > 0 &&
        h(
          "ul.notes",
          picture.notes.map((each) => h("li", each)),
        ),
    );
  }

  /** @param {NegotiationPicture} picture */
  #sessions(picture) {
    if (picture.sessions.length < 2) return null;
    const choose = (/** @type {any} */ event) => this.app.go({ session: event.target.value });
    return h(
      "select",
      { "aria-label": "Session", change: choose },
      [...picture.sessions].reverse().map((each) => h("option", { value: each, selected: each === picture.session }, each)),
    );
  }

  /** @param {ProposalPicture} each */
  #proposal(each) {
    const climbs =
      each.climbs.length > 1 ? each.climbs.map((rungs, index) => [h("span.quiet", `attempt ${index + 1} `), ladder(rungs)]) : each.climbs.map(ladder);
    const refused = each.climbs.at(-1)?.find((rung) => rung.status === "failed");
    const turn = (/** @type {any} */ event) => (event.target.open ? this.#open.add(each.id) : this.#open.delete(each.id));
    return h(
      "li.panel.proposal",
      { "data-status": each.status, "data-stage": each.stage },
      h(
        "div.head",
        h("h3", h("span.quiet", each.id), " ", each.title),
        h("span", { class: `badge ${each.status}` }, STAGES[each.stage] || each.status),
      ),
      h(
        "p.quiet",
        name(each.src),
        ` · round ${each.round}`,
        each.parent && ` · instead of ${each.parent}`,
        each.affects.length > 0 && [" · concerns ", name(each.affects.join(", "))],
        each.cost_usd !== null && each.cost_usd > 0 && ` · ${usd(each.cost_usd)}`,
      ),
      climbs.map((drawn) => h("div.climb", drawn)),
      refused && h("p.error", `${refused.rung} ${refused.name}: ${refused.message}`),
      each.votes.length > 0 &&
        h(
          "ul.chips",
          { "aria-label": "Votes" },
          each.votes.map((vote) =>
            h(
              "li",
              { class: `vote ${vote.decision}`, title: vote.reason },
              name(vote.evaluator),
              vote.is_arbiter && " (arbiter)",
              ` ${vote.decision}`,
            ),
          ),
        ),
      each.outcome && h("p", each.outcome),
      h(
        "details.plain",
        { open: this.#open.has(each.id), toggle: turn },
        h("summary", "Reason, votes and change"),
        each.reason && h("p", each.reason),
        h(
          "ul.votes",
          each.votes.map((vote) =>
            h("li", h("span", { class: `decision ${vote.decision}` }, vote.decision), " ", name(vote.evaluator), h("span.quiet", ` ${vote.reason}`)),
          ),
        ),
        each.steps.length > 0 &&
          h(
            "ul.notes",
            each.steps.map((step) => h("li", step)),
          ),
        each.diff ? h("pre.scroll.diff", { tabindex: "0" }, each.diff.split("\n").map(diffLine)) : h("p.quiet", each.files.join(", ")),
      ),
    );
  }
}

/** @param {string} line */
const diffLine = (line) => h("span", { class: line.startsWith("+") ? "came" : line.startsWith("-") ? "gone" : "" }, `${line}\n`);

/** @param {Rung[]} rungs */
const ladder = (rungs) =>
  h(
    "ol.ladder",
    { "aria-label": "Gate" },
    rungs.map((rung) =>
      h(
        "li",
        {
          "data-status": rung.status,
          title: `${rung.rung} ${rung.name}: ${rung.status.replace("_", " ")}${rung.message ? `\n${rung.message}` : ""}`,
        },
        h("b", { "aria-hidden": "true" }, SIGNS[rung.status]),
        h("span", rung.rung),
        h("span.unseen", ` ${rung.name} ${rung.status.replace("_", " ")}`),
      ),
    ),
  );

/** @param {Cost} spent */
function cost(spent) {
  const share = spent.cap_usd ? Math.min(1, spent.spent_usd / spent.cap_usd) : 0;
  const state = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "live";
  const bar = s(
    "svg.gauge",
    { width: "100%", height: 10, role: "img", "aria-label": `${Math.round(share * 100)} % of the cap` },
    s("rect.track", { width: "100%", height: 10, rx: 5 }),
    s("rect.fill", { "data-state": state, width: `${(share * 100).toFixed(1)}%`, height: 10, rx: 5 }),
  );
  return h(
    "div.cost",
    h(
      "p",
      h("b", usd(spent.spent_usd)),
      spent.cap_usd ? ` of ${usd(spent.cap_usd)}; ${usd(Math.max(0, spent.cap_usd - spent.spent_usd))} left` : " spent, without a cap",
    ),
    spent.cap_usd > 0 && bar,
    h(
      "p.quiet",
      [
        counted(spent.calls, "question"),
        counted(spent.requests, "request"),
        spent.cached && `${count(spent.cached)} from the cache`,
        `${count(spent.tokens)} tokens`,
        spent.unpriced && `${counted(spent.unpriced, "request")} without a known price`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  );
}

/** @param {number} value */
const usd = (value) => `$${value && value < 0.1 ? value.toFixed(4) : value.toFixed(2)}`;
