// A chart: the specification becomes a live view once, later only its named data sets and parameters are replaced.
import { afterFrame, csv, download, el, freshId, popover } from "./dom.js";
import { hideOverlapping } from "./labels.js";
import { loadModule } from "./load_module.js";
import { folded, foldedConfig, narrowConfig, narrowed } from "./narrow.js";
import { expectedHeight } from "./reserve.js";
import { Table } from "./table.js";
import { colorsOf, onThemeChange, themed, vegaConfig } from "./theme.js";
import { leastShares } from "./shares.js";
import { t } from "./texts.js";
import { showTips, writtenLate } from "./tips.js";

// An SVG node a mark gets slow: 640 take a slider 50 ms; below, SVG stays sharp. Either is one picture to assistive technology, told by
// its text alternative and its table.
const CANVAS_FROM_ROWS = 400;

// Below, a legend in one line would be cut off at the right, and names beside bars would leave them no room.
const NARROW = 420;

// Of entries in a legend that its chart would cut off at the right; fewer, if that is still too wide.
const MOST_COLUMNS = 5;

export class Chart {
  /** `send` carries messages to the kernel; `description` is {name, title, spec, alt, sources}. */
  constructor(model, send) {
    this.model = model;
    this.send = send;
    this.datasets = {};
    this.params = {};
    this.pending = { rows: {}, values: {} }; // of `datasets` and `params`, what the view does not have yet
    this.rows = {}; // what the view holds, by data set: changed in place where only numbers change
    this.visible = true; // as far as known
    this.colors = null; // of the theme, once they are known
    this.tableRows = null; // see setTable
    this.laidOut = 0; // the plot's width, once it is known
    this.queue = Promise.resolve();
    this.plot = el("div", { class: "pk-plot", role: "img" });
    this.tableBox = el("div", { class: "pk-chart-table", hidden: true });
    this.tools = el("div", { class: "pk-tools", role: "group" });
    this.title = el("figcaption", { class: "pk-chart-title", id: freshId("title") });
    this.root = el("figure", { class: "pk-chart", "aria-labelledby": this.title.id },
      el("div", { class: "pk-chart-head" }, this.title, this.tools), this.plot, this.tableBox);
    this.stopTheme = onThemeChange(() => {
      this.colors = null;
      if (this.description) this.rebuild(this.description, this.datasets, this.params);
    });
    this.names = new MutationObserver(() => this.nameMarks());
    this.names.observe(this.plot, { subtree: true, childList: true, attributes: true, attributeFilter: ["role"] });
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(this.plot);
    this.sight = new IntersectionObserver((entries) => (this.visible = entries.at(-1).isIntersecting));
    this.sight.observe(this.plot);
  }

  /** Embeds a new structure; resolves when it is drawn. */
  rebuild(description, datasets, params = {}) {
    this.datasets = datasets;
    this.params = params;
    this.describe(description);
    if (!this.view) this.plot.style.minHeight = `${expectedHeight(description.spec, datasets)}px`;
    return this.enqueue(() => this.embed().finally(() => (this.plot.style.minHeight = "")));
  }

  /** Takes over title, text alternative and sources; the drawing stays. */
  describe(description) {
    const { title, name, sources } = description;
    const tools = JSON.stringify([title, name, sources]);
    this.description = description;
    this.setAlternative(description.alt);
    if (tools === this.toolsShown) return;
    this.toolsShown = tools;
    this.title.textContent = title ?? "";
    this.drawTools();
  }

  /** The sentence that stands for the drawing where it cannot be seen. */
  setAlternative(text) {
    const label = text || this.description.title || "chart";
    if (this.plot.getAttribute("aria-label") !== label) this.plot.setAttribute("aria-label", label);
  }

