// The small views: the header with the page's address, and links to other pages.
import { ClassBar } from "./class_bar.js";
import { afterFrame, download, el } from "./dom.js";
import { renderOpener } from "./opener.js";
import { begin, finish } from "./ready.js";
import { t } from "./texts.js";

/** Draws with `draw` at once and whenever the trait `content` changes. */
function follow(draw) {
  return ({ model, el: host }) => {
    const root = el("div", { class: "pk" });
    host.replaceChildren(root);
    const key = model.get("key");
    begin(key);
    const redraw = () => draw(root, model.get("content"), (message) => model.send(message), model);
    model.on("change:content", redraw);
    redraw();
    finish(key);
    return () => model.off("change:content", redraw);
  };
}

const drawHeader = follow((root, content) => {
  const facts = [
    el("strong", { class: "pk-project" }, content.project),
    content.round ? el("span", {}, content.round) : null,
    content.goal ? el("span", {}, content.goal) : null,
    content.sample ? el("span", { class: "pk-badge" }, t("sample")) : null,
    content.read_only ? el("span", { class: "pk-badge" }, t("Read-only")) : null,
  ].filter(Boolean);
  const chips = content.chips.map((chip) => {
    const tag = chip.href ? "a" : "span";
    return el("li", {}, el(tag, {
      class: `pk-chip pk-chip-${chip.state}`, href: chip.href || null, title: chip.why || null,
      "aria-current": chip.state === "current" ? "step" : null,
    }, el("span", { class: "pk-chip-id" }, chip.id), ` ${chip.label}`));
  });
  const states = new Set(content.chips.map((chip) => chip.state));
  const marks = [["done", `\u2713 ${t("done")}`], ["next", `\u2192 ${t("comes next")}`]].filter(([state]) => states.has(state));
  if (marks.length) chips.push(el("li", { class: "pk-strip-key" }, marks.map(([, text]) => text).join(", ")));
  const strip = chips.length ? el("ol", { class: "pk-strip", "aria-label": t("cycle") }, chips) : null;
  const title = document.querySelector(".content .lead > h1");
  document.querySelectorAll(".content .lead > :is(.pk-strip, .pk-facts)").forEach((one) => one.remove());
  const about = el("div", { class: "pk-facts" }, facts);
  const inTitle = title && strip;  // in the app; a notebook has the title in a cell of its own
  root.replaceChildren(
    el("div", { class: "pk-header" }, inTitle ? null : about, ...content.warnings.map((text) => el("p", { class: "pk-text-warning" }, text)),
      inTitle ? null : strip),
  );
  if (!inTitle) return;
  title.after(strip);
  const now = strip.querySelector("[aria-current]"); // on a phone the strip scrolls, and where one is is what it says
  if (now) strip.scrollLeft = now.offsetLeft - strip.offsetLeft - (strip.clientWidth - now.offsetWidth) / 2;
  title.parentElement.append(about);
});

export const renderLinks = follow((root, content, send, model) => {
  const said = el("p", { class: "pk-links-said", role: "status" });
  const make = el("button", { type: "button", class: "pk-button pk-make", hidden: !content.notebook, onclick: () => send({ type: "notebook" }),
    title: t("This page as a notebook of your own, with what you chose on it written as code") }, t("New notebook from this page"));
  root.received ??= model.on("msg:custom", (message) => {
    if (message.type !== "notebook") return;
    if (message.text) download(message.name, message.text, "application/x-ipynb+json");
    root.querySelector(".pk-links-said").textContent = message.told ?? t("Downloaded");
  }) ?? true;
  root.replaceChildren(
    el("nav", { class: "pk-next", "aria-label": content.label },
      el("span", { class: "pk-next-label" }, content.label),
      content.links.map((link) =>
        el("a", { class: "pk-card", href: link.href },
          el("span", { class: "pk-card-title" }, link.title), link.why ? el("span", { class: "pk-card-why" }, link.why) : null))),
    make, said,
  );
});

/** The header is on every page, so it also keeps the page's address. */
export function renderHeader(context) {
  const stops = [drawHeader(context), followAddress(context.model), followClass(context), drawChanged(context), renderOpener(context)];
  return () => stops.forEach((stop) => stop());
}

/** In a class, the line above the page; elsewhere nothing. */
function followClass({ model, el: host }) {
  if (!("here" in model.get("bulletin"))) return () => {};
  const bar = new ClassBar(model);
  host.prepend(bar.root);
  return () => bar.stop();
}

/** A chip that says who else has changed the project, until this page is read anew. */
function drawChanged({ model, el: host }) {
  const text = el("span", {});
  const chip = el("div", { class: "pk-changed", role: "status", hidden: true }, text,
    el("button", { type: "button", class: "pk-quiet", onclick: () => location.reload() }, t("Reload")));
  host.append(chip);
  const draw = () => {
    text.textContent = model.get("changed");
    chip.hidden = !model.get("changed");
  };
  model.on("change:changed", draw);
  draw();
  return () => model.off("change:changed", draw);
}

/** What is left of a query once the page's `values` stand after #. */
function withoutValues(search, values) {
  const query = new URLSearchParams(search);
  for (const name of Object.keys(values)) query.delete(name);
  return query.size ? `?${query}` : "";
}

/** Keeps the trait `values` and the address's hash equal, once all are there that may have a value; the visitor's address wins. */
function followAddress(model) {
  let stop = () => {};
  let stopped = false;
  const before = model.get("values");
  (window.perfkitPage?.whole ?? Promise.resolve()).then(() => {
    if (!stopped) stop = keepAddress(model, before);
  });
  return () => {
    stopped = true;
    stop();
  };
}

/** Values that are others than `before` by now were chosen while the page was on its way: the address does not take them back. */
function keepAddress(model, before) {
  const read = (hash) => Object.fromEntries(new URLSearchParams(hash.slice(1)));
  // What the event says, not what stands there by now: an answer to an older address may have been written over a newer one.
  const fromEvent = (event) => follow(new URL(event.newURL).hash);
  const follow = (hash) => {
    const values = read(hash);
    if (JSON.stringify(values) !== JSON.stringify(model.get("values"))) model.send({ type: "hash", values });
  };
  const write = () => {
    waits = false;
    if (stopped) return;
    const hash = new URLSearchParams(model.get("values")).toString();
    // Also what stood there first and has become something else meanwhile, as a link's `show` becomes the view that it led to.
    const query = withoutValues(location.search, { ...before, ...model.get("values") });
    if (query !== location.search || hash !== new URLSearchParams(read(location.hash)).toString()) {
      history.replaceState(null, "", `${location.pathname}${query}${hash ? `#${hash}` : ""}`);
    }
  };
  let waits = false;
  let stopped = false;
  // The charts of an answer come first: to write an address takes the browser longer than to redraw one.
  const fromKernel = () => {
    if (!waits) afterFrame(write);
    waits = true;
  };
  model.on("change:values", fromKernel);
  addEventListener("hashchange", fromEvent);
  const values = model.get("values");
  const told = new URLSearchParams(location.search);  // what the kernel began with; a long address it has not heard yet
  const isUntold = ([name, value]) => values[name] !== value && (values[name] === before[name] || !told.has(name));
  const untold = Object.entries(read(location.hash)).filter(isUntold);
  if (untold.length) model.send({ type: "hash", values: { ...values, ...Object.fromEntries(untold) } });
  else fromKernel(); // the query has told it
  return () => {
    stopped = true;
    model.off("change:values", fromKernel);
    removeEventListener("hashchange", fromEvent);
  };
}
