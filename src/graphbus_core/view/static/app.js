/** The page: one store, one address, five views, and one drawing per frame at most. */

/** @import { Child } from "./dom.js" */
/** @import { Route, View } from "./route.js" */
/** @import { State } from "./stream.js" */
/** @import { DeliveryPage, Hello, Tick } from "contract" */
import { CompareView } from "./compare.js";
import { DeliveryList } from "./deliveries.js";
import { button, fill, h, part, set, words, write } from "./dom.js";
import { EventView } from "./event.js";
import { clock } from "./format.js";
import { GraphView } from "./graph.js";
import { listenToKeys, listenToTheme } from "./keys.js";
import { LettersView } from "./letters.js";
import { NegotiationView } from "./negotiation.js";
import { link, read, VIEWS } from "./route.js";
import { Store } from "./store.js";
import { ask, Refusal, Stream } from "./stream.js";
import { TimeView } from "./time.js";

const PAGE = 1000;
const SAID_MS = 6000;
const RECORDS = { trace: "a record", artifacts: "a build", ledger: "a ledger" };
const FOLLOWED = "a record, followed";
const CONDITIONS = {
  connecting: "connecting",
  live: "live",
  paused: "paused",
  lost: "disconnected",
  refused: "no access",
  over: "ended",
  unsupported: "not live",
  failed: "not live",
};

export class App {
  store = new Store();
  /** @type {Route} */
  route = read(location.hash);
  /** @type {State} */
  state = { condition: "connecting", words: "", hint: "", retryAt: 0 };
  #isWaiting = false;
  #asked = 0; // ticks since the newest deliveries were asked for
  #timer = 0;
  /** What stays at the top until somebody closes it. */
  #told = "";

  constructor() {
    this.time = new TimeView(this);
    this.graph = new GraphView(this);
    this.list = new DeliveryList(this, this.graph.list, this.graph.chosen);
    this.event = new EventView(this);
    this.letters = new LettersView(this);
    this.negotiation = new NegotiationView(this);
    this.compare = new CompareView(this);
    this.stream = new Stream({ hello: (hello) => this.#hello(hello), tick: (tick) => this.#tick(tick), state: (state) => this.#turn(state) });
  }

  async start() {
    addEventListener("hashchange", () => this.#follow());
    addEventListener("popstate", () => this.#follow());
    addEventListener("resize", () => this.invalidate());
    setInterval(() => (this.follows || this.state.condition === "lost") && this.invalidate(), 1000);
    listenToTheme();
    listenToKeys(this);
    if (new URLSearchParams(location.search).has("refused")) {
      this.#turn({ condition: "refused", words: "The token of this link is wrong or old.", hint: "", retryAt: 0 });
      history.replaceState(null, "", location.pathname + location.hash);
      this.#told = "The token of this link is wrong or old: payloads and replays need the link that the server prints now.";
    }
    if (await this.#load()) this.stream.connect();
  }

  /** Load the graph and the newest deliveries; whether that went well. */
  async #load() {
    try {
      this.store.graph = await ask("graph");
      if (this.store.graph?.origin.kind === "negotiation" && !location.hash) this.go({ view: "negotiation" }, { isStep: true });
      await this.#loadNewest();
      if (!this.store.isLive) this.letters.count();
      return true;
    } catch (error) {
      const isRefused = error instanceof Refusal && [401, 403].includes(error.status);
      const [text = "", hint = ""] = this.explain(error);
      this.#turn({ condition: isRefused ? "refused" : "failed", words: text, hint, retryAt: 0 });
      return false;
    }
  }

  async #loadNewest() {
    /** @type {DeliveryPage} */
    const page = await ask(`deliveries?limit=${PAGE}`);
    this.store.renew(page);
    this.invalidate();
  }

  /** Load what was appended to a record since, if its end is here. */
  async #loadNewer() {
    if (this.#asked++) return;
    try {
      for (let answered = 0; answered < this.#asked && this.store.isTail; ) {
        answered = this.#asked;
        /** @type {DeliveryPage} */
        const page = await ask(`deliveries?limit=${PAGE}&after=${this.store.deliveries.at(-1)?.seq ?? 0}`);
        this.store.add(page.deliveries);
        if (page.has_newer) answered = 0;
        this.invalidate();
      }
    } catch (error) {
      this.say(this.explain(error).join(" "));
    }
    this.#asked = 0;
  }

  /** Load deliveries from before those that are here, as the filter wants them. */
  async loadOlder() {
    const { filter } = this.route;
    const first = this.store.deliveries[0];
    const query = new URLSearchParams({ limit: String(PAGE), before: String(first?.seq ?? 0) });
    for (const field of /** @type {const} */ (["topic", "agent", "key"])) if (filter[field]) query.set(field, filter[field]);
    if (filter.failed) query.set("failed", "1");
    try {
      /** @type {DeliveryPage} */
      const page = await ask(`deliveries?${query}`);
      this.store.add(page.deliveries, true);
      this.store.hasOlder = page.has_older;
      if (!page.deliveries.length) this.say(page.note || "Nothing older is kept.");
      if (this.route.at === null && this.store.isLive) this.go({ at: this.store.now });
    } catch (error) {
      this.say(this.explain(error).join(" "));
    }
    this.invalidate();
  }

  /** @param {Hello} hello */
  async #hello(hello) {
    this.store.rebase();
    if (this.store.graph?.origin.server === hello.origin.server) {
      // What was published between the list and the stream, or while the stream was broken off.
      if (this.store.isTail && hello.newest > (this.store.deliveries.at(-1)?.seq ?? 0))
        await this.#loadNewest().catch((error) => this.say(this.explain(error).join(" ")));
      return;
    }
    this.store.clear();
    this.letters.reset();
    this.negotiation.reset();
    this.compare.reset();
    if (this.route.at !== null || this.route.seq !== null) this.go({ at: null, seq: null }, { isStep: true });
    const what = hello.origin.kind === "trace" ? "The trace was begun anew" : "The server was restarted";
    this.#told = `${what}, as seen at ${clock(Date.now() / 1000)}. What you see is from after that.`;
    await this.#load();
  }

  /** @param {Tick} tick */
  #tick(tick) {
    this.store.take(tick);
    if (!this.store.isLive && tick.last) this.#loadNewer();
    this.letters.count();
    if (tick.negotiation) this.negotiation.reset();
    this.invalidate();
  }

  /** @param {State} state */
  #turn(state) {
    this.state = state;
    this.invalidate();
  }