  /** Replaces the rows of some data sets and the values of some parameters of the live view; resolves when redrawn.
      A chart that is scrolled out of sight is redrawn after the next frame, so that those in sight are there sooner. */
  update(datasets = {}, params = {}) {
    const changed = (old, fresh) =>
      Object.fromEntries(Object.entries(fresh).filter(([name, value]) => JSON.stringify(old[name]) !== JSON.stringify(value)));
    const [rows, values] = [changed(this.datasets, datasets), changed(this.params, params)];
    this.datasets = { ...this.datasets, ...rows };
    this.params = { ...this.params, ...values };
    if (Object.keys(rows).length + Object.keys(values).length === 0) return this.queue;
    this.tableRows = null; // those of the drawing before
    this.pending = { rows: { ...this.pending.rows, ...rows }, values: { ...this.pending.values, ...values } };
    return this.enqueue(async () => {
      if (!this.visible) await new Promise(afterFrame);
      await this.patch();
    });
  }

  destroy() {
    this.stopTheme();
    this.resize.disconnect();
    this.sight.disconnect();
    this.names.disconnect();
    this.enqueue(() => this.view?.finalize());
  }

  enqueue(work) {
    this.queue = this.queue.then(work).catch((error) => {
      console.error("perfkit chart", error);
      this.plot.replaceChildren(el("p", { class: "pk-problem" }, t("This chart cannot be drawn: {0}", error.message)));
    });
    return this.queue;
  }

  /** Draws the structure, with `columns` of entries in its legends; 0 is as many as it says. */
  async embed(columns = this.isNarrow() ? 2 : 0) {
    const vega = await loadModule(this.model, "vega");
    const { spec } = this.description;
    this.narrow = this.isNarrow();
    this.folded = columns > 0;
    const colors = this.colors ?? colorsOf(this.root); // asked for once: the browser works out the styles of the page for it
    if (this.root.isConnected) this.colors = colors;
    const config = vegaConfig(colors, this.configFor(columns));
    const shown = this.narrow ? narrowed(spec, this.datasets, this.width()) : columns ? folded(spec) : spec;
    const compiled = vega.compile({ ...themed(shown, colors), config: undefined }, { config }).spec;
    this.sized = sizedSignals(shown, compiled);
    const rows = Math.max(0, ...Object.values(this.datasets).map(lengthOf));
    const view = new vega.View(vega.parse(writtenLate(compiled)), {
      renderer: spec.usermeta?.renderer ?? (rows > CANVAS_FROM_ROWS ? "canvas" : "svg"),
      loader: offlineLoader(vega),
      hover: true,
    });
    showTips(vega, view, (shown) => inWords(leastShares(shown), this.description.words));
    for (const [name, value] of Object.entries(this.params)) setSignal(view, name, value);
    this.rows = {};
    this.pending = { rows: {}, values: {} };
    for (const [name, columns] of Object.entries(this.datasets)) this.setData(view, name, columns);
    view.addEventListener("click", (event, item) => this.onClick(item));
    this.view?.finalize();
    const host = el("div"); // Vega writes its own role and label on its container
    this.plot.replaceChildren(host);
    this.view = view;
    if (this.sized && this.width()) view.signal("width", this.width());
    await view.initialize(host).runAsync();
    const fewer = columns === 0 ? MOST_COLUMNS : columns - 1;
    if (fewer > 0 && legendEnd(view) > this.width()) return this.embed(fewer);
    this.settle();
    this.drawTable();
  }

  configFor(columns) {
    const { config } = this.description.spec;
    if (this.narrow) return narrowConfig(config, this.width(), columns);
    return columns ? foldedConfig(config, this.width(), columns) : config;
  }

  async patch() {
    if (!this.view) return;
    const vega = await loadModule(this.model, "vega");
    const { rows, values } = this.pending;
    this.pending = { rows: {}, values: {} };
    for (const [name, value] of Object.entries(values)) setSignal(this.view, name, value);
    for (const [name, columns] of Object.entries(rows)) {
      if (!this.changeNumbers(vega, name, columns)) this.setData(this.view, name, columns);
    }
    await this.view.runAsync();
    if (values.present && (this.folded || legendEnd(this.view) > this.width())) return this.embed(); // its legend has other names
    this.settle();
    this.drawTable();
  }

