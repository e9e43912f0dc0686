"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement;
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const words = (element, name) => (element.getAttribute(name) || "").split(" ").filter(Boolean);
  const cases = all("details.proposal");
  const form = find("#filter");
  const help = find("#help");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  all("[data-script]").forEach((element) => { element.hidden = false; });

  // --- light and dark ---
  const theme = find("#theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const showTheme = () => theme.setAttribute("aria-pressed", String(isDark()));
  const turnTheme = () => { root.dataset.theme = isDark() ? "light" : "dark"; showTheme(); };
  theme.addEventListener("click", turnTheme);
  dark.addEventListener("change", showTheme);
  showTheme();

  // --- filter ---
  const chosen = (name) => form.elements.namedItem(name).value;
  const fits = (element) =>
    (!chosen("agent") || words(element, "data-agents").includes(chosen("agent"))) &&
    (!chosen("file") || words(element, "data-files").includes(chosen("file"))) &&
    (!chosen("status") || element.dataset.status === chosen("status")) &&
    (!chosen("round") || element.dataset.round === chosen("round"));
  const filter = () => {
    all("[data-case]").forEach((element) => { element.hidden = !fits(element); });
    const left = cases.filter((each) => !each.hidden).length;
    const noun = cases.length === 1 ? " proposal" : " proposals";
    find("#count").textContent = (left === cases.length ? "" : left + " of ") + cases.length + noun;
    find("#none-left").hidden = left > 0;
  };
  if (form) {
    form.addEventListener("change", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filter));
  }

  // --- opening ---
  const openAll = find("#open-all");
  const turnAll = () => {
    const open = openAll.getAttribute("aria-pressed") !== "true";
    cases.forEach((each) => { each.open = open; });
    openAll.setAttribute("aria-pressed", String(open));
  };
  if (openAll) openAll.addEventListener("click", turnAll);
  const summaryOf = (each) => each.querySelector("summary");
  const goTo = (each) => { summaryOf(each).focus({ preventScroll: true }); each.scrollIntoView({ block: "start" }); };
  const follow = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const owner = target && target.closest("details.proposal");
    if (!owner) return;
    if (owner.hidden) { form.reset(); filter(); }
    owner.open = true;
    goTo(owner);
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) setTimeout(follow);
  });

  // --- graph ---
  const graph = find("svg.graph");
  const select = find("#graph-proposal");
  const highlight = (anchor) => {
    const each = anchor && cases.find((one) => one.dataset.case === anchor);
    const members = each ? words(each, "data-concerns") : [];
    graph.classList.toggle("choosing", Boolean(each));
    graph.querySelectorAll(".node").forEach((node) => {
      const place = members.indexOf(node.dataset.agent);
      node.classList.toggle("proposer", place === 0);
      node.classList.toggle("affected", place > 0);
    });
    graph.querySelectorAll("[data-edge]").forEach((edge) => {
      edge.classList.toggle("between", words(edge, "data-edge").every((end) => members.includes(end)));
    });
  };
  if (graph && select) {
    select.addEventListener("change", () => highlight(select.value));
    all("[data-show]").forEach((link) => link.addEventListener("click", () => {
      select.value = link.dataset.show;
      highlight(select.value);
    }));
  }

  // --- keys ---
  const step = (by) => {
    const shown = cases.filter((each) => !each.hidden);
    if (!shown.length) return;
    const here = shown.findIndex((each) => each.contains(document.activeElement));
    const next = here < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(Math.max(here + by, 0), shown.length - 1);
    goTo(shown[next]);
  };
  const showHelp = () => { if (!help.open) help.showModal(); };
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    o: () => openAll && turnAll(),
    t: turnTheme,
    "?": showHelp,
    "/": () => form && find("#filter-agent").focus(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("select, input, textarea") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  find("#keys").addEventListener("click", showHelp);
  find("#help-close").addEventListener("click", () => help.close());

  // --- paper: everything is open ---
  let closed = [];
  addEventListener("beforeprint", () => { closed = all("details:not([open])"); closed.forEach((each) => { each.open = true; }); });
  addEventListener("afterprint", () => { closed.forEach((each) => { each.open = false; }); });

  addEventListener("load", () => setTimeout(follow)); // after the browser itself has gone there
});