  // --- where the page stands -----------------------------------------------------------------------

  /**
   * @param {Partial<Route>} change
   * @param {{ isStep?: boolean }} [options] a step is no new entry of the browser's history
   */
  go(change, { isStep = false } = {}) {
    const before = this.route;
    this.route = { ...before, ...change };
    const isLeft = before.at !== null && this.route.at === null;
    if (isLeft && !this.store.isTail) this.#loadNewest().catch((error) => this.say(this.explain(error).join(" ")));
    const address = link(this.route);
    if (address !== location.hash) history[isStep ? "replaceState" : "pushState"](null, "", address);
    if (before.view !== this.route.view) scrollTo(0, 0);
    this.invalidate();
  }

  /** @param {Partial<Route>} change */
  linkTo = (change) => link({ ...this.route, ...change });

  #follow() {
    const { view } = this.route;
    this.route = read(location.hash);
    if (view !== this.route.view) scrollTo(0, 0);
    this.invalidate();
  }

  togglePause() {
    if (this.route.at !== null) this.go({ at: null, seq: null });
    else if (this.follows) this.go({ at: this.store.now });
  }

  /** Something may be added to what one sees: the graph is alive, or the record is followed. */
  get follows() {
    return this.store.isLive || this.state.condition === "live";
  }

  /** To the delivery before or after the one where the page stands. @param {-1 | 1} step */
  step(step) {
    const { store, route } = this;
    const newest = store.shown(route.filter, route.at, 1)[0];
    const found = route.seq === null ? newest : store.beside(route.filter, route.seq, step);
    if (!found) return this.say(step < 0 ? "There is nothing older here." : "There is nothing newer.");
    const isEvent = route.view === "event" && route.id;
    this.go({ seq: found.seq, at: found.started, ...(isEvent ? { id: found.event_id } : {}) }, { isStep: true });
    write(part("heard"), `${found.handler} ${found.outcome} ${found.error}, ${clock(found.started)}`);
  }

  // --- words -----------------------------------------------------------------------------------------

  /** An error as a sentence and a hint. @param {unknown} error @returns {string[]} */
  explain(error) {
    if (error instanceof Refusal) return [error.message, error.hint].filter(Boolean);
    if (error instanceof TypeError) return ["The server does not answer."];
    throw error;
  }

  /**
   * Ask, and fill a box with the answer, or with why there is none.
   * @template T
   * @param {Element} box @param {string} path @param {string} title of the words if there is none
   * @param {(found: T) => void} show @param {() => boolean} [isWanted] whether the reader is still there
   */
  async show(box, path, title, show, isWanted = () => true) {
    try {
      /** @type {T} */
      const found = await ask(path);
      if (isWanted()) show(found);
    } catch (error) {
      if (isWanted()) fill(box, words(title, this.explain(error).join(" ")));
    }
  }

  /** Say something in passing. @param {string} text */
  say(text) {
    write(part("said"), text);
    part("said").hidden = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => set(part("said"), { hidden: true }), SAID_MS);
  }

  /**
   * Ask a question; whether the answer is yes.
   * @param {string} title @param {Child} body @param {string} yes
   * @returns {Promise<boolean>}
   */
  confirm(title, body, yes) {
    const dialog = /** @type {HTMLDialogElement} */ (part("confirm"));
    const buttons = h(
      "form",
      { method: "dialog", class: "tools" },
      h("button", { value: "", autofocus: true }, "Cancel"),
      h("button", { value: "yes", class: "main" }, yes),
    );
    fill(dialog, h("h2", { id: "confirm-title" }, title), body, buttons);
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((answer) => dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true }));
  }

  // --- drawing -----------------------------------------------------------------------------------------

  /** Draw before the next frame. */
  invalidate() {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => {
      this.#isWaiting = false;
      this.#draw();
    });
  }

  #draw() {
    const { store, route } = this;
    this.#drawFrame();
    const whole = this.#wholePage();
    part("whole").hidden = !whole;
    fill(part("whole"), whole);
    const hasTime = !whole && (route.view === "graph" || (route.view === "event" && Boolean(route.id)));
    part("time").hidden = !hasTime;
    for (const view of VIEWS) part(`view-${view}`).hidden = Boolean(whole) || route.view !== view;
    if (whole || !store.graph) return;
    if (hasTime) this.time.draw();
    this[route.view].draw();
    if (route.view === "graph") this.list.draw();
  }

  /** The head of the page: what it shows, in which condition it is, and where in it one is. */
  #drawFrame() {
    const { store, route } = this;
    const origin = store.graph?.origin;
    write(part("origin"), origin?.name ?? "");
    document.title = origin ? `${origin.name} · GraphBus` : "GraphBus";
    const [condition, text] = this.#condition();
    write(part("condition"), text);
    set(part("condition"), { "data-condition": condition });
    const here = route.view === "event" ? "graph" : route.view;
    const kept = { ...read(""), filter: route.filter, left: route.left, right: route.right, session: route.session };
    for (const each of document.querySelectorAll("nav a")) {
      const view = /** @type {View} */ (each.getAttribute("data-view"));
      set(each, { "aria-current": view === here ? "page" : null, href: link({ ...kept, view }) });
    }
    set(part("letter-count"), { hidden: !store.letterCount });
    write(part("letter-count"), store.letterCount);
    this.#drawNotice();
  }

  /** @returns {[string, string]} */
  #condition() {
    const kind = this.store.graph?.origin.kind ?? "run";
    if (this.state.condition === "live" && this.route.at !== null) return ["paused", "paused"];
    if (this.state.condition === "live" && !this.store.isLive) return ["live", FOLLOWED];
    if (this.state.condition === "over" && kind in RECORDS) return ["over", RECORDS[/** @type {"trace"} */ (kind)]];
    return [this.state.condition, CONDITIONS[this.state.condition]];
  }

  #drawNotice() {
    const notice = part("notice");
    const [kind, text, press] = this.#notice();
    const wanted = `${kind}\n${text}`;
    notice.hidden = !text;
    if (notice.getAttribute("data-wanted") === wanted) return;
    set(notice, { "data-wanted": wanted, "data-kind": kind });
    fill(notice, h("p", text), press);
  }

  /** What is wrong with what one sees, if anything is. @returns {[string, string, Child?]} */
  #notice() {
    const { state, store } = this;
    const close = button("✕", () => this.#close(), { "aria-label": "Close this message" });
    if (!store.graph) return ["", ""];
    if (state.condition === "lost") {
      const left = Math.max(0, Math.ceil((state.retryAt - Date.now()) / 1000));
      const again = button("Try now", () => this.stream.connect());
      return ["warn", `${state.words} What you see is from before. Trying again ${left ? `in ${left} s` : "now"}.`, again];
    }
    if (["connecting", "unsupported", "refused"].includes(state.condition) && state.words) return ["warn", `${state.words} ${state.hint}`];
    if (this.#told) return ["", this.#told, close];
    const note = [store.graph.origin.note, store.isLive && state.condition === "over" ? state.words : ""].filter(Boolean).join(" ");
    return ["", note];
  }

  #close() {
    this.#told = "";
    this.invalidate();
  }

  /** What fills the page when there is nothing else to show. @returns {Child} */
  #wholePage() {
    const { state, store } = this;
    if (store.graph) return null;
    const again = button("Try again", () => location.reload(), { class: "main" });
    if (state.condition === "refused")
      return words(
        "This page needs its token",
        [state.words, " Open the link that the server has printed; it holds the token of this run. A server that was restarted has a new one."],
        state.hint && h("p.quiet", state.hint),
        again,
      );
    if (state.condition === "failed") return words("The graph cannot be shown", state.words, state.hint && h("p.quiet", state.hint), again);
    return words("Loading", "The graph is on its way.");
  }
}

new App().start();
