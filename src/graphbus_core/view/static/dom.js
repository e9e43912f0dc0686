/** Elements of the page. Data enters it as text only: there is no other way to make an element. */

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/** Control characters, and those that turn the direction of a line: a name that holds them could pass for another one. */
const UNSEEN = /[\p{Cc}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;
const KEPT = new Set(["\n", "\t"]);

/**
 * The text with every unseen character written as its number.
 * @param {unknown} text
 */
export const plain = (text) => String(text).replace(UNSEEN, (each) => (KEPT.has(each) ? each : `\\u{${hex(each)}}`));

/** @param {string} character */
const hex = (character) => (character.codePointAt(0) ?? 0).toString(16);

/**
 * An HTML element: `h("p.quiet", { id: "said" }, "Words")`. An attribute that is a function listens, one that is false or null is
 * left out; without attributes the children begin at once.
 * @template {string} Selector
 * @param {Selector} selector a tag, and classes
 * @param {[(Attributes | Child)?, ...Child[]]} rest
 * @returns {Tag<Selector> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag<Selector>] : HTMLElement}
 */
export const h = (selector, ...rest) => /** @type {any} */ (made(selector, rest, (tag) => document.createElement(tag)));

/**
 * An SVG element, written as `h` writes one of HTML.
 * @template {string} Selector
 * @param {Selector} selector
 * @param {[(Attributes | Child)?, ...Child[]]} rest
 * @returns {Tag<Selector> extends keyof SVGElementTagNameMap ? SVGElementTagNameMap[Tag<Selector>] : SVGElement}
 */
export const s = (selector, ...rest) => /** @type {any} */ (made(selector, rest, (tag) => document.createElementNS(SVG, tag)));

/** @template {string} Selector @typedef {Selector extends `${infer Name}.${string}` ? Name : Selector} Tag */

/** @param {string} selector @param {[(Attributes | Child)?, ...Child[]]} rest @param {(tag: string) => Element} create */
function made(selector, rest, create) {
  const [tag = "", ...classes] = selector.split(".");
  const [first, ...others] = rest;
  const hasAttributes = first?.constructor === Object;
  const element = create(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  if (hasAttributes) set(element, /** @type {Attributes} */ (first));
  element.append(...nodes(hasAttributes ? others : /** @type {Child[]} */ (rest)));
  return element;
}

/**
 * Change attributes; only what differs touches the page.
 * @param {Element} element
 * @param {Attributes} attributes
 */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === false || value === null || value === undefined) element.removeAttribute(name);
    else {
      const text = value === true ? "" : plain(value);
      if (element.getAttribute(name) !== text) element.setAttribute(name, text);
    }
  }
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  /** @type {(Node | string)[]} */
  const found = [];
  for (const child of children) {
    if (Array.isArray(child)) found.push(...nodes(child));
    else if (child instanceof Node) found.push(child);
    else if (child !== null && child !== undefined && child !== false) found.push(plain(child));
  }
  return found;
}

/**
 * Replace what an element holds.
 * @param {Element} element
 * @param {Child[]} children
 */
export const fill = (element, ...children) => element.replaceChildren(...nodes(children));

/**
 * Replace what an element holds, as `fill` does; what is open in it, and what has the focus, stays so if it has an id.
 * @param {Element} element
 * @param {Child[]} children
 */
export function refill(element, ...children) {
  const kept = [...element.querySelectorAll("details[open][id]")].map((each) => each.id);
  const focused = element.contains(document.activeElement) ? document.activeElement?.id : "";
  fill(element, ...children);
  for (const id of kept) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus();
}

/**
 * Write a text where it differs.
 * @param {Element} element
 * @param {unknown} value
 */
export function write(element, value) {
  const text = plain(value);
  if (element.textContent !== text) element.textContent = text;
}

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function part(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * A button with words.
 * @param {Child} text
 * @param {(event: any) => void} click
 * @param {Attributes} [attributes]
 */
export const button = (text, click, attributes = {}) => h("button", { type: "button", click, ...attributes }, text);

/**
 * A name: it breaks after a dot or a slash, and what is written from right to left does not turn the text around it.
 * @param {string} text
 */
export const name = (text) =>
  h(
    "bdi",
    text.split(/(?<=.[./])/).flatMap((each, index) => (index ? [h("wbr"), each] : [each])),
  );

/**
 * A state of a part of the page in words: what is so, and what to do.
 * @param {string} title
 * @param {Child} text
 * @param {Child[]} more
 */
export const words = (title, text, ...more) => h("div.words", h("h3", title), h("p", text), more);

/**
 * A part that scrolls by itself, for the mouse and for the keyboard.
 * @param {string} label
 * @param {Child[]} children
 */
export const scrolling = (label, ...children) => h("div.scroll", { role: "region", tabindex: "0", "aria-label": label }, children);

/**
 * A list with an item for each, or nothing if there is none; an item is what `show` gives, in an element of its own if it is none.
 * @template T
 * @param {string} selector @param {readonly T[]} all @param {(each: T, index: number) => Child} show @param {Attributes} [attributes]
 */
export const list = (selector, all, show, attributes = {}) =>
  all.length > 0 &&
  h(
    selector,
    attributes,
    all.map((each, index) => item(show(each, index))),
  );

/** @param {Child} shown */
const item = (shown) => (shown instanceof HTMLLIElement ? shown : h("li", shown));

/**
 * The options of a choice.
 * @param {readonly string[]} values @param {string} [chosen]
 */
export const options = (values, chosen) => values.map((value) => h("option", { value, selected: value === chosen }, value));

/** Facts in one line; what is false is left out. @param {(string | false | 0 | null | undefined)[]} parts */
export const line = (...parts) => parts.filter(Boolean).join(" · ");