  setData(view, name, columns) {
    const rows = rowsOf(columns);
    try {
      view.data(name, rows);
      this.rows[name] = rows;
    } catch (error) {
      if (!/unrecognized data set/i.test(error.message)) throw error;
      console.warn(`perfkit chart: no data set ${name}`);
    }
  }

  /** Changes the numbers of rows that stay, so that their marks stay too; false if there are other rows. */
  changeNumbers(vega, name, columns) {
    const rows = this.rows[name];
    const names = Object.keys(columns);
    if (!rows || rows.length !== lengthOf(columns) || rows.length === 0) return false;
    const changes = vega.changeset();
    for (const column of names) {
      const values = columns[column];
      for (let at = 0; at < rows.length; at += 1) {
        const [old, fresh] = [rows[at][column], values[at]];
        if (old === fresh) continue;
        if (typeof old !== "number" || typeof fresh !== "number") return false;
        changes.modify(rows[at], column, fresh);
      }
    }
    this.view.change(name, changes);
    return true;
  }

  // Vega calls a group of no marks a symbol; without a name it is nothing that a screen reader could say. Each resize does it again.
  nameMarks() {
    for (const group of this.plot.querySelectorAll('g[role="graphics-symbol"]:not([aria-label])')) group.removeAttribute("role");
  }

  /** As the browser said when it laid the plot out last: to ask it while an answer is drawn lays out the whole page once more. */
  width() {
    return Math.floor(this.laidOut || this.plot.clientWidth);
  }

  /** It has another place: how wide that is, the browser has to be asked. */
  moved() {
    this.laidOut = 0;
  }

  isNarrow() {
    const width = this.width();
    return width > 0 && width < NARROW;
  }

  fit() {
    this.laidOut = this.plot.clientWidth;
    this.settle();
    if (this.view && this.laidOut && this.isNarrow() !== this.narrow) {
      this.narrow = this.isNarrow();
      this.rebuild(this.description, this.datasets, this.params);
      return;
    }
    const width = this.width();
    if (!this.sized || !this.view || !width || this.view.signal("width") === width) return;
    this.enqueue(async () => {
      await this.view.signal("width", width).runAsync();
      if (legendEnd(this.view) > width) await this.embed();
      this.settle();
    });
  }

  /** Hides words that stand over others, and lets the keyboard scroll a drawing that is wider than its place. */
  settle() {
    if (this.view) hideOverlapping(this.view);
    afterFrame(() => {
      if (this.plot.scrollWidth > this.plot.clientWidth) this.plot.tabIndex = 0;
      else this.plot.removeAttribute("tabindex");
    });
  }

  onClick(item) {
    if (!item?.datum || item.mark?.role !== "mark") return;
    this.send({ type: "select", chart: this.description.name, datum: plain(item.datum) });
  }

  drawTools() {
    const name = this.description.name || "chart";
    const table = el("button", { type: "button", class: "pk-quiet", "aria-pressed": String(!this.tableBox.hidden) }, t("Table"));
    table.addEventListener("click", () => {
      this.tableBox.hidden = !this.tableBox.hidden;
      table.setAttribute("aria-pressed", String(!this.tableBox.hidden));
      this.drawTable();
    });
    const button = (label, title, onclick) => el("button", { type: "button", class: "pk-quiet pk-file-kind", title, onclick }, label);
    const sources = this.description.sources ?? [];
    this.tools.setAttribute("aria-label", t("{0}: view and download", this.description.title || name));
    this.tools.replaceChildren(
      ...[
        button("CSV", t("Download the rows of this chart"), () => download(`${name}.csv`, csv(this.named()), "text/csv")),
        button("PNG", t("Download this chart as a picture"), () => this.export("png")),
        button("SVG", t("Download this chart as a vector drawing"), () => this.export("svg")),
        table,
        sources.length ? popover(t("Where from"), el("ul", {}, sources.map((source) => el("li", {}, source)))) : null,
      ].filter(Boolean),
    );
  }

  async export(kind) {
    const name = this.description.name || "chart";
    if (!this.view) return;
    if (kind === "svg") download(`${name}.svg`, await this.view.toSVG(), "image/svg+xml");
    else download(`${name}.png`, await this.view.toImageURL("png", 2), "image/png");
  }

