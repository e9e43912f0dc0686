/** A negotiation: proposals that climb the gate, the votes on them, and what it has cost. */

/** @import { App } from "./app.js" */
/** @import { Cost, NegotiationPicture, ProposalPicture, Rung, Vote } from "contract" */
import { fill, h, line, list, name, options, part, refill, s, words } from "./dom.js";
import { count, counted } from "./format.js";
import { voteList } from "./source.js";

const SIGNS = { passed: "✓", failed: "✗", not_run: "–", running: "…", waiting: "·" };
const STAGES = { proposed: "proposed", gate: "at the gate", votes: "agents vote", arbiter: "the arbiter decides", decided: "" };

export class NegotiationView {
  #isStale = true;
  #asked = "";

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
    const path = `negotiation${session ? `?session=${encodeURIComponent(session)}` : ""}`;
    const show = (/** @type {NegotiationPicture} */ picture) => this.#fill(picture);
    this.app.show(this.body, path, "The negotiation is not here", show, () => session === this.#asked);
  }

  /** @param {NegotiationPicture} picture */
  #fill(picture) {
    if (picture.state === "none") {
      const hint = ["Start one with ", h("code", "graphbus build agents/ --enable-agents --view"), ": its proposals appear here as they are made."];
      fill(this.body, words("No negotiation", picture.note || hint, picture.note ? h("p", hint) : null, this.#sessions(picture)));
      return;
    }
    const isRunning = picture.state === "running";
    const isFree = picture.backend.startsWith("rules") && !picture.cost.requests;
    refill(
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
      !isFree && cost(picture.cost, isRunning),
      list("ol.proposals", picture.proposals, (each) => this.#proposal(each)),
      !picture.proposals.length && words("No proposal yet", isRunning ? "The agents read the code first." : "No agent made a proposal."),
      list("ul.notes", picture.notes, (note) => note),
    );
  }

  /** @param {NegotiationPicture} picture */
  #sessions(picture) {
    if (picture.sessions.length < 2) return null;
    const choose = (/** @type {any} */ event) => this.app.go({ session: event.target.value });
    return h("select", { "aria-label": "Session", change: choose }, options([...picture.sessions].reverse(), picture.session));
  }

  /** @param {ProposalPicture} each */
  #proposal(each) {
    const checks =
      each.checks.length > 1 ? each.checks.map((rungs, index) => [h("span.quiet", `check ${index + 1} `), ladder(rungs)]) : each.checks.map(ladder);
    const refused = each.checks.at(-1)?.find((rung) => rung.status === "failed");
    return h(
      "li.panel.proposal",
      { "data-status": each.status, "data-stage": each.stage },
      h("div.head", h("h3", h("span.quiet", each.id), " ", each.title), h(`span.badge.${each.status}`, STAGES[each.stage] || each.status)),
      h(
        "p.quiet",
        name(each.src),
        ` · round ${each.round}`,
        each.parent && ` · instead of ${each.parent}`,
        each.affects.length > 0 && [" · concerns ", name(each.affects.join(", "))],
        each.cost_usd !== null && each.cost_usd > 0 && ` · ${usd(each.cost_usd)}`,
      ),
      checks.map((drawn) => h("div.climb", drawn)),
      refused && h("p.error", `${refused.rung} ${refused.name}: ${refused.message}`),
      list("ul.chips", each.votes, chip, { "aria-label": "Votes" }),
      each.outcome && h("p", each.outcome),
      h(
        "details.plain",
        { id: `more ${each.id}` },
        h("summary", { id: `open ${each.id}` }, "Reason, votes and change"),
        each.reason && h("p", each.reason),
        voteList(each.votes),
        list("ul.notes", each.steps, (step) => step),
        each.diff ? h("pre.scroll.diff", { tabindex: "0" }, each.diff.split("\n").map(diffLine)) : h("p.quiet", each.files.join(", ")),
      ),
    );
  }
}

/** @param {string} line */
const diffLine = (line) => h("span", { class: line.startsWith("+") ? "good" : line.startsWith("-") ? "bad" : "" }, `${line}\n`);

/** @param {Vote} vote */
const chip = (vote) =>
  h(`li.vote.${vote.decision}`, { title: vote.reason }, name(vote.evaluator), vote.is_arbiter && " (arbiter)", ` ${vote.decision}`);

/** @param {Rung[]} rungs */
const ladder = (rungs) => list("ol.ladder", rungs, rung, { "aria-label": "Gate" });

/** @param {Rung} each */
function rung(each) {
  const status = each.status.replace("_", " ");
  const title = `${each.rung} ${each.name}: ${status}\n${each.message}`;
  const sign = h("b", { "aria-hidden": "true" }, SIGNS[each.status]);
  return h("li", { "data-status": each.status, title }, sign, h("span", each.name || each.rung), h("span.unseen", ` ${status}`));
}

/** @param {Cost} spent @param {boolean} isRunning the cap of an ended one is not known */
function cost(spent, isRunning) {
  const share = spent.cap_usd ? Math.min(1, spent.spent_usd / spent.cap_usd) : 0;
  const state = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "live";
  const bar = s(
    "svg.gauge",
    { width: "100%", height: 10, role: "img", "aria-label": `${Math.round(share * 100)} % of the cap` },
    s("rect.track", { width: "100%", height: 10, rx: 5 }),
    s("rect.fill", { "data-state": state, width: `${(share * 100).toFixed(1)}%`, height: 10, rx: 5 }),
  );
  const rest = [
    spent.cached && `${count(spent.cached)} from the cache`,
    `${count(spent.tokens)} tokens`,
    spent.unpriced && `${counted(spent.unpriced, "request")} without a known price`,
  ];
  const left = ` of ${usd(spent.cap_usd)}; ${usd(Math.max(0, spent.cap_usd - spent.spent_usd))} left`;
  return h(
    "div.cost",
    h("p", h("b", usd(spent.spent_usd)), spent.cap_usd ? left : ` spent${isRunning ? ", without a cap" : ""}`),
    spent.cap_usd > 0 && bar,
    h("p.quiet", line(counted(spent.calls, "question"), counted(spent.requests, "request"), ...rest)),
  );
}

/** @param {number} value */
const usd = (value) => `$${value && value < 0.1 ? value.toFixed(4) : value.toFixed(2)}`;
