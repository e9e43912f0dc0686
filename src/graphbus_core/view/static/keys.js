/** The keyboard, and light and dark. */

/** @import { App } from "./app.js" */
import { part, set } from "./dom.js";

const NUMBERED = /** @type {const} */ (["graph", "letters", "negotiation", "compare"]);

/** Light or dark: as the system says until somebody chooses, then as they chose. */
export function listenToTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => set(part("theme"), { "aria-pressed": String(isDark()) });
  const turn = () => set(root, { "data-theme": isDark() ? "light" : "dark" });
  for (const each of [turn, show]) part("theme").addEventListener("click", each);
  dark.addEventListener("change", show);
  show();
}

/** @param {App} app */
export function listenToKeys(app) {
  const help = /** @type {HTMLDialogElement} */ (part("help"));
  part("keys").addEventListener("click", () => help.showModal());
  part("skip").addEventListener("click", (event) => {
    event.preventDefault();
    part("main").focus();
  });
  /** @type {Record<string, () => void>} */
  const actions = {
    " ": () => app.togglePause(),
    ArrowLeft: () => app.step(-1),
    ArrowRight: () => app.step(1),
    Enter: () => openHere(app),
    Escape: () => app.go({ view: "graph", id: "", source: "" }),
    "/": () => document.getElementById("find")?.focus(),
    e: () => app.go({ filter: { ...app.route.filter, failed: !app.route.filter.failed } }),
    t: () => part("theme").click(),
    "?": () => help.showModal(),
  };
  NUMBERED.forEach((view, index) => {
    actions[String(index + 1)] = () => app.go({ view, id: "", source: "" });
  });
  addEventListener("keydown", (event) => {
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTaken(event)) return;
    event.preventDefault();
    action();
  });
}

/** Whether the element with the focus has its own use for a key. @param {KeyboardEvent} event */
function isTaken(event) {
  const target = /** @type {Element} */ (event.target);
  if (document.querySelector("dialog[open]")) return true;
  if (target.matches("input, select, textarea")) return event.key !== "Escape";
  if (target.matches("button, a, summary, [role=button]")) return [" ", "Enter"].includes(event.key);
  return target.matches(".scroll") && event.key.startsWith("Arrow");
}

/** @param {App} app */
function openHere(app) {
  const found = app.store.deliveries.find((each) => each.seq === app.route.seq);
  if (found) app.go({ view: "event", id: found.event_id, source: "" });
}