  /** What the table shows in place of what is drawn, where that is more; it comes after the drawing. */
  setTable(rows = null) {
    if (rows === this.tableRows) return; // an open table keeps its focus
    this.tableRows = rows;
    this.drawTable();
  }

  mainColumns() {
    if (this.tableRows) return this.tableRows;
    const name = this.description.table ?? Object.keys(this.datasets)[0];
    return this.datasets[name] ?? {};
  }

  /** The rows of the chart as a person reads them, under the heads of their columns. */
  told() {
    const { headers = {}, heads = {}, words = {} } = this.description;
    return Object.fromEntries(Object.entries(this.mainColumns()).map(([name, values]) =>
      [heads[name] ?? headers[name] ?? name, values.map((value) => words[value] ?? value)]));
  }

  /** The rows of the chart under the names that they have in a file, which say the unit. */
  named() {
    const { headers = {} } = this.description;
    return Object.fromEntries(Object.entries(this.mainColumns()).map(([name, values]) => [headers[name] ?? name, values]));
  }

  drawTable() {
    if (this.tableBox.hidden) return;
    const columns = this.mainColumns();
    const table = new Table((row) => this.send({ type: "select", chart: this.description.name, datum: rowAt(columns, row) }));
    table.update(rawTable(this.told()));
    this.tableBox.replaceChildren(table.root);
  }
}

/** What a tooltip shows in the words of the page, which has the rows in those of the code. */
function inWords(shown, words = {}) {
  if (shown === null || typeof shown !== "object") return words[shown] ?? shown;
  return Object.fromEntries(Object.entries(shown).map(([name, value]) => [name, words[value] ?? value]));
}

function rawTable(columns) {
  return {
    selectable: true,
    label: t("rows of the chart"),
    columns: Object.entries(columns).map(([name, raw]) => ({
      label: name,
      values: raw,
      text: raw.map((value) => (typeof value === "number" ? Number(value.toPrecision(4)).toLocaleString("en").replaceAll(",", "\u2009") : String(value ?? ""))),
      numeric: raw.every((value) => value === null || typeof value === "number"),
    })),
  };
}

function setSignal(view, name, value) {
  try {
    view.signal(name, value);
  } catch (error) {
    if (!/unrecognized signal/i.test(error.message)) throw error;
    console.warn(`perfkit chart: no parameter ${name}`);
  }
}

export function rowsOf(columns) {
  const names = Object.keys(columns);
  const rows = new Array(names.length ? columns[names[0]].length : 0);
  for (let index = 0; index < rows.length; index += 1) rows[index] = rowAt(columns, index, names);
  return rows;
}

function rowAt(columns, index, names = Object.keys(columns)) {
  const row = {};
  for (const name of names) row[name] = columns[name][index];
  return row;
}

function lengthOf(columns) {
  return Object.values(columns)[0]?.length ?? 0;
}

function plain(datum) {
  return Object.fromEntries(
    Object.entries(datum).filter(([, value]) => value === null || ["string", "number", "boolean"].includes(typeof value)),
  );
}

/** Where the legends of a drawing end, in pixels from its left. */
function legendEnd(view) {
  const groups = view.scenegraph().root.items[0].items.filter((mark) => mark.role === "legend");
  return view.origin()[0] + Math.max(0, ...groups.flatMap(({ items }) => items.map(({ bounds }) => bounds.x2)));
}

// A chart as wide as its container follows it; concatenated ones have no such width and keep their own.
function sizedSignals(spec, compiled) {
  return spec.width === "container" && (compiled.signals ?? []).some((signal) => signal.name === "width");
}

// Charts get their rows from the kernel. A specification that names an address is refused instead of fetched.
function offlineLoader(vega) {
  const loader = vega.loader();
  const refuse = async (uri) => {
    throw new Error(`charts load nothing from outside (${String(uri).slice(0, 80)})`);
  };
  return { ...loader, load: refuse, http: refuse, file: refuse, sanitize: refuse };
}
