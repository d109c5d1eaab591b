// DOM helpers. Text always goes through textContent, so names from traces can never become markup.

/** `text` whose figures stand whole on a line, thousands and unit with them. */
export function unbroken(text) {
  return text.replace(/(\d)\u2009(?=\d)/g, "$1\u202f").replace(/(\d) (?=[%\u00b5A-Za-z])/g, "$1\u00a0");
}

const NAMED_PAGE = /(\bpage \d\d\b|第 ?\d\d ?页)/;
const UNIT = "(?:%|[num\u00b5]?s|min|[kKMGTP]?i?B(?:\\/s)?|[kMGTP]?FLOP(?:\\/s(?:\\/device)?)?|(?:tokens|samples)\\/s(?:\\/device)?)";
const QUANTITY = new RegExp(`((?<![\\w.,-])[-+\u2212]?\\d[\\d.,\u202f]*\u00a0${UNIT}(?![\\w/]))`);

/** The parts of a sentence: quantities stand out, and pages that it names are links where a list of pages stands beside it. */
export function told(text) {
  return text.split(NAMED_PAGE).flatMap((part) => {
    if (!NAMED_PAGE.test(part)) return part.split(QUANTITY).map((piece) => (QUANTITY.test(piece) ? el("b", {}, piece) : piece));
    const number = part.match(/\d\d/)[0];
    const place = [...document.querySelectorAll(".rail-number")].find((one) => one.textContent === number)?.closest("a");
    return place ? el("a", { href: place.href, title: place.title }, part) : part;
  });
}

/** An element with attributes, listeners (`onclick`) and children; null children are left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list" && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Marks the first panel of the page, and the first that answers, as pickers do not. */
export function markFirst() {
  const all = [...document.querySelectorAll(".pk-panel")];
  document.documentElement.toggleAttribute("data-perfkit-several", all.length > 1);
  const answer = all.find((one) => one.dataset.panel && !one.dataset.panel.startsWith("choose-"));
  for (const panel of all) {
    panel.classList.toggle("pk-panel-first", panel === all[0]);
    panel.classList.toggle("pk-panel-answer", panel === answer);
  }
}

/** Puts a node of each of `items` into `box`, unless these items are in it already: what a visitor reads or has focused stays. */
export function replaceIfOther(box, items, draw) {
  const text = JSON.stringify(items);
  if (drawn.get(box) === text) return;
  drawn.set(box, text);
  box.replaceChildren(...items.map(draw));
}

const drawn = new WeakMap();

/** Calls `work` once the frame in the making is on the screen; a hidden page makes none. */
export function afterFrame(work) {
  if (document.hidden) setTimeout(work);
  else requestAnimationFrame(() => setTimeout(work));
}

/** An id that no other element of the page has. */
export function freshId(prefix) {
  // Every widget loads a copy of this module of its own, so the count is the page's.
  globalThis.perfkitLastId = (globalThis.perfkitLastId ?? 0) + 1;
  return `pk-${prefix}-${globalThis.perfkitLastId}`;
}

/** Hands `text` to the visitor as a file. */
export function download(name, content, type) {
  const url = content.startsWith?.("data:") ? content : URL.createObjectURL(new Blob([content], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A button that opens `content` beside it, and closes on Escape or a click elsewhere. */
export function popover(label, content) {
  const panel = el("div", { class: "pk-popover", hidden: true, id: freshId("popover") }, content);
  const button = el("button", { type: "button", class: "pk-quiet", "aria-expanded": "false", "aria-controls": panel.id }, label);
  const show = (open) => {
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(panel.hidden));
  const box = el("span", { class: "pk-popover-box" }, button, panel);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || panel.hidden) return;
    event.stopPropagation();
    show(false);
    button.focus();
  });
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target)) show(false);
  });
  return box;
}

/** CSV of equally long columns, or what a spreadsheet takes from a clipboard; a cell that it would run as a formula gets an apostrophe. */
export function csv(columns, separator = ",") {
  const names = Object.keys(columns);
  const length = names.length ? columns[names[0]].length : 0;
  const lines = [names.map(csvCell).join(separator)];
  for (let row = 0; row < length; row += 1) lines.push(names.map((name) => csvCell(columns[name][row])).join(separator));
  return `${lines.join("\r\n")}\r\n`;
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  let text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`;
  return /[",\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
