/** The stream of the server, and what to say when there is none. */

/** @import { Bye, Hello, Tick } from "contract" */

/** @typedef {"connecting" | "live" | "paused" | "lost" | "refused" | "over" | "unsupported" | "failed"} Condition */
/** @typedef {{ condition: Condition, words: string, hint: string, retryAt: number }} State */

const WAITS_S = [1, 2, 4, 8, 15];
const SILENCE_S = 25;
const SLOW_S = 5;
const CROWDED = "A browser keeps six connections to a server open: close other tabs of this page, if there are as many.";

/** An answer that is an error, in the words of the server. */
export class Refusal extends Error {
  /** @param {number} status @param {{ title?: string, detail?: string, hint?: string, code?: string }} problem */
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.hint = problem.hint ?? "";
  }
}

/**
 * What an endpoint answers.
 * @template T
 * @param {string} path relative to /view/
 * @param {RequestInit} [options]
 * @returns {Promise<T>}
 * @throws {Refusal | TypeError} the server refused, or cannot be reached
 */
export async function ask(path, options = {}) {
  const answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  if (answer.ok) return answer.json();
  throw new Refusal(answer.status, await answer.json().catch(() => ({})));
}

/**
 * @template T
 * @param {string} path @param {unknown} body
 * @returns {Promise<T>}
 */
export const order = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json", "X-GraphBus-View": "1" }, body: JSON.stringify(body) });

export class Stream {
  /** @type {EventSource | null} */
  #source = null;
  #tries = 0;
  #timer = 0;
  #silence = 0;

  /**
   * @param {{ hello(hello: Hello): void, tick(tick: Tick): void, state(state: State): void }} listener
   */
  constructor(listener) {
    this.listener = listener;
  }

  /** Connect now, whatever was waited for. */
  connect() {
    this.close();
    if (!("EventSource" in window)) {
      this.#tell("unsupported", "This browser cannot receive a stream of events.", "What you see is from when it was loaded.");
      return;
    }
    const source = new EventSource("events");
    this.#source = source;
    source.addEventListener("hello", (event) => this.#hello(JSON.parse(event.data)));
    source.addEventListener("tick", (event) => this.#tick(JSON.parse(event.data)));
    source.addEventListener("bye", (event) => this.#bye(JSON.parse(event.data)));
    source.addEventListener("error", () => this.#failed());
    this.#listen();
    this.#timer = setTimeout(() => this.#tell("connecting", "The server does not answer yet.", CROWDED), SLOW_S * 1000);
  }

  close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
  }

  /** A connection that says nothing for too long is lost, even if no error was reported. */
  #listen() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#failed(), SILENCE_S * 1000);
  }

  /** @param {Hello} hello */
  #hello(hello) {
    this.#tries = 0;
    clearTimeout(this.#timer);
    this.#listen();
    this.listener.hello(hello);
    this.#tell("live", "", "");
  }

  /** @param {Tick} tick */
  #tick(tick) {
    this.#listen();
    this.listener.tick(tick);
  }

  /** @param {Bye} bye */
  #bye({ reason, may_return }) {
    this.close();
    if (may_return) this.#failed(reason);
    else this.#tell("over", reason, "");
  }

  /** Find out why there is no stream, and try again if there may be one. @param {string} [reason] what the server said last */
  async #failed(reason = "") {
    this.close();
    try {
      await ask("graph");
      this.#retry(reason || "The connection broke off.", "");
    } catch (error) {
      if (error instanceof Refusal && [401, 403].includes(error.status)) this.#tell("refused", error.message, error.hint);
      else if (error instanceof Refusal) this.#retry(error.message, error.hint);
      else this.#retry(reason || "The server does not answer.", "");
    }
  }

  /** @param {string} text @param {string} hint */
  #retry(text, hint) {
    const wait = WAITS_S[Math.min(this.#tries, WAITS_S.length - 1)] ?? 1;
    this.#tries += 1;
    this.#timer = setTimeout(() => this.connect(), wait * 1000);
    this.#tell("lost", text, hint, Date.now() + wait * 1000);
  }

  /** @param {Condition} condition @param {string} text @param {string} hint @param {number} retryAt */
  #tell(condition, text, hint, retryAt = 0) {
    this.listener.state({ condition, words: text, hint, retryAt });
  }
}
